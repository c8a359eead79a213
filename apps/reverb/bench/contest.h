// contest.h — the sides of a comparison, measured in turn.
#ifndef REVERB_APPS_BENCH_CONTEST_H_
#define REVERB_APPS_BENCH_CONTEST_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/loop.h"
#include "bench/process.h"
#include "bench/stats.h"

namespace reverb::bench {

// The results of one side over the valid rounds.
struct Outcome {
  std::vector<Slice> slices;  // one per round
  int connections = 0;        // to the side's server, as the system reports them
};

struct Outcomes {
  std::vector<Outcome> sides;
  int rounds = 0;      // valid ones
  int rejected = 0;    // disturbed ones
  bool noisy = false;  // too few were undisturbed, so all are used
  Disturbance worst;   // of the valid rounds
};

class Contest {
 public:
  // Starts a process that serves the tables of a job, or the gRPC limit for such a kind. Returns its address.
  Result<std::string> StartServer(const Job& job);
  // Adds a side: processes that each execute one of the jobs, concurrently. Starts and prepares the processes
  // one after the other. Returns the side's index.
  Result<size_t> AddSide(const std::vector<Job>& jobs);

  // Measures slices of all sides in turn: a short one of each to warm up, then `rounds` rounds that share
  // `seconds` of each side. Repeats disturbed rounds (hypervisor, other programs), at most `rounds` times.
  Result<Outcomes> Run(double seconds, int rounds);

  // Called before each slice, with the number of rounds that have ended and the present one's side.
  using Progress = std::function<void(int round, int rounds, size_t side, size_t sides)>;
  // Of all contests of this process; set before the first one runs.
  static void SetProgress(Progress progress);

 private:
  struct Side {
    std::vector<std::unique_ptr<Process>> processes;
    int port = 0;
  };

  Result<Slice> RunSlice(const Side& side, double seconds);
  std::vector<pid_t> Pids() const;

  std::vector<std::unique_ptr<Process>> servers_;
  std::vector<Side> sides_;
};

// Runs in a process of a contest: executes its commands.
void ServeContest();

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_CONTEST_H_
