// selectors_testing.h — helpers for the tests of selectors.
#ifndef REVERB_CORE_SELECTORS_SELECTORS_TESTING_H_
#define REVERB_CORE_SELECTORS_SELECTORS_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "reverb/selector.h"

namespace reverb {

inline bool operator==(const Selection& a, const Selection& b) {
  return a.slot == b.slot && a.probability == b.probability;
}
inline std::ostream& operator<<(std::ostream& os, const Selection& s) {
  return os << "{slot " << s.slot << ", probability " << s.probability << "}";
}

namespace internal {

// Uses a selector like a table would: assigns slots, numbers the operations, stores the items.
class MiniTable {
 public:
  explicit MiniTable(const SelectorOptions& options) : options_(options), selector_(Make()) {}

  Selector& selector() { return *selector_; }
  const std::map<Slot, SelectorItem>& items() const { return items_; }
  size_t size() const { return items_.size(); }

  Slot Insert(double priority) {
    Slot slot = static_cast<Slot>(items_.size() + free_.size());
    if (!free_.empty()) {
      slot = free_.back();
      free_.pop_back();
    }
    InsertAt(slot, priority);
    return slot;
  }
  void InsertAt(Slot slot, double priority) {
    ++operation_;
    const SelectorItem item = {
        .slot = slot, .priority = priority, .inserted = operation_, .touched = operation_};
    EXPECT_TRUE(selector_->CheckPriority(priority).ok());
    selector_->Insert(item);
    items_[slot] = item;
  }
  void Update(std::span<const std::pair<Slot, double>> changes) {
    std::vector<SelectorItem> batch;
    for (const auto& [slot, priority] : changes) {
      EXPECT_TRUE(selector_->CheckPriority(priority).ok());
      SelectorItem& item = items_.at(slot);
      item.priority = priority;
      item.touched = ++operation_;
      batch.push_back(item);
    }
    selector_->Update(batch);
  }
  void Update(Slot slot, double priority) {
    const std::pair<Slot, double> change = {slot, priority};
    Update(std::span(&change, 1));
  }
  void Delete(Slot slot) {
    ++operation_;
    selector_->Delete(slot);
    items_.erase(slot);
    free_.push_back(slot);
  }
  void Clear() {
    selector_->Clear();
    items_.clear();
    free_.clear();
  }
  Selection Sample() {
    Selection selection;
    selector_->Sample(std::span(&selection, 1));
    return selection;
  }
  std::vector<Selection> Sample(size_t n) {
    std::vector<Selection> selections(n);
    selector_->Sample(selections);
    return selections;
  }

  std::vector<SelectorItem> ItemsByAge() const {
    std::vector<SelectorItem> items;
    for (const auto& [slot, item] : items_) items.push_back(item);
    std::sort(items.begin(), items.end(),
              [](const auto& a, const auto& b) { return a.inserted < b.inserted; });
    return items;
  }
  std::string Encode() {
    std::string state;
    if (const auto capture = selector_->Capture()) capture->Encode(&state);
    return state;
  }
  // Returns a new selector, with another seed, that continues from this one's state.
  std::unique_ptr<Selector> Copy() {
    SelectorOptions options = options_;
    if (options.seed.has_value()) ++*options.seed;
    std::unique_ptr<Selector> copy = *MakeSelector(options);
    const Status status = copy->Restore(ItemsByAge(), Encode());
    EXPECT_TRUE(status.ok()) << status.ToString();
    return copy;
  }
  void ReplaceByCopy() { selector_ = Copy(); }

 private:
  std::unique_ptr<Selector> Make() const { return *MakeSelector(options_); }

  const SelectorOptions options_;
  std::unique_ptr<Selector> selector_;
  std::map<Slot, SelectorItem> items_;
  std::vector<Slot> free_;
  uint64_t operation_ = 0;
};

// Returns whether the draws counted in `counts` are consistent with the distribution `expected` (it sums to
// 1; entries of 0 must have no draws). Pearson's chi-square at a significance of 1e-6: a correct sampler
// fails for one seed in a million, and tests use fixed seeds.
inline bool ChiSquareAccepts(const std::vector<size_t>& counts, const std::vector<double>& expected) {
  double draws = 0;
  for (size_t count : counts) draws += static_cast<double>(count);
  double statistic = 0;
  double freedom = -1;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] == 0) {
      if (counts[i] != 0) return false;
      continue;
    }
    const double mean = draws * expected[i];
    EXPECT_GE(mean, 5) << "too few draws for the approximation";
    statistic += (static_cast<double>(counts[i]) - mean) * (static_cast<double>(counts[i]) - mean) / mean;
    freedom += 1;
  }
  // Wilson and Hilferty's approximation of the quantile; 4.7534 is that of the normal distribution at 1 -
  // 1e-6.
  const double v = 2 / (9 * freedom);
  return statistic <= freedom * std::pow(1 - v + 4.7534 * std::sqrt(v), 3);
}

}  // namespace internal
}  // namespace reverb

#endif  // REVERB_CORE_SELECTORS_SELECTORS_TESTING_H_
