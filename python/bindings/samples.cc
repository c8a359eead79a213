#include "samples.h"

#include <optional>

#include "arrays.h"
#include "errors.h"
#include "gil.h"

namespace reverb::python {
namespace {

Lazy sample_info_type("reverb.replay_sample", "SampleInfo");
Lazy replay_sample_type("reverb.replay_sample", "ReplaySample");
Lazy padded_batch_type("reverb.replay_sample", "PaddedBatch");

// Creates a namedtuple without calling its __new__.
nb::object MakeNamedTuple(nb::handle type, std::initializer_list<PyObject*> fields) {
  auto* const tuple_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  nb::object tuple = Own(tuple_type->tp_alloc(tuple_type, static_cast<Py_ssize_t>(fields.size())));
  Py_ssize_t i = 0;
  bool is_complete = true;
  for (PyObject* field : fields) {
    is_complete = is_complete && field != nullptr;
    PyTuple_SET_ITEM(tuple.ptr(), i++, field);
  }
  if (!is_complete) nb::raise_python_error();
  return tuple;
}

nb::object MakeInfo(const Decoded& sample) {
  return MakeSampleInfo({PyLong_FromUnsignedLongLong(sample.key), PyFloat_FromDouble(sample.probability),
                         PyLong_FromLongLong(sample.table_size), PyFloat_FromDouble(sample.priority),
                         PyLong_FromLong(sample.times_sampled)});
}

std::vector<nb::object> ToArrays(Decoded sample) {
  std::vector<nb::object> arrays;
  arrays.reserve(sample.columns.size());
  for (Tensor& column : sample.columns) arrays.push_back(ToNumpy(std::move(column)));
  return arrays;
}

}  // namespace

Result<Decoded> Decode(const SampledTrajectory& sample, const TensorPool& pool) {
  const bool is_large = sample.decoded_bytes() >= kLargeStep;
  Decoded decoded{.key = sample.key(),
                  .probability = sample.probability(),
                  .table_size = sample.table_size(),
                  .priority = sample.priority(),
                  .times_sampled = sample.times_sampled()};
  decoded.columns.reserve(sample.num_columns());
  for (uint32_t i = 0; i < sample.num_columns(); ++i) {
    REVERB_ASSIGN_OR_RETURN(Tensor column, is_large ? sample.column(i, pool) : sample.column(i));
    decoded.columns.push_back(std::move(column));
    decoded.has_squeezed = decoded.has_squeezed || sample.is_squeezed(i);
  }
  return decoded;
}

nb::object MakeSampleInfo(std::initializer_list<PyObject*> fields) {
  return MakeNamedTuple(sample_info_type.get(), fields);
}

nb::object MakeReplaySample(nb::handle info, nb::object data) {
  return MakeNamedTuple(replay_sample_type.get(), {info.inc_ref().ptr(), data.release().ptr()});
}

nb::object MakePaddedBatch(nb::handle info, nb::object data, nb::object lengths) {
  const nb::object batch =
      MakeNamedTuple(padded_batch_type.get(), {info.inc_ref().ptr(), data.release().ptr()});
  batch.attr("lengths") = lengths;
  return batch;
}

nb::object Unpacking::Pack(std::vector<nb::object> columns) const {
  if (structure_.empty()) {
    const nb::object list = Own(PyList_New(static_cast<Py_ssize_t>(columns.size())));
    for (size_t i = 0; i < columns.size(); ++i) {
      PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), columns[i].release().ptr());
    }
    return list;
  }
  if (columns.size() != static_cast<size_t>(structure_.num_columns())) {
    RaiseValueError("an item of table \"" + table_ + "\" has " + std::to_string(columns.size()) +
                    " columns but the table's signature has " + std::to_string(structure_.num_columns()));
  }
  return structure_.Build([&](int32_t column) { return columns[static_cast<size_t>(column)]; });
}

nb::object ToTrajectory(Decoded sample, const Unpacking& unpacking) {
  const nb::object info = MakeInfo(sample);
  return MakeReplaySample(info, unpacking.Pack(ToArrays(std::move(sample))));
}

// Returns one ReplaySample for each step.
nb::object ToTimesteps(Decoded sample, const Unpacking& unpacking) {
  std::optional<int64_t> steps;
  for (const Tensor& column : sample.columns) {
    const bool has_time = !sample.has_squeezed && !column.dims().empty();
    if (!has_time || (steps && *steps != column.dims()[0])) {
      RaiseValueError(
          "Can't split non timestep trajectory into timesteps. All columns must have the same number of "
          "steps, and "
          "none may be squeezed; use emit_timesteps=False for this table.");
    }
    steps = column.dims()[0];
  }
  const nb::object info = MakeInfo(sample);
  const std::vector<nb::object> arrays = ToArrays(std::move(sample));
  const nb::object list = Own(PyList_New(static_cast<Py_ssize_t>(steps.value_or(0))));
  for (int64_t i = 0; i < steps.value_or(0); ++i) {
    const nb::object index = nb::make_tuple(i, nb::ellipsis());  // arrays, even if a row is a scalar
    std::vector<nb::object> rows;
    rows.reserve(arrays.size());
    for (const nb::object& array : arrays) rows.push_back(Own(PyObject_GetItem(array.ptr(), index.ptr())));
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i),
                    MakeReplaySample(info, unpacking.Pack(std::move(rows))).release().ptr());
  }
  return list;
}

}  // namespace reverb::python
