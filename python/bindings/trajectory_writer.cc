#include "trajectory_writer.h"

#include <chrono>
#include <string>

#include "chunking.h"
#include "errors.h"
#include "gil.h"

namespace reverb::python {
TrajectoryWriterObject::TrajectoryWriterObject(ClientObject& client, int64_t num_keep_alive_refs,
                                               bool validate_items, Timeout timeout)
    : state_(std::make_shared<WriterState>()), steps_({.num_keep_alive_refs = num_keep_alive_refs}) {
  if (num_keep_alive_refs < 1) {
    RaiseValueError("num_keep_alive_refs (" + std::to_string(num_keep_alive_refs) +
                    ") must be a positive integer");
  }
  TrajectoryWriterOptions options{.chunking = {.num_keep_alive_refs = num_keep_alive_refs},
                                  .wait_for_room = state_->room.options()};
  if (validate_items) options.signatures = client.FetchSignatures(timeout);
  state_->writer = Owned<TrajectoryWriter>(ValueOrRaise(
      Waiting().Run([&](const WaitOptions&) { return client.client().NewTrajectoryWriter(options); })));
}

TrajectoryWriterObject::~TrajectoryWriterObject() {
  if (!state_->writer || state_->writer.is_inherited()) return;
  // Columns may keep the native writer alive; it is closed nevertheless. No other thread is in a call,
  // because this was the last reference.
  FlushAndClose(*state_->writer);
}

// A close() in another thread takes effect before it gets its turn.
void TrajectoryWriterObject::CheckOpen() const {
  if (is_closing_.load(std::memory_order_relaxed)) [[unlikely]]
    Raise(Status::Cancelled("TrajectoryWriter::Close has been called."));
}

// --- Steps ---

void TrajectoryWriterObject::Append(nb::handle data, Truth partial_step) {
  Append(data, partial_step.value ? Extent::kPartialStep : Extent::kStep);
}

void TrajectoryWriterObject::AppendSequence(nb::handle data) { Append(data, Extent::kSequence); }

void TrajectoryWriterObject::Append(nb::handle data, Extent extent) {
  EmitLog();
  const Turn::Holder turn(state_->turn);
  CheckOpen();
  const Finally clear([this] {
    views_.Clear();
    leaves_.clear();
    values_.clear();
  });
  steps_.Add(
      writer(), data, &leaves_, [&] { AppendLeaves(extent); },
      [this](uint32_t column, const nb::object& path) { return MakeHistory(state_, column, path); });
}

// Converts the values in leaves_.
void TrajectoryWriterObject::AppendLeaves(Extent extent) {
  values_.reserve(leaves_.size());
  for (const auto& [column, value] : leaves_) {
    values_.push_back({static_cast<uint32_t>(column), views_.Add(value.ptr())});
  }
  const auto append = [&] {
    if (extent == Extent::kSequence) return writer().AppendSequence(values_);
    return extent == Extent::kPartialStep ? writer().AppendPartial(values_) : writer().Append(values_);
  };
  if (views_.bytes() >= kLargeStep || writer().may_wait()) {
    RaiseUnlessOk(state_->room.Run(append));
  } else {
    RaiseUnlessOk(append());
  }
}

nb::object TrajectoryWriterObject::history() {
  const Turn::Holder turn(state_->turn);
  return steps_.history();
}

// --- Items ---

void TrajectoryWriterObject::CreateItem(std::string_view table, nb::handle priority, nb::handle trajectory) {
  EmitLog();
  const double number = ToDouble(priority, "priority");
  const Turn::Holder turn(state_->turn);
  CheckOpen();
  const Finally clear([this] {
    leaves_.clear();
    item_columns_.clear();
  });
  const ItemStructure structure =
      items_.ForEachColumn(trajectory.ptr(), "TrajectoryColumn", state_, AsColumn, &leaves_,
                           [this](const TrajectoryColumn& column) {
                             item_columns_.push_back({column.ranges, column.squeeze});
                           });
  const auto create = [&] { return writer().CreateItem(table, number, item_columns_, structure); };
  if (writer().may_wait()) {
    RaiseUnlessOk(state_->room.Run(create));
  } else {
    RaiseUnlessOk(create());
  }
}

// --- Flush and close ---

void TrajectoryWriterObject::Flush(int64_t block_until_num_items, Timeout timeout) {
  const Turn::Holder turn(state_->turn);
  CheckOpen();
  RaiseUnlessOk(Waiting(timeout).CancelledBy(&is_closing_).Run([&](const WaitOptions& wait) {
    return writer().Flush(block_until_num_items, wait);
  }));
}

void TrajectoryWriterObject::EndEpisode(bool clear_buffers, Timeout timeout) {
  const Turn::Holder turn(state_->turn);
  CheckOpen();
  RaiseUnlessOk(Waiting(timeout).CancelledBy(&is_closing_).Run([&](const WaitOptions& wait) {
    return writer().EndEpisode(clear_buffers, wait);
  }));
}

int64_t TrajectoryWriterObject::Close() {
  if (state_->turn.is_inherited()) return 0;
  // A call in another thread ends soon, before this one proceeds.
  is_closing_ = true;
  state_->room.cancelled = true;
  const Turn::Holder turn(state_->turn);
  return CloseWriter(*state_->writer);
}

// --- The rest ---

void TrajectoryWriterObject::Configure(nb::handle path, int64_t num_keep_alive_refs,
                                       std::optional<int64_t> max_chunk_length) {
  const ChunkingOptions options = ReadChunking(path, num_keep_alive_refs, max_chunk_length);
  const Turn::Holder turn(state_->turn);
  steps_.Configure(writer(), path, options);
}

int64_t TrajectoryWriterObject::episode_steps() {
  const Turn::Holder turn(state_->turn);
  return writer().episode_steps();
}

int64_t TrajectoryWriterObject::num_keep_alive_refs() {
  const Turn::Holder turn(state_->turn);
  return writer().num_keep_alive_refs();
}

bool TrajectoryWriterObject::step_is_open() {
  const Turn::Holder turn(state_->turn);
  return writer().step_is_open();
}

void BindTrajectoryWriter(nb::module_& module) {
  using Self = TrajectoryWriterObject;
  nb::class_<Self>(module, "TrajectoryWriter", nb::is_weak_referenceable(), nb::dynamic_attr(),
                   "The native part of reverb.TrajectoryWriter.")
      .def(
          "__init__",
          [](Self* self, ClientObject& client, int64_t num_keep_alive_refs, Truth validate_items,
             std::optional<double> timeout) {
            new (self) Self(client, num_keep_alive_refs, validate_items.value, TimeoutFromSeconds(timeout));
          },
          "client"_a, "num_keep_alive_refs"_a, nb::kw_only(), "validate_items"_a = Truth{true},
          "timeout"_a = nb::none())
      .def("append", nb::overload_cast<nb::handle, Truth>(&Self::Append), "data"_a.none(), nb::kw_only(),
           "partial_step"_a = Truth{},
           "Adds a step, or values to the open step.\n\n"
           "`data` is any nest of values. Each leaf path is a column, whose dtype and shape its first value "
           "fixes. The structure may grow from step to step; a column that is missing or None has no value "
           "at this step. With `partial_step` the step stays open for further calls, until one without it. A "
           "failed append changes nothing.\n\n"
           "ValueError for a value of another dtype or shape than its column's, and for a column that the "
           "open step already has; TypeError for values that cannot be stored.")
      .def(
          "append_sequence", &Self::AppendSequence, "data"_a.none(),
          "Adds several steps at once: `data` is a nest of arrays whose first dimension is time. A list is a "
          "nest, not an array.\n\n"
          "Equivalent to one append() for each position of the first dimension, which all arrays share, but "
          "copies each array once. If it has more steps than num_keep_alive_refs, items can only refer to "
          "the last ones. The first step closes an open one. A failed call changes nothing.\n\n"
          "ValueError for arrays without a dimension, of different lengths or without steps, and for the "
          "errors of append().")
      .def("create_item", &Self::CreateItem, "table"_a, "priority"_a.none(), "trajectory"_a.none(),
           "Creates an item of columns of `history`.\n\n"
           "Items are sent in the order of creation, once their data is complete; this call waits only while "
           "the window of unconfirmed data is full. flush() and end_episode() wait until items are in their "
           "table.\n\n"
           "ValueError for an empty or expired column, a priority that is nan, and, unless validate_items is "
           "False, for items that do not match the table's signature; TypeError if a leaf of `trajectory` is "
           "not a TrajectoryColumn.")
      .def_prop_ro(
          "history", &Self::history,
          "The nest of all columns so far, each leaf a ColumnHistory. RuntimeError before the first append.")
      .def(
          "_flush",
          [](Self& self, int64_t n, std::optional<int64_t> timeout_ms) {
            self.Flush(n, TimeoutFromMillis(timeout_ms));
          },
          "block_until_num_items"_a, "timeout_ms"_a.none())
      .def(
          "_end_episode",
          [](Self& self, Truth clear, std::optional<int64_t> timeout_ms) {
            self.EndEpisode(clear.value, TimeoutFromMillis(timeout_ms));
          },
          "clear_buffers"_a, "timeout_ms"_a.none())
      .def("_close", &Self::Close)
      .def_prop_ro("_is_closed", &Self::is_closing)
      .def("_configure", &Self::Configure, "path"_a.none(), "num_keep_alive_refs"_a,
           "max_chunk_length"_a.none())
      .def_prop_ro("episode_steps", &Self::episode_steps, "The number of complete steps of this episode.")
      .def_prop_ro("max_num_keep_alive_refs", &Self::num_keep_alive_refs,
                   "The maximum number of steps that any column keeps.")
      .def_prop_ro("step_is_open", &Self::step_is_open, "Whether the last append had partial_step=True.");
}

}  // namespace reverb::python
