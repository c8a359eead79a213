#include "tensor/chunk_header.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "tensor/byte_io.h"

namespace reverb::internal {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kDeltaFlag = 1;
constexpr size_t kMinBlockBytes = 1 + sizeof(uint64_t);         // stored_size, checksum
constexpr size_t kMinColumnBytes = 3 + 1 + 1 + kMinBlockBytes;  // dtype, codec, flags, rank, rows_per_block
constexpr size_t kMaxDims =
    std::numeric_limits<uint16_t>::max();  // of all columns together: what Pack can index

Status DamagedHeader(std::string what) {
  return Status::DataLoss("chunk header: " + std::move(what) + "; the data is damaged")
      .WithDetail(Detail::kCorruptData);
}

uint64_t StoredSize(const ColumnHeader& column) {
  uint64_t size = 0;
  for (const BlockInfo& block : column.blocks) size += block.stored_size;
  return size;
}

uint64_t RawSize(const ColumnHeader& column) {
  uint64_t size = 0;
  for (const BlockInfo& block : column.blocks) size += block.raw_size;
  return size;
}

}  // namespace

uint64_t PayloadSize(const ChunkHeader& header) {
  uint64_t size = 0;
  for (const ColumnHeader& column : header.columns) size += StoredSize(column);
  return size;
}

Status CheckSteps(const ChunkHeader& header) {
  if (header.last_step < header.first_step) {
    return DamagedHeader("its last step " + std::to_string(header.last_step) + " is before its first, " +
                         std::to_string(header.first_step));
  }
  // Unsigned subtraction cannot overflow.
  if (header.rows > 0 && static_cast<uint64_t>(header.last_step) - static_cast<uint64_t>(header.first_step) <
                             uint64_t{header.rows} - 1) {
    return DamagedHeader(std::to_string(header.rows) + " rows, more than the steps from " +
                         std::to_string(header.first_step) + " to " + std::to_string(header.last_step));
  }
  return Status::Ok();
}

Status ValidateChunkHeader(const ChunkHeader& header, const DecodeLimits& limits) {
  REVERB_RETURN_IF_ERROR(CheckSteps(header));
  if (header.columns.empty() || header.columns.size() > limits.max_columns) {
    return DamagedHeader(std::to_string(header.columns.size()) + " columns, 1 to " +
                         std::to_string(limits.max_columns) + " are accepted");
  }
  uint64_t raw = 0;
  size_t dims = 0;
  for (size_t i = 0; i < header.columns.size(); ++i) {
    const ColumnHeader& column = header.columns[i];
    const Status status = ValidateColumn(ColumnView(column, header.rows), StoredSize(column), limits);
    if (!status.ok()) {
      return status.Prefixed("chunk header: column " + std::to_string(i) + " of " +
                             std::to_string(header.columns.size()));
    }
    raw += RawSize(column);
    dims += column.row_shape.size();
    if (raw > limits.raw_bytes()) {
      return DamagedHeader("more than the " + std::to_string(limits.raw_bytes()) +
                           " raw bytes that are accepted in a chunk");
    }
    if (dims > kMaxDims) {
      return DamagedHeader("its columns have more than " + std::to_string(kMaxDims) + " dimensions in total");
    }
  }
  return Status::Ok();
}

// --- Encoded form ---

void EncodeChunkHeader(const ChunkHeader& header, std::string* out) {
  PutByte(out, kVersion);
  PutFixed64(out, header.episode_id);
  PutVarint(out, ZigZag(header.first_step));
  PutVarint(out, static_cast<uint64_t>(header.last_step) - static_cast<uint64_t>(header.first_step));
  PutVarint(out, header.rows);
  PutVarint(out, header.columns.size());
  for (const ColumnHeader& column : header.columns) {
    PutByte(out, static_cast<uint8_t>(column.dtype));
    PutByte(out, static_cast<uint8_t>(column.codec));
    PutByte(out, column.delta ? kDeltaFlag : 0);
    PutVarint(out, column.row_shape.size());
    for (uint32_t dim : column.row_shape) PutVarint(out, dim);
    PutVarint(out, column.rows_per_block);
    for (const BlockInfo& block : column.blocks) {
      PutVarint(out, block.stored_size);
      if (column.dtype == DType::kString) PutVarint(out, block.raw_size);
      PutFixed64(out, block.checksum);
    }
  }
}

