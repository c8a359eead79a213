#include "transport/wire_pieces.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tensor/checksum.h"
#include "transport/wire.h"
#include "transport/wire_internal.h"
#include "transport/wire_shared_columns.h"

namespace reverb::internal {
namespace {

// Returns the stored bytes of raw rows, which are contiguous across blocks.
std::span<const uint8_t> RawBytes(const ColumnView& view, Chunk* chunk, uint32_t column, uint32_t offset,
                                  uint32_t rows) {
  const BlockRange range = TouchedBlocks(view, offset, rows);
  const uint64_t row_bytes = view.row_bytes();
  const uint64_t skipped = (offset - uint64_t{range.first} * view.rows_per_block) * row_bytes;
  return chunk->column_payload(column).subspan(range.payload_offset + skipped, rows * row_bytes);
}

}  // namespace

void PieceBuilder::CollectUses() {
  size_t positions = 0;
  for (const Sample& sample : samples_) {
    const Trajectory& trajectory = sample.trajectory;
    positions = std::max<size_t>(positions, trajectory.num_columns());
    for (uint32_t c = 0; c < trajectory.num_columns(); ++c) {
      for (uint32_t s = 0; s < trajectory.num_slices(c); ++s) {
        const SliceView slice = trajectory.slice(c, s);
        Use use{.chunk = slice.chunk,
                .column = slice.chunk_column,
                .offset = slice.offset,
                .length = slice.length,
                .position = c,
                .raw = true,
                .piece = 0,
                .piece_offset = 0};
        const ColumnView view = ViewOf(use);
        if (view.dtype == DType::kString) {
          use.raw = false;
        } else if (view.codec != Codec::kRaw) {
          const BlockRange range = TouchedBlocks(view, use.offset, use.length);
          // No block is larger than its raw form.
          const uint64_t first_row = uint64_t{range.first} * view.rows_per_block;
          const uint64_t end_row =
              std::min<uint64_t>(view.rows, uint64_t{range.first + range.count} * view.rows_per_block);
          use.raw = range.payload_size == (end_row - first_row) * view.row_bytes();
        }
        uses_.push_back(use);
      }
    }
  }
  shared_positions_.resize(positions);
}

void PieceBuilder::SortUses() {
  sorted_.resize(uses_.size());
  for (uint32_t i = 0; i < sorted_.size(); ++i) sorted_[i] = i;
  std::ranges::sort(sorted_, [&](uint32_t a, uint32_t b) {
    const Use& x = uses_[a];
    const Use& y = uses_[b];
    if (x.chunk != y.chunk) return x.chunk < y.chunk;
    if (x.column != y.column) return x.column < y.column;
    if (x.offset != y.offset) return x.offset < y.offset;
    return a < b;
  });
}

template <typename IsMeant, typename Interval>
void PieceBuilder::CoverByRuns(std::span<const uint32_t> group, Piece::Kind kind, uint32_t rows_per_unit,
                               const IsMeant& is_meant, const Interval& interval) {
  bool open = false;
  for (const uint32_t index : group) {
    Use& use = uses_[index];
    if (!is_meant(use)) continue;
    const auto [first, end] = interval(use);
    if (!open || first > pieces_.back().first + pieces_.back().count) {
      open = true;
      pieces_.push_back({.kind = kind,
                         .first_use = index,
                         .chunk = use.chunk,
                         .column = use.column,
                         .first = first,
                         .count = end - first});
    } else {
      Piece& piece = pieces_.back();
      piece.count = std::max(piece.count, end - piece.first);
      piece.first_use = std::min(piece.first_use, index);
    }
    use.piece = static_cast<uint32_t>(pieces_.size() - 1);
    use.piece_offset = use.offset - pieces_.back().first * rows_per_unit;
  }
}

void PieceBuilder::ChooseBlocks() {
  ForEachGroup([&](std::span<const uint32_t> group) {
    const ColumnView view = ViewOf(uses_[group[0]]);
    CoverByRuns(
        group, Piece::Kind::kBlocks, view.rows_per_block, [](const Use& use) { return !use.raw; },
        [&](const Use& use) {
          const BlockRange range = TouchedBlocks(view, use.offset, use.length);
          return std::pair(range.first, range.first + range.count);
        });
  });
}

void PieceBuilder::ChooseRows() {
  // By position: the bytes of its raw uses, and those bytes if rows used several times counted once.
  struct Cost {
    double all = 0;
    double distinct = 0;
  };
  std::vector<Cost> costs(shared_positions_.size());
  ForEachGroup([&](std::span<const uint32_t> group) {
    uint64_t all = 0;
    uint64_t distinct = 0;
    uint64_t end = 0;
    for (const uint32_t index : group) {
      const Use& use = uses_[index];
      if (!use.raw) continue;
      const uint64_t use_end = uint64_t{use.offset} + use.length;
      all += use.length;
      if (use_end > end) distinct += use_end - std::max<uint64_t>(end, use.offset);
      end = std::max(end, use_end);
    }
    if (all == 0) return;
    const double ratio = static_cast<double>(distinct) / static_cast<double>(all);
    const auto row_bytes = static_cast<double>(ViewOf(uses_[group[0]]).row_bytes());
    for (const uint32_t index : group) {
      if (!uses_[index].raw) continue;
      Cost& cost = costs[uses_[index].position];
      cost.all += uses_[index].length * row_bytes;
      cost.distinct += uses_[index].length * row_bytes * ratio;
    }
  });
  bool any = false;
  for (size_t i = 0; i < costs.size(); ++i) {
    shared_positions_[i] = costs[i].all > kOverlapFactor * costs[i].distinct;
    any |= shared_positions_[i];
  }
  if (!any) return;
  ForEachGroup([&](std::span<const uint32_t> group) {
    CoverByRuns(
        group, Piece::Kind::kRows, 1, [&](const Use& use) { return use.raw && IsShared(use); },
        [](const Use& use) { return std::pair(use.offset, use.offset + use.length); });
  });
}

void PieceBuilder::Gather() {
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> current(shared_positions_.size(), kNone);  // piece, by position
  for (uint32_t i = 0; i < uses_.size(); ++i) {
    Use& use = uses_[i];
    if (!use.raw || IsShared(use)) continue;
    uint32_t& piece = current[use.position];
    if (piece != kNone) {
      const ColumnView view = ViewOf(use);
      const ColumnView before = ViewOf(uses_[pieces_[piece].gathered[0]]);
      const uint64_t rows = pieces_[piece].rows + use.length;
      if (view.dtype != before.dtype || !std::ranges::equal(view.row_shape, before.row_shape) ||
          rows > kMaxGatherRows || rows * view.row_bytes() > kMaxGatherBytes) {
        piece = kNone;
      }
    }
    if (piece == kNone) {
      piece = static_cast<uint32_t>(pieces_.size());
      pieces_.push_back({.kind = Piece::Kind::kGathered, .first_use = i});
    }
    use.piece = piece;
    use.piece_offset = static_cast<uint32_t>(pieces_[piece].rows);
    pieces_[piece].rows += use.length;
    pieces_[piece].gathered.push_back(i);
  }
}

void PieceBuilder::NumberPieces() {
  order_.resize(pieces_.size());
  for (uint32_t i = 0; i < order_.size(); ++i) order_[i] = i;
  std::ranges::sort(order_, {}, [&](uint32_t piece) { return pieces_[piece].first_use; });
  numbers_.resize(pieces_.size());
  for (uint32_t i = 0; i < order_.size(); ++i) numbers_[order_[i]] = i;
}

void PieceBuilder::WriteSamples(uint32_t field, WireWriter* writer) const {
  const Use* use = uses_.data();
  for (const Sample& sample : samples_) {
    const auto nested = writer->Begin(field);
    WriteSampleInfo(sample, writer);
    for (uint32_t c = 0; c < sample.trajectory.num_columns(); ++c) {
      const auto column = writer->Begin(2);
      WireSlice slice;
      for (uint32_t s = 0; s < sample.trajectory.num_slices(c); ++s, ++use) {
        const uint32_t number = numbers_[use->piece];
        if (slice.length > 0 && slice.chunk_id == number &&
            slice.offset + slice.length == use->piece_offset) {
          slice.length += use->length;
          continue;
        }
        if (slice.length > 0) WriteSlice(slice, writer);
        slice = {number, 0, use->piece_offset, use->length};
      }
      WriteSlice(slice, writer);
      writer->Bool(2, sample.trajectory.squeeze(c));
      writer->End(column);
    }
    writer->End(nested);
  }
}

// Writes a piece whose bytes are in `chunk`.
void PieceBuilder::WritePiece(const ColumnView& view, std::span<const std::span<const uint8_t>> parts,
                              Chunk* chunk, WireWriter* writer) {
  uint64_t size = 0;
  for (const auto& part : parts) size += part.size();
  const auto nested = BeginPiece(view, size, writer);
  if (size > 0) {
    for (const auto& part : parts) writer->AppendOf(chunk, part);
  }
  writer->End(nested);
}

void PieceBuilder::WritePiece(const Piece& piece, WireWriter* writer) const {
  if (piece.kind == Piece::Kind::kGathered) return WriteGathered(piece, writer);
  const ColumnView whole = piece.chunk->header().column(piece.column);
  ColumnView view = whole;
  if (piece.kind == Piece::Kind::kBlocks) {
    const uint64_t first_row = uint64_t{piece.first} * whole.rows_per_block;
    view.rows = static_cast<uint32_t>(
        std::min<uint64_t>(whole.rows - first_row, uint64_t{piece.count} * whole.rows_per_block));
    view.rows_per_block = std::min(whole.rows_per_block, view.rows);
    view.blocks = whole.blocks.subspan(piece.first, piece.count);
    const BlockRange range = TouchedBlocks(whole, static_cast<uint32_t>(first_row), view.rows);
    const std::span<const uint8_t> bytes =
        piece.chunk->column_payload(piece.column).subspan(range.payload_offset, range.payload_size);
    return WritePiece(view, {&bytes, 1}, piece.chunk, writer);
  }
  const std::span<const uint8_t> bytes = RawBytes(whole, piece.chunk, piece.column, piece.first, piece.count);
  const auto size = static_cast<uint32_t>(bytes.size());
  const RawRowRun run{.chunk = piece.chunk,
                      .column = piece.column,
                      .offset = piece.first,
                      .length = piece.count,
                      .bytes = bytes};
  const uint64_t checksum = writer->encoding().row_checksums ? ChecksumOf(run) : 0;
  const BlockInfo block{.stored_size = size, .raw_size = size, .checksum = checksum};
  view.codec = Codec::kRaw;
  view.delta = false;
  view.rows = view.rows_per_block = piece.count;
  view.blocks = {&block, 1};
  WritePiece(view, {&bytes, 1}, piece.chunk, writer);
}

void PieceBuilder::WriteGathered(const Piece& piece, WireWriter* writer) const {
  std::vector<RawRowRun> runs;
  runs.reserve(piece.gathered.size());
  for (const uint32_t index : piece.gathered) {
    const Use& use = uses_[index];
    runs.push_back({.chunk = use.chunk,
                    .column = use.column,
                    .offset = use.offset,
                    .length = use.length,
                    .bytes = RawBytes(ViewOf(use), use.chunk, use.column, use.offset, use.length)});
  }
  WriteRuns(ViewOf(uses_[piece.gathered[0]]), runs, writer);
}

uint64_t PieceBuilder::MaxBytes() const {
  // The tags, lengths and numbers of each, at their longest.
  constexpr uint64_t kSample = 128, kColumn = 16, kSlice = 48, kPiece = 96, kDimension = 6, kBlock = 32;
  uint64_t bytes = samples_.size() * kSample + uses_.size() * kSlice;
  for (const Sample& sample : samples_) bytes += sample.trajectory.num_columns() * kColumn;
  for (const Piece& piece : pieces_) {
    const ColumnView view = ViewOf(uses_[piece.first_use]);
    bytes += kPiece + view.row_shape.size() * kDimension;
    if (piece.kind == Piece::Kind::kBlocks) {
      bytes += piece.count * kBlock;
      for (const BlockInfo& block : view.blocks.subspan(piece.first, piece.count)) bytes += block.stored_size;
    } else {
      const uint64_t rows = piece.kind == Piece::Kind::kRows ? piece.count : piece.rows;
      bytes += rows * view.row_bytes() + std::max<size_t>(piece.gathered.size(), 1) * kBlock;
    }
  }
  return bytes;
}

}  // namespace reverb::internal
