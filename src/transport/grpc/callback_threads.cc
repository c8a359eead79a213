#include "transport/grpc/callback_threads.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

namespace reverb::internal {

namespace {

// gRPC has half as many threads as there are processors, but at least two.
constexpr unsigned kMaxProcessors = 5;
// How often the thread in reserve looks at the others.
constexpr Duration kStep = std::chrono::milliseconds(5);
// After so many steps without a callback it looks no more.
constexpr int kMaxIdleSteps = 200;
// How often it is checked whether a thread may sleep.
constexpr Duration kCheckInterval = std::chrono::milliseconds(20);
// The share of the time in which the threads are not idle: above the first for two steps, both work; below the second,
// one sleeps. Waiting for a processor counts, since two threads get more of a busy machine than one.
constexpr double kBusyShare = 0.7;
constexpr double kIdleShare = 0.6;

int64_t CoarseNanos() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// Returns how long a thread has run or has waited for a processor; without the latter if the kernel does not tell.
Duration BusyTime(pid_t thread, clockid_t clock) {
  char text[96] = {};
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/schedstat";
  if (const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC); fd >= 0) {
    const ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    unsigned long long ran = 0;
    unsigned long long waited = 0;
    if (bytes > 0 && std::sscanf(text, "%llu %llu", &ran, &waited) == 2) {
      return std::chrono::nanoseconds(ran) + std::chrono::nanoseconds(waited);
    }
  }
  timespec time = {};
  if (clock_gettime(clock, &time) != 0) return Duration(0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

double ShareOf(Duration time, Duration wall) {
  return static_cast<double>(time.count()) / static_cast<double>(std::max<int64_t>(wall.count(), 1));
}

}  // namespace

CallbackThreads& CallbackThreads::Get() {
  static auto* const threads = new CallbackThreads;
  return *threads;
}

void CallbackThreads::KeepReserve(RunOnThread run, bool always) {
  if (!always && std::thread::hardware_concurrency() > kMaxProcessors) return;
  MutexLock lock(&mu_);
  if (state_ != State::kOff) return;
  run_ = run;
  checked_.at = RealClock()->Now();
  state_ = State::kWorking;
}

CallbackThreads::Thread* CallbackThreads::Mine() {
  thread_local Thread* mine = nullptr;
  if (mine != nullptr) return mine;
  auto thread = std::make_unique<Thread>();
  thread->id = gettid();
  pthread_getcpuclockid(pthread_self(), &thread->clock);
  MutexLock lock(&mu_);
  mine = threads_.emplace_back(std::move(thread)).get();
  return mine;
}

void CallbackThreads::Enter() {
  Thread* const mine = Mine();
  if (mine->depth++ == 0) mine->num_calls.fetch_add(1);
  switch (state_.load()) {
    case State::kWorking:
      if (CoarseNanos() >= next_check_.load(std::memory_order_relaxed)) RecallIfIdle();
      break;
    case State::kAsleep:
      reserve_.Unpark();
      break;
    default:
      break;
  }
}

void CallbackThreads::Leave() {
  Thread* const mine = Mine();
  // The first call of a thread may have begun when there was no reserve.
  if (mine->depth > 0 && --mine->depth == 0) mine->num_calls.fetch_add(1);
}

CallbackThreads::Look CallbackThreads::LookAtOthers(const Thread* mine) const {
  Look look{.at = RealClock()->Now()};
  MutexLock lock(&mu_);
  for (const auto& thread : threads_) {
    if (thread.get() == mine) continue;
    look.time += BusyTime(thread->id, thread->clock);
    look.calls.push_back(thread->num_calls.load());
  }
  return look;
}

void CallbackThreads::RecallIfIdle() {
  next_check_ = CoarseNanos() + kCheckInterval.count();
  const Look look = LookAtOthers(nullptr);
  {
    MutexLock lock(&mu_);
    const Look before = std::exchange(checked_, look);
    if (ShareOf(look.time - before.time, look.at - before.at) > kIdleShare) return;
  }
  State expected = State::kWorking;
  if (!state_.compare_exchange_strong(expected, State::kRecalling)) return;
  run_([] { Get().Reserve(); });
}

void CallbackThreads::Reserve() {
  const Thread* const mine = Mine();
  if (mine->depth > 0) {  // gRPC has called this on the stack of another callback, which must not wait
    state_ = State::kOff;
    return;
  }
  state_ = State::kWatching;
  int num_busy_steps = 0;
  int num_idle_steps = 0;
  Look before = LookAtOthers(mine);
  while (num_busy_steps < 2) {
    if (num_idle_steps >= kMaxIdleSteps) {
      state_ = State::kAsleep;
      // A callback that began before it could see this state does not wake the thread.
      if (LookAtOthers(mine).calls == before.calls) reserve_.Park();
      state_ = State::kWatching;
      num_idle_steps = 0;
      before = LookAtOthers(mine);
    }
    const TimePoint end = before.at + kStep;
    for (TimePoint now = before.at; now < end; now = RealClock()->Now()) reserve_.ParkFor(end - now);
    Look look = LookAtOthers(mine);
    if (IsStuck(before.calls, look.calls)) break;
    num_busy_steps =
        ShareOf(look.time - before.time, look.at - before.at) >= kBusyShare ? num_busy_steps + 1 : 0;
    num_idle_steps = look.calls == before.calls ? num_idle_steps + 1 : 0;
    before = std::move(look);
  }
  const Look all = LookAtOthers(nullptr);
  {
    MutexLock lock(&mu_);
    checked_ = all;
  }
  next_check_ = CoarseNanos() + kCheckInterval.count();
  state_ = State::kWorking;
}

bool CallbackThreads::IsStuck(const std::vector<uint64_t>& before, const std::vector<uint64_t>& now) {
  // Odd: it was in a callback. None: the others have not called back yet.
  bool is_stuck = now.empty();
  for (size_t i = 0; i < before.size() && i < now.size(); ++i) {
    is_stuck |= now[i] == before[i] && now[i] % 2 == 1;
  }
  return is_stuck;
}

}  // namespace reverb::internal
