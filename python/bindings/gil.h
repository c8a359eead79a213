// gil.h — waiting without the GIL, and what endings (signals, the interpreter's exit, fork) mean for it.
//
//   const Status status = Waiting(timeout).Run([&](const WaitOptions& wait) { return writer.Flush(0, wait);
//   });
//
// A wait lets go of the GIL and takes it about every 50 ms to let Python see signals and to hand over log
// messages. A handler that raises (Ctrl-C does) ends the wait, and the exception goes to the caller.
//
// At the interpreter's exit a thread that wants the GIL back would be ended by Python in the middle of C++
// frames; ours is put to sleep instead.
//
// After fork() the child has none of the library's threads: whatever was made before is not touched there,
// and new things cannot be made. See CheckFork().
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

// Whether the interpreter is ending: modules may be half gone.
bool IsFinalizing();

// True in a child made by fork() after the library had been used in the parent.
bool IsForkedChild();
// RuntimeError in such a child, with the remedy.
void CheckFork();
// Says that the library has threads from now on.
void NoteUse();

// None waits for ever. ValueError for NaN and below zero; `name` is the argument's.
Timeout TimeoutFromSeconds(std::optional<double> seconds, const char* name = "timeout");
// The `timeout_ms` of dm-reverb's calls: below zero is zero.
Timeout TimeoutFromMillis(std::optional<int64_t> millis);

// Lets go of the GIL, and takes it again when destroyed. REQUIRES: the GIL.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() { Acquire(); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

  // Takes the GIL for a moment: signals, log. False when the call should end: because a signal handler
  // raised, whose exception is then pending, or because the interpreter is ending.
  bool Look();
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
  // The call also ends when `*cancelled` becomes true.
  Waiting& CancelledBy(const std::atomic<bool>* cancelled) {
    cancelled_ = cancelled;
    return *this;
  }

  // call(WaitOptions), which must not touch Python. Throws what a signal handler raised.
  template <typename Call>
  auto Run(Call&& call) {
    CheckFork();
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
    return released.Look() ? Status::Ok() : Status::Cancelled("interrupted by a signal");
  }

  Timeout timeout_;
  const std::atomic<bool>* cancelled_ = nullptr;
  bool interrupted_ = false;
};

// The wait of a call that holds the GIL as long as it need not wait: what `on_wait` of a writer's
// wait_for_room does.
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
    if (released_ == nullptr || released_->Look()) return Status::Ok();
    return Status::Cancelled("interrupted by a signal");
  }
  GilRelease* released_ = nullptr;  // while the GIL is not held
};

// A step or sample of so many bytes is copied, and perhaps compressed, without the GIL. Below, taking it
// again costs more than others could gain.
inline constexpr size_t kLargeStep = size_t{32} << 10;

// What a writer that is dropped without close() gives its items to be confirmed: a second, and a moment
// for those that are dropped soon after one for which that was not enough, so that many do not take many
// seconds.
Timeout FarewellTime();
void NoteFarewell(Timeout time, const Status& status);

// Logs, at once, that a writer was dropped, or closed, with `count` items that are not confirmed; does
// nothing where there are none. The former is a warning. Leave a pending exception alone. REQUIRES: the GIL.
void LogDropped(int64_t count, const Status& why);
void LogClosed(int64_t count);

// Ends a writer that is dropped: sends what there is, closes it, and logs how many items were discarded.
// For destructors: an exception may be pending. REQUIRES: the GIL.
template <typename Writer>
void DropWriter(Writer& writer) {
  Status status;
  int64_t discarded = 0;
  {
    const GilRelease released;
    const Timeout timeout = FarewellTime();
    status = writer.Flush(0, {.timeout = timeout});
    NoteFarewell(timeout, status);
    discarded = writer.Close();
  }
  LogDropped(discarded, status);
}

// Closes a writer, and logs how many items were discarded; returns their number. REQUIRES: the GIL.
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

// One thread at a time: others wait without the GIL, the same thread (a log handler, an object's
// __array__) gets a RuntimeError.
class Turn {
 public:
  class Holder;

 private:
  std::timed_mutex mu_;
  std::atomic<std::thread::id> owner_{};
};

class Turn::Holder {
 public:
  explicit Holder(Turn& turn) : turn_(turn) {
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

// Owns what must be destroyed without the GIL, since that may wait; and not at all in a forked child.
template <typename T>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T value) : value_(std::make_unique<T>(std::move(value))) {}
  Owned(Owned&& other) noexcept = default;
  Owned& operator=(Owned&& other) noexcept {
    Drop();
    value_ = std::move(other.value_);
    return *this;
  }
  ~Owned() { Drop(); }

  T* operator->() const { return value_.get(); }
  T& operator*() const { return *value_; }
  explicit operator bool() const { return value_ != nullptr; }

 private:
  void Drop() {
    if (!value_) return;
    if (IsForkedChild()) {
      (void)value_.release();  // NOLINT(bugprone-unused-return-value): left to the end of the process
    } else if (PyGILState_Check()) {
      GilRelease released;
      value_.reset();
    } else {
      value_.reset();
    }
  }
  std::unique_ptr<T> value_;
};

}  // namespace reverb::python

#endif  // REVERB_PYTHON_GIL_H_
