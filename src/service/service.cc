#include "service/service.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/duration_text.h"
#include "base/random.h"
#include "service/sample_stream_session.h"
#include "service/writer_session.h"
#include "transport/wire.h"

namespace reverb::internal {
namespace {

Status ShuttingDown() { return Status::Unavailable("the server is shutting down"); }

// Describes the first setting in which two tables differ; empty if they are the same.
std::string SettingsDifference(const TableSettings& present, const TableSettings& wanted) {
  const auto differ = [](const char* setting, const std::string& now, const std::string& asked) {
    return std::string(setting) + " is " + now + ", not " + asked;
  };
  const auto nanos = [](int64_t age) { return std::to_string(age) + " ns"; };
  if (!SelectTheSame(present.sampler, wanted.sampler)) {
    return differ("sampler", present.sampler.ToString(), wanted.sampler.ToString());
  }
  if (!SelectTheSame(present.remover, wanted.remover)) {
    return differ("remover", present.remover.ToString(), wanted.remover.ToString());
  }
  if (present.layout != wanted.layout) {
    return differ("layout", std::string(LayoutPolicyName(present.layout)),
                  std::string(LayoutPolicyName(wanted.layout)));
  }
  if (present.signature != wanted.signature) return "the signatures differ";
  // What ChangeTable() can change comes last.
  if (present.max_size != wanted.max_size) {
    return differ("max_size", std::to_string(present.max_size), std::to_string(wanted.max_size));
  }
  if (std::max(present.max_times_sampled, 0) != std::max(wanted.max_times_sampled, 0)) {
    return differ("max_times_sampled", std::to_string(present.max_times_sampled),
                  std::to_string(wanted.max_times_sampled));
  }
  if (present.max_age_nanos != wanted.max_age_nanos) {
    return differ("max_age", nanos(present.max_age_nanos), nanos(wanted.max_age_nanos));
  }
  if (present.rate_limiter != wanted.rate_limiter) {
    return differ("the rate limiter", "(" + present.rate_limiter.ToString() + ")",
                  "(" + wanted.rate_limiter.ToString() + ")");
  }
  return "";
}

// Returns the settings with the limits of the time when the table was created.
TableSettings AsCreated(TableSettings settings, const TableOptions& created) {
  settings.max_size = created.max_size;
  settings.max_times_sampled = created.max_times_sampled;
  settings.max_age_nanos = created.max_age.count();
  settings.rate_limiter = created.rate_limiter;
  return settings;
}

// One stream of a writer.
class InsertStreamSession final : public InsertSession {
 public:
  InsertStreamSession(std::shared_ptr<Service> service, std::shared_ptr<WriterSession> writer,
                      uint64_t generation, uint64_t stream_id)
      : service_(std::move(service)),
        writer_(std::move(writer)),
        generation_(generation),
        stream_id_(stream_id) {}

  void OnMessage(InsertMessage message) override { writer_->OnMessage(generation_, std::move(message)); }
  void OnWritten() override { writer_->OnWritten(generation_); }
  void OnDone() override { writer_->OnDone(generation_); }
  void OnGone() override {
    service_->StreamGone(stream_id_);
    if (writer_->Detach(generation_)) service_->OnWriterDisconnected(writer_->id());
  }
  void End(Status status) { writer_->End(generation_, std::move(status)); }
  uint64_t generation() const { return generation_; }

