// distinct_chunks.h — the bytes of the chunks that some trajectories refer to, each chunk once.
//
// Threads: belongs to one thread at a time. Chunks are not kept alive: whoever counts a trajectory holds it
// until it is taken out again.
#ifndef REVERB_TENSOR_DISTINCT_CHUNKS_H_
#define REVERB_TENSOR_DISTINCT_CHUNKS_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "tensor/chunk.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

class DistinctChunks {
 public:
  // Both return how many bytes the sum has grown or shrunk by.
  int64_t Add(const Trajectory& trajectory) {
    int64_t grown = 0;
    trajectory.ForEachChunk([&](const Chunk* chunk) {
      if (uses_[chunk]++ == 0) grown += chunk->bytes();
    });
    bytes_ += grown;
    return grown;
  }
  // REQUIRES: it was added.
  int64_t Remove(const Trajectory& trajectory) {
    int64_t shrunk = 0;
    trajectory.ForEachChunk([&](const Chunk* chunk) {
      const auto found = uses_.find(chunk);
      if (--found->second > 0) return;
      shrunk += chunk->bytes();
      uses_.erase(found);
    });
    bytes_ -= shrunk;
    return shrunk;
  }
  int64_t bytes() const { return bytes_; }

 private:
  absl::flat_hash_map<const Chunk*, int32_t> uses_;  // how many of the trajectories refer to each
  int64_t bytes_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_DISTINCT_CHUNKS_H_
