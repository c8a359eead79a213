#include "client/set_sampler.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/duration_text.h"
#include "base/log.h"
#include "base/wait_loop.h"

namespace reverb::internal {
namespace {

void AddStats(const SampleSource::Stats& more, SampleSource::Stats* sum) {
  sum->waiting += more.waiting;
  sum->undelivered += more.undelivered;
  sum->unanswered += more.unanswered;
  sum->received_bytes += more.received_bytes;
  sum->connections += more.connections;
}

}  // namespace

SetSampler::SetSampler(Options options) : options_(std::move(options)), chooser_(options_.seed) {}
SetSampler::~SetSampler() = default;

Result<std::shared_ptr<SetSampler>> SetSampler::Create(std::vector<Server> servers, Options options) {
  if (options.sampler.rules.all_or_nothing && options.sampler.batch_size == 0) {
    return Status::InvalidArgument("all_or_nothing needs a batch_size");
  }
  if (options.sampler.batch_size > 0 && options.sampler.max_samples > 0 &&
      options.sampler.max_samples % options.sampler.batch_size != 0) {
    return Status::InvalidArgument("max_samples (" + std::to_string(options.sampler.max_samples) +
                                   ") must be a multiple of batch_size, which is " +
                                   std::to_string(options.sampler.batch_size));
  }
  std::shared_ptr<SetSampler> sampler(new SetSampler(std::move(options)));
  REVERB_RETURN_IF_ERROR(sampler->Start(std::move(servers)));
  return sampler;
}

Status SetSampler::Start(std::vector<Server> servers) {
  const TimePoint now = options_.sampler.clock->Now();
  MutexLock lock(&mu_);
  started_ = stepped_at_ = waiting_since_ = now;
  if (!options_.sampler.grow_window) in_flight_ = options_.sampler.max_in_flight;
  for (Server& server : servers) {
    Shard& shard = shards_.emplace_back();
    shard.server = std::move(server);
    shard.progress_at = now;
  }
  strand_.Run([this, now]()
                  REQUIRES(mu_) { return CreateSampler(now) ? Strand::Next::kAgain : Strand::Next::kWait; });
  bool is_in_process = !shards_.empty();
  for (const Shard& shard : shards_) {
    // Invalid options fail for each server alike.
    if (shard.failure.code() == StatusCode::kInvalidArgument) return shard.failure;
    is_in_process &= shard.sampler && shard.sampler->in_process();
  }
  reads_ahead_ = !options_.sampler.exact && !is_in_process && options_.sampler.lease == Duration(0);
  if (reads_ahead_) strand_.Run([this]() REQUIRES(mu_) { return Step(); });
  return Status::Ok();
}

void SetSampler::SetServers(std::vector<Server> servers) {
  std::vector<std::shared_ptr<SamplerImpl>> gone;
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return;
    for (size_t i = shards_.size(); i-- > 0;) {
      const auto same = [id = shards_[i].server.id](const Server& server) { return server.id == id; };
      if (std::ranges::any_of(servers, same)) continue;
      DropTickets(i, 0);
      former_.undelivered += static_cast<int64_t>(shards_[i].ready.size());
      if (shards_[i].sampler) gone.push_back(std::move(shards_[i].sampler));
      shards_.erase(shards_.begin() + static_cast<ptrdiff_t>(i));
      chooser_.Remove(i);
    }
    const TimePoint now = options_.sampler.clock->Now();
    for (Server& server : servers) {
      const auto same = [&](const Shard& shard) { return server.id == shard.server.id; };
      if (std::ranges::any_of(shards_, same)) continue;
      Shard& shard = shards_.emplace_back();
      shard.server = std::move(server);
      shard.progress_at = now;
    }
  }
  for (const auto& sampler : gone) {
    sampler->Close();
    MutexLock lock(&mu_);
    AddStats(sampler->stats(), &former_);
  }
  OnChange();
}

// --- The consumer's side ---

