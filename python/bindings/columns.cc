#include "columns.h"

#include <cstring>
#include <optional>
#include <string>

#include "arrays.h"
#include "errors.h"
#include "indices.h"
#include "tree.h"

namespace reverb::python {
namespace {

// The classes, never released: instances may outlive the module.
PyTypeObject* history_type = nullptr;
PyTypeObject* column_type = nullptr;
PyTypeObject* cell_type = nullptr;

// Runs `body` and converts C++ exceptions to Python's.
template <typename Body>
auto Guarded(Body&& body, decltype(body()) failed) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return failed;
}

// Returns the C++ object in a Python object. TypeError when it was never initialised.
template <typename T>
T& Get(PyObject* object) {
  if (!nb::inst_ready(object)) [[unlikely]]
    RaiseTypeError(std::string("this ") + Py_TYPE(object)->tp_name + " was never initialised");
  return *nb::inst_ptr<T>(object);
}

[[noreturn]] void RaiseNone(const nb::object& path, const std::string& why) {
  RaiseValueError(
      "TrajectoryColumns cannot contain any None data references; " +
      (path.is_valid() && !path.is_none() ? "column " + ShortRepr(path) + " " : std::string("the column ")) +
      why);
}

void CheckCell(const WriterState& state, uint32_t column, int64_t position, const nb::object& path) {
  if (state.writer->HasCell(column, position)) [[likely]]
    return;
  const int64_t index = position - state.history_begin();
  RaiseNone(path, "has no value at step " + std::to_string(index) +
                      ": none was appended there, or it is older than the last num_keep_alive_refs = " +
                      std::to_string(state.writer->num_keep_alive_refs()) + " steps that the writer keeps");
}

// --- Cells of columns ---

// Returns the cells as single positions, in order.
template <typename Visit>
void ForEachCell(const TrajectoryColumn& column, Visit&& visit) {
  for (const CellRange& range : column.ranges) {
    for (int64_t at = range.begin; range.stride > 0 ? at < range.end : at > range.end; at += range.stride) {
      visit(range.column, at);
    }
  }
}

std::vector<std::pair<uint32_t, int64_t>> CellsOf(const TrajectoryColumn& column) {
  std::vector<std::pair<uint32_t, int64_t>> cells;
  cells.reserve(static_cast<size_t>(column.length));
  ForEachCell(column, [&](uint32_t c, int64_t at) { cells.emplace_back(c, at); });
  return cells;
}

// Merges adjacent cells into ranges.
void AddCell(std::vector<CellRange>* ranges, uint32_t column, int64_t position) {
  if (!ranges->empty()) {
    CellRange& last = ranges->back();
    if (last.column == column && last.stride == 1 && last.end == position) {
      ++last.end;
      return;
    }
  }
  ranges->push_back(CellRange::One(column, position));
}

// --- ColumnHistory ---

Py_ssize_t HistoryLength(PyObject* self) {
  return Guarded(
      [&]() -> Py_ssize_t {
        WriterState& state = *Get<ColumnHistory>(self).state;
        const Turn::Holder turn(state.turn);
        return static_cast<Py_ssize_t>(state.writer->history_length());
      },
      -1);
}

nb::object HistoryAt(const ColumnHistory& history, int64_t begin, int64_t length, int64_t index) {
  const int64_t at = index < 0 ? index + length : index;
  if (at < 0) {
    RaiseStepNotAvailable("cannot contain any None: step " + std::to_string(index) + " of column " +
                          ShortRepr(history.path) + " does not exist, there are " + std::to_string(length));
  }
  if (at >= length) {
    PyErr_Format(PyExc_IndexError, "step %lld of column %S does not exist, there are %lld",
                 static_cast<long long>(index), history.path.ptr(), static_cast<long long>(length));
    nb::raise_python_error();
  }
  CheckCell(*history.state, history.column, begin + at, history.path);
  return Make(
      column_type,
      TrajectoryColumn{history.state, {CellRange::One(history.column, begin + at)}, 1, true, history.path});
}

nb::object HistorySlice(const ColumnHistory& history, int64_t begin, int64_t length, PyObject* key) {
  Py_ssize_t start = 0, stop = 0, step = 0;
  if (PySlice_Unpack(key, &start, &stop, &step) != 0) nb::raise_python_error();
  const bool has_start = reinterpret_cast<PySliceObject*>(key)->start != Py_None;
  if (has_start && start < -length) {
    RaiseNone(history.path, "was indexed " + std::to_string(-start) + " steps back but has only " +
                                std::to_string(length) + " steps");
  }
  const Py_ssize_t count = PySlice_AdjustIndices(static_cast<Py_ssize_t>(length), &start, &stop, step);
  TrajectoryColumn column{history.state, {}, count, false, history.path};
  for (Py_ssize_t i = 0; i < count; ++i) {
    CheckCell(*history.state, history.column, begin + start + i * step, history.path);
  }
  if (count > 0) {
    column.ranges.push_back({history.column, begin + start, begin + start + count * step, step});
  }
  return Make(column_type, std::move(column));
}

nb::object HistoryList(const ColumnHistory& history, int64_t begin, int64_t length, PyObject* key) {
  TrajectoryColumn column{history.state, {}, 0, false, history.path};
  ForEachIndex(key, "a history", [&](Py_ssize_t index) {
    const int64_t at = index < 0 ? index + length : index;
    if (at < 0 || at >= length) {
      RaiseStepNotAvailable("cannot contain any None: step " + std::to_string(index) + " of column " +
                            ShortRepr(history.path) + " does not exist, there are " + std::to_string(length));
    }
    CheckCell(*history.state, history.column, begin + at, history.path);
    AddCell(&column.ranges, history.column, begin + at);
    ++column.length;
  });
  return Make(column_type, std::move(column));
}

PyObject* HistoryGet(PyObject* self, PyObject* key) {
  return Guarded(
      [&]() -> PyObject* {
        const ColumnHistory& history = Get<ColumnHistory>(self);
        const Turn::Holder turn(history.state->turn);
        const int64_t begin = history.state->history_begin();
        const int64_t length = history.state->writer->history_length();
        if (PySlice_Check(key)) return HistorySlice(history, begin, length, key).release().ptr();
        if (PyLong_Check(key)) {
          return HistoryAt(history, begin, length, ToIndex(key)).release().ptr();
        }
        if (PyList_Check(key)) return HistoryList(history, begin, length, key).release().ptr();
        RaiseBadKey("a history", key);
      },
      nullptr);
}

nb::object HistoryStack(const ColumnHistory& history, int64_t rows, std::optional<int64_t> end) {
  const Turn::Holder turn(history.state->turn);
  const TrajectoryWriter& writer = *history.state->writer;
  const int64_t begin = history.state->history_begin();
  std::optional<int64_t> position;
  if (end) {
    const int64_t length = writer.history_length();
    if (*end > length || *end < -length) {
      RaiseValueError("stack: `end` (" + std::to_string(*end) + ") is out of range, column " +
                      ShortRepr(history.path) + " has " + std::to_string(length) + " steps");
    }
    // Raises also while the episode is short, instead of when it has become longer.
    const int64_t keep = writer.num_keep_alive_refs(history.column);
    if (*end < 0 && rows > keep + *end) {
      RaiseValueError("stack: column " + ShortRepr(history.path) + " keeps the newest " +
                      std::to_string(keep) + " steps, but a stack of " + std::to_string(rows) +
                      " that ends at " + std::to_string(*end) + " needs num_keep_alive_refs >= " +
                      std::to_string(static_cast<uint64_t>(rows) - static_cast<uint64_t>(*end)));
    }
    position = begin + *end + (*end < 0 ? length : 0);
  }
  std::vector<CellRange> ranges = ValueOrRaise(writer.Stack(history.column, rows, position));
  return Make(column_type, TrajectoryColumn{history.state, std::move(ranges), rows, false, history.path});
}

// Returns a snapshot of references, None where a step has no value or has expired.
nb::object HistoryCells(const ColumnHistory& history) {
  const Turn::Holder turn(history.state->turn);
  const int64_t begin = history.state->history_begin();
  const int64_t length = history.state->writer->history_length();
  nb::list cells;
  for (int64_t i = 0; i < length; ++i) {
    if (history.state->writer->HasCell(history.column, begin + i)) {
      cells.append(Make(cell_type, CellRef{history.state, history.column, begin + i, history.path}));
    } else {
      cells.append(nb::none());
    }
  }
  return cells;
}

PyObject* HistoryIter(PyObject* self) {
  return Guarded(
      [&]() -> PyObject* { return PyObject_GetIter(HistoryCells(Get<ColumnHistory>(self)).ptr()); }, nullptr);
}

// --- TrajectoryColumn ---

Py_ssize_t ColumnLength(PyObject* self) {
  return Guarded([&] { return static_cast<Py_ssize_t>(Get<TrajectoryColumn>(self).length); }, -1);
}

PyObject* ColumnGet(PyObject* self, PyObject* key) {
  return Guarded(
      [&]() -> PyObject* {
        const TrajectoryColumn& column = Get<TrajectoryColumn>(self);
        const auto cells = CellsOf(column);
        TrajectoryColumn chosen{column.state, {}, 0, false, column.path};
        const auto add = [&](Py_ssize_t index) {
          const Py_ssize_t at = index < 0 ? index + column.length : index;
          if (at < 0 || at >= column.length) {
            PyErr_Format(PyExc_IndexError, "row %zd does not exist, the column has %lld", index,
                         static_cast<long long>(column.length));
            nb::raise_python_error();
          }
          AddCell(&chosen.ranges, cells[static_cast<size_t>(at)].first,
                  cells[static_cast<size_t>(at)].second);
          ++chosen.length;
        };
        if (PyLong_Check(key)) {
          add(ToIndex(key));
          chosen.squeeze = true;
        } else if (PySlice_Check(key)) {
          Py_ssize_t start = 0, stop = 0, step = 0;
          if (PySlice_Unpack(key, &start, &stop, &step) != 0) nb::raise_python_error();
          const Py_ssize_t count =
              PySlice_AdjustIndices(static_cast<Py_ssize_t>(column.length), &start, &stop, step);
          for (Py_ssize_t i = 0; i < count; ++i) add(start + i * step);
        } else if (PyList_Check(key)) {
          ForEachIndex(key, "a column", add);
        } else {
          RaiseBadKey("a column", key);
        }
        return Make(column_type, std::move(chosen)).release().ptr();
      },
      nullptr);
}

PyObject* ColumnIter(PyObject* self) {
  return Guarded(
      [&]() -> PyObject* {
        const TrajectoryColumn& column = Get<TrajectoryColumn>(self);
        nb::list cells;
        ForEachCell(column, [&](uint32_t c, int64_t at) {
          cells.append(Make(cell_type, CellRef{column.state, c, at, column.path}));
        });
        return PyObject_GetIter(cells.ptr());
      },
      nullptr);
}

void InitColumn(TrajectoryColumn* self, nb::handle references, Truth squeezed, nb::object path) {
  const bool squeeze = squeezed.value;
  TrajectoryColumn made{nullptr, {}, 0, squeeze, std::move(path)};
  for (const nb::handle reference : nb::iter(references)) {
    if (reference.is_none()) RaiseNone(made.path, "was given one");
    if (!PyObject_TypeCheck(reference.ptr(), cell_type)) {
      RaiseTypeError("data_references must be those of a history (list(writer.history[...])), got " +
                     ShortRepr(reference) + " of type " + Py_TYPE(reference.ptr())->tp_name);
    }
    const CellRef& cell = Get<CellRef>(reference.ptr());
    if (made.state && made.state != cell.state) {
      RaiseValueError("a column cannot contain references of several writers; use one writer for an item");
    }
    made.state = cell.state;
    AddCell(&made.ranges, cell.column, cell.position);
    ++made.length;
  }
  if (squeeze && made.length != 1) {
    RaiseValueError("a column must contain exactly one reference when squeeze is set, got " +
                    std::to_string(made.length));
  }
  new (self) TrajectoryColumn(std::move(made));
}

// --- Values ---

Tensor ReadCell(const WriterState& state, uint32_t column, int64_t position) {
  return ValueOrRaise(state.writer->Read(column, position));
}

// RuntimeError when a cell has expired.
TensorSpec SpecOf(const WriterState& state, uint32_t column, int64_t position) {
  const std::optional<TensorSpec> spec = state.writer->column_spec(column);
  if (!spec || !state.writer->HasCell(column, position)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "the data of this reference has expired: it is older than the num_keep_alive_refs steps "
                    "that the writer keeps, or the episode has ended");
    nb::raise_python_error();
  }
  return *spec;
}