 private:
  const std::shared_ptr<Service> service_;
  const std::shared_ptr<WriterSession> writer_;
  const uint64_t generation_;
  const uint64_t stream_id_;
};

}  // namespace

Status ServiceLimits::Validate() const {
  const std::pair<const char*, uint64_t> limits[] = {{"max_message_bytes", wire.max_message_bytes},
                                                     {"max_chunk_bytes", wire.max_chunk_bytes},
                                                     {"max_window_bytes", wire.max_window_bytes},
                                                     {"max_item_bytes", max_item_bytes},
                                                     {"insert_window_bytes", insert_window_bytes},
                                                     {"max_waiting_items", max_waiting_items},
                                                     {"sample_window_bytes", sample_window_bytes},
                                                     {"max_waiting_requests", max_waiting_requests},
                                                     {"max_streams", max_streams},
                                                     {"max_writers", max_writers}};
  for (const auto& [name, value] : limits) {
    if (value == 0) return Status::InvalidArgument(std::string(name) + " is 0; it must be at least 1");
  }
  if (disconnected_session_ttl < Duration(0))
    return Status::InvalidArgument("disconnected_session_ttl is negative");
  if (sequence_number_ttl < Duration(0)) return Status::InvalidArgument("sequence_number_ttl is negative");
  return Status::Ok();
}

Result<std::shared_ptr<Service>> Service::Create(Options options) {
  REVERB_RETURN_IF_ERROR(options.limits.Validate());
  std::map<std::string, std::shared_ptr<ConcurrentTable>, std::less<>> tables;
  for (const std::shared_ptr<ConcurrentTable>& table : options.tables) {
    if (table->store() != options.store) {
      return Status::InvalidArgument("table \"" + table->name() +
                                     "\" belongs to a different store than the server");
    }
    if (!tables.emplace(table->name(), table).second) {
      return Status::InvalidArgument("there are two tables named \"" + table->name() +
                                     "\"; names must be unique");
    }
  }
  const std::vector<SavedWriter> writers = std::exchange(options.writers, {});
  std::vector<std::shared_ptr<ConcurrentTable>> in_order = std::exchange(options.tables, {});
  std::shared_ptr<Service> service(new Service(std::move(options)));
  {
    MutexLock lock(&service->tables_mu_);
    service->tables_ = std::move(in_order);
    service->by_name_ = std::move(tables);
  }
  for (const auto& table : service->tables()) {
    for (const std::string& text : FindContradictions(table->Info())) Log(LogLevel::kWarning, text);
  }
  REVERB_RETURN_IF_ERROR(service->CheckInfoCanBeRead(nullptr));
  for (const RowTableOptions& rows : service->options_.row_tables) {
    REVERB_RETURN_IF_ERROR(service->rows_.Create(rows, /*exist_ok=*/false));
  }
  if (!writers.empty()) {
    {
      MutexLock lock(&service->mu_);
      for (const SavedWriter& saved : writers) service->Remember({.saved = saved}, service->clock()->Now());
      service->ForgetRemembered();
    }
    service->ScheduleSweep();
  }
  return service;
}

Status Service::CheckInfoCanBeRead(ConcurrentTable* one_more) {
  REVERB_ASSIGN_OR_RETURN(ServerInfo info, Info());
  if (one_more != nullptr) info.tables.push_back(one_more->Info());
  const std::string bytes = EncodeServerInfo(info).Flatten();
  const ByteSlice slice(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const Result<ServerInfo> read = DecodeServerInfo(ByteSlices(&slice, 1));
  if (read.ok()) return Status::Ok();
  return Status::InvalidArgument("clients cannot read the description of this server's " +
                                 std::to_string(info.tables.size()) +
                                 " tables: " + std::string(read.status().message()) +
                                 "; use fewer tables, smaller signatures or shorter names");
}

Service::Service(Options options)
    : options_(std::move(options)),
      life_id_(RandomId()),
      started_nanos_(options_.clock->WallNanos()),
      rows_({.store = options_.store,
             .clock = options_.clock,
             .is_taken = [this](std::string_view name) { return FindTable(name).ok(); }}),
      undelivered_log_(options_.clock, std::chrono::minutes(1)),
      disconnected_log_(options_.clock, std::chrono::minutes(1)) {}
Service::~Service() = default;

// Both counters are sequentially consistent: either the change sees that changes are refused, or Stop() sees the
// change.
class Service::Change {
 public:
  explicit Change(Service* service) : service_(service) { service_->changes_.fetch_add(1); }
  ~Change() {
    if (service_->changes_.fetch_sub(1) > 1 || !service_->refuses_changes_.load()) return;
    MutexLock lock(&service_->mu_);
    service_->change_ended_.NotifyAll();
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  Status status() const { return service_->refuses_changes_.load() ? ShuttingDown() : Status::Ok(); }

 private:
  Service* const service_;
};

void Service::Stop(const std::function<void()>& before_forgetting) {
  std::vector<std::function<void(Status)>> ends;
  std::vector<std::shared_ptr<WriterSession>> writers;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    for (auto& [id, stream] : streams_) ends.push_back(stream.end);
    for (auto& [id, writer] : writers_) writers.push_back(std::move(writer.session));
    writers_.clear();
    disconnected_.clear();
    stopped_writers_.insert(stopped_writers_.end(), writers.begin(), writers.end());
  }
  rows_.Close();
  for (auto& end : ends) end(ShuttingDown());
  for (auto& writer : writers) writer->Abandon();
  {
    MutexLock lock(&mu_);
    refuses_changes_.store(true);
    while (changes_.load() > 0) change_ended_.Wait(&mu_);
  }
  if (before_forgetting) before_forgetting();
  std::vector<std::shared_ptr<WriterSession>> forgotten;  // hold this service: destroyed without the lock
  MutexLock lock(&mu_);
  forgotten = std::exchange(stopped_writers_, {});
}

void Service::CountUndelivered(const ConcurrentTable& table, int64_t samples, std::string_view client) {
  undelivered_.fetch_add(samples, std::memory_order_relaxed);
  if (table.max_times_sampled() < 1) return;
  undelivered_log_.Log(
      LogLevel::kWarning, table.name(),
      "table \"" + table.name() + "\": the client" + (client.empty() ? "" : " " + std::string(client)) +
          " disconnected before its samples were sent; drawn and not sent: " + std::to_string(samples) +
          ", each counts towards max_times_sampled (" + std::to_string(table.max_times_sampled()) + ")");
}

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

Result<std::shared_ptr<ConcurrentTable>> Service::FindTable(std::string_view name) const {
  MutexLock lock(&tables_mu_);
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return found->second;
  constexpr size_t kMaxNamed = 20;
  std::string known;
  for (size_t i = 0; i < std::min(tables_.size(), kMaxNamed); ++i) {
    known += (known.empty() ? "\"" : ", \"") + tables_[i]->name() + "\"";
  }
  if (tables_.size() > kMaxNamed) known += ", …";
  return Status::NotFound("there is no table \"" + std::string(name.substr(0, 200)) +
                          "\" on this server; it has " + (known.empty() ? "none" : known));
}

std::vector<std::shared_ptr<ConcurrentTable>> Service::tables() const {
  MutexLock lock(&tables_mu_);
  return tables_;
}

Welcome Service::MakeWelcome(uint64_t applied_through) const {
  return {.version = kMaxProtocolVersion,
          .server_life_id = life_id_,
          .server_name = options_.server_name,
          .applied_through = applied_through,
          .limits = {.max_message_bytes = options_.limits.wire.max_message_bytes,
                     .max_chunk_bytes = options_.limits.wire.max_chunk_bytes,
                     .insert_window_bytes = options_.limits.insert_window_bytes,
                     .max_item_bytes = options_.limits.max_item_bytes},
          .shard = options_.shard};
}

Status Service::CheckVersion(const Hello& hello) const {
  if (hello.min_version <= kMaxProtocolVersion && hello.max_version >= kMinProtocolVersion)
    return Status::Ok();
  return Status::FailedPrecondition("this server speaks versions " + std::to_string(kMinProtocolVersion) +
                                    " to " + std::to_string(kMaxProtocolVersion) +
                                    " of the protocol, the client " + std::to_string(hello.min_version) +
                                    " to " + std::to_string(hello.max_version) +
                                    "; install matching versions of Reverb on both sides");
}

Result<uint64_t> Service::EnterStream() {
  if (stopped_) return ShuttingDown();
  if (streams_.size() >= options_.limits.max_streams) {
    // Transient: broken connections are detected after a while.
    return Status::Unavailable("the server has " + std::to_string(streams_.size()) +
                               " streams open, which is its limit; close some, or raise max_streams");
  }
  return ++last_stream_id_;
}

bool Service::stopped() const {
  MutexLock lock(&mu_);
  return stopped_;
}

void Service::StreamGone(uint64_t stream_id) {
  Stream gone;  // holds the session: destroyed without the lock
  MutexLock lock(&mu_);
  const auto found = streams_.find(stream_id);
  if (found == streams_.end()) return;
  gone = std::move(found->second);
  streams_.erase(found);
}

void Service::ForgetWriter(const Id128& id) {
  std::shared_ptr<WriterSession> writer;
  MutexLock lock(&mu_);
  const auto found = writers_.find(id);
  if (found == writers_.end()) return;
  SetDisconnected(id, &found->second, false);
  writer = std::move(found->second.session);
  writers_.erase(found);
}

Result<std::shared_ptr<InsertSession>> Service::OpenInsert(const Hello& hello,
                                                           std::shared_ptr<InsertPeer> peer) {
  REVERB_RETURN_IF_ERROR(CheckVersion(hello));
  if (hello.session_id == Id128{}) {
    return Status::InvalidArgument("the Hello of a writer has no session id; generate 16 random bytes");
  }
  DropWriters();
  std::shared_ptr<WriterSession> writer;
  std::shared_ptr<InsertStreamSession> session;
  {
    MutexLock lock(&mu_);
    REVERB_ASSIGN_OR_RETURN(const uint64_t stream_id, EnterStream());
    Writer& known = writers_[hello.session_id];
    if (known.session == nullptr) {
      const auto found = remembered_by_id_.find(hello.session_id);
      if (found == remembered_by_id_.end()) {
        known.session = std::make_shared<WriterSession>(shared_from_this(), hello.session_id);
      } else {
        known.session = std::make_shared<WriterSession>(shared_from_this(), found->second->progress);
        remembered_.erase(found->second);
        remembered_by_id_.erase(found);
      }
    }
    writer = known.session;
    // Under this lock, so that DropWriters() does not drop it before the stream is attached.
    writer->Expect();
    SetDisconnected(hello.session_id, &known, false);
    session =
        std::make_shared<InsertStreamSession>(shared_from_this(), writer, writer->NewGeneration(), stream_id);
    streams_.emplace(stream_id, Stream{.end = [session](Status status) { session->End(std::move(status)); }});
  }
  writer->Attach(session->generation(), hello.client_name, std::move(peer));
  // Stop() may have run in between, when the stream was not attached yet.
  if (stopped()) session->End(ShuttingDown());
  return std::shared_ptr<InsertSession>(std::move(session));
}

Result<std::shared_ptr<SampleSession>> Service::OpenSample(const Hello& hello,
                                                           std::shared_ptr<SamplePeer> peer) {
  REVERB_RETURN_IF_ERROR(CheckVersion(hello));
  if (options_.writer_source != nullptr && peer->sends_references()) options_.writer_source->Enable();
  const uint64_t most = options_.limits.sample_window_bytes;
  const uint64_t window = hello.receive_window_bytes == 0 ? most : std::min(hello.receive_window_bytes, most);
  std::shared_ptr<SampleStreamSession> session;
  {
    MutexLock lock(&mu_);
    REVERB_ASSIGN_OR_RETURN(const uint64_t stream_id, EnterStream());
    session =
        std::make_shared<SampleStreamSession>(shared_from_this(), std::move(peer), stream_id, window, hello);
    streams_.emplace(stream_id, Stream{.end = [session](Status status) { session->End(std::move(status)); },
                                       .sampler = session});
  }
  session->Begin();
  return std::shared_ptr<SampleSession>(std::move(session));
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
  {
    MutexLock lock(&mu_);
    const auto found = writers_.find(id);
    // It may have reconnected or been dropped in between.
    if (found != writers_.end() && found->second.session->is_disconnected()) {
      SetDisconnected(id, &found->second, true);
      found->second.session->AddWaits(&waits);
    }
  }
  for (const WaiterInfo& wait : waits) {
    disconnected_log_.Log(LogLevel::kInfo, wait.table,
                          "table \"" + wait.table + "\": the writer" +
                              (wait.client_name.empty() ? "" : " " + wait.client_name) +
                              (wait.address.empty() ? "" : " at " + wait.address) + " disconnected with " +
                              std::to_string(wait.count) + " items that wait for the table; they stay for " +
                              DurationText(options_.limits.disconnected_session_ttl) +
                              " (disconnected_session_ttl)");
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

Result<ChunkRef> Service::AllocateChunk(const ChunkHeader& header, uint8_t** payload) {
  return options_.store->AddUninitialized(header, payload);
}

Result<ServerInfo> Service::Info() {
  ServerInfo info;
  info.server_life_id = life_id_;
  info.server_name = options_.server_name;
  for (const std::shared_ptr<ConcurrentTable>& table : tables()) info.tables.push_back(table->Info());
  const ChunkStore::Stats stats = options_.store->stats();
  info.live_chunks = stats.live_chunks;
  info.live_bytes = stats.live_bytes;
  info.stored_bytes = stats.stored_bytes;
  info.max_bytes = options_.store->options().max_bytes;
  info.now_nanos = options_.clock->WallNanos();
  info.started_nanos = started_nanos_;
  info.waiters = Waiters(info.tables);
  MutexLock lock(&mu_);
  info.local_path = local_.path;
  info.boot_id = local_.boot_id;
  info.user_id = local_.user_id;
  info.shard = options_.shard;
  return info;
}

void Service::Announce(LocalEndpoint endpoint) {
  MutexLock lock(&mu_);
  local_ = std::move(endpoint);
}

std::vector<WaiterInfo> Service::Waiters(const std::vector<TableInfo>& tables) const {
  constexpr size_t kMaxWaiters = 100;
  const auto waits = [](const TableInfo& table) {
    return table.waiting_inserts > 0 || table.waiting_samples > 0;
  };
  if (std::ranges::none_of(tables, waits)) return {};
  std::vector<std::shared_ptr<WriterSession>> writers;
  std::vector<std::shared_ptr<SampleStreamSession>> samplers;
  {
    MutexLock lock(&mu_);
    for (const auto& [id, writer] : writers_) writers.push_back(writer.session);
    for (const auto& [id, stream] : streams_) {
      if (stream.sampler) samplers.push_back(stream.sampler);
    }
  }
  std::vector<WaiterInfo> waiters;
  for (const auto& writer : writers) writer->AddWaits(&waiters);
  for (const auto& sampler : samplers) sampler->AddWait(&waiters);
  std::ranges::sort(waiters, std::greater<>(), &WaiterInfo::waited_nanos);
  if (waiters.size() > kMaxWaiters) waiters.resize(kMaxWaiters);
  for (WaiterInfo& waiter : waiters) {
    const auto table = std::ranges::find(tables, waiter.table, &TableInfo::name);
    if (table == tables.end()) continue;
    waiter.reason = waiter.is_insert ? table->insert_wait_reason : table->sample_wait_reason;
  }
  return waiters;
}

Status Service::Mutate(const MutateRequest& request) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> table, FindTable(request.table));
  return table->Mutate(request.updates, request.deletes);
}

Result<LeaseOutcome> Service::SettleLeases(const SettleLeasesRequest& request) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> table, FindTable(request.table));
  if (!request.extends.empty() && request.extension <= Duration(0)) {
    return Status::InvalidArgument("table \"" + request.table + "\": leases are extended by " +
                                   std::to_string(request.extension.count()) +
                                   " ns; give a positive time, or release them");
  }
  LeaseOutcome outcome = table->Acknowledge(request.acks);
  outcome += table->Release(request.releases);
  outcome += table->Extend(request.extends, request.extension);
  return outcome;
}