Status SetSampler::Take(int64_t least, int64_t most, const WaitOptions& wait, std::vector<Sample>* out) {
  if (most < 1)
    return Status::InvalidArgument("samples requested: " + std::to_string(most) + "; request at least 1");
  MutexLock lock(&mu_);
  WaitLoop loop(wait);
  if (waiters_++ == 0) waiting_since_ = options_.sampler.clock->Now();
  GrowWindow();
  Status result;
  while (true) {
    if (is_leased()) ReleaseExpired();
    const int64_t taken = MayDeliver(least) ? Deliver(most, out) : 0;
    least = std::max<int64_t>(0, least - taken);
    most -= taken;
    by_consumer_ += least;
    if (reads_ahead_ || (least > 0 && !IsAtEnd(least)))
      strand_.Run([this]() REQUIRES(mu_) { return Step(); });
    if (least > 0) {
      const int64_t more = MayDeliver(least) ? Deliver(most, out) : 0;  // arrived while the lock was released
      by_consumer_ -= least;
      least = std::max<int64_t>(0, least - more);
      most -= more;
      if (more > 0 && least > 0) continue;
    }
    if (least == 0) break;
    if (!status_.ok()) {
      result = status_;
      break;
    }
    if (IsAtEnd(least)) {
      const std::string max = std::to_string(options_.sampler.max_samples);
      result = Status::OutOfRange(delivered_ >= options_.sampler.max_samples
                                      ? "all " + max + " samples were returned"
                                      : std::to_string(least) + " samples were requested, and " +
                                            std::to_string(delivered_) + " of " + max +
                                            " were returned; request the rest");
      break;
    }
    if (loop.expired()) {
      const WaitExplanation explanation = DescribeWait(loop.waited(), wait);
      result =
          Status::DeadlineExceeded("Timeout exceeded: " + explanation.text).WithDetail(explanation.detail);
      break;
    }
    if (loop.ShouldLogNow()) {
      const WaitExplanation explanation = DescribeWait(loop.waited(), wait);
      mu_.Unlock();
      LogWait("sample " + options_.sampler.table + " set", "still " + explanation.text,
              {{"table", options_.sampler.table}});
      mu_.Lock();
      continue;
    }
    by_consumer_ += least;  // steps of other threads request it
    result = loop.Sleep(&changed_, &mu_);
    by_consumer_ -= least;
    if (!result.ok()) break;
  }
  --waiters_;
  return result;
}

bool SetSampler::IsAtEnd(int64_t least) const {
  const int64_t max_samples = options_.sampler.max_samples;
  return max_samples >= 0 && delivered_ + (is_leased() ? least - 1 : 0) >= max_samples;
}

bool SetSampler::MayDeliver(int64_t least) const {
  if (!is_leased()) return true;
  if (static_cast<int64_t>(tickets_.size()) < least) return false;
  std::map<uint64_t, int64_t> needed;  // by server
  for (int64_t i = 0; i < least; ++i) ++needed[tickets_[static_cast<size_t>(i)]];
  return std::ranges::all_of(shards_, [&](const Shard& shard) {
    const auto found = needed.find(shard.server.id);
    return found == needed.end() || (shard.sampler && shard.sampler->state().queued >= found->second);
  });
}

void SetSampler::ReleaseExpired() {
  std::vector<std::shared_ptr<SamplerImpl>> samplers;
  // Under the lock, so that what MayDeliver() has seen is there for Deliver().
  for (const Shard& shard : shards_) {
    if (shard.sampler && shard.sampler->DropExpiredSamples()) samplers.push_back(shard.sampler);
  }
  if (samplers.empty()) return;
  mu_.Unlock();
  for (const auto& sampler : samplers) sampler->ReleaseExpiredSamples();
  mu_.Lock();
}

void SetSampler::GrowWindow() {
  if (delivered_ == 0) return;
  for (const Shard& shard : shards_) {
    if (shard.available() > 0) return;
  }
  const SamplerImpl::Options& options = options_.sampler;
  in_flight_ = std::min(2 * in_flight_, options.max_in_flight);
  if (options.max_share_ahead <= 0) return;
  const double share = options.max_share_ahead * static_cast<double>(delivered_);
  in_flight_ = std::min(in_flight_, 1 + static_cast<int64_t>(std::min(share, 1e15)));
}