TensorSpec SpecOf(const TrajectoryColumn& column) {
  if (column.length == 0) {
    PyErr_SetString(PyExc_IndexError, "an empty column has neither dtype nor shape");
    nb::raise_python_error();
  }
  const CellRange& first = column.ranges.front();
  return SpecOf(*column.state, first.column, first.begin);
}

nb::object ColumnToNumpy(const TrajectoryColumn& column) {
  if (column.length == 0) RaiseValueError("an empty column has no values: need at least one array to stack");
  const Turn::Holder turn(column.state->turn);
  const auto cells = CellsOf(column);
  if (column.squeeze) return ToNumpy(ReadCell(*column.state, cells[0].first, cells[0].second));
  std::optional<Tensor> all;
  for (size_t i = 0; i < cells.size(); ++i) {
    Tensor row = ReadCell(*column.state, cells[i].first, cells[i].second);
    if (!all) {
      std::vector<int64_t> dims = row.dims();
      dims.insert(dims.begin(), column.length);
      all = ValueOrRaise(Tensor::Allocate(row.dtype(), std::move(dims)));
    }
    const bool fits = row.dtype() == all->dtype() && row.num_elements() * cells.size() == all->num_elements();
    if (!fits)
      RaiseValueError("the rows of the column have different shapes or dtypes and cannot be stacked");
    if (row.dtype() == DType::kString) {
      std::move(row.strings().begin(), row.strings().end(),
                all->strings().begin() + static_cast<ptrdiff_t>(i * row.num_elements()));
    } else if (row.num_bytes() > 0) {
      std::memcpy(all->data() + i * row.num_bytes(), row.data(), row.num_bytes());
    }
  }
  return ToNumpy(*std::move(all));
}

