// table_stats.h — how a table spends its time, measured without reading the clock for every operation.
//
// Threads: needs the table's lock.
#ifndef REVERB_CORE_TABLE_STATS_H_
#define REVERB_CORE_TABLE_STATS_H_

#include <array>
#include <cstdint>

#include "base/clock.h"
#include "reverb/rate_limiter.h"
#include "reverb/table_info.h"

namespace reverb::internal {

class TableStats {
 public:
  explicit TableStats(TimePoint now) : state_since_(now) { history_[0] = {now, {}}; }

  // --- Waits ---
  void CountWait(WaitReason reason, Duration waited, bool is_insert) {
    const auto count = [&](WaitStats* stats) {
      ++stats->count;
      stats->total_nanos += waited.count();
    };
    count(&waits_[static_cast<size_t>(reason)]);
    if (is_insert && reason == WaitReason::kQueued) count(&queued_inserts_);
  }

  // --- Work: every kStride-th operation is timed and represents the others ---
  static constexpr uint32_t kStride = 64;
  bool ShouldTime() { return ++operations_ % kStride == 0; }
  void CountInserting(Duration took) { work_.inserting_nanos += took.count() * kStride; }
  void CountSampling(Duration took) { work_.sampling_nanos += took.count() * kStride; }

  // --- What waits ---
  enum class State : uint8_t { kIdle, kInsertsWait, kSamplesWait };
  State state() const { return state_; }
  void SetState(State state, TimePoint now) {
    AddStateTime(&work_, now);
    state_ = state;
    state_since_ = now;
  }

  // --- Rates: the counters of the last ten seconds, at most one entry per second ---
  void NoteCounters(TimePoint now, const RateLimiterCounters& counters) {
    if (now - history_[newest_].when < std::chrono::seconds(1)) return;
    newest_ = (newest_ + 1) % kHistory;
    history_[newest_] = {now, counters};
    used_ = used_ < kHistory ? used_ + 1 : kHistory;
  }
  // Restarts the history: at zero after a reset, at the restored counters after a restore.
  void ForgetCounters(TimePoint now, const RateLimiterCounters& counters = {}) {
    newest_ = 0;
    used_ = 1;
    history_[0] = {now, counters};
  }

  void FillInfo(TimePoint now, const RateLimiterCounters& counters, TableInfo* info) const;

 private:
  struct Mark {
    TimePoint when;
    RateLimiterCounters counters;
  };
  static constexpr size_t kHistory = 11;

  void AddStateTime(TableWorkTime* work, TimePoint now) const {
    const int64_t nanos = (now - state_since_).count();
    switch (state_) {
      case State::kIdle:
        work->idle_nanos += nanos;
        break;
      case State::kInsertsWait:
        work->waiting_for_sampling_nanos += nanos;
        break;
      case State::kSamplesWait:
        work->waiting_for_inserts_nanos += nanos;
        break;
    }
  }

  std::array<WaitStats, kNumWaitReasons> waits_{};
  WaitStats queued_inserts_;
  TableWorkTime work_;
  uint32_t operations_ = 0;
  State state_ = State::kIdle;
  TimePoint state_since_;
  std::array<Mark, kHistory> history_{};
  size_t newest_ = 0;
  size_t used_ = 1;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_TABLE_STATS_H_
