#include "core/table_stats.h"

#include <algorithm>

namespace reverb::internal {

void TableStats::FillInfo(TimePoint now, const RateLimiterCounters& counters, TableInfo* info) const {
  std::copy(waits_.begin(), waits_.end(), info->waits);
  info->queued_inserts = queued_inserts_;
  info->work_time = work_;
  AddStateTime(&info->work_time, now);

  // The oldest mark of the last ten seconds or so; the newest one if all are older.
  constexpr auto kWindow = std::chrono::seconds(11);
  const Mark* from = &history_[newest_];
  for (size_t back = 1; back < used_; ++back) {
    const Mark& mark = history_[(newest_ + kHistory - back) % kHistory];
    if (now - mark.when > kWindow) break;
    from = &mark;
  }
  const double seconds = std::chrono::duration<double>(now - from->when).count();
  if (seconds > 0) {
    info->inserts_per_second = static_cast<double>(counters.inserts - from->counters.inserts) / seconds;
    info->samples_per_second = static_cast<double>(counters.samples - from->counters.samples) / seconds;
  }
}

}  // namespace reverb::internal
