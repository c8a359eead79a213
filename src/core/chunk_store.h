// chunk_store.h — counts the live chunks of a server, and bounds their bytes.
//
// Owns no chunk: items, streams and samples in flight do. The thread that drops the last reference to a chunk
// frees it immediately, outside of any table's lock.
//
// Maintains two sums. `live_bytes` is all memory of chunks. `stored_bytes` counts the chunks that at least
// one item of a table refers to, each once, however many items and tables share it. max_bytes bounds the
// latter, because evicting or consuming items frees only stored chunks. Tables that insert concurrently may
// exceed the bound by one item each.
//
// The store has the memory budget of its server (base/memory_budget.h), which counts chunks and everything else.
//
// With a disk tier (storage/chunk_tier.h), all chunks above a small size are tiered. `stored_bytes` counts them with
// their payloads, wherever those are, and max_bytes is at most what memory and files have room for. The budget counts
// only what is in memory.
//
// Threads: all methods may be called concurrently. A chunk may outlive its store.
#ifndef REVERB_CORE_CHUNK_STORE_H_
#define REVERB_CORE_CHUNK_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/memory_budget.h"
#include "base/payload_source.h"
#include "reverb/status.h"
#include "storage/chunk_tier.h"
#include "tensor/chunk.h"
#include "tensor/chunk_header.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

// The behavior of an insert that would raise the stored bytes above max_bytes.
enum class MemoryPolicy : uint8_t {
  kBlock,  // waits until there is space, and reports why
  kEvict,  // first evicts items of its own table, chosen by the remover
};

class ChunkAccounts;

class ChunkStore {
 public:
  struct Options {
    std::optional<int64_t> max_bytes;  // absent = unbounded
    MemoryPolicy policy = MemoryPolicy::kBlock;
    // Bounds all memory of the server; absent = unbounded.
    std::optional<int64_t> memory_limit = {};
    // The largest chunk that is accepted, stored and decoded.
    DecodeLimits limits;
    // Where the payloads of Add() and AddUninitialized() are; null for the private memory of the chunk. Must
    // outlive the chunks.
    PayloadSource* payload_source = nullptr;
  };
  struct Stats {
    int64_t live_chunks = 0;   // a tiered chunk counts once
    int64_t live_bytes = 0;    // in memory
    int64_t stored_bytes = 0;  // wherever they are
  };

  explicit ChunkStore(const Options& options, Clock* clock = RealClock(), ChunkTierPtr tier = nullptr);
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  const Options& options() const { return options_; }

  // Creates a chunk with a copy of `payload`. Fails if the header does not match the payload.
  Result<ChunkRef> Add(const ChunkHeader& header, std::span<const uint8_t> payload);
  // Same, but the caller must write the whole payload before sharing the chunk. Checks header and sizes, but
  // no checksums.
  Result<ChunkRef> AddUninitialized(const ChunkHeader& header, uint8_t** payload);
  // Creates a chunk over bytes stored elsewhere (shared memory, a mapped file).
  Result<ChunkRef> AddExternal(const ChunkHeader& header, Buffer payload);

  // Returns the same data as a chunk of this store: the chunk itself, counted here from now on, or, if
  // another store counts it, a new one over the same bytes.
  Result<ChunkRef> Enter(const ChunkRef& chunk);
  // Same for all chunks of a trajectory.
  Result<Trajectory> Enter(Trajectory trajectory);

  // Returns whether this store counts the chunk.
  bool Holds(const Chunk& chunk) const;
  Stats stats() const;
  int64_t stored_bytes() const;
  MemoryBudget& budget() const { return *budget_; }
  // Returns whether `more` bytes may be stored now. False is permanent if `more` alone exceeds max_bytes, or what the
  // budget may keep. With a disk tier, it then makes room in memory.
  bool HasRoomFor(int64_t more) const {
    if (!HasRoomInBound(more)) return false;
    return tier_ != nullptr ? tier_->HasRoomFor(more) : budget_->HasRoomToKeep(more);
  }
  // The same for max_bytes alone.
  bool HasRoomInBound(int64_t more) const {
    return !options_.max_bytes || stored_bytes() + more <= *options_.max_bytes;
  }
  // Returns whether any item may be stored now; false if it depends on its size. Cheap.
  bool HasRoomForAny() const { return !options_.max_bytes && budget_->SurelyHasRoomToKeep(kMaxQuickBytes); }
  // Null if there is no disk tier.
  ChunkTier* tier() const { return tier_.get(); }

  // Describes how full the bounds are, for the errors of inserts that wait.
  std::string DescribeMemory() const;

  // Calls `wake` once, soon after the stored bytes next decrease. Returns a ticket for StopWaiting(), after
  // which no call is started; a call that has already been scheduled still runs.
  uint64_t WaitForRoom(std::function<void()> wake);
  void StopWaiting(uint64_t ticket);

 private:
  // More than an item may have.
  static constexpr int64_t kMaxQuickBytes = int64_t{2} << 30;

  Result<ChunkRef> Entered(Result<ChunkRef> chunk);
  bool IsTiered(const Chunk& chunk) const {
    return tier_ != nullptr && !chunk.is_tiered() && tier_->Takes(chunk.payload_size());
  }
  // Enters a chunk of this process whose data is to be tiered. Null if another store counts it.
  Result<ChunkRef> EnterTiered(const ChunkRef& chunk);
  Result<Trajectory> EnterAll(const Trajectory& trajectory);

  const Options options_;
  ChunkAccounts* const accounts_;
  MemoryBudget* const budget_;  // of accounts_
  const ChunkTierPtr tier_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_CHUNK_STORE_H_
