#include "vector_columns.h"

#include <new>
#include <optional>
#include <string>

#include "errors.h"
#include "indices.h"

namespace reverb::python {
namespace {

// The classes, never released: instances may outlive the module.
PyTypeObject* vector_history_type = nullptr;
PyTypeObject* vector_column_type = nullptr;

StepRange FromSlice(uint32_t column, PyObject* key) {
  Py_ssize_t start = 0, stop = 0, step = 0;
  if (PySlice_Unpack(key, &start, &stop, &step) != 0) nb::raise_python_error();
  const auto* slice = reinterpret_cast<PySliceObject*>(key);
  StepRange range{.column = column, .stride = step};
  if (slice->start != Py_None) range.begin = start;
  if (slice->stop != Py_None) range.end = stop;
  return range;
}

nb::object Choose(const VectorColumnHistory& history, PyObject* key) {
  VectorColumn column{history.state, {}, false, history.path};
  if (PySlice_Check(key)) {
    column.steps.push_back(FromSlice(history.column, key));
  } else if (PyList_Check(key)) {
    ForEachIndex(key, "a history", [&](Py_ssize_t position) {
      column.steps.push_back(StepRange::One(history.column, position));
    });
  } else if (PyIndex_Check(key)) {
    column.steps.push_back(StepRange::One(history.column, ToIndex(key)));
    column.squeeze = true;
  } else {
    RaiseBadKey("a history", key);
  }
  return Make(vector_column_type, std::move(column));
}

nb::object Stack(const VectorColumnHistory& history, int64_t rows, std::optional<int64_t> end) {
  // Zero would mean a range that is not a stack.
  if (rows < 1) RaiseValueError("stack: `n` must be at least 1, got " + std::to_string(rows));
  return Make(
      vector_column_type,
      VectorColumn{history.state, {StepRange::Stack(history.column, rows, end)}, false, history.path});
}

// C++ exceptions must not leave this function.
PyObject* Subscript(PyObject* self, PyObject* key) noexcept {
  try {
    if (!nb::inst_ready(self)) RaiseTypeError("this VectorColumnHistory was never initialised");
    return Choose(*nb::inst_ptr<VectorColumnHistory>(self), key).release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

const PyType_Slot vector_history_slots[] = {{Py_mp_subscript, reinterpret_cast<void*>(Subscript)},
                                            {0, nullptr}};

}  // namespace

nb::object MakeVectorHistory(std::shared_ptr<VectorWriterState> state, uint32_t column, nb::object path) {
  return Make(vector_history_type, VectorColumnHistory{std::move(state), column, std::move(path)});
}

const VectorColumn* AsVectorColumn(PyObject* object) {
  if (!PyObject_TypeCheck(object, vector_column_type) || !nb::inst_ready(object)) return nullptr;
  return nb::inst_ptr<VectorColumn>(object);
}

void BindVectorColumns(nb::module_& module) {
  auto history = nb::class_<VectorColumnHistory>(
      module, "VectorColumnHistory", nb::type_slots(vector_history_slots),
      "One column of the steps of all environments.\n\n"
      "Indexing returns a VectorColumn, which refers to the same steps of each environment: with an int one "
      "step, without a time dimension, with a slice or a list of ints several. Positions count from the "
      "first step of an environment's episode, negative ones from its newest. Whether an episode has these "
      "steps is checked when items are created.");
  history.def_prop_ro(
      "path", [](const VectorColumnHistory& self) { return self.path; }, "The path of the column in a step.");
  history.def(
      "stack", &Stack, "n"_a, "end"_a = nb::none(),
      "Returns the newest `n` steps of each environment, or the `n` steps before position `end`, as a "
      "VectorColumn.\n\n"
      "Steps before the first one of an environment's episode are replaced by it, so that a stack of "
      "frames has the same length at every step. `end` is like that of a slice: -1 excludes the "
      "newest step, and skips environments that have no other. ValueError if `n` is less than 1; "
      "create_items() raises if the writer keeps fewer steps.");
  auto column =
      nb::class_<VectorColumn>(module, "VectorColumn",
                               "Some steps of a column, in each environment, as a column of items.\n\n"
                               "Created by indexing the history of a VectorWriter.");
  column.def_prop_ro(
      "is_squeezed", [](const VectorColumn& self) { return self.squeeze; },
      "Whether the single row has no time dimension.");
  column.def_prop_ro(
      "path", [](const VectorColumn& self) { return self.path; }, "The path of the values in a step.");
  vector_history_type = reinterpret_cast<PyTypeObject*>(history.release().ptr());
  vector_column_type = reinterpret_cast<PyTypeObject*>(column.release().ptr());
}

}  // namespace reverb::python
