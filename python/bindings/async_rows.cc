// The native part of reverb.aio: operations on row tables.
#include "reverb/async_rows.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client.h"
#include "completions.h"
#include "errors.h"
#include "gil.h"
#include "leases.h"
#include "python_api.h"
#include "row_values.h"

namespace reverb::python {
namespace {

// Each method starts an operation. Its outcome gets the number in the queue of the event loop.
class AsyncRowsObject {
 public:
  AsyncRowsObject(const ClientObject& client, std::string table)
      : rows_(Owned<AsyncRows>(AsyncRows(ValueOrRaise(client.client().RowTable(std::move(table)))))) {}

  // Returns (stored, aborted, version).
  StartedCall* Put(const Completions& to, uint64_t number, const nb::dict& arguments,
                   std::optional<double> timeout) {
    const RowsToPut put(arguments);
    return Start<PutOutcome>(
        to, number, timeout,
        [&](Timeout within, auto done) { return rows_->Put(put.mode, put.rows, within, std::move(done)); },
        [](const PutOutcome& outcome) {
          return nb::object(nb::make_tuple(outcome.stored, FromStrings(outcome.aborted), outcome.version));
        });
  }
  StartedCall* Claim(const Completions& to, uint64_t number, const nb::dict& arguments,
                     std::optional<double> timeout) {
    const RowClaim claim = ToClaim(arguments);
    return Start<RowBatch>(
        to, number, timeout,
        [&](Timeout within, auto done) { return rows_->Claim(claim, within, std::move(done)); }, ToBatch);
  }
  StartedCall* Get(const Completions& to, uint64_t number, const std::vector<std::string>& keys,
                   const std::vector<std::string>& columns, std::optional<double> timeout) {
    return Start<RowBatch>(
        to, number, timeout,
        [&](Timeout within, auto done) { return rows_->Get(keys, columns, within, std::move(done)); },
        ToBatch);
  }
  StartedCall* List(const Completions& to, uint64_t number, const std::string& where, int64_t limit,
                    std::optional<double> timeout) {
    return Start<std::vector<RowInfo>>(
        to, number, timeout,
        [&](Timeout within, auto done) { return rows_->List(where, limit, within, std::move(done)); },
        [](const std::vector<RowInfo>& rows) { return nb::object(FromInfos(rows)); });
  }
  StartedCall* Delete(const Completions& to, uint64_t number, const std::vector<std::string>& keys,
                      const std::string& where, std::optional<double> timeout) {
    return Start<int64_t>(
        to, number, timeout,
        [&](Timeout within, auto done) { return rows_->Delete(keys, where, within, std::move(done)); },
        [](int64_t count) { return nb::object(nb::int_(count)); });
  }
  StartedCall* End(const Completions& to, uint64_t number, const std::vector<std::string>& keys, int ending,
                   std::optional<double> timeout) {
    return Start<std::vector<std::string>>(
        to, number, timeout,
        [&](Timeout within, auto done) {
          return rows_->End(keys, static_cast<RowEnding>(ending), within, std::move(done));
        },
        [](const std::vector<std::string>& gone) { return nb::object(FromStrings(gone)); });
  }
  StartedCall* SetVersion(const Completions& to, uint64_t number, int64_t version,
                          std::optional<nb::bytes> state, std::optional<double> timeout) {
    return Start<bool>(
        to, number, timeout,
        [&, bytes = ToState(state)](Timeout within, auto done) {
          return rows_->SetVersion(version, within, OfStatus(done), bytes);
        },
        [](bool) { return nb::object(nb::none()); });
  }
  StartedCall* SetState(const Completions& to, uint64_t number, const nb::bytes& state,
                        std::optional<double> timeout) {
    return Start<bool>(
        to, number, timeout,
        [&, bytes = std::string(state.c_str(), state.size())](Timeout within, auto done) {
          return rows_->SetState(bytes, within, OfStatus(done));
        },
        [](bool) { return nb::object(nb::none()); });
  }
  StartedCall* State(const Completions& to, uint64_t number, std::optional<double> timeout) {
    return Start<std::string>(
        to, number, timeout, [&](Timeout within, auto done) { return rows_->State(within, std::move(done)); },
        [](const std::string& state) { return nb::object(nb::bytes(state.data(), state.size())); });
  }
  // Returns (id, version).
  StartedCall* Reserve(const Completions& to, uint64_t number, int64_t count, std::optional<int64_t> version,
                       nb::handle lease, std::optional<double> timeout) {
    if (lease.is_none()) RaiseValueError("lease (None) must be a positive number of seconds");
    const std::chrono::nanoseconds time = LeaseFromSeconds(lease);
    return Start<Rows::Reservation>(
        to, number, timeout,
        [&](Timeout within, auto done) {
          return rows_->Reserve(count, version, time, within, std::move(done));
        },
        [](const Rows::Reservation& reserved) {
          return nb::object(nb::make_tuple(reserved.id, reserved.version));
        });
  }
  StartedCall* CancelReservation(const Completions& to, uint64_t number, uint64_t id,
                                 std::optional<double> timeout) {
    return Start<bool>(
        to, number, timeout,
        [&](Timeout within, auto done) { return rows_->CancelReservation(id, within, std::move(done)); },
        [](bool was_known) { return nb::object(nb::bool_(was_known)); });
  }
  StartedCall* Info(const Completions& to, uint64_t number, std::optional<double> timeout) {
    return Start<RowTableInfo>(
        to, number, timeout, [&](Timeout within, auto done) { return rows_->Info(within, std::move(done)); },
        [](const RowTableInfo& info) { return nb::object(ToDict(info)); });
  }
  StartedCall* Settle(const Completions& to, uint64_t number, const RowBatchObject& batch, int settlement,
                      const std::vector<std::string>& keys, nb::handle lease, std::optional<nb::bytes> state,
                      std::optional<double> timeout) {
    const std::chrono::nanoseconds extension = LeaseFromSeconds(lease);
    return Start<LeaseOutcome>(
        to, number, timeout,
        [&, bytes = ToState(state)](Timeout within, auto done) {
          return rows_->Settle(batch.batch(), static_cast<RowSettlement>(settlement), keys, extension, within,
                               std::move(done), bytes);
        },
        [](const LeaseOutcome& outcome) {
          return nb::object(nb::make_tuple(outcome.settled, outcome.gone, outcome.expired));
        });
  }

