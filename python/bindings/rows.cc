// The native part of reverb.rows: row tables.
#include "reverb/rows.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstring>
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
#include "row_values.h"
#include "rows.h"

namespace reverb::python {
namespace {

class RowsObject {
 public:
  RowsObject(const ClientObject& client, std::string table)
      : rows_(Owned<Rows>(ValueOrRaise(client.client().RowTable(std::move(table))))) {}

  // Returns (stored, aborted, version).
  nb::tuple Put(const nb::dict& arguments, std::optional<double> timeout) {
    const RowsToPut to_put(arguments);
    const auto put = [&](const WaitOptions& wait) { return rows_->Put(to_put.mode, to_put.rows, wait); };
    const PutOutcome outcome = ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(put));
    return nb::make_tuple(outcome.stored, FromStrings(outcome.aborted), outcome.version);
  }

  RowBatchObject* Claim(const nb::dict& arguments, std::optional<double> timeout) {
    const RowClaim claim = ToClaim(arguments);
    const auto run = [&](const WaitOptions& wait) { return rows_->Claim(claim, wait); };
    return new RowBatchObject(ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(run)));
  }
  RowBatchObject* Get(const std::vector<std::string>& keys, const std::vector<std::string>& columns,
                      std::optional<double> timeout) {
    const auto get = [&](const WaitOptions& wait) { return rows_->Get(keys, columns, wait); };
    return new RowBatchObject(ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(get)));
  }
  // Returns the fields of reverb.RowInfo for each row.
  nb::list List(const std::string& where, int64_t limit, std::optional<double> timeout) {
    const auto list = [&](const WaitOptions& wait) { return rows_->List(where, limit, wait); };
    return FromInfos(ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(list)));
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
  void SetVersion(int64_t version, std::optional<nb::bytes> state, std::optional<double> timeout) {
    const std::optional<std::string> bytes = ToState(state);
    RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
      return rows_->SetVersion(version, wait, bytes);
    }));
  }
  void SetState(const nb::bytes& state, std::optional<double> timeout) {
    const std::string bytes(state.c_str(), state.size());
    RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
      return rows_->SetState(bytes, wait);
    }));
  }
  nb::bytes State(std::optional<double> timeout) {
    const auto get = [&](const WaitOptions& wait) { return rows_->State(wait); };
    const std::string bytes = ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(get));
    return nb::bytes(bytes.data(), bytes.size());
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
    return ToDict(ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(info)));
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
  BindRowBatch(module);
  using Self = RowsObject;
  nb::class_<Self>(module, "Rows", "The native part of reverb.Rows.")
      .def(nb::init<const ClientObject&, std::string>(), "client"_a, "table"_a)
      .def("put", &Self::Put, "arguments"_a, "timeout"_a.none())
      .def("claim", &Self::Claim, "arguments"_a, "timeout"_a.none(), nb::rv_policy::take_ownership)
      .def("get", &Self::Get, "keys"_a, "columns"_a, "timeout"_a.none(), nb::rv_policy::take_ownership)
      .def("list", &Self::List, "where"_a, "limit"_a, "timeout"_a.none())
      .def("delete", &Self::Delete, "keys"_a, "where"_a, "timeout"_a.none())
      .def("end", &Self::End, "keys"_a, "ending"_a, "timeout"_a.none())
      .def("set_version", &Self::SetVersion, "version"_a, "state"_a.none(), "timeout"_a.none())
      .def("set_state", &Self::SetState, "state"_a, "timeout"_a.none())
      .def("state", &Self::State, "timeout"_a.none())
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
