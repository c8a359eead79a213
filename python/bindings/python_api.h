// python_api.h — Python, nanobind, and helpers that every file of the bindings uses.
#ifndef REVERB_PYTHON_API_H_
#define REVERB_PYTHON_API_H_

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <new>
#include <utility>

namespace reverb::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

// Each adds its classes to the module.
void BindLog(nb::module_& module);
void BindGil(nb::module_& module);
void BindArrays(nb::module_& module);
void BindTree(nb::module_& module);
void BindSignatures(nb::module_& module);
void BindSelectors(nb::module_& module);
void BindTable(nb::module_& module);
void BindCheckpoints(nb::module_& module);
void BindAccess(nb::module_& module);
void BindServer(nb::module_& module);
void BindClient(nb::module_& module);
void BindLeases(nb::module_& module);
void BindRows(nb::module_& module);
void BindCompletions(nb::module_& module);
void BindAsyncRows(nb::module_& module);
void BindSampler(nb::module_& module);
void BindBatches(nb::module_& module);
void BindSampleStream(nb::module_& module);
void BindColumns(nb::module_& module);
void BindTrajectoryWriter(nb::module_& module);
void BindVectorColumns(nb::module_& module);
void BindVectorWriter(nb::module_& module);
void BindStructuredWriter(nb::module_& module);
void BindLegacyWriter(nb::module_& module);

// Returns a new reference to `object`.
template <typename T = nb::object>
T Borrow(PyObject* object) {
  return nb::borrow<T>(nb::handle(object));
}
// Takes ownership of a new reference; throws the pending exception if it is null.
inline nb::object Own(PyObject* object) {
  if (object == nullptr) nb::raise_python_error();
  return nb::steal(object);
}

// Returns a new Python object of the class `type`, which is bound to T.
template <typename T>
nb::object Make(PyTypeObject* type, T value) {
  nb::object made = nb::inst_alloc(nb::handle(reinterpret_cast<PyObject*>(type)));
  new (nb::inst_ptr<T>(made)) T(std::move(value));
  nb::inst_mark_ready(made);
  return made;
}

// Calls a function at the end of a block, however the block ends.
template <typename F>
class Finally {
 public:
  explicit Finally(F f) : f_(std::move(f)) {}
  ~Finally() { f_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  F f_;
};

// An argument of any type, converted to bool as by `if`: NumPy's bools work too.
struct Truth {
  bool value = false;
};

// A name of a module, looked up at the first use and never released. REQUIRES: the GIL.
class Lazy {
 public:
  constexpr Lazy(const char* module, const char* name) : module_(module), name_(name) {}
  nb::handle get() {
    if (object_ == nullptr) {
      object_ = nb::object(nb::module_::import_(module_).attr(name_)).release().ptr();
    }
    return object_;
  }

 private:
  const char* module_;
  const char* name_;
  PyObject* object_ = nullptr;
};

}  // namespace reverb::python

template <>
struct nanobind::detail::type_caster<reverb::python::Truth> {
  NB_TYPE_CASTER(reverb::python::Truth, const_name("bool"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    const int truth = PyObject_IsTrue(source.ptr());
    if (truth < 0) PyErr_Clear();
    value.value = truth > 0;
    return truth >= 0;
  }
  static handle from_cpp(const reverb::python::Truth& truth, rv_policy, cleanup_list*) noexcept {
    return handle(truth.value ? Py_True : Py_False).inc_ref();
  }
};

#endif  // REVERB_PYTHON_API_H_
