// strand.h — runs the steps of one object one at a time, on the threads that report its events.
//
// Threads report events to an object, and the object reacts with calls across the transport: it sends,
// reads or ends. These calls must be made one at a time and without a lock held, since they may call back on
// the same thread. A Strand decides which thread makes them:
//
//   void OnSent() {
//     MutexLock lock(&mu_);
//     is_ready_ = true;
//     strand_.Run([this]() REQUIRES(mu_) { return Step(); });
//   }
//   Strand::Next Step() REQUIRES(mu_) {
//     if (!is_ready_ || queue_.empty()) return Strand::Next::kWait;
//     Message message = Take(&queue_);
//     is_ready_ = false;
//     mu_.Unlock();
//     const bool is_ready = stream->Send(std::move(message));  // may call OnSent()
//     mu_.Lock();
//     is_ready_ |= is_ready;
//     return Strand::Next::kAgain;
//   }
//
// An event updates the guarded state and calls Run(). If a step is running already, on another thread or
// further up on this stack, Run() makes the running call take another step and returns. What is due is
// decided only in the step, from the guarded state; so is whether the receiver accepts another message.
//
//   state          meaning                                 Run()          Schedule()  Close()
//   kIdle          nothing to do                           runs steps     kScheduled  kClosed, true
//   kScheduled     another thread is going to call Run()   runs steps     unchanged   kClosed, true
//   kRunning       a step runs, with or without the lock   kRunningAgain  as Run()    kClosing
//   kRunningAgain  the same, and another step must follow  unchanged      unchanged   kClosing
//   kClosing       closed; the last step has not returned  unchanged      unchanged   unchanged
//   kClosed        closed                                  unchanged      unchanged   unchanged
//
// Invariants: (1) At most one step runs. (2) Unless the strand is closed, a step begins after every call of
// Run(), and after every call of Schedule() once the scheduled Run() starts; so no event is missed. (3) After
// Close() no step begins. (4) Of all calls of Run() and Close(), at most one returns true, and exactly one
// does once the strand is closed and no step runs.
//
// Ownership: the owner must live until its calls of Run() have returned, except after the one that returned
// true: see Run().
// Threads: a Strand has no lock. Declare it `Strand strand_ GUARDED_BY(mu_)`.
#ifndef REVERB_BASE_STRAND_H_
#define REVERB_BASE_STRAND_H_

#include <cstdint>

#include "base/mutex.h"

namespace reverb::internal {

class Strand {
 public:
  // What to do after a step.
  enum class Next : uint8_t {
    kWait,   // nothing is due: return, unless an event arrived while the step had released the lock
    kAgain,  // take another step
    kClose,  // close the strand
  };

  Strand() = default;
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  // Calls `step` until nothing is due. The step is called with the owner's lock held, returns with it held,
  // and may release it in between.
  //
  // Returns true when this call has closed the strand, that is, when the step returned kClose or Close() was
  // called while it ran. No step is running then and none will. The caller may release the lock and make the
  // final call, such as one after which another thread destroys the owner.
  template <typename Step>
  bool Run(Step&& step) NO_THREAD_SAFETY_ANALYSIS {
    if (!Begin()) return false;
    while (true) {
      state_ = State::kRunning;
      const Next next = step();
      if (state_ == State::kClosing || next == Next::kClose) {
        state_ = State::kClosed;
        return true;
      }
      if (next == Next::kWait && state_ == State::kRunning) break;
    }
    state_ = State::kIdle;
    return false;
  }

  // Leaves the steps to another thread. Returns true if the caller must have that thread call Run(); false
  // if that has been arranged, if a step is running, which another one will follow, or if the strand is
  // closed. Any Run() that comes first takes the steps.
  bool Schedule() {
    if (state_ == State::kRunning) state_ = State::kRunningAgain;
    if (state_ != State::kIdle) return false;
    state_ = State::kScheduled;
    return true;
  }

  // Closes the strand. Returns true if no step is running: the caller makes the final call, as after Run().
  // If a step is running, the Run() that called it returns true. To wait for that, wait on a condition
  // variable of the owner until is_running() is false.
  bool Close() {
    if (is_closed()) return false;
    const bool was_running = is_running();
    state_ = was_running ? State::kClosing : State::kClosed;
    return !was_running;
  }

  // Returns whether a thread is inside Run(), with or without the lock.
  bool is_running() const {
    return state_ == State::kRunning || state_ == State::kRunningAgain || state_ == State::kClosing;
  }
  bool is_scheduled() const { return state_ == State::kScheduled; }
  bool is_closed() const { return state_ == State::kClosing || state_ == State::kClosed; }

 private:
  enum class State : uint8_t { kIdle, kScheduled, kRunning, kRunningAgain, kClosing, kClosed };

  // Returns whether the caller must run the steps. If another call runs them, makes it take one more.
  bool Begin() {
    if (state_ == State::kRunning) state_ = State::kRunningAgain;
    return state_ == State::kIdle || state_ == State::kScheduled;
  }

  State state_ = State::kIdle;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_STRAND_H_
