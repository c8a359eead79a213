#include "checkpoint/dm_reverb/structured_value.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "tensor/byte_io.h"
#include "tensor/proto_reader.h"

namespace reverb {
namespace internal {
namespace {

Status DamagedSignature(const std::string& what) {
  return Status::DataLoss("its signature is damaged: " + what);
}

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

// The fields of TensorProto that hold a bound.
enum TensorField : uint32_t {
  kDType = 1,
  kShape = 2,
  kContent = 4,
  kFloatVal = 5,
  kDoubleVal = 6,
  kIntVal = 7,
  kStringVal = 8,
  kComplex64Val = 9,
  kInt64Val = 10,
  kBoolVal = 11,
  kComplex128Val = 12,
  kHalfVal = 13,
  kUint32Val = 16,
  kUint64Val = 17,
};

// Returns the field that lists values of the dtype.
TensorField ValuesField(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return kFloatVal;
    case DType::kFloat64:
      return kDoubleVal;
    case DType::kString:
      return kStringVal;
    case DType::kComplex64:
      return kComplex64Val;
    case DType::kInt64:
      return kInt64Val;
    case DType::kBool:
      return kBoolVal;
    case DType::kComplex128:
      return kComplex128Val;
    case DType::kFloat16:
    case DType::kBfloat16:
      return kHalfVal;
    case DType::kUint32:
      return kUint32Val;
    case DType::kUint64:
      return kUint64Val;
    default:
      return kIntVal;
  }
}

class Decoder {
 public:
  Result<Signature> Node(std::string_view message, size_t depth) {
    if (depth > Signature::kMaxDepth) {
      return DamagedSignature("more than " + std::to_string(Signature::kMaxDepth) + " levels");
    }
    uint32_t kind = 0;
    std::string_view value;
    ProtoReader reader(message);
    while (reader.Next()) {
      kind = reader.field();  // a oneof: the last one counts
      value = kind == kNoneValue || kind > 30 ? reader.ReadView() : std::string_view();
    }
    if (!reader.ok()) return DamagedSignature("a value that is not a message");
    switch (kind) {
      case 0:
      case kNoneValue:
        return Signature();
      case kTensorSpecValue:
      case kBoundedTensorSpecValue:
        return Spec(value, kind == kBoundedTensorSpecValue);
      case kListValue: {
        REVERB_ASSIGN_OR_RETURN(std::vector<Signature> values, Values(value, depth + 1));
        return Signature::List(std::move(values));
      }
      case kTupleValue: {
        REVERB_ASSIGN_OR_RETURN(std::vector<Signature> values, Values(value, depth + 1));
        return Signature::Tuple(std::move(values));
      }
      case kDictValue:
        return Dict(value, depth + 1);
      case kNamedTupleValue:
        return NamedTuple(value, depth + 1);
      default:
        return Status::Unimplemented("its signature holds a value of kind " + std::to_string(kind) +
                                     ", which is neither a spec nor a structure of specs");
    }
  }

 private:
  // TensorSpecProto; BoundedTensorSpecProto has two fields more.
  Result<Signature> Spec(std::string_view message, bool bounded) {
    TensorSpec spec;
    uint64_t dtype = 0;
    std::string_view minimum;
    std::string_view maximum;
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
        case 4:
          minimum = reader.ReadView();
          break;
        case 5:
          maximum = reader.ReadView();
          break;
        default:
          break;
      }
    }
    if (!reader.ok()) return DamagedSignature("a spec that is not a message");
    REVERB_ASSIGN_OR_RETURN(spec.dtype, DecodeDType(dtype));
    if (!bounded) return Signature::Leaf(std::move(spec));
    Result<Signature> leaf = BoundedLeaf(spec, minimum, maximum);
    if (leaf.ok() || leaf.status().code() == StatusCode::kDataLoss) return leaf;
    // Absent bounds, and those that Signature cannot represent, such as bounds of a higher rank than the value.
    // Bounds are reported, not enforced, so the data is usable without them.
    Log(LogLevel::kWarning, "the bounds of spec \"" + spec.name + "\" cannot be kept and are dropped");
    return Signature::Leaf(std::move(spec));
  }

