#include "client.h"

#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "table.h"
#include "tree.h"

namespace reverb::python {
namespace {

bool IsLost(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kCancelled;
}

// Returns the elements of a contiguous array of one dimension whose format is one of `formats`; null
// otherwise. Most keys and priorities are such arrays, and need no Python object each.
class FlatArray {
 public:
  FlatArray(nb::handle value, std::string_view formats) {
    if (!PyObject_CheckBuffer(value.ptr())) return;
    if (PyObject_GetBuffer(value.ptr(), &buffer_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
      PyErr_Clear();
      return;
    }
    is_held_ = true;
    const std::string_view format = buffer_.format != nullptr ? buffer_.format : "";
    fits_ = buffer_.ndim == 1 && format.size() == 1 && formats.find(format.front()) != std::string_view::npos;
  }
  ~FlatArray() {
    if (is_held_) PyBuffer_Release(&buffer_);
  }
  FlatArray(const FlatArray&) = delete;
  FlatArray& operator=(const FlatArray&) = delete;

  explicit operator bool() const { return fits_; }
  char format() const { return buffer_.format[0]; }
  template <typename T>
  std::span<const T> as() const {
    return {static_cast<const T*>(buffer_.buf), static_cast<size_t>(buffer_.shape[0])};
  }

 private:
  Py_buffer buffer_{};
  bool is_held_ = false;
  bool fits_ = false;
};

// Returns whether iterating over `object` would not give elements in order: bytes would give small integers,
// a dict its keys.
bool IsNoArray(nb::handle object) {
  return PyBytes_Check(object.ptr()) || PyByteArray_Check(object.ptr()) || PyUnicode_Check(object.ptr()) ||
         PyDict_Check(object.ptr()) || PyAnySet_Check(object.ptr());
}

std::vector<uint64_t> ToKeys(nb::handle keys) {
  if (const FlatArray array(keys, "LQ"); array) {
    const std::span<const uint64_t> values = array.as<uint64_t>();
    return {values.begin(), values.end()};
  }
  std::vector<uint64_t> result;
  const nb::object list =
      PyObject_HasAttrString(keys.ptr(), "tolist") ? nb::object(keys.attr("tolist")()) : nb::borrow(keys);
  if (!PySequence_Check(list.ptr()) || IsNoArray(list)) {
    RaiseTypeError("keys must be a sequence of unsigned 64-bit integers, got " + ShortRepr(keys) +
                   " of type " + Py_TYPE(keys.ptr())->tp_name);
  }
  for (const nb::handle key : list) result.push_back(ToKey(key));
  return result;
}

std::vector<double> ToPriorities(nb::handle priorities) {
  if (const FlatArray array(priorities, "df"); array) {
    if (array.format() == 'f') {
      const std::span<const float> values = array.as<float>();
      return {values.begin(), values.end()};
    }
    const std::span<const double> values = array.as<double>();
    return {values.begin(), values.end()};
  }
  const nb::object numbers = PyObject_HasAttrString(priorities.ptr(), "tolist")
                                 ? nb::object(priorities.attr("tolist")())
                                 : nb::borrow(priorities);
  if (IsNoArray(numbers)) {
    RaiseTypeError("priorities must be a sequence of numbers, got " + ShortRepr(priorities) + " of type " +
                   Py_TYPE(priorities.ptr())->tp_name);
  }
  std::vector<double> result;
  for (const nb::handle number : nb::iter(numbers)) result.push_back(ToDouble(number, "priority"));
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

// Returns why the table does not accept an item of this step; empty when it does.
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

nb::dict AsDict(nb::handle mapping) {
  if (PyDict_Check(mapping.ptr())) return nb::borrow<nb::dict>(mapping);
  nb::dict copy;
  if (PyDict_Update(copy.ptr(), mapping.ptr()) != 0) {
    ClearException();
    RaiseTypeError("priorities must be a dict of tables and priorities, got " + ShortRepr(mapping));
  }
  return copy;
}

// Copies the dict before it converts priorities: that may run Python code, which may change the dict.
void ReadPriorities(const nb::dict& priorities, std::vector<Client::TablePriority>* tables) {
  std::vector<nb::object> numbers;
  numbers.reserve(priorities.size());
  tables->reserve(priorities.size());
  for (const auto& [table, priority] : priorities) {
    if (!PyUnicode_Check(table.ptr())) {
      RaiseTypeError("the name of a table must be a str, got " + ShortRepr(Borrow(table.ptr())));
    }
    Py_ssize_t size = 0;
    const char* const name = PyUnicode_AsUTF8AndSize(table.ptr(), &size);
    if (name == nullptr) {
      ClearException();
      RaiseValueError("the name of a table must be text that UTF-8 can hold, got " +
                      ShortRepr(Borrow(table.ptr())));
    }
    tables->emplace_back(std::string(name, static_cast<size_t>(size)), 0.0);
    numbers.push_back(Borrow(priority.ptr()));
  }
  for (size_t i = 0; i < numbers.size(); ++i) (*tables)[i].second = ToDouble(numbers[i], "priority");
}

void Insert(ClientObject& self, nb::handle data, nb::handle table_priorities,
            std::optional<double> timeout_s) {
  const nb::dict priorities = AsDict(table_priorities);
  if (priorities.size() == 0) {
    RaiseValueError(
        "at least one table and priority must be given: insert(data, priorities={table: priority})");
  }
  std::vector<Client::TablePriority> tables;
  ReadPriorities(priorities, &tables);
  std::vector<Structure::Leaf> leaves;
  const ItemStructure structure = self.nests().Flatten(data.ptr(), &leaves);
  if (leaves.empty()) {
    RaiseValueError("`data` (" + ShortRepr(data) + ") has no values, but an item needs at least one");
  }
  Views views;
  std::vector<TensorView> step;
  for (const auto& [unused, leaf] : leaves) step.push_back(views.Add(leaf.ptr()));

  const Timeout timeout = TimeoutFromSeconds(timeout_s);
  self.CheckInsert(tables, step, timeout);
  const Client client = self.client();
  const Status status = Waiting(timeout).Run(
      [&](const WaitOptions& wait) { return client.Insert(step, tables, wait, structure); });
  if (IsLost(status)) {
    Raise(status, "Error when confirming that all items written to table. " + std::string(status.message()));
  }
  RaiseUnlessOk(status);
}

void Mutate(ClientObject& self, std::string_view table, const std::vector<KeyPriority>& updates,
            const std::vector<uint64_t>& deletes, std::optional<double> timeout) {
  const Client client = self.client();
  RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
    // An empty call reports whether the table exists.
    Status deleted;
    if (!deletes.empty() || updates.empty()) deleted = client.Delete(table, deletes, wait);
    // If one of several servers cannot be reached, the others still get their updates.
    if (!deleted.ok() && (deleted.code() == StatusCode::kCancelled || client.num_servers() == 1))
      return deleted;
    if (updates.empty()) return deleted;
    Status updated = client.UpdatePriorities(table, updates, wait);
    return deleted.ok() ? updated : deleted;
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
  const std::vector<double> numbers = ToPriorities(priorities);
  if (numbers.size() != key_list.size()) {
    RaiseValueError("there are " + std::to_string(key_list.size()) + " keys but " +
                    std::to_string(numbers.size()) + " priorities; give one for each");
  }
  std::vector<KeyPriority> pairs(key_list.size());
  for (size_t i = 0; i < pairs.size(); ++i) pairs[i] = {key_list[i], numbers[i]};
  Mutate(self, table, pairs, {}, timeout);
}

// `any_server`: of several, the first one that answers instead of the sum.
nb::dict ServerInfoDict(ClientObject& self, std::optional<double> timeout, bool any_server) {
  const Client client = self.client();
  const ServerInfo info = ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
    return any_server ? client.InfoOfOne(wait) : client.Info(wait);
  }));
  if (client.num_servers() == 1) self.RecordTables(info);  // limits are those of each server
  return ToDict(info);
}

// Returns a list of (address, information as a dict or None, reason why there is none).
nb::list ServerReports(ClientObject& self, std::optional<double> timeout) {
  const Client client = self.client();
  const std::vector<Client::ServerReport> reports =
      Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
        return client.InfoOfEach(wait);
      });
  nb::list list;
  for (const Client::ServerReport& report : reports) {
    const std::string_view reason = report.info.status().message();
    list.append(nb::make_tuple(nb::str(report.address.data(), report.address.size()),
                               report.info.ok() ? nb::object(ToDict(*report.info)) : nb::none(),
                               nb::str(reason.data(), reason.size())));
  }
  return list;
}

