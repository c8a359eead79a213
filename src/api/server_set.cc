#include "api/server_set.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "api/routed_connection.h"
#include "api/writer_route.h"
#include "base/duration_text.h"
#include "base/random.h"
#include "base/wait_loop.h"
#include "client/backoff.h"
#include "client/insert_pipeline.h"

namespace reverb::internal {
namespace {

// Bounds the idle samplers of a table that are kept for single operations.
constexpr size_t kMaxIdleSetSamplers = 4;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The score of a server for a session: the highest wins.
uint64_t RendezvousScore(const Id128& session, std::string_view address) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001B3u; };
  for (const uint8_t byte : session) add(byte);
  for (const char c : address) add(static_cast<uint8_t>(c));
  return Mix(hash);
}

// A writer must leave a lost server before it gives up.
Duration LostTimeout(const ClientOptions& options) {
  if (!options.reconnect_timeout) return options.lost_server_timeout;
  return std::min<Duration>(options.lost_server_timeout, *options.reconnect_timeout / 2);
}

SetSampler::Server ToSetServer(const std::shared_ptr<ServerLink>& link) {
  const auto create = [link](SamplerImpl::Options options) {
    // A server's first stream uses the client's connection. Further streams have their own connections, since
    // the streams of one connection share its bandwidth.
    return SamplerImpl::Create(
        [link](size_t stream) { return stream == 0 ? link->Connect() : link->OwnConnection(); },
        std::move(options));
  };
  const auto on_welcome = [link](const Welcome& welcome) {
    link->SetShard(welcome.shard);
    link->SetLost(false);
  };
  return {.id = link->id(), .address = link->address(), .create = create, .on_welcome = on_welcome};
}

std::vector<SetSampler::Server> ToSetServers(const ServerSet::Links& links) {
  std::vector<SetSampler::Server> servers;
  servers.reserve(links.size());
  for (const auto& link : links) servers.push_back(ToSetServer(link));
  return servers;
}

}  // namespace

ServerSet::ServerSet(std::string address, std::unique_ptr<Resolver> resolver, const ClientOptions& options)
    : address_(std::move(address)),
      options_(options),
      lost_timeout_(LostTimeout(options)),
      resolver_(std::move(resolver)),
      dropped_log_(RealClock(), std::chrono::seconds(10)),
      resolve_log_(RealClock(), std::chrono::minutes(1)) {}

Result<std::shared_ptr<ServerSet>> ServerSet::Create(std::string address,
                                                     const std::vector<std::string>& addresses,
                                                     std::unique_ptr<Resolver> resolver,
                                                     const ClientOptions& options) {
  std::shared_ptr<ServerSet> set(new ServerSet(std::move(address), std::move(resolver), options));
  REVERB_RETURN_IF_ERROR(set->SetAddresses(addresses));
  if (set->resolver_) {
    const bool is_incomplete = set->Resolve(/*probes_alternatives=*/false);  // does not wait for servers
    MutexLock lock(&set->mu_);
    set->resolve_now_ = is_incomplete;
    set->StartThread();
  }
  return set;
}

