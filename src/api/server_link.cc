#include "api/server_link.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/routed_connection.h"
#include "api/writer_factory.h"
#include "base/duration_text.h"
#include "base/log.h"
#include "base/payload_source.h"
#include "base/random.h"
#include "base/shared_memory.h"
#include "base/wait_loop.h"
#include "client/backoff.h"
#include "client/insert_pipeline.h"
#include "transport/inproc/inproc.h"
#include "transport/wire_writer.h"

namespace reverb::internal {
namespace {

// Bounds the Info() call that detects a server in this process, and the interval after a failed one.
constexpr std::chrono::seconds kDetectTimeout{2};
constexpr std::chrono::seconds kDetectInterval{10};
// Bounds the idle streams of each kind that are kept for single operations.
constexpr size_t kMaxIdle = 4;

Transport TransportOf(const std::shared_ptr<Connection>& connection) {
  if (connection->in_process()) return Transport::kInProcess;
  auto* const routed = dynamic_cast<RoutedConnection*>(connection.get());
  return routed == nullptr ? Transport::kGrpc : routed->transport();
}

// Returns the shared memory for payloads of items that are sent by reference. Shorter ones are sent inline and stay in
// private memory: sending and following a reference takes longer than copying them.
PayloadSource* ReferencedPayloads() {
  static PayloadSource* const source = new LargeBlockSource(ProcessSharedMemory(), kShareBytes);
  return source;
}

// Returns after `pause`, or earlier if the wait expires. Returns the error of on_wait.
Status Pause(Duration pause, WaitLoop* loop) {
  Mutex mu;
  CondVar never_notified;
  const auto end = std::chrono::steady_clock::now() + pause;
  MutexLock lock(&mu);
  while (std::chrono::steady_clock::now() < end && !loop->expired()) {
    REVERB_RETURN_IF_ERROR(loop->Sleep(&never_notified, &mu));
  }
  return Status::Ok();
}

}  // namespace

std::unique_ptr<ServerLink> ServerLink::Pinned(std::shared_ptr<Connection> inproc, ClientOptions options) {
  auto link = std::make_unique<ServerLink>(nullptr, std::move(options));
  link->is_pinned_ = true;
  MutexLock lock(&link->mu_);
  link->inproc_ = std::move(inproc);
  return link;
}

ServerLink::~ServerLink() {
  for (IdleSamplers& samplers : idle_samplers_) {
    for (auto& [table, idle] : samplers) {
      for (auto& sampler : idle) sampler->Close();
    }
  }
}

uint64_t ServerLink::NextId() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1) + 1;
}

// --- Connections ---

std::string ServerLink::address() const {
  return network_ ? network_->address() : std::string("this process");
}

std::shared_ptr<Connection> ServerLink::Connect(const WaitOptions& wait) {
  TimePoint now;
  {
    MutexLock lock(&mu_);
    // The server of this process may have stopped, and another one may listen at its address.
    if (inproc_ && (is_pinned_ || IsInprocServer(life_id_))) return inproc_;
    inproc_ = nullptr;
    if (is_remote_ || !options_.in_process || !HasInprocServers()) return network_;
    now = RealClock()->Now();
    if (now < detect_not_before_) return network_;
  }
  WaitOptions brief = wait;
  brief.timeout = std::min<std::chrono::nanoseconds>(wait.timeout.value_or(kDetectTimeout), kDetectTimeout);
  const Result<ServerInfo> info = network_->Info(brief);
  MutexLock lock(&mu_);
  if (!info.ok()) {
    detect_not_before_ = now + kDetectInterval;
    return network_;
  }
  life_id_ = info->server_life_id;
  inproc_ = ConnectInproc(life_id_);
  is_remote_ = inproc_ == nullptr;
  return inproc_ ? inproc_ : network_;
}

std::shared_ptr<Connection> ServerLink::ConnectNow() {
  MutexLock lock(&mu_);
  return inproc_ && (is_pinned_ || IsInprocServer(life_id_)) ? inproc_ : network_;
}

std::shared_ptr<Connection> ServerLink::OwnConnection() {
  std::shared_ptr<Connection> shared = Connect();
  if (shared->in_process()) return shared;
  Result<std::shared_ptr<RoutedConnection>> own = ConnectRouted(shared->address(), options_);
  return own.ok() ? *std::move(own) : shared;
}

