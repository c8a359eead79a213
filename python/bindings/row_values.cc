#include "row_values.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <variant>

#include "leases.h"

namespace reverb::python {
namespace {

// Converts the value of a tag. TypeError for other types.
std::variant<bool, int64_t, double, std::string> ToTagValue(const std::string& name, nb::handle value) {
  // NumPy's scalars and arrays of one element have item(). Looking for it takes longer than the rest.
  nb::object plain = nb::borrow(value);
  const bool is_plain = PyLong_CheckExact(value.ptr()) || PyFloat_CheckExact(value.ptr()) ||
                        PyUnicode_CheckExact(value.ptr()) || PyBool_Check(value.ptr());
  if (!is_plain && nb::hasattr(value, "item") && !PyLong_Check(value.ptr()) && !PyFloat_Check(value.ptr())) {
    plain = value.attr("item")();
  }
  if (PyBool_Check(plain.ptr())) return plain.ptr() == Py_True;
  if (PyLong_Check(plain.ptr())) {
    const long long number = PyLong_AsLongLong(plain.ptr());  // NOLINT(google-runtime-int): the C API's type
    if (number == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      RaiseValueError("tag \"" + name + "\" (" + ShortRepr(plain) +
                      ") does not fit into 64 bits; use a float");
    }
    return static_cast<int64_t>(number);
  }
  if (PyFloat_Check(plain.ptr())) return PyFloat_AS_DOUBLE(plain.ptr());
  if (PyUnicode_Check(plain.ptr())) return nb::cast<std::string>(plain);
  RaiseTypeError("tag \"" + name + "\" must be a bool, an int, a float or a str, got " + ShortRepr(value) +
                 "; larger values are columns");
}

std::vector<RowTag> ToTags(nb::handle tags) {
  std::vector<RowTag> result;
  if (tags.is_none()) return result;
  const nb::dict dict = nb::cast<nb::dict>(tags);
  result.reserve(dict.size());
  for (const auto& [name, value] : dict) {
    std::string text = nb::cast<std::string>(name);
    auto converted = ToTagValue(text, value);
    result.push_back({.name = std::move(text), .value = std::move(converted)});
  }
  return result;
}

}  // namespace

nb::dict FromTags(const std::vector<RowTag>& tags) {
  nb::dict result;
  for (const RowTag& tag : tags) {
    result[Text(tag.name)] = std::visit([](const auto& value) { return nb::cast(value); }, tag.value);
  }
  return result;
}

nb::list FromStrings(const std::vector<std::string>& strings) {
  nb::list result;
  for (const std::string& text : strings) result.append(Text(text));
  return result;
}

std::optional<std::string> ToState(const std::optional<nb::bytes>& state) {
  if (!state) return std::nullopt;
  return std::string(state->c_str(), state->size());
}

nb::list FromInfos(const std::vector<RowInfo>& rows) {
  nb::list result;
  for (const RowInfo& row : rows) {
    result.append(nb::make_tuple(Text(row.key), Text(row.group), row.version, row.is_open, FromTags(row.tags),
                                 FromStrings(row.columns), row.is_requeued, row.is_stale,
                                 FromStrings(row.leased_by), FromStrings(row.consumed_by)));
  }
  return result;
}

RowClaim ToClaim(const nb::dict& arguments) {
  const auto text = [&](const char* name) { return nb::cast<std::string>(arguments[name]); };
  const auto names = [&](const char* name) { return nb::cast<std::vector<std::string>>(arguments[name]); };
  const nb::object lease = arguments["lease"];
  if (lease.is_none()) RaiseValueError("lease (None) must be a positive number of seconds");
  return {.consumer = text("consumer"),
          .holder = text("holder"),
          .count = nb::cast<int64_t>(arguments["count"]),
          .at_least = nb::cast<std::optional<int64_t>>(arguments["at_least"]).value_or(0),
          .needs = names("needs"),
          .select = names("select"),
          .where = text("where"),
          .max_tokens = nb::cast<std::optional<int64_t>>(arguments["max_tokens"]).value_or(0),
          .token_column = text("token_column"),
          .whole_groups = nb::cast<std::optional<bool>>(arguments["whole_groups"]),
          .lease = LeaseFromSeconds(lease),
          .ranks = nb::cast<int64_t>(arguments["ranks"]),
          .rank = nb::cast<int64_t>(arguments["rank"]),
          .step = nb::cast<std::optional<int64_t>>(arguments["step"]),
          .drop_last = nb::cast<bool>(arguments["drop_last"]),
          .equal_rows = nb::cast<bool>(arguments["equal_rows"]),
          .split_groups = nb::cast<bool>(arguments["split_groups"])};
}

RowsToPut::RowsToPut(const nb::dict& arguments)
    : mode{.columns = nb::cast<std::vector<std::string>>(arguments["columns"]),
           .version = nb::cast<std::optional<int64_t>>(arguments["version"]),
           .overwrite = nb::cast<bool>(arguments["overwrite"]),
           .append = nb::cast<bool>(arguments["append"]),
           .open = nb::cast<bool>(arguments["open"]),
           .create = nb::cast<bool>(arguments["create"]),
           .same_length_as = nb::cast<std::string>(arguments["same_length_as"]),
           .reservation = nb::cast<uint64_t>(arguments["reservation"])} {
  auto keys = nb::cast<std::vector<std::string>>(arguments["keys"]);
  const nb::list values = nb::cast<nb::list>(arguments["values"]);
  const nb::object tags = arguments["tags"];
  const nb::object groups = arguments["groups"];
  rows.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    rows[i].key = std::move(keys[i]);
    if (!groups.is_none()) rows[i].group = nb::cast<std::string>(groups[i]);
    if (!tags.is_none()) rows[i].tags = ToTags(tags[i]);
    rows[i].values.reserve(values.size());
    for (const nb::handle column : values) rows[i].values.push_back(views.Add(nb::object(column[i]).ptr()));
  }
}