int64_t SetSampler::Deliver(int64_t most, std::vector<Sample>* out) {
  const TimePoint now = options_.sampler.clock->Now();
  int64_t taken = 0;
  std::vector<Sample> pulled;
  while (taken < most && !tickets_.empty()) {
    const uint64_t id = tickets_.front();
    const auto shard = std::ranges::find_if(shards_, [id](const Shard& one) { return one.server.id == id; });
    if (shard->ready.empty() && shard->sampler) {
      pulled.clear();
      shard->sampler->TakeQueuedSamples(is_leased() ? 1 : std::min(shard->tickets, most - taken), &pulled);
      shard->was_taken_from |= !pulled.empty();
      for (Sample& sample : pulled) shard->ready.push_back(std::move(sample));
    }
    if (shard->ready.empty()) break;
    Sample& sample = out->emplace_back(std::move(shard->ready.front()));
    shard->ready.pop_front();
    sample.server = id;
    sample.probability *= shard->share;
    sample.table_size = std::max(sample.table_size, chooser_.total_size());
    tickets_.pop_front();
    --shard->tickets;
    shard->progress_at = now;
    shard->refusals = 0;
    ++taken;
  }
  if (taken > 0) waiting_since_ = now;
  delivered_ += taken;
  return taken;
}

WaitExplanation SetSampler::DescribeWait(Duration waited, const WaitOptions& wait) {
  std::string text = "waiting for samples of table \"" + options_.sampler.table + "\" from " +
                     std::to_string(shards_.size()) + (shards_.size() == 1 ? " server" : " servers") +
                     " for " + DurationText(waited);
  std::shared_ptr<SamplerImpl> connected;
  for (const Shard& shard : shards_) {
    std::string state = "can be sampled";
    if (!shard.failure.ok()) {
      state = std::string(shard.failure.message());
    } else if (!shard.state.is_connected) {
      state = "cannot be reached";
    } else if (shard.state.mass && shard.state.mass->size == 0) {
      state = "its table is empty";
    } else if (shard.is_stalled) {
      state = "does not answer";
    } else if (shard.is_blocked) {
      state = "cannot sample now";
    }
    text += "; " + shard.server.address + ": " + state;
    if (shard.state.is_connected && !connected) connected = shard.sampler;
  }
  if (shards_.empty()) text += "; no server is known yet";
  if (!connected) return {text};
  mu_.Unlock();
  WaitExplanation explanation = connected->Explain(waited, wait);
  mu_.Lock();
  explanation.text = text + "; " + explanation.text;
  return explanation;
}

void SetSampler::Close() {
  std::vector<std::shared_ptr<SamplerImpl>> samplers, failed;
  {
    MutexLock lock(&mu_);
    if (strand_.is_closed()) return;
    strand_.Close();
    if (status_.ok()) status_ = Status::Cancelled("the sampler was closed");
    for (Shard& shard : shards_) {
      former_.undelivered += static_cast<int64_t>(shard.ready.size());
      shard.ready.clear();
      shard.tickets = 0;
      if (shard.sampler) samplers.push_back(shard.sampler);
    }
    tickets_.clear();
    failed.swap(failed_);
    changed_.NotifyAll();
  }
  for (const auto& sampler : samplers) sampler->Close();
  for (const auto& sampler : failed) {
    sampler->Close();
    MutexLock lock(&mu_);
    AddStats(sampler->stats(), &former_);
  }
}

SampleSource::Stats SetSampler::stats() const {
  MutexLock lock(&mu_);
  Stats stats = former_;
  for (const Shard& shard : shards_) {
    if (shard.sampler) AddStats(shard.sampler->stats(), &stats);
    stats.waiting += static_cast<int64_t>(shard.ready.size());
  }
  stats.delivered = delivered_;
  return stats;
}

// --- Requests ---

void SetSampler::OnChange() {
  MutexLock lock(&mu_);
  if (reads_ahead_ || waiters_ > 0) strand_.Run([this]() REQUIRES(mu_) { return Step(); });
  if (waiters_ > 0) changed_.NotifyAll();
}

Strand::Next SetSampler::Step() {
  if (!status_.ok()) return Strand::Next::kWait;
  const TimePoint now = options_.sampler.clock->Now();
  if (CreateSampler(now) || CloseFailed()) return Strand::Next::kAgain;
  SkipPause(now);
  for (Shard& shard : shards_) UpdateShard(&shard, now);
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (!shards_[i].can_sample()) DropTickets(i, shards_[i].available());
  }
  SetCandidates(now);
  const bool has_issued = KnowsMasses(now) && IssueTickets();
  CheckEnd(now);
  if (!status_.ok()) return Strand::Next::kWait;
  const std::vector<Action> actions = NextActions(now);
  if (actions.empty()) return failed_.empty() ? Strand::Next::kWait : Strand::Next::kAgain;
  mu_.Unlock();
  for (const Action& action : actions) {
    if (action.wants_mass) {
      action.sampler->RequestMass();
    } else {
      action.sampler->Prefetch(action.total, action.timeout);
    }
  }
  mu_.Lock();
  return has_issued && draws_together() ? Strand::Next::kAgain : Strand::Next::kWait;
}