 private:
  static std::function<bool(Status)> OfStatus(AsyncRows::Done<bool> done) {
    return [done = std::move(done)](const Status& status) {
      return done(status.ok() ? Result<bool>(true) : Result<bool>(status));
    };
  }
  static nb::object ToBatch(const RowBatch& batch) {
    return nb::cast(new RowBatchObject(batch), nb::rv_policy::take_ownership);
  }

  // What an operation has got that must be given back if nobody takes it.
  static std::function<void()> GiveBack(const AsyncRows& rows, const RowBatch& batch) {
    if (batch.lease_id() == 0) return nullptr;
    return [rows, lease = batch.lease_id()] { rows.ReturnLease(lease); };
  }
  static std::function<void()> GiveBack(const AsyncRows& rows, const Rows::Reservation& reserved) {
    return [rows, id = reserved.id] { rows.ReturnReservation(id); };
  }
  template <typename T>
  static std::function<void()> GiveBack(const AsyncRows&, const T&) {
    return nullptr;
  }

  // Calls start(timeout, done), and converts the outcome with `convert`.
  template <typename T, typename F, typename Convert>
  StartedCall* Start(const Completions& to, uint64_t number, std::optional<double> timeout, F start,
                     Convert convert) {
    const Timeout within = TimeoutFromSeconds(timeout);
    auto outcome = std::make_shared<StartedCall::Outcome>();
    auto done = [mailbox = to.mailbox(), number, outcome, rows = *rows_, convert](Result<T> result) {
      if (!result.ok()) {
        return mailbox->Put(number, [status = result.status()]() -> nb::object { Raise(status); });
      }
      auto value = std::make_shared<T>(*std::move(result));
      {
        const std::lock_guard lock(outcome->mu);
        // The operation was over before the caller could cancel it, but has not passed its result on.
        if (outcome->is_cancelled) return false;
        outcome->give_back = GiveBack(rows, *value);
      }
      if (mailbox->Put(number, [value, convert] { return convert(*value); })) return true;
      const std::lock_guard lock(outcome->mu);
      outcome->give_back = nullptr;  // the result is given back because of the return value
      return false;
    };
    const GilRelease released;
    const AsyncCall call = start(within, AsyncRows::Done<T>(std::move(done)));
    return new StartedCall([call] { call.Cancel(); }, std::move(outcome));
  }

  // In a child created by fork() the client behind it uses connections of its own.
  Owned<AsyncRows> rows_;
};

}  // namespace

void BindAsyncRows(nb::module_& module) {
  using Self = AsyncRowsObject;
  constexpr auto kOwned = nb::rv_policy::take_ownership;
  nb::class_<Self>(module, "AsyncRows", "The native part of reverb.aio.Rows.")
      .def(nb::init<const ClientObject&, std::string>(), "client"_a, "table"_a)
      .def("put", &Self::Put, "to"_a, "number"_a, "arguments"_a, "timeout"_a.none(), kOwned)
      .def("claim", &Self::Claim, "to"_a, "number"_a, "arguments"_a, "timeout"_a.none(), kOwned)
      .def("get", &Self::Get, "to"_a, "number"_a, "keys"_a, "columns"_a, "timeout"_a.none(), kOwned)
      .def("list", &Self::List, "to"_a, "number"_a, "where"_a, "limit"_a, "timeout"_a.none(), kOwned)
      .def("delete", &Self::Delete, "to"_a, "number"_a, "keys"_a, "where"_a, "timeout"_a.none(), kOwned)
      .def("end", &Self::End, "to"_a, "number"_a, "keys"_a, "ending"_a, "timeout"_a.none(), kOwned)
      .def("set_version", &Self::SetVersion, "to"_a, "number"_a, "version"_a, "state"_a.none(),
           "timeout"_a.none(), kOwned)
      .def("set_state", &Self::SetState, "to"_a, "number"_a, "state"_a, "timeout"_a.none(), kOwned)
      .def("state", &Self::State, "to"_a, "number"_a, "timeout"_a.none(), kOwned)
      .def("reserve", &Self::Reserve, "to"_a, "number"_a, "count"_a, "version"_a.none(), "lease"_a.none(),
           "timeout"_a.none(), kOwned)
      .def("cancel_reservation", &Self::CancelReservation, "to"_a, "number"_a, "id"_a, "timeout"_a.none(),
           kOwned)
      .def("info", &Self::Info, "to"_a, "number"_a, "timeout"_a.none(), kOwned)
      .def("settle", &Self::Settle, "to"_a, "number"_a, "batch"_a, "settlement"_a, "keys"_a, "lease"_a.none(),
           "state"_a.none(), "timeout"_a.none(), kOwned);
}

}  // namespace reverb::python
