#include "core/fetch_samples.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace reverb::internal {
namespace {

// Returns the distinct tiered chunks of the samples, in order of their addresses.
std::vector<Chunk*> FindTiered(const std::vector<Sample>& samples) {
  std::vector<Chunk*> chunks;
  for (const Sample& sample : samples) {
    sample.trajectory.ForEachChunk([&](Chunk* chunk) {
      if (chunk->is_tiered()) chunks.push_back(chunk);
    });
  }
  std::ranges::sort(chunks);
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  return chunks;
}

// Returns the error of the first chunk that could not be fetched; otherwise the trajectory is replaced.
Status ReplaceChunks(const std::vector<Chunk*>& chunks, const std::vector<Result<ChunkRef>>& fetched,
                     Trajectory* trajectory) {
  Status status;
  const auto find = [&](const Chunk* chunk) -> const Result<ChunkRef>& {
    return fetched[static_cast<size_t>(std::ranges::lower_bound(chunks, chunk) - chunks.begin())];
  };
  bool has_tiered = false;
  trajectory->ForEachChunk([&](const Chunk* chunk) {
    if (!chunk->is_tiered()) return;
    has_tiered = true;
    if (const Result<ChunkRef>& resident = find(chunk); !resident.ok() && status.ok()) {
      status = resident.status();
    }
  });
  if (!status.ok() || !has_tiered) return status;
  REVERB_ASSIGN_OR_RETURN(Trajectory replaced, trajectory->WithChunks([&](Chunk* chunk) {
    return chunk->is_tiered() ? *find(chunk) : ChunkRef::Share(chunk);
  }));
  *trajectory = std::move(replaced);
  return Status::Ok();
}

FetchedSamples Replace(ConcurrentTable* table, std::vector<Sample> samples, const std::vector<Chunk*>& chunks,
                       const std::vector<Result<ChunkRef>>& fetched) {
  FetchedSamples result;
  std::vector<uint64_t> lost;
  size_t kept = 0;
  // The chunks that are replaced must outlive the loop, which compares their addresses.
  std::vector<Trajectory> replaced;
  replaced.reserve(samples.size());
  for (Sample& sample : samples) {
    replaced.push_back(sample.trajectory);
    const Status status = ReplaceChunks(chunks, fetched, &sample.trajectory);
    if (status.ok()) {
      if (&samples[kept] != &sample) samples[kept] = std::move(sample);
      ++kept;
    } else if (status.code() == StatusCode::kDataLoss) {
      lost.push_back(sample.key);
    } else {
      if (result.status.ok()) result.status = status;
      result.unread.push_back(std::move(sample));
    }
  }
  samples.resize(kept);
  result.samples = std::move(samples);
  result.lost = static_cast<int64_t>(lost.size());
  if (table != nullptr && !lost.empty()) DeleteLostItems(table, lost);
  return result;
}

}  // namespace

void DeleteLostItems(ConcurrentTable* table, std::span<const uint64_t> keys) {
  static_cast<void>(table->Mutate({}, keys));
  Log(LogLevel::kError, "table \"" + table->name() + "\": deleted " + std::to_string(keys.size()) +
                            " items whose data on disk is lost, the first with key " +
                            std::to_string(keys.front()));
}

void FetchSamples(PayloadTier* tier, const std::shared_ptr<ConcurrentTable>& table,
                  std::vector<Sample> samples, std::function<void(FetchedSamples)> done) {
  std::vector<Chunk*> chunks = FindTiered(samples);
  if (chunks.empty()) return done({.samples = std::move(samples)});
  std::vector<ChunkRef> refs;
  refs.reserve(chunks.size());
  for (Chunk* chunk : chunks) refs.push_back(ChunkRef::Share(chunk));
  // Shared, since std::function copies what it holds.
  struct State {
    std::shared_ptr<ConcurrentTable> table;
    std::vector<Sample> samples;
    std::vector<Chunk*> chunks;
    std::function<void(FetchedSamples)> done;
  };
  const auto state =
      std::make_shared<State>(State{table, std::move(samples), std::move(chunks), std::move(done)});
  tier->Fetch(std::move(refs), [state](std::vector<Result<ChunkRef>> fetched) {
    FetchedSamples result = Replace(state->table.get(), std::move(state->samples), state->chunks, fetched);
    fetched.clear();
    // Once the caller has the result, it may destroy the store of the table.
    const std::function<void(FetchedSamples)> done = std::move(state->done);
    *state = {};
    done(std::move(result));
  });
}

FetchedSamples FetchSamplesAndWait(PayloadTier* tier, const std::shared_ptr<ConcurrentTable>& table,
                                   std::vector<Sample> samples) {
  struct Outcome {
    Mutex mu;
    CondVar arrived;
    bool is_there GUARDED_BY(mu) = false;
    FetchedSamples result GUARDED_BY(mu);
  };
  const auto outcome = std::make_shared<Outcome>();
  FetchSamples(tier, table, std::move(samples), [outcome](FetchedSamples result) {
    MutexLock lock(&outcome->mu);
    outcome->result = std::move(result);
    outcome->is_there = true;
    outcome->arrived.NotifyAll();
  });
  MutexLock lock(&outcome->mu);
  while (!outcome->is_there) outcome->arrived.Wait(&outcome->mu);
  return std::move(outcome->result);
}

}  // namespace reverb::internal
