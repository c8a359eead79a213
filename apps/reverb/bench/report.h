// report.h — formats a line for each run, as JSON or as a table.
#ifndef REVERB_APPS_BENCH_REPORT_H_
#define REVERB_APPS_BENCH_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/contest.h"

namespace reverb::bench {

struct Row {
  std::string workload;
  Transport transport = Transport::kGrpc;
  int64_t size = 0;
  int clients = 1;
  int connections = 0;
  double items_per_s = 0;
  double bytes_per_s = 0;
  double p50_us = 0;
  double p99_us = 0;
  // Absent if there is no limit to compare with.
  std::optional<double> limit_items_per_s = {};
  // Rate divided by the limit's rate; for latencies, time divided by the limit's time.
  std::optional<double> ratio = {};
  // The published rate of the limit, on the machine described in benchmarks/README.md.
  std::optional<double> published_limit = {};
  bool is_void = false;  // the limit is far below the published rate: the machine was disturbed
  int rounds = 0;
  int rejected_rounds = 0;
  bool noisy = false;
  Disturbance worst = {};
  std::vector<std::pair<std::string, double>> more = {};  // further results of this workload
};

// Returns the medians of a side and of its ratio to the limit per round, since slices close in time are
// disturbed equally. `by_time`: the ratio of the medians of single calls.
Row MakeRow(const Outcomes& outcomes, size_t side, std::optional<size_t> limit, bool by_time = false);

std::string ToJson(const Row& row);
// Return the heading and a row of the table.
std::string TableHeading();
std::string ToText(const Row& row);

// Returns the published limit for one client over gRPC; absent for other item sizes.
enum class Flow : uint8_t { kInsert, kSample };
std::optional<double> PublishedLimit(Flow flow, int64_t size);
// Sets published_limit and is_void.
void CompareWithPublished(Flow flow, Row* row);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_REPORT_H_
