// indices.h — indices of histories and columns: an int, a slice or a list of ints.
#ifndef REVERB_PYTHON_INDICES_H_
#define REVERB_PYTHON_INDICES_H_

#include <string>

#include "errors.h"
#include "python_api.h"

namespace reverb::python {

// Raises TypeError: `what` ("a history") cannot be indexed with `key`.
[[noreturn]] inline void RaiseBadKey(const char* what, PyObject* key) {
  RaiseTypeError(std::string(what) + " can be indexed with an int, a slice or a list of ints, not with " +
                 ShortRepr(key) + " of type " + Py_TYPE(key)->tp_name);
}

// IndexError for numbers out of range.
inline Py_ssize_t ToIndex(PyObject* index) {
  const Py_ssize_t position = PyNumber_AsSsize_t(index, PyExc_IndexError);
  if (position == -1 && PyErr_Occurred()) nb::raise_python_error();
  return position;
}

// Calls visit(index) for each element of a list. An element's __index__ may change the list: the element is
// referenced during the call, and the size is read again.
template <typename Visit>
void ForEachIndex(PyObject* list, const char* what, Visit visit) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    const nb::object item = Borrow(PyList_GET_ITEM(list, i));
    if (!PyIndex_Check(item.ptr())) RaiseBadKey(what, list);
    visit(ToIndex(item.ptr()));
  }
}

}  // namespace reverb::python

#endif  // REVERB_PYTHON_INDICES_H_
