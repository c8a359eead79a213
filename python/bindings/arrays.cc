#include "arrays.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <utility>

#include "errors.h"

namespace reverb::python {
namespace {

// --- NumPy's names, looked up once ---

// Two functions of NumPy's C API, which create arrays in a fraction of the time of numpy.ndarray(). Their positions in the
// table of the API have been the same in all versions since 1.7, and are part of NumPy's ABI.
struct NumPyApi {
  // Steals a reference to `descr`.
  PyObject* (*new_from_descr)(PyTypeObject* type, PyObject* descr, int rank, const Py_ssize_t* dims,
                              const Py_ssize_t* strides, void* data, int flags, PyObject* object) = nullptr;
  // Steals a reference to `base`, also if it fails.
  int (*set_base_object)(PyObject* array, PyObject* base) = nullptr;
};

struct NumPy {
  PyTypeObject* ndarray;
  PyTypeObject* generic;
  PyObject* asarray;
  PyObject* from_dlpack;
  PyObject* dtype;
  PyObject* object_dtype;
  PyObject* empty;
  size_t max_dims;
  NumPyApi api;                                          // null pointers if this NumPy has no such table
  PyObject* dtypes[24] = {};                             // by DType, created when first needed
  std::vector<std::pair<PyTypeObject*, DType>> scalars;  // numpy.float32 and so on
};

const std::pair<DType, const char*> kNumpyNames[] = {
    {DType::kFloat32, "float32"},     {DType::kFloat64, "float64"},       {DType::kInt32, "int32"},
    {DType::kUint8, "uint8"},         {DType::kInt16, "int16"},           {DType::kInt8, "int8"},
    {DType::kComplex64, "complex64"}, {DType::kInt64, "int64"},           {DType::kBool, "bool_"},
    {DType::kUint16, "uint16"},       {DType::kComplex128, "complex128"}, {DType::kFloat16, "float16"},
    {DType::kUint32, "uint32"},       {DType::kUint64, "uint64"},
};

// Returns the API of the module of NumPy with this name; nothing if there is none.
NumPyApi FindNumPyApi(const char* module) {
  constexpr size_t kNewFromDescr = 94, kSetBaseObject = 282;
  try {
    const nb::object capsule = nb::module_::import_(module).attr("_ARRAY_API");
    void** const table = static_cast<void**>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
    if (table == nullptr) nb::raise_python_error();
    return {reinterpret_cast<decltype(NumPyApi::new_from_descr)>(table[kNewFromDescr]),
            reinterpret_cast<decltype(NumPyApi::set_base_object)>(table[kSetBaseObject])};
  } catch (nb::python_error&) {
    return {};
  }
}

NumPy& TheNumPy() {
  static NumPy* numpy = nullptr;  // never destroyed: the interpreter may exit first
  if (numpy == nullptr) {
    auto made = std::make_unique<NumPy>();
    const nb::object module = nb::module_::import_("numpy");
    const auto keep = [&](const char* name) { return nb::object(module.attr(name)).release().ptr(); };
    made->ndarray = reinterpret_cast<PyTypeObject*>(keep("ndarray"));
    made->generic = reinterpret_cast<PyTypeObject*>(keep("generic"));
    made->asarray = keep("asarray");
    made->from_dlpack = keep("from_dlpack");
    // One fewer than an array can have: samples have time as their first dimension.
    const bool is_first_version = nb::cast<std::string>(module.attr("__version__")).starts_with("1.");
    made->max_dims = is_first_version ? 31 : 63;
    made->api =
        FindNumPyApi(is_first_version ? "numpy.core._multiarray_umath" : "numpy._core._multiarray_umath");
    made->dtype = keep("dtype");
    made->empty = keep("empty");
    made->object_dtype = nb::object(nb::borrow(made->dtype)("O")).release().ptr();
    for (const auto& [dtype, name] : kNumpyNames) {
      made->scalars.emplace_back(reinterpret_cast<PyTypeObject*>(keep(name)), dtype);
    }
    numpy = made.release();
  }
  return *numpy;
}

// Parses a buffer's format in native byte order; returns false for others.
bool ParseFormat(const char* format, Py_ssize_t item_size, DType* dtype) {
  if (format == nullptr) return false;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const bool is_complex = *format == 'Z';
  if (is_complex) ++format;
  if (format[0] == '\0' || format[1] != '\0') return false;
  switch (*format) {
    case '?':
      *dtype = DType::kBool;
      break;
    case 'b':
      *dtype = DType::kInt8;
      break;
    case 'B':
      *dtype = DType::kUint8;
      break;
    case 'h':
      *dtype = DType::kInt16;
      break;
    case 'H':
      *dtype = DType::kUint16;
      break;
    case 'i':
      *dtype = DType::kInt32;
      break;
    case 'I':
      *dtype = DType::kUint32;
      break;
    case 'l':
    case 'q':
      *dtype = item_size == 4 ? DType::kInt32 : DType::kInt64;
      break;
    case 'L':
    case 'Q':
      *dtype = item_size == 4 ? DType::kUint32 : DType::kUint64;
      break;
    case 'e':
      *dtype = DType::kFloat16;
      break;
    case 'f':
      *dtype = is_complex ? DType::kComplex64 : DType::kFloat32;
      break;
    case 'd':
      *dtype = is_complex ? DType::kComplex128 : DType::kFloat64;
      break;
    default:
      return false;
  }
  const bool may_be_complex = *dtype == DType::kComplex64 || *dtype == DType::kComplex128;
  return is_complex == may_be_complex && item_size == static_cast<Py_ssize_t>(ItemSize(*dtype));
}

[[noreturn]] void RaiseUnsupported(PyObject* array) {
  const nb::object dtype = nb::borrow(array).attr("dtype");
  const std::string name = nb::cast<std::string>(nb::str(dtype));
  RaiseTypeError(
      "values of dtype " + name +
      " cannot be stored; use a bool, integer, float or complex dtype of NumPy, ml_dtypes' bfloat16, or "
      "strings (bytes, str)");
}

// Returns the bytes of a str or bytes element. The view is valid as long as the object.
std::string_view StringView(PyObject* element) {
  if (PyBytes_Check(element)) {
    return {PyBytes_AS_STRING(element), static_cast<size_t>(PyBytes_GET_SIZE(element))};
  }
  if (PyUnicode_Check(element)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(element, &size);
    if (text == nullptr) nb::raise_python_error();
    return {text, static_cast<size_t>(size)};
  }
  RaiseTypeError("an array of objects can hold bytes and str only, this one holds " + ShortRepr(element) +
                 " of type " + Py_TYPE(element)->tp_name);
}

bool Has(PyObject* value, const char* attribute) { return PyObject_HasAttrString(value, attribute) != 0; }

// Returns the bits of torch's bfloat16, which NumPy does not know; null for other values.
nb::object BitsOfTorchBfloat16(PyObject* value) {
  const std::string_view type_name = Py_TYPE(value)->tp_name;
  if (type_name != "Tensor" && type_name != "Parameter") return {};
  PyObject* const torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");  // borrowed
  if (torch == nullptr || !Has(value, "dtype")) return {};
  const nb::object dtype = nb::borrow(value).attr("dtype");
  if (nb::cast<std::string>(nb::str(dtype)) != "torch.bfloat16") return {};
  const nb::object bits = nb::borrow(value)
                              .attr("detach")()
                              .attr("contiguous")()
                              .attr("view")(nb::borrow(torch).attr("int16"))
                              .attr("numpy")();
  // Only the name of the class was checked: verify that the value is what the name suggests.
  return nb::borrow(TheNumPy().asarray)(bits, "dtype"_a = "int16");
}

// Converts a value that is neither an array nor a plain scalar to an array, or raises TypeError.
nb::object MakeArray(PyObject* value, bool* is_bfloat16) {
  if (nb::object bits = BitsOfTorchBfloat16(value); bits.is_valid()) {
    *is_bfloat16 = true;
    return bits;
  }
  const NumPy& numpy = TheNumPy();
  const bool supports_only_dlpack = Has(value, "__dlpack__") && !Has(value, "__array__") &&
                                    !Has(value, "__array_interface__") && !PyObject_CheckBuffer(value);
  if (supports_only_dlpack) return nb::borrow(numpy.from_dlpack)(nb::borrow(value));
  if (PyObject* array = PyObject_CallOneArg(numpy.asarray, value)) return nb::steal(array);
  if (!PyErr_ExceptionMatches(PyExc_ValueError)) nb::raise_python_error();
  PyErr_Clear();
  // Scalars of TensorFlow whose __array__ is a scalar and not an array.
  if (PyObject* scalar = Has(value, "numpy") ? PyObject_CallMethod(value, "numpy", nullptr) : nullptr) {
    PyObject* array = PyObject_CallOneArg(numpy.asarray, scalar);
    Py_DECREF(scalar);
    if (array != nullptr) return nb::steal(array);
  }
  if (PyErr_Occurred()) ClearException();
  // Ragged lists inside objects and the like cannot be tensors.
  RaiseTypeError("cannot make an array of " + ShortRepr(value));
}

}  // namespace

bool IsPlainLeaf(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const NumPy& numpy = TheNumPy();
  return type == numpy.ndarray || object == Py_None || type == &PyFloat_Type || type == &PyLong_Type ||
         type == &PyBool_Type || type == &PyUnicode_Type || type == &PyBytes_Type ||
         PyType_IsSubtype(type, numpy.generic) || PyType_IsSubtype(type, numpy.ndarray);
}

// --- Views ---

void Views::Clear() {
  for (size_t i = 0; i < used_; ++i) {
    Slot& slot = slots_[i];
    if (slot.has_buffer) PyBuffer_Release(&slot.buffer);
    slot.has_buffer = false;
    Py_CLEAR(slot.kept);
    slot.strings.clear();
  }
  used_ = 0;
  bytes_ = 0;
}

TensorView Views::Add(PyObject* value) {
  if (used_ == slots_.size()) slots_.emplace_back();
  Slot& slot = slots_[used_++];  // counted before anything can fail, so that Clear() releases it
  const TensorView view = Convert(slot, value);
  if (view.dims.size() > TheNumPy().max_dims) [[unlikely]] {
    RaiseTypeError("an array of " + std::to_string(view.dims.size()) +
                   " dimensions cannot be stored: with time in front a " +
                   "sample of it would have more than NumPy's arrays; at most " +
                   std::to_string(TheNumPy().max_dims) + " can");
  }
  bytes_ += view.dtype == DType::kString ? 16 * view.num_elements() : view.num_bytes();
  return view;
}

TensorView Views::Convert(Slot& slot, PyObject* value) {
  const NumPy& numpy = TheNumPy();
  PyTypeObject* type = Py_TYPE(value);
  if (type == numpy.ndarray) [[likely]] {
    if (PyObject_GetBuffer(value, &slot.buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0) [[likely]] {
      slot.has_buffer = true;
      DType dtype;
      if (ParseFormat(slot.buffer.format, slot.buffer.itemsize, &dtype)) [[likely]] {
        static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
        return {dtype,
                {reinterpret_cast<const int64_t*>(slot.buffer.shape), static_cast<size_t>(slot.buffer.ndim)},
                slot.buffer.buf};
      }
      PyBuffer_Release(&slot.buffer);
      slot.has_buffer = false;
    } else {
      PyErr_Clear();
    }
    return FromArray(slot, value);
  }
  if (type == &PyFloat_Type) return Scalar(slot, DType::kFloat64, PyFloat_AS_DOUBLE(value));
  if (type == &PyBool_Type) return Scalar(slot, DType::kBool, static_cast<uint8_t>(value == Py_True));
  if (type == &PyLong_Type) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) return Scalar(slot, DType::kInt64, static_cast<int64_t>(number));
    if (overflow > 0) {
      const unsigned long long large = PyLong_AsUnsignedLongLong(value);
      if (!PyErr_Occurred()) return Scalar(slot, DType::kUint64, static_cast<uint64_t>(large));
      PyErr_Clear();
    }
    RaiseTypeError("the integer " + ShortRepr(value) + " does not fit into 64 bits");
  }
  if (PyBytes_Check(value) || PyUnicode_Check(value)) return String(slot, value);
  for (const auto& [scalar_type, dtype] : numpy.scalars) {
    if (type != scalar_type) continue;
    Py_buffer buffer;
    if (PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE) != 0) nb::raise_python_error();
    std::memcpy(slot.scalar, buffer.buf,
                std::min<size_t>(sizeof slot.scalar, static_cast<size_t>(buffer.len)));
    PyBuffer_Release(&buffer);
    return {dtype, {slot.dims, 0}, slot.scalar};
  }
  bool is_bfloat16 = false;
  slot.kept = MakeArray(value, &is_bfloat16).release().ptr();
  TensorView view = FromArray(slot, slot.kept);
  if (is_bfloat16) view.dtype = DType::kBfloat16;
  return view;
}

