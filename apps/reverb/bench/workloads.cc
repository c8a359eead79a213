#include "bench/workloads.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/loops_batch.h"
#include "bench/payload.h"
#include "reverb/client.h"

namespace reverb::bench {
namespace {

constexpr std::array<int64_t, 4> kPaperSizes = {400, 4'000, 40'000, 400'000};
// Stores are larger than the caches and fit on a small machine.
constexpr int64_t kStoreBytes = int64_t{256} << 20;
constexpr int64_t kFewestItems = 1000;

int64_t ItemsFor(int64_t size) { return std::max(kFewestItems, kStoreBytes / size); }

std::vector<int64_t> SizesOf(const BenchOptions& options) {
  if (options.size) return {*options.size};
  return {kPaperSizes.begin(), kPaperSizes.end()};
}

// The two sides of a workload. An external server has no limit.
struct Pair {
  size_t ours = 0;
  std::optional<size_t> limit = {};
};

// Returns the job for the transport and for a running server, if one was given.
Job At(Job job, const BenchOptions& options) {
  job.local = options.transport == Transport::kLocal;
  job.address = options.address;
  job.table = options.table;
  if (!options.address.empty()) job.fill = false;
  return job;
}

// Returns the bytes of the items of the given table; NOT_FOUND if it is empty.
Result<int64_t> SizeOfItems(const BenchOptions& options) {
  const WaitOptions wait{.timeout = std::chrono::seconds(5)};
  REVERB_ASSIGN_OR_RETURN(const Client client, Client::Connect(options.address));
  uint64_t cursor = 0;
  REVERB_ASSIGN_OR_RETURN(const auto items, client.Inspect(options.table, 1, &cursor, wait));
  if (items.empty()) {
    return Status::NotFound("table \"" + options.table +
                            "\" is empty; write into it first: reverb bench insert --address " +
                            options.address + " --table " + options.table + " --size 4000");
  }
  int64_t size = 0;
  for (uint32_t i = 0; i < items[0].num_columns(); ++i) {
    REVERB_ASSIGN_OR_RETURN(const Tensor column, items[0].column(i));
    size += static_cast<int64_t>(column.num_bytes());
  }
  return size;
}

// Spreads the clients of a job over processes, each with the same number or one more.
std::vector<Job> Spread(const Job& job, int processes) {
  std::vector<Job> jobs;
  for (int i = 0; i < processes; ++i) {
    const auto share = [&](int all) { return all * (i + 1) / processes - all * i / processes; };
    Job part = job;
    part.writers = share(job.writers);
    part.samplers = share(job.samplers);
    part.seed = job.seed * 100 + static_cast<uint64_t>(i);
    part.fill = job.fill && i == 0;
    if (part.writers + part.samplers > 0) jobs.push_back(part);
  }
  return jobs;
}

// Puts writers and samplers into separate processes.
std::vector<Job> Apart(const Job& job) {
  std::vector<Job> jobs;
  Job writers = job;
  writers.samplers = 0;
  Job samplers = job;
  samplers.writers = 0;
  samplers.fill = false;
  samplers.seed += 17;
  if (job.writers > 0) jobs.push_back(writers);
  if (job.samplers > 0) jobs.push_back(samplers);
  return jobs;
}

// Adds a load, its limit and the servers of both. `processes`: the number of processes for clients; 0:
// separate ones for writers and samplers. Within one process, each side has one.
Result<Pair> AddLoad(Contest* contest, Job job, bool in_process, int processes) {
  if (!job.address.empty()) {
    Pair alone;
    REVERB_ASSIGN_OR_RETURN(alone.ours,
                            contest->AddSide(processes == 0 ? Apart(job) : Spread(job, processes)));
    return alone;
  }
  Job limit = job;
  limit.kind = in_process ? Kind::kLimitCopy : Kind::kLimitStreams;
  limit.fill = false;
  Pair pair;
  if (in_process) {
    REVERB_ASSIGN_OR_RETURN(pair.limit, contest->AddSide({limit}));
    REVERB_ASSIGN_OR_RETURN(pair.ours, contest->AddSide({job}));
    return pair;
  }
  const auto split = [&](const Job& whole) {
    return processes == 0 ? Apart(whole) : Spread(whole, processes);
  };
  REVERB_ASSIGN_OR_RETURN(limit.address, contest->StartServer(limit));
  REVERB_ASSIGN_OR_RETURN(job.address, contest->StartServer(job));
  REVERB_ASSIGN_OR_RETURN(pair.limit, contest->AddSide(split(limit)));
  REVERB_ASSIGN_OR_RETURN(pair.ours, contest->AddSide(split(job)));
  return pair;
}

// One client is one process; more clients use four processes.
int ProcessesFor(int clients) { return std::min(clients, 4); }

// Returns the rate of the slowest client of a side relative to the mean; the median over rounds.
double SlowestShare(const Outcome& outcome) {
  std::vector<double> shares;
  for (const Slice& slice : outcome.slices) {
    const std::vector<double>& rates = slice.client_items;
    if (rates.empty()) continue;
    const double mean = std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
    shares.push_back(*std::ranges::min_element(rates) / mean);
  }
  return Median(shares);
}

// Adds samples and inserts per second separately.
void SplitRates(const Outcome& outcome, Row* row) {
  std::vector<double> inserts, samples;
  for (const Slice& slice : outcome.slices) {
    inserts.push_back(slice.items - slice.samples);
    samples.push_back(slice.samples);
  }
  row->more.emplace_back("inserts_per_s", Median(inserts));
  row->more.emplace_back("samples_per_s", Median(samples));
}

// Bounds the unconfirmed bytes of all writers together, so that many writers do not fill the memory.
int64_t WindowOf(int writers) {
  return std::max<int64_t>((int64_t{64} << 20) / std::max(writers, 1), 1 << 20);
}

Job FlowJob(Flow flow, int64_t size, int clients, const BenchOptions& options) {
  return At({.size = size,
             .writers = flow == Flow::kInsert ? clients : 0,
             .samplers = flow == Flow::kSample ? clients : 0,
             .items = ItemsFor(size),
             .fill = flow == Flow::kSample,
             .write_window_bytes = WindowOf(clients)},
            options);
}

}  // namespace

Status RunFlow(Flow flow, const BenchOptions& options, const RowSink& sink) {
  const Transport transport = options.transport.value_or(Transport::kGrpc);
  const bool in_process = transport == Transport::kInProcess;
  const int clients = options.clients.value_or(1);
  std::vector<int64_t> sizes = SizesOf(options);
  if (!options.address.empty() && flow == Flow::kSample) {
    REVERB_ASSIGN_OR_RETURN(const int64_t size, SizeOfItems(options));
    sizes = {size};
  }
  for (const int64_t size : sizes) {
    const Job job = FlowJob(flow, size, clients, options);
    Contest contest;
    REVERB_ASSIGN_OR_RETURN(const Pair pair, AddLoad(&contest, job, in_process, ProcessesFor(clients)));
    REVERB_ASSIGN_OR_RETURN(const Outcomes outcomes, contest.Run(options.seconds, options.rounds));
    Row row = MakeRow(outcomes, pair.ours, pair.limit);
    row.workload = flow == Flow::kInsert ? "insert" : "sample";
    row.transport = transport;
    row.size = size;
    row.clients = clients;
    if (transport == Transport::kGrpc && clients == 1 && row.ratio) CompareWithPublished(flow, &row);
    if (clients > 1) row.more.emplace_back("slowest_client", SlowestShare(outcomes.sides[pair.ours]));
    sink(row);
  }
  return Status::Ok();
}

Status RunLatency(const BenchOptions& options, const RowSink& sink) {
  struct Operation {
    Kind kind;
    const char* name;
  };
  constexpr std::array<Operation, 3> kOperations = {{{Kind::kSampleOne, "latency-sample"},
                                                     {Kind::kInsertOne, "latency-insert"},
                                                     {Kind::kUpdateOne, "latency-update"}}};
  const Transport transport = options.transport.value_or(Transport::kGrpc);
  const bool in_process = transport == Transport::kInProcess;
  Job job = At({.kind = Kind::kSampleOne, .size = options.size.value_or(400), .items = 10'000}, options);
  Contest contest;
  std::optional<size_t> limit;
  const bool is_ours = options.address.empty();
  bool fill = is_ours;
  if (!is_ours) job.items = 1000;
  if (!is_ours) {
    const Result<int64_t> size = SizeOfItems(options);
    fill = size.status().code() == StatusCode::kNotFound;
    if (!size.ok() && !fill) return size.status();
  }
  if (!in_process && is_ours) {
    Job call = job;
    call.kind = Kind::kLimitCall;
    REVERB_ASSIGN_OR_RETURN(call.address, contest.StartServer(call));
    REVERB_ASSIGN_OR_RETURN(limit, contest.AddSide({call}));
    REVERB_ASSIGN_OR_RETURN(job.address, contest.StartServer(job));
  }
  std::vector<size_t> sides;
  for (const Operation& operation : kOperations) {
    job.kind = operation.kind;
    // One server for all three, filled by the first; within one process each has its own.
    job.fill = in_process || (fill && sides.empty());
    REVERB_ASSIGN_OR_RETURN(const size_t side, contest.AddSide({job}));
    sides.push_back(side);
  }
  REVERB_ASSIGN_OR_RETURN(const Outcomes outcomes, contest.Run(options.seconds, options.rounds));
  for (size_t i = 0; i < sides.size(); ++i) {
    Row row = MakeRow(outcomes, sides[i], limit, /*by_time=*/true);
    row.workload = kOperations[i].name;
    row.transport = transport;
    row.size = job.size;
    if (limit) row.more.emplace_back("empty_call_p50_us", MakeRow(outcomes, *limit, std::nullopt).p50_us);
    sink(row);
  }
  return Status::Ok();
}

Status RunMixed(const BenchOptions& options, const RowSink& sink) {
  const Transport transport = options.transport.value_or(Transport::kGrpc);
  const bool in_process = transport == Transport::kInProcess;
  const int writers = options.clients.value_or(1);
  const int samplers = options.samplers.value_or(writers);
  const int64_t size = options.size.value_or(4'000);
  const Job job = At({.size = size,
                      .writers = writers,
                      .samplers = samplers,
                      .items = ItemsFor(size),
                      .in_step = true,
                      .write_window_bytes = WindowOf(writers)},
                     options);
  Contest contest;
  REVERB_ASSIGN_OR_RETURN(const Pair pair, AddLoad(&contest, job, in_process, /*processes=*/0));
  REVERB_ASSIGN_OR_RETURN(const Outcomes outcomes, contest.Run(options.seconds, options.rounds));
  Row row = MakeRow(outcomes, pair.ours, pair.limit);
  row.workload = "mixed";
  row.transport = transport;
  row.size = size;
  row.clients = writers + samplers;
  SplitRates(outcomes.sides[pair.ours], &row);
  sink(row);
  return Status::Ok();
}

Status RunPer(const BenchOptions& options, const RowSink& sink) {
  const Transport transport = options.transport.value_or(Transport::kGrpc);
  const bool in_process = transport == Transport::kInProcess;
  Job job =
      At({.kind = Kind::kPer, .size = options.size.value_or(400), .items = 100'000, .fill = true}, options);
  Job limit = job;
  limit.fill = false;
  Contest contest;
  if (in_process) {
    limit.kind = Kind::kLimitCopy;
    limit.samplers = 1;
  } else {
    limit.kind = Kind::kLimitPer;
    REVERB_ASSIGN_OR_RETURN(limit.address, contest.StartServer(limit));
    REVERB_ASSIGN_OR_RETURN(job.address, contest.StartServer(job));
  }
  REVERB_ASSIGN_OR_RETURN(const size_t limit_side, contest.AddSide({limit}));
  REVERB_ASSIGN_OR_RETURN(const size_t side, contest.AddSide({job}));
  REVERB_ASSIGN_OR_RETURN(const Outcomes outcomes, contest.Run(options.seconds, options.rounds));
  Row row = MakeRow(outcomes, side, limit_side);
  row.workload = "per";
  row.transport = transport;
  row.size = job.size;
  sink(row);
  return Status::Ok();
}

Status RunTransitions(const BenchOptions& options, const RowSink& sink) {
  struct Variant {
    Kind kind;
    Kind memory_limit;
    const char* name;
    int64_t size;
    int64_t items;
  };
  constexpr std::array<Variant, 2> kVariants = {
      {{Kind::kTransitions, Kind::kLimitColumns, "transitions", kTransitionBytes, 200'000},
       {Kind::kFrames, Kind::kLimitFrames, "transitions-frames", kFrameBytes, 20'000}}};
  const Transport transport = options.transport.value_or(Transport::kInProcess);
  const bool in_process = transport == Transport::kInProcess;
  for (const Variant& variant : kVariants) {
    Job job = At({.kind = variant.kind, .size = variant.size, .items = variant.items, .fill = true}, options);
    Job limit = job;
    limit.fill = false;
    Contest contest;
    if (in_process) {
      limit.kind = variant.memory_limit;
    } else {
      limit.kind = Kind::kLimitStreams;
      limit.samplers = 1;
      REVERB_ASSIGN_OR_RETURN(limit.address, contest.StartServer(limit));
      REVERB_ASSIGN_OR_RETURN(job.address, contest.StartServer(job));
    }
    REVERB_ASSIGN_OR_RETURN(const size_t limit_side, contest.AddSide({limit}));
    REVERB_ASSIGN_OR_RETURN(const size_t side, contest.AddSide({job}));
    REVERB_ASSIGN_OR_RETURN(const Outcomes outcomes, contest.Run(options.seconds, options.rounds));
    Row row = MakeRow(outcomes, side, limit_side);
    row.workload = variant.name;
    row.transport = transport;
    row.size = variant.size;
    sink(row);
  }
  return Status::Ok();
}

Status RunTables(const BenchOptions& options, const RowSink& sink) {
  const Transport transport = options.transport.value_or(Transport::kGrpc);
  const bool in_process = transport == Transport::kInProcess;
  const int64_t size = options.size.value_or(4'000);
  std::vector<int> counts = {1, 2, 4, 8};
  if (options.clients) counts = {*options.clients};
  Contest contest;
  std::vector<Pair> pairs;
  for (const int tables : counts) {
    const Job job = At({.size = size,
                        .writers = tables,
                        .samplers = tables,
                        .tables = tables,
                        // Together they contain as much as one table in other workloads.
                        .items = std::max(kFewestItems, ItemsFor(size) / tables),
                        .fill = true,
                        .write_window_bytes = WindowOf(tables)},
                       options);
    REVERB_ASSIGN_OR_RETURN(const Pair pair, AddLoad(&contest, job, in_process, /*processes=*/0));
    pairs.push_back(pair);
  }
  REVERB_ASSIGN_OR_RETURN(const Outcomes outcomes, contest.Run(options.seconds, options.rounds));
  for (size_t i = 0; i < counts.size(); ++i) {
    Row row = MakeRow(outcomes, pairs[i].ours, pairs[i].limit);
    row.workload = "tables";
    row.transport = transport;
    row.size = size;
    row.clients = 2 * counts[i];
    row.more.emplace_back("tables", counts[i]);
    SplitRates(outcomes.sides[pairs[i].ours], &row);
    if (i > 0) row.more.emplace_back("vs_one_table", *MakeRow(outcomes, pairs[i].ours, pairs[0].ours).ratio);
    sink(row);
  }
  return Status::Ok();
}

Status RunClients(const BenchOptions& options, const RowSink& sink) {
  // The reference for many clients.
  constexpr int kFew = 8;
  const int64_t size = options.size.value_or(4'000);
  std::vector<int> counts = {1, kFew, 50, 200};
  if (options.clients) counts = {kFew, *options.clients};
  if (options.clients == kFew) counts.pop_back();
  for (const Flow flow : {Flow::kInsert, Flow::kSample}) {
    Contest contest;
    std::vector<Pair> pairs;
    size_t few = 0;
    for (const int clients : counts) {
      const Job job = FlowJob(flow, size, clients, options);
      if (clients == kFew) few = pairs.size();
      REVERB_ASSIGN_OR_RETURN(const Pair pair,
                              AddLoad(&contest, job, /*in_process=*/false, ProcessesFor(clients)));
      pairs.push_back(pair);
    }
    REVERB_ASSIGN_OR_RETURN(const Outcomes outcomes, contest.Run(options.seconds, options.rounds));
    for (size_t i = 0; i < counts.size(); ++i) {
      Row row = MakeRow(outcomes, pairs[i].ours, pairs[i].limit);
      row.workload = flow == Flow::kInsert ? "clients-insert" : "clients-sample";
      row.transport = options.transport.value_or(Transport::kGrpc);
      row.size = size;
      row.clients = counts[i];
      row.more.emplace_back("slowest_client", SlowestShare(outcomes.sides[pairs[i].ours]));
      row.more.emplace_back("vs_8_clients", *MakeRow(outcomes, pairs[i].ours, pairs[few].ours).ratio);
      sink(row);
    }
  }
  return Status::Ok();
}

}  // namespace reverb::bench
