#include "checkpoint/dm_reverb/chunk_data.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "checkpoint/dm_reverb/proto_reader.h"
#include "checkpoint/dm_reverb/structured_value.h"
#include "reverb/tensor.h"
#include "tensor/codec.h"
#include "tensor/delta.h"

namespace reverb::internal {
namespace {

struct SequenceRange {
  uint64_t episode_id = 0;
  int64_t start = 0;
  int64_t end = 0;
};

Status ParseSequenceRange(std::string_view message, SequenceRange* range) {
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) range->episode_id = reader.AsUint64();
    if (reader.field() == 2) range->start = reader.AsInt32();
    if (reader.field() == 3) range->end = reader.AsInt32();
  }
  if (reader.damaged()) return Status::DataLoss("its sequence range is no message");
  return Status::Ok();
}

// The elements of a string tensor: first all lengths as varints, then all bytes.
Status SplitStrings(std::string_view content, uint64_t count, std::vector<std::string_view>* out) {
  size_t position = 0;
  std::vector<uint32_t> lengths;
  lengths.reserve(std::min<uint64_t>(count, content.size()));
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length = 0;
    for (int shift = 0;; shift += 7) {
      if (position == content.size() || shift > 28)
        return Status::DataLoss("its lengths of strings are cut off");
      const auto byte = static_cast<uint8_t>(content[position++]);
      length |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) break;
    }
    if (length > content.size()) return Status::DataLoss("a string is longer than all of its bytes");
    lengths.push_back(static_cast<uint32_t>(length));
  }
  for (const uint32_t length : lengths) {
    if (length > content.size() - position) return Status::DataLoss("its strings are cut off");
    out->push_back(content.substr(position, length));
    position += length;
  }
  if (position != content.size()) return Status::DataLoss("bytes follow its strings");
  return Status::Ok();
}

std::string Described(DType dtype, const std::vector<int64_t>& dims) {
  return std::string(DTypeName(dtype)) + Shape(dims).ToString();
}

}  // namespace

struct ChunkConverter::TensorProto {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> dims;  // at least one: the rows
  std::string_view content;
  std::vector<std::string_view> string_val;
};

Result<uint64_t> ChunkKeyOf(std::string_view chunk_data) {
  uint64_t key = 0;
  ProtoReader reader(chunk_data);
  while (reader.Next()) {
    if (reader.field() == 1) key = reader.AsUint64();
  }
  if (reader.damaged()) return Status::DataLoss("a chunk that is no message");
  return key;
}

Result<ChunkConverter::TensorProto> ChunkConverter::Parse(std::string_view message) {
  TensorProto tensor;
  uint64_t dtype = 0;
  Shape shape;
  ProtoReader reader(message);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        dtype = reader.AsUint64();
        break;
      case 2: {
        REVERB_ASSIGN_OR_RETURN(shape, DecodeShape(reader.AsBytes()));
        break;
      }
      case 4:
        tensor.content = reader.AsBytes();
        break;
      case 8:
        tensor.string_val.push_back(reader.AsBytes());
        break;
      default:
        break;
    }
  }
  if (reader.damaged()) return Status::DataLoss("it is no message");
  REVERB_ASSIGN_OR_RETURN(tensor.dtype, DecodeDType(dtype));
  if (!shape.IsFullyDefined() || shape.rank() == 0) {
    return Status::DataLoss("its shape " + shape.ToString() + " is not that of rows");
  }
  tensor.dims = shape.dims();
  return tensor;
}

