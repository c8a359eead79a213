// The handle of include/reverb/client.h over the client and the transports.
#include "reverb/client.h"

#include <map>
#include <utility>

#include "api/client_rep.h"
#include "api/sample_factory.h"
#include "api/sampler_rep.h"
#include "client/backoff.h"
#include "client/insert_pipeline.h"
#include "client/sampler.h"
#include "client/writer_factory.h"
#include "reverb/signature.h"
#include "transport/grpc/grpc_connection.h"
#include "transport/inproc/inproc.h"

namespace reverb {
namespace {

// A server that may be in this process is asked who it is, for at most so long.
constexpr std::chrono::seconds kWhoIsThere{2};
constexpr std::chrono::seconds kAskAgain{10};
// Idle streams for single operations that are kept warm, of each kind.
constexpr size_t kMaxIdle = 4;

}  // namespace

// --- Connections ---

std::shared_ptr<internal::Connection> Client::Rep::Connect(const WaitOptions& wait) {
  internal::TimePoint now;
  {
    internal::MutexLock lock(&mu);
    // A server of this process may have been stopped, and another one may be at its address.
    if (inproc && (is_pinned || internal::IsInprocServer(life_id))) return inproc;
    inproc = nullptr;
    if (is_elsewhere || !options.in_process || !internal::HasInprocServers()) return network;
    now = internal::RealClock()->Now();
    if (now < ask_again) return network;
  }
  WaitOptions who = wait;
  who.timeout = std::min<std::chrono::nanoseconds>(wait.timeout.value_or(kWhoIsThere), kWhoIsThere);
  const Result<ServerInfo> info = network->Info(who);
  internal::MutexLock lock(&mu);
  if (!info.ok()) {
    ask_again = now + kAskAgain;
    return network;
  }
  life_id = info->server_life_id;
  inproc = internal::ConnectInproc(life_id);
  is_elsewhere = inproc == nullptr;
  return inproc ? inproc : network;
}

Result<std::shared_ptr<internal::Connection>> Client::Rep::OwnConnection() {
  std::shared_ptr<internal::Connection> shared = Connect();
  if (shared->in_process()) return shared;
  return internal::ConnectGrpc(address);
}

Result<Client> Client::Connect(std::string address, ClientOptions options) {
  auto rep = std::make_shared<Rep>();
  REVERB_ASSIGN_OR_RETURN(rep->network, internal::ConnectGrpc(address));
  rep->address = std::move(address);
  rep->options = std::move(options);
  return Client(std::move(rep));
}

const std::string& Client::address() const { return rep_->address; }

Result<bool> Client::is_in_process(const WaitOptions& wait) const {
  REVERB_RETURN_IF_ERROR(Info(wait).status());
  return rep_->Connect()->in_process();
}

// --- Writers and samplers ---

std::unique_ptr<internal::ItemSink> Client::Rep::NewSink(bool reconnects) {
  return internal::InsertPipeline::Own(
      internal::InsertPipeline::Create(Connect(), {.window_bytes = options.write_window_bytes,
                                                   .client_name = options.name,
                                                   .reconnect_timeout = options.reconnect_timeout,
                                                   .reconnects = reconnects}));
}

Result<TrajectoryWriter> Client::NewTrajectoryWriter(const TrajectoryWriterOptions& options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeTrajectoryWriter(rep_->NewSink(), options);
}

Result<StructuredWriter> Client::NewStructuredWriter(StructuredWriterOptions options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeStructuredWriter(rep_->NewSink(), std::move(options));
}

Result<VectorWriter> Client::NewVectorWriter(const VectorWriterOptions& options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeVectorWriter(rep_->NewSink(), options);
}

Result<Writer> Client::NewWriter(const WriterOptions& options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeWriter(rep_->NewSink(), options);
}

Result<Sampler> Client::NewSampler(SamplerOptions options) const {
  internal::Sampler::Options inner{.table = std::move(options.table),
                                   .max_samples = options.max_samples,
                                   .max_in_flight = options.max_in_flight_samples_per_worker,
                                   .grow_window = options.grow_window,
                                   .max_share_ahead = options.max_share_ahead,
                                   .num_streams = options.num_workers == -1 ? 1 : options.num_workers,
                                   .exact = options.exact,
                                   .rate_limiter_timeout = options.rate_limiter_timeout,
                                   .reconnect_timeout = options.reconnect_timeout,
                                   .receive_window_bytes = options.receive_window_bytes,
                                   .client_name = rep_->options.name};
  // The first stream shares the client's connection, further ones have one each: streams of one
  // connection would share its bandwidth.
  bool is_first = true;
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<internal::Sampler> sampler,
                          internal::Sampler::Create(
                              [rep = rep_, &is_first]() -> std::shared_ptr<internal::Connection> {
                                if (std::exchange(is_first, false)) return rep->Connect();
                                Result<std::shared_ptr<internal::Connection>> own = rep->OwnConnection();
                                return own.ok() ? *std::move(own) : rep->Connect();
                              },
                              std::move(inner)));
  auto rep = std::make_unique<Sampler::Rep>();
  rep->sampler = std::move(sampler);
  return Sampler(std::move(rep));
}

// --- Single operations, over streams that are kept warm ---

