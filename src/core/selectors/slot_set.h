// slot_set.h — a set of slots that can return its k-th smallest element.
//
// Uses one bit per slot, with counts per page of 4096 bits and per group of 64 pages, so that Select() skips
// whole groups, then whole pages, then words. The results depend only on the set, not on the order of
// insertion.
#ifndef REVERB_CORE_SELECTORS_SLOT_SET_H_
#define REVERB_CORE_SELECTORS_SLOT_SET_H_

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/flat_array.h"
#include "reverb/selector.h"

namespace reverb::internal {

class SlotSet {
 public:
  size_t size() const { return size_; }

  bool Contains(Slot slot) const {
    const size_t word = slot / 64;
    return word < words_.size() && (words_[word] >> (slot % 64) & 1) != 0;
  }

  // REQUIRES: slot is not in the set.
  void Insert(Slot slot) {
    assert(!Contains(slot));
    if (slot / 64 >= words_.size()) Grow(slot);
    words_[slot / 64] |= uint64_t{1} << (slot % 64);
    ++page_counts_[slot >> kPageShift];
    ++group_counts_[slot >> kGroupShift];
    ++size_;
  }

  // REQUIRES: slot is in the set.
  void Erase(Slot slot) {
    assert(Contains(slot));
    words_[slot / 64] &= ~(uint64_t{1} << (slot % 64));
    --page_counts_[slot >> kPageShift];
    --group_counts_[slot >> kGroupShift];
    --size_;
  }

  // Returns the slot with `rank` smaller ones in the set. REQUIRES: rank < size().
  Slot Select(uint64_t rank) const {
    assert(rank < size_);
    size_t group = 0;
    while (rank >= group_counts_[group]) rank -= group_counts_[group++];
    size_t page = group << (kGroupShift - kPageShift);
    while (rank >= page_counts_[page]) rank -= page_counts_[page++];
    size_t word = page << (kPageShift - 6);
    for (uint64_t count; rank >= (count = std::popcount(words_[word])); ++word) rank -= count;
    uint64_t bits = words_[word];
    for (; rank > 0; --rank) bits &= bits - 1;
    return static_cast<Slot>(word * 64 + std::countr_zero(bits));
  }

  // Empties the set and frees its memory.
  void Clear() { *this = SlotSet(); }

  void Prefetch(Slot slot) const {
    if (slot / 64 < words_.size()) __builtin_prefetch(&words_[slot / 64], 1);
    asm volatile("");  // without it, GCC 12 removes calls of functions that only prefetch
  }

 private:
  static constexpr int kPageShift = 12;
  static constexpr int kGroupShift = 18;

  void Grow(Slot slot) {
    // Grows by whole pages.
    const size_t pages = (static_cast<size_t>(slot) >> kPageShift) + 1;
    words_.Resize(pages << (kPageShift - 6));
    page_counts_.Resize(pages);
    group_counts_.Resize((static_cast<size_t>(slot) >> kGroupShift) + 1);
  }

  FlatArray<uint64_t> words_;
  FlatArray<uint32_t> page_counts_;
  FlatArray<uint32_t> group_counts_;
  size_t size_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_SELECTORS_SLOT_SET_H_
