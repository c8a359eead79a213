// sampler.h — requests samples of a table and queues them for a consumer.
//
// Requests samples ahead of the consumer, as far as the window allows and never more than max_samples in
// total; replies wait in a queue. With `exact`, and within one process, nothing is requested before the
// consumer wants it: each draw sees all earlier updates.
//
// Several streams share the queue; a single one keeps the table's order. Reconnects with growing pauses.
// Samples that were received are returned before an error is reported; those that were drawn and never
// returned are counted.
//
// Threads: all methods may be called concurrently; Close() ends the waits of other threads.
#ifndef REVERB_CLIENT_SAMPLER_H_
#define REVERB_CLIENT_SAMPLER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "client/backoff.h"
#include "client/explain_timeout.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "transport/transport.h"

namespace reverb::internal {

class SamplerImpl : public std::enable_shared_from_this<SamplerImpl> {
 public:
  struct Options {
    std::string table;
    int64_t max_samples = -1;     // in total; -1 = no limit
    int64_t max_in_flight = 100;  // per stream: requested and not yet returned
    bool grow_window = false;     // start with one, double when the queue is empty
    double max_share_ahead = 0;   // of the samples returned so far; 0 = unlimited
    bool whole_windows = false;   // requests of max_in_flight samples, once as many can be taken
    int32_t num_streams = 1;      // at least one for each server
    int32_t num_servers = 1;      // stream i connects to server i % num_servers
    bool exact = false;
    int64_t batch_size = 0;  // of each request; 0 = any
    BatchRules rules = {};
    // How long the table may block the consumer before sampling ends with an error.
    Timeout rate_limiter_timeout = {};
    Timeout reconnect_timeout = {};                      // how long to try to reconnect; absent = forever
    uint64_t receive_window_bytes = uint64_t{16} << 20;  // per stream: replies in flight or queued
    std::string client_name = {};
    Clock* clock = RealClock();
  };
  struct Stats {
    int64_t delivered = 0;    // returned
    int64_t waiting = 0;      // received, not yet returned
    int64_t undelivered = 0;  // received and dropped by Close()
    int64_t unanswered = 0;   // requested on a connection that broke first: may have been drawn
    int64_t received_bytes = 0;
    int64_t connections = 0;
  };
  // Returns the connection of a stream, by its number.
  using Connector = std::function<std::shared_ptr<Connection>(size_t)>;

  static Result<std::shared_ptr<SamplerImpl>> Create(const Connector& connect, Options options);
  ~SamplerImpl();

  // Returns one sample; OUT_OF_RANGE after max_samples; DEADLINE_EXCEEDED with detail kRateLimited if the
  // table blocked for too long; CANCELLED after Close().
  Result<Sample> Next(const WaitOptions& wait = {}) EXCLUDES(mu_);
  // Appends exactly `count`, or fewer and returns an error.
  Status Next(int64_t count, const WaitOptions& wait, std::vector<Sample>* out) EXCLUDES(mu_) {
    return Take(count, count, wait, out);
  }
  // Appends at least one, and as many more as are in the queue.
  Status NextSome(int64_t most, const WaitOptions& wait, std::vector<Sample>* out) EXCLUDES(mu_) {
    return Take(1, most, wait, out);
  }

  void Close() EXCLUDES(mu_);
  Stats stats() const EXCLUDES(mu_);
  const Options& options() const { return options_; }

 private:
  class Events;
  // One stream, over all its connections.
  struct Worker {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<SampleStream> stream;
    bool reconnecting = false;  // an alarm for the next attempt is set
    bool is_lost = false;       // reconnect_timeout has passed
    // Samples requested on this stream and not yet received, per request, in order.
    std::deque<int64_t> requests;
    int64_t outstanding = 0;   // their sum
    int64_t requested = 0;     // in total, on this and former streams
    int64_t lost = 0;          // outstanding when a connection broke, and not logged yet
    int64_t queued = 0;        // received and not yet returned
    uint64_t taken_bytes = 0;  // credit to return to the server
    uint64_t last_request = 0;
    Reconnection reconnection{0};
  };
  // A reply that waits to be consumed.
  struct Received {
    std::vector<Sample> samples;
    size_t next = 0;
    uint64_t bytes = 0;
    size_t worker = 0;
    uint64_t attempt = 0;
  };
  struct Outgoing {
    std::shared_ptr<SampleStream> stream;
    SampleRequest request;
  };

  explicit SamplerImpl(Options options) : options_(std::move(options)) {}

  Status Take(int64_t least, int64_t most, const WaitOptions& wait, std::vector<Sample>* out) EXCLUDES(mu_);
  void GrowWindow() REQUIRES(mu_);
  size_t TakeQueued(int64_t count, std::vector<Sample>* out) REQUIRES(mu_);
  // Opens streams and sends requests for `wanted` samples. Releases the lock meanwhile.
  void Demand(int64_t wanted) REQUIRES(mu_);
  std::optional<Outgoing> NextRequest(int64_t by_consumer) REQUIRES(mu_);
  void Open(size_t index) REQUIRES(mu_);
  // Explains a wait. Queries the server for the reason and releases the lock meanwhile.
  WaitExplanation DescribeWait(Duration waited, const WaitOptions& wait) REQUIRES(mu_);
  int64_t Wanted(int64_t by_consumer) const REQUIRES(mu_);
  // Whether a request fills the window, and not only what the consumer waits for.
  bool fills_window() const { return reads_ahead_ || options_.whole_windows; }

  void OnReply(size_t index, uint64_t attempt, SampleReply reply, uint64_t bytes) EXCLUDES(mu_);
  void OnRequestEnd(Worker* worker, Status end) REQUIRES(mu_);
  void Settle(Worker* worker, int64_t samples) REQUIRES(mu_);
  // Logs, after a reconnect, the samples that may have been lost with the former connection.
  void LogLost(Worker* worker) REQUIRES(mu_);
  void OnAttemptTimeout(size_t index, uint64_t attempt) EXCLUDES(mu_);
  void OnClosed(size_t index, uint64_t attempt, Status status) EXCLUDES(mu_);

  const Options options_;
  bool reads_ahead_ = true;  // set once

  mutable Mutex mu_;
  CondVar changed_;
  int waiters_ GUARDED_BY(mu_) = 0;
  std::vector<Worker> workers_ GUARDED_BY(mu_);
  std::deque<Received> queue_ GUARDED_BY(mu_);
  int64_t queued_ GUARDED_BY(mu_) = 0;
  int64_t in_flight_ GUARDED_BY(mu_) = 1;    // max_in_flight, or the current size with grow_window
  int64_t outstanding_ GUARDED_BY(mu_) = 0;  // of all workers
  Status status_ GUARDED_BY(mu_);            // final
  bool closed_ GUARDED_BY(mu_) = false;

  Stats stats_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_SAMPLER_H_
