#include "client/legacy_writer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "client/item_signature.h"
#include "client/tensor_text.h"

namespace reverb {
namespace {

constexpr int64_t kDefaultChunkLength = 10;

int64_t ChunkLength(const WriterOptions& options) {
  return options.chunk_length.value_or(std::min(kDefaultChunkLength, options.max_sequence_length));
}

}  // namespace

Status WriterOptions::Validate() const {
  if (max_sequence_length < 1) {
    return Status::InvalidArgument("max_sequence_length must be at least 1 but got " +
                                   std::to_string(max_sequence_length));
  }
  if (chunk_length && (*chunk_length < 1 || *chunk_length > max_sequence_length)) {
    return Status::InvalidArgument(
        "chunk_length must be in [1, max_sequence_length = " + std::to_string(max_sequence_length) +
        "] but got " + std::to_string(*chunk_length));
  }
  if (max_in_flight_items && *max_in_flight_items < 1) {
    return Status::InvalidArgument("max_in_flight_items must be at least 1 but got " +
                                   std::to_string(*max_in_flight_items));
  }
  return Status::Ok();
}

namespace internal {

LegacyWriter::LegacyWriter(const WriterOptions& options, std::unique_ptr<ItemSink> sink)
    : max_sequence_length_(options.max_sequence_length),
      max_in_flight_items_(options.max_in_flight_items),
      signatures_(options.signatures),
      wait_for_room_(options.wait_for_room),
      writer_({.chunking = {.num_keep_alive_refs = options.max_sequence_length,
                            .max_chunk_length = ChunkLength(options)},
               .compression = options.compression,
               .wait_for_room = options.wait_for_room,
               .seed = options.seed},
              std::move(sink), ColumnStore::Packing::kAll) {}

Status LegacyWriter::CheckOpen(std::string_view method) const {
  if (!writer_.is_closed()) return Status::Ok();
  return Status::FailedPrecondition("Calling method " + std::string(method) + " after Close has been called");
}

Status LegacyWriter::CheckStep(std::span<const TensorView> step) const {
  const ColumnStore& columns = writer_.columns();
  if (step.empty()) return Status::InvalidArgument("a step must have at least one tensor");
  if (num_columns_ == 0) return Status::Ok();  // the first step defines dtypes and shapes
  if (step.size() != num_columns_) {
    return Status::InvalidArgument("a step has " + std::to_string(step.size()) +
                                   " tensors but the first one had " + std::to_string(num_columns_) +
                                   "; all steps of a writer must have the same number");
  }
  for (uint32_t i = 0; i < step.size(); ++i) {
    if (step[i].dtype != columns.dtype(i)) {
      return Status::InvalidArgument("Cannot concatenate tensors that have different data types. Got " +
                                     std::string(TensorFlowName(step[i].dtype)) + " at index " +
                                     std::to_string(i) + ", the first step had " +
                                     std::string(TensorFlowName(columns.dtype(i))) + ".");
    }
    if (!std::ranges::equal(step[i].dims, columns.dims(i))) {
      return Status::InvalidArgument("Unable to concatenate tensors at index " + std::to_string(i) +
                                     " due to mismatched shapes: got " + ShapeText(step[i].dims) +
                                     ", the first step had " + ShapeText(columns.dims(i)) + ".");
    }
  }
  return Status::Ok();
}

Status LegacyWriter::AppendChecked(std::span<const TensorView> step) {
  if (max_in_flight_items_) REVERB_RETURN_IF_ERROR(AwaitWindow(*max_in_flight_items_));
  values_.clear();
  for (uint32_t i = 0; i < step.size(); ++i) values_.push_back({.column = i, .value = step[i]});
  REVERB_RETURN_IF_ERROR(writer_.Append(values_));
  num_columns_ = static_cast<uint32_t>(step.size());
  return Status::Ok();
}

Status LegacyWriter::AwaitWindow(int64_t at_most) {
  if (writer_.sink().pending_items() <= at_most) return Status::Ok();
  return writer_.sink().AwaitPending(at_most, wait_for_room_);
}

Status LegacyWriter::Append(std::span<const TensorView> step) {
  REVERB_RETURN_IF_ERROR(CheckOpen("Append"));
  REVERB_RETURN_IF_ERROR(CheckStep(step));
  return AppendChecked(step);
}

Status LegacyWriter::AppendSequence(std::span<const TensorView> sequence) {
  REVERB_RETURN_IF_ERROR(CheckOpen("AppendSequence"));
  if (sequence.empty()) return Status::InvalidArgument("a sequence must have at least one tensor");
  for (size_t i = 0; i < sequence.size(); ++i) {
    if (sequence[i].dims.empty()) {
      return Status::InvalidArgument("the tensor at index " + std::to_string(i) +
                                     " of a sequence is a scalar; its first dimension must be time");
    }
    if (sequence[i].dims[0] != sequence[0].dims[0]) {
      return Status::InvalidArgument("the tensor at index " + std::to_string(i) + " of a sequence has " +
                                     std::to_string(sequence[i].dims[0]) + " steps but the first one has " +
                                     std::to_string(sequence[0].dims[0]) +
                                     "; they must have the same number");
    }
  }
  std::vector<TensorView> step;
  for (const TensorView& tensor : sequence) {
    step.push_back({.dtype = tensor.dtype, .dims = tensor.dims.subspan(1), .data = tensor.data});
  }
  REVERB_RETURN_IF_ERROR(CheckStep(step));
  for (int64_t row = 0; row < sequence[0].dims[0]; ++row) {
    for (size_t i = 0; i < step.size() && row > 0; ++i) {
      const size_t element =
          step[i].dtype == DType::kString ? sizeof(std::string_view) : ItemSize(step[i].dtype);
      step[i].data = static_cast<const uint8_t*>(step[i].data) + step[i].num_elements() * element;
    }
    REVERB_RETURN_IF_ERROR(AppendChecked(step));
  }
  return Status::Ok();
}

Status LegacyWriter::CreateItem(std::string_view table, int64_t num_timesteps, double priority,
                                const ItemStructure& structure) {
  REVERB_RETURN_IF_ERROR(CheckOpen("CreateItem"));
  const ColumnStore& columns = writer_.columns();
  if (num_timesteps < 1) {
    return Status::InvalidArgument("num_timesteps must be at least 1 but got " +
                                   std::to_string(num_timesteps));
  }
  if (num_timesteps > max_sequence_length_) {
    return Status::InvalidArgument("num_timesteps is " + std::to_string(num_timesteps) +
                                   " but max_sequence_length is " + std::to_string(max_sequence_length_) +
                                   "; create the writer with a larger one");
  }
  const int64_t end = columns.position();
  if (const int64_t steps = end - episode_begin_; num_timesteps > steps) {
    return Status::InvalidArgument("num_timesteps is " + std::to_string(num_timesteps) + " but only " +
                                   std::to_string(steps) + " steps have been appended");
  }
  if (std::isnan(priority)) return Status::InvalidArgument("`priority` must not be nan.");
  if (signatures_) {
    std::vector<ItemColumnSpec> specs;
    for (uint32_t i = 0; i < num_columns_; ++i) {
      specs.push_back({.dtype = columns.dtype(i), .row_dims = columns.dims(i), .length = num_timesteps});
    }
    REVERB_RETURN_IF_ERROR(signatures_.CheckStep(table, specs));
  }
  ranges_.clear();
  columns_.clear();
  for (uint32_t i = 0; i < num_columns_; ++i) {
    ranges_.push_back({.column = i, .begin = end - num_timesteps, .end = end});
  }
  for (const CellRange& range : ranges_) columns_.push_back({.cells = {&range, 1}});
  if (max_in_flight_items_) REVERB_RETURN_IF_ERROR(AwaitWindow(*max_in_flight_items_ - 1));
  return writer_.CreateItem(table, priority, columns_, structure);
}

Status LegacyWriter::Flush(const WaitOptions& wait) {
  REVERB_RETURN_IF_ERROR(CheckOpen("Flush"));
  return writer_.Flush(0, wait);
}

Status LegacyWriter::EndEpisode(const WaitOptions& wait) {
  REVERB_RETURN_IF_ERROR(CheckOpen("EndEpisode"));
  episode_begin_ = writer_.columns().position();
  return writer_.EndEpisode(/*clear=*/true, wait);
}

Status LegacyWriter::Close(const WaitOptions& wait) {
  if (writer_.is_closed()) return Status::InvalidArgument("Close has already been called on this writer");
  Status status = writer_.Flush(0, wait);
  writer_.Close();
  return status;
}

}  // namespace internal
}  // namespace reverb