PayloadSource* ServerLink::payload_source(const WaitOptions& wait) { return Connect(wait)->payload_source(); }

Transport ServerLink::transport(const WaitOptions& wait) { return TransportOf(Connect(wait)); }

std::unique_ptr<ItemSink> ServerLink::NewSink(bool reconnects, Timeout reconnect_timeout) {
  if (!reconnect_timeout) reconnect_timeout = options_.reconnect_timeout;
  std::shared_ptr<Connection> connection = Connect();
  PayloadSource* source = connection->payload_source();
  if (source != nullptr && source == ProcessSharedMemory()) source = ReferencedPayloads();
  return InsertPipeline::Own(
      InsertPipeline::Create(std::move(connection), {.window_bytes = options_.write_window_bytes,
                                                     .client_name = options_.name,
                                                     .reconnect_timeout = reconnect_timeout,
                                                     .reconnects = reconnects,
                                                     .payload_source = source}));
}

// --- Single calls ---

Timeout ServerLink::LostTimeout(const CallKind& kind, const Timeout& timeout) const {
  if (kind.lost_timeout) return kind.lost_timeout;
  if (kind.is_change && !timeout && !options_.reconnect_timeout) return change_timeout_;
  return options_.reconnect_timeout;
}

Status ServerLink::Call(const CallKind& kind, const WaitOptions& wait, const SingleCall& call) {
  WaitLoop loop(wait);  // before Connect(), whose time counts too
  std::shared_ptr<Connection> connection = Connect(wait);
  if (connection->in_process()) return call(*connection, wait);
  const bool tries_once = wait.timeout && *wait.timeout <= Duration(0);
  std::optional<Backoff> backoff;  // set after the first failure
  const Timeout lost_timeout = LostTimeout(kind, wait.timeout);
  Duration last_connected{0};  // initially the start
  Status last_failure;
  Status given_up;  // the error of on_wait, or that the server is unreachable
  const auto check_reached = [&] {
    const Duration lost = loop.waited() - last_connected;
    if (!lost_timeout || lost < std::max(*lost_timeout, kMinAttemptTimeout)) return Status::Ok();
    return CannotReach(connection->address(), lost, last_failure);
  };
  WaitOptions attempt = wait;
  attempt.on_wait = [&] {
    if (wait.on_wait) given_up = wait.on_wait();
    if (given_up.ok()) {
      if (connection->is_connected()) last_connected = loop.waited();
      given_up = check_reached();
    }
    return given_up;
  };
  for (int broken = 0;; ++broken) {
    const Duration started = loop.waited();
    if (wait.timeout && !tries_once) attempt.timeout = std::max(*wait.timeout - started, Duration(1));
    if (broken > 0) connection = Connect(attempt);
    if (given_up.ok() && connection->in_process()) return call(*connection, wait);
    Status status = given_up.ok() ? call(*connection, attempt) : given_up;
    if (status.ok() || !given_up.ok() || tries_once) return status;
    if (broken > 0 && status.code() == StatusCode::kDeadlineExceeded) {
      return Status::DeadlineExceeded(std::string(kind.name) + ": no answer from the server at " +
                                      connection->address() + " within " + DurationText(loop.waited()) +
                                      "; " + std::to_string(broken) +
                                      (broken == 1 ? " attempt was" : " attempts were") +
                                      " interrupted; the last error: " + std::string(status.message()));
    }
    if (status.code() != StatusCode::kUnavailable) return status;
    if (!kind.can_repeat) {
      return Status::Unavailable(std::string(kind.name) + ": " + std::string(status.message()) +
                                 "; the server may have carried it out nevertheless: check, and call again "
                                 "if it has not");
    }
    last_failure = status;
    REVERB_RETURN_IF_ERROR(check_reached());
    if (loop.ShouldLogNow()) {
      LogWait("call " + connection->address(),
              "still waiting for the server at " + connection->address() + " to answer " + kind.name +
                  " for " + DurationText(loop.waited()) + "; " + std::string(status.message()));
    }
    if (!backoff) backoff.emplace(EntropySeed());
    REVERB_RETURN_IF_ERROR(Pause(backoff->Next(loop.waited() - started), &loop));
    if (loop.expired()) {
      return Status::DeadlineExceeded(std::string(kind.name) + ": no answer from the server at " +
                                      connection->address() + " within " + DurationText(loop.waited()) +
                                      ": " + std::string(status.message()));
    }
  }
}

