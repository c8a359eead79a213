// sample_source.h — where a consumer takes samples from: one server (sampler.h) or several (set_sampler.h).
#ifndef REVERB_CLIENT_SAMPLE_SOURCE_H_
#define REVERB_CLIENT_SAMPLE_SOURCE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "reverb/status.h"
#include "reverb/wait.h"
#include "tensor/item.h"

namespace reverb::internal {

// Threads: all methods may be called concurrently; Close() ends the waits of other threads.
class SampleSource {
 public:
  struct Stats {
    int64_t delivered = 0;    // returned
    int64_t waiting = 0;      // received, not yet returned
    int64_t undelivered = 0;  // received and dropped by Close()
    int64_t unanswered = 0;   // requested on a connection that broke first: may have been drawn
    int64_t received_bytes = 0;
    int64_t connections = 0;
  };

  virtual ~SampleSource() = default;

  // Returns one sample; OUT_OF_RANGE after max_samples; DEADLINE_EXCEEDED with detail kRateLimited if the
  // table blocked for too long; CANCELLED after Close().
  Result<Sample> Next(const WaitOptions& wait = {}) {
    std::vector<Sample> one;
    one.reserve(1);
    REVERB_RETURN_IF_ERROR(Next(1, wait, &one));
    return std::move(one.front());
  }
  // Appends exactly `count`, or fewer and returns an error.
  Status Next(int64_t count, const WaitOptions& wait, std::vector<Sample>* out) {
    return Take(count, count, wait, out);
  }
  // Appends at least one, and as many more as have arrived.
  Status NextSome(int64_t most, const WaitOptions& wait, std::vector<Sample>* out) {
    return Take(1, most, wait, out);
  }

  // For a consumer that must not wait. Requests what it needs, and returns true if taking at least one sample, or with
  // leases `least`, would not wait now. Otherwise calls `ready` once, on any thread and without locks, when it is worth
  // asking again. REQUIRES: can_prepare(); one consumer.
  virtual bool can_prepare() const { return false; }
  virtual bool Prepare(int64_t /*least*/, std::function<void()> /*ready*/) { return true; }

  virtual void Close() = 0;
  virtual Stats stats() const = 0;
  // Returns the samples of a batch; 0 = any number.
  virtual int64_t batch_size() const = 0;

 protected:
  // Appends at least `least` samples, or returns an error; at most `most`.
  virtual Status Take(int64_t least, int64_t most, const WaitOptions& wait, std::vector<Sample>* out) = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_SAMPLE_SOURCE_H_
