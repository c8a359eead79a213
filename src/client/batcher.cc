#include "client/batcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/prefetch.h"
#include "tensor/trajectory.h"

namespace reverb::internal {
namespace {

// How many samples ahead each step of prefetch.h is taken.
constexpr size_t kFetchSlices = 24;
constexpr size_t kFetchHeader = 16;
constexpr size_t kFetchPayload = 8;
constexpr size_t kHeaderLines = 5;
constexpr size_t kPayloadLines = 16;

void FetchAhead(std::span<const Sample> samples, size_t at) {
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

Status Mismatch(const Sample& sample, size_t index, uint32_t column, const ColumnLayout& layout) {
  const ColumnView view = sample.trajectory.column_view(column);
  return Status::InvalidArgument("sample " + std::to_string(index) + " (key " + std::to_string(sample.key) +
                                 "), column " + std::to_string(column) + ": it is " +
                                 Describe(view.dtype, view.row_shape, sample.trajectory.length(column),
                                          sample.trajectory.squeeze(column)) +
                                 " while the batch has " +
                                 Describe(layout.dtype, layout.row_shape, layout.length, layout.squeeze) +
                                 "; samples of one batch must have the same layout");
}

bool Fits(const ColumnView& view, const ColumnLayout& layout) {
  return view.dtype == layout.dtype && view.row_shape.size() == layout.row_shape.size() &&
         std::equal(view.row_shape.begin(), view.row_shape.end(), layout.row_shape.begin());
}

// One column of one sample.
Status GatherColumn(const Sample& sample, size_t index, uint32_t column, const ColumnLayout& layout,
                    const ColumnTarget& target) {
  const Trajectory& trajectory = sample.trajectory;
  const SliceView first = trajectory.slice(column, 0);
  const PackedChunkHeader header = first.chunk->header();
  const ColumnView view = header.column(first.chunk_column);
  if (!Fits(view, layout) || trajectory.squeeze(column) != layout.squeeze) {
    return Mismatch(sample, index, column, layout);
  }
  const bool is_one = trajectory.num_slices(column) == 1;
  if ((is_one ? first.length : trajectory.length(column)) != layout.length) {
    return Mismatch(sample, index, column, layout);
  }
  if (target.strings != nullptr) return trajectory.ReadStrings(column, target.strings);
  uint8_t* const out = target.data + index * layout.sample_bytes;
  if (is_one && view.codec == Codec::kRaw) [[likely]] {
    const size_t row_bytes = layout.sample_bytes / static_cast<size_t>(layout.length);
    first.chunk->CopyPayload(out, header.column_payload_offset(first.chunk_column) + first.offset * row_bytes,
                             layout.sample_bytes);
    return Status::Ok();
  }
  return trajectory.Read(column, {out, layout.sample_bytes});
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
    to.length = sample.trajectory.length(c);
    to.row_shape.assign(view.row_shape.begin(), view.row_shape.end());
    to.sample_elements = view.row_elements() * static_cast<size_t>(to.length);
    to.sample_bytes = to.sample_elements * ItemSize(view.dtype);
  }
  if (layout.empty()) return Status::InvalidArgument("a sample without columns cannot be batched");
  return layout;
}

Status Gather(std::span<const Sample> samples, std::span<const ColumnLayout> layout,
              std::span<const ColumnTarget> targets) {
  for (size_t i = 0; i < samples.size(); ++i) {
    FetchAhead(samples, i);
    const Sample& sample = samples[i];
    if (sample.trajectory.num_columns() != layout.size()) {
      return Status::InvalidArgument("sample " + std::to_string(i) + " (key " + std::to_string(sample.key) +
                                     ") has " + std::to_string(sample.trajectory.num_columns()) +
                                     " columns while the batch has " + std::to_string(layout.size()) +
                                     "; samples of one batch must have the same layout");
    }
    for (uint32_t c = 0; c < layout.size(); ++c) {
      REVERB_RETURN_IF_ERROR(GatherColumn(sample, i, c, layout[c], targets[c]));
    }
  }
  return Status::Ok();
}

}  // namespace reverb::internal
