// Checkpoints in Python: the options of a server, and reading checkpoints without a server.
#include "reverb/checkpoint.h"

#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "client.h"
#include "errors.h"
#include "gil.h"
#include "progress.h"
#include "python_api.h"
#include "samples.h"
#include "table.h"

namespace reverb::python {
namespace {

// Maps one of a few words to its value. ValueError for other words.
template <typename T>
T FromWord(const char* name, const std::string& word,
           std::initializer_list<std::pair<const char*, T>> choices) {
  std::string known;
  for (const auto& [choice, value] : choices) {
    if (word == choice) return value;
    known += (known.empty() ? "\"" : ", \"") + std::string(choice) + "\"";
  }
  RaiseValueError(std::string(name) + " is \"" + word + "\"; it must be one of " + known);
}

RestoreOptions::Settings ParseSettings(const char* name, const std::string& word) {
  using Settings = RestoreOptions::Settings;
  return FromWord<Settings>(name, word, {{"saved", Settings::kSaved}, {"given", Settings::kGiven}});
}

std::optional<std::chrono::nanoseconds> FromInterval(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  constexpr double kMaxSeconds = 1e9;  // thirty years
  if (!(*seconds > 0) || *seconds > kMaxSeconds) {
    RaiseValueError(
        "interval (" + ShortRepr(nb::float_(*seconds)) +
        ") must be a number of seconds above 0 and at most 1e9, or None for no periodic checkpoints");
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(*seconds));
}

void InitOptions(CheckpointOptions* self, std::string path, std::optional<std::string> fallback_path,
                 std::optional<double> interval, Truth on_stop, int64_t keep_latest, Truth load_latest,
                 const std::string& rate_limiter, const std::string& sizes, const std::string& selectors,
                 const std::string& signature, const std::string& counters, const std::string& missing_tables,
                 const std::string& extra_tables) {
  if (keep_latest < 1 || keep_latest > INT32_MAX) {
    RaiseValueError("keep_latest is " + std::to_string(keep_latest) + "; it must be at least 1");
  }
  CheckpointOptions options{.path = std::move(path),
                            .fallback_path = std::move(fallback_path),
                            .interval = FromInterval(interval),
                            .on_stop = on_stop.value,
                            .keep_latest = static_cast<int32_t>(keep_latest),
                            .load_latest = load_latest.value};
  RestoreOptions& restore = options.restore;
  restore.rate_limiter = ParseSettings("rate_limiter", rate_limiter);
  restore.sizes = ParseSettings("sizes", sizes);
  restore.selectors = ParseSettings("selectors", selectors);
  restore.signature = ParseSettings("signature", signature);
  restore.counters = FromWord<RestoreOptions::Counters>(
      "counters", counters,
      {{"keep", RestoreOptions::Counters::kKeep}, {"reset", RestoreOptions::Counters::kReset}});
  restore.missing_tables =
      FromWord<RestoreOptions::MissingTables>("missing_tables", missing_tables,
                                              {{"start_empty", RestoreOptions::MissingTables::kStartEmpty},
                                               {"fail", RestoreOptions::MissingTables::kFail}});
  restore.extra_tables =
      FromWord<RestoreOptions::ExtraTables>("extra_tables", extra_tables,
                                            {{"fail", RestoreOptions::ExtraTables::kFail},
                                             {"drop", RestoreOptions::ExtraTables::kDrop},
                                             {"create", RestoreOptions::ExtraTables::kCreate}});
  RaiseUnlessOk(options.Validate());
  new (self) CheckpointOptions(std::move(options));
}

// Runs `call` without the GIL.
template <typename Call>
auto WithoutGil(Call&& call) {
  return Waiting().Run([&](const WaitOptions&) { return call(); });
}

struct DecodedItem {
  uint64_t key = 0;
  double priority = 0;
  int32_t times_sampled = 0;
  int64_t inserted_at = 0;
  std::vector<Tensor> columns;
  std::vector<bool> squeezed;  // by column
};

Result<DecodedItem> DecodeItem(const SampledTrajectory& item) {
  DecodedItem decoded{.key = item.key(),
                      .priority = item.priority(),
                      .times_sampled = item.times_sampled(),
                      .inserted_at = item.inserted_at_nanos()};
  for (uint32_t i = 0; i < item.num_columns(); ++i) {
    REVERB_ASSIGN_OR_RETURN(Tensor column, item.column(i));
    decoded.columns.push_back(std::move(column));
    decoded.squeezed.push_back(item.is_squeezed(i));
  }
  return decoded;
}

// (key, priority, times_sampled, inserted_at, columns, whether each of them is without time).
nb::object ToPython(DecodedItem item) {
  const nb::object columns = Own(PyList_New(static_cast<Py_ssize_t>(item.columns.size())));
  nb::list squeezed;
  for (size_t i = 0; i < item.columns.size(); ++i) {
    PyList_SET_ITEM(columns.ptr(), static_cast<Py_ssize_t>(i),
                    ToNumpy(std::move(item.columns[i])).release().ptr());
    squeezed.append(nb::bool_(item.squeezed[i]));
  }
  return nb::make_tuple(item.key, item.priority, item.times_sampled, item.inserted_at, columns,
                        nb::tuple(squeezed));
}

class ItemsObject {
 public:
  explicit ItemsObject(CheckpointItems items) : items_(std::move(items)) {}

