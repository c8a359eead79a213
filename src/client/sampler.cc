#include "client/sampler.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/duration_text.h"
#include "base/log.h"
#include "base/malloc_retention.h"
#include "base/random.h"
#include "base/wait_loop.h"
#include "transport/stream_poller.h"

namespace reverb::internal {
namespace {

constexpr uint64_t kMaxKeptCredit = 1 << 20;

// Bounds how long a sampler with leases waits for its servers when it closes.
constexpr std::chrono::seconds kCloseTimeout{1};

Status CheckOptions(const SamplerImpl::Options& options) {
  const auto error = [](const std::string& name, int64_t value, const std::string& rule) {
    return Status::InvalidArgument(name + " (" + std::to_string(value) + ") must be " + rule);
  };
  if (options.table.empty()) return Status::InvalidArgument("the table to sample from has no name");
  if (options.max_samples != -1 && options.max_samples < 1) {
    return error("max_samples", options.max_samples, "-1 or >= 1");
  }
  if (options.max_in_flight < 1) {
    return error("max_in_flight_samples_per_worker", options.max_in_flight, ">= 1");
  }
  if (options.num_streams < 1) return error("num_workers", options.num_streams, "-1 or >= 1");
  constexpr int64_t kMaxInFlight = 1 << 20;
  if (options.max_in_flight > kMaxInFlight) {
    return error("max_in_flight_samples_per_worker", options.max_in_flight,
                 "at most " + std::to_string(kMaxInFlight));
  }
  if (options.num_streams > 1024) return error("num_workers", options.num_streams, "at most 1024");
  if (options.batch_size < 0 || options.batch_size > kMaxInFlight) {
    return error("batch_size", options.batch_size, "0 to " + std::to_string(kMaxInFlight));
  }
  if (options.batch_size > 0 && options.max_samples > 0 && options.max_samples % options.batch_size != 0) {
    return error("max_samples", options.max_samples,
                 "a multiple of batch_size, which is " + std::to_string(options.batch_size));
  }
  if (options.lease < Duration(0)) return error("lease", options.lease.count(), "0 (none) or more");
  if (options.rules.all_or_nothing && options.batch_size == 0 && !options.on_change) {
    return Status::InvalidArgument("all_or_nothing needs a batch_size");
  }
  return Status::Ok();
}

bool IsRateLimiterTimeout(const Status& status) { return status.code() == StatusCode::kDeadlineExceeded; }

}  // namespace

class SamplerImpl::Events final : public SampleEvents {
 public:
  Events(std::shared_ptr<SamplerImpl> sampler, size_t worker, uint64_t attempt)
      : sampler_(std::move(sampler)), worker_(worker), attempt_(attempt) {}
  void OnReply(SampleReply reply, uint64_t bytes) override {
    sampler_->OnReply(worker_, attempt_, std::move(reply), bytes);
  }
  void OnClosed(Status status) override { sampler_->OnClosed(worker_, attempt_, std::move(status)); }

