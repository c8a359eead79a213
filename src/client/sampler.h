// sampler.h — requests samples of a table of one server and queues them for a consumer.
//
// Requests samples ahead of the consumer, as far as the window allows and never more than max_samples in
// total; replies wait in a queue. With `exact`, and within one process, nothing is requested before the
// consumer wants it: each draw sees all earlier updates.
//
// Several streams share the queue; a single one keeps the table's order. Reconnects with growing pauses.
// Samples that were received are returned before an error is reported; those that were drawn and never
// returned are counted. As a part of a set of servers it requests only what Prefetch() wants; see set_sampler.h.
//
// Leases begin when the server draws a sample, so nothing is requested ahead with them, and requests end with the
// wait of their consumer. A consumer gets all samples that it wants together: those that arrive earlier wait in
// the queue, as do those whose consumer gave up. They are released after half of their lease, and by Close().
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
#include "client/sample_source.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "transport/transport.h"

namespace reverb::internal {

class SamplerImpl final : public SampleSource, public std::enable_shared_from_this<SamplerImpl> {
 public:
  struct Options {
    std::string table;
    int64_t max_samples = -1;     // in total; -1 = no limit
    int64_t max_in_flight = 100;  // per stream: requested and not yet returned
    bool grow_window = false;     // start with one, double when the queue is empty
    double max_share_ahead = 0;   // of the samples returned so far; 0 = unlimited
    bool whole_windows = false;   // requests of max_in_flight samples, once as many can be taken
    int32_t num_streams = 1;
    bool exact = false;
    int64_t batch_size = 0;  // of each request; 0 = any
    BatchRules rules = {};
    Duration lease{0};  // above 0: samples are leased for this long; disables reading ahead
    // How long the table may block the consumer before sampling ends with an error.
    Timeout rate_limiter_timeout = {};
    Timeout reconnect_timeout = {};                      // how long to try to reconnect; absent = forever
    uint64_t receive_window_bytes = uint64_t{16} << 20;  // per stream: replies in flight or queued
    std::string client_name = {};
    Clock* clock = RealClock();
    // Set for a server of a set: what to call, without locks, when its state() may have changed.
    std::function<void()> on_change = {};
    std::function<void(const Welcome&)> on_welcome = {};  // called without locks
  };
  // What a set needs to know about one of its servers.
  struct State {
    bool is_connected = false;  // a stream is open, and the server has answered
    int64_t queued = 0;         // samples received and not taken
    int64_t outstanding = 0;    // samples requested and not received
    std::optional<TableMass> mass = {};
    TimePoint mass_at = {};    // when it arrived
    bool awaits_mass = false;  // was requested
    uint64_t replies = 0;      // so far
    uint64_t timeouts = 0;     // requests that the rate limiter blocked for too long
    Status last_timeout = {};  // the error of the last one
    Status status = {};        // not OK: the sampler has failed for good
  };
  // Returns the connection of a stream, by its number.
  using Connector = std::function<std::shared_ptr<Connection>(size_t)>;

  static Result<std::shared_ptr<SamplerImpl>> Create(const Connector& connect, Options options);
  ~SamplerImpl() override;

  bool can_prepare() const override { return true; }
  bool Prepare(int64_t least, std::function<void()> ready) override EXCLUDES(mu_);

  void Close() override EXCLUDES(mu_);
  Stats stats() const override EXCLUDES(mu_);
  int64_t batch_size() const override { return options_.batch_size; }

  // --- For a server of a set ---
  State state() const EXCLUDES(mu_);
  bool in_process() const { return in_process_; }
  // Requests samples until `total` are requested or queued. `timeout`: of the rate limiter.
  void Prefetch(int64_t total, Timeout timeout) EXCLUDES(mu_);
  // Requests the table's mass, unless that has been done.
  void RequestMass() EXCLUDES(mu_);
  // Appends at most `most` queued samples. Does not wait.
  size_t TakeQueuedSamples(int64_t most, std::vector<Sample>* out) EXCLUDES(mu_);
  // Drops queued samples that are too old to be returned under their lease. Returns whether there are some to be
  // released, by the second function, which calls the server.
  bool DropExpiredSamples() EXCLUDES(mu_);
  void ReleaseExpiredSamples() EXCLUDES(mu_);
  // Explains why the server delivers no samples. Queries it.
  WaitExplanation Explain(Duration waited, const WaitOptions& wait) EXCLUDES(mu_);

 private:
  class Events;
  struct Request {
    int64_t missing = 0;          // samples that were not received yet
    bool ends_with_wait = false;  // has the timeout of a consumer's wait, not that of the rate limiter
  };
  // One stream, over all its connections.
  struct Worker {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<SampleStream> stream;
    bool reconnecting = false;     // an alarm for the next attempt is set
    bool is_lost = false;          // reconnect_timeout has passed
    std::deque<Request> requests;  // on this stream, in order
    int64_t outstanding = 0;       // their sum
    int64_t requested = 0;         // in total, on this and former streams
    int64_t lost = 0;              // outstanding when a connection broke, and not logged yet
    int64_t queued = 0;            // received and not yet returned
    uint64_t taken_bytes = 0;      // credit to return to the server
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
    TimePoint arrived = {};  // of leased samples
  };
  struct Outgoing {
    std::shared_ptr<SampleStream> stream;
    SampleRequest request;
  };