// Converts any array. The caller or slot.kept keeps `array` alive.
TensorView Views::FromArray(Slot& slot, PyObject* array) {
  const NumPy& numpy = TheNumPy();
  const nb::object dtype = nb::borrow(array).attr("dtype");
  const std::string kind = nb::cast<std::string>(dtype.attr("kind"));
  if (kind == "O" || kind == "S" || kind == "U" || kind == "T") return Strings(slot, array);
  nb::object ready = nb::borrow(array);
  const bool is_bfloat16 = nb::cast<std::string>(dtype.attr("name")) == "bfloat16";
  if (is_bfloat16) {
    ready = ready.attr("view")("uint16");
  } else if (!nb::cast<bool>(dtype.attr("isnative"))) {
    ready = ready.attr("astype")(dtype.attr("newbyteorder")("="));
  }
  ready = nb::borrow(numpy.asarray)(ready, "order"_a = "C");
  PyObject* former = std::exchange(slot.kept, ready.ptr());
  Py_INCREF(slot.kept);
  Py_XDECREF(former);
  if (PyObject_GetBuffer(slot.kept, &slot.buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    RaiseUnsupported(array);
  }
  slot.has_buffer = true;
  DType parsed;
  if (!ParseFormat(slot.buffer.format, slot.buffer.itemsize, &parsed)) RaiseUnsupported(array);
  return {is_bfloat16 ? DType::kBfloat16 : parsed,
          {reinterpret_cast<const int64_t*>(slot.buffer.shape), static_cast<size_t>(slot.buffer.ndim)},
          slot.buffer.buf};
}

TensorView Views::Strings(Slot& slot, PyObject* array) {
  const nb::object shape = nb::borrow(array).attr("shape");
  slot.own_dims.clear();
  for (const nb::handle dim : shape) slot.own_dims.push_back(nb::cast<int64_t>(dim));
  nb::object flat = nb::borrow(array).attr("ravel")().attr("tolist")();
  // The list owns the elements, which own the bytes. Elements of fixed width are new objects.
  PyObject* former = std::exchange(slot.kept, flat.ptr());
  Py_INCREF(slot.kept);
  Py_XDECREF(former);
  const Py_ssize_t count = PyList_GET_SIZE(flat.ptr());
  slot.strings.clear();
  slot.strings.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) slot.strings.push_back(StringView(PyList_GET_ITEM(flat.ptr(), i)));
  return {DType::kString, slot.own_dims, slot.strings.data()};
}

