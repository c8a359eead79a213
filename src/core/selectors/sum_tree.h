// sum_tree.h — weights by slot, and the slot at a given point of their running sum.
//
// An 8-ary tree of doubles, eight children to a cache line. Level 0 holds the weights, level
// l + 1 the sums of the nodes of level l; the last level is one node, whose sum is the total.
//
// Invariants:
// (1) A node's sum is always ((c0+c1)+(c2+c3)) + ((c4+c5)+(c6+c7)), computed from the children
//     themselves and never by adding a difference. Sums therefore do not drift: they are a
//     pure function of the weights, the same after any history, on any processor, for any
//     capacity (children that do not exist add an exact zero).
// (2) In a node, the running sums that a search compares with are
//       p0 = c0, p1 = c0+c1, p2 = p1+c2, p3 = p1+(c2+c3), p4..p7 = p3 + the same of c4..c7.
//     They never fall, they stay equal over a child of zero, and p7 is the node's sum, all in
//     rounded arithmetic. So a search that takes the first child whose running sum is above
//     the point takes one of positive sum, down to a positive weight.
// Additions have no other order anywhere, vector code included; so results are the same to
// the last bit whichever instructions a processor has.
//
// Threads: needs the caller's lock.
#ifndef REVERB_CORE_SELECTORS_SUM_TREE_H_
#define REVERB_CORE_SELECTORS_SUM_TREE_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "reverb/selector.h"

namespace reverb::internal {

// The arrays of a tree, for the code that is compiled once per instruction set.
struct SumTreeLevels {
  static constexpr size_t kArity = 8;
  static constexpr int kMaxDepth = 11;  // 8^11 > 2^32

  double* values[kMaxDepth] = {};
  int depth = 0;
  size_t capacity = 0;  // weights: a power of two, or 0

  // Values in a level, including those that only fill its last node.
  size_t size(int level) const {
    const size_t size = capacity >> (3 * level);
    return size < kArity ? kArity : size;
  }
};

struct SumTreeKernels {
  // Replaces each point of [0, total) by the slot at that point. Overwrites `points`.
  void (*find)(const SumTreeLevels& levels, double* points, Slot* slots, size_t n);
  // Recomputes every sum above the given slots; returns the total. Overwrites `slots`.
  double (*refresh)(const SumTreeLevels& levels, Slot* slots, size_t n);
};

class SumTree {
 public:
  // The largest weight. 2^32 of them sum to 2^1023, so that no sum is ever infinite.
  static constexpr double kMaxWeight = 0x1p991;
  // As many slots as Find() and Refresh() like to have at a time.
  static constexpr size_t kFindGroup = 32;
  static constexpr size_t kRefreshGroup = 64;

  SumTree();
  SumTree(const SumTree&) = delete;
  SumTree& operator=(const SumTree&) = delete;
  ~SumTree() { Clear(); }

  size_t capacity() const { return levels_.capacity; }
  // The sum of all weights.
  double total() const { return total_; }
  // The weight of a slot. REQUIRES: slot < capacity().
  double operator[](Slot slot) const {
    assert(slot < levels_.capacity);
    return levels_.values[0][slot];
  }
  const SumTreeLevels& levels() const { return levels_; }

  // Makes room for `slot`. New weights are 0.
  void Reserve(Slot slot) {
    if (slot >= levels_.capacity) [[unlikely]]
      Grow(slot);
  }

  // REQUIRES: slot < capacity(), 0 <= weight <= kMaxWeight.
  void Set(Slot slot, double weight) {
    assert(slot < levels_.capacity && weight >= 0 && weight <= kMaxWeight);
    // On each level the siblings are summed apart from the child that changes: those sums do
    // not wait for the level below, and nothing just stored is read back.
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

  // Many at once: set each weight by itself, then have the sums above them recomputed, each
  // touched node about once. No other call in between but operator[].
  void SetWeightOnly(Slot slot, double weight) {
    assert(slot < levels_.capacity && weight >= 0 && weight <= kMaxWeight);
    levels_.values[0][slot] = weight;
  }
  // Overwrites `slots`.
  void Refresh(Slot* slots, size_t n) {
    if (n > 0) total_ = kernels_->refresh(levels_, slots, n);
  }
  void RefreshAll();

  // Replaces each point by the slot at that point: a slot is found with probability
  // weight / total() by a point uniform in [0, total()), one of zero weight never, however
  // the sums were rounded. Overwrites `points`. REQUIRES: total() > 0, points >= 0.
  void Find(double* points, Slot* slots, size_t n) const {
    assert(total_ > 0);
    kernels_->find(levels_, points, slots, n);
  }

  // Gives the memory back.
  void Clear();

  // Asks for what Set() or Refresh() of this slot will touch.
  void Prefetch(Slot slot) const {
    if (slot >= levels_.capacity) return;
    // Higher levels are small and in use all the time.
    size_t index = slot;
    for (int level = 0; level < 3 && level < levels_.depth; ++level, index >>= 3) {
      __builtin_prefetch(levels_.values[level] + (index & ~size_t{7}), 1);
    }
  }

 private:
  void Grow(Slot slot);

  const SumTreeKernels* const kernels_;
  SumTreeLevels levels_;
  double total_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_SELECTORS_SUM_TREE_H_
