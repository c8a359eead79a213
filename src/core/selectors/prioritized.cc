// Prioritized: an item is selected with probability w / (sum of all w), where w is 0 for a priority of 0,
// else priority ^ exponent. While all weights are 0, all items are equally likely.
//
// Weights follow from the items, sums from the weights (see sum_tree.h), so only the random generator is
// saved.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/random.h"
#include "core/selectors/selectors_internal.h"
#include "core/selectors/slot_set.h"
#include "core/selectors/sum_tree.h"
#include "reverb/selector.h"

namespace reverb::internal {
namespace {

// state := version:u8 random:u64[4]
constexpr uint8_t kPrioritizedStateVersion = 1;

class PrioritizedCapture final : public SelectorCapture {
 public:
  explicit PrioritizedCapture(const Random::State& random) : random_(random) {}

  void Encode(std::string* out) const override {
    AppendLittleEndian(kPrioritizedStateVersion, out);
    AppendRandomState(random_, out);
  }

 private:
  const Random::State random_;
};

class PrioritizedSelector final : public Selector {
 public:
  explicit PrioritizedSelector(const SelectorOptions& options)
      : options_(options),
        power_(PowerOf(options.priority_exponent)),
        max_unchecked_priority_(MaxUncheckedPriority(options.priority_exponent)),
        random_(MakeRandom(options)) {}

  SelectorOptions options() const override { return options_; }

  Status CheckPriority(double priority) const override {
    if (priority >= 0 && priority <= max_unchecked_priority_) [[likely]]
      return Status::Ok();
    const char* reason = nullptr;
    if (std::isnan(priority)) {
      reason = "must not be NaN; use a number of at least 0";
    } else if (priority < 0) {
      reason = "must not be negative; use a number of at least 0";
    } else if (std::isinf(priority)) {
      reason = "must be finite; use a large number instead";
    } else if (!(Weight(priority) <= SumTree::kMaxWeight)) {
      reason =
          "is too large: priority ^ exponent must not exceed 2^991 (about 2e298); scale the priorities down";
    }
    if (reason == nullptr) [[likely]]
      return Status::Ok();
    return Status::InvalidArgument("priority " + NumberText(priority) + ": " + reason)
        .WithDetail(Detail::kInvalidPriority);
  }

  void Insert(const SelectorItem& item) override {
    present_.Insert(item.slot);
    tree_.Reserve(item.slot);
    SetWeight(item.slot, Weight(item.priority));
  }

  void Update(std::span<const SelectorItem> items) override {
    if (items.size() < kSmallBatch) {
      for (const SelectorItem& item : items) {
        assert(present_.Contains(item.slot));
        SetWeight(item.slot, Weight(item.priority));
      }
      return;
    }
    Slot changed[SumTree::kRefreshGroup];
    while (!items.empty()) {
      const auto group = items.first(std::min(items.size(), SumTree::kRefreshGroup));
      items = items.subspan(group.size());
      for (const SelectorItem& item : group) tree_.Prefetch(item.slot);
      size_t n = 0;
      for (const SelectorItem& item : group) {
        assert(present_.Contains(item.slot));
        const double weight = Weight(item.priority);
        changed[n] = item.slot;
        n += tree_[item.slot] != weight;
        tree_.SetWeightOnly(item.slot, weight);
      }
      tree_.Refresh(changed, n);
    }
  }

  void Delete(Slot slot) override {
    present_.Erase(slot);
    SetWeight(slot, 0);
  }

  void Clear() override {
    present_.Clear();
    tree_.Clear();
  }

  void Sample(std::span<Selection> out) override {
    assert(out.empty() || present_.size() > 0);
    const double total = tree_.total();
    if (!(total > 0)) [[unlikely]] {
      const double probability = 1.0 / static_cast<double>(present_.size());
      for (Selection& selection : out)
        selection = {present_.Select(random_.Below(present_.size())), probability};
      return;
    }
    double points[SumTree::kFindGroup];
    Slot slots[SumTree::kFindGroup];
    while (!out.empty()) {
      const size_t n = std::min(out.size(), SumTree::kFindGroup);
      for (size_t i = 0; i < n; ++i) points[i] = random_.Unit() * total;
      tree_.Find(points, slots, n);
      for (size_t i = 0; i < n; ++i) out[i] = {slots[i], tree_[slots[i]] / total};
      out = out.subspan(n);
    }
  }

  std::optional<double> Mass() const override { return tree_.total(); }

  void Prefetch(Slot slot) const override {
    tree_.Prefetch(slot);
    present_.Prefetch(slot);
  }

  std::unique_ptr<SelectorCapture> Capture() override {
    return std::make_unique<PrioritizedCapture>(random_.state());
  }

  // Also accepts an empty state, which keeps this selector's own random state. A table can therefore be
  // filled from a source that saved no state.
  Status Restore(std::span<const SelectorItem> items, std::string_view state) override {
    assert(present_.size() == 0);
    REVERB_RETURN_IF_ERROR(CheckItems(*this, items));
    if (!state.empty()) {
      uint8_t version = 0;
      Random::State random;
      if (!TakeLittleEndian(&state, &version) || version != kPrioritizedStateVersion ||
          !TakeRandomState(&state, &random) || !state.empty()) {
        return CorruptState(
            "restoring a prioritized selector: the saved state is damaged or of a later release");
      }
      random_.set_state(random);
    }
    for (const SelectorItem& item : items) {
      present_.Insert(item.slot);
      tree_.Reserve(item.slot);
      tree_.SetWeightOnly(item.slot, Weight(item.priority));
    }
    tree_.RefreshAll();
    return Status::Ok();
  }

 private:
  // Smaller updates are processed one by one.
  static constexpr size_t kSmallBatch = 4;

  // Exponents that do not require pow(). Their results are also bit-exact on every system, which pow() does
  // not guarantee.
  enum class Power : uint8_t { kZero, kHalf, kOne, kTwo, kAny };

  static Power PowerOf(double exponent) {
    if (exponent == 0) return Power::kZero;
    if (exponent == 0.5) return Power::kHalf;
    if (exponent == 1) return Power::kOne;
    if (exponent == 2) return Power::kTwo;
    return Power::kAny;
  }

  // Returns a priority up to which no weight is too large, so that valid priorities need no second pow().
  static double MaxUncheckedPriority(double exponent) {
    if (!(exponent >= 0)) return -1;  // none
    return exponent <= 1 ? SumTree::kMaxWeight : std::exp2(std::floor(991 / exponent) - 1);
  }

  // A tiny priority whose power underflows counts as 0.
  double Weight(double priority) const {
    if (power_ == Power::kOne) return priority + 0.0;  // + 0.0 converts -0 to 0
    if (priority == 0) return 0;
    switch (power_) {
      case Power::kZero:
        return 1;
      case Power::kHalf:
        return std::sqrt(priority);
      case Power::kOne:
        return priority;
      case Power::kTwo:
        return priority * priority;
      case Power::kAny:
        break;
    }
    return std::pow(priority, options_.priority_exponent);
  }

  void SetWeight(Slot slot, double weight) {
    if (tree_[slot] != weight) tree_.Set(slot, weight);
  }

  const SelectorOptions options_;
  const Power power_;
  const double max_unchecked_priority_;
  Random random_;
  SlotSet present_;
  SumTree tree_;
};

}  // namespace

std::unique_ptr<Selector> MakePrioritizedSelector(const SelectorOptions& options) {
  return std::make_unique<PrioritizedSelector>(options);
}

}  // namespace reverb::internal