  Result<Signature> BoundedLeaf(const TensorSpec& spec, std::string_view minimum, std::string_view maximum) {
    Signature::Bounds bounds;
    REVERB_ASSIGN_OR_RETURN(bounds.minimum, Bound(minimum));
    REVERB_ASSIGN_OR_RETURN(bounds.maximum, Bound(maximum));
    return Signature::Leaf(spec, std::move(bounds));
  }

  // TensorProto: its elements as raw content, or as a list of which the last one stands for all that follow.
  Result<Tensor> Bound(std::string_view message) {
    uint64_t number = 0;
    Shape shape;
    ProtoReader reader(message);
    while (reader.Next()) {
      if (reader.field() == kDType) reader.Read(&number);
      if (reader.field() == kShape) {
        REVERB_ASSIGN_OR_RETURN(shape, DecodeShape(reader.ReadView()));
      }
    }
    if (!reader.ok()) return DamagedSignature("a bound that is not a message");
    REVERB_ASSIGN_OR_RETURN(const DType dtype, DecodeDType(number));
    const Result<int64_t> count = shape.NumElements();
    const size_t size = dtype == DType::kString ? sizeof(std::string) : ItemSize(dtype);
    if (!shape.has_rank() || !count.ok() || static_cast<uint64_t>(*count) > bound_bytes_left_ / size) {
      return Status::ResourceExhausted("a bound of shape " + shape.ToString() +
                                       ", which is unknown or too large");
    }
    bound_bytes_left_ -= static_cast<size_t>(*count) * size;
    REVERB_ASSIGN_OR_RETURN(Tensor bound, Tensor::Allocate(dtype, shape.dims()));
    if (dtype == DType::kString) {
      REVERB_RETURN_IF_ERROR(FillStrings(message, &bound));
    } else {
      REVERB_RETURN_IF_ERROR(Fill(message, &bound));
    }
    return bound;
  }

  static Status FillStrings(std::string_view message, Tensor* bound) {
    std::vector<std::string>& elements = bound->strings();
    size_t filled = 0;
    ProtoReader reader(message);
    while (reader.Next()) {
      if (reader.field() != kStringVal) continue;
      if (filled == elements.size()) return DamagedSignature("a bound with more values than its shape has");
      elements[filled++] = reader.ReadView();
    }
    if (!reader.ok()) return DamagedSignature("a bound that is not a message");
    // Strings are repeated only if they are short, so that memory stays bounded.
    for (size_t i = filled; filled > 0 && i < elements.size(); ++i) {
      if (elements[filled - 1].size() >= sizeof(std::string))
        return DamagedSignature("a bound with too few strings");
      elements[i] = elements[filled - 1];
    }
    return Status::Ok();
  }

  static Status Fill(std::string_view message, Tensor* bound) {
    const size_t item_size = ItemSize(bound->dtype());
    const bool is_complex = bound->dtype() == DType::kComplex64 || bound->dtype() == DType::kComplex128;
    const size_t part_size = is_complex ? item_size / 2 : item_size;
    const TensorField values = ValuesField(bound->dtype());
    const size_t wanted = bound->num_bytes();
    std::string_view content;
    std::string listed;  // the values in their final form
    ProtoReader reader(message);
    while (reader.Next()) {
      if (reader.field() == kContent) content = reader.ReadView();
      if (reader.field() != static_cast<uint32_t>(values)) continue;
      const auto append = [&](uint64_t value) {
        // One value too many is enough to see that there are too many.
        if (listed.size() > wanted) return;
        listed.append(reinterpret_cast<const char*>(&value), part_size);
      };
      if (values == kFloatVal || values == kComplex64Val) {
        reader.ReadFixed32s(append);
      } else if (values == kDoubleVal || values == kComplex128Val) {
        reader.ReadFixed64s(append);
      } else {
        reader.ReadVarints([&](uint64_t value) { append(values == kBoolVal ? value != 0 : value); });
      }
    }
    if (!reader.ok()) return DamagedSignature("a bound that is not a message");
    if (!content.empty()) {
      if (content.size() != wanted)
        return DamagedSignature("a bound with another number of bytes than its shape has");
      std::memcpy(bound->data(), content.data(), wanted);
      return Status::Ok();
    }
    if (listed.size() > wanted || listed.size() % item_size != 0) {
      return DamagedSignature("a bound with another number of values than its shape has");
    }
    if (wanted == 0) return Status::Ok();
    std::memset(bound->data(), 0, wanted);
    std::memcpy(bound->data(), listed.data(), listed.size());
    if (listed.empty()) return Status::Ok();
    for (size_t at = listed.size(); at < wanted; at += item_size) {
      std::memcpy(bound->data() + at, bound->data() + listed.size() - item_size, item_size);
    }
    return Status::Ok();
  }

