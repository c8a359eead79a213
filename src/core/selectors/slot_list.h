// slot_list.h — a doubly linked list of slots, in the order in which they were added.
//
// Links are in an array indexed by slot: each operation takes constant time and no allocation, wherever the slot is in the
// list.
//
// Threads: the caller holds the table's lock.
#ifndef REVERB_CORE_SELECTORS_SLOT_LIST_H_
#define REVERB_CORE_SELECTORS_SLOT_LIST_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/flat_array.h"
#include "reverb/selector.h"

namespace reverb::internal {

class SlotList {
 public:
  static constexpr Slot kNone = UINT32_MAX;
  static constexpr size_t kBytesPerSlot = 8;

  bool empty() const { return first_ == kNone; }
  // kNone if the list is empty.
  Slot first() const { return first_; }
  Slot last() const { return last_; }
  bool Contains(Slot slot) const {
    return slot < links_.size() && (links_[slot].before != kNone || first_ == slot);
  }

  // REQUIRES for both: !Contains(slot).
  void Append(Slot slot) {
    Grow(slot);
    links_[slot] = {last_, kNone};
    (last_ == kNone ? first_ : links_[last_].after) = slot;
    last_ = slot;
  }
  void Prepend(Slot slot) {
    Grow(slot);
    links_[slot] = {kNone, first_};
    (first_ == kNone ? last_ : links_[first_].before) = slot;
    first_ = slot;
  }
  // REQUIRES: Contains(slot).
  void Remove(Slot slot) {
    assert(Contains(slot));
    const Link link = links_[slot];
    (link.before == kNone ? first_ : links_[link.before].after) = link.after;
    (link.after == kNone ? last_ : links_[link.after].before) = link.before;
    links_[slot] = Link();
  }
  // Empties the list and frees its memory.
  void Clear() {
    links_.Clear();
    first_ = last_ = kNone;
  }

  void Prefetch(Slot slot) const {
    if (slot < links_.size()) __builtin_prefetch(&links_[slot], 1);
    asm volatile("");  // without it, GCC 12 removes calls of functions that only prefetch
  }

 private:
  struct Link {
    Slot before = kNone;
    Slot after = kNone;
  };
  static_assert(sizeof(Link) == kBytesPerSlot);

  void Grow(Slot slot) {
    assert(!Contains(slot));
    if (slot >= links_.size()) links_.Resize(static_cast<size_t>(slot) + 1);
  }

  FlatArray<Link> links_;  // by slot
  Slot first_ = kNone;
  Slot last_ = kNone;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_SELECTORS_SLOT_LIST_H_
