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
constexpr size_t kFetchHeader = 16;
constexpr size_t kFetchPayload = 8;
constexpr size_t kHeaderLines = 5;
constexpr size_t kPayloadLines = 16;

void PrefetchAhead(std::span<const Sample> samples, size_t at) {
  if (at + kFetchSlices < samples.size()) PrefetchSlices(samples[at + kFetchSlices].trajectory);
  if (at + kFetchHeader < samples.size()) PrefetchHeader(samples[at + kFetchHeader].trajectory, kHeaderLines);
  if (at + kFetchPayload < samples.size())
    PrefetchPayload(samples[at + kFetchPayload].trajectory, kPayloadLines);
}

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
  for (uint32_t c = 0; c < layout.size(); ++c) {
    const SliceView slice = trajectory.slice(c, 0);
    const size_t row_bytes = layout[c].sample_bytes / static_cast<size_t>(layout[c].length);
    REVERB_RETURN_IF_ERROR(slice.chunk->CopyPayload(
        targets[c].data + first * layout[c].sample_bytes,
        slice.chunk->header().column_payload_offset(slice.chunk_column) + slice.offset * row_bytes,
        count * layout[c].sample_bytes));
    if (targets[c].lengths != nullptr) std::fill_n(targets[c].lengths + first, count, layout[c].length);
  }
  return true;
}

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
  size_t alone = 0;  // samples before this index are not part of a longer run
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    if (i >= alone) {
      const size_t run = RunLength(samples.subspan(i));
      if (run > 1) {
        REVERB_ASSIGN_OR_RETURN(const bool is_gathered, GatherRun(sample, i, run, layout, targets));
        if (is_gathered) {
          i += run - 1;
          continue;
        }
      }
      alone = i + run;
    }
    PrefetchAhead(samples, i);
    if (sample.trajectory.num_columns() != layout.size()) {
      return Status::InvalidArgument(
          "sample " + std::to_string(i) + " (key " + std::to_string(sample.key) + ") has " +
          std::to_string(sample.trajectory.num_columns()) + " columns while the batch has " +
          std::to_string(layout.size()) + "; samples of one batch must have the same layout: " +
          Describe(sample.trajectory) + " and " + Describe(samples.front().trajectory));
    }
    for (uint32_t c = 0; c < layout.size(); ++c) {
      REVERB_RETURN_IF_ERROR(GatherColumn(sample, i, c, layout[c], targets[c], names));
    }
  }
  return Status::Ok();
}

}  // namespace reverb::internal
