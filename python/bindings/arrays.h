// arrays.h — conversion of Python values to tensors, and of tensors to NumPy arrays.
//
// To tensors: NumPy arrays and scalars, Python's bool, int, float, complex, bytes and str, anything that
// NumPy converts to an array, and objects that support DLPack (jax, torch and TensorFlow tensors do).
// Contiguous memory is borrowed. Arrays of str, bytes and objects become strings, str as UTF-8; other byte
// orders are swapped; bfloat16 is that of ml_dtypes. TypeError for anything else. To arrays: they own their
// memory and are writable. Strings are objects of type bytes.
#ifndef REVERB_PYTHON_ARRAYS_H_
#define REVERB_PYTHON_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "python_api.h"
#include "reverb/tensor.h"

namespace reverb::python {

// Returns whether the exact type of `object` shows that it is a leaf. REQUIRES: the GIL.
bool IsPlainLeaf(PyObject* object);

// Views of Python values, valid until Clear(). Reused from call to call.
// Threads: with the GIL; only reading the views needs none.
class Views {
 public:
  Views() = default;
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;
  ~Views() { Clear(); }

  // TypeError for values that cannot be converted to a tensor.
  TensorView Add(PyObject* value);
  // Returns the bytes of all added values; a string element counts as sixteen.
  size_t bytes() const { return bytes_; }
  // REQUIRES: the GIL.
  void Clear();

 private:
  struct Slot {
    Py_buffer buffer{};
    bool has_buffer = false;
    PyObject* kept = nullptr;  // the owner of the memory, besides the buffer
    alignas(16) uint8_t scalar[16];
    int64_t dims[1];  // of scalars: unused
    std::vector<int64_t> own_dims;
    std::vector<std::string_view> strings;
  };

  static TensorView FromArray(Slot& slot, PyObject* array);
  static TensorView Strings(Slot& slot, PyObject* array);
  template <typename T>
  static TensorView Scalar(Slot& slot, DType dtype, T value);
  static TensorView String(Slot& slot, PyObject* value);
  static TensorView Convert(Slot& slot, PyObject* value);

  std::deque<Slot> slots_;
  size_t used_ = 0;
  size_t bytes_ = 0;
};

// Returns the tensor as an array that owns its memory.
nb::object ToNumpy(Tensor tensor);

// Makes small arrays of one dimension over one block of memory, which lives as long as any of them: each array costs
// less than one with memory of its own.
class ArrayBlock {
 public:
  ArrayBlock(size_t bytes, const TensorPool& pool);
  // Returns an array with a copy of the values. REQUIRES: the block has space left for them, and what was added before is
  // aligned for this dtype: add large dtypes first.
  nb::object Add(DType dtype, const void* values, size_t count);

 private:
  const nb::object memory_;
  uint8_t* const data_;
  const size_t bytes_;
  size_t used_ = 0;
};

// TypeError for bfloat16 without ml_dtypes.
nb::object ToNumpyDType(DType dtype);
// Converts a numpy.dtype, or what numpy.dtype() accepts. TypeError for unsupported dtypes.
DType FromNumpyDType(nb::handle dtype);
// Returns (2, 84, None) for [2, 84, ?]; None for an unknown rank.
nb::object ToTuple(const Shape& shape);

// Converts numbers, NumPy scalars, arrays of one element and tf.Variable to a float. TypeError for str and
// None; `name` is the argument's.
double ToDouble(nb::handle value, const char* name);
// Converts to an unsigned 64-bit integer; TypeError for floats and numbers out of range.
uint64_t ToKey(nb::handle value);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_ARRAYS_H_