void SetSampler::SetCandidates(TimePoint now) {
  std::vector<ShardChooser::Candidate> candidates;
  size_t with_items = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Shard& shard = shards_[i];
    if (!shard.can_sample() || !shard.state.mass || now - shard.state.mass_at > kMaxMassAge) continue;
    candidates.push_back({.index = i, .mass = *shard.state.mass});
    with_items += shard.state.mass->size > 0 ? 1 : 0;
  }
  // Refused shares are tried again together, so that each share is as small as it can be.
  const bool may_retry = now >= refused_until_ || IsComplete(with_items);
  std::erase_if(candidates, [&](const ShardChooser::Candidate& one) REQUIRES(mu_) {
    Shard& shard = shards_[one.index];
    if (!shard.has_refused()) return false;
    if (!may_retry && with_items <= shard.refused_among) return true;
    shard.refused_among = 0;
    shard.failure = Status::Ok();
    return false;
  });
  if (candidates.empty() && chooser_.has_candidates() && !KnowsMasses(now))
    return;  // they are being refreshed
  chooser_.SetCandidates(candidates, shards_.size());
  for (const ShardChooser::Candidate& one : candidates) {
    shards_[one.index].share = chooser_.Probability(one.index, 1);
  }
}

bool SetSampler::KnowsMasses(TimePoint now) const {
  const Duration max_age = options_.sampler.exact ? kMassTtl : kMaxMassAge;
  const bool is_starting = now - started_ < kStartTimeout;
  for (const Shard& shard : shards_) {
    if (shard.has_failed() || shard.is_blocked || shard.is_stalled) continue;
    if (!shard.state.is_connected && !is_starting) continue;
    if (!shard.state.mass || now - shard.state.mass_at > max_age) return false;
  }
  return true;
}

bool SetSampler::CreateSampler(TimePoint now) {
  for (Shard& shard : shards_) {
    if (shard.sampler || (!shard.failure.ok() && now < shard.retry_at)) continue;
    const uint64_t id = shard.server.id;
    const auto create = shard.server.create;
    SamplerImpl::Options options = options_.sampler;
    options.max_samples = -1;
    options.batch_size = 0;
    options.exact = true;
    options.grow_window = options.whole_windows = false;
    options.on_welcome = shard.server.on_welcome;
    options.on_change = [weak = weak_from_this()] {
      if (const auto sampler = weak.lock()) sampler->OnChange();
    };
    mu_.Unlock();
    Result<std::shared_ptr<SamplerImpl>> made = create(std::move(options));
    mu_.Lock();
    const auto found = std::ranges::find_if(shards_, [id](const Shard& one) { return one.server.id == id; });
    if (found == shards_.end() || strand_.is_closed()) {
      mu_.Unlock();
      if (made.ok()) (*made)->Close();
      mu_.Lock();
      return true;
    }
    if (!made.ok()) found->failure = made.status();
    found->retry_at = now + kRetryInterval;
    if (made.ok()) {
      found->sampler = *std::move(made);
      found->seen_replies = found->seen_timeouts = 0;
    }
    return true;
  }
  return false;
}

bool SetSampler::CloseFailed() {
  if (failed_.empty()) return false;
  const std::shared_ptr<SamplerImpl> sampler = std::move(failed_.back());
  failed_.pop_back();
  mu_.Unlock();
  sampler->Close();
  mu_.Lock();
  AddStats(sampler->stats(), &former_);
  return true;
}

void SetSampler::FailShard(Shard* shard, Status failure, TimePoint now) {
  shard->failure = std::move(failure);
  shard->retry_at = now + kRetryInterval;
  shard->refused_among = 0;
  shard->is_blocked = shard->is_stalled = false;
  failed_.push_back(std::move(shard->sampler));
  shard->sampler = nullptr;
  shard->state = {};
}

bool SetSampler::draws_together() const {
  return options_.sampler.rules.all_or_nothing || options_.sampler.lease > Duration(0);
}

