// callback_hold.h — keeps gRPC's callback threads away from the sockets while a process makes single calls only.
//
// In gRPC 1.51 one thread of a process at a time waits for the events of all sockets. When it gets one, it lets another
// waiting thread wait in its place, and callback threads always wait. So a thread that makes a single call, and waits for
// the answer, hardly ever gets it itself: a callback thread does, wakes another one to wait, and then wakes the caller.
// On two processors these wake-ups take up to a quarter of the time of the call.
//
// Streams and servers need the callback threads, single calls do not. So while a process makes single calls often, and has
// neither a server nor a stream that waits for its server, its callback threads sleep, each inside a callback. They
// return to work at once when a stream is used, and after some milliseconds without single calls. One of them returns for
// a moment every 20 ms nevertheless, and runs the callbacks that wait: for the end of a stream that is not used, and for
// those of a program that uses gRPC itself. (The callers wait for the events of all sockets meanwhile.)
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_TRANSPORT_GRPC_CALLBACK_HOLD_H_
#define REVERB_TRANSPORT_GRPC_CALLBACK_HOLD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace reverb::internal {

class CallbackHold {
 public:
  // Runs its argument on one of the callback threads, soon.
  using RunOnThread = std::function<void(std::function<void()> function)>;

  // `num_threads`: how many threads there are; 0: none is held. If there are fewer, all sleep nevertheless.
  CallbackHold(RunOnThread run, int num_threads) : run_(std::move(run)), num_threads_(num_threads) {}
  CallbackHold(const CallbackHold&) = delete;
  CallbackHold& operator=(const CallbackHold&) = delete;

  // Returns that of gRPC's threads in this process. Never destroyed.
  static CallbackHold& Get();

  // Something that waits for a callback. The threads work as long as there is one.
  class User {
   public:
    explicit User(CallbackHold* hold = &Get()) : hold_(hold) { hold_->AddUser(); }
    ~User() { hold_->RemoveUser(); }
    User(const User&) = delete;
    User& operator=(const User&) = delete;

   private:
    CallbackHold* const hold_;
  };

  // To be called for each single call. REQUIRES: InitGrpc() was successful.
  void CountCall() EXCLUDES(mu_) {
    num_calls_.fetch_add(1, std::memory_order_relaxed);
    if (state_.load(std::memory_order_relaxed) == State::kWorking) HoldIfFrequent();
  }
  // Returns whether the threads sleep, or are about to.
  bool is_holding() const { return state_.load(std::memory_order_relaxed) == State::kHolding; }
  // Returns how many threads sleep.
  int num_held() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return num_held_;
  }

 private:
  enum class State : uint8_t {
    kNeeded,   // there is a user, or this gRPC cannot hold threads
    kWorking,  // the threads work, since there are few single calls
    kHolding,  // they sleep, or are about to
  };

  void AddUser() EXCLUDES(mu_) {
    if (num_users_.fetch_add(1) == 0) FollowUsers();
  }
  void RemoveUser() EXCLUDES(mu_) {
    if (num_users_.fetch_sub(1) == 1) FollowUsers();
  }
  // Changes the state after the first user came, or the last one left.
  void FollowUsers() EXCLUDES(mu_);
  void HoldIfFrequent() EXCLUDES(mu_);
  // What a callback thread does in hold `number`.
  void Sleep(uint64_t number) EXCLUDES(mu_);
  // Runs Sleep() on a callback thread.
  void Post(uint64_t number) EXCLUDES(mu_);
  void Release(State next) REQUIRES(mu_);

  const RunOnThread run_;
  const int num_threads_;
  std::atomic<uint64_t> num_calls_{0};
  std::atomic<int64_t> num_users_{0};
  std::atomic<State> state_{State::kWorking};  // changed under the lock

  mutable Mutex mu_;
  CondVar released_;
  uint64_t number_ GUARDED_BY(mu_) = 0;       // of the hold; the threads of another one return
  int num_held_ GUARDED_BY(mu_) = 0;          // threads that sleep
  bool has_watcher_ GUARDED_BY(mu_) = false;  // one of them looks for calls
  uint64_t seen_calls_ GUARDED_BY(mu_) = 0;   // num_calls_ at the last look
  TimePoint looked_ GUARDED_BY(mu_);          // when that was
  TimePoint end_ GUARDED_BY(mu_);             // of the hold, unless the watcher extends it
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_CALLBACK_HOLD_H_