  explicit SamplerImpl(Options options) : options_(std::move(options)) {}

  Status Take(int64_t least, int64_t most, const WaitOptions& wait, std::vector<Sample>* out) override
      EXCLUDES(mu_);
  // Tells the consumer of Prepare() that something has changed.
  void NotifyReady() EXCLUDES(mu_);
  void GrowWindow() REQUIRES(mu_);
  size_t TakeQueued(int64_t count, std::vector<Sample>* out) REQUIRES(mu_);
  // Opens streams and sends requests for `wanted` samples. Releases the lock meanwhile. `wait_left`: how long the
  // consumer will wait for them.
  void Demand(int64_t wanted, Timeout wait_left = {}) REQUIRES(mu_);
  std::optional<Outgoing> NextRequest(int64_t by_consumer, Timeout wait_left) REQUIRES(mu_);
  // Returns whether a consumer that needs at least this many samples may take them from the queue.
  bool MayTake(int64_t least) const REQUIRES(mu_) {
    return queued_ > 0 && (!is_leased() || queued_ >= least);
  }
  // Returns whether max_samples leaves fewer than a consumer needs.
  bool IsAtEnd(int64_t least) const REQUIRES(mu_);
  void Open(size_t index) REQUIRES(mu_);
  bool is_part() const { return options_.on_change != nullptr; }
  // Returns whether requests can be sent on the stream.
  bool IsUsable(const Worker& worker) const REQUIRES(mu_);
  // Explains a wait. Queries the server for the reason and releases the lock meanwhile.
  WaitExplanation DescribeWait(Duration waited, const WaitOptions& wait) REQUIRES(mu_);
  int64_t Wanted(int64_t by_consumer) const REQUIRES(mu_);
  // Whether a request fills the window, and not only what the consumer waits for.
  bool fills_window() const { return reads_ahead_ || (options_.whole_windows && !is_leased()); }
  bool is_leased() const { return options_.lease > Duration(0); }
  // Moves samples that have waited in the queue for half of their lease to expired_.
  void DropExpired() REQUIRES(mu_);
  // Makes the servers end the streams, and waits for that: afterwards no request of this sampler can lease what it
  // releases. Collects what arrives meanwhile in *received.
  void EndStreams(const std::vector<std::shared_ptr<SampleStream>>& streams, std::deque<Received>* received)
      EXCLUDES(mu_);
  // Releases the leases of samples that were not returned.
  void ReleaseLeases(const std::deque<Received>& dropped) EXCLUDES(mu_);

  void OnReply(size_t index, uint64_t attempt, SampleReply reply, uint64_t bytes) EXCLUDES(mu_);
  void TakeReply(size_t index, uint64_t attempt, SampleReply reply, uint64_t bytes) REQUIRES(mu_);
  void OnRequestEnd(Worker* worker, Status end) REQUIRES(mu_);
  void Settle(Worker* worker, int64_t samples) REQUIRES(mu_);
  // Logs, after a reconnect, the samples that may have been lost with the former connection.
  void LogLost(Worker* worker) REQUIRES(mu_);
  void OnAttemptTimeout(size_t index, uint64_t attempt) EXCLUDES(mu_);
  void OnClosed(size_t index, uint64_t attempt, Status status) EXCLUDES(mu_);
  void TakeEnd(size_t index, uint64_t attempt, Status status, std::shared_ptr<SampleStream>* former)
      REQUIRES(mu_);

  const Options options_;
  bool reads_ahead_ = true;  // set once
  bool in_process_ = false;  // set once

  mutable Mutex mu_;
  CondVar changed_;
  int waiters_ GUARDED_BY(mu_) = 0;
  std::function<void()> on_ready_ GUARDED_BY(mu_);  // of Prepare()
  std::vector<Worker> workers_ GUARDED_BY(mu_);
  std::deque<Received> queue_ GUARDED_BY(mu_);
  int64_t queued_ GUARDED_BY(mu_) = 0;
  int64_t in_flight_ GUARDED_BY(mu_) = 1;    // max_in_flight, or the current size with grow_window
  int64_t outstanding_ GUARDED_BY(mu_) = 0;  // of all workers
  Status status_ GUARDED_BY(mu_);            // final
  bool closed_ GUARDED_BY(mu_) = false;
  int ending_ GUARDED_BY(mu_) = 0;                // streams that Close() waits for
  std::deque<Received> expired_ GUARDED_BY(mu_);  // to be released

  Stats stats_ GUARDED_BY(mu_);
  uint64_t num_timeouts_ GUARDED_BY(mu_) = 0;  // requests that ended because of their timeout

  // --- For a server of a set ---
  Timeout part_timeout_ GUARDED_BY(mu_);
  bool mass_is_requested_ GUARDED_BY(mu_) = false;
  State part_ GUARDED_BY(mu_);  // without the fields that state() computes
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_SAMPLER_H_