ServerSet::~ServerSet() {
  {
    MutexLock lock(&mu_);
    is_stopped_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  for (IdleSamplers& samplers : idle_samplers_) {
    for (auto& [table, idle] : samplers) {
      for (auto& sampler : idle) sampler->Close();
    }
  }
}

// --- Which servers there are ---

ServerSet::Links ServerSet::links() const {
  MutexLock lock(&mu_);
  return links_;
}

Result<ServerSet::Links> ServerSet::AwaitLinks(const WaitOptions& wait) const {
  WaitLoop loop(wait);
  MutexLock lock(&mu_);
  while (links_.empty()) {
    if (loop.expired()) return Status::DeadlineExceeded("Timeout exceeded: " + NoServerText());
    if (options_.reconnect_timeout && loop.waited() >= *options_.reconnect_timeout) {
      return Status::Unavailable(NoServerText() + "; start one, or check the address");
    }
    if (loop.ShouldLogNow()) {
      const std::string text =
          "still waiting for a server for " + DurationText(loop.waited()) + ": " + NoServerText();
      mu_.Unlock();
      LogWait("set " + address_, text);
      mu_.Lock();
      continue;
    }
    REVERB_RETURN_IF_ERROR(loop.Sleep(&changed_, &mu_));
  }
  return links_;
}

std::string ServerSet::NoServerText() const {
  return "no server of the set" + (address_.empty() ? "" : " " + address_) + " is known yet" +
         (resolve_error_.empty() ? "" : "; " + resolve_error_);
}

Status ServerSet::SetAddresses(const std::vector<std::string>& addresses) {
  std::vector<ResolvedServer> servers;
  for (const std::string& address : addresses) servers.push_back({.address = address});
  MutexLock update(&update_mu_);
  REVERB_ASSIGN_OR_RETURN(const Links next, LinksOf(servers, {}, /*skips_invalid=*/false));
  SetLinks(next);
  return Status::Ok();
}

Result<ServerSet::Links> ServerSet::LinksOf(const std::vector<ResolvedServer>& servers, const Links& made,
                                            bool skips_invalid) {
  Links present = links();
  present.insert(present.end(), made.begin(), made.end());
  Links next;
  for (const auto& [address, shard, is_alternative] : servers) {
    const auto same = [&at = address](const auto& link) { return link->address() == at; };
    if (std::ranges::any_of(next, same)) continue;
    if (const auto known = std::ranges::find_if(present, same); known != present.end()) {
      next.push_back(*known);
      continue;
    }
    Result<std::shared_ptr<RoutedConnection>> network = ConnectRouted(address, options_);
    if (!network.ok()) {
      if (!skips_invalid) return network.status();
      resolve_log_.Log(LogLevel::kWarning, address,
                       "a server of the set is left out: " + std::string(network.status().message()));
      continue;
    }
    next.push_back(std::make_shared<ServerLink>(*std::move(network), options_, lost_timeout_));
    next.back()->SetShard(shard);
  }
  return next;
}

void ServerSet::SetLinks(const Links& next) {
  std::vector<std::shared_ptr<SetSampler>> samplers;
  {
    MutexLock lock(&mu_);
    for (const auto& link : links_) {
      if (link->shard() != 0 && std::ranges::find(next, link) == next.end())
        departed_[link->shard()] = link->address();
    }
    for (const auto& link : next) departed_.erase(link->shard());
    links_ = next;
    std::erase_if(samplers_, [](const auto& sampler) { return sampler.expired(); });
    for (const auto& weak : samplers_) {
      if (auto sampler = weak.lock()) samplers.push_back(std::move(sampler));
    }
    changed_.NotifyAll();
  }
  for (const auto& sampler : samplers) sampler->SetServers(ToSetServers(next));
}

bool ServerSet::Contains(const ServerLink& link) const {
  MutexLock lock(&mu_);
  return std::ranges::any_of(links_, [&](const auto& one) { return one.get() == &link; });
}

std::shared_ptr<ServerLink> ServerSet::Home(const Id128& session) const {
  std::shared_ptr<ServerLink> best;
  std::pair<bool, uint64_t> best_score;
  for (const auto& link : links()) {
    const std::pair score(!link->is_lost(), RendezvousScore(session, link->address()));
    if (best && score <= best_score) continue;
    best = link;
    best_score = score;
  }
  return best;
}

std::shared_ptr<ServerLink> ServerSet::NextInTurn() {
  const Links present = links();
  const size_t turn = turn_.fetch_add(1);
  for (size_t i = 0; i < present.size(); ++i) {
    const auto& link = present[(turn + i) % present.size()];
    if (!link->is_lost()) return link;
  }
  return present.empty() ? nullptr : present[turn % present.size()];
}

// --- Lost servers, and the thread ---

void ServerSet::MarkLost(const std::shared_ptr<ServerLink>& link) {
  if (link->is_lost()) return;
  link->SetLost(true);
  MutexLock lock(&mu_);
  resolve_now_ = true;
  StartThread();
  changed_.NotifyAll();
}

std::string ServerSet::FormerAddress(uint32_t shard) const {
  MutexLock lock(&mu_);
  const auto found = departed_.find(shard);
  return found == departed_.end() ? std::string() : found->second;
}

void ServerSet::CountDropped(const std::string& address, std::string_view why, int64_t updates) {
  const int64_t total = dropped_.fetch_add(updates, std::memory_order_relaxed) + updates;
  dropped_log_.Log(LogLevel::kWarning, address,
                   "the server at " + address + " " + std::string(why) + ": dropped " +
                       std::to_string(updates) + " priority updates and deletes for its items, " +
                       std::to_string(total) + " so far (lost_updates)");
}

void ServerSet::StartThread() {
  if (std::exchange(has_thread_, true)) return;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "rv-servers");
    Run();
  });
}

