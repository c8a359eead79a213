#include "checkpoint/dm_reverb/structured_value.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tensor/proto_reader.h"

namespace reverb::internal {
namespace {

Status Damaged(const std::string& what) { return Status::DataLoss("its signature is damaged: " + what); }

// The numbers of StructuredValue.kind.
enum Kind : uint32_t {
  kNoneValue = 1,
  kTensorSpecValue = 33,
  kBoundedTensorSpecValue = 35,
  kListValue = 51,
  kTupleValue = 52,
  kDictValue = 53,
  kNamedTupleValue = 54,
};

// TensorSpecProto and, in its first three fields, BoundedTensorSpecProto.
Result<Signature> DecodeSpec(std::string_view message) {
  TensorSpec spec;
  uint64_t dtype = 0;
  ProtoReader reader(message);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        spec.name = reader.ReadView();
        break;
      case 2: {
        REVERB_ASSIGN_OR_RETURN(spec.shape, DecodeShape(reader.ReadView()));
        break;
      }
      case 3:
        reader.Read(&dtype);
        break;
      default:
        break;
    }
  }
  if (!reader.ok()) return Damaged("a spec is not a message");
  REVERB_ASSIGN_OR_RETURN(spec.dtype, DecodeDType(dtype));
  return Signature::Leaf(std::move(spec));
}

Result<Signature> DecodeNode(std::string_view message, size_t depth);

// ListValue, TupleValue.
Result<std::vector<Signature>> DecodeValues(std::string_view message, size_t depth) {
  std::vector<Signature> values;
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() != 1) continue;
    REVERB_ASSIGN_OR_RETURN(Signature value, DecodeNode(reader.ReadView(), depth));
    values.push_back(std::move(value));
  }
  if (!reader.ok()) return Damaged("a list is not a message");
  return values;
}

// PairValue, and an entry of DictValue's map: both 1 = key, 2 = value.
Result<Signature::Field> DecodeField(std::string_view message, size_t depth) {
  Signature::Field field;
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) {
      field.first = reader.ReadView();
    } else if (reader.field() == 2) {
      REVERB_ASSIGN_OR_RETURN(field.second, DecodeNode(reader.ReadView(), depth));
    }
  }
  if (!reader.ok()) return Damaged("a field is not a message");
  return field;
}

Result<Signature> DecodeDict(std::string_view message, size_t depth) {
  std::vector<Signature::Field> fields;
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() != 1) continue;
    REVERB_ASSIGN_OR_RETURN(Signature::Field field, DecodeField(reader.ReadView(), depth));
    fields.push_back(std::move(field));
  }
  if (!reader.ok()) return Damaged("a dict is not a message");
  return Signature::Dict(std::move(fields));
}

Result<Signature> DecodeNamedTuple(std::string_view message, size_t depth) {
  std::string name;
  std::vector<Signature::Field> fields;
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) {
      name = reader.ReadView();
    } else if (reader.field() == 2) {
      REVERB_ASSIGN_OR_RETURN(Signature::Field field, DecodeField(reader.ReadView(), depth));
      fields.push_back(std::move(field));
    }
  }
  if (!reader.ok()) return Damaged("a namedtuple is not a message");
  return Signature::NamedTuple(std::move(name), std::move(fields));
}

Result<Signature> DecodeNode(std::string_view message, size_t depth) {
  if (depth > Signature::kMaxDepth) {
    return Damaged("more than " + std::to_string(Signature::kMaxDepth) + " levels");
  }
  uint32_t kind = 0;
  std::string_view value;
  ProtoReader reader(message);
  while (reader.Next()) {
    kind = reader.field();  // a oneof: the last one counts
    value = kind == kNoneValue || kind > 30 ? reader.ReadView() : std::string_view();
  }
  if (!reader.ok()) return Damaged("a value is not a message");
  switch (kind) {
    case 0:
    case kNoneValue:
      return Signature();
    case kTensorSpecValue:
    case kBoundedTensorSpecValue:
      return DecodeSpec(value);
    case kListValue: {
      REVERB_ASSIGN_OR_RETURN(std::vector<Signature> values, DecodeValues(value, depth + 1));
      return Signature::List(std::move(values));
    }
    case kTupleValue: {
      REVERB_ASSIGN_OR_RETURN(std::vector<Signature> values, DecodeValues(value, depth + 1));
      return Signature::Tuple(std::move(values));
    }
    case kDictValue:
      return DecodeDict(value, depth + 1);
    case kNamedTupleValue:
      return DecodeNamedTuple(value, depth + 1);
    default:
      return Status::Unimplemented("its signature holds a value of kind " + std::to_string(kind) +
                                   ", which is neither a spec nor a structure of specs");
  }
}

}  // namespace

Result<DType> DecodeDType(uint64_t number) {
  if (number > UINT8_MAX || !IsKnownDType(static_cast<uint8_t>(number))) {
    return Status::Unimplemented("TensorFlow's dtype number " + std::to_string(number) + " is unknown");
  }
  return static_cast<DType>(number);
}

Result<Shape> DecodeShape(std::string_view message) {
  std::vector<int64_t> dims;
  bool unknown_rank = false;
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 3) reader.Read(&unknown_rank);
    if (reader.field() != 2) continue;
    int64_t size = 0;
    ProtoReader dim = reader.ReadMessage();
    while (dim.Next()) {
      if (dim.field() == 1) dim.ReadInt(&size);
    }
    if (!dim.ok()) return Status::DataLoss("a dimension of a shape is not a message");
    if (size < Shape::kUnknownDim) {
      return Status::DataLoss("a shape with a dimension of " + std::to_string(size));
    }
    dims.push_back(size);
    if (dims.size() > Signature::kMaxRank) {
      return Status::DataLoss("a shape of more than " + std::to_string(Signature::kMaxRank) + " dimensions");
    }
  }
  if (!reader.ok()) return Status::DataLoss("a shape is not a message");
  if (unknown_rank) return Shape::UnknownRank();
  return Shape(std::move(dims));
}

Result<Signature> DecodeStructuredValue(std::string_view message) {
  Result<Signature> signature = DecodeNode(message, 1);
  // An invalid structure is damage to the file, not an invalid argument of the caller.
  if (!signature.ok() && signature.status().code() == StatusCode::kInvalidArgument) {
    return Damaged(std::string(signature.status().message()));
  }
  return signature;
}

}  // namespace reverb::internal
