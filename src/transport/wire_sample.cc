// Sample streams, and what looking at items shares with them.
//
// How pieces are chosen. Every slice of every sample is a Use of rows of one column of a chunk.
//   1. Uses are sorted by chunk, column and row, so that what lies together is found together.
//   2. A use of strings or of compressed blocks travels as blocks: runs of neighbouring blocks that are
//      touched become one piece each.
//   3. A use of raw rows is gathered: the rows of the same column position of consecutive samples become
//      one piece, in the order of the samples. But if the uses of a position overlap so much that runs of
//      distinct rows would be shorter by a third, such runs become the pieces (frames that overlap).
//   4. Pieces are numbered by their first use.
// Samples that all have the same columns of raw rows take a shorter way (wire_shared_columns.h) if the client knows it.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "tensor/checksum.h"
#include "transport/wire.h"
#include "transport/wire_internal.h"
#include "transport/wire_seal.h"
#include "transport/wire_shared_columns.h"

namespace reverb::internal {
namespace {

constexpr std::string_view kRequest = "SampleRequest";
constexpr std::string_view kResponse = "SampleResponse";
// Of a SampleResponse that is a part of one, beside kPartField.
constexpr uint32_t kResponseBytesField = 6;

void WriteSampleInfo(const Sample& sample, WireWriter* writer) {
  const auto info = writer->Begin(1);
  writer->Fixed64(1, sample.key);
  writer->Double(2, sample.priority);
  writer->Double(3, sample.probability);
  writer->Count(4, sample.table_size);
  writer->Count(5, sample.times_sampled);
  writer->Bool(6, sample.rate_limited);
  writer->Sint(7, sample.inserted_at);
  writer->End(info);
}

struct Use {
  Chunk* chunk;
  uint32_t column;  // of the chunk
  uint32_t offset;
  uint32_t length;
  uint32_t position;  // the column of the trajectory
  bool raw;           // fixed-size rows in blocks that are not compressed
  // Where it is in the reply.
  uint32_t piece;
  uint32_t piece_offset;
};

ColumnView ViewOf(const Use& use) { return use.chunk->header().column(use.column); }

struct Piece {
  enum class Kind : uint8_t { kBlocks, kRows, kGathered };
  Kind kind;
  uint32_t first_use;  // the lowest index of a use
  Chunk* chunk = nullptr;
  uint32_t column = 0;
  uint32_t first = 0;  // of blocks or rows; not for gathered ones
  uint32_t count = 0;
  uint64_t rows = 0;
  std::vector<uint32_t> gathered;  // uses
};

// The stored bytes of raw rows: they lie together also across blocks.
std::span<const uint8_t> RawBytes(const ColumnView& view, Chunk* chunk, uint32_t column, uint32_t offset,
                                  uint32_t rows) {
  const BlockRange range = TouchedBlocks(view, offset, rows);
  const uint64_t row_bytes = view.row_bytes();
  const uint64_t skipped = (offset - uint64_t{range.first} * view.rows_per_block) * row_bytes;
  return chunk->column_payload(column).subspan(range.payload_offset + skipped, rows * row_bytes);
}

class PieceBuilder {
 public:
  explicit PieceBuilder(const std::vector<Sample>& samples) : samples_(samples) {
    CollectUses();
    SortUses();
    ChooseBlocks();
    ChooseRows();
    Gather();
    NumberPieces();
  }

  // As field `field` of the reply.
  void WriteSamples(uint32_t field, WireWriter* writer) const;
  void WritePieces(WireWriter* writer) const {
    for (const uint32_t piece : order_) WritePiece(pieces_[piece], writer);
  }
  // An upper bound on the bytes that both write.
  uint64_t MaxBytes() const;

 private:
  void CollectUses();
  void SortUses();
  void ChooseBlocks();
  void ChooseRows();
  void Gather();
  void NumberPieces();
  void WritePiece(const Piece& piece, WireWriter* writer) const;
  void WriteGathered(const Piece& piece, WireWriter* writer) const;
  static void WritePiece(const ColumnView& view, std::span<const std::span<const uint8_t>> parts,
                         Chunk* chunk, WireWriter* writer);

