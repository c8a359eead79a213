// The single calls of include/reverb/client.h, to one server or to several at the same time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/client_rep.h"
#include "api/sample_factory.h"
#include "base/mutex.h"
#include "base/task_pool.h"
#include "base/wait_loop.h"
#include "reverb/client.h"
#include "reverb/signature.h"

namespace reverb {
namespace {

using internal::ServerLink;
using internal::ServerSet;

// Visits the servers, by their index, that may have the item: those of its shard. If there is none, and a server of
// the shard has left the set, visits those whose shard is not known yet; returns the address of the former server if
// there is none either. Otherwise visits all: the key may be the user's own. Servers ignore keys that they do not
// have.
template <typename F>
std::string ForOwners(const ServerSet& set, const ServerSet::Links& links, uint64_t key, F&& visit) {
  const uint32_t shard = internal::ShardOf(key);
  bool is_found = false;
  for (size_t i = 0; i < links.size(); ++i) is_found |= links[i]->shard() == shard && shard != 0;
  std::string former = is_found || shard == 0 ? std::string() : set.FormerAddress(shard);
  bool is_visited = false;
  for (size_t i = 0; i < links.size(); ++i) {
    const uint32_t its = links[i]->shard();
    const bool may_own = is_found ? its == shard : former.empty() || its == 0;
    if (!may_own) continue;
    visit(i);
    is_visited = true;
  }
  return is_visited ? std::string() : former;
}

// Calls one server, given by its index.
using ServerCall = std::function<Status(size_t server, const WaitOptions& wait)>;

// Returns one error that names each failed server, or OK.
Status Collect(const ServerSet::Links& links, std::span<const size_t> servers,
               std::span<const Status> results) {
  const Status* first = nullptr;
  size_t failed = 0;
  std::string text, done;
  for (size_t i = 0; i < servers.size(); ++i) {
    const std::string address = links[servers[i]]->address();
    if (results[i].ok()) {
      done += (done.empty() ? "" : ", ") + address;
      continue;
    }
    ++failed;
    if (first == nullptr) first = &results[i];
    text += "; " + address + ": " + std::string(results[i].message());
  }
  if (first == nullptr) return Status::Ok();
  return Status(first->code(),
                std::to_string(failed) + " of the " + std::to_string(servers.size()) +
                    " servers that were called failed" +
                    (done.empty() ? "" : ", the others have done it (" + done + ")") + text,
                first->detail());
}

// The calls of CallServers() that have not returned.
struct PendingCalls {
  internal::Mutex mu;
  internal::CondVar changed;
  size_t running GUARDED_BY(mu) = 0;
};

// Calls these servers concurrently and waits for all of them.
Status CallServers(const ServerSet::Links& links, std::span<const size_t> servers, const WaitOptions& wait,
                   const ServerCall& call) {
  if (links.size() == 1) return servers.empty() ? Status::Ok() : call(servers.front(), wait);
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
  // Owned by the tasks too: the last one still notifies when this function returns. All else that they use is on
  // this stack, so that this function waits for them even if the caller gives up.
  const auto pending = std::make_shared<PendingCalls>();
  for (size_t i = 1; i < servers.size(); ++i) {
    const auto work = [&, i, pending] {
      results[i] = call(servers[i], others);
      internal::MutexLock lock(&pending->mu);
      --pending->running;
      pending->changed.NotifyAll();
    };
    {
      internal::MutexLock lock(&pending->mu);
      ++pending->running;
    }
    if (!internal::ProcessTaskPool().Run(work)) work();
  }
  if (!servers.empty()) results[0] = call(servers[0], own);
  {
    internal::MutexLock lock(&pending->mu);
    const WaitOptions until_done{.timeout = {}, .on_wait = own.on_wait};
    internal::WaitLoop loop(until_done);
    while (pending->running > 0 && given_up.ok()) (void)loop.Sleep(&pending->changed, &pending->mu);
    while (pending->running > 0) pending->changed.Wait(&pending->mu);
  }
  return given_up.ok() ? Collect(links, servers, results) : given_up;
}

// The same for all servers; `call` gets the link.
Status CallAllServers(const Client::Rep& rep, const WaitOptions& wait,
                      const std::function<Status(ServerLink&, const WaitOptions&)>& call) {
  if (rep.only) return call(*rep.only, wait);
  const internal::WaitLoop loop(wait);
  REVERB_ASSIGN_OR_RETURN(const ServerSet::Links links, rep.AwaitLinks(wait));
  std::vector<size_t> all(links.size());
  std::iota(all.begin(), all.end(), 0);
  return CallServers(links, all, loop.Left(), [&](size_t server, const WaitOptions& attempt) {
    return call(*links[server], attempt);
  });
}

// How long updates wait for a server that is not known to be lost, if they may be dropped.
constexpr std::chrono::seconds kDropTimeout{2};

// Sends one request to each server, by its index. `is_empty`: there are no keys.
Status MutateServers(const Client::Rep& rep, const ServerSet::Links& links, std::string_view table,
                     std::vector<internal::MutateRequest> requests, bool is_empty, const WaitOptions& wait) {
  const bool drops = rep.options.lost_updates == LostUpdates::kDrop;
  const auto count = [&](size_t server) {
    return static_cast<int64_t>(requests[server].updates.size() + requests[server].deletes.size());
  };
  std::vector<size_t> servers;
  for (size_t server = 0; server < requests.size(); ++server) {
    internal::MutateRequest& request = requests[server];
    // An empty call checks that the table exists.
    if (!is_empty && request.updates.empty() && request.deletes.empty()) continue;
    if (drops && links[server]->is_lost()) {
      if (!is_empty) rep.set->CountDropped(links[server]->address(), "is lost", count(server));
      continue;
    }
    request.table = table;
    servers.push_back(server);
  }
  return CallServers(links, servers, wait, [&](size_t server, const WaitOptions& attempt) {
    const std::shared_ptr<ServerLink>& link = links[server];
    // One that is known to be lost is tried once.
    const Timeout lost_timeout = drops             ? Timeout(kDropTimeout)
                                 : link->is_lost() ? Timeout(internal::Duration(0))
                                                   : Timeout();
    Status status = link->Mutate(requests[server], attempt, lost_timeout);
    if (status.ok() && link->shard() == 0) {
      const auto timeout = std::min<internal::Duration>(attempt.timeout.value_or(kDropTimeout), kDropTimeout);
      (void)link->Info({.timeout = timeout, .on_wait = attempt.on_wait});
    }
    if (status.ok()) return status;
    const bool is_late =
        status.code() == StatusCode::kDeadlineExceeded && !link->ConnectNow()->is_connected();
    if (status.code() != StatusCode::kUnavailable && !is_late) return status;
    rep.set->MarkLost(link);
    if (!drops) return status;
    rep.set->CountDropped(link->address(), "is lost", count(server));
    return Status::Ok();
  });
}

// Counts the keys of servers that have left the set as dropped, or adds them to the error of the others.
// `departed`: the number of keys by address.
Status DropDeparted(const Client::Rep& rep, const std::map<std::string, int64_t>& departed, Status status) {
  for (const auto& [address, count] : departed) {
    if (rep.options.lost_updates == LostUpdates::kDrop) {
      rep.set->CountDropped(address, "has left the set", count);
      continue;
    }
    const std::string text = "the server at " + address + ", which has " + std::to_string(count) +
                             " of the items, has left the set";
    status = status.ok()
                 ? Status::Unavailable(text)
                 : Status(status.code(), std::string(status.message()) + "; " + text, status.detail());
  }
  return status;
}

// Sorts `keys`, which may come with priorities, by their servers: into `list` of a request to each.
template <typename Key, typename KeyOf>
Status MutateOwners(const Client::Rep& rep, std::string_view table, std::span<const Key> keys,
                    const KeyOf& key_of, std::vector<Key> internal::MutateRequest::*list,
                    const WaitOptions& wait) {
  if (rep.only) {
    internal::MutateRequest request{.table = std::string(table)};
    (request.*list).assign(keys.begin(), keys.end());
    return rep.only->Mutate(request, wait);
  }
  const internal::WaitLoop loop(wait);
  REVERB_ASSIGN_OR_RETURN(const ServerSet::Links links, rep.AwaitLinks(wait));
  std::vector<internal::MutateRequest> requests(links.size());
  std::map<std::string, int64_t> departed;
  for (const Key& key : keys) {
    const std::string former = ForOwners(*rep.set, links, key_of(key),
                                         [&](size_t server) { (requests[server].*list).push_back(key); });
    if (!former.empty()) ++departed[former];
  }
  const bool is_empty = keys.empty();
  return DropDeparted(rep, departed,
                      MutateServers(rep, links, table, std::move(requests), is_empty, loop.Left()));
}

}  // namespace

Status Client::UpdatePriorities(std::string_view table, std::span<const KeyPriority> updates,
                                const WaitOptions& wait) const {
  return MutateOwners(
      *rep(), table, updates, [](const KeyPriority& update) { return update.key; },
      &internal::MutateRequest::updates, wait);
}

Status Client::Delete(std::string_view table, std::span<const uint64_t> keys, const WaitOptions& wait) const {
  return MutateOwners(
      *rep(), table, keys, [](uint64_t key) { return key; }, &internal::MutateRequest::deletes, wait);
}

Status Client::Reset(std::string_view table, const WaitOptions& wait) const {
  return CallAllServers(*rep(), wait, [&](ServerLink& server, const WaitOptions& attempt) {
    return server.Reset(table, attempt);
  });
}

Status Client::SetRateLimiter(std::string_view table, const RateLimiterOptions& options,
                              const WaitOptions& wait) const {
  const internal::SetRateLimiterRequest request{.table = std::string(table), .options = options};
  return CallAllServers(*rep(), wait, [&](ServerLink& server, const WaitOptions& attempt) {
    return server.SetRateLimiter(request, attempt);
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
  return CallAllServers(*rep(), wait, [&](ServerLink& server, const WaitOptions& attempt) {
    return server.CreateTable(request, attempt);
  });
}

Status Client::RemoveTable(std::string_view table, const WaitOptions& wait) const {
  return CallAllServers(*rep(), wait, [&](ServerLink& server, const WaitOptions& attempt) {
    return server.RemoveTable(table, attempt);
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
  if (changes.max_bytes && *changes.max_bytes < 0) {
    return Status::InvalidArgument("table \"" + std::string(table) + "\": max_bytes is " +
                                   std::to_string(*changes.max_bytes) +
                                   "; it must be positive, or zero for no bound");
  }
  if (changes.rate_limiter) {
    if (Status status = changes.rate_limiter->Validate(); !status.ok()) {
      return status.Prefixed("table \"" + std::string(table) + "\"");
    }
  }
  const internal::ChangeTableRequest request{.table = std::string(table), .changes = changes};
  return CallAllServers(*rep(), wait, [&](ServerLink& server, const WaitOptions& attempt) {
    return server.ChangeTable(request, attempt);
  });
}

std::vector<Client::ServerReport> Client::InfoOfEach(const WaitOptions& wait) const {
  const internal::WaitLoop loop(wait);
  const Result<ServerSet::Links> links = rep()->AwaitLinks(wait);
  if (!links.ok()) return {{.address = rep()->address, .info = links.status()}};
  std::vector<ServerReport> reports;
  std::vector<size_t> all(links->size());
  std::iota(all.begin(), all.end(), 0);
  for (const auto& link : *links) {
    reports.push_back({.address = link->address(), .info = Status::Unavailable("no answer")});
  }
  // Writers and samplers wait for lost servers; information is about the present.
  WaitOptions brief = loop.Left();
  if (!wait.timeout && links->size() > 1) brief.timeout = rep()->options.lost_server_timeout;
  const Status status = CallServers(*links, all, brief, [&](size_t server, const WaitOptions& attempt) {
    reports[server].info = (*links)[server]->Info(attempt);
    return reports[server].info.status();
  });
  for (ServerReport& report : reports) {
    if (!report.info.ok() && status.code() == StatusCode::kCancelled) report.info = status;
  }
  return reports;
}

Result<ServerInfo> Client::Info(const WaitOptions& wait) const {
  if (rep()->only) return rep()->only->Info(wait);
  const std::vector<ServerReport> reports = InfoOfEach(wait);
  std::vector<ServerInfo> infos;
  std::string text, done;
  const Status* first = nullptr;
  for (const ServerReport& report : reports) {
    if (report.info.ok()) {
      infos.push_back(*report.info);
      done += (done.empty() ? "" : ", ") + report.address;
      continue;
    }
    if (first == nullptr) first = &report.info.status();
    text += "; " + report.address + ": " + std::string(report.info.status().message());
  }
  if (first == nullptr) return SumOf(infos);
  return Status(first->code(),
                std::to_string(reports.size() - infos.size()) + " of the " + std::to_string(reports.size()) +
                    " servers do not answer" + (done.empty() ? "" : ", the others do (" + done + ")") + text,
                first->detail());
}

namespace {

// Returns the information of one server, of several the first one that answers.
Result<ServerInfo> AnyInfo(const Client::Rep& rep, const WaitOptions& wait) {
  if (rep.only) return rep.only->Info(wait);
  const internal::WaitLoop loop(wait);
  while (true) {
    REVERB_ASSIGN_OR_RETURN(ServerSet::Links links, rep.AwaitLinks(loop.Left()));
    std::ranges::stable_sort(links, {}, [](const auto& link) { return link->is_lost(); });
    Status last;
    for (size_t i = 0; i < links.size(); ++i) {
      const std::shared_ptr<ServerLink>& link = links[i];
      // Each server gets its share of the time, so that those that do not answer do not use all of it.
      WaitOptions brief = loop.Left();
      if (links.size() > 1) {
        const auto share = [&](internal::Duration left) {
          return std::max(left / static_cast<int64_t>(links.size() - i),
                          std::min(left, internal::Duration(1)));
        };
        brief.timeout =
            brief.timeout ? std::min<internal::Duration>(share(*brief.timeout), kDropTimeout) : kDropTimeout;
      }
      Result<ServerInfo> info = link->Info(brief);
      if (info.ok()) return info;
      last = info.status();
      const bool may_continue =
          last.code() == StatusCode::kDeadlineExceeded || last.code() == StatusCode::kUnavailable;
      if (!may_continue || links.size() == 1) return last;
      if (brief.timeout == Timeout(kDropTimeout) && !link->was_reached()) rep.set->MarkLost(link);
    }
    const Timeout& reconnect = rep.options.reconnect_timeout;
    if (loop.expired() || (reconnect && loop.waited() >= *reconnect)) return last;
  }
}

Result<TableSignatures> FetchSignatures(const Client::Rep& rep, const WaitOptions& wait) {
  REVERB_ASSIGN_OR_RETURN(const ServerInfo info, AnyInfo(rep, wait));
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

Result<ServerInfo> Client::InfoOfOne(const WaitOptions& wait) const { return AnyInfo(*rep(), wait); }

Result<std::shared_ptr<SignatureSource>> Client::Signatures(const WaitOptions& wait) const {
  REVERB_ASSIGN_OR_RETURN(TableSignatures signatures, FetchSignatures(*rep(), wait));
  // Keeps the connection: a writer may exist longer than the client that created it.
  const auto fetch = [client = *this]() -> Result<std::shared_ptr<const TableSignatures>> {
    constexpr std::chrono::seconds kRefreshTimeout{5};
    REVERB_ASSIGN_OR_RETURN(TableSignatures present,
                            FetchSignatures(*client.rep(), {.timeout = kRefreshTimeout}));
    return std::make_shared<const TableSignatures>(std::move(present));
  };
  return std::make_shared<SignatureSource>(std::move(signatures), fetch);
}

Result<std::vector<std::string>> Client::ColumnNames(std::string_view table, const WaitOptions& wait) const {
  const internal::WaitLoop loop(wait);
  REVERB_ASSIGN_OR_RETURN(const TableSignatures signatures, FetchSignatures(*rep(), wait));
  std::vector<std::string> names;
  const auto found = signatures.find(table);
  if (found != signatures.end() && found->second) {
    for (const TensorSpec& spec : *found->second) names.push_back(spec.name);
    return names;
  }
  REVERB_ASSIGN_OR_RETURN(const ItemStructure structure, StructureOf(table, loop.Left()));
  return structure.ColumnNames();
}

Result<ItemStructure> Client::StructureOf(std::string_view table, const WaitOptions& wait) const {
  // An unreachable server must not delay samples of the others.
  constexpr std::chrono::nanoseconds kInfoTimeout = std::chrono::seconds(1);
  const internal::WaitLoop loop(wait);
  REVERB_ASSIGN_OR_RETURN(const ServerSet::Links links, rep()->AwaitLinks(wait));
  ItemStructure structure;
  for (const auto& server : links) {
    if (server->is_lost()) continue;
    WaitOptions brief = loop.Left();
    if (links.size() > 1) brief.timeout = std::min(brief.timeout.value_or(kInfoTimeout), kInfoTimeout);
    const Result<ServerInfo> info = server->Info(brief);
    if (!info.ok()) {
      if (links.size() == 1) return info.status();
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
  const internal::WaitLoop loop(wait);
  REVERB_ASSIGN_OR_RETURN(const ServerSet::Links links, rep()->AwaitLinks(wait));
  REVERB_ASSIGN_OR_RETURN(
      internal::InspectReply reply,
      links.front()->Inspect(
          {.table = std::string(table), .cursor = *cursor, .count = static_cast<uint32_t>(n)}, loop.Left()));
  *cursor = reply.next_cursor;
  return internal::MakeSampledTrajectories(std::move(reply.items));
}

Result<std::string> Client::Checkpoint(const WaitOptions& wait) const {
  if (rep()->only) return rep()->only->Checkpoint(wait);
  const internal::WaitLoop loop(wait);
  REVERB_ASSIGN_OR_RETURN(const ServerSet::Links links, rep()->AwaitLinks(wait));
  std::vector<std::string> paths(links.size());
  std::vector<size_t> all(links.size());
  std::iota(all.begin(), all.end(), 0);
  const Status status = CallServers(links, all, loop.Left(), [&](size_t server, const WaitOptions& attempt) {
    Result<std::string> path = links[server]->Checkpoint(attempt);
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
