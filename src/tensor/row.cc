#include "tensor/row.h"

#include <cstring>
#include <limits>
#include <utility>

#include "tensor/checksum.h"

namespace reverb::internal {

Result<ChunkRef> EncodeRow(std::span<const TensorView> values, PayloadSource* source) {
  ChunkHeader header{.rows = 1};
  header.columns.reserve(values.size());
  std::vector<std::vector<uint8_t>> encoded;  // of strings
  uint64_t bytes = 0;
  for (const TensorView& value : values) {
    std::vector<uint32_t> shape;
    shape.reserve(value.dims.size());
    for (const int64_t dim : value.dims) {
      if (dim < 0 || dim > std::numeric_limits<uint32_t>::max()) {
        return Status::InvalidArgument("a value has a dimension of " + std::to_string(dim));
      }
      shape.push_back(static_cast<uint32_t>(dim));
    }
    if (value.dtype == DType::kString) {
      ColumnEncoder encoder(value.dtype, std::move(shape), CodecPolicy::kNone);
      REVERB_ASSIGN_OR_RETURN(ColumnHeader column,
                              encoder.EncodeStrings(value.strings(), 1, &encoded.emplace_back()));
      bytes += encoded.back().size();
      header.columns.push_back(std::move(column));
      continue;
    }
    const uint64_t size = value.num_bytes();
    bytes += size;
    if (size > DecodeLimits().raw_bytes() || bytes > DecodeLimits().raw_bytes()) {
      return Status::ResourceExhausted(
          "a row has more than the " + std::to_string(DecodeLimits().raw_bytes()) +
          " bytes that one write may have; write its columns one after the other");
    }
    const auto narrow = static_cast<uint32_t>(size);
    header.columns.push_back(
        {.dtype = value.dtype,
         .row_shape = std::move(shape),
         .rows_per_block = 1,
         .blocks = {{.stored_size = narrow, .raw_size = narrow, .checksum = Checksum(value.bytes())}}});
  }
  uint8_t* payload = nullptr;
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, Chunk::Uninitialized(NextChunkId(), header, &payload, {}, source));
  size_t next_encoded = 0;
  for (const TensorView& value : values) {
    const std::span<const uint8_t> part =
        value.dtype == DType::kString ? std::span<const uint8_t>(encoded[next_encoded++]) : value.bytes();
    if (!part.empty()) std::memcpy(payload, part.data(), part.size());
    payload += part.size();
  }
  return chunk;
}

Status ReadSegment(const RowSegment& segment, std::span<uint8_t> out) {
  const PackedChunkHeader header = segment.chunk->header();
  if (header.raw_row_bytes(segment.chunk_column) == out.size()) {
    return segment.chunk->CopyPayload(
        out.data(), header.column_payload_offset(segment.chunk_column) + segment.offset * out.size(),
        out.size());
  }
  return DecodeRows(segment.column(), segment.chunk->column_payload(segment.chunk_column), segment.offset, 1,
                    out);
}

Status ReadSegmentStrings(const RowSegment& segment, std::vector<std::string>* out) {
  return DecodeStringRows(segment.column(), segment.chunk->column_payload(segment.chunk_column),
                          segment.offset, 1, out);
}

}  // namespace reverb::internal
