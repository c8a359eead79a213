#include "transport/local/local_connection.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/duration_text.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "transport/local/client_calls.h"
#include "transport/local/client_socket.h"
#include "transport/local/client_stream.h"
#include "transport/local/rows_socket.h"
#include "transport/single_calls.h"

namespace reverb::internal {
namespace {

// The timeout of a call that tries once.
constexpr Duration kOneTry = std::chrono::seconds(1);
// Pauses between attempts to reach the server.
constexpr Duration kFirstPause = std::chrono::milliseconds(5);
constexpr Duration kMaxPause = std::chrono::milliseconds(50);
// Sockets that are kept for further single calls.
constexpr size_t kMaxIdleSockets = 4;

// The wait of one single call.
class CallWait {
 public:
  CallWait(const LocalTarget& target, Method method, const WaitOptions& wait)
      : target_(target), method_(method), wait_(wait) {
    if (wait.timeout) limit_ = tries_once() ? kOneTry : *wait.timeout;
  }

  bool tries_once() const { return wait_.timeout && *wait_.timeout <= Duration(0); }
  Duration waited() const { return std::chrono::steady_clock::now() - start_; }

  // Called about every 50 ms. Returns the error of on_wait, or that the time is over.
  Status Check() {
    const Duration waited = this->waited();
    // Operations on rows wait for the table: their caller logs the reason.
    if (!was_logged_ && waited > WaitLogAfter() && (method_ != Method::kRows || !target_.is_connected)) {
      was_logged_ = true;
      LogWait("call " + target_.address, "still waiting for the server at " + target_.address +
                                             " to answer " + std::string(MethodName(method_)) + " for " +
                                             DurationText(waited) + Reachability());
    }
    if (limit_ && waited >= *limit_) {
      return Status::DeadlineExceeded(std::string(MethodName(method_)) + ": no answer from the server at " +
                                      target_.address + " within " + DurationText(*limit_) + Reachability());
    }
    return wait_.on_wait ? wait_.on_wait() : Status::Ok();
  }
  // Returns how long the next sleep may last.
  Duration Slice(Duration most) const {
    return limit_ ? std::clamp(*limit_ - waited(), Duration(0), most) : most;
  }

 private:
  const char* Reachability() const { return target_.is_connected ? "" : "; it could not be reached"; }

  const LocalTarget& target_;
  const Method method_;
  const WaitOptions& wait_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<Duration> limit_;
  bool was_logged_ = false;
};

class LocalConnection final : public WireConnection {
 public:
  explicit LocalConnection(std::shared_ptr<LocalTarget> target) : target_(std::move(target)) {}

  ~LocalConnection() override { delete pool_.load(std::memory_order_relaxed); }

  std::string address() const override { return target_->address; }
  bool in_process() const override { return false; }
  bool send_may_block() const override { return true; }
  bool is_connected() const override { return target_->is_connected; }

  std::shared_ptr<InsertStream> OpenInsert(const Hello& hello,
                                           std::shared_ptr<InsertEvents> events) override {
    return OpenLocalInsert(target_, hello, std::move(events));
  }
  std::shared_ptr<SampleStream> OpenSample(const Hello& hello,
                                           std::shared_ptr<SampleEvents> events) override {
    return OpenLocalSample(target_, hello, std::move(events));
  }
  Result<RowsReply> Rows(const RowsRequest& request, const WaitOptions& wait) override {
    CallWait call_wait(*target_, Method::kRows, wait);
    const CallSocket::OnWait on_wait = [&call_wait] { return call_wait.Check(); };
    REVERB_ASSIGN_OR_RETURN(std::unique_ptr<RowsSocket> socket, TakeSocket<RowsSocket>(&call_wait, [&] {
                              return RowsSocket::Open(target_, on_wait);
                            }));
    Result<RowsReply> reply = socket->Call(request, on_wait);
    if (socket->is_reusable()) KeepSocket(std::move(socket));
    return reply;
  }

 protected:
  const WireLimits& limits() const override { return target_->options.limits; }
  Status Call(Method method, WireMessage request, const WaitOptions& wait,
              const DecodeReply& decode) override {
    CallWait call_wait(*target_, method, wait);
    const CallSocket::OnWait on_wait = [&call_wait] { return call_wait.Check(); };
    REVERB_ASSIGN_OR_RETURN(std::unique_ptr<CallSocket> socket,
                            TakeSocket<CallSocket>(&call_wait, [&] { return NewSocket(on_wait); }));
    const Status status = socket->Call(method, request, on_wait, decode);
    if (socket->is_reusable()) KeepSocket(std::move(socket));
    return status;
  }
  std::shared_ptr<PendingCall> StartCall(Method method, WireMessage request, Replied done) override {
    return StartLocalCall(target_, &pool()->calls, method, request, std::move(done));
  }
  bool CanCancelByNumber() const override { return true; }  // they share a socket, before the greeting too

