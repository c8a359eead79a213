#include "client/batcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/prefetch.h"
#include "tensor/trajectory.h"

namespace reverb::internal {
namespace {

// How many samples ahead each level of prefetch.h is prefetched.
constexpr size_t kFetchSlices = 24;
constexpr size_t kFetchHeaders = 16;
constexpr size_t kFetchRows = 8;  // a power of two

std::string Describe(DType dtype, std::span<const uint32_t> row_shape, int64_t length, bool squeeze) {
  std::string text = std::string(DTypeName(dtype)) + "[";
  if (!squeeze) text += std::to_string(length);
  for (size_t i = 0; i < row_shape.size(); ++i) {
    text += (i > 0 || !squeeze ? ", " : "") + std::to_string(row_shape[i]);
  }
  return text + "]";
}

bool Fits(const ColumnView& view, const ColumnLayout& layout) {
  return view.dtype == layout.dtype && view.row_shape.size() == layout.row_shape.size() &&
         std::equal(view.row_shape.begin(), view.row_shape.end(), layout.row_shape.begin());
}

// Returns "column 'reward'", or "column 3" if its name is not known.
std::string NameOf(const ColumnNamer& names, uint32_t column, uint32_t num_columns) {
  const std::vector<std::string> known = names ? names() : std::vector<std::string>();
  if (known.size() != num_columns || known[column].empty()) return "column " + std::to_string(column);
  return "column '" + known[column] + "'";
}

std::string Describe(const Trajectory& item) {
  std::string text = "[";
  for (uint32_t c = 0; c < item.num_columns(); ++c) {
    const ColumnView view = item.column_view(c);
    text += (c > 0 ? ", " : "") + Describe(view.dtype, view.row_shape, item.length(c), item.squeeze(c));
  }
  return text + "]";
}

Status Mismatch(const Sample& sample, size_t index, uint32_t column, const ColumnLayout& layout,
                const ColumnNamer& names) {
  const ColumnView view = sample.trajectory.column_view(column);
  const bool only_length_differs = Fits(view, layout) && sample.trajectory.squeeze(column) == layout.squeeze;
  return Status::InvalidArgument(
      "sample " + std::to_string(index) + " (key " + std::to_string(sample.key) + "), " +
      NameOf(names, column, sample.trajectory.num_columns()) + ": it is " +
      Describe(view.dtype, view.row_shape, sample.trajectory.length(column),
               sample.trajectory.squeeze(column)) +
      " while the batch has " + Describe(layout.dtype, layout.row_shape, layout.length, layout.squeeze) +
      (only_length_differs ? "; set `pad` to fill up shorter items of a batch with zeros"
                           : "; samples of one batch must have the same layout"));
}

// Decodes one column of one sample.
Status GatherColumn(const Sample& sample, size_t index, uint32_t column, const ColumnLayout& layout,
                    const ColumnTarget& target, const ColumnNamer& names) {
  const Trajectory& trajectory = sample.trajectory;
  const SliceView first = trajectory.slice(column, 0);
  const PackedChunkHeader header = first.chunk->header();
  const ColumnView view = header.column(first.chunk_column);
  if (!Fits(view, layout) || trajectory.squeeze(column) != layout.squeeze) {
    return Mismatch(sample, index, column, layout, names);
  }
  const bool is_one = trajectory.num_slices(column) == 1;
  const int64_t length = is_one ? first.length : trajectory.length(column);
  if (length != layout.length) [[unlikely]] {
    if (target.lengths == nullptr || length > layout.length) {
      return Mismatch(sample, index, column, layout, names);
    }
  }
  if (target.lengths != nullptr) target.lengths[index] = length;
  if (target.strings != nullptr) {
    REVERB_RETURN_IF_ERROR(trajectory.ReadStrings(column, target.strings));
    target.strings->resize((index + 1) * layout.sample_elements);
    return Status::Ok();
  }
  const size_t row_bytes = layout.sample_bytes / static_cast<size_t>(layout.length);
  const size_t bytes = static_cast<size_t>(length) * row_bytes;
  uint8_t* const out = target.data + index * layout.sample_bytes;
  if (bytes < layout.sample_bytes) std::memset(out + bytes, 0, layout.sample_bytes - bytes);
  if (is_one && view.codec == Codec::kRaw) [[likely]] {
    return first.chunk->CopyPayload(
        out, header.column_payload_offset(first.chunk_column) + first.offset * row_bytes, bytes);
  }
  return trajectory.Read(column, {out, bytes});
}

// Returns how many samples, starting with the first, have consecutive rows in all columns, as received from a
// server that has arranged them for a batch.
size_t RunLength(std::span<const Sample> samples) {
  size_t count = 1;
  while (count < samples.size() && samples[count].trajectory.Follows(samples[count - 1].trajectory)) ++count;
  return count;
}

// Copies all columns of `count` samples from `first` on, whose rows are consecutive. Returns false, without
// writing, if a column is not a single raw slice with exactly this layout.
Result<bool> GatherRun(const Sample& sample, size_t first, size_t count, std::span<const ColumnLayout> layout,
                       std::span<const ColumnTarget> targets) {
  const Trajectory& trajectory = sample.trajectory;
  if (trajectory.num_columns() != layout.size()) return false;
  for (uint32_t c = 0; c < layout.size(); ++c) {
    const ColumnView view = trajectory.column_view(c);
    if (!Fits(view, layout[c]) || view.dtype == DType::kString || view.codec != Codec::kRaw ||
        trajectory.squeeze(c) != layout[c].squeeze || trajectory.num_slices(c) != 1 ||
        trajectory.slice(c, 0).length != layout[c].length) {
      return false;
    }
  }
  // Rows of a sample are mostly near each other in the memory of the server: all columns of some samples are copied before
  // the next ones, so that each page and each line is needed once.
  constexpr size_t kSamplesAtATime = 32;
  const bool is_scattered = trajectory.slice(0, 0).chunk->is_scattered();
  const size_t step = is_scattered ? kSamplesAtATime : count;
  for (size_t done = 0; done < count; done += step) {
    const size_t samples = std::min(step, count - done);
    for (uint32_t c = 0; c < layout.size(); ++c) {
      const SliceView slice = trajectory.slice(c, 0);
      const size_t bytes = layout[c].sample_bytes;
      const size_t row_bytes = bytes / static_cast<size_t>(layout[c].length);
      REVERB_RETURN_IF_ERROR(
          slice.chunk->CopyPayload(targets[c].data + (first + done) * bytes,
                                   slice.chunk->header().column_payload_offset(slice.chunk_column) +
                                       slice.offset * row_bytes + done * bytes,
                                   samples * bytes));
    }
  }
  for (uint32_t c = 0; c < layout.size(); ++c) {
    if (targets[c].lengths != nullptr) std::fill_n(targets[c].lengths + first, count, layout[c].length);
  }
  return true;
}

// Copies `bytes` bytes. The lengths of scalars are constants here, for which the compiler emits no call.
void CopyRow(uint8_t* out, const uint8_t* in, size_t bytes) {
  switch (bytes) {
    case 0:
      return;
    case 1:
      *out = *in;
      return;
    case 2:
      std::memcpy(out, in, 2);
      return;
    case 4:
      std::memcpy(out, in, 4);
      return;
    case 8:
      std::memcpy(out, in, 8);
      return;
    default:
      std::memcpy(out, in, bytes);
  }
}

// Prefetches all lines of a row.
inline void PrefetchRow(const uint8_t* row, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kCacheLine) PrefetchLineFar(row + i);
  PrefetchLineFar(row + bytes - 1);
}

// Gathers samples whose trajectories have the addresses of their rows, and the same layout.
class RowGatherer {
 public:
  RowGatherer(const Sample& first, std::span<const ColumnLayout> layout,
              std::span<const ColumnTarget> targets) {
    const Trajectory& trajectory = first.trajectory;
    if (trajectory.row_layout() == 0 || trajectory.num_columns() != layout.size()) return;
    for (uint32_t c = 0; c < layout.size(); ++c) {
      if (!Fits(trajectory.column_view(c), layout[c]) || trajectory.squeeze(c) != layout[c].squeeze ||
          trajectory.length(c) != layout[c].length) {
        return;
      }
      columns_.push_back({.bytes = layout[c].sample_bytes,
                          .fetched_bytes = std::min(kMaxFetchedBytes, layout[c].sample_bytes),
                          .out = targets[c].data,
                          .length = layout[c].length,
                          .lengths = targets[c].lengths});
    }
    row_layout_ = trajectory.row_layout();
  }