// Docstrings of the methods that have no Python wrapper, because they are called often.

constexpr char kInsertDoc[] =
    R"(Writes one step as an item of each named table, and returns when all are inserted.

The data is sent and stored once, for any number of tables. When the connection breaks, it is sent again under the
same number, so that it is not inserted twice.

Args:
    data: any nest of values.
    priorities: the tables, each with the priority of the item there.
    timeout: seconds; DeadlineExceededError afterwards. The items may still be inserted.

Raises:
    ValueError: if a table does not exist, the data does not match its signature, or a priority is rejected.

>>> import reverb
>>> server = reverb.Server([reverb.Table.queue("queue", 10)])
>>> client = server.localhost_client()
>>> client.insert({"observation": 1.0}, priorities={"queue": 2.0})
>>> next(client.sample("queue"))[0].info.priority
2.0
>>> server.stop())";

constexpr char kSampleDoc[] =
    R"(Returns an iterator over `num_samples` items of the table. Sends nothing before the first next().

Samples are prefetched over a network: one at first, and more while the caller takes them as fast as they arrive,
at most `num_samples` in all. For tables with `max_times_sampled`, the limit is one sample plus a sixteenth of those
already taken; for tables with `max_size=1`, one sample. Closing or dropping the iterator discards prefetched samples;
if sampling removes items, a warning reports how many. `exact` avoids this.

