// Fifo and Lifo: a linked list of the slots, oldest first; and those that came back from a lease, by age.
//
// The list is in order of insertion. A slot that comes back may belong anywhere in it, so the pick is the older
// (with Lifo, the newer) of the ends of both.
#include <cassert>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "core/selectors/selectors_internal.h"
#include "core/selectors/slot_list.h"
#include "reverb/selector.h"

namespace reverb::internal {
namespace {

class OrderSelector final : public Selector {
 public:
  explicit OrderSelector(const SelectorOptions& options)
      : options_(options), is_lifo_(options.kind == SelectorOptions::Kind::kLifo) {}

  SelectorOptions options() const override { return options_; }

  void Insert(const SelectorItem& item) override { list_.Append(item.slot); }

  // Selects by insertion order; ignores priorities.
  void Update(std::span<const SelectorItem> items) override { (void)items; }

  void Delete(Slot slot) override {
    if (!returned_.empty()) [[unlikely]] {
      const auto it = returned_.find(inserted_of_(slot));
      if (it != returned_.end() && it->second == slot) {
        returned_.erase(it);
        return;
      }
    }
    list_.Remove(slot);
  }

  // Deletes to undo are those of sampled slots, which were older (with Lifo, newer) than all slots of the list.
  void Undelete(const SelectorItem& item) override {
    if (is_lifo_) return list_.Append(item.slot);
    list_.Prepend(item.slot);
  }

  void Reinsert(const SelectorItem& item, const std::function<uint64_t(Slot)>& inserted_of) override {
    if (!inserted_of_) inserted_of_ = inserted_of;
    returned_.emplace(item.inserted, item.slot);
  }

  void Clear() override {
    returned_.clear();
    list_.Clear();
  }

  void Sample(std::span<Selection> out) override {
    const Slot pick = returned_.empty() ? End() : PickReturned();
    assert(out.empty() || pick != SlotList::kNone);
    for (Selection& selection : out) selection = {pick, 1.0};
  }

  void Prefetch(Slot slot) const override { list_.Prefetch(slot); }

 private:
  Slot End() const { return is_lifo_ ? list_.last() : list_.first(); }
  // The pick, if some slots came back.
  Slot PickReturned() const {
    const Slot end = End();
    const auto& [inserted, slot] = is_lifo_ ? *returned_.rbegin() : *returned_.begin();
    if (end == SlotList::kNone) return slot;
    return (inserted_of_(end) < inserted) == is_lifo_ ? slot : end;
  }

  const SelectorOptions options_;
  const bool is_lifo_;
  SlotList list_;                      // oldest first
  std::map<uint64_t, Slot> returned_;  // by SelectorItem::inserted; mostly empty
  std::function<uint64_t(Slot)> inserted_of_;
};

}  // namespace

std::unique_ptr<Selector> MakeOrderSelector(const SelectorOptions& options) {
  return std::make_unique<OrderSelector>(options);
}

}  // namespace reverb::internal