template <typename T>
TensorView Views::Scalar(Slot& slot, DType dtype, T value) {
  std::memcpy(slot.scalar, &value, sizeof value);
  return {dtype, {slot.dims, 0}, slot.scalar};
}

TensorView Views::String(Slot& slot, PyObject* value) {
  Py_INCREF(value);
  slot.kept = value;
  slot.strings.assign(1, StringView(value));
  return {DType::kString, {slot.dims, 0}, slot.strings.data()};
}

// --- Tensors as arrays ---

namespace {

// Owns the memory of an array that was made from a tensor.
struct Memory {
  Tensor tensor;
};

uint8_t no_bytes = 0;  // the data of empty arrays

int GetMemory(PyObject* self, Py_buffer* view, int flags) {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_BufferError, "this memory was never initialised");
    return -1;
  }
  Tensor& tensor = nb::inst_ptr<Memory>(self)->tensor;
  void* data = tensor.num_bytes() > 0 ? static_cast<void*>(tensor.data()) : &no_bytes;
  return PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(tensor.num_bytes()), 0, flags);
}

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(GetMemory)}, {0, nullptr}};

nb::object ToTupleOfDims(const std::vector<int64_t>& dims) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(dims.size()));
  if (tuple == nullptr) nb::raise_python_error();
  for (size_t i = 0; i < dims.size(); ++i) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(dims[i]));
  }
  return nb::steal(tuple);
}