bool ServerSet::is_stopped() const {
  MutexLock lock(&mu_);
  return is_stopped_;
}

void ServerSet::Run() {
  auto resolved_at = std::chrono::steady_clock::now();
  while (true) {
    bool is_due = false;
    {
      MutexLock lock(&mu_);
      if (!is_stopped_) changed_.WaitFor(&mu_, kProbeInterval);
      if (is_stopped_) return;
      is_due = std::exchange(resolve_now_, false);
    }
    const auto now = std::chrono::steady_clock::now();
    if (resolver_ && (is_due || now - resolved_at >= kResolveInterval)) {
      resolved_at = now;
      (void)Resolve(/*probes_alternatives=*/true);
    }
    ProbeLost();
  }
}

ServerSet::Links ServerSet::ChooseAlternatives(bool probes, std::vector<ResolvedServer>* servers) {
  const Links present = links();
  const auto link_at = [&](const std::string& address) {
    const auto found = std::ranges::find(present, address, &ServerLink::address);
    return found == present.end() ? nullptr : *found;
  };
  const WaitOptions brief{.timeout = kProbeInterval, .on_wait = [this] {
                            return is_stopped() ? Status::Cancelled("the client is gone") : Status::Ok();
                          }};
  Links made, chosen;
  bool uses_alternative = false;
  for (const ResolvedServer& server : *servers) {
    const std::shared_ptr<ServerLink> link = link_at(server.address);
    uses_alternative |= server.is_alternative && link != nullptr;
    if (!server.is_alternative && link != nullptr) chosen.push_back(link);
  }
  // A server that did not answer at its other address may do so now.
  if (const auto now = std::chrono::steady_clock::now();
      probes && uses_alternative && now - lives_checked_at_ >= kAlternativeInterval) {
    lives_checked_at_ = now;
    for (const auto& link : present) {
      if (!link->is_lost()) (void)link->Info(brief);
    }
  }
  // Returns the address of the chosen server with this life; empty if there is none.
  const auto same_server = [&](const Id128& life) {
    const auto same = std::ranges::find(chosen, life, &ServerLink::last_life_id);
    return same == chosen.end() ? std::string() : (*same)->address();
  };
  const auto is_unwanted = [&](const ResolvedServer& server) {
    if (!server.is_alternative) return false;
    std::shared_ptr<ServerLink> link = link_at(server.address);
    if (link == nullptr) {
      if (!probes || is_stopped()) return true;
      Alternative& alternative = alternatives_[server.address];
      const auto now = std::chrono::steady_clock::now();
      if (now < alternative.probe_at) return true;
      alternative.probe_at = now + kAlternativeInterval;
      if (alternative.link == nullptr) {
        auto network = ConnectRouted(server.address, options_);
        if (!network.ok()) return true;
        alternative.link = std::make_shared<ServerLink>(*std::move(network), options_, lost_timeout_);
      }
      link = alternative.link;
      if (!link->Info(brief).ok()) return true;
      // Asked after the alternative: a server that has just started answers at both addresses now.
      for (const auto& one : chosen) (void)one->Info(brief);
      made.push_back(link);
    }
    const Id128 life = link->last_life_id();
    const std::string other = same_server(life);
    if (other.empty()) {
      chosen.push_back(link);
      return false;
    }
    resolve_log_.Log(LogLevel::kDebug, "alternative " + server.address,
                     "the servers at " + server.address + " and " + other + " are the same");
    return true;
  };
  std::vector<ResolvedServer> kept;
  std::map<std::string, Alternative> unused;
  for (ResolvedServer& server : *servers) {
    if (!is_unwanted(server)) {
      kept.push_back(std::move(server));
    } else if (auto known = alternatives_.extract(server.address)) {
      unused.insert(std::move(known));
    }
  }
  alternatives_ = std::move(unused);
  *servers = std::move(kept);
  return made;
}

