// report.h — a line for each run: JSON for programs, a table for people.
#ifndef REVERB_BENCHMARKS_E2E_REPORT_H_
#define REVERB_BENCHMARKS_E2E_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/e2e/contest.h"

namespace reverb::bench {

struct Row {
  std::string workload;
  bool in_process = false;
  int64_t size = 0;
  int clients = 1;
  int connections = 0;
  double items_per_s = 0;
  double bytes_per_s = 0;
  double p50_us = 0;
  double p99_us = 0;
  // Absent where there is nothing to compare with.
  std::optional<double> limit_items_per_s = {};
  // Rate over the limit's rate; where single calls are timed, time over the limit's time.
  std::optional<double> ratio = {};
  // What the limit reached when it was first measured, on the machine described there.
  std::optional<double> published_limit = {};
  bool is_void = false;  // the limit is so far below that figure that the machine cannot have been well
  int rounds = 0;
  int rejected_rounds = 0;
  bool noisy = false;
  Disturbance worst = {};
  std::vector<std::pair<std::string, double>> more = {};  // what this workload says besides
};

// Medians of a side, and of the ratio to its limit round by round: neighbours in time are disturbed alike.
// `by_time`: the ratio is that of the medians of single calls.
Row MakeRow(const Outcomes& outcomes, size_t side, std::optional<size_t> limit, bool by_time = false);

std::string ToJson(const Row& row);
// The heading of the table, and a row of it.
std::string TableHeading();
std::string ToText(const Row& row);

// The limit of limits.md for one client over gRPC; absent for other sizes than the paper's.
enum class Flow : uint8_t { kInsert, kSample };
std::optional<double> PublishedLimit(Flow flow, int64_t size);
// Sets the figure and whether the run is void.
void CompareWithPublished(Flow flow, Row* row);

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_E2E_REPORT_H_
