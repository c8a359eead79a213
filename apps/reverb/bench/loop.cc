#include "bench/loop.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "bench/limit_grpc.h"
#include "bench/limit_memory.h"
#include "bench/loops_batch.h"
#include "bench/loops_load.h"
#include "bench/loops_one.h"

namespace reverb::bench {
namespace {

// Number of quantiles that represent the latencies of a slice.
constexpr size_t kCondensed = 400;

}  // namespace

Message Job::ToMessage(std::string verb) const {
  Message message(std::move(verb));
  message.Set("kind", static_cast<int64_t>(kind))
      .Set("address", address)
      .Set("table", table)
      .Set("local", int64_t{local})
      .Set("size", size)
      .Set("writers", int64_t{writers})
      .Set("samplers", int64_t{samplers})
      .Set("tables", int64_t{tables})
      .Set("items", items)
      .Set("fill", int64_t{fill})
      .Set("in_step", int64_t{in_step})
      .Set("write_window_bytes", write_window_bytes)
      .Set("seed", static_cast<int64_t>(seed));
  return message;
}

Job Job::FromMessage(const Message& message) {
  return {.kind = static_cast<Kind>(message.GetInt("kind")),
          .address = message.Get("address"),
          .table = message.Get("table"),
          .local = message.GetInt("local") != 0,
          .size = message.GetInt("size"),
          .writers = static_cast<int>(message.GetInt("writers")),
          .samplers = static_cast<int>(message.GetInt("samplers")),
          .tables = static_cast<int>(message.GetInt("tables")),
          .items = message.GetInt("items"),
          .fill = message.GetInt("fill") != 0,
          .in_step = message.GetInt("in_step") != 0,
          .write_window_bytes = message.GetInt("write_window_bytes"),
          .seed = static_cast<uint64_t>(message.GetInt("seed"))};
}

void Slice::Add(const Slice& other) {
  items += other.items;
  samples += other.samples;
  bytes += other.bytes;
  client_items.insert(client_items.end(), other.client_items.begin(), other.client_items.end());
  latencies_us.insert(latencies_us.end(), other.latencies_us.begin(), other.latencies_us.end());
}

Message Slice::ToMessage() const {
  Message message("slice");
  message.Set("items", items)
      .Set("samples", samples)
      .Set("bytes", bytes)
      .Set("client_items", client_items)
      .Set("latencies_us", latencies_us);
  return message;
}

Slice Slice::FromMessage(const Message& message) {
  return {.items = message.GetNumber("items"),
          .samples = message.GetNumber("samples"),
          .bytes = message.GetNumber("bytes"),
          .client_items = message.GetList("client_items"),
          .latencies_us = message.GetList("latencies_us")};
}

std::string Job::TableName(int index) const {
  return table.empty() ? "table" + std::to_string(index) : table;
}

WaitOptions Job::wait() const {
  if (table.empty()) return {};
  return {.timeout = std::chrono::seconds(5)};
}

Result<std::vector<TableOptions>> TablesFor(const Job& job) {
  std::vector<TableOptions> tables;
  for (int i = 0; i < job.tables; ++i) {
    TableOptions table{.name = job.TableName(i), .max_size = job.items};
    if (job.kind == Kind::kPer) table.sampler = SelectorOptions::Prioritized(0.6);
    if (job.in_step) {
      REVERB_ASSIGN_OR_RETURN(table.rate_limiter, InStepLimiter());
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

Result<std::vector<std::unique_ptr<Loop>>> MakeLoops(const Job& job, const Connector& connect) {
  switch (job.kind) {
    case Kind::kLoad:
      return MakeLoadLoops(job, connect);
    case Kind::kSampleOne:
    case Kind::kInsertOne:
    case Kind::kUpdateOne:
      return MakeOneLoops(job, connect);
    case Kind::kTransitions:
    case Kind::kFrames:
    case Kind::kPer:
      return MakeBatchLoops(job, connect);
    case Kind::kLimitStreams:
    case Kind::kLimitCall:
    case Kind::kLimitPer:
      return MakeGrpcLimitLoops(job);
    case Kind::kLimitCopy:
    case Kind::kLimitColumns:
    case Kind::kLimitFrames:
      return MakeMemoryLimitLoops(job);
  }
  return Status::InvalidArgument("a job of kind " + std::to_string(static_cast<int>(job.kind)));
}

Result<Slice> RunLoops(const std::vector<std::unique_ptr<Loop>>& loops, double seconds) {
  std::vector<Tally> tallies(loops.size());
  std::vector<Status> results(loops.size());
  std::vector<double> took(loops.size());
  const double start = NowSeconds();
  const auto run = [&](size_t i) {
    results[i] = loops[i]->Run(start + seconds, &tallies[i]);
    took[i] = NowSeconds() - start;
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < loops.size(); ++i) threads.emplace_back(run, i);
  if (!loops.empty()) run(0);
  for (std::thread& thread : threads) thread.join();

  // The slice lasts until its last client is done: it may have been delayed in favour of the others.
  const double longest = took.empty() ? 0 : *std::ranges::max_element(took);
  Slice slice;
  std::vector<double> latencies;
  for (size_t i = 0; i < loops.size(); ++i) {
    REVERB_RETURN_IF_ERROR(results[i]);
    const Tally& tally = tallies[i];
    const double seconds = tally.seconds > 0 ? tally.seconds : longest;
    slice.items += tally.items / seconds;
    slice.samples += tally.samples / seconds;
    slice.bytes += tally.bytes / seconds;
    slice.client_items.push_back(tally.items / seconds);
    latencies.insert(latencies.end(), tally.latencies_us.begin(), tally.latencies_us.end());
  }
  slice.latencies_us = Condense(&latencies, kCondensed);
  return slice;
}

}  // namespace reverb::bench
