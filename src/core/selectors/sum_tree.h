// sum_tree.h — weights by slot, with search by the cumulative sum.
//
// An 8-ary tree of doubles, eight children per cache line. Level 0 holds the weights, level l + 1 the sums of
// the nodes of level l; the last level is one node, whose sum is the total.
//
// Invariants:
// (1) A node's sum is always ((c0+c1)+(c2+c3)) + ((c4+c5)+(c6+c7)), computed from the children and never by
//     adding a difference. Sums therefore do not drift: they are a pure function of the weights, the same
//     after any history, on any processor, for any capacity (missing children add an exact zero).
// (2) In a node, a search compares with these prefix sums:
//       p0 = c0, p1 = c0+c1, p2 = p1+c2, p3 = p1+(c2+c3), p4..p7 = p3 + the same of c4..c7.
//     They never decrease, a child of zero does not change them, and p7 is the node's sum, all in rounded
//     arithmetic. A search that selects the first child whose prefix sum exceeds the point therefore selects
//     a child with a positive sum, down to a positive weight.
// Additions use no other order, including in vector code, so results are bit-identical on all instruction
// sets.
//
// Threads: the caller provides locking.
#ifndef REVERB_CORE_SELECTORS_SUM_TREE_H_
#define REVERB_CORE_SELECTORS_SUM_TREE_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/flat_array.h"
#include "reverb/selector.h"

namespace reverb::internal {

// The arrays of a tree, for the code that is compiled for each instruction set.
struct SumTreeLevels {
  static constexpr size_t kArity = 8;
  static constexpr int kMaxDepth = 11;  // 8^11 > 2^32

  double* values[kMaxDepth] = {};
  int depth = 0;
  size_t capacity = 0;  // number of weights: a power of two, or 0

  // Returns the number of values in a level, including padding in its last node.
  size_t size(int level) const {
    const size_t size = capacity >> (3 * level);
    return size < kArity ? kArity : size;
  }
};

struct SumTreeKernels {
  // Replaces each point in [0, total) by the slot at that point. Overwrites `points`.
  void (*find)(const SumTreeLevels& levels, double* points, Slot* slots, size_t n);
  // Recomputes all sums above the given slots; returns the total. Overwrites `slots`.
  double (*refresh)(const SumTreeLevels& levels, Slot* slots, size_t n);
};

class SumTree {
 public:
  // The largest weight. The sum of 2^32 of them is 2^1023, so no sum is ever infinite.
  static constexpr double kMaxWeight = 0x1p991;
  // Recommended numbers of slots for Find() and Refresh().
  static constexpr size_t kFindGroup = 32;
  static constexpr size_t kRefreshGroup = 64;

  SumTree();
  SumTree(const SumTree&) = delete;
  SumTree& operator=(const SumTree&) = delete;

  size_t capacity() const { return levels_.capacity; }
  // Returns the sum of all weights.
  double total() const { return total_; }
  // Returns the weight of a slot. REQUIRES: slot < capacity().
  double operator[](Slot slot) const {
    assert(slot < levels_.capacity);
    return levels_.values[0][slot];
  }
  const SumTreeLevels& levels() const { return levels_; }

  // Reserves space for `slot`. New weights are 0.
  void Reserve(Slot slot) {
    if (slot >= levels_.capacity) [[unlikely]]
      Grow(slot);
  }

  // REQUIRES: slot < capacity(), 0 <= weight <= kMaxWeight.
  void Set(Slot slot, double weight) {
    assert(slot < levels_.capacity && weight >= 0 && weight <= kMaxWeight);
    // Sums the siblings of the changed child separately on each level: these sums do not depend on the level
    // below, and no stored value is read back.
    double sum = weight;
    size_t index = slot;
    for (int level = 0; level < levels_.depth; ++level, index >>= 3) {
      double* const node = levels_.values[level] + (index & ~size_t{7});
      const size_t child = index & 7;
      const double* const pair = node + ((child ^ 2) & 6);
      const double* const half = node + ((child ^ 4) & 4);
      const double pair_sum = pair[0] + pair[1];
      const double half_sum = (half[0] + half[1]) + (half[2] + half[3]);
      const double sibling = node[child ^ 1];
      node[child] = sum;
      sum = ((sum + sibling) + pair_sum) + half_sum;
    }
    total_ = sum;
  }

  // For many changes: set each weight separately, then recompute the sums above them with Refresh(), which
  // visits each affected node about once. Only operator[] may be called in between.
  void SetWeightOnly(Slot slot, double weight) {
    assert(slot < levels_.capacity && weight >= 0 && weight <= kMaxWeight);
    levels_.values[0][slot] = weight;
  }
  // Overwrites `slots`.
  void Refresh(Slot* slots, size_t n) {
    if (n > 0) total_ = kernels_->refresh(levels_, slots, n);
  }
  void RefreshAll();

  // Replaces each point by the slot at that point. A point uniform in [0, total()) finds a slot with
  // probability weight / total(), and never one with weight zero, whatever the rounding. Overwrites `points`.
  // REQUIRES: total() > 0, points >= 0.
  void Find(double* points, Slot* slots, size_t n) const {
    assert(total_ > 0);
    kernels_->find(levels_, points, slots, n);
  }

  // Frees the memory.
  void Clear();

  // Prefetches the memory that Set() or Refresh() of this slot will access.
  void Prefetch(Slot slot) const {
    if (slot >= levels_.capacity) return;
    // Higher levels are small and always cached.
    size_t index = slot;
    for (int level = 0; level < 3 && level < levels_.depth; ++level, index >>= 3) {
      __builtin_prefetch(levels_.values[level] + (index & ~size_t{7}), 1);
      asm volatile("");  // without it, GCC 12 removes calls of functions that only prefetch
    }
  }

 private:
  void Grow(Slot slot);

  const SumTreeKernels* const kernels_;
  GrowingMemory memory_[SumTreeLevels::kMaxDepth];  // of levels_
  SumTreeLevels levels_;
  double total_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_SELECTORS_SUM_TREE_H_
