// task_pool.h — runs tasks that may block for long on threads that are reused.
//
// Starting a thread costs more than a short call to a server. A pool keeps the threads of finished tasks for a
// while. It never queues a task behind another one, since that may wait for a lost server: if no thread is idle, it
// starts one.
#ifndef REVERB_BASE_TASK_POOL_H_
#define REVERB_BASE_TASK_POOL_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>

#include "base/clock.h"
#include "base/mutex.h"

namespace reverb::internal {

// Threads: all methods may be called concurrently.
class TaskPool {
 public:
  // How long an idle thread is kept.
  static constexpr Duration kIdleTimeout = std::chrono::seconds(10);

  TaskPool() : TaskPool(kIdleTimeout) {}
  explicit TaskPool(Duration idle_timeout) : idle_timeout_(idle_timeout) {}
  // Waits for the tasks that run.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Runs the task on another thread, at once. Returns false, without running it, if the system cannot create a
  // thread. The task must not throw.
  [[nodiscard]] bool Run(std::function<void()> task) EXCLUDES(mu_);

  int64_t num_threads() const EXCLUDES(mu_);
  // Returns how many threads were started so far.
  int64_t num_started() const EXCLUDES(mu_);

 private:
  static void* RunThread(void* pool);
  void RunTasks() EXCLUDES(mu_);

  const Duration idle_timeout_;

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mu_);  // one for each thread that is about to take it
  int64_t idle_ GUARDED_BY(mu_) = 0;                         // threads that wait, at least as many as tasks_
  int64_t threads_ GUARDED_BY(mu_) = 0;
  int64_t started_ GUARDED_BY(mu_) = 0;
  bool is_stopped_ GUARDED_BY(mu_) = false;
};

// Returns the pool of this process; a child created by fork() has its own. It is never destroyed.
TaskPool& ProcessTaskPool();

}  // namespace reverb::internal

#endif  // REVERB_BASE_TASK_POOL_H_
