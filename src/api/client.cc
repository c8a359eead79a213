// The handle of include/reverb/client.h over the client and the transports.
#include "reverb/client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "api/client_rep.h"
#include "api/routed_connection.h"
#include "api/sample_factory.h"
#include "api/sampler_rep.h"
#include "api/writer_factory.h"
#include "base/wait_loop.h"
#include "client/sampler.h"
#include "reverb/signature.h"
#include "transport/wire.h"

namespace reverb {
namespace {

// How long a call without a timeout that changes tables of several servers waits for an unreachable one. The
// program continues with the samples of the other servers.
constexpr std::chrono::seconds kLostServerTimeout{10};

// Splits "a:1,b:2".
std::vector<std::string> Addresses(std::string_view list) {
  std::vector<std::string> addresses;
  while (true) {
    const size_t comma = list.find(',');
    std::string_view one = list.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    addresses.emplace_back(one);
    if (comma == std::string_view::npos) return addresses;
    list.remove_prefix(comma + 1);
  }
}

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
  if (const size_t most = internal::WireLimits().max_name_bytes; name.size() > most) {
    return Status::InvalidArgument("the name of a client may have " + std::to_string(most) + " bytes, got " +
                                   std::to_string(name.size()));
  }
  return Status::Ok();
}

Result<std::shared_ptr<Client::Rep>> Client::Rep::Make(const std::string& address,
                                                       const ClientOptions& options) {
  const std::shared_ptr<Rep> rep(new Rep(), Delete());
  const std::vector<std::string> addresses = Addresses(address);
  const Timeout change_timeout = addresses.size() > 1 ? Timeout(kLostServerTimeout) : Timeout();
  for (const std::string& one : addresses) {
    REVERB_ASSIGN_OR_RETURN(std::shared_ptr<internal::RoutedConnection> network,
                            internal::ConnectRouted(one, options));
    rep->servers.push_back(
        std::make_unique<internal::ServerLink>(std::move(network), options, change_timeout));
  }
  if (rep->servers.size() > 1) rep->owners = std::make_shared<internal::KeyOwners>();
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
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<Rep> rep, Rep::Make(address, options));
  return Client(std::move(rep));
}

const std::string& Client::address() const { return rep()->address; }

int64_t Client::num_servers() const { return static_cast<int64_t>(rep()->servers.size()); }

Result<bool> Client::is_in_process(const WaitOptions& wait) const {
  for (const auto& server : rep()->servers) {
    REVERB_RETURN_IF_ERROR(server->Info(wait).status());
    if (!server->Connect(wait)->in_process()) return false;
  }
  return true;
}

Result<std::vector<Transport>> Client::Transports(const WaitOptions& wait) const {
  std::vector<Transport> transports;
  for (const auto& server : rep()->servers) {
    REVERB_RETURN_IF_ERROR(server->Info(wait).status());
    transports.push_back(server->transport(wait));
  }
  return transports;
}

// --- Writers and samplers ---

Result<TrajectoryWriter> Client::NewTrajectoryWriter(const TrajectoryWriterOptions& options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeTrajectoryWriter(rep()->next(Rep::kWriter).NewSink(), options);
}

Result<StructuredWriter> Client::NewStructuredWriter(StructuredWriterOptions options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeStructuredWriter(rep()->next(Rep::kWriter).NewSink(),
                                                       std::move(options));
}

Result<VectorWriter> Client::NewVectorWriter(const VectorWriterOptions& options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeVectorWriter(rep()->next(Rep::kWriter).NewSink(), options);
}

Result<Writer> Client::NewWriter(const WriterOptions& options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return internal::WriterFactory::MakeWriter(rep()->next(Rep::kWriter).NewSink(), options);
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
                                       .num_servers = static_cast<int32_t>(rep()->servers.size()),
                                       .exact = options.exact,
                                       .batch_size = options.batch_size,
                                       .rules = {.all_or_nothing = options.all_or_nothing,
                                                 .check = options.check,
                                                 .unsupported_dtypes = rep()->options.unsupported_dtypes,
                                                 .timesteps = options.timesteps},
                                       .rate_limiter_timeout = options.rate_limiter_timeout,
                                       .reconnect_timeout = options.reconnect_timeout,
                                       .receive_window_bytes = options.receive_window_bytes,
                                       .client_name = rep()->options.name};
  // A server's first stream uses the client's connection. Further streams have their own connections, since
  // the streams of one connection share its bandwidth.
  const auto connect = [rep = rep()](size_t stream) {
    internal::ServerLink& server = *rep->servers[stream % rep->servers.size()];
    return stream < rep->servers.size() ? server.Connect() : server.OwnConnection();
  };
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<internal::SamplerImpl> sampler,
                          internal::SamplerImpl::Create(connect, std::move(inner)));
  auto state = std::make_unique<Sampler::Rep>();
  state->sampler = std::move(sampler);
  state->owners = rep()->owners;
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
  return rep()->next(Rep::kInsert).Insert(step, tables, wait, structure);
}