 private:
  const std::shared_ptr<SamplerImpl> sampler_;
  const size_t worker_;
  const uint64_t attempt_;
};

Result<std::shared_ptr<SamplerImpl>> SamplerImpl::Create(const Connector& connect, Options options) {
  REVERB_RETURN_IF_ERROR(CheckOptions(options));
  // Opens no more streams than the samples can keep busy.
  const int64_t useful =
      options.max_samples < 0 ? options.num_streams : options.max_samples / options.max_in_flight;
  const auto count =
      static_cast<size_t>(std::max<int64_t>(1, std::min<int64_t>(options.num_streams, useful)));
  std::shared_ptr<SamplerImpl> sampler(new SamplerImpl(std::move(options)));
  MutexLock lock(&sampler->mu_);
  sampler->workers_.resize(count);
  if (!sampler->options_.grow_window) sampler->in_flight_ = sampler->options_.max_in_flight;
  bool is_in_process = true;
  for (size_t i = 0; i < count; ++i) {
    Worker& worker = sampler->workers_[i];
    worker.connection = connect(i);
    worker.reconnection = Reconnection(EntropySeed());
    is_in_process &= worker.connection->in_process();
  }
  if (!is_in_process) KeepFreedMemoryIfEnabled();  // replies allocate and free megabytes
  sampler->reads_ahead_ = !sampler->options_.exact && !is_in_process && !sampler->is_leased();
  sampler->in_process_ = is_in_process;
  if (sampler->is_part()) sampler->reads_ahead_ = false;
  if (sampler->reads_ahead_ || sampler->is_part()) sampler->Demand(0);
  return sampler;
}

SamplerImpl::~SamplerImpl() = default;

// --- The consumer's side ---

Status SamplerImpl::Take(int64_t least, int64_t most, const WaitOptions& wait, std::vector<Sample>* out) {
  if (most < 1)
    return Status::InvalidArgument("samples requested: " + std::to_string(most) + "; request at least 1");
  WaitLoop loop(wait);
  StreamPoller<SampleStream> poller;
  MutexLock lock(&mu_);
  ++waiters_;
  Status result;
  GrowWindow();
  while (true) {
    if (is_leased()) {
      DropExpired();
      if (!expired_.empty()) {
        mu_.Unlock();
        ReleaseExpiredSamples();
        mu_.Lock();
      }
    }
    const int64_t taken = MayTake(least) ? static_cast<int64_t>(TakeQueued(most, out)) : 0;
    least = std::max<int64_t>(0, least - taken);
    most -= taken;
    if (reads_ahead_ || (least > 0 && !IsAtEnd(least))) {
      Timeout wait_left;
      if (is_leased() && wait.timeout) wait_left = std::max(*wait.timeout - loop.waited(), Duration(0));
      Demand(least, wait_left);
    }
    if (least > 0 && MayTake(least)) continue;  // arrived while the lock was released
    if (least == 0) break;
    if (!status_.ok()) {
      result = status_;
      break;
    }
    if (IsAtEnd(least)) {
      const std::string max = std::to_string(options_.max_samples);
      result = Status::OutOfRange(stats_.delivered >= options_.max_samples
                                      ? "all " + max + " samples were returned"
                                      : std::to_string(least) + " samples were requested, and " +
                                            std::to_string(stats_.delivered) + " of " + max +
                                            " were returned; request the rest");
      break;
    }
    if (loop.expired()) {
      const WaitExplanation explanation = DescribeWait(loop.waited(), wait);
      if (MayTake(least) || !status_.ok()) continue;  // changed while the lock was released
      result =
          Status::DeadlineExceeded("Timeout exceeded: " + explanation.text).WithDetail(explanation.detail);
      break;
    }
    if (loop.ShouldLogNow()) {
      const WaitExplanation explanation = DescribeWait(loop.waited(), wait);
      const std::string address = workers_.front().connection->address();
      mu_.Unlock();
      LogWait("sample " + options_.table + " " + address, "still " + explanation.text,
              {{"table", options_.table}, {"address", address}});
      mu_.Lock();
      continue;
    }
    // The only stream is read by this thread, if its transport supports that.
    const std::shared_ptr<SampleStream> only = workers_.size() == 1 ? workers_.front().stream : nullptr;
    result = only ? loop.Sleep(&changed_, &mu_, [&](Duration most) { return poller.Poll(only, most); })
                  : loop.Sleep(&changed_, &mu_);
    if (!result.ok()) break;
  }
  if (--waiters_ > 0) changed_.NotifyAll();  // another one may have to read
  return result;
}

bool SamplerImpl::Prepare(int64_t least, std::function<void()> ready) {
  std::function<void()> former;  // freed without the lock
  MutexLock lock(&mu_);
  const auto is_ready = [&]() REQUIRES(mu_) { return MayTake(least) || !status_.ok() || IsAtEnd(least); };
  if (is_ready()) return true;
  GrowWindow();
  Demand(least);
  if (is_ready()) return true;  // arrived while the lock was released
  former = std::exchange(on_ready_, std::move(ready));
  return false;
}

void SamplerImpl::NotifyReady() {
  std::function<void()> ready;
  {
    MutexLock lock(&mu_);
    ready.swap(on_ready_);
  }
  if (ready) ready();
}

// With leases, a part of what the consumer needs stays in the queue.
bool SamplerImpl::IsAtEnd(int64_t least) const {
  return options_.max_samples >= 0 &&
         stats_.delivered + (is_leased() ? least - 1 : 0) >= options_.max_samples;
}

// Grows the window when the consumer has emptied the queue.
void SamplerImpl::GrowWindow() {
  if (queued_ > 0 || stats_.delivered == 0) return;
  in_flight_ = std::min(2 * in_flight_, options_.max_in_flight);
  if (options_.max_share_ahead <= 0) return;
  const double share = options_.max_share_ahead * static_cast<double>(stats_.delivered);
  in_flight_ = std::min(in_flight_, 1 + static_cast<int64_t>(std::min(share, 1e15)));
}

void SamplerImpl::DropExpired() {
  // A consumer takes a moment to wake up: for shorter leases a sample is good until its lease has expired.
  constexpr std::chrono::milliseconds kWakeUp{10};
  const Duration max_age = std::max(options_.lease / 2, std::min<Duration>(options_.lease, kWakeUp));
  const TimePoint now = options_.clock->Now();
  while (!queue_.empty() && now - queue_.front().arrived >= max_age) {
    Received& reply = queue_.front();
    Worker& worker = workers_[reply.worker];
    const auto left = static_cast<int64_t>(reply.samples.size() - reply.next);
    worker.queued -= static_cast<int64_t>(reply.samples.size());
    if (worker.reconnection.IsCurrent(reply.attempt)) worker.taken_bytes += reply.bytes;
    queued_ -= left;
    stats_.undelivered += left;
    expired_.push_back(std::move(reply));
    queue_.pop_front();
  }
}

size_t SamplerImpl::TakeQueued(int64_t count, std::vector<Sample>* out) {
  size_t taken = 0;
  while (!queue_.empty() && static_cast<int64_t>(taken) < count) {
    Received& reply = queue_.front();
    if (reply.next == 0 && out->empty() && static_cast<int64_t>(reply.samples.size()) == count) {
      out->swap(reply.samples);  // the consumer takes the whole reply
      taken = out->size();
      reply.next = taken;
    } else {
      while (reply.next < reply.samples.size() && static_cast<int64_t>(taken) < count) {
        out->push_back(std::move(reply.samples[reply.next++]));
        ++taken;
      }
      if (reply.next < reply.samples.size()) break;
    }
    Worker& worker = workers_[reply.worker];
    worker.queued -= static_cast<int64_t>(reply.next);
    if (worker.reconnection.IsCurrent(reply.attempt)) worker.taken_bytes += reply.bytes;
    queue_.pop_front();
  }
  queued_ -= static_cast<int64_t>(taken);
  stats_.delivered += static_cast<int64_t>(taken);
  return taken;
}

WaitExplanation SamplerImpl::DescribeWait(Duration waited, const WaitOptions& wait) {
  // Of several servers, picks one with outstanding requests.
  const auto pending =
      std::ranges::find_if(workers_, [](const Worker& worker) { return worker.outstanding > 0; });
  const Worker& worker = pending == workers_.end() ? workers_.front() : *pending;
  const std::shared_ptr<Connection> connection = worker.connection;
  std::string text = "waiting for samples of table \"" + options_.table + "\" from " + connection->address() +
                     " for " + DurationText(waited);
  if (worker.reconnection.is_lost()) {
    return {text + "; the server cannot be reached: " + worker.reconnection.last_failure().ToString()};
  }
  text += "; " + std::to_string(outstanding_) + " were requested and have not arrived";
  if (!worker.reconnection.is_welcomed()) return {text + "; the server has not answered yet"};
  mu_.Unlock();
  WaitExplanation explanation = ExplainSampleWait(*connection, options_.table, wait);
  mu_.Lock();
  explanation.text =
      text + "; " + (explanation.text.empty() ? "the server does not say why" : explanation.text);
  return explanation;
}

void SamplerImpl::Close() {
  std::vector<std::shared_ptr<SampleStream>> streams;
  std::deque<Received> dropped;
  {
    MutexLock lock(&mu_);
    if (closed_) return;
    closed_ = true;
    if (status_.ok()) status_ = Status::Cancelled("the sampler was closed");
    for (Worker& worker : workers_) {
      if (worker.stream) streams.push_back(std::move(worker.stream));
      worker.stream = nullptr;
    }
    stats_.undelivered += queued_;
    stats_.unanswered += outstanding_;
    queued_ = 0;
    dropped.swap(queue_);
    for (Received& expired : std::exchange(expired_, {})) dropped.push_back(std::move(expired));
    if (is_leased()) ending_ = static_cast<int>(streams.size());
    changed_.NotifyAll();
  }
  NotifyReady();
  if (is_leased()) EndStreams(streams, &dropped);
  for (auto& stream : streams) stream->Cancel();
  if (is_leased() && !dropped.empty()) ReleaseLeases(dropped);
}

void SamplerImpl::EndStreams(const std::vector<std::shared_ptr<SampleStream>>& streams,
                             std::deque<Received>* received) {
  for (const auto& stream : streams) stream->Send({.end_stream = true});
  const WaitOptions wait{.timeout = kCloseTimeout};
  WaitLoop loop(wait);
  StreamPoller<SampleStream> poller;
  MutexLock lock(&mu_);
  while (ending_ > 0 && !loop.expired()) {
    const Status status =
        streams.size() == 1
            ? loop.Sleep(&changed_, &mu_, [&](Duration most) { return poller.Poll(streams.front(), most); })
            : loop.Sleep(&changed_, &mu_);
    if (!status.ok()) break;
  }
  ending_ = 0;
  for (Received& late : queue_) received->push_back(std::move(late));
  queue_.clear();
}

void SamplerImpl::ReleaseLeases(const std::deque<Received>& dropped) {
  std::map<size_t, SettleLeasesRequest> requests;  // by worker
  for (const Received& reply : dropped) {
    for (size_t i = reply.next; i < reply.samples.size(); ++i) {
      requests[reply.worker].releases.push_back(
          {.key = reply.samples[i].key, .id = reply.samples[i].lease_id});
    }
  }
  for (auto& [worker, request] : requests) {
    std::shared_ptr<Connection> connection;
    {
      MutexLock lock(&mu_);
      connection = workers_[worker].connection;
    }
    request.table = options_.table;
    (void)connection->SettleLeases(request, {.timeout = kCloseTimeout});
  }
}

bool SamplerImpl::DropExpiredSamples() {
  MutexLock lock(&mu_);
  DropExpired();
  return !expired_.empty();
}

void SamplerImpl::ReleaseExpiredSamples() {
  std::deque<Received> expired;
  {
    MutexLock lock(&mu_);
    expired.swap(expired_);
  }
  ReleaseLeases(expired);
}

SamplerImpl::Stats SamplerImpl::stats() const {
  MutexLock lock(&mu_);
  Stats stats = stats_;
  stats.waiting = queued_;
  return stats;
}

// --- Requests ---

// Returns how many more samples to request.
int64_t SamplerImpl::Wanted(int64_t by_consumer) const {
  const int64_t window = fills_window()
                             ? std::max(by_consumer, in_flight_ * static_cast<int64_t>(workers_.size()))
                             : by_consumer;
  int64_t wanted = window - queued_ - outstanding_;
  if (options_.max_samples >= 0) {
    wanted = std::min(wanted, options_.max_samples - stats_.delivered - queued_ - outstanding_);
  }
  return wanted;
}

void SamplerImpl::Demand(int64_t wanted, Timeout wait_left) {
  // A request that has timed out during this call is not repeated, or it would be without end where the server
  // answers at once: the consumer's wait has ended, or the set decides.
  const uint64_t timeouts = num_timeouts_;
  while (status_.ok() && num_timeouts_ == timeouts) {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].reconnection.is_over() && !workers_[i].reconnecting && !workers_[i].is_lost) Open(i);
    }
    std::optional<Outgoing> next = NextRequest(wanted, wait_left);
    if (!next) return;
    mu_.Unlock();
    next->stream->Send(std::move(next->request));
    mu_.Lock();
  }
}