  // ListValue, TupleValue.
  Result<std::vector<Signature>> Values(std::string_view message, size_t depth) {
    std::vector<Signature> values;
    ProtoReader reader(message);
    while (reader.Next()) {
      if (reader.field() != 1) continue;
      REVERB_ASSIGN_OR_RETURN(Signature value, Node(reader.ReadView(), depth));
      values.push_back(std::move(value));
    }
    if (!reader.ok()) return DamagedSignature("a list that is not a message");
    return values;
  }

  // PairValue, and an entry of DictValue's map: both 1 = key, 2 = value.
  Result<Signature::Field> Field(std::string_view message, size_t depth) {
    Signature::Field field;
    ProtoReader reader(message);
    while (reader.Next()) {
      if (reader.field() == 1) {
        field.first = reader.ReadView();
      } else if (reader.field() == 2) {
        REVERB_ASSIGN_OR_RETURN(field.second, Node(reader.ReadView(), depth));
      }
    }
    if (!reader.ok()) return DamagedSignature("a field that is not a message");
    return field;
  }

  Result<Signature> Dict(std::string_view message, size_t depth) {
    std::vector<Signature::Field> fields;
    ProtoReader reader(message);
    while (reader.Next()) {
      if (reader.field() != 1) continue;
      REVERB_ASSIGN_OR_RETURN(Signature::Field field, Field(reader.ReadView(), depth));
      fields.push_back(std::move(field));
    }
    if (!reader.ok()) return DamagedSignature("a dict that is not a message");
    return Signature::Dict(std::move(fields));
  }

  Result<Signature> NamedTuple(std::string_view message, size_t depth) {
    std::string name;
    std::vector<Signature::Field> fields;
    ProtoReader reader(message);
    while (reader.Next()) {
      if (reader.field() == 1) {
        name = reader.ReadView();
      } else if (reader.field() == 2) {
        REVERB_ASSIGN_OR_RETURN(Signature::Field field, Field(reader.ReadView(), depth));
        fields.push_back(std::move(field));
      }
    }
    if (!reader.ok()) return DamagedSignature("a namedtuple that is not a message");
    return Signature::NamedTuple(std::move(name), std::move(fields));
  }

  // Leaves room for the rest of a signature within TableOptions::kMaxSignatureBytes.
  size_t bound_bytes_left_ = size_t{8} << 20;
};

// --- Encoding ---

void PutNumber(std::string* out, uint32_t field, uint64_t value) {
  if (value == 0) return;  // the default
  PutVarint(out, uint64_t{field} << 3);
  PutVarint(out, value);
}

void PutMessage(std::string* out, uint32_t field, std::string_view value) {
  PutVarint(out, uint64_t{field} << 3 | 2);
  PutString(out, value);
}

void PutBytes(std::string* out, uint32_t field, std::string_view value) {
  if (!value.empty()) PutMessage(out, field, value);
}

