// prefetch.h — prefetches the data of a trajectory into the caches before it is used.
//
// Items are scattered in memory, and each level contains the address of the next: the slices, the chunk with
// its header, the payload. A loop over many items therefore prefetches the slices of an item far ahead, the
// chunks of a closer one, and the payload of an even closer one.
#ifndef REVERB_TENSOR_PREFETCH_H_
#define REVERB_TENSOR_PREFETCH_H_

#include <algorithm>
#include <cstddef>

#include "tensor/chunk.h"
#include "tensor/column.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

inline constexpr size_t kCacheLine = 64;

inline void PrefetchLine(const void* address) {
  __builtin_prefetch(address);
  // Without this, GCC 12 takes functions that only prefetch for functions without effects, and removes their calls.
  asm volatile("");
}
// Prefetches into the second-level cache, which accepts more lines at a time.
inline void PrefetchLineFar(const void* address) {
  __builtin_prefetch(address, 0, 2);
  asm volatile("");  // see PrefetchLine()
}
inline void PrefetchLines(const void* address, size_t lines) {
  for (size_t i = 0; i < lines; ++i) PrefetchLine(static_cast<const char*>(address) + i * kCacheLine);
}

// Prefetches all lines that contain the bytes.
inline void PrefetchBytes(const void* address, size_t bytes) {
  if (bytes == 0) return;
  const char* const begin = static_cast<const char*>(address);
  for (size_t i = 0; i < bytes; i += kCacheLine) PrefetchLine(begin + i);
  PrefetchLine(begin + bytes - 1);
}

// Prefetches the slices of an item of few columns and chunks.
inline void PrefetchSlices(const Trajectory& trajectory) {
  constexpr size_t kBytes = 160;
  PrefetchBytes(Trajectory::counted_object(trajectory.handle()), kBytes);
}
// Prefetches the first bytes of the chunks: of some, since items have few.
inline void PrefetchHeaders(const Trajectory& trajectory, size_t bytes) {
  constexpr size_t kMaxChunks = 4;
  size_t left = kMaxChunks;
  trajectory.ForEachChunk([&](const Chunk* chunk) {
    if (left == 0) return;
    --left;
    PrefetchBytes(chunk, bytes);
  });
}
// Returns where the rows of a slice, or the blocks that contain them, start in the payload.
inline size_t PayloadOffset(const SliceView& slice) {
  const PackedChunkHeader header = slice.chunk->header();
  const ColumnView column = header.column(slice.chunk_column);
  const bool is_raw = column.codec == Codec::kRaw && column.dtype != DType::kString;
  return header.column_payload_offset(slice.chunk_column) +
         (is_raw ? slice.offset * column.row_bytes()
                 : TouchedBlocks(column, slice.offset, slice.length).payload_offset);
}
// Prefetches at most `lines` lines of the first slice's payload; the hardware prefetcher does the rest.
inline void PrefetchPayload(const Trajectory& trajectory, size_t lines) {
  if (trajectory.empty()) return;
  const SliceView slice = trajectory.slice(0, 0);
  if (slice.chunk->is_scattered()) return;
  auto payload = slice.chunk->payload();
  // A small payload is prefetched completely, without reading the header.
  if (payload.size() > lines * kCacheLine) payload = payload.subspan(PayloadOffset(slice));
  PrefetchLines(payload.data(), std::min(lines, (payload.size() + kCacheLine - 1) / kCacheLine));
}

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_PREFETCH_H_
