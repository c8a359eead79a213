#include "bench/loops_load.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "bench/payload.h"

namespace reverb::bench {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kBatch = 64;
// Bounds the time between two checks of the clock.
constexpr milliseconds kPatience{20};

// One writer and its items: one column, chunks of one row.
class ItemWriter {
 public:
  ItemWriter(TrajectoryWriter writer, const Job& job, int table, uint64_t seed)
      : writer_(std::move(writer)),
        table_(job.TableName(table)),
        wait_(job.wait()),
        dims_{job.size / 4},
        picker_(job.size, seed) {}

  static Result<ItemWriter> Create(const Client& client, const Job& job, int table, uint64_t seed) {
    TrajectoryWriterOptions options{.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1}};
    options.wait_for_room = job.wait();
    if (job.in_step) options.wait_for_room.timeout = kPatience;
    REVERB_ASSIGN_OR_RETURN(TrajectoryWriter writer, client.NewTrajectoryWriter(options));
    return ItemWriter(std::move(writer), job, table, seed);
  }

  // DEADLINE_EXCEEDED if there was no room; the next call continues with the same step.
  Status Write() {
    if (!has_step_) {
      const ColumnValue value{0, {DType::kFloat32, dims_, picker_()}};
      REVERB_RETURN_IF_ERROR(writer_.Append({&value, 1}));
      has_step_ = true;
    }
    const CellRange newest = CellRange::One(0, writer_.position() - 1);
    const ItemColumn column{{&newest, 1}};
    REVERB_RETURN_IF_ERROR(writer_.CreateItem(table_, 1.0, {&column, 1}));
    has_step_ = false;
    return Status::Ok();
  }
  Status Flush() { return writer_.Flush(0, wait_); }

 private:
  TrajectoryWriter writer_;
  std::string table_;
  WaitOptions wait_;
  std::array<int64_t, 1> dims_;
  Picker picker_;
  bool has_step_ = false;
};

// Counts confirmed items: the slice ends with a Flush().
class InsertLoop : public Loop {
 public:
  InsertLoop(ItemWriter writer, const Job& job)
      : writer_(std::move(writer)), size_(job.size), group_(ItemsPerMessage(job.size)) {}

  Status Run(double end, Tally* tally) override {
    while (NowSeconds() < end) {
      Tally::Timer timer(tally);
      for (int64_t i = 0; i < group_; ++i) REVERB_RETURN_IF_ERROR(writer_.Write());
      timer.Stop();
      tally->items += static_cast<double>(group_);
    }
    tally->bytes = tally->items * static_cast<double>(size_);
    return writer_.Flush();
  }

 private:
  ItemWriter writer_;
  int64_t size_;
  int64_t group_;
};

// Inserts into a table that makes writers wait for samplers, which stop at the end of the slice, so that the
// last items would never be confirmed. It therefore uses the table's counter of inserts, from the start to
// the end of the slice; about as many items are in transit at both times.
class InStepInsertLoop : public Loop {
 public:
  InStepInsertLoop(ItemWriter writer, Client client, const Job& job, int table, bool counts)
      : writer_(std::move(writer)),
        client_(std::move(client)),
        size_(job.size),
        table_(job.TableName(table)),
        counts_(counts) {}

  Status Run(double end, Tally* tally) override {
    double before = 0;
    if (counts_) {
      REVERB_ASSIGN_OR_RETURN(before, Inserts());
    }
    while (NowSeconds() < end) {
      if (Status status = writer_.Write(); !status.ok() && status.code() != StatusCode::kDeadlineExceeded) {
        return status;
      }
    }
    if (!counts_) return Status::Ok();
    REVERB_ASSIGN_OR_RETURN(const double after, Inserts());
    tally->items = after - before;
    tally->bytes = tally->items * static_cast<double>(size_);
    return Status::Ok();
  }

 private:
  Result<double> Inserts() const {
    REVERB_ASSIGN_OR_RETURN(const ServerInfo info, client_.Info());
    for (const TableInfo& table : info.tables) {
      if (table.name == table_) return static_cast<double>(table.counters.inserts);
    }
    return Status::NotFound("no table \"" + table_ + "\"");
  }

  ItemWriter writer_;
  Client client_;
  int64_t size_;
  std::string table_;
  bool counts_;  // one loop per table
};