// Returns an array of the values at `data`, `offset` bytes after the start of `memory`, which it keeps alive.
nb::object ArrayOver(const nb::object& memory, size_t offset, uint8_t* data, DType dtype,
                     const std::vector<int64_t>& dims) {
  const NumPy& numpy = TheNumPy();
  nb::object descr = ToNumpyDType(dtype);
  if (numpy.api.new_from_descr == nullptr) {
    const nb::object shape = ToTupleOfDims(dims);
    const nb::object offset_object = Own(PyLong_FromSize_t(offset));
    PyObject* arguments[] = {shape.ptr(), descr.ptr(), memory.ptr(), offset_object.ptr()};
    return Own(PyObject_Vectorcall(reinterpret_cast<PyObject*>(numpy.ndarray), arguments, 4, nullptr));
  }
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
  constexpr int kContiguousAlignedWriteable = 0x0001 | 0x0100 | 0x0400;
  nb::object array =
      Own(numpy.api.new_from_descr(numpy.ndarray, descr.release().ptr(), static_cast<int>(dims.size()),
                                   reinterpret_cast<const Py_ssize_t*>(dims.data()), nullptr,
                                   data != nullptr ? data : &no_bytes, kContiguousAlignedWriteable, nullptr));
  if (numpy.api.set_base_object(array.ptr(), nb::object(memory).release().ptr()) != 0) {
    nb::raise_python_error();
  }
  return array;
}

