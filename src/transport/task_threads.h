// task_threads.h — threads for tasks that take too long for the few threads of a transport.
//
// Threads: all methods may be called concurrently. Tasks must not call JoinAll().
#ifndef REVERB_TRANSPORT_TASK_THREADS_H_
#define REVERB_TRANSPORT_TASK_THREADS_H_

#include <pthread.h>

#include <functional>
#include <list>
#include <system_error>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace reverb::internal {

class TaskThreads {
 public:
  ~TaskThreads() { JoinAll(); }

  // Runs `work` on a thread of its own. Returns false if too many run already, or JoinAll() was called.
  bool Start(std::function<void()> work) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (closed_) return false;
    Reap();
    if (tasks_.size() >= kMaxTasks) return false;
    Task& task = tasks_.emplace_back();
    try {
      task.thread = std::thread([this, &task, work = std::move(work)] {
        pthread_setname_np(pthread_self(), "rv-checkpoint");
        work();
        MutexLock done_lock(&mu_);
        task.done = true;
      });
    } catch (const std::system_error&) {  // the system has no more threads
      tasks_.pop_back();
      return false;
    }
    return true;
  }

  // Waits for all tasks. None can be started afterwards.
  void JoinAll() EXCLUDES(mu_) {
    std::list<Task> tasks;
    {
      MutexLock lock(&mu_);
      closed_ = true;
      tasks.swap(tasks_);
    }
    for (Task& task : tasks) task.thread.join();
  }

 private:
  static constexpr size_t kMaxTasks = 16;
  struct Task {
    std::thread thread;
    bool done = false;  // the thread no longer uses this object
  };

  void Reap() REQUIRES(mu_) {
    tasks_.remove_if([](Task& task) {
      if (task.done) task.thread.join();
      return task.done;
    });
  }

  Mutex mu_;
  bool closed_ GUARDED_BY(mu_) = false;
  std::list<Task> tasks_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_TASK_THREADS_H_