// --- RowBatchObject ---

nb::tuple RowBatchObject::Column(const std::string& name) const {
  origin_.Check();
  Result<JaggedColumn> column = [&] {
    const GilRelease released;
    return batch_->Column(name);
  }();
  JaggedColumn jagged = ValueOrRaise(std::move(column));
  Tensor offsets = ValueOrRaise(Tensor::Allocate(DType::kInt64, {std::ssize(jagged.offsets)}));
  std::memcpy(offsets.bytes().data(), jagged.offsets.data(), offsets.bytes().size());
  return nb::make_tuple(ToNumpy(std::move(jagged.values)), ToNumpy(std::move(offsets)), jagged.is_scalar);
}
nb::tuple RowBatchObject::Settle(int settlement, const std::vector<std::string>& keys, nb::handle lease,
                                 std::optional<nb::bytes> state, std::optional<double> timeout) const {
  origin_.Check();
  const std::optional<std::string> bytes = ToState(state);
  const std::chrono::nanoseconds extension = LeaseFromSeconds(lease);
  const auto settle = [&](const WaitOptions& wait) {
    switch (static_cast<RowSettlement>(settlement)) {
      case RowSettlement::kAcknowledge:
        return batch_->Acknowledge(keys, wait, bytes);
      case RowSettlement::kRelease:
        return batch_->Release(keys, wait);
      default:
        return batch_->Extend(extension, wait);
    }
  };
  const LeaseOutcome outcome = ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(settle));
  return nb::make_tuple(outcome.settled, outcome.gone, outcome.expired);
}

void BindRowBatch(nb::module_& module) {
  using Batch = RowBatchObject;
  nb::class_<Batch>(module, "RowBatch", "The native part of reverb.RowBatch.")
      .def_prop_ro("keys", &Batch::keys)
      .def_prop_ro("groups", &Batch::groups)
      .def_prop_ro("versions", &Batch::versions)
      .def_prop_ro("tags", &Batch::tags)
      .def_prop_ro("columns", &Batch::columns)
      .def_prop_ro("version", &Batch::version)
      .def_prop_ro("lease_id", &Batch::lease_id)
      .def_prop_ro("step", &Batch::step)
      .def("__len__", &Batch::size)
      .def("column", &Batch::Column, "name"_a)
      .def("settle", &Batch::Settle, "settlement"_a, "keys"_a, "lease"_a.none(),
           "state"_a.none() = nb::none(), "timeout"_a = nb::none());
}

}  // namespace reverb::python
