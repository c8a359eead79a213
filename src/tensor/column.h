// column.h — one leaf over time as bytes: rows of one dtype and shape, cut into blocks,
// each block compressed on its own.
//
// A column of `rows` rows is cut into blocks of `rows_per_block` rows (the last may have
// fewer), about 32-64 kB of raw bytes each and never less than a row. The payload is the
// stored blocks one after the other. Every block can be decoded alone: delta starts afresh
// at each. So a slice ships and decodes only the blocks that it touches.
//
// The raw form of a block:
//   fixed-size dtypes   the rows, row-major, little-endian
//   string              for each element its length (u32, little-endian), then all bytes
// The stored form of a block, given the column's `codec` and `delta`:
//   stored_size == raw_size   the raw form as it is: neither codec nor delta was applied
//   stored_size <  raw_size   the raw form, delta-encoded along rows if `delta`, compressed
//   stored_size >  raw_size   never
// A column whose codec is kRaw has only blocks of the first sort, and no delta.
//
// Ownership: ColumnHeader owns its vectors; ColumnView borrows. Threads: values and free
// functions; a ColumnEncoder belongs to one thread at a time.
// Checksums are of the stored bytes. Decoding does not look at them: verify once, where
// bytes come in (VerifyChecksums). Decoding is safe without: hostile headers and payloads
// give DATA_LOSS, never a read or write out of bounds, nor memory out of proportion.
#ifndef REVERB_TENSOR_COLUMN_H_
#define REVERB_TENSOR_COLUMN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/scattered_bytes.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "tensor/codec.h"

namespace reverb::internal {

// Bounds on what is accepted from elsewhere. The encoder keeps to the defaults.
struct DecodeLimits {
  // Raw bytes of all columns of a chunk together, a string counting 32 bytes at least;
  // more than 4 GiB - 1 counts as that.
  uint64_t max_chunk_raw_bytes = uint64_t{1} << 30;
  // Rows can be empty, so that bytes alone do not bound their number.
  uint32_t max_rows = uint32_t{1} << 24;
  uint32_t max_columns = uint32_t{1} << 14;

  uint64_t raw_bytes() const {
    return std::min<uint64_t>(max_chunk_raw_bytes, std::numeric_limits<uint32_t>::max());
  }
};

inline constexpr size_t kMaxRowRank = 64;
// Raw bytes that a block aims at; LZ4 is at its best up to here.
inline constexpr size_t kBlockBytes = size_t{64} << 10;

// On disk and wire; lies in memory as it is.
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

// The elements of a row; the largest number when it does not fit.
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

  // Both are the largest number when the true one does not fit.
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

// ceil(rows / rows_per_block). REQUIRES: both are at least 1.
inline uint32_t NumBlocks(uint32_t rows, uint32_t rows_per_block) {
  return rows <= rows_per_block ? 1 : (rows - 1) / rows_per_block + 1;
}

// Chooses codec and delta for one column and remembers the verdict from chunk to chunk.
//
// Under kAuto the first chunk is probed (three windows of 2 kB, as they are and as
// differences of rows). The verdict holds until 64 chunks later, or until the ratio that
// it achieves has moved by a factor of two. Under the other codecs the probe decides about
// delta alone. A chunk of less than 256 raw bytes is left raw. A block is stored
// compressed when that saves more than an eighth (kAuto), or anything (other codecs).
class ColumnEncoder {
 public:
  ColumnEncoder(DType dtype, std::vector<uint32_t> row_shape, CodecPolicy policy);

  // Appends the blocks of `rows` rows to `payload` and returns their header. On an error
  // `payload` is as before. `raw_rows` holds exactly the rows, row-major.
  Result<ColumnHeader> Encode(std::span<const uint8_t> raw_rows, uint32_t rows,
                              std::vector<uint8_t>* payload);

  // The same for dtype string: rows * (elements of a row) elements, row-major.
  Result<ColumnHeader> EncodeStrings(std::span<const std::string_view> elements, uint32_t rows,
                                     std::vector<uint8_t>* payload);

  DType dtype() const { return dtype_; }
  std::span<const uint32_t> row_shape() const { return row_shape_; }

 private:
  struct Verdict {
    Codec codec = Codec::kRaw;
    bool delta = false;
  };

  Status CheckShape(uint32_t rows) const;
  // Decides about a chunk of `raw_size` bytes, of which `sample` are at hand: probes it when due.
  Result<Verdict> Decide(std::span<const uint8_t> sample, uint64_t raw_size, uint32_t rows_per_block);
  Result<Verdict> Probe(std::span<const uint8_t> sample, uint32_t rows_per_block);
  Status AppendBlock(std::span<const uint8_t> raw, uint32_t rows, Verdict verdict,
                     std::vector<uint8_t>* payload, ColumnHeader* header) const;
  // Takes note of what the verdict achieved, and names the codec of the header.
  void Finish(Verdict verdict, ColumnHeader* header);

  // Set once in the constructor.
  DType dtype_;
  std::vector<uint32_t> row_shape_;
  CodecPolicy policy_;
  uint64_t row_elements_;
  uint64_t row_bytes_;

  Verdict verdict_;
  bool probe_due_ = true;
  bool probed_delta_ = false;  // delta was among the candidates of the last probe
  uint32_t chunks_since_probe_ = 0;
  double ratio_at_probe_ = 0;  // raw / stored of the chunk that was probed; 0 = not known yet
};

// Checks every invariant of a column against `payload_size`, the bytes that its blocks
// take together. DATA_LOSS, naming what is wrong, when one does not hold.
Status ValidateColumn(const ColumnView& column, uint64_t payload_size, const DecodeLimits& limits = {});

// Blocks [first, first + count), and where they lie in the column's payload.
struct BlockRange {
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t payload_offset = 0;
  uint64_t payload_size = 0;
};

// The blocks that rows [offset, offset + count) lie in.
// REQUIRES: a valid column, offset + count <= rows. No rows touch no blocks.
BlockRange TouchedBlocks(const ColumnView& column, uint32_t offset, uint32_t count);

// Decodes rows [offset, offset + count) into `out`, which must have exactly their size.
// `payload` starts with the stored bytes of block `first_block` and reaches at least to
// the end of the last block touched. Whole blocks are decoded in place, others through
// memory of the thread. On an error the contents of `out` are undefined.
// INVALID_ARGUMENT for wrong arguments, DATA_LOSS for a damaged column.
Status DecodeRows(const ColumnView& column, std::span<const uint8_t> payload, uint32_t offset, uint32_t count,
                  std::span<uint8_t> out, uint32_t first_block = 0);

// The same for dtype string; appends count * row_elements() elements to `*out`. On an
// error some of them may have been appended.
Status DecodeStringRows(const ColumnView& column, std::span<const uint8_t> payload, uint32_t offset,
                        uint32_t count, std::vector<std::string>* out, uint32_t first_block = 0);

// DATA_LOSS, naming the block, when stored bytes do not have the checksum of their header.
Status VerifyChecksums(const ColumnView& column, std::span<const uint8_t> payload);
Status VerifyChecksums(const ColumnView& column, const ScatteredBytes& payload);
// The same for `num_blocks` blocks from `first_block`, with which `payload` starts.
Status VerifyChecksums(const ColumnView& column, std::span<const uint8_t> payload, uint32_t first_block,
                       uint32_t num_blocks);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_COLUMN_H_