Status Service::Reset(std::string_view table) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> found, FindTable(table));
  found->Reset();
  return Status::Ok();
}

Status Service::SetRateLimiter(const SetRateLimiterRequest& request) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> table, FindTable(request.table));
  return table->SetRateLimiter(request.options);
}

Status Service::CreateTable(const CreateTableRequest& request) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(TableOptions options, TableOptions::FromSettings(request.table));
  options.created_by_client = true;
  const TableSettings wanted = options.Settings();
  // A server that starts only warns, since dm-reverb accepts such tables.
  if (const auto contradictions = FindContradictions(wanted); !contradictions.empty()) {
    return Status::InvalidArgument(contradictions.front());
  }
  const std::string& name = wanted.name;
  REVERB_ASSIGN_OR_RETURN(
      const std::shared_ptr<ConcurrentTable> table,
      ConcurrentTable::Create(std::move(options), {.store = options_.store, .clock = options_.clock}));
  if (rows_.Has(name)) {
    return Status::AlreadyExists("there is a row table named \"" + name + "\"; use another name");
  }
  // One at a time: tables that clients can read one by one may be too many together.
  MutexLock creating(&creating_mu_);
  std::shared_ptr<ConcurrentTable> present;
  {
    MutexLock lock(&tables_mu_);
    if (const auto found = by_name_.find(name); found != by_name_.end()) present = found->second;
  }
  if (present == nullptr) {
    REVERB_RETURN_IF_ERROR(CheckInfoCanBeRead(table.get()));
    {
      MutexLock lock(&tables_mu_);
      by_name_.emplace(name, table);
      tables_.push_back(table);
    }
    Log(LogLevel::kInfo, "table \"" + name + "\" was created by a client");
    return Status::Ok();
  }
  const TableSettings now = present->Info();
  std::string difference = SettingsDifference(now, wanted);
  // Workers that all create the table need not know that its limits were changed since.
  if (SettingsDifference(AsCreated(now, present->options()), wanted).empty()) difference.clear();
  if (request.exist_ok && difference.empty()) return Status::Ok();
  return Status::AlreadyExists("table \"" + name + "\" exists already" +
                               (difference.empty() ? ", with the same settings; pass exist_ok to use it"
                                                   : ", with other settings: " + difference +
                                                         "; change or remove it, or use another name"));
}

