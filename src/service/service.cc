#include "service/service.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/duration_text.h"
#include "base/random.h"
#include "service/client_log.h"
#include "service/sample_stream_session.h"
#include "service/service_change.h"
#include "service/writer_session.h"
#include "transport/wire.h"

namespace reverb::internal {
namespace {

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

void ServiceLimits::FitInto(const MemoryBudget& budget) {
  // Larger ones could not be received: a message and the chunks that are copied from it are in transit together.
  const auto most = std::max<uint64_t>(static_cast<uint64_t>(budget.max_transit()) / 2, 1);
  max_item_bytes = std::min(max_item_bytes, most);
  wire.max_message_bytes = std::min(wire.max_message_bytes, most);
  // Writers that are disconnected leave room for the others.
  max_disconnected_bytes = std::min(
      max_disconnected_bytes, std::max<uint64_t>(static_cast<uint64_t>(budget.shares().transit) / 2, 1));
}

Result<std::shared_ptr<Service>> Service::Create(Options options) {
  REVERB_RETURN_IF_ERROR(options.limits.Validate());
  options.limits.FitInto(options.store->budget());
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
  const std::vector<std::shared_ptr<ConcurrentRows>> row_tables = std::exchange(options.row_tables, {});
  std::shared_ptr<Service> service(new Service(std::move(options)));
  {
    MutexLock lock(&service->tables_mu_);
    service->tables_ = std::move(in_order);
    service->by_name_ = std::move(tables);
  }
  for (const auto& table : service->tables()) {
    for (const std::string& text : FindContradictions(table->Info()))
      Log(LogLevel::kWarning, text, {{"table", table->name()}});
  }
  for (const std::shared_ptr<ConcurrentRows>& rows : row_tables)
    REVERB_RETURN_IF_ERROR(service->rows_.Add(rows));
  REVERB_RETURN_IF_ERROR(service->CheckInfoCanBeRead(nullptr));
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

Service::Service(Options options)
    : options_(std::move(options)),
      life_id_(RandomId()),
      started_nanos_(options_.clock->WallNanos()),
      rows_({.store = options_.store,
             .clock = options_.clock,
             .is_taken = [this](std::string_view name) { return FindTable(name).ok(); },
             .check_info = [this] { return CheckInfoCanBeRead(nullptr); }}),
      undelivered_log_(options_.clock, std::chrono::minutes(1)),
      disconnected_log_(options_.clock, std::chrono::minutes(1)),
      wait_log_(options_.clock, std::chrono::minutes(1)),
      memory_log_(options_.clock, std::chrono::minutes(1)) {}
Service::~Service() = default;

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
          ", each counts towards max_times_sampled (" + std::to_string(table.max_times_sampled()) + ")",
      {{"table", table.name()}, {"items", samples}});
}

Result<std::shared_ptr<ConcurrentTable>> Service::FindTable(std::string_view name) const {
  {
    MutexLock lock(&tables_mu_);
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return found->second;
  }
  if (rows_.Has(name)) {
    return Status::NotFound(
        "\"" + std::string(name) +
        "\" is a row table, and this call is for tables of items; use client.rows() in Python, "
        "Client::RowTable() in C++");
  }
  MutexLock lock(&tables_mu_);
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

namespace {

// A stream's buffers and objects, about.
constexpr int64_t kBytesPerStream = 16 << 10;
constexpr uint64_t kMinTightWindowBytes = 256 << 10;

std::string TransitText(const MemoryBudget& budget) {
  return std::to_string(budget.max_transit()) +
         " bytes for data in transit of the server's memory_limit of " +
         std::to_string(budget.limit().value_or(0));
}

// The client sends the data again later, unless it can never be received.
Status NoRoomInTransit(const MemoryBudget& budget, int64_t bytes) {
  const std::string of = TransitText(budget);
  if (bytes > budget.max_transit()) {
    return Status::ResourceExhausted("its " + std::to_string(bytes) + " bytes exceed the " + of +
                                     "; write shorter chunks, or raise memory_limit")
        .WithDetail(Detail::kMemoryFull);
  }
  return Status::Unavailable("the server's memory is full: " + std::to_string(budget.transit()) +
                             " bytes are in transit, and " + std::to_string(bytes) +
                             " more do not fit into the " + of);
}

}  // namespace

uint64_t Service::WindowBytes(uint64_t most) const {
  // No stream gets more than an eighth of the share of data in transit.
  const auto share = static_cast<uint64_t>(budget().shares().transit);
  most = std::min(most, std::max(share / 8, kMinTightWindowBytes));
  switch (budget().TransitLevel()) {
    case MemoryLevel::kRoomy:
      break;
    case MemoryLevel::kTight:
      return std::min(most, std::max(most / 8, kMinTightWindowBytes));
    case MemoryLevel::kFull:
      return std::min(most, kMinTightWindowBytes);
  }
  return most;
}

bool Service::HasRoomToReceive() const { return budget().HasRoomInTransit(kMinTightWindowBytes); }

WaitState Service::DescribeMemoryWait(const ClientIdentity& client, Duration waited) {
  WaitState state{.table = {}, .reason = WaitReason::kMemory, .waited = waited};
  state.text = "the server's memory is full: " + std::to_string(budget().transit()) + " of the " +
               TransitText(budget()) +
               " are used; inserts wait until samplers take their data, or raise memory_limit";
  memory_log_.Log(LogLevel::kWarning, "transit", "inserts of " + client.ToString() + " wait: " + state.text,
                  client.Fields({{"event", kEventWait}}));
  return state;
}

Welcome Service::MakeWelcome(uint64_t applied_through) const {
  return {.version = kMaxProtocolVersion,
          .server_life_id = life_id_,
          .server_name = options_.server_name,
          .applied_through = applied_through,
          .limits = {.max_message_bytes = options_.limits.wire.max_message_bytes,
                     .max_chunk_bytes = options_.limits.wire.max_chunk_bytes,
                     .insert_window_bytes = InsertWindowBytes(),
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
  budget().Add(MemoryPart::kSessions, kBytesPerStream);
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
  budget().Add(MemoryPart::kSessions, -kBytesPerStream);
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
  const std::string address = peer->address();
  Result<std::shared_ptr<InsertSession>> opened = DoOpenInsert(hello, std::move(peer));
  LogIfRefused(hello, address, opened.status());
  return opened;
}

Result<std::shared_ptr<SampleSession>> Service::OpenSample(const Hello& hello,
                                                           std::shared_ptr<SamplePeer> peer) {
  const std::string address = peer->address();
  Result<std::shared_ptr<SampleSession>> opened = DoOpenSample(hello, std::move(peer));
  LogIfRefused(hello, address, opened.status());
  return opened;
}

void Service::LogIfRefused(const Hello& hello, const std::string& address, const Status& status) const {
  if (status.ok() || stopped()) return;
  const std::string session = hello.session_id == Id128{} ? "" : SessionText(hello.session_id);
  LogRefusedClient({.name = hello.client_name, .address = address, .session = session}, "", status);
}

Result<std::shared_ptr<InsertSession>> Service::DoOpenInsert(const Hello& hello,
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
    streams_.emplace(stream_id, Stream{.end = [session](Status status) { session->End(std::move(status)); },
                                       .sampler = nullptr,
                                       .info = {.client_name = hello.client_name,
                                                .address = peer->address(),
                                                .is_insert = true,
                                                .opened = clock()->Now()}});
  }
  writer->Attach(session->generation(), hello.client_name, std::move(peer));
  // Stop() may have run in between, when the stream was not attached yet.
  if (stopped()) session->End(ShuttingDown());
  return std::shared_ptr<InsertSession>(std::move(session));
}

Result<std::shared_ptr<SampleSession>> Service::DoOpenSample(const Hello& hello,
                                                             std::shared_ptr<SamplePeer> peer) {
  REVERB_RETURN_IF_ERROR(CheckVersion(hello));
  if (options_.writer_source != nullptr && peer->sends_references()) options_.writer_source->Enable();
  const uint64_t most = options_.limits.sample_window_bytes;
  const uint64_t window = hello.receive_window_bytes == 0 ? most : std::min(hello.receive_window_bytes, most);
  std::shared_ptr<SampleStreamSession> session;
  {
    const std::string address = peer->address();
    MutexLock lock(&mu_);
    REVERB_ASSIGN_OR_RETURN(const uint64_t stream_id, EnterStream());
    session =
        std::make_shared<SampleStreamSession>(shared_from_this(), std::move(peer), stream_id, window, hello);
    streams_.emplace(stream_id, Stream{.end = [session](Status status) { session->End(std::move(status)); },
                                       .sampler = session,
                                       .info = {.client_name = hello.client_name,
                                                .address = address,
                                                .is_insert = false,
                                                .opened = clock()->Now()}});
  }
  session->Begin();
  return std::shared_ptr<SampleSession>(std::move(session));
}

Result<ChunkRef> Service::AllocateChunk(const ChunkHeader& header, uint8_t** payload) {
  const auto bytes = static_cast<int64_t>(PayloadSize(header));
  if (!budget().HasRoomInTransit(bytes)) [[unlikely]]
    return NoRoomInTransit(budget(), bytes);
  return options_.store->AddUninitialized(header, payload);
}

void Service::Announce(LocalEndpoint endpoint) {
  MutexLock lock(&mu_);
  local_ = std::move(endpoint);
}

Result<std::string> Service::Checkpoint() {
  if (options_.checkpoint) return options_.checkpoint();
  return Status::InvalidArgument("this server was started without a checkpoint path");
}

std::vector<Service::StreamInfo> Service::streams() const {
  std::vector<StreamInfo> streams;
  MutexLock lock(&mu_);
  streams.reserve(streams_.size());
  for (const auto& [id, stream] : streams_) streams.push_back(stream.info);
  return streams;
}

Service::Stats Service::stats() const {
  MutexLock lock(&mu_);
  return {.streams = streams_.size(),
          .writers = writers_.size(),
          .remembered_writers = remembered_.size(),
          .undelivered_samples = undelivered_.load(std::memory_order_relaxed)};
}

}  // namespace reverb::internal
