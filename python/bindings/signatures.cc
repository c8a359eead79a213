#include "signatures.h"

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "reverb/structured_value.h"
#include "tree.h"

namespace reverb::python {
namespace {

Lazy py_as_spec("reverb._specs", "as_spec");
Lazy py_tensor_spec("reverb._specs", "TensorSpec");
Lazy py_bounded_tensor_spec("reverb._specs", "BoundedTensorSpec");
Lazy py_bfloat16_dtype("reverb._specs", "bfloat16_dtype");
Lazy py_decode_error("reverb.errors", "DecodeError");
Lazy py_frombuffer("numpy", "frombuffer");

// --- To signatures ---

std::string ToUtf8(nb::handle text) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) nb::raise_python_error();
  return std::string(bytes, static_cast<size_t>(size));
}

int64_t ToDim(nb::handle dim) {
  if (dim.is_none()) return Shape::kUnknownDim;
  const long long value = PyLong_AsLongLong(dim.ptr());
  if (value != -1 || !PyErr_Occurred()) return value;
  if (!PyErr_ExceptionMatches(PyExc_OverflowError)) nb::raise_python_error();
  PyErr_Clear();
  RaiseValueError("signature: the dimension " + ShortRepr(dim) + " does not fit 63 bits");
}

std::vector<int64_t> ToDims(nb::handle shape) {
  std::vector<int64_t> dims;
  for (const nb::handle dim : shape) dims.push_back(ToDim(dim));
  return dims;
}

// `array` has the dtype already.
Tensor ToBound(DType dtype, nb::handle array) {
  Tensor bound = ValueOrRaise(Tensor::Allocate(dtype, ToDims(array.attr("shape"))));
  if (dtype != DType::kString) {
    const nb::bytes bytes(nb::object(array.attr("tobytes")()));
    if (bytes.size() != bound.num_bytes()) RaiseValueError("a bound of a spec changed while it was read");
    if (bytes.size() > 0) std::memcpy(bound.data(), bytes.c_str(), bytes.size());
    return bound;
  }
  std::vector<std::string>& elements = bound.strings();
  size_t i = 0;
  for (const nb::handle element : nb::object(array.attr("ravel")().attr("tolist")())) {
    if (i == elements.size()) break;
    if (PyUnicode_Check(element.ptr())) {
      elements[i++] = ToUtf8(element);
    } else {
      const nb::bytes bytes(nb::borrow(element));
      elements[i++] = std::string(bytes.c_str(), bytes.size());
    }
  }
  return bound;
}

Signature ToLeaf(nb::handle value) {
  const nb::object spec = Own(PyObject_CallOneArg(py_as_spec.get().ptr(), value.ptr()));
  const nb::object shape = spec.attr("shape");
  const nb::object dtype = spec.attr("dtype");
  const nb::object name = spec.attr("name");
  TensorSpec made;
  if (!name.is_none()) made.name = ToUtf8(name);
  // The only structured dtype of a spec is the one that stands for bfloat16 where ml_dtypes is missing.
  made.dtype = nb::object(dtype.attr("names")).is_none() ? FromNumpyDType(dtype) : DType::kBfloat16;
  made.shape = shape.is_none() ? Shape::UnknownRank() : Shape(ToDims(shape));
  const int is_bounded = PyObject_IsInstance(spec.ptr(), py_bounded_tensor_spec.get().ptr());
  if (is_bounded < 0) nb::raise_python_error();
  if (!is_bounded) return ValueOrRaise(Signature::Leaf(std::move(made)));
  Signature::Bounds bounds{ToBound(made.dtype, nb::object(spec.attr("minimum"))),
                           ToBound(made.dtype, nb::object(spec.attr("maximum")))};
  return ValueOrRaise(Signature::Leaf(std::move(made), std::move(bounds)));
}

// Converts a nest; `leaf(value)` converts its leaves.
template <typename Leaf>
class Converter {
 public:
  explicit Converter(Leaf leaf) : leaf_(std::move(leaf)) {}

  Signature Convert(nb::handle nest, size_t depth) {
    if (depth > Signature::kMaxDepth || ++nodes_ > Signature::kMaxNodes) {
      RaiseValueError("signature: more than " + std::to_string(Signature::kMaxDepth) + " levels or " +
                      std::to_string(Signature::kMaxNodes) + " nodes; flatten the structure");
    }
    const NestKind kind = KindOf(nest.ptr());
    if (kind == NestKind::kLeaf) return leaf_(nest);
    std::vector<nb::object> keys;
    std::vector<Signature> children;
    const Children pairs = ChildrenOf(nest.ptr(), kind);
    for (const auto& [key, child] : pairs) {
      if (kind != NestKind::kSequence && !PyUnicode_Check(key.ptr())) {
        RaiseTypeError("the keys of a dict must be str, " + ShortRepr(key) + " is of type " +
                       Py_TYPE(key.ptr())->tp_name);
      }
    }
    for (const auto& [key, child] : pairs) {
      keys.push_back(key);
      children.push_back(Convert(child, depth + 1));
    }
    return ValueOrRaise(MakeContainer(kind, nest.type(), keys, std::move(children)));
  }