  nb::object Next() {
    const Turn::Holder turn(turn_);
    Result<std::optional<DecodedItem>> item = WithoutGil([&] { return Decode(); });
    if (!item.ok()) Raise(item.status());
    if (!*item) throw nb::stop_iteration();
    return ToPython(**std::move(item));
  }

  // (info, columns, lengths or None); None at the end.
  nb::object NextBatch(int64_t n, Truth pad) {
    const Turn::Holder turn(turn_);
    Batch batch;
    const BatchOptions options{.pad = pad.value, .pool = &pool_};
    const int64_t count = ValueOrRaise(WithoutGil([&] { return items_->NextBatch(n, &batch, options); }));
    if (count == 0) return nb::none();
    const BatchInfo& info = batch.info;
    const nb::object infos = MakeSampleInfo({Array(DType::kUint64, info.keys).release().ptr(),
                                             Array(DType::kFloat64, info.probabilities).release().ptr(),
                                             Array(DType::kInt64, info.table_sizes).release().ptr(),
                                             Array(DType::kFloat64, info.priorities).release().ptr(),
                                             Array(DType::kInt32, info.times_sampled).release().ptr()});
    nb::list columns;
    for (Tensor& column : batch.columns) columns.append(ToNumpy(std::move(column)));
    if (!pad.value) return nb::make_tuple(infos, columns, nb::none());
    nb::list lengths;
    for (const std::vector<int64_t>& each : batch.lengths) lengths.append(Array(DType::kInt64, each));
    return nb::make_tuple(infos, columns, lengths);
  }

 private:
  template <typename T>
  static nb::object Array(DType dtype, const std::vector<T>& values) {
    Tensor tensor = ValueOrRaise(Tensor::Allocate(dtype, {static_cast<int64_t>(values.size())}));
    std::memcpy(tensor.data(), values.data(), tensor.num_bytes());
    return ToNumpy(std::move(tensor));
  }
  Result<std::optional<DecodedItem>> Decode() {
    REVERB_ASSIGN_OR_RETURN(const std::optional<SampledTrajectory> item, items_->Next());
    if (!item) return std::optional<DecodedItem>();
    REVERB_ASSIGN_OR_RETURN(DecodedItem decoded, DecodeItem(*item));
    return std::optional<DecodedItem>(std::move(decoded));
  }

  Turn turn_;
  const TensorPool pool_;
  Owned<CheckpointItems> items_;
};

class ReaderObject {
 public:
  explicit ReaderObject(const std::string& path)
      : reader_(ValueOrRaise(WithoutGil([&] { return CheckpointReader::Open(path); }))) {}

  nb::dict Info() const {
    const CheckpointInfo& info = reader_->info();
    nb::dict dict;
    dict["path"] = info.path;
    dict["format"] = info.format;
    dict["created_ns"] = info.created_nanos;
    dict["num_writers"] = info.num_writers;
    dict["num_chunks"] = info.num_chunks;
    dict["payload_bytes"] = info.payload_bytes;
    dict["file_bytes"] = info.file_bytes;
    nb::list tables;
    for (const TableInfo& table : info.tables) tables.append(ToDict(table));
    dict["tables"] = tables;
    nb::list row_tables;
    for (const RowTableInfo& table : info.row_tables) row_tables.append(ToDict(table));
    dict["row_tables"] = row_tables;
    return dict;
  }
  ItemsObject* Items(const std::string& table, std::vector<uint32_t> columns, int64_t shuffle_window,
                     std::optional<uint64_t> seed) const {
    const CheckpointReadOptions options{
        .columns = std::move(columns), .shuffle_window = shuffle_window, .seed = seed};
    return new ItemsObject(ValueOrRaise(WithoutGil([&] { return reader_->Items(table, options); })));
  }
  void Verify(const nb::object& progress) const {
    const CheckpointProgressCallback callback = ProgressCallback(progress);
    RaiseUnlessOk(WithoutGil([&] { return reader_->Verify(callback); }));
  }

