// What a server keeps of writers that are not connected: sessions for some time, sequence numbers for longer.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/duration_text.h"
#include "service/client_log.h"
#include "service/service.h"
#include "service/writer_session.h"

namespace reverb::internal {

std::vector<SavedWriter> Service::SaveWriters() const {
  std::vector<SavedWriter> saved;
  MutexLock lock(&mu_);
  const auto save = [&](const WriterSession& writer) {
    if (std::optional<SavedWriter> one = writer.Save()) saved.push_back(*std::move(one));
  };
  for (const auto& [id, writer] : writers_) save(*writer.session);
  for (const auto& writer : stopped_writers_) save(*writer);
  for (const RememberedWriter& writer : remembered_) saved.push_back(writer.progress.saved);
  return saved;
}

void Service::SetDisconnected(const Id128& id, Writer* writer, bool is_disconnected) {
  if (writer->position) {
    disconnected_.erase(*writer->position);
    writer->position.reset();
  }
  if (is_disconnected)
    writer->position = disconnected_.insert(disconnected_.end(), {.id = id, .since = options_.clock->Now()});
}

void Service::OnWriterDisconnected(const Id128& id) {
  std::vector<WaiterInfo> waits;
  std::optional<ClientIdentity> client;
  {
    MutexLock lock(&mu_);
    const auto found = writers_.find(id);
    // It may have reconnected or been dropped in between.
    if (found != writers_.end() && found->second.session->is_disconnected()) {
      SetDisconnected(id, &found->second, true);
      found->second.session->AddWaits(&waits);
      client = found->second.session->client();
    }
  }
  // Once for each disconnect: of several tables, the message names the first.
  if (client && (client->is_remote() || !waits.empty())) {
    int64_t items = 0;
    for (const WaiterInfo& wait : waits) items += wait.count;
    const std::string who =
        "the writer" + (client->name.empty() && !client->is_remote() ? "" : " " + client->ToString());
    const std::string ttl =
        DurationText(options_.limits.disconnected_session_ttl) + " (disconnected_session_ttl)";
    LogFields fields = {{"event", kEventDisconnect}};
    if (!waits.empty()) fields.push_back({"table", waits.front().table});
    fields.push_back({"items", items});
    disconnected_log_.Log(LogLevel::kInfo, client->address + (waits.empty() ? "" : " " + waits.front().table),
                          waits.empty() ? who + " disconnected without closing; its session stays for " + ttl
                                        : "table \"" + waits.front().table + "\": " + who +
                                              " disconnected with " + std::to_string(items) +
                                              " items that wait for the table; they stay for " + ttl,
                          client->Fields(std::move(fields)));
  }
  DropWriters();
  ScheduleSweep();
}

void Service::ScheduleSweep() {
  constexpr Duration kMinInterval = std::chrono::milliseconds(100);
  constexpr Duration kForever = std::chrono::hours(24 * 365 * 10);  // a later end would overflow
  MutexLock lock(&mu_);
  std::optional<TimePoint> due;
  const auto expires = [&](TimePoint since, Duration ttl) {
    if (ttl > kForever) return;
    if (!due || since + ttl < *due) due = since + ttl;
  };
  if (!disconnected_.empty()) expires(disconnected_.front().since, options_.limits.disconnected_session_ttl);
  if (!remembered_.empty()) expires(remembered_.front().since, options_.limits.sequence_number_ttl);
  if (stopped_ || !due || (next_sweep_ && *next_sweep_ <= *due)) return;
  const TimePoint at = std::max(*due, options_.clock->Now() + kMinInterval);
  next_sweep_ = at;
  options_.clock->CallAt(at, [weak = weak_from_this(), at] {
    const std::shared_ptr<Service> service = weak.lock();
    if (!service) return;
    {
      MutexLock relock(&service->mu_);
      if (service->next_sweep_ == at) service->next_sweep_.reset();
    }
    service->DropWriters();
    service->ScheduleSweep();
  });
}

void Service::DropWriters() {
  std::vector<Disconnected> expired;
  std::vector<std::shared_ptr<WriterSession>> to_drop;  // their pending items
  {
    MutexLock lock(&mu_);
    const TimePoint now = options_.clock->Now();
    for (const Disconnected& longest : disconnected_) {
      const bool is_late = now - longest.since >= options_.limits.disconnected_session_ttl;
      const bool too_many = writers_.size() - expired.size() >= options_.limits.max_writers;
      if (!is_late && !too_many) break;
      expired.push_back(longest);
      to_drop.push_back(writers_.find(longest.id)->second.session);
    }
    const int64_t most = static_cast<int64_t>(
        std::min<uint64_t>(options_.limits.max_disconnected_bytes, std::numeric_limits<int64_t>::max()));
    int64_t excess = disconnected_bytes_.load(std::memory_order_relaxed) - most;
    // The last first: the longest disconnected keep their places in the queues of their tables.
    for (auto last = disconnected_.rbegin(); excess > 0 && last != disconnected_.rend(); ++last) {
      std::shared_ptr<WriterSession> session = writers_.find(last->id)->second.session;
      const int64_t bytes = session->pending_bytes();
      if (bytes == 0) continue;
      excess -= bytes;
      to_drop.push_back(std::move(session));
    }
  }
  for (const auto& session : to_drop) session->DropPending();
  std::vector<std::shared_ptr<WriterSession>> ended;  // destroyed without the lock
  MutexLock lock(&mu_);
  for (const Disconnected& writer : expired) ended.push_back(EndSession(writer));
  ForgetRemembered();
}

std::shared_ptr<WriterSession> Service::EndSession(const Disconnected& writer) {
  const auto found = writers_.find(writer.id);
  if (found == writers_.end()) return nullptr;
  std::optional<WriterProgress> progress = found->second.session->Progress();
  if (!progress) return nullptr;
  SetDisconnected(writer.id, &found->second, false);
  std::shared_ptr<WriterSession> session = std::move(found->second.session);
  writers_.erase(found);
  Remember(*std::move(progress), writer.since);
  return session;
}

void Service::Remember(WriterProgress progress, TimePoint since) {
  const SavedWriter& saved = progress.saved;
  if (saved.applied_through == 0 && saved.applied.empty()) return;  // has sent nothing
  const Id128 id = saved.id;
  remembered_by_id_[id] =
      remembered_.insert(remembered_.end(), {.progress = std::move(progress), .since = since});
}

void Service::ForgetRemembered() {
  const TimePoint now = options_.clock->Now();
  while (!remembered_.empty() && (remembered_.size() > options_.limits.max_remembered_writers ||
                                  now - remembered_.front().since >= options_.limits.sequence_number_ttl)) {
    remembered_by_id_.erase(remembered_.front().progress.saved.id);
    remembered_.pop_front();
  }
}

}  // namespace reverb::internal