std::optional<SamplerImpl::Outgoing> SamplerImpl::NextRequest(int64_t by_consumer, Timeout wait_left) {
  const int64_t wanted = Wanted(by_consumer);
  // A quarter of the window at a time, so that not each sample becomes a separate request.
  const int64_t quarter =
      reads_ahead_ && by_consumer <= queued_ + outstanding_ ? std::max<int64_t>(1, in_flight_ / 4) : 1;
  const int64_t least = options_.whole_windows && !is_leased() ? in_flight_ : quarter;
  // Picks the least loaded stream, and of several the one with the fewest requests so far: streams and
  // servers take equal turns even if every request is answered before the next one.
  Worker* idlest = nullptr;
  const auto order = [](const Worker& worker) {
    return std::pair(worker.outstanding + worker.queued, worker.requested);
  };
  for (Worker& worker : workers_) {
    if (!IsUsable(worker)) continue;
    if (idlest == nullptr || order(worker) < order(*idlest)) idlest = &worker;
  }
  const bool is_last =
      options_.max_samples >= 0 && wanted == options_.max_samples - stats_.delivered - queued_ - outstanding_;
  // With batches, each request is one.
  const int64_t batch = options_.batch_size;
  const bool is_due =
      batch > 0 ? wanted >= batch || by_consumer > queued_ + outstanding_ : wanted >= least || is_last;
  if (idlest != nullptr && wanted > 0 && is_due) {
    const int64_t count = batch > 0        ? batch
                          : fills_window() ? std::min(wanted, std::max(in_flight_, by_consumer))
                                           : wanted;
    Timeout timeout = is_part() ? part_timeout_ : options_.rate_limiter_timeout;
    // A request that waits for a whole batch delays others, also of this sampler: it ends with its consumer's wait.
    const bool ends_with_wait = is_leased() && !is_part() && wait_left && (!timeout || *wait_left < *timeout);
    if (ends_with_wait) timeout = wait_left;
    idlest->requests.push_back({.missing = count, .ends_with_wait = ends_with_wait});
    idlest->outstanding += count;
    idlest->requested += count;
    outstanding_ += count;
    return Outgoing{idlest->stream,
                    {.request_id = ++idlest->last_request,
                     .table = options_.table,
                     .count = count,
                     .timeout = timeout,
                     .taken_bytes = std::exchange(idlest->taken_bytes, 0),
                     .shared_columns = true,
                     .rules = options_.rules,
                     .lease = options_.lease,
                     .wants_mass = is_part()}};
  }
  // Returns credit in a separate message if there is nothing to request.
  for (Worker& worker : workers_) {
    // The server may allow a smaller window than ours: returns credit at once if nothing can be taken.
    const bool is_starved = (queued_ == 0 || is_leased()) && worker.taken_bytes > 0 && worker.outstanding > 0;
    if (worker.stream && (is_starved || worker.taken_bytes > kMaxKeptCredit ||
                          worker.taken_bytes > options_.receive_window_bytes / 4)) {
      return Outgoing{worker.stream, {.taken_bytes = std::exchange(worker.taken_bytes, 0)}};
    }
  }
  return std::nullopt;
}