namespace {

// Reads one column. Derives the raw sizes of fixed-size dtypes, which are not stored.
Status DecodeColumn(ByteReader* reader, uint32_t rows, ColumnHeader* column) {
  uint8_t dtype = 0;
  uint8_t codec = 0;
  uint8_t flags = 0;
  uint32_t rank = 0;
  if (!reader->ReadByte(&dtype) || !reader->ReadByte(&codec) || !reader->ReadByte(&flags) ||
      !reader->ReadVarint32(&rank)) {
    return DamagedHeader("it is cut short");
  }
  if (!IsKnownDType(dtype)) return DamagedHeader("dtype number " + std::to_string(dtype) + " is not known");
  if (!IsKnownCodec(codec)) return DamagedHeader("codec number " + std::to_string(codec) + " is not known");
  if ((flags & ~kDeltaFlag) != 0)
    return DamagedHeader("column flags " + std::to_string(flags) + " are not known");
  if (rank > kMaxRowRank) {
    return DamagedHeader("rows have " + std::to_string(rank) + " dimensions, at most " +
                         std::to_string(kMaxRowRank) + " are allowed");
  }
  column->dtype = static_cast<DType>(dtype);
  column->codec = static_cast<Codec>(codec);
  column->delta = (flags & kDeltaFlag) != 0;
  column->row_shape.resize(rank);
  for (uint32_t& dim : column->row_shape) {
    if (!reader->ReadVarint32(&dim)) return DamagedHeader("a dimension is cut short or malformed");
  }
  if (!reader->ReadVarint32(&column->rows_per_block)) return DamagedHeader("it is cut short");
  if (column->rows_per_block == 0 || column->rows_per_block > rows) {
    return DamagedHeader(std::to_string(column->rows_per_block) + " rows in each block of a chunk of " +
                         std::to_string(rows) + " rows");
  }
  const uint32_t num_blocks = NumBlocks(rows, column->rows_per_block);
  if (num_blocks > reader->remaining() / kMinBlockBytes) {
    return DamagedHeader("a column claims " + std::to_string(num_blocks) + " blocks, but " +
                         std::to_string(reader->remaining()) + " bytes are left");
  }
  column->blocks.resize(num_blocks);
  const uint64_t row_bytes = ColumnView(*column, rows).row_bytes();
  for (uint32_t i = 0; i < num_blocks; ++i) {
    BlockInfo& block = column->blocks[i];
    if (!reader->ReadVarint32(&block.stored_size)) return DamagedHeader("a block is cut short or malformed");
    if (column->dtype == DType::kString) {
      if (!reader->ReadVarint32(&block.raw_size)) return DamagedHeader("a block is cut short or malformed");
    } else {
      uint64_t raw_size = 0;
      const uint64_t block_rows = ColumnView(*column, rows).rows_in_block(i);
      if (__builtin_mul_overflow(row_bytes, block_rows, &raw_size) ||
          raw_size > std::numeric_limits<uint32_t>::max()) {
        return DamagedHeader(std::to_string(block_rows) + " rows of " + std::to_string(row_bytes) +
                             " bytes in a block are too many");
      }
      block.raw_size = static_cast<uint32_t>(raw_size);
    }
    if (!reader->ReadFixed64(&block.checksum)) return DamagedHeader("a block is cut short");
  }
  return Status::Ok();
}

}  // namespace

