#include "base/task_pool.h"

#include <utility>

#include "base/detached_thread.h"
#include "base/fork.h"

namespace reverb::internal {
namespace {

PerProcess<TaskPool> process_task_pool;

}  // namespace

TaskPool::~TaskPool() {
  MutexLock lock(&mu_);
  is_stopped_ = true;
  changed_.NotifyAll();
  while (threads_ > 0) changed_.Wait(&mu_);
}

bool TaskPool::Run(std::function<void()> task) {
  MutexLock lock(&mu_);
  const bool has_idle = static_cast<int64_t>(tasks_.size()) < idle_;
  tasks_.push_back(std::move(task));
  if (has_idle) {
    changed_.NotifyOne();
    return true;
  }
  // A new thread counts as idle until it takes a task.
  ++idle_;
  ++threads_;
  ++started_;
  if (StartDetachedThread("rv-calls", &RunThread, this)) return true;
  --idle_;
  --threads_;
  --started_;
  tasks_.pop_back();
  return false;
}

int64_t TaskPool::num_threads() const {
  MutexLock lock(&mu_);
  return threads_;
}

int64_t TaskPool::num_started() const {
  MutexLock lock(&mu_);
  return started_;
}

void* TaskPool::RunThread(void* pool) {
  static_cast<TaskPool*>(pool)->RunTasks();
  return nullptr;
}

void TaskPool::RunTasks() {
  MutexLock lock(&mu_);
  while (true) {
    const auto idle_since = std::chrono::steady_clock::now();
    while (tasks_.empty() && !is_stopped_) {
      const Duration left = idle_timeout_ - (std::chrono::steady_clock::now() - idle_since);
      if (left <= Duration(0)) break;
      changed_.WaitFor(&mu_, left);
    }
    --idle_;
    if (tasks_.empty()) break;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    mu_.Unlock();
    task();
    task = nullptr;  // what it refers to is released before the thread counts as idle
    mu_.Lock();
    ++idle_;
  }
  --threads_;
  changed_.NotifyAll();
}

TaskPool& ProcessTaskPool() { return process_task_pool.get(); }

}  // namespace reverb::internal
