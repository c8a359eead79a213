#include "tensor/trajectory.h"

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "tensor/column.h"
#include "tensor/row_layout.h"

namespace reverb::internal {
namespace {

Status CheckSlice(const SliceView& slice, size_t column, size_t index) {
  const auto where = [&] {
    return "trajectory column " + std::to_string(column) + ", slice " + std::to_string(index);
  };
  if (slice.chunk == nullptr) return Status::InvalidArgument(where() + ": names no chunk");
  const PackedChunkHeader header = slice.chunk->header();
  if (slice.chunk_column >= header.num_columns()) {
    return Status::InvalidArgument(where() + ": names column " + std::to_string(slice.chunk_column) +
                                   " of a chunk that has " + std::to_string(header.num_columns()));
  }
  if (slice.length == 0 || slice.offset >= header.rows() || slice.length > header.rows() - slice.offset) {
    return Status::InvalidArgument(where() + ": rows " + std::to_string(slice.offset) + " to " +
                                   std::to_string(uint64_t{slice.offset} + slice.length) +
                                   " are not all in the chunk, which has " + std::to_string(header.rows()) +
                                   " rows");
  }
  return Status::Ok();
}

// The slices of a column are returned as one array, so they must have the same dtype and shape.
Status CheckSameSpec(const SliceView& first, const SliceView& other, size_t column) {
  const ColumnView a = first.chunk->header().column(first.chunk_column);
  const ColumnView b = other.chunk->header().column(other.chunk_column);
  if (a.dtype == b.dtype && std::ranges::equal(a.row_shape, b.row_shape)) return Status::Ok();
  const auto describe = [](const ColumnView& view) {
    std::string text = std::string(DTypeName(view.dtype)) + "[";
    for (size_t i = 0; i < view.row_shape.size(); ++i)
      text += (i ? ", " : "") + std::to_string(view.row_shape[i]);
    return text + "]";
  };
  return Status::InvalidArgument("trajectory column " + std::to_string(column) + " mixes rows of " +
                                 describe(a) + " and " + describe(b) +
                                 "; all rows of a column must have the same dtype and shape");
}

SliceView ViewOf(const SliceSpec& spec) {
  return {.chunk = spec.chunk.get(),
          .chunk_column = spec.chunk_column,
          .offset = spec.offset,
          .length = spec.length};
}

}  // namespace

Result<Trajectory> Trajectory::Single(ChunkRef chunk, uint32_t offset, uint32_t length, bool squeeze) {
  REVERB_RETURN_IF_ERROR(CheckSlice({.chunk = chunk.get(), .offset = offset, .length = length}, 0, 0));
  if (squeeze && length != 1) {
    return Status::InvalidArgument("trajectory column 0 cannot be squeezed: it has " +
                                   std::to_string(length) + " rows, and only a single row can be squeezed");
  }
  if (length >= kSqueezeBit) return Status::InvalidArgument("trajectory column 0 has too many rows");
  return Trajectory(TrajectoryHandle{.bits = reinterpret_cast<uintptr_t>(chunk.Release()),
                                     .offset = offset,
                                     .length = length | (squeeze ? kSqueezeBit : 0)});
}

uint32_t Trajectory::RowLayoutOf(std::span<const ColumnSpec> columns) {
  if (columns.size() > kMaxRowLayoutColumns) return 0;
  std::array<RowLayoutColumn, kMaxRowLayoutColumns> layout;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].slices.size() != 1) return 0;
    const SliceSpec& slice = columns[c].slices[0];
    if (slice.chunk->fixed_payload() == nullptr) return 0;
    const PackedChunkHeader header = slice.chunk->header();
    if (header.raw_row_bytes(slice.chunk_column) == 0) return 0;
    layout[c] = {.dtype = header.dtype(slice.chunk_column),
                 .squeeze = columns[c].squeeze,
                 .length = slice.length,
                 .row_shape = header.row_shape(slice.chunk_column)};
  }
  return RowLayoutNumber(std::span(layout).first(columns.size()));
}

