// Fifo and Lifo: a doubly linked list of the slots, oldest first; and those that came back from a lease, by age.
//
// The list is in order of insertion. A slot that comes back may belong anywhere in it, so the pick is the older
// (with Lifo, the newer) of the ends of both.
#include <cassert>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "base/flat_array.h"
#include "core/selectors/selectors_internal.h"
#include "reverb/selector.h"

namespace reverb::internal {
namespace {

class OrderSelector final : public Selector {
 public:
  explicit OrderSelector(const SelectorOptions& options)
      : options_(options), is_lifo_(options.kind == SelectorOptions::Kind::kLifo) {}

  SelectorOptions options() const override { return options_; }

  void Insert(const SelectorItem& item) override {
    const Slot slot = item.slot;
    if (slot >= links_.size()) links_.Resize(static_cast<size_t>(slot) + 1);
    assert(!IsPresent(slot));
    links_[slot] = {newest_, kNoPosition};
    (newest_ == kNoPosition ? oldest_ : links_[newest_].newer) = slot;
    newest_ = slot;
  }

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
    assert(slot < links_.size() && IsPresent(slot));
    const Link link = links_[slot];
    (link.older == kNoPosition ? oldest_ : links_[link.older].newer) = link.newer;
    (link.newer == kNoPosition ? newest_ : links_[link.newer].older) = link.older;
    links_[slot] = Link();
  }

  // Deletes to undo are those of sampled slots, which were older (with Lifo, newer) than all slots of the list.
  void Undelete(const SelectorItem& item) override {
    if (is_lifo_ || oldest_ == kNoPosition) return Insert(item);
    links_[item.slot] = {kNoPosition, oldest_};
    links_[oldest_].older = item.slot;
    oldest_ = item.slot;
  }

  void Reinsert(const SelectorItem& item, const std::function<uint64_t(Slot)>& inserted_of) override {
    if (!inserted_of_) inserted_of_ = inserted_of;
    returned_.emplace(item.inserted, item.slot);
  }

  void Clear() override {
    returned_.clear();
    links_.Clear();
    oldest_ = newest_ = kNoPosition;
  }

  void Sample(std::span<Selection> out) override {
    const Slot pick = returned_.empty() ? (is_lifo_ ? newest_ : oldest_) : PickReturned();
    assert(out.empty() || pick != kNoPosition);
    for (Selection& selection : out) selection = {pick, 1.0};
  }

  void Prefetch(Slot slot) const override {
    if (slot < links_.size()) __builtin_prefetch(&links_[slot], 1);
  }

 private:
  struct Link {
    uint32_t older = kNoPosition;
    uint32_t newer = kNoPosition;
  };

  // The pick, if some slots came back.
  Slot PickReturned() const {
    const uint32_t end = is_lifo_ ? newest_ : oldest_;
    const auto& [inserted, slot] = is_lifo_ ? *returned_.rbegin() : *returned_.begin();
    if (end == kNoPosition) return slot;
    return (inserted_of_(end) < inserted) == is_lifo_ ? slot : end;
  }

  bool IsPresent(Slot slot) const { return links_[slot].older != kNoPosition || oldest_ == slot; }

  const SelectorOptions options_;
  const bool is_lifo_;
  FlatArray<Link> links_;  // by slot
  uint32_t oldest_ = kNoPosition;
  uint32_t newest_ = kNoPosition;
  std::map<uint64_t, Slot> returned_;  // by SelectorItem::inserted; mostly empty
  std::function<uint64_t(Slot)> inserted_of_;
};

}  // namespace

std::unique_ptr<Selector> MakeOrderSelector(const SelectorOptions& options) {
  return std::make_unique<OrderSelector>(options);
}

}  // namespace reverb::internal