 private:
  Leaf leaf_;
  size_t nodes_ = 0;
};

// --- To nests ---

nb::object ToText(std::string_view text) {
  return Own(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

nb::object ToDType(DType dtype) {
  return dtype == DType::kBfloat16 ? nb::object(nb::borrow(py_bfloat16_dtype.get())()) : ToNumpyDType(dtype);
}

nb::object ToArray(const Tensor& tensor, const nb::object& dtype) {
  if (tensor.dtype() == DType::kString) {
    std::vector<std::string_view> elements;
    return ToNumpy(ValueOrRaise(Tensor::CopyOf(tensor.view(&elements))));
  }
  const nb::bytes bytes(reinterpret_cast<const char*>(tensor.data()), tensor.num_bytes());
  const nb::object flat = nb::borrow(py_frombuffer.get())(bytes, dtype);
  return flat.attr("reshape")(ToTuple(Shape(tensor.dims())));
}

nb::object ToSpec(const Signature& leaf) {
  const TensorSpec& spec = leaf.spec();
  const nb::object shape = ToTuple(spec.shape);
  const nb::object dtype = ToDType(spec.dtype);
  const nb::object name = spec.name.empty() ? nb::none() : ToText(spec.name);
  const Signature::Bounds* const bounds = leaf.bounds();
  if (bounds == nullptr) return nb::borrow(py_tensor_spec.get())(shape, dtype, name);
  return nb::borrow(py_bounded_tensor_spec.get())(shape, dtype, ToArray(bounds->minimum, dtype),
                                                  ToArray(bounds->maximum, dtype), name);
}

// DecodeError, a ValueError, for bytes that are not a signature.
Signature ValueOrDecodeError(Result<Signature> decoded) {
  if (decoded.ok()) return *std::move(decoded);
  const nb::object message = Text(decoded.status().message());
  PyErr_SetObject(py_decode_error.get().ptr(), message.ptr());
  nb::raise_python_error();
}

nb::bytes ToBytes(const std::string& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

std::string_view View(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

}  // namespace

Signature ToSignature(nb::handle nest) { return Converter(ToLeaf).Convert(nest, 1); }

// Recurses at most Signature::kMaxDepth deep.
nb::object ToNest(const Signature& signature) {
  if (signature.kind() == Signature::Kind::kNone) return nb::none();
  if (signature.kind() == Signature::Kind::kLeaf) return ToSpec(signature);
  const auto children = signature.children();
  const auto keys = signature.keys();
  if (signature.kind() == Signature::Kind::kDict) {
    nb::dict dict;
    for (size_t i = 0; i < children.size(); ++i) dict[ToText(keys[i])] = ToNest(children[i]);
    return dict;
  }
  nb::list list;
  for (const Signature& child : children) list.append(ToNest(child));
  if (signature.kind() == Signature::Kind::kList) return list;
  nb::tuple tuple(list);
  if (signature.kind() == Signature::Kind::kTuple) return tuple;
  nb::list fields;
  for (const std::string& key : keys) fields.append(ToText(key));
  const nb::object type =
      nb::borrow(py_namedtuple_class.get())(ToText(signature.type_name()), nb::tuple(fields));
  return Own(PyObject_CallObject(type.ptr(), tuple.ptr()));
}

void BindSignatures(nb::module_& module) {
  module.def(
      "encode_signature", [](nb::handle nest) { return ToBytes(EncodeSignature(ToSignature(nest))); },
      "signature"_a, "Returns the encoding that servers keep for a nest of specs.");
  module.def(
      "decode_signature",
      [](const nb::bytes& data) { return ToNest(ValueOrDecodeError(DecodeSignature(View(data)))); }, "data"_a,
      "Returns the nest of specs. DecodeError when `data` is not a signature.");
  module.def(
      "encode_structured_value",
      [](nb::handle nest) { return ToBytes(EncodeStructuredValue(ToSignature(nest))); }, "signature"_a,
      "Returns the bytes of tensorflow.StructuredValue for a nest of specs.");
  module.def(
      "encode_structure",
      [](nb::handle nest) {
        Converter converter([](nb::handle) { return Signature(); });
        return ToBytes(EncodeStructuredValue(converter.Convert(nest, 1)));
      },
      "structure"_a.none(),
      "Returns the bytes of tensorflow.StructuredValue for a nest with None at all leaves.");
  module.def(
      "decode_structured_value",
      [](const nb::bytes& data) { return ToNest(ValueOrDecodeError(DecodeStructuredValue(View(data)))); },
      "data"_a, "Returns the nest of specs. DecodeError when `data` is not such a message.");
}

}  // namespace reverb::python