// A stream that replaces a lost one is used once the server has answered. So failed attempts leave no requests
// behind for which the server might have drawn. A set requests from servers that have answered only.
bool SamplerImpl::IsUsable(const Worker& worker) const {
  if (!worker.stream) return false;
  return worker.reconnection.is_welcomed() || (worker.reconnection.attempt() <= 1 && !is_part());
}

void SamplerImpl::Open(size_t index) {
  Worker& worker = workers_[index];
  const uint64_t attempt = worker.reconnection.Opening(options_.clock->Now());
  worker.taken_bytes = 0;
  const std::shared_ptr<Connection> connection = worker.connection;
  if (options_.reconnect_timeout && !connection->in_process()) {
    worker.reconnection.BoundAttempt(options_.clock, *options_.reconnect_timeout,
                                     [weak = weak_from_this(), index, attempt] {
                                       if (const auto sampler = weak.lock())
                                         sampler->OnAttemptTimeout(index, attempt);
                                     });
  }
  auto events = std::make_shared<Events>(shared_from_this(), index, attempt);
  mu_.Unlock();
  std::shared_ptr<SampleStream> stream = connection->OpenSample(
      {.client_name = options_.client_name, .receive_window_bytes = options_.receive_window_bytes},
      std::move(events));
  mu_.Lock();
  if (!closed_ && worker.reconnection.IsCurrent(attempt) && !worker.reconnection.is_over()) {
    worker.stream = std::move(stream);
    ++stats_.connections;
    return;
  }
  mu_.Unlock();
  stream->Cancel();
  mu_.Lock();
}

