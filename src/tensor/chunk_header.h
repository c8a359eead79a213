// chunk_header.h — the description of a chunk: the origin of its rows and how each column is stored. The
// payload is the concatenation of the columns' payloads.
//
// Three forms: ChunkHeader, a struct for building and inspecting; an encoded form for disk and wire, fully
// validated when decoded; a packed form that exists as long as the chunk, read in place through
// PackedChunkHeader, which is on the hot path of sampling.
//
// Ownership: ChunkHeader owns its data; PackedChunkHeader borrows the packed bytes. Threads: values.
//
// Encoded form (all numbers are varints of the shortest form unless stated otherwise):
//   version:u8=1 episode_id:u64 zigzag(first_step) last_step-first_step rows num_columns column*
//   column := dtype:u8 codec:u8 flags:u8 rank dim*rank rows_per_block block*
//   block  := stored_size [raw_size, for strings only] checksum:u64
// flags: bit 0 = delta. The number of blocks follows from rows and rows_per_block.
//
// Packed form (native integers; in memory only, may change freely):
//   Head, Column*num_columns, dims u32*, padding to 8, BlockInfo*, and if there are more than kBlocksPerMark blocks
//   the payload offset (u32) of every kBlocksPerMark-th block, padding to 8
#ifndef REVERB_TENSOR_CHUNK_HEADER_H_
#define REVERB_TENSOR_CHUNK_HEADER_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/status.h"
#include "tensor/column.h"

namespace reverb::internal {

struct ChunkHeader {
  uint64_t episode_id = 0;
  int64_t first_step = 0;
  int64_t last_step = 0;              // at least first_step; the range may contain more steps than rows
  uint32_t rows = 0;                  // the same for all columns
  std::vector<ColumnHeader> columns;  // at least one

  friend bool operator==(const ChunkHeader&, const ChunkHeader&) = default;
};

// Returns the stored bytes of all columns.
uint64_t PayloadSize(const ChunkHeader& header);

// Checks every column, the sums over columns and the other fields. Returns DATA_LOSS with the reason.
Status ValidateChunkHeader(const ChunkHeader& header, const DecodeLimits& limits = {});

// The part of ValidateChunkHeader() that is about steps.
Status CheckSteps(const ChunkHeader& header);

// Appends the encoded form to `*out`. REQUIRES: a valid header.
void EncodeChunkHeader(const ChunkHeader& header, std::string* out);

// Returns DATA_LOSS unless `bytes` is exactly one encoded header, valid and within the limits. Safe for
// untrusted bytes: memory stays proportional to their size. Encoding the result yields the same bytes.
Result<ChunkHeader> DecodeChunkHeader(std::string_view bytes, const DecodeLimits& limits = {});
// Same, but decodes into `*header` and reuses its memory: for many similar headers. Leaves `*header`
// unspecified on error.
Status DecodeChunkHeader(std::string_view bytes, const DecodeLimits& limits, ChunkHeader* header);

// Returns the size of the packed form: a multiple of 8. REQUIRES: a valid header.
size_t PackedSize(const ChunkHeader& header);
// Writes the packed form to `out`, which is aligned to 8. REQUIRES: a valid header.
void Pack(const ChunkHeader& header, uint8_t* out);

// A view of packed bytes. They were written by Pack() in this process, so they are not validated again.
class PackedChunkHeader {
 public:
  // REQUIRES: `packed` is aligned to 8, was written by Pack() and outlives the view.
  explicit PackedChunkHeader(const uint8_t* packed) : packed_(packed) {}

  uint64_t episode_id() const { return head().episode_id; }
  int64_t first_step() const { return head().first_step; }
  int64_t last_step() const { return head().last_step; }
  uint32_t rows() const { return head().rows; }
  uint32_t num_columns() const { return head().num_columns; }

  // REQUIRES for all of these: i < num_columns().
  ColumnView column(uint32_t i) const {
    const Column& column = columns()[i];
    ColumnView view;
    view.dtype = static_cast<DType>(column.kind & kDTypeMask);
    view.codec = static_cast<Codec>((column.kind >> kCodecShift) & kCodecMask);
    view.delta = (column.kind & kDeltaBit) != 0;
    view.row_shape = {dims() + column.first_dim, column.rank};
    view.rows = head().rows;
    view.rows_per_block = column.rows_per_block;
    view.blocks = {blocks() + column.first_block, NumBlocks(head().rows, column.rows_per_block)};
    if (view.blocks.size() > kBlocksPerMark) [[unlikely]] {
      view.marks = {.offsets = reinterpret_cast<const uint32_t*>(blocks() + num_blocks()),
                    .blocks = view.blocks.data(),
                    .first_block = column.first_block,
                    .payload_offset = column.payload_offset};
    }
    return view;
  }
  DType dtype(uint32_t i) const { return static_cast<DType>(columns()[i].kind & kDTypeMask); }
  std::span<const uint32_t> row_shape(uint32_t i) const {
    return {dims() + columns()[i].first_dim, columns()[i].rank};
  }
  // Returns the bytes of a row, which are contiguous in the payload, if the column is stored raw; 0 if it is not, and
  // for strings. Takes a fraction of the time of column().
  uint64_t raw_row_bytes(uint32_t i) const {
    const bool is_raw = (columns()[i].kind >> kCodecShift & kCodecMask) == static_cast<uint8_t>(Codec::kRaw);
    return is_raw ? fixed_row_bytes(i) : 0;
  }
  // Returns the bytes of a decoded row, or 0 for strings, whose rows differ. As quick as raw_row_bytes().
  uint64_t fixed_row_bytes(uint32_t i) const {
    const Column& column = columns()[i];
    const auto dtype = static_cast<DType>(column.kind & kDTypeMask);
    if (dtype == DType::kString) return 0;
    uint64_t bytes = ItemSize(dtype);
    for (const uint32_t dim : std::span(dims() + column.first_dim, column.rank)) bytes *= dim;
    return bytes;
  }
  // Returns whether the column has this type and row shape and is stored raw; false for strings.
  bool IsRaw(uint32_t i, DType dtype, std::span<const uint32_t> row_shape) const {
    const Column& column = columns()[i];
    const auto raw_kind =
        static_cast<uint8_t>(static_cast<uint8_t>(dtype) | static_cast<uint8_t>(Codec::kRaw) << kCodecShift);
    if ((column.kind & ~kDeltaBit) != raw_kind || column.rank != row_shape.size() ||
        dtype == DType::kString) {
      return false;
    }
    const uint32_t* const own = dims() + column.first_dim;
    for (size_t d = 0; d < row_shape.size(); ++d) {
      if (own[d] != row_shape[d]) return false;
    }
    return true;
  }
  // Returns the offset of the column's bytes in the chunk's payload.
  uint64_t column_payload_offset(uint32_t i) const { return columns()[i].payload_offset; }
  uint64_t column_payload_size(uint32_t i) const {
    return (i + 1 < num_columns() ? columns()[i + 1].payload_offset : head().payload_size) -
           columns()[i].payload_offset;
  }

