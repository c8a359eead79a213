#include "transport/local/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/detached_thread.h"

namespace reverb::internal {

Result<std::unique_ptr<EventLoop>> EventLoop::Start(const char* name, Duration spin) {
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  Descriptor wake_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN;
  if (!epoll.is_open() || !wake_up.is_open() ||
      epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake_up.get(), &event) != 0) {
    return Status::ResourceExhausted(
        "cannot watch sockets: " + std::string(std::strerror(errno)) +
        (errno == EMFILE ? "; raise the limit of file descriptors (ulimit -n)" : ""));
  }
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wake_up), spin));
  const auto run = [](void* argument) -> void* {
    auto* const self = static_cast<EventLoop*>(argument);
    self->thread_id_ = std::this_thread::get_id();
    self->started_.Unpark();
    self->Run();
    self->ended_.Unpark();
    return nullptr;
  };
  if (!StartDetachedThread(name, run, loop.get())) {
    return Status::ResourceExhausted("cannot watch sockets: the system has no thread left");
  }
  loop->started_.Park();
  MutexLock lock(&loop->mu_);
  loop->is_running_ = true;
  return loop;
}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Stop() {
  {
    MutexLock lock(&mu_);
    if (!is_running_ || is_stopping_) return;
    is_stopping_ = true;
  }
  const uint64_t one = 1;
  (void)!write(wake_up_.get(), &one, sizeof one);
  ended_.Park();
  std::unordered_map<uint64_t, std::shared_ptr<EventHandler>> handlers;  // freed without the lock
  MutexLock lock(&mu_);
  is_running_ = false;
  handlers.swap(handlers_);
}

uint64_t EventLoop::Add(int fd, uint32_t events, std::shared_ptr<EventHandler> handler) {
  uint64_t id = 0;
  {
    MutexLock lock(&mu_);
    id = next_id_++;
    handlers_.emplace(id, std::move(handler));
  }
  epoll_event event = {};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return id;
  std::shared_ptr<EventHandler> unused;  // freed without the lock
  MutexLock lock(&mu_);
  unused = std::move(handlers_[id]);
  handlers_.erase(id);
  return 0;
}

void EventLoop::Modify(int fd, uint64_t id, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = id;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::Remove(int fd, uint64_t id) {
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  std::shared_ptr<EventHandler> handler;  // freed without the lock
  MutexLock lock(&mu_);
  const auto found = handlers_.find(id);
  if (found == handlers_.end()) return;
  handler = std::move(found->second);
  handlers_.erase(found);
}

void EventLoop::Post(std::function<void()> work) {
  {
    MutexLock lock(&mu_);
    posted_.push_back(std::move(work));
    if (is_this_thread() || std::exchange(is_woken_, true)) return;
  }
  const uint64_t one = 1;
  (void)!write(wake_up_.get(), &one, sizeof one);
}

bool EventLoop::RunPosted(bool* has_more) {
  std::vector<std::function<void()>> posted;
  {
    MutexLock lock(&mu_);
    *has_more = false;
    if (posted_.empty()) return !is_stopping_;
    posted.swap(posted_);
    is_woken_ = false;
  }
  for (const std::function<void()>& work : posted) work();
  MutexLock lock(&mu_);
  *has_more = !posted_.empty();
  return *has_more || !is_stopping_;
}

int EventLoop::WaitForEvents(std::span<epoll_event> events, bool may_wait) {
  const auto wait = [&](int timeout) {
    return epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
  };
  if (!may_wait) return wait(0);
  int count = 0;
  if (spin_.Spin(Duration::max(), [&] { return (count = wait(0)) != 0; })) return count;
  return wait(-1);
}

void EventLoop::Run() {
  std::array<epoll_event, 64> events;
  bool has_more = false;
  while (RunPosted(&has_more)) {
    const int count = WaitForEvents(events, /*may_wait=*/!has_more);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == 0) {
        uint64_t wakes = 0;
        (void)!read(wake_up_.get(), &wakes, sizeof wakes);
        continue;
      }
      std::shared_ptr<EventHandler> handler;
      {
        MutexLock lock(&mu_);
        const auto found = handlers_.find(event.data.u64);
        if (found != handlers_.end()) handler = found->second;
      }
      if (handler != nullptr) handler->OnEvents(event.events);
    }
  }
}

Result<std::unique_ptr<EventLoops>> EventLoops::Start(const char* name, int num_threads) {
  auto loops = std::make_unique<EventLoops>();
  for (int i = 0; i < num_threads; ++i) {
    REVERB_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Start(name));
    loops->loops_.push_back(std::move(loop));
  }
  return loops;
}

int DefaultLoopThreads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 4);
}

}  // namespace reverb::internal
