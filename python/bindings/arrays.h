// arrays.h — values of Python as tensors, and tensors as NumPy arrays.
//
// In: NumPy arrays and scalars, Python's bool, int, float, complex, bytes and str, and whatever NumPy makes
// an array of, or what speaks DLPack (jax, torch and TensorFlow tensors do). Memory is borrowed where it lies
// in order already. Arrays of str, bytes and objects become strings, str as UTF-8; other byte orders are
// swapped; bfloat16 is that of ml_dtypes. TypeError for anything else. Out: arrays that own their memory and
// can be written to. Strings are objects of type bytes.
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

// The types that mean a leaf at first sight. REQUIRES: the GIL.
bool IsPlainLeaf(PyObject* object);

// Views of Python values, valid until Clear(). Kept and reused from call to call.
// Threads: with the GIL, save that the views may be read without it.
class Views {
 public:
  Views() = default;
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;
  ~Views() { Clear(); }

  // TypeError for what is no tensor.
  TensorView Add(PyObject* value);
  // Bytes of all that was added; string elements count sixteen each.
  size_t bytes() const { return bytes_; }
  // REQUIRES: the GIL.
  void Clear();

 private:
  struct Slot {
    Py_buffer buffer{};
    bool has_buffer = false;
    PyObject* kept = nullptr;  // what the memory belongs to, beside the buffer
    alignas(16) uint8_t scalar[16];
    int64_t dims[1];  // of values that are no arrays: none
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

// The tensor as an array that owns its memory.
nb::object ToNumpy(Tensor tensor);
// numpy.dtype of it; TypeError for bfloat16 without ml_dtypes.
nb::object ToNumpyDType(DType dtype);
// Of a numpy.dtype, or what numpy.dtype() takes. TypeError for those that are not supported.
DType FromNumpyDType(nb::handle dtype);
// (2, 84, None).
nb::object ToTuple(const Shape& shape);

// A float out of whatever has one: numbers, NumPy scalars, arrays of one element, tf.Variable. TypeError for
// str and None.
double ToDouble(nb::handle value, const char* name);
// An unsigned 64-bit integer; TypeError for floats and what is out of range.
uint64_t ToKey(nb::handle value);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_ARRAYS_H_
