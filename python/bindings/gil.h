// gil.h — blocking calls without the GIL, and how signals, the interpreter's exit and fork() affect them.
//
//   const auto flush = [&](const WaitOptions& wait) { return writer.Flush(0, wait); };
//   const Status status = Waiting(timeout).Run(flush);
//
// A wait releases the GIL and acquires it about every 50 ms to process signals and to emit log messages. A
// signal handler that raises (Ctrl-C does) ends the wait, and the caller gets the exception.
//
// At the interpreter's exit, Python terminates threads that acquire the GIL, in the middle of C++ frames.
// Such a thread sleeps forever instead.
//
// After fork(), the child has none of the library's threads, and locks may be held forever: it does not use
// the parent's objects, except clients, which replace their connections (Client in reverb/client.h). See Origin.
#ifndef REVERB_PYTHON_GIL_H_
#define REVERB_PYTHON_GIL_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "errors.h"
#include "log.h"
#include "python_api.h"
#include "reverb/status.h"
#include "reverb/wait.h"

namespace reverb::python {

// Returns whether the interpreter is exiting: modules may be partly destroyed.
bool IsFinalizing();

// The process that created an object.
class Origin {
 public:
  Origin() : generation_(Generation()) {}
  // Returns whether the object was created by a parent of this process, before fork().
  bool is_inherited() const { return generation_ != Generation(); }
  // Raises RuntimeError, with the remedy, if so.
  void Check() const {
    if (is_inherited()) [[unlikely]]
      Refuse();
  }

 private:
  // Returns a number that every child increases.
  static uint64_t Generation();
  [[noreturn]] static void Refuse();

  uint64_t generation_;
};

// None waits forever. ValueError, naming the argument `name`, for NaN and negative numbers.
Timeout TimeoutFromSeconds(std::optional<double> seconds, const char* name = "timeout");
// Converts the `timeout_ms` of dm-reverb's calls: negative numbers mean zero.
Timeout TimeoutFromMillis(std::optional<int64_t> millis);

// Releases the GIL, and acquires it again in the destructor. REQUIRES: the GIL.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() { Acquire(); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

  // Acquires the GIL briefly to process signals and emit the log. Returns false if the call should end:
  // because a signal handler raised (its exception is pending), or because the interpreter is exiting.
  bool ProcessSignals();
  bool interrupted() const { return interrupted_; }

 private:
  void Acquire();
  PyThreadState* state_;
  bool interrupted_ = false;
};

// One blocking call.
class Waiting {
 public:
  explicit Waiting(Timeout timeout = {}) : timeout_(timeout) {}
  // Ends the call also when `*cancelled` becomes true.
  Waiting& CancelledBy(const std::atomic<bool>* cancelled) {
    cancelled_ = cancelled;
    return *this;
  }

  // Runs call(WaitOptions), which must not use Python. Throws the exception of a signal handler.
  template <typename Call>
  auto Run(Call&& call) {
    auto result = [&] {
      GilRelease released;
      const WaitOptions wait{.timeout = timeout_, .on_wait = [&] { return OnWait(released); }};
      auto value = call(wait);
      interrupted_ = released.interrupted();
      return value;
    }();
    if (interrupted_) [[unlikely]]
      nb::raise_python_error();
    EmitLog();
    return result;
  }

 private:
  Status OnWait(GilRelease& released) const {
    if (cancelled_ && cancelled_->load()) return Status::Cancelled("closed while the call was waiting");
    return released.ProcessSignals() ? Status::Ok() : Status::Cancelled("interrupted by a signal");
  }

  Timeout timeout_;
  const std::atomic<bool>* cancelled_ = nullptr;
  bool interrupted_ = false;
};

// The wait of a call that holds the GIL unless it has to wait: used as `on_wait` of a writer's wait_for_room.
class RoomWait {
 public:
  WaitOptions options() {
    return {.timeout = {}, .on_wait = [this] { return OnWait(); }};
  }
  // Runs call() without the GIL.
  template <typename Call>
  auto Run(Call&& call) {
    bool interrupted = false;
    auto result = [&] {
      GilRelease released;
      released_ = &released;
      auto value = call();
      released_ = nullptr;
      interrupted = released.interrupted();
      return value;
    }();
    if (interrupted) [[unlikely]]
      nb::raise_python_error();
    return result;
  }
  std::atomic<bool> cancelled{false};