nb::object StringsToNumpy(const Tensor& tensor) {
  const NumPy& numpy = TheNumPy();
  const nb::object flat =
      nb::borrow(numpy.empty)(static_cast<int64_t>(tensor.num_elements()), nb::borrow(numpy.object_dtype));
  const nb::object elements = Own(PyList_New(static_cast<Py_ssize_t>(tensor.num_elements())));
  for (size_t i = 0; i < tensor.num_elements(); ++i) {
    const std::string& text = tensor.strings()[i];
    PyObject* bytes = PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
    if (bytes == nullptr) nb::raise_python_error();
    PyList_SET_ITEM(elements.ptr(), static_cast<Py_ssize_t>(i), bytes);
  }
  if (PyObject_SetItem(flat.ptr(), Own(PySlice_New(nullptr, nullptr, nullptr)).ptr(), elements.ptr()) != 0) {
    nb::raise_python_error();
  }
  return flat.attr("reshape")(ToTupleOfDims(tensor.dims()));
}

}  // namespace

nb::object ToNumpyDType(DType dtype) {
  NumPy& numpy = TheNumPy();
  PyObject*& known = numpy.dtypes[static_cast<size_t>(dtype)];
  if (known == nullptr) {
    nb::object made;
    if (dtype == DType::kString) {
      made = nb::borrow(numpy.object_dtype);
    } else if (dtype == DType::kBfloat16) {
      try {
        made = nb::borrow(numpy.dtype)(nb::module_::import_("ml_dtypes").attr("bfloat16"));
      } catch (nb::python_error& error) {
        if (!error.matches(PyExc_ImportError)) throw;
        RaiseTypeError("the values are bfloat16, which NumPy gets from the package ml_dtypes; install it");
      }
    } else {
      const std::string_view name = DTypeName(dtype);
      made = nb::borrow(numpy.dtype)(nb::str(name.data(), name.size()));
    }
    known = made.release().ptr();
  }
  return nb::borrow(known);
}

DType FromNumpyDType(nb::handle dtype) {
  const NumPy& numpy = TheNumPy();
  const nb::object made = nb::borrow(numpy.dtype)(dtype);
  const std::string kind = nb::cast<std::string>(made.attr("kind"));
  if (kind == "O" || kind == "S" || kind == "U" || kind == "T") return DType::kString;
  const std::string name = nb::cast<std::string>(made.attr("name"));
  if (const std::optional<DType> found = ParseDType(name)) return *found;
  RaiseTypeError("dtype " + name + " is not supported");
}