Status Client::Insert(std::span<const TensorView> step, std::span<const TablePriority> tables,
                      const WaitOptions& wait) const {
  if (tables.empty()) return Status::InvalidArgument("an insert needs at least one table with a priority");
  std::optional<Writer> writer;
  {
    internal::MutexLock lock(&rep_->mu);
    if (!rep_->idle_writers.empty()) {
      writer = std::move(rep_->idle_writers.back());
      rep_->idle_writers.pop_back();
    }
  }
  // A writer that was used for steps of another layout, or whose server is gone, cannot take this one.
  if (!writer || !writer->Append(step).ok()) {
    REVERB_ASSIGN_OR_RETURN(writer, internal::WriterFactory::MakeWriter(rep_->NewSink(/*reconnects=*/false),
                                                                        {.max_sequence_length = 1}));
    REVERB_RETURN_IF_ERROR(writer->Append(step));
  }
  Status status;
  for (const auto& [table, priority] : tables) {
    if (status.ok()) status = writer->CreateItem(table, 1, priority);
  }
  if (status.ok()) status = writer->EndEpisode(wait);  // each insert is one of its own
  if (!status.ok()) {
    // Not waited for any longer. What was sent may still go in.
    (void)writer->Close({.timeout = std::chrono::nanoseconds(0)});
    return status;
  }
  internal::MutexLock lock(&rep_->mu);
  if (rep_->idle_writers.size() < kMaxIdle) rep_->idle_writers.push_back(*std::move(writer));
  return Status::Ok();
}

std::shared_ptr<internal::Sampler> Client::Rep::TakeIdleSampler(std::string_view table) {
  internal::MutexLock lock(&mu);
  const auto found = idle_samplers.find(table);
  if (found == idle_samplers.end()) return nullptr;
  std::shared_ptr<internal::Sampler> sampler = std::move(found->second.back());
  found->second.pop_back();
  if (found->second.empty()) idle_samplers.erase(found);
  return sampler;
}

void Client::Rep::KeepIdleSampler(std::string_view table, std::shared_ptr<internal::Sampler> sampler) {
  {
    internal::MutexLock lock(&mu);
    auto& idle = idle_samplers[std::string(table)];
    if (idle.size() < kMaxIdle) {
      idle.push_back(std::move(sampler));
      return;
    }
  }
  sampler->Close();
}

Result<std::vector<SampledTrajectory>> Client::Sample(std::string_view table, int64_t n,
                                                      const WaitOptions& wait) const {
  std::vector<internal::Sample> samples;
  while (true) {
    std::shared_ptr<internal::Sampler> sampler = rep_->TakeIdleSampler(table);
    const bool was_idle = sampler != nullptr;
    if (!was_idle) {
      REVERB_ASSIGN_OR_RETURN(
          sampler, internal::Sampler::Create(
                       [&] { return rep_->Connect(wait); },
                       {.table = std::string(table), .exact = true, .client_name = rep_->options.name}));
    }
    const Status status = sampler->Next(n, wait, &samples);
    if (status.ok()) {
      rep_->KeepIdleSampler(table, std::move(sampler));
      break;
    }
    sampler->Close();
    // The server that an idle stream led to may have been stopped since.
    if (was_idle && samples.empty() && internal::IsTransient(status)) continue;
    if (samples.empty()) return status;
    return Status(status.code(),
                  std::string(status.message()) + "; " + std::to_string(samples.size()) +
                      " samples had been drawn and are lost: use a Sampler to keep them",
                  status.detail());
  }
  return internal::MakeSampledTrajectories(std::move(samples));
}

Client::Rep::~Rep() {
  for (auto& [table, idle] : idle_samplers) {
    for (auto& sampler : idle) sampler->Close();
  }
}

// --- Single calls ---

Status Client::UpdatePriorities(std::string_view table, std::span<const KeyPriority> updates,
                                const WaitOptions& wait) const {
  return rep_->Connect(wait)->Mutate(
      {.table = std::string(table), .updates = {updates.begin(), updates.end()}}, wait);
}

Status Client::Delete(std::string_view table, std::span<const uint64_t> keys, const WaitOptions& wait) const {
  return rep_->Connect(wait)->Mutate({.table = std::string(table), .deletes = {keys.begin(), keys.end()}},
                                     wait);
}

Status Client::Reset(std::string_view table, const WaitOptions& wait) const {
  return rep_->Connect(wait)->Reset(table, wait);
}

Status Client::SetRateLimiter(std::string_view table, const RateLimiterOptions& options,
                              const WaitOptions& wait) const {
  return rep_->Connect(wait)->SetRateLimiter({.table = std::string(table), .options = options}, wait);
}

Result<ServerInfo> Client::Info(const WaitOptions& wait) const { return rep_->Connect(wait)->Info(wait); }

Result<std::shared_ptr<const TableSignatures>> Client::Signatures(const WaitOptions& wait) const {
  REVERB_ASSIGN_OR_RETURN(const ServerInfo info, Info(wait));
  auto signatures = std::make_shared<TableSignatures>();
  for (const TableInfo& table : info.tables) {
    auto& flat = (*signatures)[table.name];
    if (table.signature.empty()) continue;
    REVERB_ASSIGN_OR_RETURN(const Signature signature, DecodeSignature(table.signature));
    REVERB_ASSIGN_OR_RETURN(flat, signature.Flatten());
  }
  return std::shared_ptr<const TableSignatures>(std::move(signatures));
}

Result<std::vector<SampledTrajectory>> Client::Inspect(std::string_view table, int64_t n, uint64_t* cursor,
                                                       const WaitOptions& wait) const {
  if (n < 1 || n > UINT32_MAX) {
    return Status::InvalidArgument("items asked for: " + std::to_string(n) + "; ask for at least 1");
  }
  REVERB_ASSIGN_OR_RETURN(
      internal::InspectReply reply,
      rep_->Connect(wait)->Inspect(
          {.table = std::string(table), .cursor = *cursor, .count = static_cast<uint32_t>(n)}, wait));
  *cursor = reply.next_cursor;
  return internal::MakeSampledTrajectories(std::move(reply.items));
}

Result<std::string> Client::Checkpoint(const WaitOptions& wait) const {
  return rep_->Connect(wait)->Checkpoint(wait);
}

}  // namespace reverb