Status DecodeChunkHeader(std::string_view bytes, const DecodeLimits& limits, ChunkHeader* header) {
  ByteReader reader(bytes);
  uint8_t version = 0;
  if (!reader.ReadByte(&version)) return DamagedHeader("it is empty");
  if (version != kVersion) {
    return DamagedHeader("its version is " + std::to_string(version) + ", this build reads version " +
                         std::to_string(kVersion) + "; unless a newer build wrote it");
  }
  uint64_t first_step = 0;
  uint64_t steps = 0;
  uint32_t num_columns = 0;
  if (!reader.ReadFixed64(&header->episode_id) || !reader.ReadVarint(&first_step) ||
      !reader.ReadVarint(&steps) || !reader.ReadVarint32(&header->rows) ||
      !reader.ReadVarint32(&num_columns)) {
    return DamagedHeader("it is cut short or a number in it is malformed");
  }
  header->first_step = UnZigZag(first_step);
  // If the sum overflows, it wraps around to a last step before the first one.
  header->last_step = static_cast<int64_t>(static_cast<uint64_t>(header->first_step) + steps);
  if (num_columns > limits.max_columns || num_columns > reader.remaining() / kMinColumnBytes) {
    return DamagedHeader("it claims " + std::to_string(num_columns) + " columns, but " +
                         std::to_string(reader.remaining()) + " bytes are left and at most " +
                         std::to_string(limits.max_columns) + " columns are accepted");
  }
  header->columns.resize(num_columns);
  for (ColumnHeader& column : header->columns) {
    REVERB_RETURN_IF_ERROR(DecodeColumn(&reader, header->rows, &column));
  }
  if (reader.remaining() != 0)
    return DamagedHeader(std::to_string(reader.remaining()) + " bytes follow its end");
  return ValidateChunkHeader(*header, limits);
}

Result<ChunkHeader> DecodeChunkHeader(std::string_view bytes, const DecodeLimits& limits) {
  ChunkHeader header;
  REVERB_RETURN_IF_ERROR(DecodeChunkHeader(bytes, limits, &header));
  return header;
}

// --- Packed form ---

size_t PackedSize(const ChunkHeader& header) {
  size_t dims = 0;
  size_t blocks = 0;
  for (const ColumnHeader& column : header.columns) {
    dims += column.row_shape.size();
    blocks += column.blocks.size();
  }
  return PackedChunkHeader::BlockOffset(header.columns.size(), dims) + blocks * sizeof(BlockInfo) +
         PackedChunkHeader::MarkBytes(blocks);
}

void Pack(const ChunkHeader& header, uint8_t* out) {
  using Packed = PackedChunkHeader;
  static_assert(offsetof(Packed::Head, payload_size) + sizeof(uint32_t) == Packed::kHeadBytes);
  static_assert(sizeof(Packed::Column) == 16);
  for ([[maybe_unused]] DType dtype : AllDTypes()) assert(static_cast<uint8_t>(dtype) <= Packed::kDTypeMask);

  const Packed::Head head = {
      .episode_id = header.episode_id,
      .first_step = header.first_step,
      .last_step = header.last_step,
      .rows = header.rows,
      .num_columns = static_cast<uint32_t>(header.columns.size()),
      .payload_size = static_cast<uint32_t>(PayloadSize(header)),
  };
  std::memcpy(out, &head, Packed::kHeadBytes);

  size_t num_dims = 0;
  for (const ColumnHeader& column : header.columns) num_dims += column.row_shape.size();
  uint8_t* columns = out + Packed::kHeadBytes;
  uint8_t* const dims = columns + header.columns.size() * sizeof(Packed::Column);
  uint8_t* const blocks = out + Packed::BlockOffset(header.columns.size(), num_dims);
  std::memset(dims + num_dims * sizeof(uint32_t), 0, blocks - (dims + num_dims * sizeof(uint32_t)));

  uint32_t payload_offset = 0;
  uint32_t first_dim = 0;
  uint32_t first_block = 0;
  for (const ColumnHeader& column : header.columns) {
    const Packed::Column packed = {
        .kind = static_cast<uint8_t>(static_cast<uint8_t>(column.dtype) |
                                     static_cast<uint8_t>(column.codec) << Packed::kCodecShift |
                                     (column.delta ? Packed::kDeltaBit : 0)),
        .rank = static_cast<uint8_t>(column.row_shape.size()),
        .first_dim = static_cast<uint16_t>(first_dim),
        .rows_per_block = column.rows_per_block,
        .payload_offset = payload_offset,
        .first_block = first_block,
    };
    std::memcpy(columns, &packed, sizeof packed);
    columns += sizeof packed;
    if (!column.row_shape.empty()) {
      std::memcpy(dims + first_dim * sizeof(uint32_t), column.row_shape.data(),
                  column.row_shape.size() * sizeof(uint32_t));
    }
    std::memcpy(blocks + first_block * sizeof(BlockInfo), column.blocks.data(),
                column.blocks.size() * sizeof(BlockInfo));
    payload_offset += static_cast<uint32_t>(StoredSize(column));
    first_dim += static_cast<uint32_t>(column.row_shape.size());
    first_block += static_cast<uint32_t>(column.blocks.size());
  }
  if (first_block <= kBlocksPerMark) return;
  uint8_t* const marks = blocks + first_block * sizeof(BlockInfo);
  std::memset(marks, 0, Packed::MarkBytes(first_block));
  uint32_t offset = 0;
  uint32_t block = 0;
  for (const ColumnHeader& column : header.columns) {
    for (const BlockInfo& info : column.blocks) {
      if (block % kBlocksPerMark == 0) {
        std::memcpy(marks + block / kBlocksPerMark * sizeof(uint32_t), &offset, sizeof offset);
      }
      offset += info.stored_size;
      ++block;
    }
  }
}