 private:
  Owned<CheckpointReader> reader_;
};

nb::list List(const std::string& path) {
  nb::list entries;
  for (const CheckpointEntry& entry : ValueOrRaise(WithoutGil([&] { return ListCheckpoints(path); }))) {
    entries.append(nb::make_tuple(entry.path, entry.created_nanos, entry.is_complete, entry.is_foreign));
  }
  return entries;
}

std::string Import(const std::string& from, const std::string& to, const nb::object& progress) {
  const CheckpointProgressCallback callback = ProgressCallback(progress);
  return ValueOrRaise(WithoutGil([&] { return ImportCheckpoint(from, to, callback); }));
}

std::string Copy(const std::string& from, const std::string& to, const nb::object& progress) {
  const CheckpointProgressCallback callback = ProgressCallback(progress);
  return ValueOrRaise(WithoutGil([&] { return CopyCheckpoint(from, to, callback); }));
}

// (items, cursor of the next ones; 0 at the end).
nb::object Inspect(ClientObject& self, const std::string& table, uint64_t cursor, int64_t n,
                   std::optional<double> timeout) {
  const Client client = self.client();
  std::vector<DecodedItem> items =
      ValueOrRaise(Waiting(TimeoutFromSeconds(timeout))
                       .Run([&](const WaitOptions& wait) -> Result<std::vector<DecodedItem>> {
                         std::vector<DecodedItem> found;
                         REVERB_ASSIGN_OR_RETURN(const std::vector<SampledTrajectory> page,
                                                 client.Inspect(table, n, &cursor, wait));
                         for (const SampledTrajectory& item : page) {
                           REVERB_ASSIGN_OR_RETURN(DecodedItem decoded, DecodeItem(item));
                           found.push_back(std::move(decoded));
                         }
                         return found;
                       }));
  nb::list list;
  for (DecodedItem& item : items) list.append(ToPython(std::move(item)));
  return nb::make_tuple(list, cursor);
}

}  // namespace

void BindCheckpoints(nb::module_& module) {
  nb::class_<CheckpointOptions>(module, "CheckpointOptions", "The options of a server about its checkpoints.")
      .def("__init__", &InitOptions, "path"_a, nb::kw_only(), "fallback_path"_a.none(), "interval"_a.none(),
           "on_stop"_a, "keep_latest"_a, "load_latest"_a, "rate_limiter"_a, "sizes"_a, "selectors"_a,
           "signature"_a, "counters"_a, "missing_tables"_a, "extra_tables"_a);
  nb::class_<ItemsObject>(module, "CheckpointItems", "The items of one table of a checkpoint.")
      .def("__iter__", [](nb::handle self) { return Borrow(self.ptr()); })
      .def("__next__", &ItemsObject::Next)
      .def("next_batch", &ItemsObject::NextBatch, "n"_a, "pad"_a,
           "The next items as one array per column: (info, columns, lengths or None); None at the end.");
  nb::class_<ReaderObject>(module, "CheckpointReader", "Reads a checkpoint in place.")
      .def(nb::init<const std::string&>(), "path"_a)
      .def("info", &ReaderObject::Info, "Returns the content of the manifest as a dict.")
      .def("items", &ReaderObject::Items, "table"_a, "columns"_a, "shuffle_window"_a, "seed"_a.none(),
           nb::rv_policy::take_ownership, "The items of a table, as tuples.")
      .def("verify", &ReaderObject::Verify, "progress"_a = nb::none(),
           "Raises RuntimeError unless every checksum and reference is valid.");
  module.def("list_checkpoints", &List, "path"_a,
             "Returns (path, created_ns, is_complete, is_foreign) of each checkpoint.");
  module.def("import_checkpoint", &Import, "source"_a, "target"_a, "progress"_a = nb::none(),
             "Converts a checkpoint; returns the path of the new one.");
  module.def("_inspect", &Inspect, "client"_a, "table"_a, "cursor"_a, "n"_a, "timeout"_a.none());
  module.def("copy_checkpoint", &Copy, "source"_a, "target"_a, "progress"_a = nb::none(),
             "Copies a checkpoint to a folder of its own; returns the path of the new one.");
}

}  // namespace reverb::python