Result<Trajectory> Trajectory::Create(std::span<const ColumnSpec> columns, bool with_rows) {
  if (columns.empty()) return Status::InvalidArgument("item trajectory must not be empty: it has no column");
  if (columns.size() == 1 && columns[0].slices.size() == 1 && columns[0].slices[0].chunk_column == 0) {
    const SliceSpec& slice = columns[0].slices[0];
    if (slice.length < kSqueezeBit)
      return Single(slice.chunk, slice.offset, slice.length, columns[0].squeeze);
  }

  size_t num_slices = 0;
  for (const ColumnSpec& column : columns) num_slices += column.slices.size();
  if (num_slices >= kSqueezeBit) return Status::InvalidArgument("item trajectory has too many slices");
  absl::InlinedVector<Chunk*, 16> chunks;
  // Most items have few chunks, for which a scan is faster than hashing.
  absl::flat_hash_map<Chunk*, uint32_t> index;
  const auto index_of = [&](Chunk* chunk) -> uint32_t {
    constexpr size_t kScanLimit = 16;
    if (index.empty()) {
      const auto it = std::ranges::find(chunks, chunk);
      if (it != chunks.end()) return static_cast<uint32_t>(it - chunks.begin());
    } else if (const auto it = index.find(chunk); it != index.end()) {
      return it->second;
    }
    chunks.push_back(chunk);
    const auto added = static_cast<uint32_t>(chunks.size() - 1);
    if (chunks.size() == kScanLimit) {
      for (uint32_t i = 0; i < kScanLimit; ++i) index.emplace(chunks[i], i);
    } else if (chunks.size() > kScanLimit) {
      index.emplace(chunk, added);
    }
    return added;
  };

  std::vector<SliceEntry> entries;
  entries.reserve(num_slices);
  for (size_t c = 0; c < columns.size(); ++c) {
    const ColumnSpec& column = columns[c];
    if (column.slices.empty()) {
      return Status::InvalidArgument("item trajectory must not be empty: column " + std::to_string(c) +
                                     " has no rows");
    }
    uint64_t rows = 0;
    for (size_t s = 0; s < column.slices.size(); ++s) {
      const SliceView slice = ViewOf(column.slices[s]);
      REVERB_RETURN_IF_ERROR(CheckSlice(slice, c, s));
      if (s > 0) REVERB_RETURN_IF_ERROR(CheckSameSpec(ViewOf(column.slices[0]), slice, c));
      rows += slice.length;
      entries.push_back({.chunk = index_of(slice.chunk),
                         .chunk_column = slice.chunk_column,
                         .offset = slice.offset,
                         .length = slice.length});
    }
    if (column.squeeze && rows != 1) {
      return Status::InvalidArgument("trajectory column " + std::to_string(c) +
                                     " cannot be squeezed: it has " + std::to_string(rows) +
                                     " rows, and only a single row can be squeezed");
    }
  }

  const uint32_t row_layout = with_rows ? RowLayoutOf(columns) : 0;
  const size_t num_rows = row_layout != 0 ? columns.size() : 0;
  const size_t bytes = sizeof(Block) + (num_rows + chunks.size()) * sizeof(void*) +
                       num_slices * sizeof(SliceEntry) + columns.size() * sizeof(ColumnEntry);
  void* memory = ::operator new(bytes, std::nothrow);
  if (memory == nullptr)
    return Status::ResourceExhausted("no memory for a trajectory of " + std::to_string(bytes) + " bytes");
  Block* block = new (memory) Block();
  block->row_layout = row_layout;
  block->num_columns = static_cast<uint32_t>(columns.size());
  block->num_slices = static_cast<uint32_t>(num_slices);
  block->num_chunks = static_cast<uint32_t>(chunks.size());
  for (size_t c = 0; c < num_rows; ++c) {
    const SliceSpec& slice = columns[c].slices[0];
    const PackedChunkHeader header = slice.chunk->header();
    block->rows()[c] = slice.chunk->fixed_payload() + header.column_payload_offset(slice.chunk_column) +
                       slice.offset * header.raw_row_bytes(slice.chunk_column);
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i]->Ref();
    block->chunks()[i] = chunks[i];
  }
  std::ranges::copy(entries, block->slices());
  uint32_t end = 0;
  for (size_t c = 0; c < columns.size(); ++c) {
    end += static_cast<uint32_t>(columns[c].slices.size());
    block->columns()[c] = {.end_slice = end, .squeeze = columns[c].squeeze};
  }
  return Trajectory(TrajectoryHandle{.bits = reinterpret_cast<uintptr_t>(block) | 1});
}

Result<Trajectory> Trajectory::CreateSeries(std::span<const ColumnSpec> columns, uint32_t count) {
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].slices.size() != 1) {
      return Status::InvalidArgument("trajectory column " + std::to_string(c) + " has " +
                                     std::to_string(columns[c].slices.size()) +
                                     " slices; in a series each column has one");
    }
    const SliceSpec& slice = columns[c].slices[0];
    const uint32_t rows = slice.chunk ? slice.chunk->header().rows() : 0;
    if (slice.offset > rows || uint64_t{slice.length} * count > rows - slice.offset) {
      return Status::InvalidArgument(
          "trajectory column " + std::to_string(c) + ": " + std::to_string(count) + " times " +
          std::to_string(slice.length) + " rows from " + std::to_string(slice.offset) +
          " on are not all in the chunk, which has " + std::to_string(rows) + " rows");
    }
  }
  return Create(columns, /*with_rows=*/false);
}

