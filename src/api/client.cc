// The handle of include/reverb/client.h over the client and the transports.
#include "reverb/client.h"

#include <chrono>
#include <utility>

#include "api/client_rep.h"
#include "api/client_security.h"
#include "api/resolver.h"
#include "api/routed_connection.h"
#include "api/sample_factory.h"
#include "api/sampler_rep.h"
#include "api/writer_factory.h"
#include "base/duration_text.h"
#include "base/wait_loop.h"
#include "client/sampler.h"
#include "transport/wire.h"

namespace reverb {
namespace {

// Responses without samples need up to this size.
constexpr uint64_t kMinResponseBytes = uint64_t{1} << 20;

}  // namespace

Status ClientOptions::Validate() const {
  if (write_window_bytes && *write_window_bytes < 1) {
    return Status::InvalidArgument("write_window_bytes (" + std::to_string(*write_window_bytes) +
                                   ") must be above 0, or absent for no bound");
  }
  if (max_response_bytes < kMinResponseBytes) {
    return Status::InvalidArgument("max_response_bytes (" + std::to_string(max_response_bytes) +
                                   ") must be at least " + std::to_string(kMinResponseBytes));
  }
  if (max_decoded_item_bytes < 1 || max_decoded_reply_bytes < max_decoded_item_bytes) {
    return Status::InvalidArgument("max_decoded_item_bytes (" + std::to_string(max_decoded_item_bytes) +
                                   ") must be above 0, and max_decoded_reply_bytes (" +
                                   std::to_string(max_decoded_reply_bytes) + ") at least as much");
  }
  if (max_decoded_reply_bytes < internal::kDecodedBytesPerReply) {
    return Status::InvalidArgument(
        "max_decoded_reply_bytes (" + std::to_string(max_decoded_reply_bytes) + ") must be at least " +
        std::to_string(internal::kDecodedBytesPerReply) +
        ", which servers put into one response; lower max_decoded_item_bytes instead");
  }
  if (keepalive_timeout && *keepalive_timeout < std::chrono::seconds(1)) {
    return Status::InvalidArgument("keepalive_timeout (" + internal::DurationText(*keepalive_timeout) +
                                   ") must be at least 1 s, or absent to wait forever");
  }
  if (const size_t most = internal::WireLimits().max_name_bytes; name.size() > most) {
    return Status::InvalidArgument("the name of a client may have " + std::to_string(most) + " bytes, got " +
                                   std::to_string(name.size()));
  }
  if (lost_server_timeout <= std::chrono::nanoseconds(0)) {
    return Status::InvalidArgument("lost_server_timeout (" + std::to_string(lost_server_timeout.count()) +
                                   " ns) must be above 0");
  }
  return Status::Ok();
}

Result<std::shared_ptr<Client::Rep>> Client::Rep::Make(const std::string& address,
                                                       const ClientOptions& options) {
  const std::shared_ptr<Rep> rep(new Rep(), Delete());
  if (internal::IsResolvedAddress(address)) {
    REVERB_ASSIGN_OR_RETURN(std::unique_ptr<internal::Resolver> resolver, internal::MakeResolver(address));
    REVERB_ASSIGN_OR_RETURN(rep->set, internal::ServerSet::Create(address, {}, std::move(resolver), options));
  } else {
    std::vector<std::string> addresses = internal::SplitAddresses(address);
    if (options.servers_may_change && address.empty()) addresses.clear();
    if (addresses.size() == 1 && !options.servers_may_change) {
      REVERB_ASSIGN_OR_RETURN(std::shared_ptr<internal::RoutedConnection> network,
                              internal::ConnectRouted(addresses.front(), options));
      rep->only = std::make_shared<internal::ServerLink>(std::move(network), options);
    } else {
      REVERB_ASSIGN_OR_RETURN(rep->set, internal::ServerSet::Create(address, addresses, nullptr, options));
    }
  }
  rep->address = address;
  rep->options = options;
  return rep;
}

void Client::Rep::Delete::operator()(Rep* rep) const {
  if (rep->generation == internal::ForkGeneration()) delete rep;
}

const std::shared_ptr<Client::Rep>& Client::Rep::OfThisProcess(const std::shared_ptr<Rep>& rep) {
  if (rep->generation == internal::ForkGeneration() || rep->is_pinned) [[likely]]
    return rep;
  const std::shared_ptr<Rep>* known = rep->replacement.load(std::memory_order_acquire);
  if (known == nullptr) {
    Result<std::shared_ptr<Rep>> made = Make(rep->address, rep->options);
    if (!made.ok()) return rep;  // cannot happen: the parent has checked the address
    auto fresh = std::make_unique<const std::shared_ptr<Rep>>(*std::move(made));
    if (rep->replacement.compare_exchange_strong(known, fresh.get(), std::memory_order_acq_rel)) {
      known = fresh.release();
    }
  }
  return OfThisProcess(*known);  // a grandchild replaces that of the child
}

const std::shared_ptr<Client::Rep>& Client::rep() const { return Rep::OfThisProcess(rep_); }

std::string_view TransportName(Transport transport) {
  switch (transport) {
    case Transport::kInProcess:
      return "in-process";
    case Transport::kLocal:
      return "local";
    case Transport::kGrpc:
      return "gRPC";
  }
  return "unknown";
}

Result<Client> Client::Connect(std::string address, ClientOptions options) {
  REVERB_RETURN_IF_ERROR(options.Validate());
  REVERB_ASSIGN_OR_RETURN(options, internal::WithEnvironment(std::move(options)));
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<Rep> rep, Rep::Make(address, options));
  return Client(std::move(rep));
}