Args:
    table: its name.
    num_samples: how many items.
    emit_timesteps: yield a list for each item, with a ReplaySample for each of its steps; otherwise one
        ReplaySample whose columns have time as their leading dimension.
    unpack_as_table_signature: give `data` the structure of the table's signature; otherwise, and for a table
        without one, it is a flat list.
    exact: disables prefetching: every sample reflects all priorities that were set before it was requested.
    timeout: seconds that each next() may wait; DeadlineExceededError afterwards. The following next() continues to
        wait.
    names: give `data` the names and the nest of the table's signature or, without one, those with which the items
        were written.
    all_or_nothing: draw all `num_samples` together, or none: the first next() waits until the table can provide them,
        and takes nothing if it ends with an error. ValueError for more than the table can ever provide together.
    lease: seconds; the items are leased for this long, and count as sampled only when they are acknowledged. What is
        yielded has ack(), release() and extend() (reverb.leases). Each next() acknowledges the item before it;
        close() releases the last one, and so does dropping both it and the iterator. Nothing is prefetched, so each
        next() waits for the server; sample_batches() is faster.

Raises:
    ValueError: for a `lease` that is not a positive finite number; from next(): for an item whose columns differ in
        length with `emit_timesteps`, for a table that does not exist with `unpack_as_table_signature` or `names`, and
        for `num_samples` below 1 (-1, as in dm-reverb, gives no samples and no error).
    RuntimeError: from next(): if the table does not exist, or a server of this process has stopped. For a lost
        server elsewhere, next() waits until `timeout` or Ctrl-C.)";

constexpr char kMutateDoc[] =
    R"(Deletes items, then sets priorities. Unknown keys are ignored.

ValueError if a selector of the table rejects a priority: then none is set. RuntimeError if the table does not
exist.)";

// Returns the dtypes that NumPy cannot represent in this process, as bits.
uint64_t UnsupportedDTypes() {
  // Finding the package is cheap, importing it is not.
  const nb::object find_spec = nb::module_::import_("importlib.util").attr("find_spec");
  const nb::object spec = nb::steal(PyObject_CallFunction(find_spec.ptr(), "s", "ml_dtypes"));
  if (!spec.is_valid()) PyErr_Clear();  // a module without a spec is imported already
  return spec.is_valid() && spec.is_none() ? uint64_t{1} << static_cast<uint32_t>(DType::kBfloat16) : 0;
}

}  // namespace