  // Calls visit(first, last) for each run of sorted_ of the same chunk and column.
  template <typename F>
  void ForEachGroup(const F& visit) {
    for (size_t first = 0; first < sorted_.size();) {
      const Use& use = uses_[sorted_[first]];
      size_t last = first + 1;
      while (last < sorted_.size() && uses_[sorted_[last]].chunk == use.chunk &&
             uses_[sorted_[last]].column == use.column) {
        ++last;
      }
      visit(std::span<const uint32_t>(sorted_).subspan(first, last - first));
      first = last;
    }
  }
  // Makes a piece of each run of units (blocks or rows) that the uses of `group` cover for which
  // `is_meant` holds; interval(use) gives first and end in units. Runs that only touch become one.
  template <typename IsMeant, typename Interval>
  void CoverByRuns(std::span<const uint32_t> group, Piece::Kind kind, uint32_t rows_per_unit,
                   const IsMeant& is_meant, const Interval& interval);

  bool IsShared(const Use& use) const { return shared_positions_[use.position]; }

  const std::vector<Sample>& samples_;
  std::vector<Use> uses_;         // by sample, column, slice
  std::vector<uint32_t> sorted_;  // indices of uses_ by chunk, column, offset
  std::vector<bool> shared_positions_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> order_;    // pieces_ as they are sent
  std::vector<uint32_t> numbers_;  // of pieces_, as they are sent
};

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
          for (const BlockInfo& block : view.blocks.subspan(range.first, range.count)) {
            use.raw &= block.stored_size == block.raw_size;
          }
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
  // By position: bytes of its raw uses, and what they would be if shared rows were counted once.
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

// A piece whose bytes lie in `chunk`.
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
  const BlockInfo block{.stored_size = size, .raw_size = size, .checksum = ChecksumOf(run)};
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
  // Tags, lengths and numbers of each, all at their longest.
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

// --- Decoding ---

// `keeper`: keeps the bytes of the message alive, if anything does.
Status ParsePiece(WireReader reader, uint64_t number, const WireLimits& limits, const Buffer& keeper,
                  ChunkRef* piece) {
  ChunkHeader header;
  header.columns.resize(1);
  WireReader payload;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        REVERB_RETURN_IF_ERROR(ParseColumnHeader(reader.ReadMessage(), &header.columns[0]));
        break;
      case 2:
        reader.Read(&header.rows);
        break;
      case 15:
        payload = reader.ReadMessage();
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status("Piece"));
  if (payload.remaining() > limits.max_chunk_bytes) {
    return Status::ResourceExhausted(Number(payload.remaining()) + " bytes, at most " +
                                     Number(limits.max_chunk_bytes) + " are accepted");
  }
  if (PayloadSize(header) != payload.remaining()) {
    return Status::DataLoss("its header describes " + Number(PayloadSize(header)) +
                            " payload bytes, but there are " + Number(payload.remaining()))
        .WithDetail(Detail::kCorruptData);
  }
  header.last_step = int64_t{header.rows} - 1;
  const ColumnHeader& column = header.columns[0];
  if (keeper.has_owner() && payload.remaining() >= kLeaveBytes && column.codec == Codec::kRaw &&
      column.dtype != DType::kString) {
    auto scattered = std::make_unique<const ScatteredBytes>(keeper, payload.RestInParts());
    const ScatteredBytes* const bytes = scattered.get();
    REVERB_ASSIGN_OR_RETURN(*piece, Chunk::Scattered(number, header, std::move(scattered), limits.chunk));
    return VerifyChecksums((*piece)->header().column(0), *bytes);
  }
  uint8_t* room = nullptr;
  REVERB_ASSIGN_OR_RETURN(*piece, Chunk::Uninitialized(number, header, &room, limits.chunk));
  payload.CopyRest(room);
  return VerifyChecksums((*piece)->header().column(0), (*piece)->payload());
}

Status ParseSampleInfo(WireReader reader, Sample* sample) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.ReadFixed(&sample->key);
        break;
      case 2:
        reader.Read(&sample->priority);
        break;
      case 3:
        reader.Read(&sample->probability);
        break;
      case 4:
        reader.ReadCount(&sample->table_size);
        break;
      case 5:
        reader.ReadCount(&sample->times_sampled);
        break;
      case 6:
        reader.Read(&sample->rate_limited);
        break;
      case 7:
        reader.ReadSint(&sample->inserted_at);
        break;
    }
  }
  return reader.status("SampleInfo");
}