  // Returns the end of the samples from `first` on that Gather() can gather.
  size_t End(std::span<const Sample> samples, size_t first) const {
    if (row_layout_ == 0) return first;
    size_t end = first;
    while (end < samples.size() && samples[end].trajectory.row_layout() == row_layout_) ++end;
    return end;
  }

  // Gathers samples [first, end).
  void Gather(std::span<const Sample> samples, size_t first, size_t end) const {
    for (size_t i = first; i < std::min(end, first + kFetchAhead); ++i) Prefetch(samples[i]);
    for (size_t i = first; i < end; ++i) {
      if (i + kFetchAhead < end) Prefetch(samples[i + kFetchAhead]);
      const uint8_t* const* row = samples[i].trajectory.rows().data();
      for (const Column& column : columns_) {
        CopyRow(column.out + i * column.bytes, *row++, column.bytes);
        if (column.lengths != nullptr) column.lengths[i] = column.length;
      }
    }
  }

 private:
  // Of each row; the hardware prefetches the rest.
  static constexpr size_t kMaxFetchedBytes = 1024;
  static constexpr size_t kFetchAhead = 24;  // samples

  struct Column {
    size_t bytes;  // of a sample
    size_t fetched_bytes;
    uint8_t* out;
    int64_t length;
    int64_t* lengths;
  };