Result<std::vector<SampledTrajectory>> Client::Sample(std::string_view table, int64_t n,
                                                      const WaitOptions& wait, bool timesteps) const {
  std::vector<internal::Sample> samples;
  const size_t server = rep()->NextTurn(Rep::kSample);
  const Status status = rep()->servers[server]->Sample(table, n, wait, timesteps, &samples);
  if (status.ok()) {
    if (rep()->owners) {
      for (internal::Sample& sample : samples) sample.server = static_cast<uint32_t>(server);
      rep()->owners->Record(samples);
    }
    return internal::MakeSampledTrajectories(std::move(samples));
  }
  if (samples.empty()) return status;
  return Status(status.code(),
                std::string(status.message()) + "; " + std::to_string(samples.size()) +
                    " samples had been drawn and are lost: use a Sampler to keep them",
                status.detail());
}

// --- Single calls ---

namespace {

// Visits the server that this key was sampled from, or all servers if it is unknown: others ignore the key.
template <typename F>
void ForOwners(const Client::Rep& rep, uint64_t key, F&& visit) {
  const std::optional<uint32_t> owner = rep.owners ? rep.owners->Find(key) : std::optional<uint32_t>(0);
  if (owner) return visit(*owner);
  for (size_t server = 0; server < rep.servers.size(); ++server) visit(server);
}

// Calls one server, given by its index.
using ServerCall = std::function<Status(size_t server, const WaitOptions& wait)>;

// Returns one error that names each failed server, or OK.
Status Collect(const Client::Rep& rep, std::span<const size_t> servers, std::span<const Status> results) {
  const Status* first = nullptr;
  size_t failed = 0;
  std::string text;
  for (size_t i = 0; i < servers.size(); ++i) {
    if (results[i].ok()) continue;
    ++failed;
    if (first == nullptr) first = &results[i];
    text += "; " + rep.servers[servers[i]]->address() + ": " + std::string(results[i].message());
  }
  if (first == nullptr) return Status::Ok();
  return Status(first->code(),
                std::to_string(failed) + " of the " + std::to_string(servers.size()) +
                    " servers that were called failed" +
                    (failed < servers.size() ? ", the others have done it" : "") + text,
                first->detail());
}

// Calls these servers concurrently and waits for all of them.
Status CallServers(const Client::Rep& rep, std::span<const size_t> servers, const WaitOptions& wait,
                   const ServerCall& call) {
  if (rep.servers.size() == 1) return servers.empty() ? Status::Ok() : call(servers.front(), wait);
  std::vector<Status> results(servers.size());
  // on_wait is called on the caller's thread only. When it gives up, `is_given_up` ends the other calls.
  std::atomic<bool> is_given_up = false;
  Status given_up;
  const WaitOptions others{.timeout = wait.timeout, .on_wait = [&] {
                             return is_given_up ? Status::Cancelled("the caller gave up") : Status::Ok();
                           }};
  WaitOptions own = wait;
  if (wait.on_wait) {
    own.on_wait = [&] {
      given_up = wait.on_wait();
      if (!given_up.ok()) is_given_up = true;
      return given_up;
    };
  }
  internal::Mutex mu;
  internal::CondVar changed;
  size_t running = 0;  // guarded by `mu`
  std::vector<std::thread> threads;
  for (size_t i = 1; i < servers.size(); ++i) {
    const auto work = [&, i] {
      results[i] = call(servers[i], others);
      internal::MutexLock lock(&mu);
      --running;
      changed.NotifyAll();
    };
    {
      internal::MutexLock lock(&mu);
      ++running;
    }
    try {
      threads.emplace_back(work);
    } catch (const std::system_error&) {  // the system cannot create another thread
      work();
    }
  }
  if (!servers.empty()) results[0] = call(servers[0], own);
  {
    internal::MutexLock lock(&mu);
    const WaitOptions until_done{.timeout = {}, .on_wait = own.on_wait};
    internal::WaitLoop loop(until_done);
    while (running > 0 && given_up.ok()) (void)loop.Sleep(&changed, &mu);
  }
  for (std::thread& thread : threads) thread.join();
  return given_up.ok() ? Collect(rep, servers, results) : given_up;
}

Status CallAllServers(const Client::Rep& rep, const WaitOptions& wait, const ServerCall& call) {
  std::vector<size_t> all(rep.servers.size());
  std::iota(all.begin(), all.end(), 0);
  return CallServers(rep, all, wait, call);
}

Status Mutate(const Client::Rep& rep, std::string_view table, std::vector<internal::MutateRequest> requests,
              const WaitOptions& wait) {
  bool is_empty = true;
  for (const auto& request : requests) is_empty &= request.updates.empty() && request.deletes.empty();
  std::vector<size_t> servers;
  for (size_t server = 0; server < requests.size(); ++server) {
    internal::MutateRequest& request = requests[server];
    // An empty call checks that the table exists.
    if (!is_empty && request.updates.empty() && request.deletes.empty()) continue;
    request.table = table;
    servers.push_back(server);
  }
  return CallServers(rep, servers, wait, [&](size_t server, const WaitOptions& attempt) {
    return rep.servers[server]->Mutate(requests[server], attempt);
  });
}

}  // namespace

