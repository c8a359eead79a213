// loop.h — the work of one process of a benchmark, and its results.
//
// A Job describes the work; it becomes one Loop per client. A process runs all its loops concurrently for a
// slice of time, each on its own thread, and reports one Slice. The limits are loops too, so that the same
// code measures both sides.
#ifndef REVERB_APPS_BENCH_LOOP_H_
#define REVERB_APPS_BENCH_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/message.h"
#include "bench/stats.h"
#include "reverb/client.h"
#include "reverb/status.h"
#include "reverb/table_options.h"
#include "reverb/wait.h"

namespace reverb::bench {

// The kinds of work.
enum class Kind : uint8_t {
  kLoad,          // writers and samplers
  kSampleOne,     // one exact sample at a time
  kInsertOne,     // one insert at a time, confirmed
  kUpdateOne,     // one new priority at a time
  kTransitions,   // batches of 256 transitions of four columns
  kFrames,        // batches of 256 single frames out of compressed chunks of 40
  kPer,           // batches of 256, each followed by 256 new priorities
  kLimitStreams,  // gRPC: messages of items in both directions
  kLimitCall,     // gRPC: an empty call
  kLimitPer,      // gRPC: a call with 256 items in its reply, one with 256 priorities in its request
  kLimitCopy,     // memory: items into a large ring, and random ones out of a large store into a batch
  kLimitColumns,  // memory: random transitions of four columns
  kLimitFrames,   // memory: random frames
};

struct Job {
  Kind kind = Kind::kLoad;
  // Address of the server; empty: it is in this process.
  std::string address = {};
  // Of an external server: the table to use, with any items and limiter. Empty: the tables of TablesFor().
  std::string table = {};
  bool local = false;  // whether clients use the local transport; otherwise gRPC
  int64_t size = 400;  // bytes of an item
  int writers = 0;
  int samplers = 0;
  int tables = 1;        // used by clients in turn
  int64_t items = 1000;  // maximum size of each table; also the number that Fill() writes
  bool fill = false;     // whether to fill the tables before the first slice
  // Whether a rate limiter keeps samples and inserts in step; writers then do not wait for the last items.
  bool in_step = false;
  int64_t write_window_bytes = int64_t{64} << 20;
  uint64_t seed = 1;

  std::string TableName(int index) const;
  // How long a call may wait. An external table may block it forever.
  WaitOptions wait() const;

  Message ToMessage(std::string verb) const;
  static Job FromMessage(const Message& message);
};

// The results of a slice, per second.
struct Slice {
  double items = 0;
  double samples = 0;  // the sampled items; the others were inserted
  double bytes = 0;
  std::vector<double> client_items = {};  // per client
  std::vector<double> latencies_us = {};  // of single calls, as quantiles

  // Adds the results of loops that ran concurrently.
  void Add(const Slice& other);

  Message ToMessage() const;
  static Slice FromMessage(const Message& message);
};

// Filled by one loop during one slice.
struct Tally {
  double items = 0;
  double samples = 0;
  double bytes = 0;
  double seconds = 0;  // the duration, if less than the whole slice
  std::vector<double> latencies_us = {};

  // Times one call.
  class Timer {
   public:
    explicit Timer(Tally* tally) : tally_(tally), start_(NowSeconds()) {}
    void Stop() { tally_->latencies_us.push_back((NowSeconds() - start_) * 1e6); }

   private:
    Tally* tally_;
    double start_;
  };
};

class Loop {
 public:
  virtual ~Loop() = default;
  // Works until NowSeconds() reaches `end` and all started operations are complete.
  virtual Status Run(double end, Tally* tally) = 0;
};

// Returns the tables that a server needs for this job.
Result<std::vector<TableOptions>> TablesFor(const Job& job);

// Returns the loops of a job. `connect` creates a separate connection for each client.
using Connector = std::function<Result<Client>()>;
Result<std::vector<std::unique_ptr<Loop>>> MakeLoops(const Job& job, const Connector& connect);

// Runs all loops concurrently for that time.
Result<Slice> RunLoops(const std::vector<std::unique_ptr<Loop>>& loops, double seconds);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_LOOP_H_