// --- Events of streams ---

void SamplerImpl::OnReply(size_t index, uint64_t attempt, SampleReply reply, uint64_t bytes) {
  const std::optional<Welcome> welcome =
      options_.on_welcome && reply.welcome ? reply.welcome : std::optional<Welcome>();
  {
    MutexLock lock(&mu_);
    TakeReply(index, attempt, std::move(reply), bytes);
  }
  NotifyReady();
  if (welcome) options_.on_welcome(*welcome);
  if (is_part()) options_.on_change();
}

void SamplerImpl::TakeReply(size_t index, uint64_t attempt, SampleReply reply, uint64_t bytes) {
  Worker& worker = workers_[index];
  const auto count = static_cast<int64_t>(reply.samples.size());
  stats_.received_bytes += static_cast<int64_t>(bytes);
  if (!worker.reconnection.IsCurrent(attempt) || closed_) {
    stats_.undelivered += count;
    if (ending_ > 0) queue_.push_back({.samples = std::move(reply.samples), .worker = index});
    return;
  }
  if (reply.welcome) {
    worker.reconnection.Welcomed();
    if (worker.lost > 0) LogLost(&worker);
  }
  if (count > 0 && is_leased() && reply.samples.front().lease_id == 0) {
    if (status_.ok()) {
      status_ = Status::FailedPrecondition("the server at " + worker.connection->address() +
                                           " does not support leases; update it, or sample without a lease");
    }
    stats_.undelivered += count;
    changed_.NotifyAll();
    return;
  }
  if (is_part()) {
    ++part_.replies;
    if (reply.mass) {
      part_.mass = reply.mass;
      part_.mass_at = options_.clock->Now();
      mass_is_requested_ = false;
    }
  }
  if (count > 0) {
    worker.reconnection.Progressed();
    Settle(&worker, count);
    queued_ += count;
    worker.queued += count;
    queue_.push_back(
        {.samples = std::move(reply.samples), .bytes = bytes, .worker = index, .attempt = attempt});
    if (is_leased()) {
      queue_.back().arrived = options_.clock->Now();
      // A batch is taken when all of it is there, and the server may wait for this credit before it sends the rest.
      worker.taken_bytes += std::exchange(queue_.back().bytes, 0);
    }
  } else {
    worker.taken_bytes += bytes;
  }
  if (reply.end) OnRequestEnd(&worker, *std::move(reply.end));
  if (waiters_ > 0) changed_.NotifyAll();
  if (reply.welcome && attempt > 1 && reads_ahead_) Demand(0);
}

