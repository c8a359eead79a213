#include "core/chunk_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace reverb::internal {

// The sums of one store. Chunks refer to this instead of the store, because they may outlive it. Accounts are
// therefore never deleted: those of a destroyed store are reused once its last chunk is destroyed.
class ChunkAccounts final : public ChunkLedger {
 public:
  void CountNew(int64_t bytes) override {
    const size_t shard = MemoryBudget::ThisThreadsShard();
    shards_[shard].live_chunks.fetch_add(1, std::memory_order_relaxed);
    budget_.Add(MemoryPart::kChunks, bytes, shard);
  }
  void CountStored(int64_t bytes) override { budget_.Add(MemoryPart::kStored, bytes); }
  void CountParked(int64_t bytes) override { budget_.Add(MemoryPart::kParked, bytes); }
  void CountDestroyed(int64_t bytes) override {
    const size_t shard = MemoryBudget::ThisThreadsShard();
    budget_.Add(MemoryPart::kChunks, -bytes, shard);
    // Last: the accounts may be reused from here on.
    shards_[shard].live_chunks.fetch_sub(1, std::memory_order_release);
  }

  int64_t LiveChunks() const {
    int64_t sum = 0;
    for (const Shard& shard : shards_) sum += shard.live_chunks.load(std::memory_order_acquire);
    return sum;
  }
  MemoryBudget* budget() { return &budget_; }

  static ChunkAccounts* Take() {
    Registry& registry = TheRegistry();
    MutexLock lock(&registry.mu);
    for (size_t i = 0; i < registry.retired.size(); ++i) {
      ChunkAccounts* candidate = registry.retired[i];
      if (candidate->LiveChunks() != 0) continue;
      registry.retired.erase(registry.retired.begin() + static_cast<ptrdiff_t>(i));
      return candidate;
    }
    return new ChunkAccounts();
  }
  static void Retire(ChunkAccounts* accounts) {
    Registry& registry = TheRegistry();
    MutexLock lock(&registry.mu);
    registry.retired.push_back(accounts);
  }

 private:
  struct alignas(64) Shard {  // see MemoryBudget::ThisThreadsShard()
    std::atomic<int64_t> live_chunks{0};
  };
  struct Registry {
    Mutex mu;
    std::vector<ChunkAccounts*> retired GUARDED_BY(mu);
  };
  static Registry& TheRegistry() {
    // never destroyed, since chunks may live until the process ends
    static Registry* registry = new Registry();
    return *registry;
  }

  std::array<Shard, MemoryBudget::kShards> shards_;
  MemoryBudget budget_;
};

ChunkStore::ChunkStore(const Options& options, Clock* clock)
    : options_(options), accounts_(ChunkAccounts::Take()), budget_(accounts_->budget()) {
  budget_->Open(options.memory_limit, clock);
}

ChunkStore::~ChunkStore() {
  budget_->Close();
  ChunkAccounts::Retire(accounts_);
}

Result<ChunkRef> ChunkStore::Entered(Result<ChunkRef> chunk) {
  if (chunk.ok()) (*chunk)->AttachLedger(accounts_);
  return chunk;
}

Result<ChunkRef> ChunkStore::Add(const ChunkHeader& header, std::span<const uint8_t> payload) {
  return Entered(Chunk::Copy(NextChunkId(), header, payload, options_.limits, options_.payload_source));
}

Result<ChunkRef> ChunkStore::AddUninitialized(const ChunkHeader& header, uint8_t** payload) {
  return Entered(
      Chunk::Uninitialized(NextChunkId(), header, payload, options_.limits, options_.payload_source));
}

Result<ChunkRef> ChunkStore::AddExternal(const ChunkHeader& header, Buffer payload) {
  return Entered(Chunk::External(NextChunkId(), header, std::move(payload), options_.limits));
}

Result<ChunkRef> ChunkStore::Enter(const ChunkRef& chunk) {
  if (chunk->AttachLedger(accounts_) == accounts_) return chunk;
  // Another store counts it: create a second chunk over the same bytes, which the first one keeps alive.
  return AddExternal(chunk->header().Unpack(), ShareBytes(chunk, chunk->payload()));
}

Result<Trajectory> ChunkStore::Enter(Trajectory trajectory) {
  bool is_foreign = false;
  trajectory.ForEachChunk([&](Chunk* chunk) { is_foreign |= chunk->AttachLedger(accounts_) != accounts_; });
  if (!is_foreign) [[likely]] {
    return trajectory;
  }
  std::map<const Chunk*, ChunkRef> entered;
  Status status;
  trajectory.ForEachChunk([&](Chunk* chunk) {
    Result<ChunkRef> mine = Enter(ChunkRef::Share(chunk));
    if (mine.ok()) {
      entered.emplace(chunk, *std::move(mine));
    } else if (status.ok()) {
      status = std::move(mine).status();
    }
  });
  REVERB_RETURN_IF_ERROR(status);
  std::vector<ColumnSpec> columns(trajectory.num_columns());
  for (uint32_t c = 0; c < trajectory.num_columns(); ++c) {
    columns[c].squeeze = trajectory.squeeze(c);
    for (uint32_t s = 0; s < trajectory.num_slices(c); ++s) {
      const SliceView slice = trajectory.slice(c, s);
      columns[c].slices.push_back({entered.at(slice.chunk), slice.chunk_column, slice.offset, slice.length});
    }
  }
  return Trajectory::Create(columns);
}

bool ChunkStore::Holds(const Chunk& chunk) const { return chunk.ledger() == accounts_; }
ChunkStore::Stats ChunkStore::stats() const {
  const MemoryBudget::Usage usage = budget_->usage();
  return {.live_chunks = accounts_->LiveChunks(), .live_bytes = usage.chunks, .stored_bytes = usage.stored};
}
int64_t ChunkStore::stored_bytes() const { return budget_->stored(); }
std::string ChunkStore::DescribeMemory() const {
  std::string text;
  if (options_.max_bytes) {
    text =
        "stored " + std::to_string(stored_bytes()) + " of max_bytes " + std::to_string(*options_.max_bytes);
  }
  if (!budget_->limit()) return text;
  const MemoryBudget::Usage usage = budget_->usage();
  if (!text.empty()) text += "; ";
  text += "kept " + std::to_string(usage.kept()) + " of the " + std::to_string(budget_->shares().kept) +
          " bytes for items in memory_limit " + std::to_string(*budget_->limit());
  if (usage.parked > 0) text += ", " + std::to_string(usage.parked) + " of them for a checkpoint";
  return text;
}

uint64_t ChunkStore::WaitForRoom(std::function<void()> wake) { return budget_->WaitForRoom(std::move(wake)); }
void ChunkStore::StopWaiting(uint64_t ticket) { budget_->StopWaiting(ticket); }

}  // namespace reverb::internal
