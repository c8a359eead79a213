#include "bench/loops_one.h"

#include <array>
#include <utility>

#include "bench/loops_load.h"
#include "bench/payload.h"

namespace reverb::bench {
namespace {

// Calls Once() repeatedly and measures each call.
class OneLoop : public Loop {
 public:
  explicit OneLoop(int64_t size) : size_(size) {}

  Status Run(double end, Tally* tally) final {
    while (NowSeconds() < end) {
      Tally::Timer timer(tally);
      REVERB_RETURN_IF_ERROR(Once());
      timer.Stop();
      tally->items += 1;
    }
    tally->bytes = tally->items * static_cast<double>(size_);
    return Status::Ok();
  }

 protected:
  virtual Status Once() = 0;

 private:
  int64_t size_;
};

// Draws one exact sample and reads its data.
class SampleOne : public OneLoop {
 public:
  SampleOne(Sampler sampler, const Job& job)
      : OneLoop(job.size), sampler_(std::move(sampler)), wait_(job.wait()) {}

 private:
  Status Once() override {
    REVERB_ASSIGN_OR_RETURN(const SampledTrajectory sample, sampler_.Next(wait_));
    return sample.column(0).status();
  }
  Sampler sampler_;
  WaitOptions wait_;
};

// Writes a step as an item and waits until it is confirmed.
class InsertOne : public OneLoop {
 public:
  InsertOne(TrajectoryWriter writer, const Job& job)
      : OneLoop(job.size),
        writer_(std::move(writer)),
        table_(job.TableName(0)),
        wait_(job.wait()),
        dims_{job.size / 4},
        picker_(job.size, job.seed) {}

 private:
  Status Once() override {
    const ColumnValue value{0, {DType::kFloat32, dims_, picker_()}};
    REVERB_RETURN_IF_ERROR(writer_.Append({&value, 1}));
    const CellRange newest = CellRange::One(0, writer_.position() - 1);
    const ItemColumn column{{&newest, 1}};
    REVERB_RETURN_IF_ERROR(writer_.CreateItem(table_, 1.0, {&column, 1}));
    return writer_.Flush(0, wait_);
  }
  TrajectoryWriter writer_;
  std::string table_;
  WaitOptions wait_;
  std::array<int64_t, 1> dims_;
  Picker picker_;
};

// Updates the priority of an existing item.
class UpdateOne : public OneLoop {
 public:
  UpdateOne(Client client, std::vector<uint64_t> keys, const Job& job)
      : OneLoop(sizeof(KeyPriority)),
        client_(std::move(client)),
        keys_(std::move(keys)),
        table_(job.TableName(0)),
        wait_(job.wait()) {}

 private:
  Status Once() override {
    const KeyPriority update{keys_[next_++ % keys_.size()], 0.5};
    return client_.UpdatePriorities(table_, {&update, 1}, wait_);
  }
  Client client_;
  std::vector<uint64_t> keys_;
  size_t next_ = 0;
  std::string table_;
  WaitOptions wait_;
};

Result<std::vector<uint64_t>> SomeKeys(const Client& client, const Job& job) {
  REVERB_ASSIGN_OR_RETURN(const std::vector<SampledTrajectory> samples,
                          client.Sample(job.TableName(0), 1000, job.wait()));
  std::vector<uint64_t> keys;
  keys.reserve(samples.size());
  for (const SampledTrajectory& sample : samples) keys.push_back(sample.key());
  return keys;
}

}  // namespace

Result<std::vector<std::unique_ptr<Loop>>> MakeOneLoops(const Job& job, const Connector& connect) {
  REVERB_ASSIGN_OR_RETURN(Client client, connect());
  if (job.fill) REVERB_RETURN_IF_ERROR(Fill(client, job, 0));
  std::vector<std::unique_ptr<Loop>> loops;
  switch (job.kind) {
    case Kind::kSampleOne: {
      REVERB_ASSIGN_OR_RETURN(Sampler sampler, client.NewSampler({.table = job.TableName(0), .exact = true}));
      loops.push_back(std::make_unique<SampleOne>(std::move(sampler), job));
      break;
    }
    case Kind::kInsertOne: {
      REVERB_ASSIGN_OR_RETURN(
          TrajectoryWriter writer,
          client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1}}));
      loops.push_back(std::make_unique<InsertOne>(std::move(writer), job));
      break;
    }
    default: {
      REVERB_ASSIGN_OR_RETURN(std::vector<uint64_t> keys, SomeKeys(client, job));
      loops.push_back(std::make_unique<UpdateOne>(std::move(client), std::move(keys), job));
      break;
    }
  }
  return loops;
}

}  // namespace reverb::bench
