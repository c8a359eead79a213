// chunk_store.h — every live chunk of a server: who counts them, and how many bytes there may be.
//
// Owns no chunk: holders do (items, streams, samples in flight). A chunk is freed by whoever
// drops the last reference, promptly, and outside of any table's lock.
//
// Two sums are kept. `live_bytes` is all memory that chunks take. `stored_bytes` counts the
// chunks that at least one item of a table refers to, each once however many items and
// tables share it; max_bytes bounds this one, because only a stored chunk can be made
// to go away by evicting or using up items. Tables that insert at the same moment may together exceed
// it by an item each.
//
// Threads: all methods may be called concurrently. A chunk may outlive its store.
#ifndef REVERB_CORE_CHUNK_STORE_H_
#define REVERB_CORE_CHUNK_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/buffer.h"
#include "base/clock.h"
#include "reverb/status.h"
#include "tensor/chunk.h"
#include "tensor/chunk_header.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

// What an insert does that would take the stored bytes beyond max_bytes.
enum class MemoryPolicy : uint8_t {
  kBlock,  // it waits until there is room, and says so
  kEvict,  // it first evicts items of its own table, as the remover picks them
};

class ChunkAccounts;

class ChunkStore {
 public:
  struct Options {
    std::optional<int64_t> max_bytes;  // absent = unbounded
    MemoryPolicy policy = MemoryPolicy::kBlock;
    // The largest chunk that is accepted, stored and decoded.
    DecodeLimits limits;
  };
  struct Stats {
    int64_t live_chunks = 0;
    int64_t live_bytes = 0;
    int64_t stored_bytes = 0;
  };

  explicit ChunkStore(const Options& options, Clock* clock = RealClock());
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  const Options& options() const { return options_; }

  // A chunk that holds a copy of `payload`. Fails when header and payload do not fit together.
  Result<ChunkRef> Add(const ChunkHeader& header, std::span<const uint8_t> payload);
  // The same with the payload left for the caller to write, all of it, before the chunk is shared:
  // header and sizes are checked, checksums are not.
  Result<ChunkRef> AddUninitialized(const ChunkHeader& header, uint8_t** payload);
  // A chunk over bytes that live elsewhere (shared memory, a mapped file).
  Result<ChunkRef> AddExternal(const ChunkHeader& header, Buffer payload);

  // The same data as a chunk of this store: the chunk itself, entered here, or, when another store counts
  // it, a new one over the same bytes.
  Result<ChunkRef> Enter(const ChunkRef& chunk);
  // The same for all chunks of a trajectory.
  Result<Trajectory> Enter(Trajectory trajectory);

  // Whether the chunk is counted here.
  bool Holds(const Chunk& chunk) const;
  Stats stats() const;
  int64_t stored_bytes() const;
  // Whether `more` bytes may be stored now. False is final if `more` alone exceeds max_bytes.
  bool HasRoomFor(int64_t more) const {
    return !options_.max_bytes || stored_bytes() + more <= *options_.max_bytes;
  }

  // Calls `wake` once, soon after stored bytes were next given back. Returns a ticket for
  // StopWaiting, after which no call is set off; one that is on its way already still comes.
  uint64_t WaitForRoom(std::function<void()> wake);
  void StopWaiting(uint64_t ticket);

 private:
  Result<ChunkRef> Entered(Result<ChunkRef> chunk);

  const Options options_;
  ChunkAccounts* const accounts_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_CHUNK_STORE_H_
