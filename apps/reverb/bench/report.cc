#include "bench/report.h"

#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace reverb::bench {
namespace {

// Below this share of the published limit a run is void.
constexpr double kVoidBelow = 0.6;

[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

// 1234567 -> "1.23 M".
std::string Short(double value) {
  if (value >= 1e9) return Format("%.2f G", value / 1e9);
  if (value >= 1e6) return Format("%.2f M", value / 1e6);
  if (value >= 1e4) return Format("%.1f k", value / 1e3);
  return Format("%.0f", value);
}

class JsonLine {
 public:
  void Add(const char* key, const std::string& raw) {
    line_ += line_.empty() ? '{' : ',';
    line_ += Format("\"%s\":", key) + raw;
  }
  void AddText(const char* key, const std::string& text) { Add(key, '"' + text + '"'); }
  void AddNumber(const char* key, double value) {
    Add(key, std::isfinite(value) ? Format("%.6g", value) : std::string("null"));
  }
  void AddNumber(const char* key, const std::optional<double>& value) {
    if (value) {
      AddNumber(key, *value);
    } else {
      Add(key, "null");
    }
  }
  void AddCount(const char* key, int64_t value) { Add(key, std::to_string(value)); }
  void AddBool(const char* key, bool value) { Add(key, value ? "true" : "false"); }
  std::string Take() { return std::move(line_) + '}'; }

 private:
  std::string line_;
};

const char* ShortName(Transport transport) {
  switch (transport) {
    case Transport::kInProcess:
      return "inproc";
    case Transport::kLocal:
      return "local";
    case Transport::kGrpc:
      return "grpc";
  }
  return "unknown";
}

}  // namespace

Row MakeRow(const Outcomes& outcomes, size_t side, std::optional<size_t> limit, bool by_time) {
  const Outcome& ours = outcomes.sides[side];
  Row row{.connections = ours.connections,
          .rounds = outcomes.rounds,
          .rejected_rounds = outcomes.rejected,
          .noisy = outcomes.noisy,
          .worst = outcomes.worst};
  std::vector<double> rates, bytes, limits, ratios, latencies;
  for (size_t round = 0; round < ours.slices.size(); ++round) {
    const Slice& slice = ours.slices[round];
    rates.push_back(slice.items);
    bytes.push_back(slice.bytes);
    latencies.insert(latencies.end(), slice.latencies_us.begin(), slice.latencies_us.end());
    if (!limit) continue;
    const Slice& bound = outcomes.sides[*limit].slices[round];
    limits.push_back(bound.items);
    ratios.push_back(by_time ? Median(slice.latencies_us) / Median(bound.latencies_us)
                             : slice.items / bound.items);
  }
  row.items_per_s = Median(rates);
  row.bytes_per_s = Median(bytes);
  row.p50_us = Quantile(latencies, 0.5);
  row.p99_us = Quantile(latencies, 0.99);
  if (limit) {
    row.limit_items_per_s = Median(limits);
    row.ratio = Median(ratios);
  }
  return row;
}

std::string ToJson(const Row& row) {
  JsonLine line;
  line.AddText("workload", row.workload);
  line.AddText("transport", ShortName(row.transport));
  line.AddCount("size", row.size);
  line.AddCount("clients", row.clients);
  line.AddCount("connections", row.connections);
  line.AddNumber("items_per_s", row.items_per_s);
  line.AddNumber("bytes_per_s", row.bytes_per_s);
  line.AddNumber("p50_us", row.p50_us);
  line.AddNumber("p99_us", row.p99_us);
  line.AddNumber("limit_items_per_s", row.limit_items_per_s);
  line.AddNumber("ratio", row.ratio);
  line.AddNumber("published_limit", row.published_limit);
  line.AddBool("void", row.is_void);
  line.AddCount("rounds", row.rounds);
  line.AddCount("rejected_rounds", row.rejected_rounds);
  line.AddBool("noisy", row.noisy);
  line.AddNumber("steal", row.worst.steal);
  line.AddNumber("other_programs", row.worst.others);
  for (const auto& [key, value] : row.more) line.AddNumber(key.c_str(), value);
  return line.Take();
}

std::string TableHeading() {
  return Format("%-18s %-6s %7s %7s %6s %10s %10s %9s %9s %10s %10s %6s", "workload", "over", "size",
                "clients", "conns", "items/s", "bytes/s", "p50 us", "p99 us", "limit/s", "published",
                "ratio");
}

std::string ToText(const Row& row) {
  std::string text =
      Format("%-18s %-6s %7lld %7d %6d %10s %10s %9.1f %9.1f %10s %10s %6s", row.workload.c_str(),
             ShortName(row.transport), static_cast<long long>(row.size), row.clients, row.connections,
             Short(row.items_per_s).c_str(), Short(row.bytes_per_s).c_str(), row.p50_us, row.p99_us,
             row.limit_items_per_s ? Short(*row.limit_items_per_s).c_str() : "-",
             row.published_limit ? Short(*row.published_limit).c_str() : "-",
             row.ratio ? Format("%.2f", *row.ratio).c_str() : "-");
  for (const auto& [key, value] : row.more) text += Format("  %s %.4g", key.c_str(), value);
  if (row.is_void) text += "  VOID: the limit is far below its published figure";
  if (row.noisy) {
    text += Format("  NOISY: hypervisor took %.0f %%, other programs %.0f %%", row.worst.steal * 100,
                   row.worst.others * 100);
  }
  return text;
}

std::optional<double> PublishedLimit(Flow flow, int64_t size) {
  struct Figure {
    int64_t size;
    double insert, sample;
  };
  constexpr std::array<Figure, 4> kFigures = {
      {{400, 2.81e6, 3.18e6}, {4'000, 431e3, 509e3}, {40'000, 53e3, 50e3}, {400'000, 4.5e3, 5.4e3}}};
  for (const Figure& figure : kFigures) {
    if (figure.size == size) return flow == Flow::kInsert ? figure.insert : figure.sample;
  }
  return std::nullopt;
}

void CompareWithPublished(Flow flow, Row* row) {
  row->published_limit = PublishedLimit(flow, row->size);
  row->is_void = row->published_limit && *row->limit_items_per_s < kVoidBelow * *row->published_limit;
}

}  // namespace reverb::bench
