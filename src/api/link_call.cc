// Operations on row tables that no thread waits for: attempts, pauses and timeouts of ServerLink::StartRows().
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "api/server_link.h"
#include "base/clock.h"
#include "base/duration_text.h"
#include "base/random.h"
#include "base/task_pool.h"
#include "client/backoff.h"
#include "transport/inproc/inproc.h"

namespace reverb::internal {

// One operation, over all of its attempts.
//
// Ownership: attempts and alarms share it. Threads: all methods may be called concurrently.
class LinkCall final : public PendingCall, public std::enable_shared_from_this<LinkCall> {
 public:
  LinkCall(std::shared_ptr<ServerLink> link, RowsRequest request, Timeout timeout,
           std::function<void(Result<RowsReply>)> done)
      : link_(std::move(link)),
        kind_(ServerLink::KindOf(request.call)),
        request_(std::move(request)),
        timeout_(timeout),
        lost_timeout_(link_->LostTimeout(kind_, timeout)),
        done_(std::move(done)) {}

  void Begin() EXCLUDES(mu_) {
    start_ = RealClock()->Now();
    if (timeout_) {
      const Duration limit = std::max<Duration>(*timeout_, kMinTimeout);
      SetAlarm(&deadline_, limit, [](LinkCall* self) { self->OnDeadline(); });
    }
    if (lost_timeout_) {
      SetAlarm(&lost_, std::max(*lost_timeout_, kMinAttemptTimeout), [](LinkCall* self) { self->OnLost(); });
    }
    Connect();
  }

  void Cancel() override {
    EndWith(Status::Cancelled("the operation on the row table was cancelled by its caller"));
  }

 private:
  // A call that tries once has this long.
  static constexpr Duration kMinTimeout = std::chrono::seconds(1);
  static constexpr Duration kMaxAlarm = std::chrono::hours(24 * 365);

  template <typename F>
  void SetAlarm(std::optional<Clock::AlarmId>* alarm, Duration after, F call) EXCLUDES(mu_) {
    if (after > kMaxAlarm) return;
    const Clock::AlarmId id =
        RealClock()->CallAt(RealClock()->Now() + after, [weak = weak_from_this(), call] {
          if (const std::shared_ptr<LinkCall> self = weak.lock()) call(self.get());
        });
    MutexLock lock(&mu_);
    if (is_over_) {
      RealClock()->Cancel(id);
    } else {
      *alarm = id;
    }
  }

  void Connect() {
    ServerLink::ConnectThen(link_, [self = shared_from_this()](std::shared_ptr<Connection> connection) {
      self->Attempt(std::move(connection));
    });
  }

  void Attempt(std::shared_ptr<Connection> connection) EXCLUDES(mu_) {
    uint64_t attempt = 0;
    Status ended;
    {
      MutexLock lock(&mu_);
      ended = ended_;
      attempt = ++attempt_;
      connection_ = connection;
      has_replied_ = false;
    }
    if (!ended.ok()) return Finish(ended);
    std::shared_ptr<PendingCall> pending = connection->StartRows(
        request_, [self = shared_from_this(), attempt](Result<RowsReply> reply, bool was_sent) {
          self->OnReply(attempt, std::move(reply), was_sent);
        });
    {
      MutexLock lock(&mu_);
      if (attempt != attempt_ || has_replied_ || pending == nullptr) return;
      pending_ = pending;
      if (ended_.ok()) return;
    }
    pending->Cancel();  // that came meanwhile
  }

  void OnReply(uint64_t attempt, Result<RowsReply> reply, bool was_sent) EXCLUDES(mu_) {
    std::shared_ptr<PendingCall> finished;  // freed without the lock
    std::shared_ptr<Connection> connection;
    Status ended;
    {
      MutexLock lock(&mu_);
      if (attempt != attempt_ || has_replied_) return;
      has_replied_ = true;
      finished.swap(pending_);
      connection = connection_;
      ended = ended_;
    }
    const Status& status = reply.status();
    if (reply.ok()) return Finish(std::move(reply));
    // The reason is that this side has ended it.
    if (!ended.ok() &&
        (status.code() == StatusCode::kCancelled || status.code() == StatusCode::kUnavailable)) {
      return Finish(ended);
    }
    if (status.code() != StatusCode::kUnavailable || connection->in_process())
      return Finish(std::move(reply));
    if (was_sent && !kind_.can_repeat) {
      return Finish(Status::Unavailable(
          std::string(kind_.name) + ": " + std::string(status.message()) +
          "; the server may have carried it out nevertheless: check, and call again if it has not"));
    }
    Duration pause{};
    {
      MutexLock lock(&mu_);
      last_failure_ = status;
      if (!backoff_) backoff_.emplace(EntropySeed());
      pause = backoff_->Next(Duration(0));
      is_pausing_ = true;
    }
    SetAlarm(&retry_, pause, [](LinkCall* self) { self->Retry(); });
  }