Status Client::UpdatePriorities(std::string_view table, std::span<const KeyPriority> updates,
                                const WaitOptions& wait) const {
  std::vector<internal::MutateRequest> requests(rep()->servers.size());
  for (const KeyPriority& update : updates) {
    ForOwners(*rep(), update.key, [&](size_t server) { requests[server].updates.push_back(update); });
  }
  return Mutate(*rep(), table, std::move(requests), wait);
}

Status Client::Delete(std::string_view table, std::span<const uint64_t> keys, const WaitOptions& wait) const {
  std::vector<internal::MutateRequest> requests(rep()->servers.size());
  for (const uint64_t key : keys) {
    ForOwners(*rep(), key, [&](size_t server) { requests[server].deletes.push_back(key); });
  }
  return Mutate(*rep(), table, std::move(requests), wait);
}

Status Client::Reset(std::string_view table, const WaitOptions& wait) const {
  return CallAllServers(*rep(), wait, [&](size_t server, const WaitOptions& attempt) {
    return rep()->servers[server]->Reset(table, attempt);
  });
}

Status Client::SetRateLimiter(std::string_view table, const RateLimiterOptions& options,
                              const WaitOptions& wait) const {
  const internal::SetRateLimiterRequest request{.table = std::string(table), .options = options};
  return CallAllServers(*rep(), wait, [&](size_t server, const WaitOptions& attempt) {
    return rep()->servers[server]->SetRateLimiter(request, attempt);
  });
}

Status Client::CreateTable(const TableOptions& options, bool exist_ok, const WaitOptions& wait) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
  const char* const local = options.custom_sampler || options.custom_remover ? "a custom selector"
                            : !options.extensions.empty()                    ? "an extension"
                                                                             : nullptr;
  if (local != nullptr) {
    return Status::InvalidArgument("table \"" + options.name + "\" has " + local +
                                   ", which exists only in this process and cannot be sent to a server; pass "
                                   "the table to the server when it starts, or use a built-in one");
  }
  internal::CreateTableRequest request{.table = {}, .exist_ok = exist_ok};
  static_cast<TableSettings&>(request.table) = options.Settings();
  return CallAllServers(*rep(), wait, [&](size_t server, const WaitOptions& attempt) {
    return rep()->servers[server]->CreateTable(request, attempt);
  });
}

Status Client::RemoveTable(std::string_view table, const WaitOptions& wait) const {
  return CallAllServers(*rep(), wait, [&](size_t server, const WaitOptions& attempt) {
    return rep()->servers[server]->RemoveTable(table, attempt);
  });
}

Status Client::ChangeTable(std::string_view table, const TableChanges& changes,
                           const WaitOptions& wait) const {
  // Numbers that the messages cannot carry.
  if (changes.max_size && *changes.max_size < 1) {
    return Status::InvalidArgument("table \"" + std::string(table) + "\": max_size is " +
                                   std::to_string(*changes.max_size) + "; it must be at least 1");
  }
  if (changes.max_age && *changes.max_age < std::chrono::nanoseconds(0)) {
    return Status::InvalidArgument("table \"" + std::string(table) + "\": max_age is " +
                                   std::to_string(changes.max_age->count()) +
                                   " ns; it must be positive, or zero for items that do not age");
  }
  if (changes.rate_limiter) {
    if (Status status = changes.rate_limiter->Validate(); !status.ok()) {
      return status.Prefixed("table \"" + std::string(table) + "\"");
    }
  }
  const internal::ChangeTableRequest request{.table = std::string(table), .changes = changes};
  return CallAllServers(*rep(), wait, [&](size_t server, const WaitOptions& attempt) {
    return rep()->servers[server]->ChangeTable(request, attempt);
  });
}

