// column.h — one leaf over time as bytes: rows of one dtype and shape, divided into blocks that are
// compressed independently.
//
// A column of `rows` rows is divided into blocks of `rows_per_block` rows (the last may have fewer), each
// of at most about 64 kB of raw bytes and at least one row. Blocks are smaller where that hardly costs
// compression, so that reading single rows decodes less. The payload is the concatenation of the stored
// blocks.
// Every block can be decoded independently: delta encoding restarts at each block. A slice therefore sends
// and decodes only the blocks that it touches.
//
// The raw form of a block:
//   fixed-size dtypes   the rows, row-major, little-endian
//   string              the length of each element (u32, little-endian), then all bytes
// The stored form of a block, given the column's `codec` and `delta`:
//   stored_size == raw_size   the raw form: neither codec nor delta was applied
//   stored_size <  raw_size   the raw form, delta-encoded along rows if `delta`, compressed
//   stored_size >  raw_size   never
// A column whose codec is kRaw only has blocks of the first kind, and no delta.
//
// Ownership: ColumnHeader owns its vectors; ColumnView borrows. Threads: values and functions without state;
// a ColumnEncoder is used by one thread at a time.
// Checksums cover the stored bytes. Decoding does not verify them: call VerifyChecksums() once, when bytes
// are received. Decoding is safe without verification: malicious headers and payloads cause DATA_LOSS, never
// an out-of-bounds access or excessive memory use.
#ifndef REVERB_TENSOR_COLUMN_H_
#define REVERB_TENSOR_COLUMN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/scattered_bytes.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "tensor/codec.h"

namespace reverb::internal {

// Limits for data from outside. The encoder complies with the defaults.
struct DecodeLimits {
  // Raw bytes of all columns of a chunk; a string counts as at least 32 bytes. Values above 4 GiB - 1 mean 4
  // GiB - 1.
  uint64_t max_chunk_raw_bytes = uint64_t{1} << 30;
  // Rows can be empty, so the limit on bytes does not bound their number.
  uint32_t max_rows = uint32_t{1} << 24;
  uint32_t max_columns = uint32_t{1} << 14;

  uint64_t raw_bytes() const {
    return std::min<uint64_t>(max_chunk_raw_bytes, std::numeric_limits<uint32_t>::max());
  }

  friend bool operator==(const DecodeLimits&, const DecodeLimits&) = default;
};

inline constexpr size_t kMaxRowRank = 64;
// Minimum cost of a decoded string. It counts against the limit of raw bytes, so that a chunk of empty
// strings does not need many times that memory.
inline constexpr uint64_t kMinStringBytes = 32;
// Target for the raw bytes of a block; LZ4 performs best up to this size.
inline constexpr size_t kBlockBytes = size_t{64} << 10;
// A chunk with more blocks than this knows where every so manyth starts, so that finding a block takes as many steps.
inline constexpr uint32_t kBlocksPerMark = 16;

// Stored and sent in the same layout as in memory.
struct BlockInfo {
  uint32_t stored_size;
  uint32_t raw_size;
  uint64_t checksum;  // XXH3-64 of the stored bytes

  friend bool operator==(const BlockInfo&, const BlockInfo&) = default;
};
static_assert(sizeof(BlockInfo) == 16);

struct ColumnHeader {
  DType dtype = DType::kFloat32;
  Codec codec = Codec::kRaw;
  bool delta = false;
  std::vector<uint32_t> row_shape;
  uint32_t rows_per_block = 0;
  std::vector<BlockInfo> blocks;

  friend bool operator==(const ColumnHeader&, const ColumnHeader&) = default;
};

// Returns the number of elements in a row, or the maximum on overflow.
inline uint64_t NumElements(std::span<const uint32_t> row_shape) {
  uint64_t count = 1;
  bool overflow = false;
  for (uint32_t dim : row_shape) {
    if (dim == 0) return 0;
    overflow |= __builtin_mul_overflow(count, uint64_t{dim}, &count);
  }
  return overflow ? std::numeric_limits<uint64_t>::max() : count;
}

struct ColumnView {
  DType dtype = DType::kFloat32;
  Codec codec = Codec::kRaw;
  bool delta = false;
  std::span<const uint32_t> row_shape;
  uint32_t rows = 0;
  uint32_t rows_per_block = 1;
  std::span<const BlockInfo> blocks;
  // The offsets of some blocks of the chunk, for columns with many; see PackedChunkHeader. Used as long as `blocks`
  // begins with the same one.
  struct Marks {
    const uint32_t* offsets = nullptr;  // of every kBlocksPerMark-th block of the chunk, in its payload
    const BlockInfo* blocks = nullptr;  // of this column
    uint32_t first_block = 0;           // of this column, among those of the chunk
    uint32_t payload_offset = 0;        // of this column
  };
  Marks marks;