// Enough for the throughput of one client. The same for any number of clients, so that their figures compare, as long as
// their samples take little memory.
int64_t MaxInFlight(const Job& job) {
  constexpr int64_t kProcessBytes = int64_t{64} << 20;
  constexpr int64_t kMost = 1024;
  if (job.size >= 40'000) return 2 * kBatch;
  return std::clamp<int64_t>(kProcessBytes / (job.size * job.samplers), 2 * kBatch, kMost);
}

// Samples batches of 64 into existing arrays. Each slice opens a stream, which prefetches: counting starts
// when its window is full, so that as many samples are prefetched at the start as at the end.
class SampleLoop : public Loop {
 public:
  SampleLoop(Client client, const Job& job, int table)
      : client_(std::move(client)),
        size_(job.size),
        table_(job.TableName(table)),
        // Items of an external table may have any layout.
        has_own_layout_(!job.table.empty()),
        in_step_(job.in_step),
        wait_(job.wait()),
        max_in_flight_(MaxInFlight(job)),
        memory_(has_own_layout_ ? 0 : kBatch * job.size) {
    if (in_step_) wait_.timeout = kPatience;
  }

  Status Run(double end, Tally* tally) override {
    if (!sampler_) {
      REVERB_ASSIGN_OR_RETURN(
          sampler_,
          client_.NewSampler({.table = table_, .max_in_flight_samples_per_worker = max_in_flight_}));
    }
    const double begin = NowSeconds();
    const double settled = begin + (end - begin) / 5;
    Tally ignored;
    while (NowSeconds() < settled) REVERB_RETURN_IF_ERROR(TakeBatch(end, &ignored));
    const double start = NowSeconds();
    while (NowSeconds() < end) REVERB_RETURN_IF_ERROR(TakeBatch(end, tally));
    tally->seconds = NowSeconds() - start;
    tally->samples = tally->items;
    if (!has_own_layout_) tally->bytes = tally->items * static_cast<double>(size_);
    return Status::Ok();
  }

 private:
  Status NextBatch() {
    if (has_own_layout_) return sampler_->NextBatch(kBatch, &batch_, wait_);
    const ColumnMemory column{memory_.data(), memory_.size()};
    return sampler_->NextBatch(kBatch, {&column, 1}, &info_, wait_);
  }

  // Gives up after `end`, since the writers that samples wait for may have stopped.
  Status TakeBatch(double end, Tally* tally) {
    Tally::Timer timer(tally);
    Status status;
    do {
      status = NextBatch();
    } while (in_step_ && status.code() == StatusCode::kDeadlineExceeded && NowSeconds() < end);
    if (in_step_ && status.code() == StatusCode::kDeadlineExceeded) return Status::Ok();
    REVERB_RETURN_IF_ERROR(status);
    timer.Stop();
    tally->items += kBatch;
    for (const Tensor& column : batch_.columns) tally->bytes += static_cast<double>(column.num_bytes());
    return Status::Ok();
  }

  Client client_;
  int64_t size_;
  std::string table_;
  bool has_own_layout_;
  bool in_step_;
  WaitOptions wait_;
  int64_t max_in_flight_;
  std::optional<Sampler> sampler_;
  AlignedBytes memory_;
  BatchInfo info_;
  Batch batch_;
};

}  // namespace

Result<RateLimiterOptions> InStepLimiter() {
  return RateLimiterOptions::SampleToInsertRatio(/*samples_per_insert=*/4, /*min_size_to_sample=*/1000,
                                                 /*error_buffer=*/4000);
}

Status Fill(const Client& client, const Job& job, int table) {
  REVERB_ASSIGN_OR_RETURN(ItemWriter writer,
                          ItemWriter::Create(client, job, table, job.seed + static_cast<uint64_t>(table)));
  for (int64_t i = 0; i < job.items; ++i) REVERB_RETURN_IF_ERROR(writer.Write());
  return writer.Flush();
}

Result<std::vector<std::unique_ptr<Loop>>> MakeLoadLoops(const Job& job, const Connector& connect) {
  std::vector<std::unique_ptr<Loop>> loops;
  for (int i = 0; i < job.writers; ++i) {
    REVERB_ASSIGN_OR_RETURN(Client client, connect());
    const int table = i % job.tables;
    REVERB_ASSIGN_OR_RETURN(
        ItemWriter writer,
        ItemWriter::Create(client, job, table, job.seed * 1000 + static_cast<uint64_t>(i)));
    if (job.in_step) {
      loops.push_back(std::make_unique<InStepInsertLoop>(std::move(writer), std::move(client), job, table,
                                                         /*counts=*/i < job.tables));
    } else {
      loops.push_back(std::make_unique<InsertLoop>(std::move(writer), job));
    }
  }
  for (int i = 0; i < job.samplers; ++i) {
    REVERB_ASSIGN_OR_RETURN(Client client, connect());
    loops.push_back(std::make_unique<SampleLoop>(std::move(client), job, i % job.tables));
  }
  if (job.fill) {
    REVERB_ASSIGN_OR_RETURN(const Client client, connect());
    for (int table = 0; table < job.tables; ++table) REVERB_RETURN_IF_ERROR(Fill(client, job, table));
  }
  return loops;
}

}  // namespace reverb::bench