Result<ServerInfo> Client::Info(const WaitOptions& wait) const { return rep()->next(Rep::kInfo).Info(wait); }

namespace {

Result<TableSignatures> FetchSignatures(const Client& client, const WaitOptions& wait) {
  REVERB_ASSIGN_OR_RETURN(const ServerInfo info, client.Info(wait));
  TableSignatures signatures;
  for (const TableInfo& table : info.tables) {
    auto& flat = signatures[table.name];
    if (table.signature.empty()) continue;
    REVERB_ASSIGN_OR_RETURN(const Signature signature, DecodeSignature(table.signature));
    REVERB_ASSIGN_OR_RETURN(flat, signature.Flatten());
  }
  return signatures;
}

}  // namespace

Result<std::shared_ptr<SignatureSource>> Client::Signatures(const WaitOptions& wait) const {
  REVERB_ASSIGN_OR_RETURN(TableSignatures signatures, FetchSignatures(*this, wait));
  // Keeps the connection: a writer may exist longer than the client that created it.
  const auto fetch = [client = *this]() -> Result<std::shared_ptr<const TableSignatures>> {
    constexpr std::chrono::seconds kRefreshTimeout{5};
    REVERB_ASSIGN_OR_RETURN(TableSignatures present, FetchSignatures(client, {.timeout = kRefreshTimeout}));
    return std::make_shared<const TableSignatures>(std::move(present));
  };
  return std::make_shared<SignatureSource>(std::move(signatures), fetch);
}

Result<std::vector<std::string>> Client::ColumnNames(std::string_view table, const WaitOptions& wait) const {
  REVERB_ASSIGN_OR_RETURN(const TableSignatures signatures, FetchSignatures(*this, wait));
  std::vector<std::string> names;
  const auto found = signatures.find(table);
  if (found != signatures.end() && found->second) {
    for (const TensorSpec& spec : *found->second) names.push_back(spec.name);
    return names;
  }
  REVERB_ASSIGN_OR_RETURN(const ItemStructure structure, StructureOf(table, wait));
  return structure.ColumnNames();
}

Result<ItemStructure> Client::StructureOf(std::string_view table, const WaitOptions& wait) const {
  // An unreachable server must not delay samples of the others.
  constexpr std::chrono::nanoseconds kInfoTimeout = std::chrono::seconds(1);
  WaitOptions brief = wait;
  if (rep()->servers.size() > 1) brief.timeout = std::min(wait.timeout.value_or(kInfoTimeout), kInfoTimeout);
  ItemStructure structure;
  for (const auto& server : rep()->servers) {
    const Result<ServerInfo> info = server->Info(brief);
    if (!info.ok()) {
      if (rep()->servers.size() == 1) return info.status();
      continue;
    }
    const auto found = std::ranges::find(info->tables, table, &TableInfo::name);
    if (found == info->tables.end() || !found->structure) continue;
    if (found->structure->empty()) return ItemStructure();
    REVERB_ASSIGN_OR_RETURN(ItemStructure found_structure, ItemStructure::Decode(*found->structure));
    if (structure && !(structure == found_structure)) return ItemStructure();
    structure = std::move(found_structure);
  }
  return structure;
}

Result<std::vector<SampledTrajectory>> Client::Inspect(std::string_view table, int64_t n, uint64_t* cursor,
                                                       const WaitOptions& wait) const {
  if (n < 1 || n > UINT32_MAX) {
    return Status::InvalidArgument("items requested: " + std::to_string(n) + "; request at least 1");
  }
  REVERB_ASSIGN_OR_RETURN(
      internal::InspectReply reply,
      rep()->servers.front()->Inspect(
          {.table = std::string(table), .cursor = *cursor, .count = static_cast<uint32_t>(n)}, wait));
  *cursor = reply.next_cursor;
  return internal::MakeSampledTrajectories(std::move(reply.items));
}

Result<std::string> Client::Checkpoint(const WaitOptions& wait) const {
  std::vector<std::string> paths(rep()->servers.size());
  const Status status = CallAllServers(*rep(), wait, [&](size_t server, const WaitOptions& attempt) {
    Result<std::string> path = rep()->servers[server]->Checkpoint(attempt);
    if (path.ok()) paths[server] = *std::move(path);
    return path.status();
  });
  std::string written;
  for (const std::string& path : paths) {
    if (!path.empty()) written += (written.empty() ? "" : ",") + path;
  }
  if (status.ok()) return written;
  if (written.empty()) return status;
  return Status(status.code(), std::string(status.message()) + "; written: " + written, status.detail());
}

}  // namespace reverb
