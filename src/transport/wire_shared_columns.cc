#include "transport/wire_shared_columns.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tensor/checksum.h"
#include "transport/wire_internal.h"
#include "transport/wire_seal.h"

namespace reverb::internal {

uint64_t ChecksumOf(const RawRowRun& run) {
  const ColumnView view = run.chunk->header().column(run.column);
  const uint32_t block = run.offset / view.rows_per_block;
  const bool is_block = run.offset % view.rows_per_block == 0 && run.length == view.rows_in_block(block);
  return is_block ? view.blocks[block].checksum : Checksum(run.bytes);
}

WireWriter::Nested BeginPiece(const ColumnView& view, uint64_t size, WireWriter* writer, bool by_reference) {
  const auto nested = writer->Begin(15, 40 + 18 * view.blocks.size() + size);
  const auto header = writer->Begin(1);
  WriteColumnHeader(view, writer);
  writer->End(header);
  writer->Uint(2, view.rows);
  if (size > 0) writer->BeginRows(kDataField, size, by_reference);
  return nested;
}

namespace {

// How WriteRuns() sends the runs.
enum class RunsForm : uint8_t {
  kCopied,     // together, as one block: a checksum covers contiguous bytes
  kBlocks,     // by reference, a block for each
  kReference,  // by reference, as one block without a checksum
};

// From this number of runs on, short ones are sent by reference too if the receiver can read them. To copy a short
// row, the sender would have to fetch it into its cache.
constexpr size_t kManyRuns = 16;

RunsForm FormOf(std::span<const RawRowRun> runs, uint64_t size, const WireWriter& writer) {
  const RawRowRun& first = runs[0];
  if (!writer.encoding().row_checksums) {
    const bool by_reference =
        (size >= kShareBytes && (first.bytes.size() >= kShareBytes || writer.IsShared(first.bytes))) ||
        (runs.size() >= kManyRuns && !first.bytes.empty() && writer.IsReadable(first.bytes));
    return by_reference ? RunsForm::kReference : RunsForm::kCopied;
  }
  // Long runs of one length become one block each.
  if (first.bytes.size() < kShareBytes) return RunsForm::kCopied;
  for (size_t i = 0; i < runs.size(); ++i) {
    const bool is_last = i + 1 == runs.size();
    if (runs[i].length != first.length && !(is_last && runs[i].length < first.length)) {
      return RunsForm::kCopied;
    }
  }
  return RunsForm::kBlocks;
}

}  // namespace

void WriteRuns(const ColumnView& like, std::span<const RawRowRun> runs, WireWriter* writer) {
  uint64_t rows = 0;
  for (const RawRowRun& run : runs) rows += run.length;
  const uint64_t size = rows * like.row_bytes();
  const RunsForm form = FormOf(runs, size, *writer);
  ColumnView view = like;
  view.codec = Codec::kRaw;
  view.delta = false;
  view.rows = static_cast<uint32_t>(rows);
  view.rows_per_block = form == RunsForm::kBlocks ? runs[0].length : view.rows;

  std::vector<BlockInfo> blocks;
  const auto add_block = [&](uint64_t bytes, uint64_t checksum) {
    const auto bytes_of_block = static_cast<uint32_t>(bytes);
    blocks.push_back({.stored_size = bytes_of_block, .raw_size = bytes_of_block, .checksum = checksum});
  };
  Buffer together;
  switch (form) {
    case RunsForm::kBlocks:
      blocks.reserve(runs.size());
      for (const RawRowRun& run : runs) add_block(run.bytes.size(), ChecksumOf(run));
      break;
    case RunsForm::kReference:
      add_block(size, 0);
      break;
    case RunsForm::kCopied: {
      uint8_t* out = nullptr;
      together = Buffer::Allocate(size, &out);
      for (const RawRowRun& run : runs) {
        if (run.bytes.empty()) continue;
        std::memcpy(out, run.bytes.data(), run.bytes.size());
        out += run.bytes.size();
      }
      add_block(size, writer->encoding().row_checksums ? Checksum(together.span()) : 0);
      break;
    }
  }
  view.blocks = blocks;

  const auto nested = BeginPiece(view, size, writer, form != RunsForm::kCopied);
  if (form != RunsForm::kCopied) {
    writer->ReserveShared(runs.size());
    for (const RawRowRun& run : runs) writer->AppendOf(run.chunk, run.bytes);
  } else if (size > 0) {
    writer->AppendShared(std::move(together));
  }
  writer->End(nested);
}

// Returns a lower bound on the bytes of distinct rows: slices of one row are compared by row; longer slices
// of the same column of a chunk are all taken to overlap, since few samples usually refer to the same chunk.
class SharedColumns::Distinct {
 public:
  Distinct(size_t expected, bool single_rows)
      : single_rows_(single_rows), entries_(std::bit_ceil(2 * expected + 16)) {}

