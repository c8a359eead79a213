// segment_format.h — the format of segment files, which the disk tier and checkpoints share. docs/checkpoint-format.md
// defines it.
#ifndef REVERB_STORAGE_SEGMENT_FORMAT_H_
#define REVERB_STORAGE_SEGMENT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tensor/chunk_header.h"

namespace reverb::internal {

enum class SegmentKind : uint8_t { kChunks = 1, kPages = 2 };  // stored: never change the values

inline constexpr std::string_view kSegmentMagic = "RVBSEGM\n";
inline constexpr uint32_t kSegmentVersion = 1;
inline constexpr size_t kSegmentHeaderBytes = 32;
inline constexpr size_t kSegmentTrailerBytes = 32;
// checksum:u64 header_size:u32 payload_size:u32, then header and payload
inline constexpr size_t kChunkRecordHeadBytes = 16;
// Set in the numbers of segments that a disk tier writes. Checkpoints number their own segments without it, so that the
// two never use the same number.
inline constexpr uint64_t kTierSegmentBit = uint64_t{1} << 62;

std::string EncodeSegmentHeader(uint64_t number, SegmentKind kind);

// Appends the part of a chunk's record before the payload: its head and the header of the chunk.
void AppendChunkRecordHead(const PackedChunkHeader& header, uint32_t payload_size, std::string* out);
// Appends the head of a record of `bytes` that contains no chunk and that nothing refers to; zeros follow it.
// REQUIRES: bytes >= kChunkRecordHeadBytes.
void AppendFillerHead(uint64_t bytes, std::string* out);

// Returns what follows the records of a segment of chunks: the index of their sizes, and the trailer.
std::string EncodeSegmentEnd(std::span<const uint64_t> record_sizes, uint64_t index_offset);
// Returns an upper bound of the size of that for so many records.
inline uint64_t MaxSegmentEndBytes(uint64_t records) { return 5 * records + kSegmentTrailerBytes; }

}  // namespace reverb::internal

#endif  // REVERB_STORAGE_SEGMENT_FORMAT_H_
