#include "client.h"

#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "tree.h"

namespace reverb::python {
namespace {

bool IsLost(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kCancelled;
}

std::vector<uint64_t> ToKeys(nb::handle keys) {
  std::vector<uint64_t> result;
  if (PyObject_HasAttrString(keys.ptr(), "tolist")) {
    // An array, as quickly as may be.
    const nb::object list = keys.attr("tolist")();
    for (const nb::handle key : list) result.push_back(ToKey(key));
    return result;
  }
  if (!PySequence_Check(keys.ptr())) {
    RaiseTypeError("keys must be a sequence of unsigned 64-bit integers, got " + ShortRepr(keys));
  }
  for (const nb::handle key : keys) result.push_back(ToKey(key));
  return result;
}

// --- Single calls ---

bool Fits(const TensorSpec& spec, const TensorView& value) {
  if (spec.dtype != value.dtype) return false;
  const Shape row(std::vector<int64_t>(value.dims.begin(), value.dims.end()));
  std::vector<int64_t> with_time = row.dims();
  with_time.insert(with_time.begin(), 1);
  // A signature describes a step or a whole item.
  return spec.shape.IsCompatibleWith(row) || spec.shape.IsCompatibleWith(Shape(std::move(with_time)));
}

// Why an item of this one step cannot go into the table; empty when it can.
std::string InsertProblem(const TableSignatures& signatures, const std::string& table,
                          std::span<const TensorView> step) {
  const auto found = signatures.find(table);
  if (found == signatures.end()) {
    std::string known;
    for (const auto& [name, signature] : signatures) known += (known.empty() ? "\"" : ", \"") + name + "\"";
    return "Unable to find signatures for table '" + table + "': the server's tables are [" + known + "]";
  }
  if (!found->second) return {};
  const std::vector<TensorSpec>& signature = *found->second;
  const auto prefix = "Unable to insert into table '" + table + "': ";
  if (signature.size() != step.size()) {
    return prefix + "the data has " + std::to_string(step.size()) +
           " tensors but the table's signature has " + std::to_string(signature.size());
  }
  for (size_t i = 0; i < step.size(); ++i) {
    if (Fits(signature[i], step[i])) continue;
    const TensorSpec got{.name = {},
                         .dtype = step[i].dtype,
                         .shape = Shape(std::vector<int64_t>(step[i].dims.begin(), step[i].dims.end()))};
    return prefix + "tensor " + std::to_string(i) + " is " + ToString(got) +
           " but the table's signature has " + ToString(signature[i]);
  }
  return {};
}

void Insert(ClientObject& self, nb::handle data, const nb::dict& priorities,
            std::optional<double> timeout_s) {
  if (priorities.size() == 0) {
    RaiseValueError(
        "at least one table and priority must be given: insert(data, priorities={table: priority})");
  }
  std::vector<Client::TablePriority> tables;
  for (const auto& [table, priority] : priorities) {
    if (!PyUnicode_Check(table.ptr()))
      RaiseTypeError("the name of a table must be a str, got " + ShortRepr(table));
    tables.emplace_back(nb::cast<std::string>(table), ToDouble(priority, "priority"));
  }
  std::vector<nb::object> leaves;
  Flatten(data.ptr(), &leaves);
  if (leaves.empty()) {
    PyErr_SetString(PyExc_RuntimeError, "an item needs at least one value, but `data` has none");
    nb::raise_python_error();
  }
  Views views;
  std::vector<TensorView> step;
  for (const nb::object& leaf : leaves) step.push_back(views.Add(leaf.ptr()));

  const Timeout timeout = TimeoutFromSeconds(timeout_s);
  self.CheckInsert(tables, step, timeout);
  const Client client = self.client();
  const Status status =
      Waiting(timeout).Run([&](const WaitOptions& wait) { return client.Insert(step, tables, wait); });
  if (IsLost(status)) {
    Raise(status, "Error when confirming that all items written to table. " + std::string(status.message()));
  }
  RaiseUnlessOk(status);
}

void Mutate(ClientObject& self, std::string_view table, const std::vector<KeyPriority>& updates,
            const std::vector<uint64_t>& deletes, std::optional<double> timeout) {
  const Client client = self.client();
  RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
    // An empty call tells whether the table exists.
    if (!deletes.empty() || updates.empty()) REVERB_RETURN_IF_ERROR(client.Delete(table, deletes, wait));
    if (!updates.empty()) REVERB_RETURN_IF_ERROR(client.UpdatePriorities(table, updates, wait));
    return Status::Ok();
  }));
}

void MutatePriorities(ClientObject& self, std::string_view table, nb::handle updates, nb::handle deletes,
                      std::optional<double> timeout) {
  std::vector<KeyPriority> pairs;
  if (!updates.is_none()) {
    if (!PyMapping_Check(updates.ptr()) || !PyObject_HasAttrString(updates.ptr(), "items")) {
      RaiseTypeError("updates must be a dict of keys and priorities, got " + ShortRepr(updates));
    }
    for (const nb::handle pair : nb::object(updates.attr("items")())) {
      pairs.push_back({ToKey(pair[0]), ToDouble(pair[1], "priority")});
    }
  }
  Mutate(self, table, pairs, deletes.is_none() ? std::vector<uint64_t>() : ToKeys(deletes), timeout);
}

