// The part of TableState that draws batches: as a whole, or from items that have to agree with each other.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/table_state.h"
#include "tensor/column_names.h"

namespace reverb::internal {

Result<int64_t> TableState::SampleBatch(int64_t n, const BatchRules& rules, const Trajectory* first,
                                        bool whole, bool rate_limited, std::vector<internal::Sample>* out,
                                        Effects* effects) {
  if (whole && !MayDraw(n)) return 0;
  if (!removes_sampled_items()) return Sample(n, rate_limited, out, effects);
  // Hooks may change what the next draw selects.
  const bool one_by_one = !whole && !options_.extensions.empty();
  const size_t before = out->size();
  Trajectory first_drawn;
  int64_t planned = 0, missing = n;
  do {
    const int64_t wanted = one_by_one ? 1 : missing;
    REVERB_RETURN_IF_ERROR(Plan(wanted, static_cast<int64_t>(out->size()), rules, first));
    planned = static_cast<int64_t>(selections_.size());
    if (whole && planned < n) return 0;
    for (int64_t i = 0; i < planned; ++i) {
      const Selection pick = selections_[static_cast<size_t>(i)];
      Take(pick, rate_limited, out, effects);
    }
    missing -= planned;
    if (first == nullptr && planned > 0) {
      first_drawn = (*out)[before].trajectory;
      first = &first_drawn;
    }
  } while (one_by_one && planned > 0 && missing > 0);
  return n - missing;
}

std::vector<std::string> TableState::ColumnNames() const {
  return ColumnNamesOf(options_.signature ? &*options_.signature : nullptr, layout_.structure().value_or(""));
}

Status TableState::Plan(int64_t n, int64_t before, const BatchRules& rules, const Trajectory* first) {
  selections_.clear();
  Status status;
  RateLimiter limiter = limiter_;  // counts what the draws would change
  std::vector<SelectorItem> deleted;
  absl::flat_hash_map<Slot, int32_t> picks;  // of items that may be sampled several times
  int64_t size = size_ - leased_;
  const bool is_untouched = before == 0 && first == nullptr;
  Trajectory first_planned;
  while (status.ok() && static_cast<int64_t>(selections_.size()) < n && size > 0 && limiter.CanSample(1)) {
    Selection pick;
    sampler_->Sample({&pick, 1});
    const SlotRecord& record = slots_[pick.slot];
    const Trajectory item = Trajectory::Share(record.trajectory);
    status = CheckBatchRules(rules, before + static_cast<int64_t>(selections_.size()), record.key, item,
                             first, [this] { return ColumnNames(); });
    if (first == nullptr) {
      first_planned = item;
      first = &first_planned;
    }
    selections_.push_back(pick);
    limiter.CountSamples(1);
    const int32_t planned = max_times_sampled_ > 1 ? ++picks[pick.slot] : 1;
    if (record.times_sampled < max_times_sampled_ - planned) continue;
    deleted.push_back(EntryOf(pick.slot));
    sampler_->Delete(pick.slot);
    limiter.CountDelete();
    --size;
  }
  for (auto item = deleted.rbegin(); item != deleted.rend(); ++item) sampler_->Undelete(*item);
  if (status.ok()) return status;
  selections_.clear();
  return Status::InvalidArgument("table \"" + options_.name + "\": " + std::string(status.message()) +
                                 (is_untouched ? "; no item was removed from the table" : ""));
}

int64_t TableState::MostDraws(int64_t size) const {
  // Sampling stops when fewer items than needed are left, each of which may lack one draw only.
  const int64_t needed = std::max<int64_t>(1, limiter_.options().min_size_to_sample);
  if (size < needed) return 0;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t times = max_times_sampled_;
  if (!removes_sampled_items() || size > kMost / times) return kMost;
  return size * times - (needed - 1);
}

bool TableState::MayDraw(int64_t n) const {
  return size_ > leased_ && limiter_.MaxSamples(n) >= n && n <= MostDraws(size_);
}

bool TableState::CanDrawWhole(int64_t n) const {
  const RateLimiterOptions& limiter = limiter_.options();
  return static_cast<double>(n) <= limiter.max_diff - limiter.min_diff && n <= MostDraws(max_size_);
}

Status TableState::CheckWholeBatch(int64_t n) const {
  if (CanDrawWhole(n)) return Status::Ok();
  return Status::InvalidArgument("table \"" + options_.name + "\": " + std::to_string(n) +
                                 " samples can never be drawn together (all_or_nothing): " +
                                 DescribeLimits() + "; request fewer, or change the table");
}

Status TableState::CheckMayComplete(int64_t n) const {
  if (limiter_.CanInsert(1) || has_leases()) return Status::Ok();
  return Status::InvalidArgument(
      "table \"" + options_.name + "\": " + std::to_string(n) +
      " samples cannot be drawn together (all_or_nothing, or a lease) from the items of the "
      "table, and its rate limiter accepts no others before some are sampled: " +
      DescribeLimits() + "; request fewer, or change the table");
}

std::string TableState::DescribeLimits() const {
  return "max_size is " + std::to_string(max_size_) + ", max_times_sampled " +
         std::to_string(max_times_sampled_) + "; " + limiter_.Describe();
}

}  // namespace reverb::internal
