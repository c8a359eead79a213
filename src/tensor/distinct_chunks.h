// distinct_chunks.h — counts the bytes of the chunks that a set of trajectories refers to, each chunk once.
//
// Optimised for trajectories that are added and removed roughly in the order of their chunks, like those of a
// writer: this needs no search and accesses memory sequentially. In any other order an operation takes a binary search
// and a look-up in a hash table: peers choose the order.
//
// Threads: one at a time. Chunks are not kept alive: the caller holds each trajectory until it is removed.
// The IDs of all chunks are distinct.
#ifndef REVERB_TENSOR_DISTINCT_CHUNKS_H_
#define REVERB_TENSOR_DISTINCT_CHUNKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "tensor/chunk.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

class DistinctChunks {
 public:
  // Both return by how many bytes the sum has grown or shrunk.
  int64_t Add(const Trajectory& trajectory) {
    int64_t grown = 0;
    trajectory.ForEachChunk([&](const Chunk* chunk) {
      if ((*UsesOf(chunk->id()))++ > 0) return;
      ++used_;
      grown += chunk->bytes();
    });
    bytes_ += grown;
    return grown;
  }
  // REQUIRES: the trajectory was added.
  int64_t Remove(const Trajectory& trajectory) {
    int64_t shrunk = 0;
    trajectory.ForEachChunk([&](const Chunk* chunk) {
      if (--*UsesOf(chunk->id()) > 0) return;
      late_.erase(chunk->id());
      --used_;
      shrunk += chunk->bytes();
    });
    while (!entries_.empty() && entries_.front().uses == 0) entries_.pop_front();
    // Prevents one long-lived chunk from retaining the entries after it.
    if (entries_.size() > 2 * used_ + kMaxUnused)
      std::erase_if(entries_, [](Entry e) { return e.uses == 0; });
    bytes_ -= shrunk;
    return shrunk;
  }
  int64_t bytes() const { return bytes_; }
  // Returns the number of entries in memory, in use or not.
  size_t num_entries() const { return entries_.size() + late_.size(); }

 private:
  struct Entry {
    uint64_t id;
    int32_t uses;  // number of trajectories that refer to it; may be 0
  };

  // Returns the number of uses of a chunk, creating its entry if needed. Valid until the next call.
  int32_t* UsesOf(uint64_t id) {
    // First: what is here is nowhere else.
    if (!late_.empty()) {
      const auto late = late_.find(id);
      if (late != late_.end()) return &late->second;
    }
    if (entries_.empty() || id > entries_.back().id) return &entries_.emplace_back(Entry{id, 0}).uses;
    if (id == entries_.back().id) return &entries_.back().uses;
    if (id == entries_.front().id) return &entries_.front().uses;
    const auto found = std::ranges::lower_bound(entries_, id, {}, &Entry::id);
    return found->id == id ? &found->uses : &late_[id];
  }

  static constexpr size_t kMaxUnused = 64;

  std::deque<Entry> entries_;  // sorted by id
  // Chunks that came after others with larger IDs: inserting them above would move those.
  std::unordered_map<uint64_t, int32_t> late_;
  size_t used_ = 0;  // number of entries with uses > 0
  int64_t bytes_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_DISTINCT_CHUNKS_H_