  void Prefetch(const Sample& sample) const {
    const uint8_t* const* row = sample.trajectory.rows().data();
    for (const Column& column : columns_) PrefetchRow(*row++, column.fetched_bytes);
  }

  uint32_t row_layout_ = 0;  // 0: none can be gathered
  std::vector<Column> columns_;
};

// Gathers samples one by one. Their rows are found, and prefetched, some samples before they are copied: items are
// scattered in memory, and each cache miss takes as long as copying a row. Samples whose columns are not all single
// raw slices are decoded by GatherColumn().
class SampleGatherer {
 public:
  SampleGatherer(std::span<const Sample> samples, std::span<const ColumnLayout> layout,
                 std::span<const ColumnTarget> targets, const ColumnNamer& names)
      : samples_(samples), layout_(layout), targets_(targets), names_(names) {
    size_t header_bytes = sizeof(Chunk) + PackedChunkHeader::kHeadBytes;
    columns_.reserve(layout.size());
    for (size_t c = 0; c < layout.size(); ++c) {
      const ColumnLayout& column = layout[c];
      copies_rows_ &= column.dtype != DType::kString && column.length > 0;
      header_bytes += PackedChunkHeader::BytesPerColumn(column.row_shape.size());
      columns_.push_back(
          {.dtype = column.dtype,
           .squeeze = column.squeeze,
           .length = column.length,
           .row_shape = column.row_shape,
           .bytes = column.sample_bytes,
           .row_bytes = column.sample_bytes / static_cast<size_t>(std::max<int64_t>(1, column.length)),
           .out = targets[c].data,
           .lengths = targets[c].lengths});
    }
    header_bytes_ = std::min(kMaxHeaderBytes, header_bytes);
    if (copies_rows_) rows_.resize(kFetchRows * layout.size());
  }