nb::object ToNumpy(Tensor tensor) {
  if (tensor.dtype() == DType::kString) return StringsToNumpy(tensor);
  const nb::object memory = nb::cast(Memory{std::move(tensor)});
  Tensor& kept = nb::inst_ptr<Memory>(memory)->tensor;
  return ArrayOver(memory, 0, kept.data(), kept.dtype(), kept.dims());
}

ArrayBlock::ArrayBlock(size_t bytes, const TensorPool& pool)
    : memory_(nb::cast(
          Memory{ValueOrRaise(Tensor::Allocate(DType::kUint8, {static_cast<int64_t>(bytes)}, pool))})),
      data_(nb::inst_ptr<Memory>(memory_)->tensor.data()),
      bytes_(bytes) {}

nb::object ArrayBlock::Add(DType dtype, const void* values, size_t count) {
  const size_t bytes = count * ItemSize(dtype);
  assert(used_ + bytes <= bytes_);
  uint8_t* const data = data_ + used_;
  if (bytes > 0) std::memcpy(data, values, bytes);
  nb::object array = ArrayOver(memory_, used_, data, dtype, {static_cast<int64_t>(count)});
  used_ += bytes;
  return array;
}

nb::object ToTuple(const Shape& shape) {
  if (!shape.has_rank()) return nb::none();
  const nb::object tuple = Own(PyTuple_New(static_cast<Py_ssize_t>(shape.rank())));
  for (size_t i = 0; i < shape.rank(); ++i) {
    PyObject* dim =
        shape.dim(i) == Shape::kUnknownDim ? nb::none().release().ptr() : PyLong_FromLongLong(shape.dim(i));
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), dim);
  }
  return tuple;
}

// --- Numbers ---

double ToDouble(nb::handle value, const char* name) {
  if (PyFloat_Check(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
  if (!PyUnicode_Check(value.ptr()) && !PyBytes_Check(value.ptr()) && !value.is_none()) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (number != -1.0 || !PyErr_Occurred()) return number;
    ClearException();
    // Arrays of one element, and variables of frameworks that can be converted to an array.
    PyObject* array = PyObject_CallOneArg(TheNumPy().asarray, value.ptr());
    if (array != nullptr) {
      const nb::object owned = nb::steal(array);
      if (nb::cast<int64_t>(owned.attr("size")) == 1 &&
          nb::cast<std::string>(owned.attr("dtype").attr("kind")) != "O") {
        PyObject* item = PyObject_CallMethod(array, "item", nullptr);
        const double from_array = item ? PyFloat_AsDouble(item) : -1.0;
        Py_XDECREF(item);
        if (from_array != -1.0 || !PyErr_Occurred()) return from_array;
      }
    }
    if (PyErr_Occurred()) ClearException();
  }
  RaiseTypeError(std::string(name) + " must be a number, got " + ShortRepr(value) + " of type " +
                 Py_TYPE(value.ptr())->tp_name);
}

uint64_t ToKey(nb::handle value) {
  PyObject* index = PyNumber_Index(value.ptr());
  if (index == nullptr) {
    ClearException();
    const char* const remedy = PyFloat_Check(value.ptr())
                                   ? "; make arrays of keys with dtype=np.uint64, lest NumPy takes floats"
                                   : "";
    RaiseTypeError("a key must be an unsigned 64-bit integer, got " + ShortRepr(value) + " of type " +
                   Py_TYPE(value.ptr())->tp_name + remedy);
  }
  const unsigned long long key = PyLong_AsUnsignedLongLong(index);
  Py_DECREF(index);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    RaiseTypeError("a key must be an unsigned 64-bit integer, got " + ShortRepr(value));
  }
  return key;
}

void BindArrays(nb::module_& module) {
  nb::class_<Memory>(module, "_Memory", nb::type_slots(memory_slots), "The memory of an array.");
  module.def(
      "_round_trip",
      [](nb::handle value) {
        Views views;
        return ToNumpy(ValueOrRaise(Tensor::CopyOf(views.Add(value.ptr()))));
      },
      "value"_a.none(), "Returns `value` as it is after storing it; for tests of the conversions.");
}

}  // namespace reverb::python