  ColumnView() = default;
  // Borrows from `header`.
  ColumnView(const ColumnHeader& header, uint32_t num_rows)
      : dtype(header.dtype),
        codec(header.codec),
        delta(header.delta),
        row_shape(header.row_shape),
        rows(num_rows),
        rows_per_block(header.rows_per_block),
        blocks(header.blocks) {}

  // Both return the maximum on overflow.
  uint64_t row_elements() const { return NumElements(row_shape); }
  // 0 for strings.
  uint64_t row_bytes() const {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(row_elements(), uint64_t{ItemSize(dtype)}, &bytes)) {
      return std::numeric_limits<uint64_t>::max();
    }
    return bytes;
  }
  // REQUIRES: block < blocks.size(), and a valid column.
  uint32_t rows_in_block(size_t block) const {
    return static_cast<uint32_t>(std::min<uint64_t>(rows_per_block, rows - uint64_t{block} * rows_per_block));
  }
};

// Returns ceil(rows / rows_per_block). REQUIRES: both are at least 1.
inline uint32_t NumBlocks(uint32_t rows, uint32_t rows_per_block) {
  return rows <= rows_per_block ? 1 : (rows - 1) / rows_per_block + 1;
}

// Chooses codec and delta for one column and reuses the choice for later chunks.
//
// Under kAuto, the first chunk is probed (three windows of 2 kB, plain and as row differences). The choice is
// valid for 64 chunks, or until its compression ratio changes by a factor of two. With other codecs, the
// probe only decides about delta. A chunk of less than 256 raw bytes is not compressed. A block is stored
// compressed if that saves more than an eighth (kAuto), or anything (other codecs).
//
// If the choice is LZ4, the first rows of a chunk of 8 kB or more are then compressed in several ways: with
// LZ4's compressor and with lz4_strided.h, and in blocks of about 8, 16 and 32 kB. Smaller blocks are chosen
// if they take at most 1/128 of the raw bytes more, headers included.
class ColumnEncoder {
 public:
  ColumnEncoder(DType dtype, std::vector<uint32_t> row_shape, CodecPolicy policy);

  // Appends the blocks of `rows` rows to `payload` and returns their header. Leaves `payload` unchanged on
  // error. `raw_rows` contains exactly the rows, row-major.
  Result<ColumnHeader> Encode(std::span<const uint8_t> raw_rows, uint32_t rows,
                              std::vector<uint8_t>* payload);

  // Same for dtype string: rows * (elements per row) elements, row-major.
  Result<ColumnHeader> EncodeStrings(std::span<const std::string_view> elements, uint32_t rows,
                                     std::vector<uint8_t>* payload);

  // The same, but write the header to `*header`, whose memory they reuse: for many chunks. They leave `*header`
  // unspecified on error.
  Status Encode(std::span<const uint8_t> raw_rows, uint32_t rows, std::vector<uint8_t>* payload,
                ColumnHeader* header);
  Status EncodeStrings(std::span<const std::string_view> elements, uint32_t rows,
                       std::vector<uint8_t>* payload, ColumnHeader* header);

  // Chooses how the rows are stored, for a call of Encode() with the same rows that may follow. Returns whether they are
  // stored raw. If so, sets `*header` as Encode() would, except for the checksums: the caller can copy the rows to their
  // place (Chunk::CopyRaw) instead of calling Encode(). Leaves `*header` unspecified otherwise.
  Result<bool> StoresRaw(std::span<const uint8_t> raw_rows, uint32_t rows, ColumnHeader* header);

  DType dtype() const { return dtype_; }
  std::span<const uint32_t> row_shape() const { return row_shape_; }

