// The part before HWY_ONCE is compiled for each instruction set that Highway supports on this processor
// family; the best one is selected when a tree is created.
#include "core/selectors/sum_tree.h"

#include <algorithm>
#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/selectors/sum_tree.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef REVERB_CORE_SELECTORS_SUM_TREE_SCALAR_
#define REVERB_CORE_SELECTORS_SUM_TREE_SCALAR_
namespace reverb::internal {
namespace {

// Returns the largest number below `value`. REQUIRES: value > 0.
inline double JustBelow(double value) { return std::bit_cast<double>(std::bit_cast<uint64_t>(value) - 1); }

// The reference implementation of all instruction sets. The prefix sums are those of invariant (2).
struct ScalarNode {
  static double Sum(const double* c) {
    return ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
  }

  // Returns the child that contains `point`; makes the point relative to that child.
  static size_t Find(const double* c, double* point) {
    double running[9];  // running[k] = the sum of the first k children
    double* const p = running + 1;
    running[0] = 0;
    p[0] = c[0];
    p[1] = c[0] + c[1];
    p[2] = p[1] + c[2];
    p[3] = p[1] + (c[2] + c[3]);
    const double q1 = c[4] + c[5];
    p[4] = p[3] + c[4];
    p[5] = p[3] + q1;
    p[6] = p[3] + (q1 + c[6]);
    p[7] = p[3] + (q1 + (c[6] + c[7]));
    double x = *point;
    // Rounding at higher levels may have moved the point to the end or past it.
    if (x >= p[7]) [[unlikely]]
      x = JustBelow(p[7]);
    size_t child = 0;
    for (size_t i = 0; i < 7; ++i) child += p[i] <= x;
    *point = x - running[child];
    return child;
  }
};

}  // namespace
}  // namespace reverb::internal
#endif  // REVERB_CORE_SELECTORS_SUM_TREE_SCALAR_

HWY_BEFORE_NAMESPACE();
namespace reverb::internal::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_MAX_BYTES >= 32
namespace hn = hwy::HWY_NAMESPACE;

struct Node {
  // Four lanes are 256 bits, in AVX2 and in AVX-512.
  using Four = hn::CappedTag<double, 4>;

  static HWY_INLINE HWY_ATTR double Sum(const double* c) {
    const Four d;
    const hn::Half<Four> half;
    const auto a = hn::Load(d, c);
    const auto b = hn::Load(d, c + 4);
    // c0+c1, c4+c5, c2+c3, c6+c7
    const auto pairs = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
    const auto halves = hn::Add(hn::LowerHalf(half, pairs), hn::UpperHalf(half, pairs));
    return hn::GetLane(halves) + hn::GetLane(hn::InterleaveUpper(half, halves, halves));
  }

  static HWY_INLINE HWY_ATTR size_t Find(const double* c, double* point) {
    alignas(64) double running[16];  // from [7]: 0, p0, ... p7
    double x = *point;
    running[7] = 0;
#if HWY_MAX_BYTES >= 64
    using Eight = hn::CappedTag<double, 8>;
    const Eight d;
    alignas(64) static constexpr int64_t kPrevious[8] = {1, 1, 1, 1, 5, 5, 5, 5};
    alignas(64) static constexpr int64_t kMiddle[8] = {3, 3, 3, 3, 3, 3, 3, 3};
    alignas(64) static constexpr int64_t kLanes2367[8] = {0, 0, -1, -1, 0, 0, -1, -1};
    alignas(64) static constexpr int64_t kLanes4567[8] = {0, 0, 0, 0, -1, -1, -1, -1};
    const hn::RebindToSigned<Eight> di;
    const auto lanes2367 = hn::RebindMask(d, hn::MaskFromVec(hn::Load(di, kLanes2367)));
    const auto lanes4567 = hn::RebindMask(d, hn::MaskFromVec(hn::Load(di, kLanes4567)));
    auto p = hn::Load(d, c);
    p = hn::Add(p, hn::InterleaveLower(d, hn::Zero(d), p));
    p = hn::Add(p, hn::IfThenElseZero(lanes2367, hn::TableLookupLanes(p, hn::SetTableIndices(d, kPrevious))));
    p = hn::Add(p, hn::IfThenElseZero(lanes4567, hn::TableLookupLanes(p, hn::SetTableIndices(d, kMiddle))));
    hn::Store(p, d, running + 8);
    size_t child = hn::CountTrue(d, hn::Le(p, hn::Set(d, x)));
    if (child == 8) [[unlikely]] {
      x = JustBelow(running[15]);
      child = hn::CountTrue(d, hn::Le(p, hn::Set(d, x)));
    }
#else
    const Four d;
    auto a = hn::Load(d, c);
    auto b = hn::Load(d, c + 4);
    const auto zero = hn::Zero(d);
    a = hn::Add(a, hn::InterleaveLower(d, zero, a));
    b = hn::Add(b, hn::InterleaveLower(d, zero, b));
    // Adds the second lane to the upper two lanes.
    const auto a1 = hn::ConcatLowerLower(d, a, zero);
    const auto b1 = hn::ConcatLowerLower(d, b, zero);
    a = hn::Add(a, hn::InterleaveUpper(d, a1, a1));
    b = hn::Add(b, hn::InterleaveUpper(d, b1, b1));
    const auto a3 = hn::ConcatUpperUpper(d, a, a);
    b = hn::Add(b, hn::InterleaveUpper(d, a3, a3));
    hn::Store(a, d, running + 8);
    hn::Store(b, d, running + 12);
    auto at = hn::Set(d, x);
    size_t child = hn::CountTrue(d, hn::Le(a, at)) + hn::CountTrue(d, hn::Le(b, at));
    if (child == 8) [[unlikely]] {
      x = JustBelow(running[15]);
      at = hn::Set(d, x);
      child = hn::CountTrue(d, hn::Le(a, at)) + hn::CountTrue(d, hn::Le(b, at));
    }
#endif
    *point = x - running[7 + child];
    return child;
  }
};
#else
using Node = ScalarNode;
#endif