void UpdatePriorities(ClientObject& self, std::string_view table, nb::handle keys, nb::handle priorities,
                      std::optional<double> timeout) {
  const std::vector<uint64_t> key_list = ToKeys(keys);
  const nb::object numbers = PyObject_HasAttrString(priorities.ptr(), "tolist")
                                 ? nb::object(priorities.attr("tolist")())
                                 : nb::borrow(priorities);
  std::vector<KeyPriority> pairs;
  for (const nb::handle number : nb::iter(numbers)) {
    if (pairs.size() < key_list.size())
      pairs.push_back({key_list[pairs.size()], 0});
    else
      RaiseValueError("there are more priorities than keys (" + std::to_string(key_list.size()) + ")");
    pairs.back().priority = ToDouble(number, "priority");
  }
  if (pairs.size() != key_list.size()) {
    RaiseValueError("there are " + std::to_string(key_list.size()) + " keys but " +
                    std::to_string(pairs.size()) + " priorities; give one for each");
  }
  Mutate(self, table, pairs, {}, timeout);
}

nb::list ServerInfoDicts(ClientObject& self, std::optional<double> timeout) {
  const Client client = self.client();
  const ServerInfo info = ValueOrRaise(
      Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) { return client.Info(wait); }));
  nb::list tables;
  for (const TableInfo& table : info.tables) tables.append(ToDict(table));
  return tables;
}

}  // namespace

ClientObject::ClientObject(std::string address, bool in_process)
    : address_(std::move(address)), in_process_(in_process) {
  CheckFork();
  NoteUse();
  client_ = Owned<Client>(ValueOrRaise(Waiting().Run(
      [&](const WaitOptions&) { return Client::Connect(address_, {.in_process = in_process_}); })));
}

std::shared_ptr<const TableSignatures> ClientObject::FetchSignatures(Timeout timeout) {
  const Client handle = client();
  signatures_ =
      ValueOrRaise(Waiting(timeout).Run([&](const WaitOptions& wait) { return handle.Signatures(wait); }));
  return signatures_;
}

void ClientObject::CheckInsert(std::span<const Client::TablePriority> tables,
                               std::span<const TensorView> step, Timeout timeout) {
  // What was known may be of a server that is gone: asked again before anything is refused.
  const bool was_known = signatures_ != nullptr;
  for (const bool is_last : {!was_known, true}) {
    const auto signatures = is_last ? FetchSignatures(timeout) : signatures_;
    std::string problem;
    for (const auto& [table, priority] : tables) {
      problem = InsertProblem(*signatures, table, step);
      if (!problem.empty()) break;
    }
    if (problem.empty()) return;
    if (is_last) RaiseValueError(problem);
  }
}

bool ClientObject::MayReadAhead(const std::string& table, Timeout timeout) {
  const auto known = may_read_ahead_.find(table);
  if (known != may_read_ahead_.end()) return known->second;
  const Client handle = client();
  const ServerInfo info =
      ValueOrRaise(Waiting(timeout).Run([&](const WaitOptions& wait) { return handle.Info(wait); }));
  // Not where sampling takes items away, nor where there is only the latest value: the next sample shall be
  // new.
  for (const TableInfo& each : info.tables) {
    may_read_ahead_[each.name] = each.max_times_sampled < 1 && each.max_size > 1;
  }
  const auto found = may_read_ahead_.find(table);
  return found != may_read_ahead_.end() && found->second;  // unknown: the sampler will say so
}

void BindClient(nb::module_& module) {
  using Self = ClientObject;
  nb::class_<Self>(module, "Client", nb::is_weak_referenceable(), nb::dynamic_attr())
      .def(nb::init<std::string, bool>(), "server_address"_a, nb::kw_only(), "in_process"_a = true)
      .def_prop_ro("_in_process", &Self::in_process)
      .def_prop_ro("server_address", &Self::address, "The address that the client was made with.")
      .def("_insert", &Insert, "data"_a.none(), "priorities"_a, "timeout"_a.none())
      .def("_mutate_priorities", &MutatePriorities, "table"_a, "updates"_a.none(), "deletes"_a.none(),
           "timeout"_a.none())
      .def("_update_priorities", &UpdatePriorities, "table"_a, "keys"_a.none(), "priorities"_a.none(),
           "timeout"_a.none())
      .def(
          "_reset",
          [](Self& self, std::string_view table, std::optional<double> timeout) {
            const Client client = self.client();
            RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
              return client.Reset(table, wait);
            }));
          },
          "table"_a, "timeout"_a.none())
      .def(
          "_set_rate_limiter",
          [](Self& self, std::string_view table, const RateLimiterOptions& options,
             std::optional<double> timeout) {
            const Client client = self.client();
            RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
              return client.SetRateLimiter(table, options, wait);
            }));
          },
          "table"_a, "rate_limiter"_a, "timeout"_a.none())
      .def("_server_info", &ServerInfoDicts, "timeout"_a.none())
      .def(
          "_checkpoint",
          [](Self& self, std::optional<double> timeout) {
            const Client client = self.client();
            return ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
              return client.Checkpoint(wait);
            }));
          },
          "timeout"_a.none());
}

}  // namespace reverb::python