template <typename F>
void* Slot(F* function) {
  return reinterpret_cast<void*>(function);
}
const PyType_Slot history_slots[] = {{Py_mp_length, Slot(HistoryLength)},
                                     {Py_mp_subscript, Slot(HistoryGet)},
                                     {Py_tp_iter, Slot(HistoryIter)},
                                     {0, nullptr}};
const PyType_Slot column_slots[] = {{Py_mp_length, Slot(ColumnLength)},
                                    {Py_mp_subscript, Slot(ColumnGet)},
                                    {Py_tp_iter, Slot(ColumnIter)},
                                    {0, nullptr}};

}  // namespace

nb::object MakeHistory(std::shared_ptr<WriterState> state, uint32_t column, nb::object path) {
  return Make(history_type, ColumnHistory{std::move(state), column, std::move(path)});
}

const TrajectoryColumn* AsColumn(PyObject* object) {
  if (!PyObject_TypeCheck(object, column_type) || !nb::inst_ready(object)) return nullptr;
  return nb::inst_ptr<TrajectoryColumn>(object);
}

void BindColumns(nb::module_& module) {
  auto history = nb::class_<ColumnHistory>(
      module, "ColumnHistory", nb::type_slots(history_slots),
      "All steps of one column in this episode.\n\n"
      "Indexing returns a TrajectoryColumn: with an int the value of one step without a time dimension, with "
      "a slice or a list of ints several. Positions count from the first step of the episode, negative ones "
      "from the newest. ValueError if a selected step has no value or is no longer kept. Iterating yields "
      "references, None for steps without a value.");
  history.def_prop_ro(
      "path", [](const ColumnHistory& self) { return self.path; }, "The path of the column in a step.");
  history.def(
      "stack", &HistoryStack, "n"_a, "end"_a = nb::none(),
      "Returns the newest `n` steps, or the `n` steps before position `end`, as a TrajectoryColumn.\n\n"
      "Steps before the first one of the episode are replaced by it, so that a stack of frames has "
      "the same length at every step. `end` is like that of a slice: -1 excludes the newest step. "
      "Items refer to the rows; nothing is copied. ValueError if `n` is less than 1, if the episode "
      "has no step before `end`, and if a step has no value or is no longer kept.");
  history.def("__reduce__", [](const ColumnHistory&) -> nb::object {
    RaiseTypeError("a column's history belongs to its writer and cannot be pickled");
  });

  auto cell = nb::class_<CellRef>(module, "WeakCellRef",
                                  "A reference to an appended value, valid as long as the value is kept.");
  cell.def_prop_ro(
      "expired",
      [](const CellRef& self) {
        const Turn::Holder turn(self.state->turn);
        return !self.state->writer->HasCell(self.column, self.position);
      },
      "Whether the value is no longer kept.");
  cell.def(
      "numpy",
      [](const CellRef& self) {
        const Turn::Holder turn(self.state->turn);
        return ToNumpy(ReadCell(*self.state, self.column, self.position));
      },
      "Returns the value. RuntimeError if it has expired.");
  cell.def_prop_ro(
      "shape",
      [](const CellRef& self) {
        const Turn::Holder turn(self.state->turn);
        return ToTuple(SpecOf(*self.state, self.column, self.position).shape);
      },
      "RuntimeError if the value has expired.");
  cell.def_prop_ro(
      "dtype",
      [](const CellRef& self) {
        const Turn::Holder turn(self.state->turn);
        return ToNumpyDType(SpecOf(*self.state, self.column, self.position).dtype);
      },
      "RuntimeError if the value has expired.");

  auto column = nb::class_<TrajectoryColumn>(
      module, "TrajectoryColumn", nb::type_slots(column_slots),
      "Some steps of a column, as a column of an item.\n\n"
      "Created by indexing a writer's history. Indexing it again returns a part: with an int one row, "
      "squeezed; with a slice or a list of ints several.");
  column.def("__init__", &InitColumn, "data_references"_a.none(), nb::kw_only(), "squeeze"_a = Truth{},
             "path"_a = nb::none(),
             "Creates a column from references, such as those of iterating over a history.\n\n"
             "squeeze: the single row has no time dimension in samples. ValueError for a reference that is "
             "None, and for squeeze with more or fewer than one row.");
  column.def_prop_ro(
      "is_squeezed", [](const TrajectoryColumn& self) { return self.squeeze; },
      "Whether the single row has no time dimension.");
  column.def_prop_ro(
      "path", [](const TrajectoryColumn& self) { return self.path; },
      "The path of the values in a step; None if unknown.");
  column.def_prop_ro(
      "dtype",
      [](const TrajectoryColumn& self) {
        if (self.length == 0) return ToNumpyDType(SpecOf(self).dtype);
        const Turn::Holder turn(self.state->turn);
        return ToNumpyDType(SpecOf(self).dtype);
      },
      "RuntimeError if the values have expired.");
  column.def_prop_ro(
      "shape",
      [](const TrajectoryColumn& self) -> nb::object {
        if (self.length == 0) (void)SpecOf(self);
        const Turn::Holder turn(self.state->turn);
        std::vector<int64_t> dims = SpecOf(self).shape.dims();
        if (!self.squeeze) dims.insert(dims.begin(), self.length);
        return ToTuple(Shape(std::move(dims)));
      },
      "Starts with the number of rows unless the column is squeezed. RuntimeError if the values have "
      "expired.");
  column.def("numpy", &ColumnToNumpy,
             "Returns the values, stacked along time unless the column is squeezed. RuntimeError if some "
             "have expired.");

  history_type = reinterpret_cast<PyTypeObject*>(history.release().ptr());
  column_type = reinterpret_cast<PyTypeObject*>(column.release().ptr());
  cell_type = reinterpret_cast<PyTypeObject*>(cell.release().ptr());
  SetLeafType(column_type);
}

}  // namespace reverb::python