// `*columns` gets those that the sample has of its own.
Status ParseSample(WireReader reader, const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                   const WireLimits& limits, Sample* sample, std::vector<ColumnSpec>* columns) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        REVERB_RETURN_IF_ERROR(ParseSampleInfo(reader.ReadMessage(), sample));
        break;
      case 2:
        REVERB_RETURN_IF_ERROR(ParseNextColumn(&reader, "Sample", resolve, slices_left, limits, columns));
        break;
    }
  }
  return reader.status("Sample");
}

// Samples and pieces as they are met in a message; together they become samples.
class SampleParser {
 public:
  SampleParser(std::string_view message, const WireLimits& limits, Buffer keeper = {})
      : message_(message), limits_(limits), keeper_(std::move(keeper)) {}

  Status AddSample(WireReader reader) {
    if (samples_.size() >= limits_.max_items) return TooMany(message_, "samples", limits_.max_items);
    samples_.push_back(reader);
    return Status::Ok();
  }
  // The Column that is next in the message: one of all samples that have none of their own.
  Status AddEvenColumn(WireReader* message) {
    const WireReader reader = message->ReadMessage();
    if (even_.size() >= limits_.max_columns) return TooMany(message_, "columns", limits_.max_columns);
    even_.push_back(reader);
    return Status::Ok();
  }
  bool has_even_columns() const { return !even_.empty(); }
  // The Piece that is next in the message.
  Status AddPiece(WireReader* message) {
    const WireReader reader = message->ReadMessage();
    if (!message->ok()) return Status::Ok();  // told by the message itself
    // Every slice may need a piece of its own.
    if (pieces_.size() >= limits_.max_slices) return TooMany(message_, "pieces", limits_.max_slices);
    const size_t number = pieces_.size();
    const Status status = ParsePiece(reader, number, limits_, keeper_, &pieces_.emplace_back());
    return status.ok() ? status : At("piece " + Number(number), status);
  }

  Status Finish(std::vector<Sample>* samples) {
    const std::function<Chunk*(uint64_t)> resolve = [&](uint64_t number) {
      return number < pieces_.size() ? pieces_[number].get() : nullptr;
    };
    size_t slices_left = limits_.max_slices;
    Trajectory even;
    REVERB_RETURN_IF_ERROR(ParseEvenColumns(resolve, &slices_left, &even));
    samples->resize(samples_.size());
    std::vector<ColumnSpec> columns;
    for (size_t i = 0; i < samples_.size(); ++i) {
      Sample& sample = (*samples)[i];
      columns.clear();
      const Status status = ParseSample(samples_[i], resolve, &slices_left, limits_, &sample, &columns);
      if (!status.ok()) return At("sample " + Number(i), status);
      if (columns.empty() && !even.empty()) {
        sample.trajectory = even.InSeries(static_cast<uint32_t>(i));
        continue;
      }
      Result<Trajectory> trajectory = Trajectory::Create(columns);
      if (!trajectory.ok()) return At("sample " + Number(i), trajectory.status());
      sample.trajectory = *std::move(trajectory);
    }
    return Status::Ok();
  }

