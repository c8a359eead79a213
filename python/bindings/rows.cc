// The native part of reverb.rows: row tables.
#include "reverb/rows.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.h"
#include "client.h"
#include "errors.h"
#include "gil.h"
#include "leases.h"
#include "python_api.h"
#include "rows.h"

namespace reverb::python {
namespace {

Lazy numpy_asarray("numpy", "asarray");

// Converts the value of a tag. TypeError for other types.
std::variant<bool, int64_t, double, std::string> ToTagValue(const std::string& name, nb::handle value) {
  // NumPy's scalars and arrays of one element have item().
  nb::object plain = nb::borrow(value);
  if (nb::hasattr(value, "item") && !PyLong_Check(value.ptr()) && !PyFloat_Check(value.ptr())) {
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
  for (const auto& [name, value] : nb::cast<nb::dict>(tags)) {
    std::string text = nb::cast<std::string>(name);
    auto converted = ToTagValue(text, value);
    result.push_back({.name = std::move(text), .value = std::move(converted)});
  }
  return result;
}

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

nb::dict InfoToDict(const RowTableInfo& info) {
  nb::dict result;
  result["name"] = info.settings.name;
  result["version"] = info.version;
  const RowCounts& counts = info.counts;
  const std::pair<const char*, int64_t> numbers[] = {
      {"rows", counts.rows},
      {"open", counts.open},
      {"stale", counts.stale},
      {"groups", counts.groups},
      {"complete_groups", counts.complete_groups},
      {"running", counts.running},
      {"leases", counts.leases},
      {"accepted", counts.accepted},
      {"created", counts.created},
      {"updated", counts.updated},
      {"consumed", counts.consumed},
      {"dropped_stale", counts.dropped_stale},
      {"deleted", counts.deleted},
      {"refused", counts.refused},
      {"claimed", counts.claimed},
      {"acknowledged", counts.acknowledged},
      {"released", counts.released},
      {"expired", counts.expired},
      {"waiting_writes", info.waiting_writes},
      {"waiting_claims", info.waiting_claims},
      {"waiting_reservations", info.waiting_reservations},
  };
  for (const auto& [name, value] : numbers) result[name] = value;
  nb::dict consumers;
  for (const RowConsumerInfo& consumer : info.consumers) {
    nb::dict one;
    one["ready"] = consumer.ready;
    one["leased"] = consumer.leased;
    one["consumed"] = consumer.consumed;
    consumers[Text(consumer.name)] = one;
  }
  result["consumers"] = consumers;
  result["claim_reason"] = Text(info.claim_reason);
  return result;
}

// Rows with data.
class RowBatchObject {
 public:
  explicit RowBatchObject(RowBatch batch) : batch_(Owned<RowBatch>(std::move(batch))) {}

  nb::list keys() const {
    return Each([](const RowInfo& row) { return Text(row.key); });
  }
  nb::list groups() const {
    return Each([](const RowInfo& row) { return Text(row.group); });
  }
  nb::list versions() const {
    return Each([](const RowInfo& row) { return nb::object(nb::int_(row.version)); });
  }
  nb::list tags() const {
    return Each([](const RowInfo& row) { return nb::object(FromTags(row.tags)); });
  }
  nb::list columns() const { return FromStrings(batch_->columns()); }
  int64_t version() const { return batch_->version(); }
  uint64_t lease_id() const { return batch_->lease_id(); }
  size_t size() const { return batch_->rows().size(); }

  // Returns (values, offsets, is_scalar).
  nb::tuple Column(const std::string& name) const {
    origin_.Check();
    Result<JaggedColumn> column = [&] {
      const GilRelease released;
      return batch_->Column(name);
    }();
    JaggedColumn jagged = ValueOrRaise(std::move(column));
    return nb::make_tuple(ToNumpy(std::move(jagged.values)), numpy_asarray.get()(nb::cast(jagged.offsets)),
                          jagged.is_scalar);
  }
  nb::tuple Settle(int settlement, const std::vector<std::string>& keys, nb::handle lease,
                   std::optional<double> timeout) const {
    origin_.Check();
    const std::chrono::nanoseconds extension = LeaseFromSeconds(lease);
    const auto settle = [&](const WaitOptions& wait) {
      switch (static_cast<RowSettlement>(settlement)) {
        case RowSettlement::kAcknowledge:
          return batch_->Acknowledge(keys, wait);
        case RowSettlement::kRelease:
          return batch_->Release(keys, wait);
        default:
          return batch_->Extend(extension, wait);
      }
    };
    const LeaseOutcome outcome = ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(settle));
    return nb::make_tuple(outcome.settled, outcome.gone, outcome.expired);
  }

 private:
  template <typename F>
  nb::list Each(F convert) const {
    nb::list result;
    for (const RowInfo& row : batch_->rows()) result.append(convert(row));
    return result;
  }

  const Origin origin_;
  Owned<RowBatch> batch_;
};

class RowsObject {
 public:
  RowsObject(const ClientObject& client, std::string table)
      : rows_(Owned<Rows>(ValueOrRaise(client.client().RowTable(std::move(table))))) {}

