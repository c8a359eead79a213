#include "checkpoint/dm_reverb/chunk_data.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "checkpoint/dm_reverb/structured_value.h"
#include "reverb/tensor.h"
#include "tensor/codec.h"
#include "tensor/delta.h"
#include "tensor/proto_reader.h"

namespace reverb::internal {
namespace {

struct SequenceRange {
  uint64_t episode_id = 0;
  int32_t start = 0;
  int32_t end = 0;
};

Status ParseSequenceRange(std::string_view message, SequenceRange* range) {
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) reader.Read(&range->episode_id);
    if (reader.field() == 2) reader.ReadInt(&range->start);
    if (reader.field() == 3) reader.ReadInt(&range->end);
  }
  if (!reader.ok()) return Status::DataLoss("its sequence range is not a message");
  return Status::Ok();
}

// Splits the content of a string tensor: first all lengths as varints, then all bytes.
Status SplitStrings(std::string_view content, uint64_t count, std::vector<std::string_view>* out) {
  size_t position = 0;
  std::vector<uint32_t> lengths;
  lengths.reserve(std::min<uint64_t>(count, content.size()));
  for (uint64_t i = 0; i < count; ++i) {
    const auto next = [&](uint8_t* byte) {
      if (position == content.size()) return false;
      *byte = static_cast<uint8_t>(content[position++]);
      return true;
    };
    uint64_t length = 0;
    if (DecodeVarint(next, &length) <= 0) return Status::DataLoss("the lengths of its strings are cut short");
    if (length > content.size()) return Status::DataLoss("a string is longer than all of its bytes");
    lengths.push_back(static_cast<uint32_t>(length));
  }
  for (const uint32_t length : lengths) {
    if (length > content.size() - position) return Status::DataLoss("its strings are cut short");
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
    if (reader.field() == 1) reader.Read(&key);
  }
  if (!reader.ok()) return Status::DataLoss("a chunk is not a message");
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
        reader.Read(&dtype);
        break;
      case 2: {
        REVERB_ASSIGN_OR_RETURN(shape, DecodeShape(reader.ReadView()));
        break;
      }
      case 4:
        tensor.content = reader.ReadView();
        break;
      case 8:
        tensor.string_val.push_back(reader.ReadView());
        break;
      default:
        break;
    }
  }
  if (!reader.ok()) return Status::DataLoss("it is not a message");
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
  // Checked before the allocation: rejects a few bytes that claim to decompress to many.
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
        REVERB_RETURN_IF_ERROR(ParseSequenceRange(reader.ReadView(), &range));
        break;
      case 3:
        old_tensors.push_back(reader.ReadView());
        break;
      case 4:
        reader.Read(&delta_encoded);
        break;
      case 5: {
        ProtoReader data = reader.ReadMessage();
        while (data.Next()) {
          if (data.field() == 1) tensors.push_back(data.ReadView());
        }
        if (!data.ok()) return Status::DataLoss("its data is not a message");
        break;
      }
      default:
        break;
    }
  }
  if (!reader.ok()) return Status::DataLoss("it is not a message");
  if (tensors.empty()) tensors = std::move(old_tensors);
  if (tensors.empty()) return Status::DataLoss("it holds no tensor");

  Converted converted;
  payload_.clear();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto in_tensor = [i](const Status& status) {
      return status.Prefixed("tensor " + std::to_string(i));
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
  // Some writers set a wrong end, which nothing depends on.
  converted.header.last_step = std::max<int64_t>(range.end, range.start + int64_t{converted.header.rows} - 1);
  REVERB_RETURN_IF_ERROR(ValidateChunkHeader(converted.header, limits_));
  converted.payload = payload_;
  return converted;
}

}  // namespace reverb::internal