const std::string& Client::address() const { return rep()->address; }

int64_t Client::num_servers() const { return static_cast<int64_t>(rep()->links().size()); }

Status Client::SetServers(const std::vector<std::string>& addresses) const {
  if (rep()->set) return rep()->set->SetAddresses(addresses);
  return Status::FailedPrecondition("the client of " + rep()->address +
                                    " has one server, which cannot be replaced; connect it with "
                                    "servers_may_change");
}

int64_t Client::dropped_updates() const { return rep()->set ? rep()->set->dropped_updates() : 0; }

Result<bool> Client::is_in_process(const WaitOptions& wait) const {
  const internal::WaitLoop loop(wait);
  REVERB_ASSIGN_OR_RETURN(const internal::ServerSet::Links links, rep()->AwaitLinks(wait));
  for (const auto& server : links) {
    REVERB_RETURN_IF_ERROR(server->Info(loop.Left()).status());
    if (!server->Connect(loop.Left())->in_process()) return false;
  }
  return true;
}

Result<std::vector<Transport>> Client::Transports(const WaitOptions& wait) const {
  const internal::WaitLoop loop(wait);
  std::vector<Transport> transports;
  REVERB_ASSIGN_OR_RETURN(const internal::ServerSet::Links links, rep()->AwaitLinks(wait));
  for (const auto& server : links) {
    REVERB_RETURN_IF_ERROR(server->Info(loop.Left()).status());
    transports.push_back(server->transport(loop.Left()));
  }
  return transports;
}

// --- Writers and samplers ---

Result<TrajectoryWriter> Client::NewTrajectoryWriter(const TrajectoryWriterOptions& options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeTrajectoryWriter(rep()->NewSink(), options);
}

Result<StructuredWriter> Client::NewStructuredWriter(StructuredWriterOptions options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeStructuredWriter(rep()->NewSink(), std::move(options));
}

Result<VectorWriter> Client::NewVectorWriter(const VectorWriterOptions& options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeVectorWriter(rep()->NewSink(), options);
}

Result<Writer> Client::NewWriter(const WriterOptions& options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeWriter(rep()->NewSink(), options);
}