  // Gathers samples [first, end).
  Status Gather(size_t first, size_t end) {
    for (size_t i = first; i < std::min(end, first + kFetchHeaders); ++i) Prefetch(samples_[i].trajectory);
    for (size_t i = first; i < std::min(end, first + kFetchRows); ++i) FindRows(i);
    for (size_t i = first; i < end; ++i) {
      if (i + kFetchSlices < end) PrefetchSlices(samples_[i + kFetchSlices].trajectory);
      if (i + kFetchHeaders < end) Prefetch(samples_[i + kFetchHeaders].trajectory);
      if (IsFound(i)) {
        CopyRows(i);
      } else {
        REVERB_RETURN_IF_ERROR(Decode(i));
      }
      if (i + kFetchRows < end) FindRows(i + kFetchRows);
    }
    return Status::Ok();
  }

 private:
  static constexpr size_t kMaxHeaderBytes = 512;
  static constexpr size_t kMaxRowBytes = 1024;  // the hardware prefetches the rest

  void Prefetch(const Trajectory& trajectory) const { PrefetchHeaders(trajectory, header_bytes_); }
  // Returns where the pointers to the rows of a sample are kept.
  const uint8_t** RowsOf(size_t i) { return rows_.data() + (i % kFetchRows) * columns_.size(); }
  bool IsFound(size_t i) { return copies_rows_ && RowsOf(i)[0] != nullptr; }

  // Finds the rows of all columns of a sample. If it has another layout, or one that must be decoded, the first
  // pointer is null.
  void FindRows(size_t i) {
    if (!copies_rows_) return;
    const Trajectory& trajectory = samples_[i].trajectory;
    const uint8_t** const rows = RowsOf(i);
    const bool is_found =
        trajectory.num_columns() == columns_.size() &&
        trajectory.ForEachSingleSlice([&](uint32_t c, const SliceView& slice, bool squeeze) {
          const Column& column = columns_[c];
          if (squeeze != column.squeeze || slice.length != column.length || slice.chunk->is_scattered()) {
            return false;
          }
          const PackedChunkHeader header = slice.chunk->header();
          if (!header.IsRaw(slice.chunk_column, column.dtype, column.row_shape)) return false;
          rows[c] = slice.chunk->payload().data() + header.column_payload_offset(slice.chunk_column) +
                    slice.offset * column.row_bytes;
          PrefetchBytes(rows[c], std::min(kMaxRowBytes, column.bytes));
          return true;
        });
    if (is_found) return;
    rows[0] = nullptr;
    PrefetchPayload(trajectory, kMaxRowBytes / kCacheLine);
  }

  void CopyRows(size_t i) {
    const uint8_t* const* row = RowsOf(i);
    for (const Column& column : columns_) {
      CopyRow(column.out + i * column.bytes, *row++, column.bytes);
      if (column.lengths != nullptr) column.lengths[i] = column.length;
    }
  }

  Status Decode(size_t i) const {
    const Sample& sample = samples_[i];
    if (sample.trajectory.num_columns() != layout_.size()) {
      return Status::InvalidArgument(
          "sample " + std::to_string(i) + " (key " + std::to_string(sample.key) + ") has " +
          std::to_string(sample.trajectory.num_columns()) + " columns while the batch has " +
          std::to_string(layout_.size()) + "; samples of one batch must have the same layout: " +
          Describe(sample.trajectory) + " and " + Describe(samples_.front().trajectory));
    }
    for (uint32_t c = 0; c < layout_.size(); ++c) {
      REVERB_RETURN_IF_ERROR(GatherColumn(sample, i, c, layout_[c], targets_[c], names_));
    }
    return Status::Ok();
  }

  // Layout and target of a column.
  struct Column {
    DType dtype;
    bool squeeze;
    int64_t length;  // rows of a sample
    std::span<const uint32_t> row_shape;
    size_t bytes;  // of a sample
    size_t row_bytes;
    uint8_t* out;
    int64_t* lengths;
  };