ClientObject::ClientObject(std::string address, bool in_process, bool local, std::string name,
                           std::optional<int64_t> write_window_bytes, std::optional<double> reconnect_timeout,
                           uint64_t max_response_bytes, uint64_t max_decoded_item_bytes,
                           uint64_t max_decoded_reply_bytes, std::optional<double> keepalive_timeout,
                           std::string_view lost_updates, double lost_server_timeout, bool servers_may_change,
                           const std::optional<std::vector<std::string>>& tls, std::string token,
                           std::string_view plaintext_token)
    : address_(std::move(address)),
      reconnect_timeout_(TimeoutFromSeconds(reconnect_timeout, "reconnect_timeout")) {
  std::optional<ClientTls> client_tls;
  if (tls)
    client_tls = {.ca = tls->at(0), .certificate = tls->at(1), .key = tls->at(2), .server_name = tls->at(3)};
  const ClientOptions options{
      .write_window_bytes = write_window_bytes,
      .reconnect_timeout = reconnect_timeout_,
      .keepalive_timeout = TimeoutFromSeconds(keepalive_timeout, "keepalive_timeout"),
      .max_response_bytes = max_response_bytes,
      .max_decoded_item_bytes = max_decoded_item_bytes,
      .max_decoded_reply_bytes = max_decoded_reply_bytes,
      .in_process = in_process,
      .local = local,
      .name = std::move(name),
      .tls = std::move(client_tls),
      .token = std::move(token),
      .plaintext_token = plaintext_token == "refuse"  ? PlaintextToken::kRefuse
                         : plaintext_token == "allow" ? PlaintextToken::kAllow
                                                      : PlaintextToken::kWarn,
      .unsupported_dtypes = UnsupportedDTypes(),
      .lost_updates = lost_updates == "raise" ? LostUpdates::kRaise : LostUpdates::kDrop,
      .lost_server_timeout = *TimeoutFromSeconds(lost_server_timeout),
      .servers_may_change = servers_may_change};
  client_ = Owned<Client>(
      ValueOrRaise(Waiting().Run([&](const WaitOptions&) { return Client::Connect(address_, options); })));
}

std::shared_ptr<SignatureSource> ClientObject::FetchSignatures(Timeout timeout) {
  const Client handle = client();
  std::shared_ptr<SignatureSource> source =
      ValueOrRaise(Waiting(timeout).Run([&](const WaitOptions& wait) { return handle.Signatures(wait); }));
  signatures_ = source->current();
  // Most calls of a writer hold the GIL, since they do not wait.
  return std::make_shared<SignatureSource>(*signatures_, [source] {
    std::optional<GilRelease> released;
    if (PyGILState_Check()) released.emplace();
    return source->Refresh();
  });
}

void ClientObject::CheckInsert(std::span<const Client::TablePriority> tables,
                               std::span<const TensorView> step, Timeout timeout) {
  // Cached signatures may belong to a previous server: fetch them again before rejecting anything.
  const bool was_known = signatures_ != nullptr;
  for (const bool is_last : {!was_known, true}) {
    if (is_last) FetchSignatures(timeout);
    const auto signatures = signatures_;
    std::string problem;
    for (const auto& [table, priority] : tables) {
      problem = InsertProblem(*signatures, table, step);
      if (!problem.empty()) break;
    }
    if (problem.empty()) return;
    if (is_last) RaiseValueError(problem);
  }
}

ReadAhead ClientObject::MayReadAhead(const std::string& table) const {
  const auto found = may_read_ahead_.find(table);
  return found == may_read_ahead_.end() ? ReadAhead::kNever : found->second;  // the sampler reports the error
}

void ClientObject::FetchTables(Timeout timeout) {
  const Client handle = client();
  RecordTables(
      ValueOrRaise(Waiting(timeout).Run([&](const WaitOptions& wait) { return handle.InfoOfOne(wait); })));
}

void ClientObject::RecordTables(const ServerInfo& info) {
  may_read_ahead_.clear();
  for (const TableInfo& each : info.tables) {
    may_read_ahead_[each.name] = each.max_size <= 1            ? ReadAhead::kNever
                                 : each.max_times_sampled >= 1 ? ReadAhead::kLittle
                                                               : ReadAhead::kFreely;
  }
}

