#include "base/background.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <deque>
#include <utility>

#include "base/detached_thread.h"
#include "base/mutex.h"

namespace reverb::internal {
namespace {

class Worker;

// Created by the first task. Null again in a child after fork(): the parent's threads may have been changing
// theirs at that moment, so the child does not use it.
std::atomic<Worker*> current_worker{nullptr};
// The parent's, in a child; kept reachable for leak checkers.
std::atomic<Worker*> parents_worker{nullptr};

// Never destroyed once it is current.
class Worker {
 public:
  explicit Worker(Worker* parents) : parents_(parents) {}

  void Run(std::function<void()> work) EXCLUDES(mu_) {
    bool has_thread = false;
    {
      MutexLock lock(&mu_);
      if (!started_) started_ = StartThread();
      has_thread = started_;
      if (has_thread) works_.push_back(std::move(work));
    }
    if (!has_thread) return work();
    // Without the lock, which the woken thread would otherwise have to wait for.
    changed_.NotifyOne();
  }

 private:
  bool StartThread() {
    return StartDetachedThread(
        "rv-background",
        [](void* self) -> void* {
          static_cast<Worker*>(self)->Work();
          return nullptr;
        },
        this);
  }

  void Work() EXCLUDES(mu_) {
    // Keeps any other policy, which the program has chosen.
    if (const sched_param none{}; sched_getscheduler(0) == SCHED_OTHER)
      sched_setscheduler(0, SCHED_BATCH, &none);
    // Becomes false only in a child that a task forked, where this is the only thread.
    while (current_worker.load(std::memory_order_acquire) == this) {
      const std::function<void()> work = Next();
      work();
    }
  }

  std::function<void()> Next() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    while (works_.empty()) changed_.Wait(&mu_);
    std::function<void()> work = std::move(works_.front());
    works_.pop_front();
    return work;
  }

  [[maybe_unused]] Worker* const parents_;  // for leak checkers

  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> works_ GUARDED_BY(mu_);
  bool started_ GUARDED_BY(mu_) = false;
};

Worker* CurrentWorker() {
  Worker* worker = current_worker.load(std::memory_order_acquire);
  if (worker != nullptr) return worker;
  Worker* const fresh = new Worker(parents_worker.load(std::memory_order_relaxed));
  if (current_worker.compare_exchange_strong(worker, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;  // another thread has created one
  return worker;
}

// Runs while the program is loaded, so that no thread can fork() during the registration. Registering fails
// only if memory is exhausted; then children have no worker.
[[maybe_unused]] const bool kWorkerPreparedForFork = [] {
  return pthread_atfork(nullptr, nullptr, [] {
           parents_worker.store(current_worker.load(std::memory_order_relaxed), std::memory_order_relaxed);
           current_worker.store(nullptr, std::memory_order_relaxed);
         }) == 0;
}();

}  // namespace

void RunInBackground(std::function<void()> work) { CurrentWorker()->Run(std::move(work)); }

}  // namespace reverb::internal
