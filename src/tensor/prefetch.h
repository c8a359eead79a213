// prefetch.h — fetches what a trajectory needs into the caches, ahead of its use.
//
// Items lie anywhere in memory, and each step says where the next is: the slices, the chunk with its header,
// the payload. So a loop over many asks for the slices of one far ahead, the chunk of one closer, the payload
// of one closer still. Only the first slice is followed: most items have one chunk.
#ifndef REVERB_TENSOR_PREFETCH_H_
#define REVERB_TENSOR_PREFETCH_H_

#include <algorithm>
#include <cstddef>

#include "tensor/chunk.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

inline constexpr size_t kCacheLine = 64;

inline void PrefetchLines(const void* address, size_t lines) {
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(static_cast<const char*>(address) + i * kCacheLine);
}

inline void PrefetchSlices(const Trajectory& trajectory) {
  PrefetchLines(Trajectory::counted_object(trajectory.handle()), 2);
}
inline void PrefetchHeader(const Trajectory& trajectory, size_t lines) {
  if (!trajectory.empty()) PrefetchLines(trajectory.slice(0, 0).chunk, lines);
}
// At most so many lines of the payload: the processor follows from there.
inline void PrefetchPayload(const Trajectory& trajectory, size_t lines) {
  if (trajectory.empty()) return;
  const Chunk* const chunk = trajectory.slice(0, 0).chunk;
  if (chunk->is_scattered()) return;
  const auto payload = chunk->payload();
  PrefetchLines(payload.data(), std::min(lines, (payload.size() + kCacheLine - 1) / kCacheLine));
}

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_PREFETCH_H_