template <typename T, typename F>
Result<T> ServerLink::CallFor(const CallKind& kind, const WaitOptions& wait, F&& call) {
  std::optional<T> value;
  REVERB_RETURN_IF_ERROR(Call(kind, wait, [&](Connection& connection, const WaitOptions& attempt) {
    Result<T> result = call(connection, attempt);
    if (result.ok()) value = *std::move(result);
    return result.status();
  }));
  return *std::move(value);
}

Result<ServerInfo> ServerLink::Info(const WaitOptions& wait) {
  Result<ServerInfo> info = CallFor<ServerInfo>(
      {.name = "Info", .is_change = false}, wait,
      [](Connection& connection, const WaitOptions& attempt) { return connection.Info(attempt); });
  if (info.ok()) {
    SetShard(info->shard);
    MutexLock lock(&mu_);
    last_life_id_ = info->server_life_id;
  }
  return info;
}

Id128 ServerLink::last_life_id() const {
  MutexLock lock(&mu_);
  return last_life_id_;
}

Status ServerLink::Mutate(const MutateRequest& request, const WaitOptions& wait, Timeout lost_timeout) {
  return Call({.name = "MutatePriorities", .lost_timeout = lost_timeout}, wait,
              [&](Connection& connection, const WaitOptions& attempt) {
                return connection.Mutate(request, attempt);
              });
}

Status ServerLink::Reset(std::string_view table, const WaitOptions& wait) {
  return Call(
      {.name = "Reset", .can_repeat = false}, wait,
      [&](Connection& connection, const WaitOptions& attempt) { return connection.Reset(table, attempt); });
}

Status ServerLink::SetRateLimiter(const SetRateLimiterRequest& request, const WaitOptions& wait) {
  return Call({.name = "SetRateLimiter"}, wait, [&](Connection& connection, const WaitOptions& attempt) {
    return connection.SetRateLimiter(request, attempt);
  });
}

Status ServerLink::CreateTable(const CreateTableRequest& request, const WaitOptions& wait) {
  return Call({.name = "CreateTable", .can_repeat = request.exist_ok}, wait,
              [&](Connection& connection, const WaitOptions& attempt) {
                return connection.CreateTable(request, attempt);
              });
}

Status ServerLink::RemoveTable(std::string_view table, const WaitOptions& wait) {
  return Call({.name = "RemoveTable", .can_repeat = false}, wait,
              [&](Connection& connection, const WaitOptions& attempt) {
                return connection.RemoveTable(table, attempt);
              });
}

Status ServerLink::ChangeTable(const ChangeTableRequest& request, const WaitOptions& wait) {
  return Call({.name = "ChangeTable"}, wait, [&](Connection& connection, const WaitOptions& attempt) {
    return connection.ChangeTable(request, attempt);
  });
}

Result<InspectReply> ServerLink::Inspect(const InspectRequest& request, const WaitOptions& wait) {
  return CallFor<InspectReply>({.name = "Inspect", .is_change = false}, wait,
                               [&](Connection& connection, const WaitOptions& attempt) {
                                 return connection.Inspect(request, attempt);
                               });
}

Result<LeaseOutcome> ServerLink::SettleLeases(const SettleLeasesRequest& request, const WaitOptions& wait) {
  return CallFor<LeaseOutcome>({.name = "SettleLeases"}, wait,
                               [&](Connection& connection, const WaitOptions& attempt) {
                                 return connection.SettleLeases(request, attempt);
                               });
}

Result<std::string> ServerLink::Checkpoint(const WaitOptions& wait) {
  return CallFor<std::string>(
      {.name = "Checkpoint", .can_repeat = false}, wait,
      [](Connection& connection, const WaitOptions& attempt) { return connection.Checkpoint(attempt); });
}

