// reverb.VectorWriter: takes nests of arrays with a row for each environment, creates items of each.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "chunking.h"
#include "client.h"
#include "errors.h"
#include "gil.h"
#include "nests.h"
#include "python_api.h"
#include "step_columns.h"
#include "tree.h"
#include "vector_columns.h"

namespace reverb::python {
namespace {

// Items of at least this many environments are created without the GIL: releasing it costs less.
constexpr int64_t kManyEnvironments = 256;

class VectorWriterObject {
 public:
  VectorWriterObject(ClientObject& client, int64_t num_envs, int64_t num_keep_alive_refs, bool validate_items,
                     Timeout timeout, Timeout room_timeout)
      : state_(std::make_shared<VectorWriterState>()),
        num_envs_(num_envs),
        steps_({.num_keep_alive_refs = num_keep_alive_refs}) {
    if (num_envs < 1 || num_envs > VectorWriterOptions::kMaxEnvironments) {
      RaiseValueError("num_envs (" + std::to_string(num_envs) + ") must be between 1 and " +
                      std::to_string(VectorWriterOptions::kMaxEnvironments));
    }
    if (num_keep_alive_refs < 1) {
      RaiseValueError("num_keep_alive_refs (" + std::to_string(num_keep_alive_refs) +
                      ") must be a positive integer");
    }
    VectorWriterOptions options{.num_environments = num_envs,
                                .chunking = {.num_keep_alive_refs = num_keep_alive_refs},
                                .wait_for_room = state_->room.options()};
    options.wait_for_room.timeout = room_timeout;
    if (validate_items) options.signatures = client.FetchSignatures(timeout);
    state_->writer = Owned<VectorWriter>(ValueOrRaise(
        Waiting().Run([&](const WaitOptions&) { return client.client().NewVectorWriter(options); })));
  }

  ~VectorWriterObject() {
    if (!state_->writer || state_->writer.is_inherited()) return;
    // As in TrajectoryWriter: histories may keep the native writer alive; it is closed nevertheless.
    FlushAndClose(*state_->writer);
  }
  VectorWriterObject(const VectorWriterObject&) = delete;
  VectorWriterObject& operator=(const VectorWriterObject&) = delete;

  void Append(nb::handle data, nb::handle mask, Truth partial_step) {
    EmitLog();
    const Turn::Holder turn(state_->turn);
    CheckOpen();
    const Finally clear([this] { Clear(); });
    const EnvironmentMask chosen = ReadMask(mask);
    steps_.Add(
        writer(), data, &leaves_, [&] { AppendLeaves(chosen, partial_step.value); },
        [this](uint32_t column, const nb::object& path) { return MakeVectorHistory(state_, column, path); });
  }

  nb::object CreateItems(std::string_view table, nb::handle priorities, nb::handle trajectory,
                         nb::handle mask) {
    EmitLog();
    const Turn::Holder turn(state_->turn);
    CheckOpen();
    const Finally clear([this] { Clear(); });
    const EnvironmentMask chosen = ReadMask(mask);
    ReadPriorities(priorities);
    const ItemStructure structure =
        items_.ForEachColumn(trajectory.ptr(), "VectorColumn", state_, AsVectorColumn, &leaves_,
                             [this](const VectorColumn& column) {
                               item_columns_.push_back({column.steps, column.squeeze});
                             });
    const auto create = [&] {
      return writer().CreateItems(table, priorities_, item_columns_, chosen, structure);
    };
    const bool takes_long = num_envs_ >= kManyEnvironments || writer().may_wait();
    const std::vector<uint8_t> made = ValueOrRaise(takes_long ? state_->room.Run(create) : create());
    Tensor result = ValueOrRaise(Tensor::Allocate(DType::kBool, {num_envs_}));
    std::memcpy(result.data(), made.data(), made.size());
    return ToNumpy(std::move(result));
  }

  void EndEpisode(nb::handle mask) {
    EmitLog();
    const Turn::Holder turn(state_->turn);
    CheckOpen();
    const Finally clear([this] { Clear(); });
    const EnvironmentMask chosen = ReadMask(mask);
    const auto end = [&] { return writer().EndEpisode(chosen); };
    RaiseUnlessOk(writer().may_wait() ? state_->room.Run(end) : end());
  }

