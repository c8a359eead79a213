// callback_threads.h — keeps a thread of gRPC away from its sockets while one suffices.
//
// gRPC 1.51 has at least two threads that wait for events and run our callbacks. Whenever one of them gets an event, it
// wakes the other, which then waits in its place. On a machine with few processors that costs a single call a third of
// its time. So one of the two threads sleeps in reserve, inside a callback of its own, as long as the other has little
// to do. Every few milliseconds it looks whether the other is busy or stuck in a callback, and then returns to
// work; when both have little to do, one sleeps again.
//
// Only in processes with a server on machines with so few processors that gRPC has two threads: clients and larger
// machines gain nothing.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_TRANSPORT_GRPC_CALLBACK_THREADS_H_
#define REVERB_TRANSPORT_GRPC_CALLBACK_THREADS_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/parker.h"

namespace reverb::internal {

class CallbackThreads {
 public:
  // Runs its argument on one of gRPC's threads, soon.
  using RunOnThread = void (*)(std::function<void()> function);

  // Returns the threads of this process. Never destroyed.
  static CallbackThreads& Get();

  // Starts to keep a thread in reserve if this machine gains by it, or with `always`.
  void KeepReserve(RunOnThread run, bool always = false);
  // Returns whether a thread sleeps in reserve now.
  bool has_reserve() const {
    const State state = state_.load(std::memory_order_relaxed);
    return state == State::kWatching || state == State::kAsleep;
  }

  // Marks a callback of ours on a thread of gRPC.
  class Scope {
   public:
    Scope() {
      if (Get().state_.load(std::memory_order_relaxed) != State::kOff) Get().Enter();
    }
    ~Scope() {
      if (Get().state_.load(std::memory_order_relaxed) != State::kOff) Get().Leave();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

 private:
  enum class State : uint8_t {
    kOff,        // all threads work, always
    kWorking,    // all threads work
    kRecalling,  // one of them will sleep soon
    kWatching,   // one sleeps, and looks at the others every few milliseconds
    kAsleep,     // one sleeps until there is a callback
  };
  struct Thread {
    pid_t id = 0;                        // of the kernel
    clockid_t clock = 0;                 // its processor time
    std::atomic<uint64_t> num_calls{0};  // odd: in a callback
    int depth = 0;                       // of callbacks; used by the thread only
  };

  CallbackThreads() = default;

  void Enter();
  void Leave();
  // Returns the calling thread's entry.
  Thread* Mine() EXCLUDES(mu_);
  // Lets a thread sleep if all had little to do since the last call.
  void RecallIfIdle() EXCLUDES(mu_);
  // What the thread in reserve does.
  void Reserve() EXCLUDES(mu_);
  struct Look {
    TimePoint at;
    Duration time{0};             // in which they were not idle
    std::vector<uint64_t> calls;  // num_calls of each
  };
  // Looks at all threads but this one.
  Look LookAtOthers(const Thread* mine) const EXCLUDES(mu_);
  // Returns whether a thread has been in the same callback since `before`.
  static bool IsStuck(const std::vector<uint64_t>& before, const std::vector<uint64_t>& now);

  RunOnThread run_ = nullptr;  // set before the first callback
  std::atomic<State> state_{State::kOff};
  std::atomic<int64_t> next_check_{0};  // of kWorking, on the coarse clock
  Parker reserve_;

  mutable Mutex mu_;
  std::vector<std::unique_ptr<Thread>> threads_ GUARDED_BY(mu_);
  Look checked_ GUARDED_BY(mu_);  // all threads, at the last check of kWorking
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_CALLBACK_THREADS_H_