Result<Trajectory> Trajectory::CopyBlock() const {
  Block* const from = block(handle_);
  // Other chunks have their rows elsewhere.
  const size_t bytes = static_cast<size_t>(memory_bytes()) - from->num_rows() * sizeof(void*);
  void* const memory = ::operator new(bytes, std::nothrow);
  if (memory == nullptr)
    return Status::ResourceExhausted("no memory for a trajectory of " + std::to_string(bytes) + " bytes");
  Block* const to = new (memory) Block();
  to->num_columns = from->num_columns;
  to->num_slices = from->num_slices;
  to->num_chunks = from->num_chunks;
  std::copy_n(from->slices(), from->num_slices, to->slices());
  std::copy_n(from->columns(), from->num_columns, to->columns());
  TrajectoryHandle handle = handle_;
  handle.bits = reinterpret_cast<uintptr_t>(to) | 1;
  return Trajectory(handle);
}

void Trajectory::DestroyBlock(Block* block) {
  for (uint32_t i = 0; i < block->num_chunks; ++i) block->chunks()[i]->Unref();
  block->~Block();
  ::operator delete(static_cast<void*>(block));
}

int64_t Trajectory::length(uint32_t column) const {
  int64_t rows = 0;
  for (uint32_t i = 0; i < num_slices(column); ++i) rows += slice(column, i).length;
  return rows;
}

uint64_t Trajectory::DecodedBytes(uint64_t limit) const {
  // Chunks have less than 4 GiB of raw bytes, and rows are checked against them: no product overflows.
  limit = std::min(limit, std::numeric_limits<uint64_t>::max() / 4);
  uint64_t bytes = 0;
  for (uint32_t c = 0; c < num_columns(); ++c) {
    const uint32_t slices = num_slices(c);
    for (uint32_t s = 0; s < slices && bytes <= limit; ++s) {
      const SliceView view = slice(c, s);
      const PackedChunkHeader header = view.chunk->header();
      if (const uint64_t row_bytes = header.fixed_row_bytes(view.chunk_column); row_bytes > 0) {
        bytes += row_bytes * view.length;
        continue;
      }
      const ColumnView column = header.column(view.chunk_column);
      bytes += column.row_bytes() * view.length;
      if (column.dtype != DType::kString || column.row_elements() == 0) continue;
      bytes += column.row_elements() * view.length * kMinStringBytes;
      // Each block takes at least four bytes, so the steps are bounded by the limit too.
      const uint32_t first = view.offset / column.rows_per_block;
      const uint32_t last = (view.offset + view.length - 1) / column.rows_per_block;
      for (uint32_t block = first; block <= last && bytes <= limit; ++block)
        bytes += column.blocks[block].raw_size;
    }
  }
  return bytes;
}

int64_t Trajectory::chunk_bytes() const {
  int64_t bytes = 0;
  ForEachChunk([&](const Chunk* chunk) { bytes += chunk->bytes(); });
  return bytes;
}

ColumnView Trajectory::column_view(uint32_t column) const {
  const SliceView first = slice(column, 0);
  return first.chunk->header().column(first.chunk_column);
}

Status Trajectory::Read(uint32_t column, std::span<uint8_t> out) const {
  for (uint32_t i = 0; i < num_slices(column); ++i) {
    const SliceView s = slice(column, i);
    const PackedChunkHeader header = s.chunk->header();
    const ColumnView view = header.column(s.chunk_column);
    const size_t row_bytes = view.row_bytes();
    const size_t bytes = static_cast<size_t>(s.length) * row_bytes;
    if (bytes > out.size()) {
      return Status::InvalidArgument("column " + std::to_string(column) +
                                     ": the output is too small by at least " +
                                     std::to_string(bytes - out.size()) + " bytes");
    }
    if (view.codec == Codec::kRaw && view.dtype != DType::kString) [[likely]] {
      REVERB_RETURN_IF_ERROR(s.chunk->CopyPayload(
          out.data(), header.column_payload_offset(s.chunk_column) + s.offset * row_bytes, bytes));
    } else {
      REVERB_RETURN_IF_ERROR(
          DecodeRows(view, s.chunk->column_payload(s.chunk_column), s.offset, s.length, out.first(bytes)));
    }
    out = out.subspan(bytes);
  }
  if (!out.empty()) {
    return Status::InvalidArgument("column " + std::to_string(column) + ": the output is too large by " +
                                   std::to_string(out.size()) + " bytes");
  }
  return Status::Ok();
}

Status Trajectory::ReadStrings(uint32_t column, std::vector<std::string>* out) const {
  for (uint32_t i = 0; i < num_slices(column); ++i) {
    const SliceView s = slice(column, i);
    const ColumnView view = s.chunk->header().column(s.chunk_column);
    REVERB_RETURN_IF_ERROR(
        DecodeStringRows(view, s.chunk->column_payload(s.chunk_column), s.offset, s.length, out));
  }
  return Status::Ok();
}

}  // namespace reverb::internal