std::string EncodeShape(const Shape& shape) {
  std::string out;
  PutNumber(&out, 3, shape.has_rank() ? 0 : 1);
  for (const int64_t dim : shape.dims()) {
    std::string size;
    PutNumber(&size, 1, static_cast<uint64_t>(dim));
    PutMessage(&out, 2, size);
  }
  return out;
}

std::string EncodeBound(const Tensor& bound) {
  std::string out;
  PutNumber(&out, kDType, static_cast<uint64_t>(bound.dtype()));
  PutMessage(&out, kShape, EncodeShape(Shape(bound.dims())));
  PutBytes(&out, kContent, {reinterpret_cast<const char*>(bound.data()), bound.num_bytes()});
  for (const std::string& element : bound.strings()) PutMessage(&out, kStringVal, element);
  return out;
}

std::string EncodeSpec(const TensorSpec& spec, const Signature::Bounds* bounds) {
  std::string out;
  PutBytes(&out, 1, spec.name);
  PutMessage(&out, 2, EncodeShape(spec.shape));
  PutNumber(&out, 3, static_cast<uint64_t>(spec.dtype));
  if (bounds == nullptr) return out;
  PutMessage(&out, 4, EncodeBound(bounds->minimum));
  PutMessage(&out, 5, EncodeBound(bounds->maximum));
  return out;
}

// Recurses at most Signature::kMaxDepth deep.
std::string EncodeNode(const Signature& node) {
  std::string body;
  std::string out;
  switch (node.kind()) {
    case Signature::Kind::kNone:
      PutMessage(&out, kNoneValue, {});
      break;
    case Signature::Kind::kLeaf:
      PutMessage(&out, node.bounds() == nullptr ? kTensorSpecValue : kBoundedTensorSpecValue,
                 EncodeSpec(node.spec(), node.bounds()));
      break;
    case Signature::Kind::kList:
    case Signature::Kind::kTuple:
      for (const Signature& child : node.children()) PutMessage(&body, 1, EncodeNode(child));
      PutMessage(&out, node.kind() == Signature::Kind::kList ? kListValue : kTupleValue, body);
      break;
    case Signature::Kind::kDict:
      for (size_t i = 0; i < node.children().size(); ++i) {
        std::string entry;
        PutMessage(&entry, 1, node.keys()[i]);  // a map writes both fields, even if they are empty
        PutMessage(&entry, 2, EncodeNode(node.children()[i]));
        PutMessage(&body, 1, entry);
      }
      PutMessage(&out, kDictValue, body);
      break;
    case Signature::Kind::kNamedTuple:
      PutBytes(&body, 1, node.type_name());
      for (size_t i = 0; i < node.children().size(); ++i) {
        std::string pair;
        PutBytes(&pair, 1, node.keys()[i]);
        PutMessage(&pair, 2, EncodeNode(node.children()[i]));
        PutMessage(&body, 2, pair);
      }
      PutMessage(&out, kNamedTupleValue, body);
      break;
  }
  return out;
}

}  // namespace

Result<DType> DecodeDType(uint64_t number) {
  if (number > UINT8_MAX || !IsKnownDType(static_cast<uint8_t>(number))) {
    return Status::Unimplemented("TensorFlow's dtype number " + std::to_string(number) +
                                 " is not known here");
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
    ProtoReader dim(reader.ReadView());
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
  if (!reader.ok()) return Status::DataLoss("a shape that is not a message");
  if (unknown_rank) return Shape::UnknownRank();
  return Shape(std::move(dims));
}

}  // namespace internal

std::string EncodeStructuredValue(const Signature& signature) { return internal::EncodeNode(signature); }

Result<Signature> DecodeStructuredValue(std::string_view message) {
  Result<Signature> signature = internal::Decoder().Node(message, 1);
  // An invalid structure is an error of the bytes, not of the caller.
  if (!signature.ok() && signature.status().code() == StatusCode::kInvalidArgument) {
    return internal::DamagedSignature(std::string(signature.status().message()));
  }
  return signature;
}

}  // namespace reverb