  // `values`: for each column a sequence with a value for each row. Returns (stored, aborted, version).
  nb::tuple Put(const std::vector<std::string>& keys, std::vector<std::string> columns,
                const nb::list& values, nb::handle tags, nb::handle groups, std::optional<int64_t> version,
                bool overwrite, bool append, bool open, bool create, std::string same_length_as,
                uint64_t reservation, std::optional<double> timeout) {
    RowWriteMode mode{.columns = std::move(columns),
                      .version = version,
                      .overwrite = overwrite,
                      .append = append,
                      .open = open,
                      .create = create,
                      .same_length_as = std::move(same_length_as),
                      .reservation = reservation};
    Views views;
    std::vector<NewRow> rows(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      rows[i].key = keys[i];
      if (!groups.is_none()) rows[i].group = nb::cast<std::string>(groups[i]);
      if (!tags.is_none()) rows[i].tags = ToTags(tags[i]);
      for (const nb::handle column : values) rows[i].values.push_back(views.Add(nb::object(column[i]).ptr()));
    }
    const auto put = [&](const WaitOptions& wait) { return rows_->Put(mode, rows, wait); };
    const PutOutcome outcome = ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(put));
    return nb::make_tuple(outcome.stored, FromStrings(outcome.aborted), outcome.version);
  }

  RowBatchObject* Claim(std::string consumer, int64_t count, std::optional<int64_t> at_least,
                        std::vector<std::string> needs, std::vector<std::string> select, std::string where,
                        std::optional<int64_t> max_tokens, std::string token_column,
                        std::optional<bool> whole_groups, nb::handle lease, std::string holder,
                        std::optional<double> timeout) {
    if (lease.is_none()) RaiseValueError("lease (None) must be a positive number of seconds");
    const RowClaim claim{.consumer = std::move(consumer),
                         .holder = std::move(holder),
                         .count = count,
                         .at_least = at_least.value_or(0),
                         .needs = std::move(needs),
                         .select = std::move(select),
                         .where = std::move(where),
                         .max_tokens = max_tokens.value_or(0),
                         .token_column = std::move(token_column),
                         .whole_groups = whole_groups,
                         .lease = LeaseFromSeconds(lease)};
    const auto run = [&](const WaitOptions& wait) { return rows_->Claim(claim, wait); };
    return new RowBatchObject(ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(run)));
  }
  RowBatchObject* Get(const std::vector<std::string>& keys, const std::vector<std::string>& columns,
                      std::optional<double> timeout) {
    const auto get = [&](const WaitOptions& wait) { return rows_->Get(keys, columns, wait); };
    return new RowBatchObject(ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(get)));
  }
  // Returns (key, group, version, is_open, tags, columns) for each row.
  nb::list List(const std::string& where, int64_t limit, std::optional<double> timeout) {
    const auto list = [&](const WaitOptions& wait) { return rows_->List(where, limit, wait); };
    nb::list result;
    for (const RowInfo& row : ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(list))) {
      result.append(nb::make_tuple(Text(row.key), Text(row.group), row.version, row.is_open,
                                   FromTags(row.tags), FromStrings(row.columns)));
    }
    return result;
  }
  int64_t Delete(const std::vector<std::string>& keys, const std::string& where,
                 std::optional<double> timeout) {
    const auto run = [&](const WaitOptions& wait) {
      return where.empty() ? rows_->Delete(keys, wait) : rows_->DeleteWhere(where, wait);
    };
    return ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(run));
  }
  nb::list End(const std::vector<std::string>& keys, int ending, std::optional<double> timeout) {
    const auto end = [&](const WaitOptions& wait) {
      return rows_->End(keys, static_cast<RowEnding>(ending), wait);
    };
    return FromStrings(ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(end)));
  }
  void SetVersion(int64_t version, std::optional<double> timeout) {
    RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
      return rows_->SetVersion(version, wait);
    }));
  }
  // Returns (id, version).
  nb::tuple Reserve(int64_t count, std::optional<int64_t> version, nb::handle lease,
                    std::optional<double> timeout) {
    if (lease.is_none()) RaiseValueError("lease (None) must be a positive number of seconds");
    const std::chrono::nanoseconds time = LeaseFromSeconds(lease);
    const auto reserve = [&](const WaitOptions& wait) { return rows_->Reserve(count, version, time, wait); };
    const Rows::Reservation reserved = ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(reserve));
    return nb::make_tuple(reserved.id, reserved.version);
  }
  bool CancelReservation(uint64_t id, std::optional<double> timeout) {
    const auto cancel = [&](const WaitOptions& wait) { return rows_->CancelReservation(id, wait); };
    return ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(cancel));
  }
  nb::dict Info(std::optional<double> timeout) {
    const auto info = [&](const WaitOptions& wait) { return rows_->Info(wait); };
    return InfoToDict(ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(info)));
  }

 private:
  // In a child created by fork() the client behind it uses connections of its own.
  Owned<Rows> rows_;
};

}  // namespace

