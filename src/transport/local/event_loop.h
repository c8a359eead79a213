// event_loop.h — a thread that waits for events of many sockets (epoll).
//
// Not Asio: the transport needs little of what it offers (one kind of socket, no timers, no resolver), and much
// that it does not: descriptors in messages, partial writes from any thread, waiting threads that read their own
// socket, and threads that are replaced in a child created by fork().
//
// Ownership: keeps the handlers alive that are added to it.
// Threads: all methods may be called concurrently; handlers and posted functions are called on the loop's thread,
// one at a time.
#ifndef REVERB_TRANSPORT_LOCAL_EVENT_LOOP_H_
#define REVERB_TRANSPORT_LOCAL_EVENT_LOOP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/mutex.h"
#include "base/parker.h"
#include "reverb/status.h"
#include "transport/adaptive_spin.h"

struct epoll_event;

namespace reverb::internal {

class EventHandler {
 public:
  virtual ~EventHandler() = default;
  // `events`: EPOLLIN and so on.
  virtual void OnEvents(uint32_t events) = 0;
};

class EventLoop {
 public:
  // `name`: of the thread, at most 15 characters. `spin`: for how long it polls after an event before it sleeps.
  static Result<std::unique_ptr<EventLoop>> Start(const char* name, Duration spin = DefaultSpin());
  ~EventLoop();  // Stop()
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Watches `fd` until Remove(). Returns an ID; 0 if the system cannot watch it.
  uint64_t Add(int fd, uint32_t events, std::shared_ptr<EventHandler> handler) EXCLUDES(mu_);
  void Modify(int fd, uint64_t id, uint32_t events);
  // To be called before `fd` is closed. A call of the handler that is in progress continues.
  void Remove(int fd, uint64_t id) EXCLUDES(mu_);

  // Runs `work` soon, also when this is called on the loop's thread. It is not run after Stop().
  void Post(std::function<void()> work) EXCLUDES(mu_);
  bool is_this_thread() const { return thread_id_ == std::this_thread::get_id(); }

  // Runs what was posted and ends the thread. Not to be called on it. Idempotent.
  void Stop() EXCLUDES(mu_);

 private:
  EventLoop(Descriptor epoll, Descriptor wake_up, Duration spin)
      : epoll_(std::move(epoll)), wake_up_(std::move(wake_up)), spin_(spin) {}
  void Run();
  // Returns the number of events. Returns at once if `may_wait` is false, even without an event.
  int WaitForEvents(std::span<epoll_event> events, bool may_wait);
  // Runs what was posted. Sets *has_more if that has posted more, which comes after the events that have happened
  // meanwhile. Returns whether the loop goes on.
  bool RunPosted(bool* has_more) EXCLUDES(mu_);

  const Descriptor epoll_;
  const Descriptor wake_up_;  // an eventfd
  AdaptiveSpin spin_;         // used by the thread
  std::atomic<std::thread::id> thread_id_;
  Parker started_;
  Parker ended_;

  Mutex mu_;
  bool is_running_ GUARDED_BY(mu_) = false;
  bool is_stopping_ GUARDED_BY(mu_) = false;
  bool is_woken_ GUARDED_BY(mu_) = false;
  uint64_t next_id_ GUARDED_BY(mu_) = 1;  // 0 is wake_up_
  std::unordered_map<uint64_t, std::shared_ptr<EventHandler>> handlers_ GUARDED_BY(mu_);
  std::vector<std::function<void()>> posted_ GUARDED_BY(mu_);
};

// Some loops, over which sockets are distributed.
class EventLoops {
 public:
  static Result<std::unique_ptr<EventLoops>> Start(const char* name, int num_threads);
  EventLoop* Next() { return loops_[next_.fetch_add(1, std::memory_order_relaxed) % loops_.size()].get(); }
  void Stop() {
    for (const auto& loop : loops_) loop->Stop();
  }

 private:
  std::vector<std::unique_ptr<EventLoop>> loops_;
  std::atomic<size_t> next_{0};
};

// Returns half the number of processors, 1 to 4.
int DefaultLoopThreads();

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_EVENT_LOOP_H_