  void Add(const RawRowRun& run, uint64_t row_bytes) {
    all_ += run.length * row_bytes;
    // Two rows with the same fingerprint at most cause the slower path.
    constexpr uint64_t kFactor = 0x9e37'79b9'7f4a'7c15;
    uint64_t mark = (reinterpret_cast<uintptr_t>(run.chunk) + run.column) * kFactor;
    mark ^= mark >> 32;
    if (single_rows_) mark += run.offset;
    mark = (mark + 1) * kFactor;
    mark ^= mark >> 29;
    mark += mark == 0;
    const size_t mask = entries_.size() - 1;
    size_t at = mark & mask;
    while (entries_[at].mark != mark) {
      if (entries_[at].mark == 0) {
        if (2 * ++used_ > entries_.size()) return;  // many slices per column: ignores the rest
        entries_[at].mark = mark;
        break;
      }
      at = (at + 1) & mask;
    }
    if (run.length > entries_[at].rows) {
      distinct_ += (run.length - entries_[at].rows) * row_bytes;
      entries_[at].rows = run.length;
    }
  }
  bool overlap_much() const {
    return static_cast<double>(all_) > kOverlapFactor * static_cast<double>(distinct_);
  }

 private:
  struct Entry {
    uint64_t mark = 0;
    uint32_t rows = 0;
  };
  const bool single_rows_;
  std::vector<Entry> entries_;
  size_t used_ = 0;
  uint64_t all_ = 0;
  uint64_t distinct_ = 0;
};

std::optional<SharedColumns> SharedColumns::Find(std::span<const Sample> samples, const WireWriter& writer) {
  if (samples.size() < 2) return std::nullopt;
  SharedColumns shared;
  const Trajectory& first = samples[0].trajectory;
  shared.row_layout_ = first.row_layout();
  shared.columns_.resize(first.num_columns());
  size_t slices = 0;
  bool single_rows = true;
  for (uint32_t c = 0; c < first.num_columns(); ++c) {
    Column& column = shared.columns_[c];
    column.like = first.column_view(c);
    column.squeeze = first.squeeze(c);
    column.row_bytes = column.like.row_bytes();
    const auto length = static_cast<uint64_t>(first.length(c));
    const uint64_t rows = length * samples.size();
    if (column.like.dtype == DType::kString || column.like.codec != Codec::kRaw || rows > kMaxGatherRows ||
        rows * column.row_bytes > kMaxGatherBytes) {
      return std::nullopt;
    }
    column.length = static_cast<uint32_t>(length);
    single_rows &= length == 1;
    slices += samples.size() * first.num_slices(c);
  }
  const bool by_reference = !writer.encoding().row_checksums && slices > 0 && first.num_slices(0) > 0 &&
                            slices >= kManyRuns * first.num_columns() &&
                            writer.IsReadable(first.slice(0, 0).chunk->payload());
  if (by_reference && shared.row_layout_ != 0 && writer.encoding().borrows_chunks) {
    const auto has_layout = [&](const Sample& sample) {
      return sample.trajectory.row_layout() == shared.row_layout_;
    };
    const auto is_readable = [&](const uint8_t* row) { return writer.IsReadable({row, 1}); };
    if (std::ranges::all_of(first.rows(), is_readable) && std::ranges::all_of(samples, has_layout)) {
      shared.samples_ = samples;
      return shared;
    }
  }
  for (uint32_t c = 0; c < first.num_columns(); ++c) {
    shared.columns_[c].runs.reserve(samples.size() * first.num_slices(c));
  }
  std::optional<Distinct> distinct;
  if (!by_reference) distinct.emplace(slices, single_rows);
  for (const Sample& sample : samples) {
    if (!shared.Add(sample, distinct ? &*distinct : nullptr)) return std::nullopt;
  }
  if (distinct && distinct->overlap_much()) return std::nullopt;
  return shared;
}

bool SharedColumns::Add(const Sample& sample, Distinct* distinct) {
  const Trajectory& trajectory = sample.trajectory;
  if (row_layout_ != 0 && trajectory.row_layout() == row_layout_) {
    AddRows(trajectory, distinct);
    return true;
  }
  if (trajectory.num_columns() != columns_.size()) return false;
  for (uint32_t c = 0; c < columns_.size(); ++c) {
    Column& column = columns_[c];
    if (trajectory.squeeze(c) != column.squeeze) return false;
    uint64_t length = 0;
    const uint32_t num_slices = trajectory.num_slices(c);
    for (uint32_t s = 0; s < num_slices; ++s) {
      const SliceView slice = trajectory.slice(c, s);
      const PackedChunkHeader header = slice.chunk->header();
      if (!header.IsRaw(slice.chunk_column, column.like.dtype, column.like.row_shape)) return false;
      length += slice.length;
      // Raw blocks are contiguous, and so are their rows.
      const RawRowRun run{
          .chunk = slice.chunk,
          .column = slice.chunk_column,
          .offset = slice.offset,
          .length = slice.length,
          .bytes = slice.chunk->payload().subspan(
              header.column_payload_offset(slice.chunk_column) + slice.offset * column.row_bytes,
              slice.length * column.row_bytes)};
      if (distinct != nullptr) distinct->Add(run, column.row_bytes);
      column.runs.push_back(run);
    }
    if (length != column.length) return false;
  }
  return true;
}

void SharedColumns::AddRows(const Trajectory& trajectory, Distinct* distinct) {
  const std::span<const uint8_t* const> rows = trajectory.rows();
  trajectory.ForEachSingleSlice([&](uint32_t c, const SliceView& slice, bool /*squeeze*/) {
    Column& column = columns_[c];
    const RawRowRun run{.chunk = slice.chunk,
                        .column = slice.chunk_column,
                        .offset = slice.offset,
                        .length = slice.length,
                        .bytes = {rows[c], slice.length * column.row_bytes}};
    if (distinct != nullptr) distinct->Add(run, column.row_bytes);
    column.runs.push_back(run);
    return true;
  });
}

void SharedColumns::WritePieces(WireWriter* writer) const {
  if (!samples_.empty()) {
    writer->ReserveShared(samples_.size() * columns_.size());
    for (uint32_t c = 0; c < columns_.size(); ++c) WriteRows(c, writer);
    return;
  }
  size_t runs = 0;
  for (const Column& column : columns_) runs += column.runs.size();
  writer->ReserveShared(runs);
  for (const Column& column : columns_) WriteRuns(column.like, column.runs, writer);
}

void SharedColumns::WriteRows(uint32_t column, WireWriter* writer) const {
  const Column& written = columns_[column];
  const uint64_t bytes = written.length * written.row_bytes;  // of a sample
  const uint64_t size = bytes * samples_.size();
  // One block without a checksum, as for RunsForm::kReference.
  const BlockInfo block{
      .stored_size = static_cast<uint32_t>(size), .raw_size = static_cast<uint32_t>(size), .checksum = 0};
  ColumnView view = written.like;
  view.delta = false;
  view.rows = static_cast<uint32_t>(written.length * samples_.size());
  view.rows_per_block = view.rows;
  view.blocks = {&block, 1};
  const auto nested = BeginPiece(view, size, writer, /*by_reference=*/true);
  for (const Sample& sample : samples_) {
    writer->AppendOf(nullptr, {sample.trajectory.rows()[column], bytes});
  }
  writer->End(nested);
}

void SharedColumns::WriteColumns(uint32_t field, WireWriter* writer) const {
  for (uint32_t c = 0; c < columns_.size(); ++c) {
    const auto nested = writer->Begin(field);
    WriteSlice({.chunk_id = c, .chunk_column = 0, .offset = 0, .length = columns_[c].length}, writer);
    writer->Bool(2, columns_[c].squeeze);
    writer->End(nested);
  }
}

}  // namespace reverb::internal
