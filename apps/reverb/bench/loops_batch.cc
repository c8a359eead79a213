#include "bench/loops_batch.h"

#include <algorithm>
#include <utility>

#include "bench/loops_load.h"
#include "bench/payload.h"

namespace reverb::bench {
namespace {

// Writes transitions as items of one row in each of four columns, sampled without the time dimension.
Status FillTransitions(const Client& client, const Job& job) {
  REVERB_ASSIGN_OR_RETURN(
      TrajectoryWriter writer,
      client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1}}));
  const std::string table = job.TableName(0);
  Picker picker(kTransitionBytes, job.seed);
  std::array<std::array<int64_t, 1>, 4> dims;
  std::array<ColumnValue, 4> step;
  std::array<CellRange, 4> cells;
  std::array<ItemColumn, 4> item;
  for (int64_t i = 0; i < job.items; ++i) {
    const uint8_t* data = picker();
    for (uint32_t column = 0; column < step.size(); ++column) {
      dims[column][0] = kTransitionColumns[column] / 4;
      step[column] = {column, {DType::kFloat32, dims[column], data}};
      data += kTransitionColumns[column];
    }
    REVERB_RETURN_IF_ERROR(writer.Append(step));
    for (uint32_t column = 0; column < step.size(); ++column) {
      cells[column] = CellRange::One(column, writer.position() - 1);
      item[column] = {{&cells[column], 1}, /*squeeze=*/true};
    }
    REVERB_RETURN_IF_ERROR(writer.CreateItem(table, 1.0, item));
  }
  return writer.Flush();
}

// Writes every frame as an item; 40 of them share a chunk.
Status FillFrames(const Client& client, const Job& job) {
  REVERB_ASSIGN_OR_RETURN(TrajectoryWriter writer,
                          client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = kFramesPerChunk,
                                                                   .max_chunk_length = kFramesPerChunk}}));
  const std::string table = job.TableName(0);
  const std::vector<uint8_t> frames = MakeFrames(job.items, job.seed);
  const std::array<int64_t, 2> dims = {kFrameSide, kFrameSide};
  for (int64_t i = 0; i < job.items; ++i) {
    const ColumnValue value{0, {DType::kUint8, dims, frames.data() + i * kFrameBytes}};
    REVERB_RETURN_IF_ERROR(writer.Append({&value, 1}));
    const CellRange newest = CellRange::One(0, writer.position() - 1);
    const ItemColumn column{{&newest, 1}, /*squeeze=*/true};
    REVERB_RETURN_IF_ERROR(writer.CreateItem(table, 1.0, {&column, 1}));
  }
  return writer.Flush();
}

// The arrays of a batch.
class BatchMemory {
 public:
  explicit BatchMemory(std::span<const int64_t> column_bytes) {
    for (const int64_t bytes : column_bytes) {
      arrays_.emplace_back(static_cast<size_t>(bytes * kLearnerBatch));
      columns_.push_back({arrays_.back().data(), arrays_.back().size()});
    }
  }
  std::span<const ColumnMemory> columns() const { return columns_; }

 private:
  std::vector<AlignedBytes> arrays_;
  std::vector<ColumnMemory> columns_;
};

// Samples batches. Each slice opens a new stream, so that no prefetched samples are carried over.
class BatchLoop : public Loop {
 public:
  BatchLoop(Client client, std::span<const int64_t> column_bytes, const Job& job)
      : client_(std::move(client)), table_(job.TableName(0)), memory_(column_bytes) {
    for (const int64_t bytes : column_bytes) item_bytes_ += static_cast<double>(bytes);
  }

  Status Run(double end, Tally* tally) override {
    REVERB_ASSIGN_OR_RETURN(
        Sampler sampler,
        client_.NewSampler({.table = table_, .max_in_flight_samples_per_worker = 4 * kLearnerBatch}));
    BatchInfo info;
    while (NowSeconds() < end) {
      Tally::Timer timer(tally);
      REVERB_RETURN_IF_ERROR(sampler.NextBatch(kLearnerBatch, memory_.columns(), &info));
      timer.Stop();
      tally->items += kLearnerBatch;
    }
    tally->samples = tally->items;
    tally->bytes = tally->items * item_bytes_;
    return Status::Ok();
  }

 private:
  Client client_;
  std::string table_;
  BatchMemory memory_;
  double item_bytes_ = 0;
};

// Prioritized replay: draws a batch from the newest priorities, then updates all of its priorities.
class PerLoop : public Loop {
 public:
  PerLoop(Client client, Sampler sampler, const Job& job)
      : client_(std::move(client)),
        sampler_(std::move(sampler)),
        table_(job.TableName(0)),
        size_(job.size),
        memory_({&job.size, 1}),
        random_(job.seed) {}

  Status Run(double end, Tally* tally) override {
    std::vector<KeyPriority> updates(kLearnerBatch);
    while (NowSeconds() < end) {
      Tally::Timer timer(tally);
      REVERB_RETURN_IF_ERROR(sampler_.NextBatch(kLearnerBatch, memory_.columns(), &info_));
      for (size_t i = 0; i < updates.size(); ++i) {
        updates[i] = {info_.keys[i], static_cast<double>(random_() % 1000 + 1) / 1000};
      }
      REVERB_RETURN_IF_ERROR(client_.UpdatePriorities(table_, updates));
      timer.Stop();
      tally->items += kLearnerBatch;
    }
    tally->samples = tally->items;
    tally->bytes = tally->items * static_cast<double>(size_ + static_cast<int64_t>(sizeof(KeyPriority)));
    return Status::Ok();
  }

 private:
  Client client_;
  Sampler sampler_;
  std::string table_;
  int64_t size_;
  BatchMemory memory_;
  BatchInfo info_;
  Random random_;
};

}  // namespace

Result<std::vector<std::unique_ptr<Loop>>> MakeBatchLoops(const Job& job, const Connector& connect) {
  REVERB_ASSIGN_OR_RETURN(Client client, connect());
  std::vector<std::unique_ptr<Loop>> loops;
  switch (job.kind) {
    case Kind::kTransitions:
      if (job.fill) REVERB_RETURN_IF_ERROR(FillTransitions(client, job));
      loops.push_back(std::make_unique<BatchLoop>(std::move(client), kTransitionColumns, job));
      break;
    case Kind::kFrames: {
      if (job.fill) REVERB_RETURN_IF_ERROR(FillFrames(client, job));
      loops.push_back(std::make_unique<BatchLoop>(std::move(client), std::array{kFrameBytes}, job));
      break;
    }
    default: {
      if (job.fill) REVERB_RETURN_IF_ERROR(Fill(client, job, 0));
      REVERB_ASSIGN_OR_RETURN(
          Sampler sampler,
          client.NewSampler(
              {.table = job.TableName(0), .max_in_flight_samples_per_worker = kLearnerBatch, .exact = true}));
      loops.push_back(std::make_unique<PerLoop>(std::move(client), std::move(sampler), job));
      break;
    }
  }
  return loops;
}

}  // namespace reverb::bench
