#include "transport/grpc/completion_threads.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <system_error>
#include <utility>

namespace reverb::internal {

namespace {

// How often the number of threads is considered.
constexpr Duration kLookEvery = std::chrono::milliseconds(50);
// Another thread comes when those there are work for more than this share of the time; one goes when the rest
// would have less than that.
constexpr double kBusy = 0.75;
constexpr double kIdle = 0.5;

// How many threads that are held up are made good for.
constexpr size_t kMostHeldUp = 16;

size_t MostNeeded() {
  constexpr size_t kMany = 16;
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMany);
}

// The processor time that a thread has had.
Duration CpuTime(std::thread* thread) {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread->native_handle(), &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return Duration(0);
  }
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

CompletionThreads::CompletionThreads(std::unique_ptr<grpc::ServerCompletionQueue> queue)
    : queue_(std::move(queue)), most_needed_(MostNeeded()) {}

CompletionThreads::~CompletionThreads() { Stop(); }

Status CompletionThreads::Start() {
  MutexLock lock(&mu_);
  if (AddWorker()) {
    try {
      watcher_ = std::thread([this] { Watch(); });
      return Status::Ok();
    } catch (const std::system_error&) {  // no more threads to be had
    }
  }
  return Status::ResourceExhausted("the server cannot start its threads: the system allows no more of them");
}

void CompletionThreads::Stop() {
  std::vector<std::unique_ptr<Worker>> workers;
  std::thread watcher;
  {
    MutexLock lock(&mu_);
    if (!closed_) queue_->Shutdown();
    closed_ = true;
    workers.swap(workers_);
    watcher.swap(watcher_);
  }
  changed_.NotifyAll();
  if (watcher.joinable()) watcher.join();
  for (const std::unique_ptr<Worker>& worker : workers) worker->thread.join();
  // Without threads this is who empties the queue, as gRPC demands.
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<CompletionTag*>(tag)->Proceed(ok);
}

bool CompletionThreads::AddWorker() {
  auto worker = std::make_unique<Worker>();
  try {
    worker->thread = std::thread([this, raw = worker.get(), index = workers_.size()] { Work(raw, index); });
  } catch (const std::system_error&) {
    return false;
  }
  workers_.push_back(std::move(worker));
  return true;
}

void CompletionThreads::Work(Worker* worker, size_t index) {
  pthread_setname_np(pthread_self(), "rv-serve");
  void* tag = nullptr;
  bool ok = false;
  uint64_t steps = 0;
  for (;;) {
    if (index >= wanted_.load(std::memory_order_relaxed) && !AwaitTurn(index)) return;
    if (!queue_->Next(&tag, &ok)) return;
    worker->steps.store(++steps, std::memory_order_relaxed);
    static_cast<CompletionTag*>(tag)->Proceed(ok);
    worker->steps.store(++steps, std::memory_order_relaxed);
  }
}

bool CompletionThreads::AwaitTurn(size_t index) {
  MutexLock lock(&mu_);
  while (!closed_ && index >= wanted_.load(std::memory_order_relaxed)) changed_.Wait(&mu_);
  return !closed_;
}

void CompletionThreads::Watch() {
  pthread_setname_np(pthread_self(), "rv-serve-watch");
  auto last = std::chrono::steady_clock::now();
  MutexLock lock(&mu_);
  while (!closed_) {
    changed_.WaitFor(&mu_, kLookEvery);
    const auto now = std::chrono::steady_clock::now();
    if (closed_ || now - last < kLookEvery / 2) continue;
    Look(now - std::exchange(last, now));
  }
}

void CompletionThreads::Look(Duration elapsed) {
  Duration used{0};
  size_t held_up = 0;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    const Duration cpu = CpuTime(&worker->thread);
    used += cpu - std::exchange(worker->seen_cpu, cpu);
    const uint64_t steps = worker->steps.load(std::memory_order_relaxed);
    const bool reacting = steps % 2 == 1;
    if (steps == std::exchange(worker->seen_steps, steps) && reacting) ++held_up;
  }
  const double cores = std::chrono::duration<double>(used) / std::chrono::duration<double>(elapsed);
  if (cores > kBusy * static_cast<double>(needed_)) {
    needed_ = std::min(needed_ + 1, most_needed_);
  } else if (needed_ > 1 && cores < kIdle * static_cast<double>(needed_ - 1)) {
    --needed_;
  }
  const size_t wanted = needed_ + std::min(held_up, kMostHeldUp);
  while (workers_.size() < wanted && AddWorker()) {
  }
  if (wanted_.exchange(wanted, std::memory_order_relaxed) < wanted) changed_.NotifyAll();
}

}  // namespace reverb::internal