void SamplerImpl::OnRequestEnd(Worker* worker, Status end) {
  // Requests on a stream end in order: the rest of this one will not arrive. Later ones continue.
  if (worker->requests.empty()) return;
  const Request request = worker->requests.front();
  Settle(worker, request.missing);
  worker->requests.pop_front();
  if (end.ok()) return;
  if (IsRateLimiterTimeout(end)) ++num_timeouts_;
  if (is_part()) {
    mass_is_requested_ = false;
    if (IsRateLimiterTimeout(end)) {
      ++part_.timeouts;
      part_.last_timeout = std::move(end);
      return;
    }
  }
  // Ignores a timeout while no caller waits, and that of a caller's wait: the next one requests again.
  if (IsRateLimiterTimeout(end) && (waiters_ == 0 || request.ends_with_wait)) return;
  if (status_.ok()) status_ = std::move(end);
}

void SamplerImpl::Settle(Worker* worker, int64_t samples) {
  if (worker->requests.empty()) return;  // the server sent more than was requested
  samples = std::min(samples, worker->requests.front().missing);
  worker->requests.front().missing -= samples;
  worker->outstanding -= samples;
  outstanding_ -= samples;
}

void SamplerImpl::LogLost(Worker* worker) {
  Log(LogLevel::kWarning,
      "the connection to the server at " + worker->connection->address() +
          " broke and was reestablished; samples of table \"" + options_.table +
          "\" that were requested and not received: " + std::to_string(std::exchange(worker->lost, 0)) +
          (is_leased()
               ? ". Those that the server had drawn can be sampled again when their leases have expired"
               : ". Those that the server had drawn are lost, and with them their items where "
                 "sampling removes items"));
}

