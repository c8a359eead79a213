// Fifo and Lifo: a doubly linked list of the slots, oldest first.
#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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
    if (slot >= links_.size()) links_.resize(static_cast<size_t>(slot) + 1);
    assert(!IsPresent(slot));
    links_[slot] = {newest_, kNoPosition};
    (newest_ == kNoPosition ? oldest_ : links_[newest_].newer) = slot;
    newest_ = slot;
  }

  // Selects by insertion order; ignores priorities.
  void Update(std::span<const SelectorItem> items) override { (void)items; }

  void Delete(Slot slot) override {
    assert(slot < links_.size() && IsPresent(slot));
    const Link link = links_[slot];
    (link.older == kNoPosition ? oldest_ : links_[link.older].newer) = link.newer;
    (link.newer == kNoPosition ? newest_ : links_[link.newer].older) = link.older;
    links_[slot] = Link();
  }

  // Deletes to undo are those of sampled slots, which were at the end that Sample() picks from.
  void Undelete(const SelectorItem& item) override {
    if (is_lifo_ || oldest_ == kNoPosition) return Insert(item);
    links_[item.slot] = {kNoPosition, oldest_};
    links_[oldest_].older = item.slot;
    oldest_ = item.slot;
  }

  void Clear() override {
    links_ = {};
    oldest_ = newest_ = kNoPosition;
  }

  void Sample(std::span<Selection> out) override {
    const Slot pick = is_lifo_ ? newest_ : oldest_;
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

  bool IsPresent(Slot slot) const { return links_[slot].older != kNoPosition || oldest_ == slot; }

  const SelectorOptions options_;
  const bool is_lifo_;
  std::vector<Link> links_;  // by slot
  uint32_t oldest_ = kNoPosition;
  uint32_t newest_ = kNoPosition;
};

}  // namespace

std::unique_ptr<Selector> MakeOrderSelector(const SelectorOptions& options) {
  return std::make_unique<OrderSelector>(options);
}

}  // namespace reverb::internal