Result<Sampler> Client::NewSampler(SamplerOptions options) const {
  std::string table = options.table;
  internal::SamplerImpl::Options inner{.table = std::move(options.table),
                                       .max_samples = options.max_samples,
                                       .max_in_flight = options.max_in_flight_samples_per_worker,
                                       .grow_window = options.grow_window,
                                       .max_share_ahead = options.max_share_ahead,
                                       .whole_windows = options.whole_windows,
                                       .num_streams = options.num_workers == -1 ? 1 : options.num_workers,
                                       .exact = options.exact,
                                       .batch_size = options.batch_size,
                                       .rules = {.all_or_nothing = options.all_or_nothing,
                                                 .check = options.check,
                                                 .unsupported_dtypes = rep()->options.unsupported_dtypes,
                                                 .timesteps = options.timesteps},
                                       .lease = options.lease,
                                       .rate_limiter_timeout = options.rate_limiter_timeout,
                                       .reconnect_timeout = options.reconnect_timeout,
                                       .receive_window_bytes = options.receive_window_bytes,
                                       .client_name = rep()->options.name};
  auto state = std::make_unique<Sampler::Rep>();
  if (rep()->set) {
    REVERB_ASSIGN_OR_RETURN(state->sampler, rep()->set->NewSampler(std::move(inner)));
  } else {
    // The first stream uses the client's connection. Further streams have their own connections, since the
    // streams of one connection share its bandwidth.
    const auto connect = [rep = rep()](size_t stream) {
      return stream == 0 ? rep->only->Connect() : rep->only->OwnConnection();
    };
    REVERB_ASSIGN_OR_RETURN(state->sampler, internal::SamplerImpl::Create(connect, std::move(inner)));
  }
  if (options.lease > std::chrono::nanoseconds(0)) {
    // Keeps the connections as long as a lease is held.
    auto settler = std::make_shared<internal::LeaseSettler>();
    settler->table = table;
    settler->find = [rep = rep()](uint64_t server) -> std::shared_ptr<internal::ServerLink> {
      if (rep->only) return rep->only;
      for (const auto& link : rep->links()) {
        if (link->id() == server) return link;
      }
      return nullptr;
    };
    state->leases =
        std::make_unique<internal::HandedOutLeases>(std::move(settler), options.lease, options.auto_ack);
  }
  state->column_names = [weak = std::weak_ptr<Rep>(rep()), table = std::move(table)] {
    constexpr std::chrono::seconds kTimeout{1};  // explains an error of a server that has just answered
    const std::shared_ptr<Rep> client = weak.lock();
    if (client == nullptr) return std::vector<std::string>();
    Result<std::vector<std::string>> names = Client(client).ColumnNames(table, {.timeout = kTimeout});
    return names.ok() ? *std::move(names) : std::vector<std::string>();
  };
  return Sampler(std::move(state));
}

// --- Single operations ---

Status Client::Insert(std::span<const TensorView> step, std::span<const TablePriority> tables,
                      const WaitOptions& wait, const ItemStructure& structure) const {
  if (tables.empty()) return Status::InvalidArgument("an insert needs at least one table with a priority");
  if (rep()->only) return rep()->only->Insert(step, tables, wait, structure);
  const internal::WaitLoop loop(wait);
  REVERB_ASSIGN_OR_RETURN(const internal::ServerSet::Links links, rep()->AwaitLinks(wait));
  Status status;
  for (size_t attempt = 0; attempt < links.size(); ++attempt) {
    const std::shared_ptr<internal::ServerLink> link = rep()->set->NextInTurn();
    if (!link) break;
    status = link->Insert(step, tables, loop.Left(), structure);
    // One that was reached may have inserted the item: this error is the caller's.
    if (status.code() != StatusCode::kUnavailable || link->was_reached()) return status;
    rep()->set->MarkLost(link);
  }
  return status;
}

Result<std::vector<SampledTrajectory>> Client::Sample(std::string_view table, int64_t n,
                                                      const WaitOptions& wait, bool timesteps) const {
  std::vector<internal::Sample> samples;
  const Status status = rep()->only ? rep()->only->Sample(table, n, wait, timesteps, &samples)
                                    : rep()->set->Sample(table, n, wait, timesteps, &samples);
  if (status.ok()) {
    return internal::MakeSampledTrajectories(std::move(samples));
  }
  if (samples.empty()) return status;
  return Status(status.code(),
                std::string(status.message()) + "; " + std::to_string(samples.size()) +
                    " samples had been drawn and are lost: use a Sampler to keep them",
                status.detail());
}

}  // namespace reverb