Result<ColumnHeader> ChunkConverter::AppendColumn(const TensorProto& tensor, bool delta_encoded) {
  std::vector<uint32_t> row_shape;
  uint64_t elements = 1;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    const auto dim = static_cast<uint64_t>(tensor.dims[i]);
    if (dim > UINT32_MAX || __builtin_mul_overflow(elements, dim, &elements)) {
      return Status::ResourceExhausted(Described(tensor.dtype, tensor.dims) + " is too large");
    }
    if (i > 0) row_shape.push_back(static_cast<uint32_t>(dim));
  }
  const auto rows = static_cast<uint32_t>(tensor.dims[0]);
  ColumnEncoder encoder(tensor.dtype, std::move(row_shape), CodecPolicy::kAuto);

  if (tensor.dtype == DType::kString) {
    strings_.clear();
    if (tensor.content.empty() && !tensor.string_val.empty()) {
      if (tensor.string_val.size() != elements) {
        return Status::DataLoss(Described(tensor.dtype, tensor.dims) + " with " +
                                std::to_string(tensor.string_val.size()) + " strings");
      }
      strings_ = tensor.string_val;
    } else {
      REVERB_RETURN_IF_ERROR(SplitStrings(tensor.content, elements, &strings_));
    }
    return encoder.EncodeStrings(strings_, rows, &payload_);
  }

  uint64_t raw_size = 0;
  if (__builtin_mul_overflow(elements, uint64_t{ItemSize(tensor.dtype)}, &raw_size) ||
      raw_size > limits_.raw_bytes()) {
    return Status::ResourceExhausted(Described(tensor.dtype, tensor.dims) + " takes more than the " +
                                     std::to_string(limits_.raw_bytes()) + " bytes that a chunk may have");
  }
  const std::span<const uint8_t> stored(reinterpret_cast<const uint8_t*>(tensor.content.data()),
                                        tensor.content.size());
  // Asked before memory is set aside: a few bytes that claim to be much are refused.
  if (raw_size > MaxRawSize(Codec::kSnappy, stored.size())) {
    return Status::DataLoss(Described(tensor.dtype, tensor.dims) + " from " + std::to_string(stored.size()) +
                            " compressed bytes");
  }
  raw_.resize(raw_size);
  if (raw_size > 0) REVERB_RETURN_IF_ERROR(Decompress(Codec::kSnappy, stored, raw_));
  if (delta_encoded && tensor.dims.size() > 1 && IsInteger(tensor.dtype) && raw_size > 0) {
    DeltaDecode(raw_.data(), rows, raw_size / rows, ItemSize(tensor.dtype));
  }
  return encoder.Encode(raw_, rows, &payload_);
}

Result<ChunkConverter::Converted> ChunkConverter::Convert(std::string_view chunk_data) {
  bool delta_encoded = false;
  SequenceRange range;
  std::vector<std::string_view> tensors;
  std::vector<std::string_view> old_tensors;
  ProtoReader reader(chunk_data);
  while (reader.Next()) {
    switch (reader.field()) {
      case 2:
        REVERB_RETURN_IF_ERROR(ParseSequenceRange(reader.AsBytes(), &range));
        break;
      case 3:
        old_tensors.push_back(reader.AsBytes());
        break;
      case 4:
        delta_encoded = reader.AsBool();
        break;
      case 5: {
        ProtoReader data(reader.AsBytes());
        while (data.Next()) {
          if (data.field() == 1) tensors.push_back(data.AsBytes());
        }
        if (data.damaged()) return Status::DataLoss("its data is no message");
        break;
      }
      default:
        break;
    }
  }
  if (reader.damaged()) return Status::DataLoss("it is no message");
  if (tensors.empty()) tensors = std::move(old_tensors);
  if (tensors.empty()) return Status::DataLoss("it holds no tensor");

  Converted converted;
  payload_.clear();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto in_tensor = [i](const Status& status) {
      return Status(status.code(), "tensor " + std::to_string(i) + ": " + std::string(status.message()),
                    status.detail());
    };
    Result<TensorProto> tensor = Parse(tensors[i]);
    if (!tensor.ok()) return in_tensor(tensor.status());
    if (tensor->dims[0] == 0) return in_tensor(Status::DataLoss("it has no rows"));
    if (i > 0 && tensor->dims[0] != int64_t{converted.header.rows}) {
      return in_tensor(Status::DataLoss(std::to_string(tensor->dims[0]) +
                                        " rows, where the first tensor has " +
                                        std::to_string(converted.header.rows)));
    }
    Result<ColumnHeader> column = AppendColumn(*tensor, delta_encoded);
    if (!column.ok()) return in_tensor(column.status());
    converted.header.rows = static_cast<uint32_t>(tensor->dims[0]);
    converted.header.columns.push_back(*std::move(column));
  }
  converted.header.episode_id = range.episode_id;
  converted.header.first_step = range.start;
  // Some writers are careless with the end, which nothing depends on.
  converted.header.last_step = std::max<int64_t>(range.end, range.start + int64_t{converted.header.rows} - 1);
  REVERB_RETURN_IF_ERROR(ValidateChunkHeader(converted.header, limits_));
  converted.payload = payload_;
  return converted;
}

}  // namespace reverb::internal