  uint64_t payload_size() const { return head().payload_size; }
  // Returns the raw bytes of all columns; iterates over the blocks.
  uint64_t raw_size() const;
  // Returns the size of the packed form; a payload may follow it.
  size_t packed_size() const;

  ChunkHeader Unpack() const;

  // The bytes of the packed form before the columns.
  static constexpr size_t kHeadBytes = 36;  // without trailing padding
  // Returns about how many bytes a column of this rank takes, without its blocks: for prefetching.
  static constexpr size_t BytesPerColumn(size_t rank) { return sizeof(Column) + rank * sizeof(uint32_t); }

 private:
  friend size_t PackedSize(const ChunkHeader& header);
  friend void Pack(const ChunkHeader& header, uint8_t* out);
  friend class KnownHeader;

  struct Head {
    uint64_t episode_id;
    int64_t first_step;
    int64_t last_step;
    uint32_t rows;
    uint32_t num_columns;
    uint32_t payload_size;
  };
  struct Column {
    uint8_t kind;  // dtype, codec, delta
    uint8_t rank;
    uint16_t first_dim;
    uint32_t rows_per_block;
    uint32_t payload_offset;
    uint32_t first_block;
  };
  static constexpr uint8_t kDTypeMask = 0x1f;
  static constexpr int kCodecShift = 5;
  static constexpr uint8_t kCodecMask = 0x3;
  static constexpr uint8_t kDeltaBit = 0x80;

  const Head& head() const { return *reinterpret_cast<const Head*>(packed_); }
  const Column* columns() const { return reinterpret_cast<const Column*>(packed_ + kHeadBytes); }
  const uint32_t* dims() const { return reinterpret_cast<const uint32_t*>(columns() + num_columns()); }
  static constexpr size_t BlockOffset(size_t num_columns, size_t num_dims) {
    return (kHeadBytes + num_columns * sizeof(Column) + num_dims * sizeof(uint32_t) + 7) / 8 * 8;
  }
  const BlockInfo* blocks() const {
    const Column& last = columns()[num_columns() - 1];
    return reinterpret_cast<const BlockInfo*>(packed_ +
                                              BlockOffset(num_columns(), last.first_dim + last.rank));
  }
  // Returns the size of the marks of a chunk.
  static constexpr size_t MarkBytes(size_t num_blocks) {
    if (num_blocks <= kBlocksPerMark) return 0;
    return ((num_blocks + kBlocksPerMark - 1) / kBlocksPerMark * sizeof(uint32_t) + 7) / 8 * 8;
  }
  size_t num_blocks() const {
    const Column& last = columns()[num_columns() - 1];
    return last.first_block + NumBlocks(rows(), last.rows_per_block);
  }

  const uint8_t* packed_;
};

// The last header that was validated and packed. Most headers of a stream have the form of the one before them: they
// differ in episode, steps and checksums. Comparing the form takes a fifth of validating and packing it.
class KnownHeader {
 public:
  // Returns whether `header` has the form of this one, so that it is valid if CheckSteps() says so, under these limits.
  bool HasFormOf(const ChunkHeader& header, const DecodeLimits& limits) const;
  // What PackedSize(), PayloadSize() and Pack() do. REQUIRE: HasFormOf(header).
  size_t packed_size() const { return size_; }
  uint64_t payload_size() const { return PackedChunkHeader(packed_).payload_size(); }
  void PackLike(const ChunkHeader& header, uint8_t* out) const;
  // Keeps a copy of the packed form of a header that is valid under these limits, unless it is large.
  void Remember(const uint8_t* packed, size_t size, const DecodeLimits& limits);

 private:
  static constexpr size_t kMaxBytes = 1024;

  DecodeLimits limits_;
  size_t size_ = 0;  // 0 = none is known
  alignas(8) uint8_t packed_[kMaxBytes] = {};
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_CHUNK_HEADER_H_