  const std::span<const Sample> samples_;
  const std::span<const ColumnLayout> layout_;
  const std::span<const ColumnTarget> targets_;
  const ColumnNamer& names_;
  std::vector<Column> columns_;
  bool copies_rows_ = true;
  size_t header_bytes_ = 0;
  std::vector<const uint8_t*> rows_;  // of kFetchRows samples
};

void SetLength(ColumnLayout* layout, int64_t length, size_t row_elements) {
  layout->length = length;
  layout->sample_elements = row_elements * static_cast<size_t>(length);
  layout->sample_bytes = layout->sample_elements * ItemSize(layout->dtype);
}

}  // namespace

std::vector<int64_t> ColumnLayout::Dims(int64_t batch) const {
  std::vector<int64_t> dims = {batch};
  if (!squeeze) dims.push_back(length);
  dims.insert(dims.end(), row_shape.begin(), row_shape.end());
  return dims;
}

Result<std::vector<ColumnLayout>> LayoutOf(const Sample& sample) {
  std::vector<ColumnLayout> layout(sample.trajectory.num_columns());
  for (uint32_t c = 0; c < layout.size(); ++c) {
    const ColumnView view = sample.trajectory.column_view(c);
    ColumnLayout& to = layout[c];
    to.dtype = view.dtype;
    to.squeeze = sample.trajectory.squeeze(c);
    to.row_shape.assign(view.row_shape.begin(), view.row_shape.end());
    SetLength(&to, sample.trajectory.length(c), view.row_elements());
  }
  if (layout.empty()) return Status::InvalidArgument("a sample without columns cannot be batched");
  return layout;
}

Result<std::vector<ColumnLayout>> PaddedLayoutOf(std::span<const Sample> samples) {
  REVERB_ASSIGN_OR_RETURN(std::vector<ColumnLayout> layout, LayoutOf(samples.front()));
  for (const Sample& sample : samples.subspan(1)) {
    const uint32_t columns = std::min(static_cast<uint32_t>(layout.size()), sample.trajectory.num_columns());
    for (uint32_t c = 0; c < columns; ++c) {
      const int64_t length = sample.trajectory.length(c);
      if (length <= layout[c].length) continue;
      SetLength(&layout[c], length, layout[c].sample_elements / static_cast<size_t>(layout[c].length));
    }
  }
  return layout;
}

size_t NumWithSameLayout(std::span<const Sample> samples, bool pad) {
  const Trajectory& first = samples.front().trajectory;
  const auto differs = [&](const Sample& sample) {
    const Trajectory& other = sample.trajectory;
    if (other.num_columns() != first.num_columns()) return true;
    for (uint32_t c = 0; c < first.num_columns(); ++c) {
      const ColumnView ours = first.column_view(c);
      const ColumnView theirs = other.column_view(c);
      if (ours.dtype != theirs.dtype || !std::ranges::equal(ours.row_shape, theirs.row_shape) ||
          first.squeeze(c) != other.squeeze(c) || (!pad && first.length(c) != other.length(c))) {
        return true;
      }
    }
    return false;
  };
  return static_cast<size_t>(std::ranges::find_if(samples, differs) - samples.begin());
}

Status Gather(std::span<const Sample> samples, std::span<const ColumnLayout> layout,
              std::span<const ColumnTarget> targets, const ColumnNamer& names) {
  const auto begins_run = [&](size_t i) {
    return i + 1 < samples.size() && samples[i + 1].trajectory.Follows(samples[i].trajectory);
  };
  const RowGatherer rows(samples.front(), layout, targets);
  for (size_t i = 0; i < samples.size();) {
    if (const size_t end = rows.End(samples, i); end > i) {
      rows.Gather(samples, i, end);
      i = end;
      continue;
    }
    const size_t run = RunLength(samples.subspan(i));
    if (run > 1) {
      REVERB_ASSIGN_OR_RETURN(const bool is_gathered, GatherRun(samples[i], i, run, layout, targets));
      if (is_gathered) {
        i += run;
        continue;
      }
    }
    size_t end = i + run;
    while (end < samples.size() && !begins_run(end)) ++end;
    REVERB_RETURN_IF_ERROR(SampleGatherer(samples, layout, targets, names).Gather(i, end));
    i = end;
  }
  return Status::Ok();
}

}  // namespace reverb::internal
