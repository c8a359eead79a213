// The waits of clients: for Info(), and for the log.
#include <algorithm>
#include <functional>
#include <utility>

#include "service/client_log.h"
#include "service/sample_stream_session.h"
#include "service/service.h"
#include "service/writer_session.h"

namespace reverb::internal {

Service::Sessions Service::AllSessions() const {
  Sessions sessions;
  MutexLock lock(&mu_);
  for (const auto& [id, writer] : writers_) sessions.writers.push_back(writer.session);
  for (const auto& [id, stream] : streams_) {
    if (stream.sampler) sessions.samplers.push_back(stream.sampler);
  }
  return sessions;
}

std::vector<WaiterInfo> Service::Waiters(const std::vector<TableInfo>& tables) const {
  constexpr size_t kMaxWaiters = 100;
  const auto waits = [](const TableInfo& table) {
    return table.waiting_inserts > 0 || table.waiting_samples > 0;
  };
  if (std::ranges::none_of(tables, waits)) return {};
  const Sessions sessions = AllSessions();
  std::vector<WaiterInfo> waiters;
  for (const auto& writer : sessions.writers) writer->AddWaits(&waiters);
  for (const auto& sampler : sessions.samplers) sampler->AddWait(&waiters);
  std::ranges::sort(waiters, std::greater<>(), &WaiterInfo::waited_nanos);
  if (waiters.size() > kMaxWaiters) waiters.resize(kMaxWaiters);
  for (WaiterInfo& waiter : waiters) {
    const auto table = std::ranges::find(tables, waiter.table, &TableInfo::name);
    if (table == tables.end()) continue;
    waiter.reason = waiter.is_insert ? table->insert_wait_reason : table->sample_wait_reason;
  }
  return waiters;
}

void Service::ScheduleWaitCheck() {
  constexpr Duration kMinInterval = std::chrono::milliseconds(50);
  constexpr Duration kMaxInterval = std::chrono::seconds(1);
  const Duration after = WaitLogAfter();
  if (after == Duration::max() || checks_waits_.exchange(true)) return;
  options_.clock->CallAt(options_.clock->Now() + std::clamp(after / 4, kMinInterval, kMaxInterval),
                         [weak = weak_from_this()] {
                           if (const std::shared_ptr<Service> service = weak.lock()) service->CheckWaits();
                         });
}

void Service::CheckWaits() {
  // A wait that begins from here on schedules the next check.
  checks_waits_.store(false);
  if (stopped()) return;
  const Sessions sessions = AllSessions();
  std::vector<LongWait> found;
  bool any_waits = false;
  for (const auto& writer : sessions.writers) any_waits |= writer->TakeLongWaits(WaitLogAfter(), &found);
  for (const auto& sampler : sessions.samplers) any_waits |= sampler->TakeLongWait(WaitLogAfter(), &found);
  if (any_waits) ScheduleWaitCheck();
  if (found.empty()) return;
  std::ranges::sort(found, std::greater<>(), [](const LongWait& wait) { return wait.waiter.waited_nanos; });
  std::map<std::string, std::optional<TableInfo>> tables;
  for (const LongWait& wait : found) {
    const auto [entry, is_new] = tables.try_emplace(wait.waiter.table);
    if (is_new) {
      if (const auto table = FindTable(wait.waiter.table); table.ok()) entry->second = (*table)->Info();
    }
    if (entry->second) LogLongWait(wait, *entry->second, &wait_log_);
  }
}

}  // namespace reverb::internal
