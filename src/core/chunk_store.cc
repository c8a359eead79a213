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
  void CountStored(Chunk* chunk, int64_t bytes) override {
    if (chunk->is_tiered()) [[unlikely]]
      return CountTiered(chunk, bytes);
    budget_.Add(MemoryPart::kStored, bytes);
  }
  void CountParked(int64_t bytes) override { budget_.Add(MemoryPart::kParked, bytes); }
  void CountDestroyed(int64_t bytes) override {
    const size_t shard = MemoryBudget::ThisThreadsShard();
    budget_.Add(MemoryPart::kChunks, -bytes, shard);
    // Last: the accounts may be reused from here on.
    shards_[shard].live_chunks.fetch_sub(1, std::memory_order_release);
  }

  // Counts the memory of the resident forms of tiered chunks.
  ChunkLedger* resident() { return &resident_; }
  // Returns the stored bytes, in memory or not.
  int64_t StoredBytes() const { return budget_.stored() + stored_elsewhere_.load(std::memory_order_seq_cst); }

  int64_t LiveChunks() const {
    int64_t sum = 0;
    for (const Shard& shard : shards_) sum += shard.live_chunks.load(std::memory_order_acquire);
    return sum;
  }
  int64_t ResidentForms() const {
    int64_t sum = 0;
    for (const Shard& shard : shards_) sum += shard.resident_forms.load(std::memory_order_acquire);
    return sum;
  }
  MemoryBudget* budget() { return &budget_; }

  static ChunkAccounts* Take() {
    Registry& registry = TheRegistry();
    MutexLock lock(&registry.mu);
    for (size_t i = 0; i < registry.retired.size(); ++i) {
      ChunkAccounts* candidate = registry.retired[i];
      if (candidate->LiveChunks() != 0 || candidate->ResidentForms() != 0) continue;
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
    std::atomic<int64_t> resident_forms{0};
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

  // Counts a tiered chunk: its header is in memory, and its payload elsewhere as long as the tier does not count it here.
  void CountTiered(Chunk* chunk, int64_t bytes) {
    const int64_t own_bytes = bytes < 0 ? -chunk->own_bytes() : chunk->own_bytes();
    stored_elsewhere_.fetch_add(bytes - own_bytes, std::memory_order_seq_cst);
    budget_.Add(MemoryPart::kStored, own_bytes);
    chunk->tiered().tier->OnStoredChanged(chunk);
  }

  class ResidentLedger final : public ChunkLedger {
   public:
    explicit ResidentLedger(ChunkAccounts* accounts) : accounts_(accounts) {}
    void CountNew(int64_t bytes) override {
      const size_t shard = MemoryBudget::ThisThreadsShard();
      accounts_->shards_[shard].resident_forms.fetch_add(1, std::memory_order_relaxed);
      accounts_->budget_.Add(MemoryPart::kChunks, bytes, shard);
    }
    // The tier keeps payloads of `bytes` more (or fewer) in memory.
    void CountStored(Chunk*, int64_t bytes) override {
      accounts_->stored_elsewhere_.fetch_sub(bytes, std::memory_order_seq_cst);
      accounts_->budget_.Add(MemoryPart::kStored, bytes);
    }
    void CountDestroyed(int64_t bytes) override {
      const size_t shard = MemoryBudget::ThisThreadsShard();
      accounts_->budget_.Add(MemoryPart::kChunks, -bytes, shard);
      // Last: the accounts may be reused from here on.
      accounts_->shards_[shard].resident_forms.fetch_sub(1, std::memory_order_release);
    }

   private:
    ChunkAccounts* const accounts_;
  };

  std::array<Shard, MemoryBudget::kShards> shards_;
  std::atomic<int64_t> stored_elsewhere_{0};
  ResidentLedger resident_{this};
  MemoryBudget budget_;
};

namespace {

ChunkStore::Options WithTier(ChunkStore::Options options, const ChunkTier* tier) {
  if (tier != nullptr) {
    options.max_bytes = std::min(options.max_bytes.value_or(tier->capacity()), tier->capacity());
  }
  return options;
}

}  // namespace

ChunkStore::ChunkStore(const Options& options, Clock* clock, ChunkTierPtr tier)
    : options_(WithTier(options, tier.get())),
      accounts_(ChunkAccounts::Take()),
      budget_(accounts_->budget()),
      tier_(std::move(tier)) {
  budget_->Open(options.memory_limit, clock);
  if (tier_ != nullptr) tier_->CountBy(accounts_->resident(), budget_);
}

ChunkStore::~ChunkStore() {
  budget_->Close();
  ChunkAccounts::Retire(accounts_);
}

Result<ChunkRef> ChunkStore::Entered(Result<ChunkRef> chunk) {
  if (!chunk.ok()) return chunk;
  if (IsTiered(**chunk)) [[unlikely]]
    chunk = tier_->Wrap(*std::move(chunk));
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

Result<ChunkRef> ChunkStore::EnterTiered(const ChunkRef& chunk) {
  return tier_->Enter(chunk, [this](Chunk* tiered) { tiered->AttachLedger(accounts_); });
}

Result<ChunkRef> ChunkStore::Enter(const ChunkRef& chunk) {
  if (IsTiered(*chunk)) [[unlikely]] {
    REVERB_ASSIGN_OR_RETURN(ChunkRef mine, EnterTiered(chunk));
    if (mine) return mine;
    return AddExternal(chunk->header().Unpack(), ShareBytes(chunk, chunk->payload()));
  }
  if (chunk->AttachLedger(accounts_) == accounts_) return chunk;
  // Another store counts it: create a second chunk over the same bytes, which the first one keeps alive.
  return AddExternal(chunk->header().Unpack(), ShareBytes(chunk, chunk->payload()));
}

Result<Trajectory> ChunkStore::Enter(Trajectory trajectory) {
  bool is_foreign = false;
  if (tier_ != nullptr) [[unlikely]] {
    trajectory.ForEachChunk(
        [&](Chunk* chunk) { is_foreign |= IsTiered(*chunk) || chunk->AttachLedger(accounts_) != accounts_; });
  } else {
    trajectory.ForEachChunk([&](Chunk* chunk) { is_foreign |= chunk->AttachLedger(accounts_) != accounts_; });
  }
  if (!is_foreign) [[likely]] {
    return trajectory;
  }
  return EnterAll(trajectory);
}

Result<Trajectory> ChunkStore::EnterAll(const Trajectory& trajectory) {
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
  return trajectory.WithChunks([&](const Chunk* chunk) { return entered.at(chunk); });
}

std::string ChunkStore::DescribeMemory() const {
  std::vector<std::string> parts;
  if (options_.max_bytes) {
    parts.push_back("stored " + std::to_string(stored_bytes()) + " of max_bytes " +
                    std::to_string(*options_.max_bytes));
  }
  if (tier_ != nullptr) {
    const ChunkTier::Stats stats = tier_->stats();
    parts.push_back("in memory " + std::to_string(stats.memory_bytes) + " of the storage's memory_limit " +
                    std::to_string(tier_->options().memory_limit));
    if (!stats.error.empty()) parts.back() += ", which cannot be moved to disk: " + stats.error;
  }
  if (budget_->limit()) {
    const MemoryBudget::Usage usage = budget_->usage();
    parts.push_back("kept " + std::to_string(usage.kept()) + " of the " +
                    std::to_string(budget_->shares().kept) + " bytes for items in memory_limit " +
                    std::to_string(*budget_->limit()));
    if (usage.parked > 0) parts.back() += ", " + std::to_string(usage.parked) + " of them for a checkpoint";
  }
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

bool ChunkStore::Holds(const Chunk& chunk) const { return chunk.ledger() == accounts_; }
ChunkStore::Stats ChunkStore::stats() const {
  const MemoryBudget::Usage usage = budget_->usage();
  return {.live_chunks = accounts_->LiveChunks(),
          .live_bytes = usage.chunks,
          .stored_bytes = accounts_->StoredBytes()};
}
int64_t ChunkStore::stored_bytes() const { return accounts_->StoredBytes(); }
uint64_t ChunkStore::WaitForRoom(std::function<void()> wake) { return budget_->WaitForRoom(std::move(wake)); }
void ChunkStore::StopWaiting(uint64_t ticket) { budget_->StopWaiting(ticket); }

}  // namespace reverb::internal