 private:
  struct Choice {
    Codec codec = Codec::kRaw;
    bool delta = false;
    bool strided = false;  // kLz4: compressed by CompressLz4Strided()
    uint64_t max_block_bytes = kBlockBytes;
  };

  Status CheckShape(uint32_t rows) const;
  Status CheckRows(std::span<const uint8_t> raw_rows, uint32_t rows) const;
  // Chooses for a chunk of `raw_size` bytes, of which `sample` is available; probes the sample when due.
  Result<Choice> Choose(std::span<const uint8_t> sample, uint64_t raw_size, uint32_t rows_per_block);
  Result<Choice> Probe(std::span<const uint8_t> sample, uint32_t rows_per_block);
  // Compresses `sample`, the first rows of a chunk, in other ways too, and returns the best.
  Result<Choice> Refine(Choice choice, std::span<const uint8_t> sample) const;
  // Returns the size of the rows and of their block headers.
  Result<uint64_t> TrialSize(Choice choice, std::span<const uint8_t> rows) const;
  // Returns 0 if the result does not fit.
  Result<size_t> CompressBlock(std::span<const uint8_t> raw, Choice choice, std::span<uint8_t> out) const;
  Status AppendBlock(std::span<const uint8_t> raw, Choice choice, std::vector<uint8_t>* payload,
                     ColumnHeader* header) const;
  // Sets everything in a header but its blocks, and removes these.
  void Begin(uint32_t rows_per_block, uint32_t num_blocks, ColumnHeader* header) const;
  // Records the ratio that the choice achieved, and sets the codec of the header.
  void Finish(Choice choice, ColumnHeader* header);

  // Set by the constructor.
  DType dtype_;
  std::vector<uint32_t> row_shape_;
  CodecPolicy policy_;
  uint64_t row_elements_;
  uint64_t row_bytes_;
  std::vector<uint32_t> strides_;  // of the array of rows, in bytes, for CompressLz4Strided()

  std::optional<Choice> next_choice_;  // of StoresRaw(), for the next Encode()
  Choice choice_;
  bool probe_due_ = true;
  bool probed_delta_ = false;  // the last probe considered delta
  uint32_t chunks_since_probe_ = 0;
  double ratio_at_probe_ = 0;  // raw / stored of the probed chunk; 0 = not yet known
};

// Checks every invariant of a column against `payload_size`, the total size of its blocks. Returns DATA_LOSS
// with the reason if one is violated.
Status ValidateColumn(const ColumnView& column, uint64_t payload_size, const DecodeLimits& limits = {});

// Blocks [first, first + count), and their location in the column's payload.
struct BlockRange {
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t payload_offset = 0;
  uint64_t payload_size = 0;
};

// Returns the blocks that contain rows [offset, offset + count); none if count is 0.
// REQUIRES: a valid column, offset + count <= rows.
BlockRange TouchedBlocks(const ColumnView& column, uint32_t offset, uint32_t count);

// Decodes rows [offset, offset + count) into `out`, which must have exactly their size. `payload` starts with
// the stored bytes of block `first_block` and extends at least to the end of the last touched block. Whole
// blocks are decoded in place, others through scratch memory. On error the contents of `out` are undefined.
// Returns INVALID_ARGUMENT for wrong arguments, DATA_LOSS for a damaged column.
Status DecodeRows(const ColumnView& column, std::span<const uint8_t> payload, uint32_t offset, uint32_t count,
                  std::span<uint8_t> out, uint32_t first_block = 0);

// Same for dtype string; appends count * row_elements() elements to `*out`. On error some of them may have
// been appended.
Status DecodeStringRows(const ColumnView& column, std::span<const uint8_t> payload, uint32_t offset,
                        uint32_t count, std::vector<std::string>* out, uint32_t first_block = 0);

// Returns DATA_LOSS, naming the block, if stored bytes do not match the checksum in their header.
Status VerifyChecksums(const ColumnView& column, std::span<const uint8_t> payload);
Status VerifyChecksums(const ColumnView& column, const ScatteredBytes& payload);
// Same for `num_blocks` blocks from `first_block` on; `payload` starts with that block.
Status VerifyChecksums(const ColumnView& column, std::span<const uint8_t> payload, uint32_t first_block,
                       uint32_t num_blocks);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_COLUMN_H_