 private:
  Status ParseEvenColumns(const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                          Trajectory* first) const {
    if (even_.empty()) return Status::Ok();
    // Said once, they are the columns of every sample, and count as such.
    if (even_.size() * samples_.size() > *slices_left) {
      return Status::ResourceExhausted(std::string(message_) + ": " + Number(samples_.size()) +
                                       " samples of " + Number(even_.size()) + " columns: more than the " +
                                       Number(limits_.max_slices) + " slices that are accepted in a message");
    }
    std::vector<ColumnSpec> columns(even_.size());
    for (size_t c = 0; c < even_.size(); ++c) {
      const Status status = ParseColumn(even_[c], resolve, slices_left, &columns[c]);
      if (!status.ok()) return At("even column " + Number(c), status);
    }
    *slices_left -= std::min(*slices_left, even_.size() * samples_.size());
    Result<Trajectory> series = Trajectory::CreateSeries(columns, static_cast<uint32_t>(samples_.size()));
    if (!series.ok()) return At("even columns", series.status());
    *first = *std::move(series);
    return Status::Ok();
  }

  const std::string_view message_;
  const WireLimits& limits_;
  const Buffer keeper_;
  std::vector<WireReader> samples_;
  std::vector<WireReader> even_;
  std::vector<ChunkRef> pieces_;
};

}  // namespace

WireMessage EncodeSampleRequest(const SampleStreamMessage& message) {
  WireWriter writer;
  if (message.hello) {
    const auto nested = writer.Begin(1);
    WriteHello(*message.hello, &writer);
    writer.End(nested);
  }
  const SampleRequest& request = message.request;
  writer.Uint(2, request.request_id);
  writer.Bytes(3, request.table);
  writer.Count(4, request.count);
  if (request.timeout) {
    writer.AlwaysUint(5, static_cast<uint64_t>(std::max<int64_t>(request.timeout->count(), 0)));
  }
  writer.Uint(7, request.taken_bytes);
  writer.Bool(9, request.even_columns);
  return writer.Finish();
}

Result<SampleStreamMessage> DecodeSampleRequest(ByteSlices slices, const WireLimits& limits) {
  WireReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kRequest, limits));
  SampleStreamMessage message;
  SampleRequest& request = message.request;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        REVERB_RETURN_IF_ERROR(ParseHello(reader.ReadMessage(), limits, &message.hello.emplace()));
        break;
      case 2:
        reader.Read(&request.request_id);
        break;
      case 3:
        reader.Read(&request.table, limits.max_name_bytes);
        break;
      case 4:
        reader.ReadCount(&request.count);
        break;
      case 5: {
        // Longer than there are nanoseconds (292 years) is for ever, near enough.
        uint64_t nanos = 0;
        reader.Read(&nanos);
        request.timeout = Duration(static_cast<int64_t>(
            std::min(nanos, static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))));
        break;
      }
      case 7:
        reader.Read(&request.taken_bytes);
        break;
      case 9:
        reader.Read(&request.even_columns);
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kRequest));
  return message;
}

WireMessage EncodeSampleReply(const SampleReply& reply) {
  WireWriter writer(128 * reply.samples.size() + 128);
  if (reply.welcome) {
    const auto nested = writer.Begin(1);
    WriteWelcome(*reply.welcome, &writer);
    writer.End(nested);
  }
  writer.Uint(2, reply.request_id);
  const auto write_end = [&] {
    if (!reply.end) return;
    const auto nested = writer.Begin(4);
    WriteStatus(*reply.end, &writer);
    writer.End(nested);
  };
  if (reply.even_columns) {
    if (const std::optional<EvenSamples> even = EvenSamples::Find(reply.samples)) {
      for (const Sample& sample : reply.samples) {
        const auto nested = writer.Begin(3);
        WriteSampleInfo(sample, &writer);
        writer.End(nested);
      }
      write_end();
      even->WriteColumns(5, &writer);
      even->WritePieces(&writer);
      return writer.Finish();
    }
  }
  const PieceBuilder pieces(reply.samples);
  pieces.WriteSamples(3, &writer);
  write_end();
  pieces.WritePieces(&writer);
  return writer.Finish();
}