  void Flush(int64_t block_until_num_items, Timeout timeout) {
    EmitLog();
    const Turn::Holder turn(state_->turn);
    CheckOpen();
    if (writer().unconfirmed_items() <= block_until_num_items) {
      // Nothing to wait for. Keeps the GIL: a thread that releases it may wait long to get it back.
      RaiseUnlessOk(writer().Flush(block_until_num_items));
      return;
    }
    RaiseUnlessOk(Waiting(timeout).CancelledBy(&is_closing_).Run([&](const WaitOptions& wait) {
      return writer().Flush(block_until_num_items, wait);
    }));
  }

  int64_t Close() {
    if (state_->turn.is_inherited()) return 0;
    // A call in another thread ends soon, before this one proceeds.
    is_closing_ = true;
    state_->room.cancelled = true;
    const Turn::Holder turn(state_->turn);
    return CloseWriter(*state_->writer);
  }
  bool is_closing() const { return is_closing_; }

  void Configure(nb::handle path, int64_t num_keep_alive_refs, std::optional<int64_t> max_chunk_length) {
    const ChunkingOptions options = ReadChunking(path, num_keep_alive_refs, max_chunk_length);
    const Turn::Holder turn(state_->turn);
    steps_.Configure(writer(), path, options);
  }

  nb::object history() {
    const Turn::Holder turn(state_->turn);
    return steps_.history();
  }

  nb::object episode_steps() {
    const Turn::Holder turn(state_->turn);
    Tensor steps = ValueOrRaise(Tensor::Allocate(DType::kInt64, {num_envs_}));
    auto* const counts = reinterpret_cast<int64_t*>(steps.data());
    for (int64_t i = 0; i < num_envs_; ++i) counts[i] = writer().episode_steps(i);
    return ToNumpy(std::move(steps));
  }
  int64_t num_envs() const { return num_envs_; }

 private:
  // A close() in another thread takes effect before it gets its turn.
  void CheckOpen() const {
    if (is_closing_.load(std::memory_order_relaxed)) [[unlikely]]
      Raise(Status::Cancelled("close() has been called on this writer"));
  }

  // Converts the values in leaves_.
  void AppendLeaves(EnvironmentMask mask, bool partial_step) {
    values_.reserve(leaves_.size());
    for (const auto& [column, value] : leaves_) {
      values_.push_back({static_cast<uint32_t>(column), views_.Add(value.ptr())});
    }
    const auto append = [&] {
      return partial_step ? writer().AppendPartial(values_, mask) : writer().Append(values_, mask);
    };
    const bool takes_long = views_.bytes() >= kLargeStep || writer().may_wait();
    RaiseUnlessOk(takes_long ? state_->room.Run(append) : append());
  }

  static std::string ShapeOf(const TensorView& view) {
    return nb::repr(ToTuple(Shape({view.dims.begin(), view.dims.end()}))).c_str();
  }

  EnvironmentMask ReadMask(nb::handle mask) {
    if (mask.is_none()) return {};
    const TensorView view = views_.Add(mask.ptr());
    if (view.dtype != DType::kBool) {
      RaiseTypeError("`mask` must be bools, got dtype " + std::string(DTypeName(view.dtype)) +
                     "; mask.astype(bool) makes them");
    }
    if (view.dims.size() != 1 || view.dims[0] != num_envs_) {
      RaiseValueError("`mask` must have shape (" + std::to_string(num_envs_) +
                      ",), a value for each environment, got " + ShapeOf(view));
    }
    // Copies: the caller's array may change while leaves are converted or the GIL is released.
    const auto* const bools = static_cast<const uint8_t*>(view.data);
    mask_.assign(bools, bools + num_envs_);
    return mask_;
  }

