// prefetch.h — prefetches the data of a trajectory into the caches before it is used.
//
// Items are scattered in memory, and each level contains the address of the next: the slices, the chunk with
// its header, the payload. A loop over many items therefore prefetches the slices of an item far ahead, the
// chunk of a closer one, and the payload of an even closer one. Only the first slice is followed: most items
// have one chunk.
#ifndef REVERB_TENSOR_PREFETCH_H_
#define REVERB_TENSOR_PREFETCH_H_

#include <algorithm>
#include <cstddef>

#include "tensor/chunk.h"
#include "tensor/column.h"
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
// Returns where the rows of a slice, or the blocks that contain them, start in the payload.
inline size_t PayloadOffset(const SliceView& slice) {
  const PackedChunkHeader header = slice.chunk->header();
  const ColumnView column = header.column(slice.chunk_column);
  const bool is_raw = column.codec == Codec::kRaw && column.dtype != DType::kString;
  return header.column_payload_offset(slice.chunk_column) +
         (is_raw ? slice.offset * column.row_bytes()
                 : TouchedBlocks(column, slice.offset, slice.length).payload_offset);
}
// Prefetches at most `lines` lines of the payload; the hardware prefetcher does the rest.
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