bool SetSampler::IsComplete(size_t used) const {
  const auto failed = std::ranges::count_if(shards_, [](const Shard& one) { return one.has_failed(); });
  return used + static_cast<size_t>(failed) >= shards_.size();
}

void SetSampler::RefuseShare(Shard* shard, Status refusal, TimePoint now) {
  const size_t among = std::max<size_t>(1, chooser_.num_candidates());
  if (IsComplete(among) && ++shard->refusals >= kMaxRefusals && status_.ok()) status_ = refusal;
  if (status_.ok()) {
    LogWait("share " + options_.sampler.table + " " + shard->server.address,
            "the server at " + shard->server.address +
                " cannot provide its share of a batch while other servers cannot be sampled: " +
                std::string(refusal.message()));
  }
  FailShard(shard, std::move(refusal), now);
  shard->retry_at = now;
  shard->refused_among = among;
  refused_until_ = now + kRefusalInterval;
}

void SetSampler::SkipPause(TimePoint now) {
  const Duration pause = now - std::exchange(stepped_at_, now);
  if (pause < kStallTimeout / 2) return;
  for (Shard& shard : shards_) shard.progress_at = std::min(shard.progress_at + pause, now);
}

void SetSampler::UpdateShard(Shard* shard, TimePoint now) {
  if (!shard->sampler) return;
  const bool was_connected = shard->state.is_connected;
  shard->state = shard->sampler->state();
  const SamplerImpl::State& state = shard->state;
  if (state.status.code() == StatusCode::kInvalidArgument && draws_together() && shards_.size() > 1) {
    // What the server has drawn for other requests is returned first.
    if (state.outstanding == 0 && (state.queued == 0 || shard->tickets == 0)) {
      RefuseShare(shard, state.status, now);
    }
    return;
  }
  if (!state.status.ok()) {
    // A consumer that cannot use the items does not continue with those of other servers.
    if (state.status.code() == StatusCode::kInvalidArgument && status_.ok()) status_ = state.status;
    // Samples that have arrived are returned first.
    if (state.queued == 0 || shard->tickets == 0) FailShard(shard, state.status, now);
    return;
  }
  if (state.mass && !shard->has_refused()) shard->failure = Status::Ok();
  if (state.is_connected != was_connected) shard->is_blocked = shard->is_stalled = false;
  const int64_t missing = shard->tickets - shard->available();
  // A server whose samples wait here may itself wait for credit.
  const bool is_awaited =
      state.awaits_mass || (missing > 0 && state.outstanding > 0 && shard->available() == 0);
  if (state.replies != shard->seen_replies) {
    shard->seen_replies = state.replies;
    shard->is_stalled = false;
    shard->progress_at = now;
  } else if (!is_awaited && !shard->is_stalled) {
    shard->progress_at = now;
  } else if (now - shard->progress_at > kStallTimeout) {
    shard->is_stalled = true;
    shard->suspicious_until = now + kSuspicionTime;
  }
  const bool is_late = state.timeouts != shard->seen_timeouts;
  shard->seen_timeouts = state.timeouts;
  if (is_late && (missing > 0 || shard->tickets == 0 || shard->is_blocked)) {
    shard->is_blocked = true;
    shard->suspicious_until = now + kSuspicionTime;
    shard->probe_at = now + kProbeInterval;
  } else if (shard->is_blocked && shard->available() > shard->tickets) {
    shard->is_blocked = false;  // a sample that no ticket waits for: it can be sampled again
  }
}

void SetSampler::DropTickets(size_t index, int64_t keep) {
  Shard& shard = shards_[index];
  const uint64_t id = shard.server.id;
  for (auto ticket = tickets_.end(); ticket != tickets_.begin() && shard.tickets > keep;) {
    if (*--ticket != id) continue;
    ticket = tickets_.erase(ticket);
    --shard.tickets;
  }
}