 private:
  Status OnWait() {
    if (cancelled.load()) return Status::Cancelled("closed while the call was waiting");
    if (released_ == nullptr || released_->ProcessSignals()) return Status::Ok();
    return Status::Cancelled("interrupted by a signal");
  }
  GilRelease* released_ = nullptr;  // while the GIL is not held
};

// Steps and samples of at least this many bytes are copied, and perhaps compressed, without the GIL. For
// smaller ones, acquiring it again costs more than other threads gain.
inline constexpr size_t kLargeStep = size_t{32} << 10;

// Returns the time to wait for confirmations when a writer is destroyed without close(): one second, or less
// shortly after a flush that timed out, so that many writers together do not take many seconds.
Timeout FlushOnDropTimeout();
void RecordFlushOnDrop(Timeout timeout, const Status& status);

// Logs that a writer was dropped (a warning) or closed (an information) with `count` unconfirmed items; does
// nothing for zero. Keeps a pending exception. REQUIRES: the GIL.
void LogDropped(int64_t count, const Status& why);
void LogClosed(int64_t count);

// Flushes and closes a writer that is being destroyed, and logs how many items were discarded. An exception
// may be pending. REQUIRES: the GIL.
template <typename Writer>
void FlushAndClose(Writer& writer) {
  Status status;
  int64_t discarded = 0;
  {
    const GilRelease released;
    const Timeout timeout = FlushOnDropTimeout();
    status = writer.Flush(0, {.timeout = timeout});
    RecordFlushOnDrop(timeout, status);
    discarded = writer.Close();
  }
  LogDropped(discarded, status);
}

// Closes a writer and logs how many items were discarded; returns their number. REQUIRES: the GIL.
template <typename Writer>
int64_t CloseWriter(Writer& writer) {
  int64_t discarded = 0;
  {
    const GilRelease released;
    discarded = writer.Close();
  }
  LogClosed(discarded);
  return discarded;
}

// A lock whose waiters release the GIL. Locking it twice in one thread (from a log handler or an object's
// __array__) raises RuntimeError, and so does locking it in a child created by fork().
class Turn {
 public:
  class Holder;
  bool is_inherited() const { return origin_.is_inherited(); }

 private:
  const Origin origin_;
  std::timed_mutex mu_;
  std::atomic<std::thread::id> owner_{};
};

class Turn::Holder {
 public:
  explicit Holder(Turn& turn) : turn_(turn) {
    turn_.origin_.Check();
    if (!turn_.mu_.try_lock()) [[unlikely]]
      Wait();
    turn_.owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  ~Holder() {
    turn_.owner_.store(std::thread::id(), std::memory_order_relaxed);
    turn_.mu_.unlock();
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  void Wait();
  Turn& turn_;
};

// Owns a value that is destroyed without the GIL, because that may block, and never in a child created by fork()
// after the value.
template <typename T>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T value) : value_(std::make_unique<T>(std::move(value))) {}
  Owned(Owned&& other) noexcept = default;
  Owned& operator=(Owned&& other) noexcept {
    Drop();
    value_ = std::move(other.value_);
    origin_ = other.origin_;
    return *this;
  }
  ~Owned() { Drop(); }

  T* operator->() const { return value_.get(); }
  T& operator*() const { return *value_; }
  explicit operator bool() const { return value_ != nullptr; }
  // Returns whether there is a value, and it was created before fork().
  bool is_inherited() const { return value_ != nullptr && origin_.is_inherited(); }

 private:
  void Drop() {
    if (!value_) return;
    if (origin_.is_inherited()) {
      (void)value_.release();  // NOLINT(bugprone-unused-return-value): leaked on purpose
    } else if (PyGILState_Check()) {
      GilRelease released;
      value_.reset();
    } else {
      value_.reset();
    }
  }
  std::unique_ptr<T> value_;
  Origin origin_;
};

}  // namespace reverb::python

#endif  // REVERB_PYTHON_GIL_H_
