// MinHeap and MaxHeap: a 4-ary heap whose entries contain their keys, plus the position of each slot.
//
// The order is total: priority, then the last update (the least recently updated wins, for both kinds), then
// the slot. The selection therefore depends only on the items, not on the shape of the heap.
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/flat_array.h"
#include "core/selectors/selectors_internal.h"
#include "reverb/selector.h"

namespace reverb::internal {
namespace {

class HeapSelector final : public Selector {
 public:
  explicit HeapSelector(const SelectorOptions& options)
      : options_(options), sign_(options.kind == SelectorOptions::Kind::kMaxHeap ? -1.0 : 1.0) {}

  SelectorOptions options() const override { return options_; }

  void Insert(const SelectorItem& item) override {
    if (item.slot >= positions_.size()) positions_.Resize(static_cast<size_t>(item.slot) + 1, kNoPosition);
    assert(positions_[item.slot] == kNoPosition);
    heap_.PushBack(Entry());
    SiftUp(heap_.size() - 1, MakeEntry(item));
  }

  void Update(std::span<const SelectorItem> items) override {
    for (const SelectorItem& item : items) {
      assert(item.slot < positions_.size() && positions_[item.slot] != kNoPosition);
      Place(positions_[item.slot], MakeEntry(item));
    }
  }

  void Delete(Slot slot) override {
    assert(slot < positions_.size() && positions_[slot] != kNoPosition);
    const size_t hole = positions_[slot];
    positions_[slot] = kNoPosition;
    const Entry last = heap_.back();
    heap_.PopBack();
    if (hole < heap_.size()) Place(hole, last);
  }

  void Clear() override {
    heap_.Clear();
    positions_.Clear();
  }

  void Sample(std::span<Selection> out) override {
    assert(out.empty() || !heap_.empty());
    for (Selection& selection : out) selection = {heap_.front().slot, 1.0};
  }

  void Prefetch(Slot slot) const override {
    if (slot < positions_.size()) __builtin_prefetch(&positions_[slot], 1);
  }

  Status Restore(std::span<const SelectorItem> items, std::string_view state) override {
    assert(heap_.empty());
    if (!state.empty()) {
      return CorruptState("restoring a heap selector: it has no state, but " + std::to_string(state.size()) +
                          " bytes were saved");
    }
    REVERB_RETURN_IF_ERROR(CheckItems(*this, items));
    heap_.Reserve(items.size());
    for (const SelectorItem& item : items) {
      if (item.slot >= positions_.size()) positions_.Resize(static_cast<size_t>(item.slot) + 1, kNoPosition);
      positions_[item.slot] = static_cast<uint32_t>(heap_.size());
      heap_.PushBack(MakeEntry(item));
    }
    if (heap_.size() > 1) {
      for (size_t i = Parent(heap_.size() - 1) + 1; i-- > 0;) SiftDown(i, heap_[i]);
    }
    return Status::Ok();
  }

 private:
  static constexpr size_t kArity = 4;

  struct Entry {
    double key;  // the priority, negated for a max heap: the smallest is selected first
    uint64_t touched;
    Slot slot;
  };

  static bool Before(const Entry& a, const Entry& b) {
    if (a.key != b.key) return a.key < b.key;
    if (a.touched != b.touched) return a.touched < b.touched;
    return a.slot < b.slot;
  }
  static size_t Parent(size_t i) { return (i - 1) / kArity; }

  Entry MakeEntry(const SelectorItem& item) const { return {sign_ * item.priority, item.touched, item.slot}; }

  void Put(size_t i, const Entry& entry) {
    heap_[i] = entry;
    positions_[entry.slot] = static_cast<uint32_t>(i);
  }

  // These functions put `entry` into its position, starting at the hole `i`.
  void Place(size_t i, const Entry& entry) {
    if (i > 0 && Before(entry, heap_[Parent(i)])) {
      SiftUp(i, entry);
    } else {
      SiftDown(i, entry);
    }
  }
  void SiftUp(size_t i, const Entry entry) {
    while (i > 0 && Before(entry, heap_[Parent(i)])) {
      Put(i, heap_[Parent(i)]);
      i = Parent(i);
    }
    Put(i, entry);
  }
  void SiftDown(size_t i, const Entry entry) {
    for (;;) {
      const size_t first = i * kArity + 1;
      if (first >= heap_.size()) break;
      const size_t end = std::min(first + kArity, heap_.size());
      size_t best = first;
      for (size_t child = first + 1; child < end; ++child) {
        if (Before(heap_[child], heap_[best])) best = child;
      }
      if (!Before(heap_[best], entry)) break;
      Put(i, heap_[best]);
      i = best;
    }
    Put(i, entry);
  }

  const SelectorOptions options_;
  const double sign_;
  FlatArray<Entry> heap_;
  FlatArray<uint32_t> positions_;  // by slot: its index in heap_
};

}  // namespace

std::unique_ptr<Selector> MakeHeapSelector(const SelectorOptions& options) {
  return std::make_unique<HeapSelector>(options);
}

}  // namespace reverb::internal
