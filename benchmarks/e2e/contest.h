// contest.h — the sides of a comparison, measured in turn.
#ifndef REVERB_BENCHMARKS_E2E_CONTEST_H_
#define REVERB_BENCHMARKS_E2E_CONTEST_H_

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/e2e/loop.h"
#include "benchmarks/e2e/process.h"
#include "benchmarks/e2e/stats.h"

namespace reverb::bench {

// What one side brought, over the rounds that count.
struct Outcome {
  std::vector<Slice> slices;  // one of each round
  int connections = 0;        // to the side's server, as the system counts them
};

struct Outcomes {
  std::vector<Outcome> sides;
  int rounds = 0;      // that count
  int rejected = 0;    // measured, but disturbed
  bool noisy = false;  // too few were undisturbed, so that all count
  Disturbance worst;   // of the rounds that count
};

class Contest {
 public:
  // Starts a process that serves the tables of a job, or the gRPC limit for a kind that is one. Returns
  // its address.
  Result<std::string> StartServer(const Job& job);
  // Adds a side: processes that each do one of the jobs, all at once. The processes are started and what they
  // need before the first slice is done, one after the other. Returns the side's index.
  Result<size_t> AddSide(const std::vector<Job>& jobs);

  // Measures slices of all sides in turn: a short one of each to warm up, then `rounds` rounds that share
  // `seconds` of each side. Disturbed rounds (hypervisor, other programs) are measured again, at most as
  // often as there are rounds.
  Result<Outcomes> Run(double seconds, int rounds);

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

// In a process of a contest: what it answers to commands.
void ServeContest();

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_E2E_CONTEST_H_