int64_t SetSampler::Wanted() const {
  const SamplerImpl::Options& options = options_.sampler;
  int64_t window = by_consumer_;
  if (reads_ahead_ || (options.whole_windows && options.lease == Duration(0))) {
    window = std::max(window, in_flight_ * options.num_streams * static_cast<int64_t>(shards_.size()));
  }
  const auto issued = static_cast<int64_t>(tickets_.size());
  int64_t wanted = window - issued;
  const int64_t left = options.max_samples >= 0 ? options.max_samples - delivered_ - issued : INT64_MAX;
  if (wanted < left && by_consumer_ <= issued) {
    // Not each sample becomes a separate request.
    const int64_t least = options.batch_size > 0 ? options.batch_size : std::max<int64_t>(1, window / 4);
    if (wanted < least) return 0;
  }
  // One batch at a time: what a server draws together is its share of one.
  if (options.batch_size > 0 && draws_together()) wanted = std::min(wanted, options.batch_size);
  return std::min(wanted, left);
}

bool SetSampler::IssueTickets() {
  bool has_issued = false;
  for (int64_t wanted = Wanted(); wanted > 0; --wanted) {
    const std::optional<size_t> index = chooser_.Choose();
    if (!index) break;
    tickets_.push_back(shards_[*index].server.id);
    ++shards_[*index].tickets;
    has_issued = true;
  }
  return has_issued;
}

Timeout SetSampler::LimiterTimeout(Duration most) const {
  const Timeout& timeout = options_.sampler.rate_limiter_timeout;
  return timeout ? std::min<Duration>(*timeout, most) : most;
}

std::vector<SetSampler::Action> SetSampler::NextActions(TimePoint now) {
  std::vector<Action> actions;
  const bool has_choice = chooser_.has_candidates();
  const bool is_wanted = by_consumer_ > 0 || reads_ahead_;
  for (Shard& shard : shards_) {
    const SamplerImpl::State& state = shard.state;
    if (!shard.sampler || !state.is_connected) continue;
    const bool is_empty = state.mass && state.mass->size == 0;
    int64_t total = shard.tickets - static_cast<int64_t>(shard.ready.size());
    Duration patience = now < shard.suspicious_until ? kShortPatience : kPatience;
    // Tests a server that cannot sample: all of them if no other one can.
    const bool is_tested = shard.is_blocked || (is_empty && !has_choice);
    // Leased samples wait for the rest of their batch.
    const int64_t present = is_leased() ? state.queued : 0;
    if (is_tested && is_wanted && state.mass && total <= present && now >= shard.probe_at) {
      total = present + 1;
      patience = kProbeTimeout;
    }
    if (total > state.queued + state.outstanding || shard.was_taken_from) {
      actions.push_back({.sampler = shard.sampler, .total = total, .timeout = LimiterTimeout(patience)});
      shard.was_taken_from = false;
    }
    const bool is_stale = !state.mass || (is_wanted && now - state.mass_at > kMassTtl);
    if (is_stale && state.outstanding == 0 && !state.awaits_mass)
      actions.push_back({.sampler = shard.sampler, .wants_mass = true});
  }
  return actions;
}

void SetSampler::CheckEnd(TimePoint now) {
  if (!status_.ok() || shards_.empty()) return;
  size_t failed = 0, blocked = 0, connected = 0;
  const Status* reason = nullptr;
  for (const Shard& shard : shards_) {
    if (shard.available() > 0 && !is_leased()) return;
    const bool is_connected = shard.state.is_connected;
    failed += shard.has_failed() && !is_connected ? 1 : 0;
    connected += is_connected ? 1 : 0;
    blocked += is_connected && (shard.is_blocked || shard.is_stalled || shard.has_refused()) ? 1 : 0;
    if (shard.has_refused() && reason == nullptr) reason = &shard.failure;
    if (shard.is_blocked && !shard.state.last_timeout.ok()) reason = &shard.state.last_timeout;
  }
  if (failed == shards_.size()) {
    status_ = shards_.size() == 1 ? shards_.front().failure
                                  : Status(shards_.front().failure.code(),
                                           "all " + std::to_string(failed) + " servers failed; " +
                                               shards_.front().server.address + ": " +
                                               std::string(shards_.front().failure.message()),
                                           shards_.front().failure.detail());
    changed_.NotifyAll();
    return;
  }
  const Timeout& timeout = options_.sampler.rate_limiter_timeout;
  if (!timeout || waiters_ == 0 || reason == nullptr || connected == 0 || blocked < connected) return;
  if (connected + failed < shards_.size() && now - started_ < kStartTimeout) return;
  if (now - waiting_since_ < *timeout) return;
  status_ = *reason;
  changed_.NotifyAll();
}

}  // namespace reverb::internal