Result<SampleReply> DecodeSampleReply(ByteSlices slices, const WireLimits& limits, const Buffer& keeper) {
  WireReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kResponse, limits));
  SampleReply reply;
  SampleParser parser(kResponse, limits, keeper);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        REVERB_RETURN_IF_ERROR(ParseWelcome(reader.ReadMessage(), limits, &reply.welcome.emplace()));
        break;
      case 2:
        reader.Read(&reply.request_id);
        break;
      case 3:
        REVERB_RETURN_IF_ERROR(parser.AddSample(reader.ReadMessage()));
        break;
      case 4:
        REVERB_RETURN_IF_ERROR(ParseStatus(reader.ReadMessage(), limits, &reply.end.emplace()));
        break;
      case 5:
        REVERB_RETURN_IF_ERROR(parser.AddEvenColumn(&reader));
        break;
      case kResponseBytesField:
      case kPartField:
        return Status::InvalidArgument("message SampleResponse: a part of a response has no other fields");
      case 15:
        REVERB_RETURN_IF_ERROR(parser.AddPiece(&reader));
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kResponse));
  reply.even_columns = parser.has_even_columns();
  REVERB_RETURN_IF_ERROR(parser.Finish(&reply.samples));
  return reply;
}

// --- Responses in parts ---

std::vector<WireMessage> SplitIntoParts(WireMessage response) {
  response.Seal(0);
  std::vector<WireMessage> messages;
  uint64_t left = response.total_bytes();
  auto from = response.parts().begin();
  size_t offset = 0;  // in *from
  while (left > 0) {
    constexpr uint64_t kHeaderBytes = 64;
    uint64_t size = std::min(left, kMaxPartBytes - kHeaderBytes);
    left -= size;
    WireWriter writer;
    writer.Uint(kResponseBytesField, response.total_bytes());
    writer.BeginPayload(kPartField, size);
    while (size > 0) {
      const size_t taken = std::min<uint64_t>(size, from->size() - offset);
      writer.AppendShared(from->Slice(offset, taken));
      size -= taken;
      offset += taken;
      if (offset < from->size()) continue;
      ++from;
      offset = 0;
    }
    messages.push_back(writer.Finish());
  }
  return messages;
}

Result<std::optional<SampleReply>> SampleReplyDecoder::Decode(ByteSlices slices, const Buffer& keeper) {
  WireReader reader(slices);
  const bool is_part =
      reader.Next() && (reader.field() == kResponseBytesField || reader.field() == kPartField);
  if (!is_part) {
    if (is_in_parts()) {
      return Status::InvalidArgument(
          "message SampleResponse: comes before the last part of the response before it");
    }
    REVERB_ASSIGN_OR_RETURN(SampleReply reply, DecodeSampleReply(slices, limits_, keeper));
    return std::optional(std::move(reply));
  }
  uint64_t response_bytes = 0;
  WireReader part;
  do {
    switch (reader.field()) {
      case kResponseBytesField:
        reader.Read(&response_bytes);
        break;
      case kPartField:
        part = reader.ReadMessage();
        break;
    }
  } while (reader.Next());
  REVERB_RETURN_IF_ERROR(reader.status(kResponse));
  REVERB_ASSIGN_OR_RETURN(const bool is_complete, AddPart(response_bytes, part, keeper));
  if (!is_complete) return std::optional<SampleReply>();
  struct Keeper final : BufferOwner {
    explicit Keeper(std::vector<Buffer> kept) : buffers(std::move(kept)) {}
    const std::vector<Buffer> buffers;
  };
  std::vector<ByteSlice> parts = std::exchange(parts_, {});
  const Buffer all(new Keeper(std::exchange(keepers_, {})), nullptr, 0);
  received_bytes_ = 0;
  REVERB_RETURN_IF_ERROR(Unseal(0, &parts));
  REVERB_ASSIGN_OR_RETURN(SampleReply reply, DecodeSampleReply(parts, limits_, all));
  return std::optional(std::move(reply));
}

