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
    Shard& mine = shard();
    mine.live_chunks.fetch_add(1, std::memory_order_relaxed);
    mine.live_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  void CountStored(Chunk* chunk, int64_t bytes) override {
    if (chunk->is_tiered()) [[unlikely]]
      chunk->tiered().tier->OnStoredChanged(chunk);
    shard().stored_bytes.fetch_add(bytes, std::memory_order_seq_cst);
    if (bytes < 0) WakeWaiters();
  }
  void CountDestroyed(int64_t bytes) override {
    Shard& mine = shard();
    mine.live_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    mine.live_chunks.fetch_sub(1,
                               std::memory_order_release);  // last: the accounts may be reused from here on
  }

  // Counts the memory of the resident forms of tiered chunks.
  ChunkLedger* resident() { return &resident_; }

  ChunkStore::Stats Sum() const {
    ChunkStore::Stats sum;
    for (const Shard& shard : shards_) {
      sum.live_chunks += shard.live_chunks.load(std::memory_order_relaxed);
      sum.live_bytes += shard.live_bytes.load(std::memory_order_relaxed);
      sum.stored_bytes += shard.stored_bytes.load(std::memory_order_relaxed);
    }
    return sum;
  }
  int64_t StoredBytes() const {
    int64_t sum = 0;
    // seq_cst: after AddWaiter(), this read must not be ordered before WakeWaiters() can see the waiter.
    for (const Shard& shard : shards_) sum += shard.stored_bytes.load(std::memory_order_seq_cst);
    return sum;
  }

  void Open(Clock* clock) {
    MutexLock lock(&mu_);
    clock_ = clock;
  }
  void Close() {
    MutexLock lock(&mu_);
    clock_ = nullptr;
    waiters_.clear();
    has_waiters_.store(false, std::memory_order_relaxed);
  }
  uint64_t AddWaiter(std::function<void()> wake) {
    MutexLock lock(&mu_);
    waiters_.emplace(++last_ticket_, std::move(wake));
    has_waiters_.store(true, std::memory_order_seq_cst);
    return last_ticket_;
  }
  void RemoveWaiter(uint64_t ticket) {
    MutexLock lock(&mu_);
    waiters_.erase(ticket);
    if (waiters_.empty()) has_waiters_.store(false, std::memory_order_relaxed);
  }
  // Called when the stored bytes decrease. May run under a table's lock, so the wake-ups run on the clock's
  // thread: a waiter takes its own table's lock.
  void WakeWaiters() {
    if (!has_waiters_.load(std::memory_order_seq_cst)) return;
    MutexLock lock(&mu_);
    if (clock_ == nullptr) return;
    for (auto& [ticket, wake] : waiters_) clock_->CallAt(clock_->Now(), std::move(wake));
    waiters_.clear();
    has_waiters_.store(false, std::memory_order_relaxed);
  }

  static ChunkAccounts* Take() {
    Registry& registry = TheRegistry();
    MutexLock lock(&registry.mu);
    for (size_t i = 0; i < registry.retired.size(); ++i) {
      ChunkAccounts* candidate = registry.retired[i];
      const ChunkStore::Stats sum = candidate->Sum();
      if (sum.live_chunks != 0 || sum.live_bytes != 0) continue;
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
  static constexpr size_t kShards = 32;
  // Each thread counts on its own shard, to avoid contention for a cache line.
  struct alignas(64) Shard {
    std::atomic<int64_t> live_chunks{0};
    std::atomic<int64_t> live_bytes{0};
    std::atomic<int64_t> stored_bytes{0};
  };
  Shard& shard() { return shards_[ThisThreadsShard()]; }
  struct Registry {
    Mutex mu;
    std::vector<ChunkAccounts*> retired GUARDED_BY(mu);
  };
  static Registry& TheRegistry() {
    // never destroyed, since chunks may live until the process ends
    static Registry* registry = new Registry();
    return *registry;
  }
  static size_t ThisThreadsShard() {
    static std::atomic<size_t> next{0};
    static thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed) % kShards;
    return mine;
  }

  class ResidentForms final : public ChunkLedger {
   public:
    explicit ResidentForms(ChunkAccounts* accounts) : accounts_(accounts) {}
    void CountNew(int64_t bytes) override {
      accounts_->shard().live_bytes.fetch_add(bytes, std::memory_order_relaxed);
    }
    void CountStored(Chunk*, int64_t) override {}
    void CountDestroyed(int64_t bytes) override {
      accounts_->shard().live_bytes.fetch_sub(bytes, std::memory_order_release);
    }

   private:
    ChunkAccounts* const accounts_;
  };

  std::array<Shard, kShards> shards_;
  ResidentForms resident_{this};
  alignas(64) std::atomic<bool> has_waiters_{false};
  Mutex mu_;
  Clock* clock_ GUARDED_BY(mu_) = nullptr;
  uint64_t last_ticket_ GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::function<void()>> waiters_ GUARDED_BY(mu_);
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
    : options_(WithTier(options, tier.get())), accounts_(ChunkAccounts::Take()), tier_(std::move(tier)) {
  accounts_->Open(clock);
  if (tier_ == nullptr) return;
  tier_->CountResidentBy(accounts_->resident());
  tier_->OnRoom([accounts = accounts_] { accounts->WakeWaiters(); });
}

ChunkStore::~ChunkStore() {
  accounts_->Close();
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

std::string ChunkStore::DescribeRoom() const {
  std::string text = "stored " + std::to_string(stored_bytes()) + " of max_bytes " +
                     std::to_string(options_.max_bytes.value_or(0));
  if (tier_ == nullptr) return text;
  const ChunkTier::Stats stats = tier_->stats();
  text += ", in memory " + std::to_string(stats.memory_bytes) + " of the storage's memory_limit " +
          std::to_string(tier_->options().memory_limit);
  if (!stats.error.empty()) text += ", which cannot be moved to disk: " + stats.error;
  return text;
}

bool ChunkStore::Holds(const Chunk& chunk) const { return chunk.ledger() == accounts_; }
ChunkStore::Stats ChunkStore::stats() const { return accounts_->Sum(); }
int64_t ChunkStore::stored_bytes() const { return accounts_->StoredBytes(); }
uint64_t ChunkStore::WaitForRoom(std::function<void()> wake) { return accounts_->AddWaiter(std::move(wake)); }
void ChunkStore::StopWaiting(uint64_t ticket) { accounts_->RemoveWaiter(ticket); }

}  // namespace reverb::internal