// Moves all points down one level before the next, so that the memory accesses of a level overlap.
HWY_ATTR void Find(const SumTreeLevels& levels, double* points, Slot* slots, size_t n) {
  if (n == 1) {
    // Same, with all values in registers: each step depends on the previous one.
    double point = points[0];
    size_t node = 0;
    for (int level = levels.depth - 1; level >= 0; --level) {
      node = node * 8 + Node::Find(levels.values[level] + node * 8, &point);
    }
    slots[0] = static_cast<Slot>(node);
    return;
  }
  for (size_t i = 0; i < n; ++i) slots[i] = 0;
  for (int level = levels.depth - 1; level > 0; --level) {
    const double* const values = levels.values[level];
    const double* const below = levels.values[level - 1];
    for (size_t i = 0; i < n; ++i) {
      const size_t node = size_t{slots[i]} * 8;
      const size_t child = node + Node::Find(values + node, &points[i]);
      __builtin_prefetch(below + child * 8);
      slots[i] = static_cast<Slot>(child);
    }
  }
  const double* const weights = levels.values[0];
  for (size_t i = 0; i < n; ++i) {
    const size_t node = size_t{slots[i]} * 8;
    slots[i] = static_cast<Slot>(node + Node::Find(weights + node, &points[i]));
  }
}

HWY_ATTR double Refresh(const SumTreeLevels& levels, Slot* slots, size_t n) {
  for (int level = 0; level + 1 < levels.depth; ++level) {
    // From here on `slots` are nodes of this level that must be recomputed.
    if (levels.size(level) > 64 * 8) {
      // Few slots share a node here; merges only adjacent duplicates, as in sorted slots.
      Slot previous = slots[0] >> 3;
      size_t distinct = 0;
      slots[distinct++] = previous;
      for (size_t i = 1; i < n; ++i) {
        const Slot node = slots[i] >> 3;
        slots[distinct] = node;
        distinct += node != previous;
        previous = node;
      }
      n = distinct;
    } else {
      uint64_t touched = 0;
      for (size_t i = 0; i < n; ++i) touched |= uint64_t{1} << (slots[i] >> 3);
      for (n = 0; touched != 0; touched &= touched - 1)
        slots[n++] = static_cast<Slot>(std::countr_zero(touched));
    }
    const double* const children = levels.values[level];
    double* const sums = levels.values[level + 1];
    for (size_t i = 0; i < n; ++i) sums[slots[i]] = Node::Sum(children + size_t{slots[i]} * 8);
  }
  return Node::Sum(levels.values[levels.depth - 1]);
}

const SumTreeKernels* Kernels() {
  static constexpr SumTreeKernels kKernels = {&Find, &Refresh};
  return &kKernels;
}

}  // namespace reverb::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reverb::internal {

HWY_EXPORT(Kernels);

SumTree::SumTree() : kernels_(HWY_DYNAMIC_DISPATCH(Kernels)()) {}

void SumTree::Grow(Slot slot) {
  SumTreeLevels grown;
  grown.capacity = std::max<size_t>(64, std::bit_ceil(size_t{slot} + 1));
  while (grown.depth == 0 || grown.size(grown.depth - 1) > SumTreeLevels::kArity) {
    const int level = grown.depth++;
    memory_[level].Grow(grown.size(level) * sizeof(double));  // new values are 0
    grown.values[level] = reinterpret_cast<double*>(memory_[level].data());
    // Memory that could not be had must leave the tree as it was.
    if (level < levels_.depth) levels_.values[level] = grown.values[level];
    if (level >= levels_.depth && levels_.depth > 0) {
      grown.values[level][0] = total_;  // the old tree becomes the first child
    }
  }
  levels_ = grown;
}

void SumTree::RefreshAll() {
  if (levels_.depth == 0) return;
  for (int level = 0; level + 1 < levels_.depth; ++level) {
    const double* const children = levels_.values[level];
    double* const sums = levels_.values[level + 1];
    for (size_t node = 0; node < levels_.size(level) / 8; ++node)
      sums[node] = ScalarNode::Sum(children + 8 * node);
  }
  total_ = ScalarNode::Sum(levels_.values[levels_.depth - 1]);
}

void SumTree::Clear() {
  for (GrowingMemory& memory : memory_) memory.Free();
  levels_ = SumTreeLevels();
  total_ = 0;
}

}  // namespace reverb::internal
#endif  // HWY_ONCE
