#include "errors.h"

namespace reverb::python {
namespace {

Lazy deadline_exceeded("reverb.errors", "DeadlineExceededError");
Lazy structure_error("reverb.errors", "StructureError");
Lazy step_not_available("reverb.errors", "StepNotAvailableError");

nb::handle TypeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return PyExc_ValueError;
    case StatusCode::kResourceExhausted:
      return PyExc_IndexError;
    case StatusCode::kUnimplemented:
      return PyExc_NotImplementedError;
    case StatusCode::kDeadlineExceeded:
      return deadline_exceeded.get();
    default:
      return PyExc_RuntimeError;
  }
}

[[noreturn]] void RaiseAs(nb::handle type, std::string_view message) {
  PyErr_SetObject(type.ptr(), Text(message).ptr());
  nb::raise_python_error();
}

// Raises `exception` in the main thread, at the next point where it handles signals. Steals the reference.
void RaiseLater(PyObject* exception) {
  const auto raise = [](void* argument) {
    auto* const pending = static_cast<PyObject*>(argument);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(pending)), pending);
    Py_DECREF(pending);
    return -1;
  };
  if (Py_AddPendingCall(raise, exception) != 0) Py_DECREF(exception);  // the queue of pending calls is full
}

}  // namespace

void ReportOrRaiseLater(nb::python_error& error) {
  if (!error.matches(PyExc_Exception))
    return RaiseLater(nb::object(nb::borrow(error.value())).release().ptr());
  error.restore();
  PyErr_WriteUnraisable(nullptr);
}

nb::object Text(std::string_view text) {
  return Own(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

void Raise(const Status& status, const std::string& message) {
  const nb::handle type = TypeOf(status.code());
  const nb::object error = nb::borrow(type)(Text(message));
  const std::string_view code = StatusCodeName(status.code());
  error.attr("code") = nb::str(code.data(), code.size());
  const std::string_view detail = DetailName(status.detail());
  error.attr("detail") = detail.empty() ? nb::none() : nb::object(nb::str(detail.data(), detail.size()));
  PyErr_SetObject(type.ptr(), error.ptr());
  nb::raise_python_error();
}

void Raise(const Status& status) { Raise(status, std::string(status.message())); }

void RaiseStructureError(const std::string& message) { RaiseAs(structure_error.get(), message); }
void RaiseStepNotAvailable(const std::string& message) { RaiseAs(step_not_available.get(), message); }
void RaiseTypeError(const std::string& message) { RaiseAs(PyExc_TypeError, message); }
void RaiseValueError(const std::string& message) { RaiseAs(PyExc_ValueError, message); }

void ClearException() {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) nb::raise_python_error();
  PyErr_Clear();
}

std::string ShortRepr(nb::handle object) {
  constexpr size_t kMaxLength = 100;
  PyObject* repr = PyObject_Repr(object.ptr());
  const char* text = repr ? PyUnicode_AsUTF8(repr) : nullptr;
  std::string result = text ? text : std::string("a ") + Py_TYPE(object.ptr())->tp_name;
  PyErr_Clear();
  Py_XDECREF(repr);
  if (result.size() > kMaxLength) {
    size_t cut = kMaxLength;
    while (cut > 0 && (result[cut] & 0xC0) == 0x80) --cut;
    result = result.substr(0, cut) + "…";
  }
  return result;
}

}  // namespace reverb::python