Result<bool> SampleReplyDecoder::AddPart(uint64_t response_bytes, WireReader part, const Buffer& keeper) {
  const auto wrong = [&](const std::string& text) {
    return Status::InvalidArgument("message SampleResponse: a part of " + Number(part.remaining()) +
                                   " bytes of a response of " + Number(response_bytes) + ": " + text);
  };
  if (response_bytes > limits_.max_message_bytes) {
    return Status::ResourceExhausted("a response has " + Number(response_bytes) + " bytes, at most " +
                                     Number(limits_.max_message_bytes) +
                                     " are accepted; raise the client's max_response_bytes");
  }
  if (is_in_parts() && response_bytes != response_bytes_) {
    return wrong("the part before it is of one of " + Number(response_bytes_));
  }
  response_bytes_ = response_bytes;
  const uint64_t left = response_bytes_ - received_bytes_;
  if (part.remaining() > left) return wrong("only " + Number(left) + " bytes are missing");
  if (part.remaining() == 0 || (part.remaining() < left && part.remaining() < kMinPartBytes)) {
    return wrong("all parts but the last have at least " + Number(kMinPartBytes) + " bytes");
  }
  received_bytes_ += part.remaining();
  for (const ByteSlice& slice : part.RestInParts()) parts_.push_back(slice);
  keepers_.push_back(keeper);
  return received_bytes_ == response_bytes_;
}

// --- Sizes ---

uint64_t MaxSampleBytes(const Trajectory& trajectory) {
  std::vector<Sample> samples(1);
  samples[0].trajectory = trajectory;
  return PieceBuilder(samples).MaxBytes();
}

Status CheckItemSize(const Trajectory& trajectory, uint64_t max_bytes, const WireLimits& limits) {
  const size_t columns = trajectory.num_columns();
  size_t slices = 0;
  // Mostly far below: the headers and payloads of whole chunks, with room for what is added to them.
  uint64_t bytes = 128;
  for (uint32_t c = 0; c < columns; ++c) {
    const uint32_t of_column = trajectory.num_slices(c);
    slices += of_column;
    for (uint32_t s = 0; s < of_column; ++s) {
      bytes += 256 + 2 * static_cast<uint64_t>(trajectory.slice(c, s).chunk->bytes());
    }
  }
  if (columns > limits.max_columns) {
    return Status::ResourceExhausted("has " + Number(columns) + " columns, at most " +
                                     Number(limits.max_columns) + " are accepted");
  }
  if (slices > limits.max_slices) {
    return Status::ResourceExhausted("refers to " + Number(slices) + " runs of rows in chunks, at most " +
                                     Number(limits.max_slices) +
                                     " are accepted; make it of fewer rows, or write longer chunks");
  }
  if (bytes <= max_bytes) [[likely]] {
    return Status::Ok();
  }
  bytes = MaxSampleBytes(trajectory);
  if (bytes <= max_bytes) return Status::Ok();
  return Status::ResourceExhausted("takes about " + Number(bytes) + " bytes when it is sampled, at most " +
                                   Number(max_bytes) +
                                   " are accepted; make it of fewer rows, or raise max_item_bytes in the "
                                   "server's limits and max_response_bytes of its clients");
}

WireMessage EncodeInspectReply(const InspectReply& reply) {
  WireWriter writer(128 * reply.items.size() + 64);
  writer.Uint(1, reply.next_cursor);
  const PieceBuilder pieces(reply.items);
  pieces.WriteSamples(2, &writer);
  pieces.WritePieces(&writer);
  return writer.Finish();
}

Result<InspectReply> DecodeInspectReply(ByteSlices slices, const WireLimits& limits) {
  constexpr std::string_view kName = "InspectResponse";
  WireReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kName, limits));
  InspectReply reply;
  SampleParser parser(kName, limits);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&reply.next_cursor);
        break;
      case 2:
        REVERB_RETURN_IF_ERROR(parser.AddSample(reader.ReadMessage()));
        break;
      case 15:
        REVERB_RETURN_IF_ERROR(parser.AddPiece(&reader));
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kName));
  REVERB_RETURN_IF_ERROR(parser.Finish(&reply.items));
  return reply;
}

}  // namespace reverb::internal
