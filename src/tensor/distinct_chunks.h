// distinct_chunks.h — the bytes of the chunks that some trajectories refer to, each chunk once.
//
// Made for trajectories that come and go in about the order of their chunks, as those of a writer do: then
// nothing is searched for, and memory is touched from one end to the other. Any other order works, slower.
//
// Threads: belongs to one thread at a time. Chunks are not kept alive: whoever counts a trajectory holds it
// until it is taken out again. The ids of all chunks are distinct.
#ifndef REVERB_TENSOR_DISTINCT_CHUNKS_H_
#define REVERB_TENSOR_DISTINCT_CHUNKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "tensor/chunk.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

class DistinctChunks {
 public:
  // Both return how many bytes the sum has grown or shrunk by.
  int64_t Add(const Trajectory& trajectory) {
    int64_t grown = 0;
    trajectory.ForEachChunk([&](const Chunk* chunk) {
      if (EntryOf(chunk->id())->uses++ > 0) return;
      ++used_;
      grown += chunk->bytes();
    });
    bytes_ += grown;
    return grown;
  }
  // REQUIRES: it was added.
  int64_t Remove(const Trajectory& trajectory) {
    int64_t shrunk = 0;
    trajectory.ForEachChunk([&](const Chunk* chunk) {
      if (--EntryOf(chunk->id())->uses > 0) return;
      --used_;
      shrunk += chunk->bytes();
    });
    while (!entries_.empty() && entries_.front().uses == 0) entries_.pop_front();
    // One that stays long does not keep those behind it.
    if (entries_.size() > 2 * used_ + kMostUnused)
      std::erase_if(entries_, [](Entry e) { return e.uses == 0; });
    bytes_ -= shrunk;
    return shrunk;
  }
  int64_t bytes() const { return bytes_; }
  // Chunks that take memory here, counted or not.
  size_t remembered() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t id;
    int32_t uses;  // how many of the trajectories refer to it; 0 where none does any more
  };

  // A new one if there is none. Valid until the next call.
  Entry* EntryOf(uint64_t id) {
    if (entries_.empty() || id > entries_.back().id) return &entries_.emplace_back(Entry{id, 0});
    if (id == entries_.back().id) return &entries_.back();
    if (id == entries_.front().id) return &entries_.front();
    const auto found = std::ranges::lower_bound(entries_, id, {}, &Entry::id);
    return found->id == id ? &*found : &*entries_.insert(found, Entry{id, 0});
  }

  static constexpr size_t kMostUnused = 64;

  std::deque<Entry> entries_;  // by id
  size_t used_ = 0;            // of entries_
  int64_t bytes_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_DISTINCT_CHUNKS_H_