  void Retry() EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      if (is_over_ || !std::exchange(is_pausing_, false)) return;
    }
    Connect();
  }

  void OnDeadline() EXCLUDES(mu_) {
    std::string address;
    Status last_failure;
    bool is_connected = false;
    {
      MutexLock lock(&mu_);
      if (connection_) address = connection_->address();
      is_connected = connection_ && connection_->is_connected();
      last_failure = last_failure_;
    }
    std::string text = std::string(kind_.name) + ": no answer from the server" +
                       (address.empty() ? "" : " at " + address) + " within " +
                       DurationText(RealClock()->Now() - start_);
    if (!is_connected) text += "; it could not be reached";
    if (!last_failure.ok()) text += ": " + std::string(last_failure.message());
    EndWith(Status::DeadlineExceeded(std::move(text)));
  }

  void OnLost() EXCLUDES(mu_) {
    std::shared_ptr<Connection> connection;
    Status last_failure;
    {
      MutexLock lock(&mu_);
      connection = connection_;
      last_failure = last_failure_;
    }
    if (connection != nullptr && connection->is_connected()) {
      return SetAlarm(&lost_, std::max(*lost_timeout_, kMinAttemptTimeout),
                      [](LinkCall* self) { self->OnLost(); });
    }
    EndWith(CannotReach(link_->address(), RealClock()->Now() - start_, last_failure));
  }

  // Ends the attempt in progress, or the wait for one.
  void EndWith(Status why) EXCLUDES(mu_) {
    std::shared_ptr<PendingCall> pending;
    bool is_pausing = false;
    {
      MutexLock lock(&mu_);
      if (is_over_ || !ended_.ok()) return;
      ended_ = why;
      pending = pending_;
      is_pausing = is_pausing_;
    }
    if (pending != nullptr) return pending->Cancel();
    if (is_pausing) Finish(std::move(why));  // otherwise an attempt is about to begin, and notices it
  }

  void Finish(Result<RowsReply> reply) EXCLUDES(mu_) {
    std::function<void(Result<RowsReply>)> done;
    {
      MutexLock lock(&mu_);
      if (std::exchange(is_over_, true)) return;
      done = std::move(done_);
      done_ = nullptr;
      for (std::optional<Clock::AlarmId>* const alarm : {&deadline_, &lost_, &retry_}) {
        if (*alarm) RealClock()->Cancel(**alarm);
        alarm->reset();
      }
    }
    done(std::move(reply));
  }

  const std::shared_ptr<ServerLink> link_;
  const ServerLink::CallKind kind_;
  const RowsRequest request_;
  const Timeout timeout_;
  const Timeout lost_timeout_;
  TimePoint start_;  // set by Begin()

  Mutex mu_;
  std::function<void(Result<RowsReply>)> done_ GUARDED_BY(mu_);
  bool is_over_ GUARDED_BY(mu_) = false;
  Status ended_ GUARDED_BY(mu_);  // not OK: why this side has ended it
  uint64_t attempt_ GUARDED_BY(mu_) = 0;
  bool has_replied_ GUARDED_BY(mu_) = false;  // the attempt
  std::shared_ptr<Connection> connection_ GUARDED_BY(mu_);
  std::shared_ptr<PendingCall> pending_ GUARDED_BY(mu_);
  bool is_pausing_ GUARDED_BY(mu_) = false;  // before the next attempt
  Status last_failure_ GUARDED_BY(mu_);
  std::optional<Backoff> backoff_ GUARDED_BY(mu_);
  std::optional<Clock::AlarmId> deadline_ GUARDED_BY(mu_);
  std::optional<Clock::AlarmId> lost_ GUARDED_BY(mu_);
  std::optional<Clock::AlarmId> retry_ GUARDED_BY(mu_);
};

std::shared_ptr<PendingCall> ServerLink::StartRows(std::shared_ptr<ServerLink> link, RowsRequest request,
                                                   Timeout timeout,
                                                   std::function<void(Result<RowsReply>)> done) {
  auto call = std::make_shared<LinkCall>(std::move(link), std::move(request), timeout, std::move(done));
  call->Begin();
  return call;
}

void ServerLink::ConnectThen(std::shared_ptr<ServerLink> link,
                             std::function<void(std::shared_ptr<Connection>)> then) {
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(&link->mu_);
    const bool has_inproc = link->inproc_ && (link->is_pinned_ || IsInprocServer(link->life_id_));
    const bool must_detect = !has_inproc && !link->is_remote_ && link->options_.in_process &&
                             HasInprocServers() && RealClock()->Now() >= link->detect_not_before_;
    if (must_detect) {
      link->await_detection_.push_back(std::move(then));
      if (std::exchange(link->is_detecting_, true)) return;
    } else {
      connection = has_inproc ? link->inproc_ : link->network_;
    }
  }
  if (connection != nullptr) return then(std::move(connection));
  const auto detect = [link] {
    const std::shared_ptr<Connection> found = link->Connect();
    std::vector<std::function<void(std::shared_ptr<Connection>)>> waiting;
    {
      MutexLock lock(&link->mu_);
      link->is_detecting_ = false;
      waiting.swap(link->await_detection_);
    }
    for (const auto& each : waiting) each(found);
  };
  if (!ProcessTaskPool().Run(detect)) detect();
}

}  // namespace reverb::internal
