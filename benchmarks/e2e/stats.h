// stats.h — medians and quantiles, and what the machine did meanwhile.
#ifndef REVERB_BENCHMARKS_E2E_STATS_H_
#define REVERB_BENCHMARKS_E2E_STATS_H_

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <vector>

namespace reverb::bench {

double NowSeconds();  // of a clock that only goes forward

// 0 for no values.
double Quantile(std::vector<double> values, double q);
inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

// At most `count` values that stand for all: quantiles at even distances. Sorts `values`.
std::vector<double> Condense(std::vector<double>* values, size_t count);

// What of the machine's time went elsewhere between two moments, as shares of all.
struct Disturbance {
  double steal = 0;   // taken by the hypervisor
  double others = 0;  // used by processes that are not ours
};

class CpuMeter {
 public:
  // Counts this process and those.
  explicit CpuMeter(std::span<const pid_t> ours);
  // Since it was made.
  Disturbance Read() const;

 private:
  struct Ticks {
    double total = 0;
    double steal = 0;
    double busy = 0;  // in programs and in the kernel on their behalf
    double ours = 0;
  };
  Ticks Now() const;

  std::vector<pid_t> ours_;
  Ticks start_;
};

// Connections to that port of those processes, as the system lists them.
int CountConnections(int port, std::span<const pid_t> processes);

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_E2E_STATS_H_
