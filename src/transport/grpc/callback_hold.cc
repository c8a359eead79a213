#include "transport/grpc/callback_hold.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "transport/grpc/grpc_internal.h"

namespace reverb::internal {

namespace {

// How often calls are counted. Callbacks of others may have to wait for two of these, or for kMaxHoldTime at worst, if one
// of the threads is blocked.
constexpr Duration kHoldCheckInterval = std::chrono::milliseconds(20);
// A hold begins with so many calls in an interval, and ends with fewer than these.
constexpr uint64_t kMinCallsToHold = 16;
constexpr uint64_t kMinCallsToStay = 4;
// How long a hold lasts when nothing extends it.
constexpr Duration kMaxHoldTime = 5 * kHoldCheckInterval;

// Whether this thread is in Post().
thread_local bool is_posting = false;

// Returns how many threads may be held. gRPC has half as many callback threads as there are processors, within bounds.
// None if a program has chosen another way to wait than epoll, in which a caller waits for its own sockets only.
int NumCallbackThreads() {
  const char* const strategy = std::getenv("GRPC_POLL_STRATEGY");
  if (strategy != nullptr && std::string_view(strategy).find("epoll") == std::string_view::npos) return 0;
  return static_cast<int>(std::clamp(sysconf(_SC_NPROCESSORS_CONF) / 2, 2l, 16l));
}

}  // namespace

CallbackHold& CallbackHold::Get() {
  static auto* const hold = new CallbackHold(&RunOnCallbackThread, NumCallbackThreads());
  return *hold;
}

void CallbackHold::Release(State next) {
  if (state_ == State::kHolding) {
    ++number_;
    released_.NotifyAll();
  }
  looked_ = RealClock()->Now();
  seen_calls_ = num_calls_;
  state_ = next;
}

void CallbackHold::FollowUsers() {
  MutexLock lock(&mu_);
  // Both may have happened meanwhile.
  const State next = num_users_ > 0 ? State::kNeeded : State::kWorking;
  if (next == State::kNeeded || state_ == State::kNeeded) Release(next);
}

void CallbackHold::HoldIfFrequent() {
  uint64_t number = 0;
  {
    MutexLock lock(&mu_);
    if (state_ != State::kWorking || num_users_ > 0 || num_threads_ == 0) return;
    // Not before an interval without users has passed: else a stream that is used now and then would end a hold each time.
    const TimePoint now = RealClock()->Now();
    if (now - looked_ < kHoldCheckInterval) return;
    const uint64_t calls = num_calls_;
    const bool is_frequent = calls - seen_calls_ >= kMinCallsToHold && now - looked_ < 2 * kHoldCheckInterval;
    looked_ = now;
    seen_calls_ = calls;
    if (!is_frequent) return;
    end_ = now + kMaxHoldTime;
    has_watcher_ = false;
    number = ++number_;
    state_ = State::kHolding;
  }
  for (int i = 0; i < num_threads_; ++i) Post(number);
}

void CallbackHold::Post(uint64_t number) {
  is_posting = true;
  run_([this, number] { Sleep(number); });
  is_posting = false;
}

void CallbackHold::Sleep(uint64_t number) {
  bool is_extended = false;
  {
    MutexLock lock(&mu_);
    if (number != number_) return;
    // gRPC has called this on the stack of the thread that needs it.
    if (is_posting) return Release(State::kNeeded);
    const bool is_watcher = !has_watcher_;
    has_watcher_ = true;
    ++num_held_;
    while (number == number_ && !is_extended) {
      const TimePoint until = is_watcher ? looked_ + kHoldCheckInterval : end_;
      const TimePoint now = RealClock()->Now();
      if (now < until) {
        released_.WaitFor(&mu_, until - now);
      } else if (!is_watcher || num_calls_ - seen_calls_ < kMinCallsToStay) {
        Release(State::kWorking);
      } else {
        looked_ = now;
        seen_calls_ = num_calls_;
        end_ = now + kMaxHoldTime;
        has_watcher_ = false;
        is_extended = true;
      }
    }
    --num_held_;
  }
  // After the callbacks that wait for a thread.
  if (is_extended) Post(number);
}

}  // namespace reverb::internal