ServerLink::CallKind ServerLink::KindOf(const RowsCall& call) {
  const RowsVerb verb = call.verb;
  const bool is_change = verb != RowsVerb::kGet && verb != RowsVerb::kList && verb != RowsVerb::kInfo &&
                         verb != RowsVerb::kGetState;
  const bool can_repeat = verb != RowsVerb::kPut && verb != RowsVerb::kEnd && verb != RowsVerb::kReserve &&
                          verb != RowsVerb::kRemoveTable && (verb != RowsVerb::kCreateTable || call.exist_ok);
  return {.name = "Rows", .can_repeat = can_repeat, .is_change = is_change};
}

Result<RowsReply> ServerLink::Rows(const RowsRequest& request, const WaitOptions& wait) {
  return CallFor<RowsReply>(
      KindOf(request.call), wait,
      [&](Connection& connection, const WaitOptions& attempt) { return connection.Rows(request, attempt); });
}

// --- Single operations, over streams kept for reuse ---

Status ServerLink::Insert(std::span<const TensorView> step, std::span<const Client::TablePriority> tables,
                          const WaitOptions& wait, const ItemStructure& structure) {
  std::optional<Writer> writer;
  {
    MutexLock lock(&mu_);
    if (!idle_writers_.empty()) {
      writer = std::move(idle_writers_.back());
      idle_writers_.pop_back();
    }
  }
  // An idle writer rejects a step of another layout, and any step if its server has stopped.
  if (!writer || !writer->Append(step).ok()) {
    REVERB_ASSIGN_OR_RETURN(writer, WriterFactory::MakeWriter(NewSink(/*reconnects=*/false, change_timeout_),
                                                              {.max_sequence_length = 1}));
    REVERB_RETURN_IF_ERROR(writer->Append(step));
  }
  Status status;
  for (const auto& [table, priority] : tables) {
    if (status.ok()) status = writer->CreateItem(table, 1, priority, structure);
  }
  if (status.ok()) status = writer->EndEpisode(wait);  // each insert is an episode
  if (!status.ok()) {
    // Does not wait any longer. Items that were sent may still be inserted.
    (void)writer->Close({.timeout = std::chrono::nanoseconds(0)});
    return status;
  }
  MutexLock lock(&mu_);
  if (idle_writers_.size() < kMaxIdle) idle_writers_.push_back(*std::move(writer));
  return Status::Ok();
}

std::shared_ptr<SamplerImpl> ServerLink::TakeIdleSampler(std::string_view table, bool timesteps) {
  MutexLock lock(&mu_);
  IdleSamplers& samplers = idle_samplers_[timesteps ? 1 : 0];
  const auto found = samplers.find(table);
  if (found == samplers.end()) return nullptr;
  std::shared_ptr<SamplerImpl> sampler = std::move(found->second.back());
  found->second.pop_back();
  if (found->second.empty()) samplers.erase(found);
  return sampler;
}

void ServerLink::KeepIdleSampler(std::string_view table, bool timesteps,
                                 std::shared_ptr<SamplerImpl> sampler) {
  {
    MutexLock lock(&mu_);
    auto& idle = idle_samplers_[timesteps ? 1 : 0][std::string(table)];
    if (idle.size() < kMaxIdle) {
      idle.push_back(std::move(sampler));
      return;
    }
  }
  sampler->Close();
}

Status ServerLink::Sample(std::string_view table, int64_t n, const WaitOptions& wait, bool timesteps,
                          std::vector<internal::Sample>* out) {
  while (true) {
    std::shared_ptr<SamplerImpl> sampler = TakeIdleSampler(table, timesteps);
    const bool was_idle = sampler != nullptr;
    if (!was_idle) {
      REVERB_ASSIGN_OR_RETURN(
          sampler, SamplerImpl::Create(
                       [&](size_t) { return Connect(wait); },
                       {.table = std::string(table),
                        .exact = true,
                        .rules = {.unsupported_dtypes = options_.unsupported_dtypes, .timesteps = timesteps},
                        .reconnect_timeout = options_.reconnect_timeout,
                        .client_name = options_.name}));
    }
    Status status = sampler->Next(n, wait, out);
    if (status.ok()) {
      KeepIdleSampler(table, timesteps, std::move(sampler));
      return status;
    }
    sampler->Close();
    // The server of an idle stream may have stopped meanwhile.
    if (was_idle && out->empty() && IsTransient(status)) continue;
    return status;
  }
}

}  // namespace reverb::internal