bool ServerSet::Resolve(bool probes_alternatives) {
  Result<std::vector<ResolvedServer>> servers = resolver_->Resolve(RealClock()->Now());
  {
    MutexLock lock(&mu_);
    resolve_error_ = servers.status().message();
  }
  if (!servers.ok()) {
    resolve_log_.Log(LogLevel::kWarning, "resolve",
                     "the servers of the set could not be found; those that are known stay: " +
                         std::string(servers.status().message()));
    return false;
  }
  const size_t found_addresses = servers->size();
  const Links made = ChooseAlternatives(probes_alternatives, &*servers);
  const bool is_incomplete = !probes_alternatives && servers->size() < found_addresses;
  MutexLock update(&update_mu_);
  const Result<Links> found = LinksOf(*servers, made, /*skips_invalid=*/true);
  // Without any server something is wrong with the list: those that are known may still answer.
  if (found.ok() && (!found->empty() || links().empty())) SetLinks(*found);
  return is_incomplete;
}

void ServerSet::ProbeLost() {
  const WaitOptions brief{.timeout = kProbeInterval, .on_wait = [this] {
                            return is_stopped() ? Status::Cancelled("the client is gone") : Status::Ok();
                          }};
  for (const auto& link : links()) {
    if (!link->is_lost() || is_stopped()) continue;
    if (link->Info(brief).ok()) link->SetLost(false);
  }
}

// --- Writers and samplers ---

std::unique_ptr<ItemSink> ServerSet::NewSink() {
  // Detects servers of this process: streams are opened on threads that must not wait for it.
  for (const auto& link : links()) (void)link->Connect({.timeout = std::chrono::seconds(1)});
  return InsertPipeline::Own(InsertPipeline::Create(std::make_shared<WriterRoute>(shared_from_this()),
                                                    {.window_bytes = options_.write_window_bytes,
                                                     .client_name = options_.name,
                                                     .reconnect_timeout = options_.reconnect_timeout,
                                                     .attempt_timeout = lost_timeout_}));
}

Result<std::shared_ptr<SetSampler>> ServerSet::NewSampler(SamplerImpl::Options options) {
  const Links initial = links();
  REVERB_ASSIGN_OR_RETURN(
      std::shared_ptr<SetSampler> sampler,
      SetSampler::Create(ToSetServers(initial), {.sampler = std::move(options), .seed = EntropySeed()}));
  MutexLock update(&update_mu_);
  Links present;
  {
    MutexLock lock(&mu_);
    if (samplers_.size() >= prune_samplers_at_) {
      std::erase_if(samplers_, [](const auto& one) { return one.expired(); });
      prune_samplers_at_ = std::max<size_t>(16, 2 * samplers_.size());
    }
    samplers_.push_back(sampler);
    present = links_;
  }
  if (present != initial) sampler->SetServers(ToSetServers(present));
  return sampler;
}

size_t ServerSet::num_tracked_samplers() const {
  MutexLock lock(&mu_);
  return samplers_.size();
}

Status ServerSet::Sample(std::string_view table, int64_t n, const WaitOptions& wait, bool timesteps,
                         std::vector<internal::Sample>* out) {
  std::shared_ptr<SetSampler> sampler;
  {
    MutexLock lock(&mu_);
    IdleSamplers& samplers = idle_samplers_[timesteps ? 1 : 0];
    if (const auto found = samplers.find(table); found != samplers.end() && !found->second.empty()) {
      sampler = std::move(found->second.back());
      found->second.pop_back();
    }
  }
  if (!sampler) {
    REVERB_ASSIGN_OR_RETURN(
        sampler,
        NewSampler({.table = std::string(table),
                    .exact = true,
                    .rules = {.unsupported_dtypes = options_.unsupported_dtypes, .timesteps = timesteps},
                    .reconnect_timeout = options_.reconnect_timeout,
                    .client_name = options_.name}));
  }
  const Status status = sampler->Next(n, wait, out);
  if (status.ok()) {
    MutexLock lock(&mu_);
    auto& idle = idle_samplers_[timesteps ? 1 : 0][std::string(table)];
    if (idle.size() < kMaxIdleSetSamplers) {
      idle.push_back(std::move(sampler));
      return status;
    }
  }
  sampler->Close();
  return status;
}

}  // namespace reverb::internal