 private:
  // Idle sockets of one process. A child created by fork() gets a new pool, since another thread of its parent
  // may have held the lock of the old one.
  struct Pool {
    const uint64_t generation = ForkGeneration();
    Mutex mu;
    std::vector<std::unique_ptr<CallSocket>> idle GUARDED_BY(mu);
    std::vector<std::unique_ptr<RowsSocket>> idle_rows GUARDED_BY(mu);
    LocalCalls calls;  // that were started

    auto& idle_of(const CallSocket*) REQUIRES(mu) { return idle; }
    auto& idle_of(const RowsSocket*) REQUIRES(mu) { return idle_rows; }
  };

  Pool* pool() {
    Pool* found = pool_.load(std::memory_order_acquire);
    if (found != nullptr && found->generation == ForkGeneration()) return found;
    auto fresh = std::make_unique<Pool>();
    if (pool_.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel)) return fresh.release();
    return found;
  }

  // Waits for a server that is not reachable yet. `connect` returns a new socket.
  template <typename Socket, typename Connect>
  Result<std::unique_ptr<Socket>> TakeSocket(CallWait* wait, const Connect& connect) {
    if (std::unique_ptr<Socket> idle = TakeIdleSocket<Socket>()) return idle;
    Duration pause = kFirstPause;
    Status last;
    while (true) {
      Result<std::unique_ptr<Socket>> socket = connect();
      if (socket.ok() || socket.status().code() != StatusCode::kUnavailable || wait->tries_once()) {
        return socket;
      }
      last = socket.status();
      std::this_thread::sleep_for(wait->Slice(pause));
      pause = std::min(2 * pause, kMaxPause);
      if (Status status = wait->Check(); !status.ok()) {
        if (status.code() != StatusCode::kDeadlineExceeded) return status;
        return Status::DeadlineExceeded(std::string(status.message()) + ": " + std::string(last.message()));
      }
    }
  }
  Result<std::unique_ptr<CallSocket>> NewSocket(const CallSocket::OnWait& on_wait) {
    REVERB_ASSIGN_OR_RETURN(Descriptor fd, ConnectSocket(target_.get()));
    auto socket = std::make_unique<CallSocket>(target_, std::move(fd));
    REVERB_RETURN_IF_ERROR(socket->Greet(on_wait).status());
    return socket;
  }

  template <typename Socket>
  std::unique_ptr<Socket> TakeIdleSocket() {
    Pool* const pool = this->pool();
    while (true) {
      std::unique_ptr<Socket> socket;
      {
        MutexLock lock(&pool->mu);
        auto& idle = pool->idle_of(socket.get());
        if (idle.empty()) return nullptr;
        socket = std::move(idle.back());
        idle.pop_back();
      }
      if (socket->IsUsable()) return socket;
    }
  }
  template <typename Socket>
  void KeepSocket(std::unique_ptr<Socket> socket) {  // freed without the lock, if there are enough
    Pool* const pool = this->pool();
    MutexLock lock(&pool->mu);
    auto& idle = pool->idle_of(socket.get());
    if (idle.size() < kMaxIdleSockets) idle.push_back(std::move(socket));
  }

  const std::shared_ptr<LocalTarget> target_;
  std::atomic<Pool*> pool_{nullptr};
};

}  // namespace

Result<std::shared_ptr<Connection>> ConnectLocal(const LocalOptions& options) {
  if (options.path.empty()) return Status::InvalidArgument("a local connection needs the path of a socket");
  return std::shared_ptr<Connection>(
      std::make_shared<LocalConnection>(std::make_shared<LocalTarget>(options)));
}

Result<Id128> ProbeLocal(const LocalOptions& options, Duration timeout) {
  const auto target = std::make_shared<LocalTarget>(options);
  REVERB_ASSIGN_OR_RETURN(Descriptor fd, ConnectSocket(target.get()));
  CallSocket socket(target, std::move(fd));
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  return socket.Greet([&] {
    return std::chrono::steady_clock::now() < deadline
               ? Status::Ok()
               : target->Unreachable("no answer within " + DurationText(timeout));
  });
}

}  // namespace reverb::internal