  void ReadPriorities(nb::handle priorities) {
    if (PyFloat_CheckExact(priorities.ptr())) {
      priorities_.push_back(PyFloat_AS_DOUBLE(priorities.ptr()));
      return;
    }
    TensorView view = views_.Add(priorities.ptr());
    if (view.dims.empty()) {
      priorities_.push_back(ToDouble(priorities, "priorities"));
      return;
    }
    if (view.dtype == DType::kString || view.dtype == DType::kComplex64 || view.dtype == DType::kComplex128) {
      RaiseTypeError("`priorities` must be numbers, got dtype " + std::string(DTypeName(view.dtype)));
    }
    if (view.dtype != DType::kFloat32 && view.dtype != DType::kFloat64) {
      static Lazy asarray("numpy", "asarray");
      view = views_.Add(nb::object(asarray.get()(priorities, "dtype"_a = "float64")).ptr());
    }
    // Checks the array that is read, which may differ from the first one that `priorities` returned.
    if (view.dims.size() != 1 || view.dims[0] != num_envs_) {
      RaiseValueError("`priorities` must be a number, or have shape (" + std::to_string(num_envs_) +
                      ",) with one for each environment, got " + ShapeOf(view));
    }
    if (view.dtype == DType::kFloat32) {
      const auto* const numbers = static_cast<const float*>(view.data);
      priorities_.assign(numbers, numbers + num_envs_);
      return;
    }
    const auto* const numbers = static_cast<const double*>(view.data);
    priorities_.assign(numbers, numbers + num_envs_);
  }

  void Clear() {
    views_.Clear();
    leaves_.clear();
    values_.clear();
    item_columns_.clear();
    priorities_.clear();
  }
  VectorWriter& writer() { return *state_->writer; }

  std::shared_ptr<VectorWriterState> state_;
  const int64_t num_envs_;
  std::atomic<bool> is_closing_{false};

  // Guarded by the turn, with the GIL.
  StepColumns<VectorWriter> steps_;
  ItemNest items_;

