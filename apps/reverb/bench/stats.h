// stats.h — medians, quantiles, and disturbances of the machine.
#ifndef REVERB_APPS_BENCH_STATS_H_
#define REVERB_APPS_BENCH_STATS_H_

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <vector>

namespace reverb::bench {

double NowSeconds();  // of a monotonic clock

// Returns 0 if there are no values.
double Quantile(std::vector<double> values, double q);
inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

// Returns at most `count` evenly spaced quantiles of `values`. Sorts `values`.
std::vector<double> Condense(std::vector<double>* values, size_t count);

// Shares of the machine's time that were not available to the benchmark.
struct Disturbance {
  double steal = 0;   // taken by the hypervisor
  double others = 0;  // used by other processes
};

class CpuMeter {
 public:
  // `ours`: the processes of the benchmark besides this one.
  explicit CpuMeter(std::span<const pid_t> ours);
  // Returns the shares since construction.
  Disturbance Read() const;

 private:
  struct Ticks {
    double total = 0;
    double steal = 0;
    double busy = 0;  // in programs and in the kernel for them
    double ours = 0;
  };
  Ticks Now() const;

  std::vector<pid_t> ours_;
  Ticks start_;
};

// Returns the number of connections of these processes to that port, as the system lists them.
int CountConnections(int port, std::span<const pid_t> processes);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_STATS_H_