Status Service::RemoveTable(std::string_view table) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> removed, FindTable(table));
  {
    MutexLock lock(&tables_mu_);
    // Another client may have been faster.
    if (std::erase(tables_, removed) > 0) by_name_.erase(removed->name());
  }
  Log(LogLevel::kInfo, "table \"" + removed->name() + "\" with its " + std::to_string(removed->size()) +
                           " items was removed by a client");
  removed->Remove();
  return Status::Ok();
}

Status Service::ChangeTable(const ChangeTableRequest& request) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> table, FindTable(request.table));
  return table->Change(request.changes);
}

Result<InspectReply> Service::Inspect(const InspectRequest& request) {
  // Bounds one reply; the cursor continues after it.
  constexpr uint64_t kMaxBytes = uint64_t{4} << 20;
  constexpr size_t kMaxItems = 10'000;
  constexpr int64_t kItemsAtATime = 16;
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> table, FindTable(request.table));
  InspectReply reply;
  uint64_t bytes = 0;
  const int64_t size = table->size();
  reply.next_cursor = request.cursor;
  const size_t wanted = std::min<size_t>(request.count, kMaxItems);
  bool is_full = false;
  while (reply.items.size() < wanted && !is_full) {
    const int64_t asked = std::min(static_cast<int64_t>(wanted - reply.items.size()), kItemsAtATime);
    const uint64_t cursor = reply.next_cursor;
    std::vector<Sample> items = table->Peek(asked, &reply.next_cursor);
    const bool is_last = static_cast<int64_t>(items.size()) < asked;
    size_t fit = 0;
    for (; fit < items.size(); ++fit) {
      bytes += EstimateBytes(items[fit].trajectory).bytes;
      if (bytes > kMaxBytes && (fit > 0 || !reply.items.empty())) break;
    }
    is_full = bytes > kMaxBytes;
    if (fit < items.size()) {  // the others follow in the next call
      items.clear();
      reply.next_cursor = cursor;
      if (fit > 0) items = table->Peek(static_cast<int64_t>(fit), &reply.next_cursor);
    } else if (is_last) {
      reply.next_cursor = 0;
      is_full = true;
    }
    for (Sample& item : items) {
      item.table_size = size;
      reply.items.push_back(std::move(item));
    }
  }
  return reply;
}

Result<std::string> Service::Checkpoint() {
  if (options_.checkpoint) return options_.checkpoint();
  return Status::InvalidArgument("this server was started without a checkpoint path");
}

std::shared_ptr<PendingCall> Service::StartRows(RowsRequest request, const RowsDone& done) {
  return rows_.Start(std::move(request), done);
}

Service::Stats Service::stats() const {
  MutexLock lock(&mu_);
  return {.streams = streams_.size(),
          .writers = writers_.size(),
          .remembered_writers = remembered_.size(),
          .undelivered_samples = undelivered_.load(std::memory_order_relaxed)};
}

}  // namespace reverb::internal