  // Reused from call to call.
  Views views_;
  std::vector<Structure::Leaf> leaves_;
  std::vector<ColumnValue> values_;
  std::vector<VectorItemColumn> item_columns_;
  std::vector<double> priorities_;
  std::vector<uint8_t> mask_;
};

}  // namespace

void BindVectorWriter(nb::module_& module) {
  using Self = VectorWriterObject;
  nb::class_<Self>(
      module, "VectorWriter", nb::is_weak_referenceable(), nb::dynamic_attr(),
      "Writes one step of many environments per call. Created by Client.vector_writer().\n\n"
      "Every environment has its own episode, as with one TrajectoryWriter each, but they share one stream "
      "to the server. Values have the environments as their first dimension: row i belongs to environment i. "
      "`history` has the columns, and indexing one selects the same steps of each environment:\n\n"
      "    with client.vector_writer(num_envs=64, num_keep_alive_refs=2) as writer:\n"
      "        ...\n"
      "        writer.append({'obs': obs, 'reward': reward})  # (64, ...) and (64,)\n"
      "        writer.create_items('replay', 1.0, {'obs': writer.history['obs'][-2:],\n"
      "                                            'reward': writer.history['reward'][-1]})\n"
      "        writer.end_episode(mask=terminated | truncated)\n\n"
      "A mask is an array of bools, one for each environment: the call applies to those that are True. "
      "Leaving a `with` block waits until all items are in their tables, also after an exception, except for "
      "ReverbError and KeyboardInterrupt. A writer that is dropped waits at most a second for that, and logs "
      "how many items it discarded. Calls from several threads are serialized. close() may be called from "
      "any thread.")
      .def(
          "__init__",
          [](Self* self, ClientObject& client, int64_t num_envs, int64_t num_keep_alive_refs,
             Truth validate_items, std::optional<double> timeout, std::optional<double> room_timeout) {
            new (self) Self(client, num_envs, num_keep_alive_refs, validate_items.value,
                            TimeoutFromSeconds(timeout), TimeoutFromSeconds(room_timeout, "room_timeout"));
          },
          "client"_a, "num_envs"_a, "num_keep_alive_refs"_a, nb::kw_only(), "validate_items"_a = Truth{true},
          "timeout"_a = nb::none(), "room_timeout"_a = nb::none(),
          "Takes the arguments of Client.vector_writer(), and how many seconds create_items() may wait while "
          "the "
          "window of unconfirmed data is full: DeadlineExceededError afterwards, and no items.")
      .def("append", &Self::Append, "data"_a.none(), "mask"_a = nb::none(), nb::kw_only(),
           "partial_step"_a = Truth{},
           "Adds a step to each environment, or to those in the mask.\n\n"
           "`data` is any nest of arrays with a row for each environment, including those outside the mask. "
           "Each leaf path is a column, whose dtype and row shape its first value fixes. A column that is "
           "missing or None has no value at this step. With `partial_step` the steps of these environments "
           "stay open: further calls add columns to them, until one without it. A failed append changes "
           "nothing.\n\n"
           "ValueError for a first dimension that is not num_envs, for a value of another dtype or shape "
           "than its column's, and for a column that an open step already has; TypeError for values that "
           "cannot be stored.")
      .def("create_items", &Self::CreateItems, "table"_a, "priorities"_a.none(), "trajectory"_a.none(),
           "mask"_a = nb::none(),
           "Creates an item in each environment, or in those in the mask, of columns of `history`.\n\n"
           "Skips environments whose episode does not have all the steps yet. Returns an array of bools: "
           "where items were created. `priorities` is a number, or one for each environment. Waits only "
           "while the window of unconfirmed data is full.\n\n"
           "ValueError, and no item at all, if a step has no value in one of the environments, or is older "
           "than num_keep_alive_refs, for a priority that is nan, and, unless validate_items is False, for "
           "items that do not match the table's signature; TypeError if a leaf of `trajectory` is not a "
           "VectorColumn.")
      .def("end_episode", &Self::EndEpisode, "mask"_a = nb::none(),
           "Ends the episodes of all environments, or of those in the mask: later items cannot refer to "
           "earlier steps.\n\n"
           "Does not wait, because other environments continue; flush() does.")
      .def(
          "configure", &Self::Configure, "path"_a.none(), nb::kw_only(), "num_keep_alive_refs"_a,
          "max_chunk_length"_a.none(),
          "Sets the chunk length of one column, and how many of its steps each environment keeps.\n\n"
          "`path` leads to the leaf, such as ('observation', 0). Items may refer to the newest "
          "`num_keep_alive_refs` steps; a chunk has at most `max_chunk_length` steps, None: tuned "
          "automatically. For a column with values, all its steps must be in chunks (RuntimeError otherwise; "
          "call flush() first). For other columns, it applies once they appear.")
      .def_prop_ro("history", &Self::history,
                   "The nest of all columns so far, each leaf a VectorColumnHistory. RuntimeError before the "
                   "first append.")
      .def(
          "flush",
          [](Self& self, int64_t n, std::optional<int64_t> timeout_ms) {
            if (timeout_ms && *timeout_ms < 0) timeout_ms = std::nullopt;
            self.Flush(n, TimeoutFromMillis(timeout_ms));
          },
          "block_until_num_items"_a = 0, "timeout_ms"_a = nb::none(),
          "Waits until at most `block_until_num_items` items are not in their table yet.\n\n"
          "DeadlineExceededError after `timeout_ms` (0 checks once, None or a negative number waits "
          "forever); sending continues.")
      .def("close", &Self::Close,
           "Discards unconfirmed items, and returns their number; call flush() first to wait for them.\n\n"
           "Later calls that write raise RuntimeError. May be called from any thread; flush() in other "
           "threads returns. Idempotent.")
      .def_prop_ro("num_envs", &Self::num_envs, "The number of environments.")
      .def_prop_ro("episode_steps", &Self::episode_steps,
                   "The number of complete steps of each environment's episode, as an array.")
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "__exit__",
          [](Self& self, nb::handle type, nb::handle, nb::handle) {
            static Lazy reverb_error("reverb.errors", "ReverbError");
            // After an error of reverb, Ctrl-C or close(), waiting would be pointless.
            const bool skip =
                self.is_closing() ||
                (!type.is_none() && (PyObject_IsSubclass(type.ptr(), reverb_error.get().ptr()) == 1 ||
                                     PyObject_IsSubclass(type.ptr(), PyExc_KeyboardInterrupt) == 1));
            if (!skip) self.Flush(0, {});
          },
          "type"_a.none(), "value"_a.none(), "traceback"_a.none());
}

}  // namespace reverb::python