bool KnownHeader::HasFormOf(const ChunkHeader& header, const DecodeLimits& limits) const {
  if (size_ == 0 || !(limits == limits_)) return false;
  const PackedChunkHeader known(packed_);
  if (header.rows != known.rows() || header.columns.size() != known.num_columns()) return false;
  for (uint32_t i = 0; i < known.num_columns(); ++i) {
    const ColumnHeader& column = header.columns[i];
    const ColumnView view = known.column(i);
    if (column.dtype != view.dtype || column.codec != view.codec || column.delta != view.delta ||
        column.rows_per_block != view.rows_per_block || column.blocks.size() != view.blocks.size() ||
        !std::ranges::equal(column.row_shape, view.row_shape)) {
      return false;
    }
    for (size_t b = 0; b < view.blocks.size(); ++b) {
      if (column.blocks[b].stored_size != view.blocks[b].stored_size ||
          column.blocks[b].raw_size != view.blocks[b].raw_size) {
        return false;
      }
    }
  }
  return true;
}

void KnownHeader::PackLike(const ChunkHeader& header, uint8_t* out) const {
  std::memcpy(out, packed_, size_);
  auto* const head = reinterpret_cast<PackedChunkHeader::Head*>(out);
  head->episode_id = header.episode_id;
  head->first_step = header.first_step;
  head->last_step = header.last_step;
  const auto offset = reinterpret_cast<const uint8_t*>(PackedChunkHeader(packed_).blocks()) - packed_;
  auto* block = reinterpret_cast<BlockInfo*>(out + offset);
  for (const ColumnHeader& column : header.columns) {
    for (const BlockInfo& info : column.blocks) (block++)->checksum = info.checksum;
  }
}

void KnownHeader::Remember(const uint8_t* packed, size_t size, const DecodeLimits& limits) {
  if (size > kMaxBytes) return;
  std::memcpy(packed_, packed, size);
  size_ = size;
  limits_ = limits;
}

uint64_t PackedChunkHeader::raw_size() const {
  uint64_t size = 0;
  for (const BlockInfo& block : std::span(blocks(), num_blocks())) size += block.raw_size;
  return size;
}

size_t PackedChunkHeader::packed_size() const {
  return static_cast<size_t>(reinterpret_cast<const uint8_t*>(blocks() + num_blocks()) - packed_) +
         MarkBytes(num_blocks());
}

ChunkHeader PackedChunkHeader::Unpack() const {
  ChunkHeader header;
  header.episode_id = episode_id();
  header.first_step = first_step();
  header.last_step = last_step();
  header.rows = rows();
  header.columns.resize(num_columns());
  for (uint32_t i = 0; i < num_columns(); ++i) {
    const ColumnView view = column(i);
    ColumnHeader& to = header.columns[i];
    to.dtype = view.dtype;
    to.codec = view.codec;
    to.delta = view.delta;
    to.row_shape.assign(view.row_shape.begin(), view.row_shape.end());
    to.rows_per_block = view.rows_per_block;
    to.blocks.assign(view.blocks.begin(), view.blocks.end());
  }
  return header;
}

}  // namespace reverb::internal