void SamplerImpl::OnAttemptTimeout(size_t index, uint64_t attempt) {
  std::shared_ptr<SampleStream> stream;
  {
    MutexLock lock(&mu_);
    Worker& worker = workers_[index];
    if (!closed_ && worker.reconnection.TimeOut(attempt)) stream = worker.stream;
  }
  if (stream) stream->Cancel();  // OnClosed() follows
}

void SamplerImpl::OnClosed(size_t index, uint64_t attempt, Status status) {
  std::shared_ptr<SampleStream> former;
  {
    MutexLock lock(&mu_);
    TakeEnd(index, attempt, std::move(status), &former);
  }
  NotifyReady();
  if (is_part()) options_.on_change();
}

void SamplerImpl::TakeEnd(size_t index, uint64_t attempt, Status status,
                          std::shared_ptr<SampleStream>* former) {
  Worker& worker = workers_[index];
  if (!worker.reconnection.IsCurrent(attempt)) return;
  if (ending_ > 0) {
    --ending_;
    changed_.NotifyAll();
  }
  const bool was_welcomed = worker.reconnection.Over();
  *former = std::move(worker.stream);
  worker.stream = nullptr;
  if (!closed_) {
    stats_.unanswered += worker.outstanding;
    if (was_welcomed) worker.lost += worker.outstanding;
  }
  outstanding_ -= worker.outstanding;
  worker.outstanding = 0;
  worker.requests.clear();
  mass_is_requested_ = false;
  part_.mass.reset();  // another server may be there the next time
  if (closed_) return;
  const TimePoint now = options_.clock->Now();
  const std::optional<Duration> pause =
      worker.reconnection.Lost(std::move(status), now, *worker.connection, options_.reconnect_timeout);
  if (!pause) {
    // Other streams continue.
    worker.is_lost = true;
    const bool all_lost =
        std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.is_lost; });
    if (all_lost && status_.ok()) status_ = worker.reconnection.last_failure();
    changed_.NotifyAll();
    return;
  }
  worker.reconnecting = true;
  options_.clock->CallAt(now + *pause, [weak = weak_from_this(), index] {
    const std::shared_ptr<SamplerImpl> sampler = weak.lock();
    if (!sampler) return;
    {
      MutexLock relock(&sampler->mu_);
      sampler->workers_[index].reconnecting = false;
      if (!sampler->closed_) sampler->Demand(0);
      sampler->changed_.NotifyAll();
    }
    sampler->NotifyReady();
  });
}

// --- For a server of a set ---

SamplerImpl::State SamplerImpl::state() const {
  MutexLock lock(&mu_);
  State state = part_;
  state.is_connected =
      std::ranges::any_of(workers_, [this](const Worker& worker) REQUIRES(mu_) { return IsUsable(worker); });
  state.awaits_mass = mass_is_requested_;
  state.queued = queued_;
  state.outstanding = outstanding_;
  state.status = status_;
  return state;
}

void SamplerImpl::Prefetch(int64_t total, Timeout timeout) {
  MutexLock lock(&mu_);
  part_timeout_ = timeout;
  Demand(total);
}

void SamplerImpl::RequestMass() {
  MutexLock lock(&mu_);
  const auto worker =
      std::ranges::find_if(workers_, [this](const Worker& one) REQUIRES(mu_) { return IsUsable(one); });
  if (worker == workers_.end() || mass_is_requested_ || !status_.ok()) return;
  mass_is_requested_ = true;
  worker->requests.push_back({});
  const std::shared_ptr<SampleStream> stream = worker->stream;
  SampleRequest request{.request_id = ++worker->last_request, .table = options_.table, .wants_mass = true};
  mu_.Unlock();
  stream->Send(std::move(request));
  mu_.Lock();
}

size_t SamplerImpl::TakeQueuedSamples(int64_t most, std::vector<Sample>* out) {
  MutexLock lock(&mu_);
  return TakeQueued(most, out);
}

WaitExplanation SamplerImpl::Explain(Duration waited, const WaitOptions& wait) {
  MutexLock lock(&mu_);
  return DescribeWait(waited, wait);
}

}  // namespace reverb::internal
