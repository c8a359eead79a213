#include "introspection.h"

#include "errors.h"

namespace reverb::python {
namespace {

// Calls a function of reverb._introspection, which reads nanobind's description of the native function.
PyObject* Describe(Lazy& describe, PyObject* function) {
  try {
    return nb::object(describe.get()(nb::handle(function))).release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
}

PyObject* GetSignature(PyObject* function, void*) {
  static Lazy signature_of("reverb._introspection", "signature_of");
  return Describe(signature_of, function);
}

// help() reads `__doc__` through the type, and prints the signature itself. An access by name gets nanobind's text,
// which starts with the signature.
PyObject* GetDoc(PyObject* function, void*) {
  static Lazy description_of("reverb._introspection", "description_of");
  return Describe(description_of, function);
}

// Returns the function or bound method itself: there is nothing to bind. The presence of `__get__` makes
// inspect.isroutine() true, so that help() shows a routine.
PyObject* GetUnchanged(PyObject* function, PyObject*) {
  Py_INCREF(function);
  return function;
}

PyGetSetDef g_signature = {"__signature__", &GetSignature, nullptr, "For inspect.signature().", nullptr};
PyGetSetDef g_doc = {"__doc__", &GetDoc, nullptr, nullptr, nullptr};
PyMethodDef g_get = {"__get__", &GetUnchanged, METH_VARARGS, "Returns the function itself."};

// Adds to the dictionary of the type: nanobind's types are immutable from Python. They belong to the nanobind
// domain of this module, so that other extensions are not affected.
void AddToType(PyTypeObject* type, const char* name, PyObject* descriptor) {
  const nb::object owned = Own(descriptor);
#if PY_VERSION_HEX >= 0x030C0000
  const nb::object dict = Own(PyType_GetDict(type));
#else
  const nb::object dict = Borrow(type->tp_dict);
#endif
  if (PyDict_SetItemString(dict.ptr(), name, owned.ptr()) != 0) nb::raise_python_error();
  PyType_Modified(type);
}

void AddDescription(PyTypeObject* type) {
  AddToType(type, g_signature.name, PyDescr_NewGetSet(type, &g_signature));
  AddToType(type, g_doc.name, PyDescr_NewGetSet(type, &g_doc));
}

}  // namespace

void BindIntrospection(nb::module_& module) {
  // Classes that are generic in the stub accept a subscript, which is ignored: TrajectoryWriter[dict[str, Any]].
  for (const char* const name : {"BatchIterator", "SampleIterator", "TrajectoryWriter", "VectorWriter"}) {
    module.attr(name).attr("__class_getitem__") =
        Own(PyClassMethod_New(reinterpret_cast<PyObject*>(&Py_GenericAliasType)));
  }
  const nb::object selector_type = module.attr("FifoSelector");
  const nb::object function = module.attr("set_wait_log_after");
  const nb::object method = selector_type.attr("__init__");
  const nb::object bound = selector_type().attr("__reduce__");
  for (const nb::object& each : {function, method, bound}) AddDescription(Py_TYPE(each.ptr()));
  for (const nb::object& each : {function, bound}) {  // methods have one
    AddToType(Py_TYPE(each.ptr()), g_get.ml_name, PyDescr_NewMethod(Py_TYPE(each.ptr()), &g_get));
  }
}

}  // namespace reverb::python