void BindClient(nb::module_& module) {
  using Self = ClientObject;
  nb::class_<Self>(module, "Client", nb::is_weak_referenceable(), nb::dynamic_attr(),
                   "The native part of reverb.Client.")
      .def(nb::init<std::string, bool, bool, std::string, std::optional<int64_t>, std::optional<double>,
                    uint64_t, uint64_t, uint64_t, std::optional<double>, std::string_view, double, bool,
                    const std::optional<std::vector<std::string>>&, std::string, std::string_view>(),
           "server_address"_a, nb::kw_only(), "in_process"_a = true, "local"_a = true, "name"_a = "",
           "write_window_bytes"_a = ClientOptions().write_window_bytes, "reconnect_timeout"_a = nb::none(),
           "max_response_bytes"_a = ClientOptions().max_response_bytes,
           "max_decoded_item_bytes"_a = ClientOptions().max_decoded_item_bytes,
           "max_decoded_reply_bytes"_a = ClientOptions().max_decoded_reply_bytes,
           "keepalive_timeout"_a.none() = 20.0, "lost_updates"_a = "drop", "lost_server_timeout"_a = 10.0,
           "servers_may_change"_a = false, "tls"_a = nb::none(), "token"_a = "", "plaintext_token"_a = "warn")
      .def_prop_ro("server_address", &Self::address, "The address that was passed to the constructor.")
      .def("insert", &Insert, "data"_a.none(), "priorities"_a.none(), nb::kw_only(), "timeout"_a = nb::none(),
           kInsertDoc)
      .def("sample", &MakeSampleIterator, "table"_a, "num_samples"_a = 1, nb::kw_only(),
           "emit_timesteps"_a = Truth{true}, "unpack_as_table_signature"_a = Truth{}, "exact"_a = Truth{},
           "timeout"_a = nb::none(), "names"_a = Truth{}, "all_or_nothing"_a = Truth{},
           "lease"_a = nb::none(), kSampleDoc)
      .def("mutate_priorities", &MutatePriorities, "table"_a, "updates"_a = nb::none(),
           "deletes"_a = nb::none(), nb::kw_only(), "timeout"_a = nb::none(), kMutateDoc)
      .def("update_priorities", &UpdatePriorities, "table"_a, "keys"_a.none(), "priorities"_a.none(),
           nb::kw_only(), "timeout"_a = nb::none(),
           "Sets priorities given as two sequences or arrays of the same length; faster than a dict.")
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
      .def(
          "_create_table",
          [](Self& self, const TableObject& table, bool exist_ok, std::optional<double> timeout) {
            const Client client = self.client();
            RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
              return client.CreateTable(table.options(), exist_ok, wait);
            }));
            self.ForgetTables();
          },
          "table"_a, "exist_ok"_a, "timeout"_a.none())
      .def(
          "_remove_table",
          [](Self& self, std::string_view table, std::optional<double> timeout) {
            const Client client = self.client();
            RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
              return client.RemoveTable(table, wait);
            }));
            self.ForgetTables();
          },
          "table"_a, "timeout"_a.none())
      .def(
          "_change_table",
          [](Self& self, std::string_view table, std::optional<int32_t> max_size,
             std::optional<int32_t> max_times_sampled, std::optional<int64_t> max_age_nanos,
             std::optional<int64_t> max_bytes, std::optional<RateLimiterOptions> rate_limiter,
             std::optional<double> timeout) {
            TableChanges changes{.max_size = max_size,
                                 .max_times_sampled = max_times_sampled,
                                 .max_bytes = max_bytes,
                                 .rate_limiter = rate_limiter};
            if (max_age_nanos) changes.max_age = std::chrono::nanoseconds(*max_age_nanos);
            const Client client = self.client();
            RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
              return client.ChangeTable(table, changes, wait);
            }));
          },
          "table"_a, "max_size"_a.none(), "max_times_sampled"_a.none(), "max_age_nanos"_a.none(),
          "max_bytes"_a.none(), "rate_limiter"_a.none(), "timeout"_a.none())
      .def("_server_info", &ServerInfoDict, "timeout"_a.none(), "any_server"_a = false)
      .def("_server_reports", &ServerReports, "timeout"_a.none())
      .def(
          "_set_servers",
          [](Self& self, const std::vector<std::string>& addresses) {
            const Client client = self.client();
            RaiseUnlessOk(Waiting().Run([&](const WaitOptions&) { return client.SetServers(addresses); }));
          },
          "addresses"_a)
      .def_prop_ro(
          "num_servers", [](Self& self) { return self.client().num_servers(); },
          "The number of servers that the client uses now.")
      .def_prop_ro(
          "dropped_updates", [](Self& self) { return self.client().dropped_updates(); },
          "Priority updates and deletes that were dropped because their server, one of several, is lost.")
      .def(
          "_transports",
          [](Self& self, std::optional<double> timeout) {
            const Client client = self.client();
            const std::vector<Transport> transports =
                ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
                  return client.Transports(wait);
                }));
            nb::list names;
            for (const Transport each : transports) {
              const std::string_view name = TransportName(each);
              names.append(nb::str(name.data(), name.size()));
            }
            return names;
          },
          "timeout"_a.none())
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
