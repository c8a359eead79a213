// completions.h — how operations that no thread waits for tell an event loop of asyncio that they are done.
//
// The library's threads never acquire the GIL: they put the outcome into a queue and write to an eventfd, which the
// loop watches. The queue has at most one element for each operation.
#ifndef REVERB_PYTHON_COMPLETIONS_H_
#define REVERB_PYTHON_COMPLETIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "python_api.h"
#include "reverb/status.h"

namespace reverb::python {

// The queue. Threads: all methods may be called concurrently. Shared with operations that outlive their loop.
class Mailbox {
 public:
  // Makes the result, or throws. Called with the GIL; destroyed without it, perhaps.
  using Convert = std::function<nb::object()>;
  struct Completion {
    uint64_t number = 0;
    Convert convert;
  };

  Mailbox();  // RuntimeError if the system has no descriptor left
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  int fd() const { return fd_; }
  // Returns false if nobody receives it any more.
  bool Put(uint64_t number, Convert convert);
  std::vector<Completion> Take();
  void Close();

 private:
  const int fd_;
  std::mutex mu_;
  std::vector<Completion> done_;
  bool is_closed_ = false;
};

// An operation that was started, as Python sees it.
class StartedCall {
 public:
  // What the operation has got, to be given back if the caller does not take it.
  struct Outcome {
    std::mutex mu;
    bool is_cancelled = false;  // a result that comes from now on is not wanted
    std::function<void()> give_back;
  };

  StartedCall(std::function<void()> cancel, std::shared_ptr<Outcome> outcome)
      : cancel_(std::move(cancel)), outcome_(std::move(outcome)) {}

  // Ends the operation, or gives back what it has got. REQUIRES: the GIL.
  void Cancel();

 private:
  const std::function<void()> cancel_;
  const std::shared_ptr<Outcome> outcome_;
};

// The queue of one event loop, as Python sees it.
class Completions {
 public:
  Completions() : mailbox_(std::make_shared<Mailbox>()) {}
  ~Completions() { mailbox_->Close(); }
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }
  // Returns (number, result, exception) for each operation that is done.
  nb::list Take() const;

 private:
  const std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace reverb::python

#endif  // REVERB_PYTHON_COMPLETIONS_H_
