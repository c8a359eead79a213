// completion_threads.h — the threads that take what gRPC has finished off a completion queue.
//
// A thread that waits in a queue is also the one that waits for the sockets. While it is alone it reads a
// message and reacts to it without waking anybody; each further thread is woken for its turn, which costs
// more than a small message. So there is one, and another comes when those that are there are busy for most
// of the time, or when one of them does not come back from a reaction.
//
// Threads: all methods may be called concurrently, but Stop() not from inside a reaction.
#ifndef REVERB_TRANSPORT_GRPC_COMPLETION_THREADS_H_
#define REVERB_TRANSPORT_GRPC_COMPLETION_THREADS_H_

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/status.h"

namespace reverb::internal {

// What is given to gRPC as the tag of an operation.
class CompletionTag {
 public:
  // The operation is over; `ok` says whether it did what it should. Called once for each time that the tag
  // was given away, on one of the threads. May destroy the tag.
  virtual void Proceed(bool ok) = 0;

 protected:
  ~CompletionTag() = default;
};

// A tag that calls a method of its owner.
template <typename Owner, void (Owner::*kMethod)(bool ok)>
class MethodTag final : public CompletionTag {
 public:
  explicit MethodTag(Owner* owner) : owner_(owner) {}
  void Proceed(bool ok) override { (owner_->*kMethod)(ok); }

 private:
  Owner* const owner_;
};

class CompletionThreads {
 public:
  explicit CompletionThreads(std::unique_ptr<grpc::ServerCompletionQueue> queue);
  ~CompletionThreads();  // Stop()
  CompletionThreads(const CompletionThreads&) = delete;
  CompletionThreads& operator=(const CompletionThreads&) = delete;

  grpc::ServerCompletionQueue* queue() { return queue_.get(); }

  Status Start() EXCLUDES(mu_);
  // Returns when all that was under way has been reacted to.
  // REQUIRES: nothing is started on the queue any more. May be called again.
  void Stop() EXCLUDES(mu_);

 private:
  struct Worker {
    std::thread thread;
    // Odd while a reaction runs.
    std::atomic<uint64_t> steps{0};
    // What was seen at the last look.
    uint64_t seen_steps = 0;
    Duration seen_cpu{0};
  };

  bool AddWorker() REQUIRES(mu_);
  void Work(Worker* worker, size_t index) EXCLUDES(mu_);
  // Waits until the worker is wanted. False: it never will be.
  bool AwaitTurn(size_t index) EXCLUDES(mu_);
  void Watch() EXCLUDES(mu_);
  void Look(Duration elapsed) REQUIRES(mu_);

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  const size_t most_needed_;

  Mutex mu_;
  CondVar changed_;
  bool closed_ GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<Worker>> workers_ GUARDED_BY(mu_);
  std::thread watcher_ GUARDED_BY(mu_);
  // For the work that there is; those that are held up in a reaction come on top.
  size_t needed_ GUARDED_BY(mu_) = 1;
  // Workers below this index work, the others wait. Written with the lock.
  std::atomic<size_t> wanted_{1};
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_COMPLETION_THREADS_H_
