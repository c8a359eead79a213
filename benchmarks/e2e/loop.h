// loop.h — what one process of a benchmark does, and what came of it.
//
// A Job says what to do; it becomes one Loop for each client. A process runs all its loops at once for a
// slice of time, each on a thread of its own, and reports one Slice. The limits are loops as well, so that
// both sides are measured by the same code.
#ifndef REVERB_BENCHMARKS_E2E_LOOP_H_
#define REVERB_BENCHMARKS_E2E_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/e2e/message.h"
#include "benchmarks/e2e/stats.h"
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
  // Of the server; empty: it is in this process.
  std::string address = {};
  // Of a server that is not ours: its only table in use, of whatever items and limiter. Absent: those of
  // TablesFor().
  std::string table = {};
  int64_t size = 400;  // bytes of an item
  int writers = 0;
  int samplers = 0;
  int tables = 1;        // served by clients in turn
  int64_t items = 1000;  // that each table holds at most; also how many Fill() writes
  bool fill = false;     // the tables are filled before the first slice
  // The tables keep samples and inserts in step, and writers therefore do not wait for the last items.
  bool in_step = false;
  int64_t write_window_bytes = int64_t{64} << 20;
  uint64_t seed = 1;

  std::string TableName(int index) const;
  // How long a call may wait. Tables that are not ours may have their reasons never to let it through.
  WaitOptions wait() const;

  Message ToMessage(std::string verb) const;
  static Job FromMessage(const Message& message);
};

// What a slice brought, per second.
struct Slice {
  double items = 0;
  double samples = 0;  // of these, those that were sampled; the rest was inserted
  double bytes = 0;
  std::vector<double> client_items = {};  // of each client
  std::vector<double> latencies_us = {};  // of single calls, condensed

  // Adds what ran at the same time.
  void Add(const Slice& other);

  Message ToMessage() const;
  static Slice FromMessage(const Message& message);
};

// Filled by one loop during one slice.
struct Tally {
  double items = 0;
  double samples = 0;
  double bytes = 0;
  double seconds = 0;  // that this took, where it is less than the whole slice
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
  // Works until NowSeconds() reaches `end` and what was begun is complete.
  virtual Status Run(double end, Tally* tally) = 0;
};

// The tables that a server needs for this job.
Result<std::vector<TableOptions>> TablesFor(const Job& job);

// The loops of a job. `connect` gives each client a connection of its own.
using Connector = std::function<Result<Client>()>;
Result<std::vector<std::unique_ptr<Loop>>> MakeLoops(const Job& job, const Connector& connect);

// Runs all at once for that long.
Result<Slice> RunLoops(const std::vector<std::unique_ptr<Loop>>& loops, double seconds);

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_E2E_LOOP_H_