RowTableOptions ToRowTableOptions(nb::handle options) {
  RowTableOptions result{.name = nb::cast<std::string>(options["name"]),
                         .max_rows = nb::cast<int64_t>(options["max_rows"]),
                         .group_size = nb::cast<int64_t>(options["group_size"]),
                         .consumers = nb::cast<std::vector<std::string>>(options["consumers"]),
                         .max_running = nb::cast<int64_t>(options["max_running"]),
                         .drop_consumed = nb::cast<bool>(options["drop_consumed"])};
  const std::string order = nb::cast<std::string>(options["order"]);
  result.order = order == "version" ? RowOrder::kVersion
                 : order == "ready" ? RowOrder::kReady
                                    : RowOrder::kFifo;
  const nb::object staleness = options["staleness"];
  if (!staleness.is_none()) {
    const auto [max_lag, when, batch] = nb::cast<std::tuple<int64_t, std::string, int64_t>>(staleness);
    const WhenStale when_stale = when == "keep"   ? WhenStale::kKeep
                                 : when == "wait" ? WhenStale::kWait
                                                  : WhenStale::kDrop;
    result.staleness = {.max_lag = max_lag, .when_stale = when_stale, .batch = batch};
  }
  if (const Status status = result.Validate(); !status.ok()) RaiseValueError(std::string(status.message()));
  return result;
}

void BindRows(nb::module_& module) {
  using Batch = RowBatchObject;
  nb::class_<Batch>(module, "RowBatch", "The native part of reverb.RowBatch.")
      .def_prop_ro("keys", &Batch::keys)
      .def_prop_ro("groups", &Batch::groups)
      .def_prop_ro("versions", &Batch::versions)
      .def_prop_ro("tags", &Batch::tags)
      .def_prop_ro("columns", &Batch::columns)
      .def_prop_ro("version", &Batch::version)
      .def_prop_ro("lease_id", &Batch::lease_id)
      .def("__len__", &Batch::size)
      .def("column", &Batch::Column, "name"_a)
      .def("settle", &Batch::Settle, "settlement"_a, "keys"_a, "lease"_a.none(), "timeout"_a = nb::none());
  using Self = RowsObject;
  nb::class_<Self>(module, "Rows", "The native part of reverb.Rows.")
      .def(nb::init<const ClientObject&, std::string>(), "client"_a, "table"_a)
      .def("put", &Self::Put, "keys"_a, "columns"_a, "values"_a, "tags"_a.none(), "groups"_a.none(),
           "version"_a.none(), "overwrite"_a, "append"_a, "open"_a, "create"_a, "same_length_as"_a,
           "reservation"_a, "timeout"_a.none())
      .def("claim", &Self::Claim, "consumer"_a, "count"_a, "at_least"_a.none(), "needs"_a, "select"_a,
           "where"_a, "max_tokens"_a.none(), "token_column"_a, "whole_groups"_a.none(), "lease"_a.none(),
           "holder"_a, "timeout"_a.none(), nb::rv_policy::take_ownership)
      .def("get", &Self::Get, "keys"_a, "columns"_a, "timeout"_a.none(), nb::rv_policy::take_ownership)
      .def("list", &Self::List, "where"_a, "limit"_a, "timeout"_a.none())
      .def("delete", &Self::Delete, "keys"_a, "where"_a, "timeout"_a.none())
      .def("end", &Self::End, "keys"_a, "ending"_a, "timeout"_a.none())
      .def("set_version", &Self::SetVersion, "version"_a, "timeout"_a.none())
      .def("reserve", &Self::Reserve, "count"_a, "version"_a.none(), "lease"_a.none(), "timeout"_a.none())
      .def("cancel_reservation", &Self::CancelReservation, "id"_a, "timeout"_a.none())
      .def("info", &Self::Info, "timeout"_a.none());
  module.def(
      "create_row_table",
      [](const ClientObject& client, const nb::dict& options, bool exist_ok, std::optional<double> timeout) {
        const RowTableOptions table = ToRowTableOptions(options);
        RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
          return client.client().CreateRowTable(table, exist_ok, wait);
        }));
      },
      "client"_a, "options"_a, "exist_ok"_a, "timeout"_a.none());
  module.def(
      "remove_row_table",
      [](const ClientObject& client, const std::string& name, std::optional<double> timeout) {
        RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
          return client.client().RemoveRowTable(name, wait);
        }));
      },
      "client"_a, "name"_a, "timeout"_a.none());
  module.def(
      "check_row_table", [](const nb::dict& options) { (void)ToRowTableOptions(options); }, "options"_a,
      "Raises ValueError for options that are not valid.");
}

}  // namespace reverb::python
