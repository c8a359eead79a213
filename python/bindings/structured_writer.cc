// reverb.StructuredWriter: creates items from steps as configured.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "client.h"
#include "errors.h"
#include "gil.h"
#include "python_api.h"
#include "reverb/writer.h"
#include "tree.h"

namespace reverb::python {
namespace {

Lazy native_config("reverb.structured_writer", "native_config");

std::optional<int64_t> ToOptionalInt(nb::handle value) {
  if (value.is_none()) return std::nullopt;
  return nb::cast<int64_t>(value);
}

PatternCondition::Left ToLeft(nb::handle name) {
  using Left = PatternCondition::Left;
  if (name.is_none()) return Left::kNone;
  const std::string text = nb::cast<std::string>(name);
  if (text == "step_index") return Left::kStepIndex;
  if (text == "steps_since_applied") return Left::kStepsSinceApplied;
  if (text == "buffer_length") return Left::kBufferLength;
  if (text == "is_end_episode") return Left::kEndEpisode;
  if (text == "flat_source_index") return Left::kData;
  RaiseValueError("the left side of a condition is \"" + text + "\", which is not known");
}

PatternCondition::Comparison ToComparison(nb::handle name) {
  using Comparison = PatternCondition::Comparison;
  if (name.is_none()) return Comparison::kNone;
  const std::string text = nb::cast<std::string>(name);
  if (text == "eq") return Comparison::kEqual;
  if (text == "ge") return Comparison::kAtLeast;
  if (text == "mod_eq") return Comparison::kModuloEqual;
  RaiseValueError("the comparison of a condition is \"" + text + "\", which is not known");
}

// Converts the tuples of reverb.structured_writer.native_config().
StructuredConfig ToConfig(nb::handle config) {
  const nb::object parts = nb::borrow(native_config.get())(config);
  StructuredConfig result;
  for (const nb::handle node : nb::object(parts[0])) {
    result.pattern.push_back({.source = nb::cast<int64_t>(node[0]),
                              .start = ToOptionalInt(node[1]),
                              .stop = ToOptionalInt(node[2]),
                              .step = ToOptionalInt(node[3])});
  }
  result.table = nb::cast<std::string>(parts[1]);
  for (const nb::handle condition : nb::object(parts[2])) {
    result.conditions.push_back({.left = ToLeft(condition[0]),
                                 .source = nb::cast<int64_t>(condition[1]),
                                 .comparison = ToComparison(condition[2]),
                                 .modulo = nb::cast<int64_t>(condition[3]),
                                 .value = nb::cast<int64_t>(condition[4]),
                                 .inverse = nb::cast<bool>(condition[5])});
  }
  const nb::object priority = parts[3];
  if (nb::isinstance<nb::tuple>(priority)) {
    result.priority = TdErrorPriority{.max_priority_weight = nb::cast<double>(priority[0]),
                                      .source = nb::cast<int64_t>(priority[1])};
  } else if (!priority.is_none()) {
    result.priority = nb::cast<double>(priority);
  }
  if (const nb::object nest = parts[4]; nb::len(nest) > 0) {
    result.structure = Structure().Merged(nb::object(nest[0]).ptr()).ToItemStructure();
  }
  return result;
}

class StructuredWriterObject {
 public:
  StructuredWriterObject(ClientObject& client, nb::handle configs) : client_(client.client()) {
    for (const nb::handle config : nb::iter(configs)) options_.configs.push_back(ToConfig(config));
    if (options_.configs.empty()) RaiseValueError("At least one config must be provided.");
    RaiseUnlessOk(options_.Validate());
    options_.wait_for_room = room_.options();
  }
  ~StructuredWriterObject() {
    if (!writer_ || writer_.is_inherited()) return;
    FlushAndClose(*writer_);
  }
  StructuredWriterObject(const StructuredWriterObject&) = delete;
  StructuredWriterObject& operator=(const StructuredWriterObject&) = delete;

  void Append(nb::handle data, Truth partial_step) {
    EmitLog();
    const Turn::Holder turn(turn_);
    CheckOpen();
    const Finally clear([this] { Clear(); });
    if (!writer_) Make(data);
    FlattenStep(data);
    for (const auto& [unused, leaf] : leaves_) {
      if (leaf.is_none()) {
        values_.emplace_back(std::nullopt);
      } else {
        values_.emplace_back(views_.Add(leaf.ptr()));
      }
    }
    const auto append = [&] {
      return partial_step.value ? writer_->AppendPartial(values_) : writer_->Append(values_);
    };
    const bool takes_long = views_.bytes() >= kLargeStep || writer_->may_wait();
    RaiseUnlessOk(takes_long ? room_.Run(append) : append());
  }

  void Flush(int64_t block_until_num_items, Timeout timeout) {
    if (block_until_num_items < 0) {
      RaiseValueError("`block_until_num_items` must be >= 0, got " + std::to_string(block_until_num_items) +
                      ".");
    }
    const Turn::Holder turn(turn_);
    CheckOpen();
    if (!writer_) return;
    RaiseUnlessOk(Waiting(timeout).CancelledBy(&is_closing_).Run([&](const WaitOptions& wait) {
      return writer_->Flush(block_until_num_items, wait);
    }));
  }
  void EndEpisode(bool clear_buffers, Timeout timeout) {
    const Turn::Holder turn(turn_);
    CheckOpen();
    if (!writer_) return;
    RaiseUnlessOk(Waiting(timeout).CancelledBy(&is_closing_).Run([&](const WaitOptions& wait) {
      return writer_->EndEpisode(clear_buffers, wait);
    }));
  }
  bool step_is_open() {
    const Turn::Holder turn(turn_);
    return writer_ && writer_->step_is_open();
  }
  int64_t Close() {
    if (turn_.is_inherited()) return 0;
    is_closing_ = true;
    room_.cancelled = true;
    const Turn::Holder turn(turn_);
    return writer_ ? CloseWriter(*writer_) : 0;
  }

 private:
  void CheckOpen() const {
    if (is_closing_.load(std::memory_order_relaxed)) [[unlikely]]
      Raise(Status::Cancelled("close() has been called on this writer"));
  }

  // Runs at the first step, whose paths appear in error messages.
  void Make(nb::handle data) {
    std::vector<std::pair<nb::object, nb::object>> leaves;
    FlattenWithPath(data.ptr(), &leaves);
    StructuredWriterOptions options = options_;
    for (const auto& [path, leaf] : leaves) {
      options.paths.push_back(nb::cast<std::string>(Own(PyObject_Repr(path.ptr()))));
    }
    writer_ = Owned<StructuredWriter>(ValueOrRaise(
        Waiting().Run([&](const WaitOptions&) { return client_->NewStructuredWriter(std::move(options)); })));
  }

  // Most steps have the structure of the previous one.
  void FlattenStep(nb::handle data) {
    if (structure_.Walk(data.ptr(), &leaves_) &&
        static_cast<int32_t>(leaves_.size()) == structure_.num_columns()) {
      return;
    }
    leaves_.clear();
    std::vector<nb::object> values;
    Flatten(data.ptr(), &values);
    for (nb::object& value : values) leaves_.emplace_back(0, std::move(value));
    structure_ = Structure().Merged(data.ptr());
  }

  void Clear() {
    values_.clear();
    views_.Clear();
    leaves_.clear();
  }

  Owned<Client> client_;
  StructuredWriterOptions options_;
  Turn turn_;
  RoomWait room_;
  std::atomic<bool> is_closing_{false};
  Owned<StructuredWriter> writer_;

  Structure structure_;
  Views views_;
  std::vector<Structure::Leaf> leaves_;  // in flat order; their columns have no meaning
  std::vector<std::optional<TensorView>> values_;
};

}  // namespace

void BindStructuredWriter(nb::module_& module) {
  using Self = StructuredWriterObject;
  nb::class_<Self>(module, "StructuredWriter", nb::is_weak_referenceable(), nb::dynamic_attr(),
                   "Creates items by patterns and conditions. Created by Client.structured_writer().")
      .def(nb::init<ClientObject&, nb::handle>(), "client"_a, "configs"_a)
      .def("append", &Self::Append, "data"_a.none(), nb::kw_only(), "partial_step"_a = Truth{},
           "Adds a step, or values to the open step, and creates the items whose conditions hold.\n\n"
           "Every step has the same number of leaves; None for those that have no value. With `partial_step` "
           "the step stays open for further calls, until one without it.")
      .def(
          "flush",
          [](Self& self, int64_t n, std::optional<int64_t> timeout_ms) {
            self.Flush(n, TimeoutFromMillis(timeout_ms));
          },
          "block_until_num_items"_a = 0, "timeout_ms"_a = nb::none(),
          "Waits until at most `block_until_num_items` items are not in their table yet.\n\n"
          "DeadlineExceededError after `timeout_ms`; sending continues.")
      .def(
          "end_episode",
          [](Self& self, Truth clear, std::optional<int64_t> timeout_ms) {
            self.EndEpisode(clear.value, TimeoutFromMillis(timeout_ms));
          },
          "clear_buffers"_a = Truth{true}, "timeout_ms"_a = nb::none(),
          "Creates the items whose condition is the end of the episode, and waits until all items are in "
          "their tables.\n\n"
          "Then a new episode starts; with `clear_buffers`, its items cannot refer to earlier steps. "
          "DeadlineExceededError after `timeout_ms`: the episode has ended nevertheless, and sending "
          "continues.")
      .def("close", &Self::Close,
           "Discards unconfirmed items, and returns their number; call flush() first to wait for them. "
           "Idempotent.")
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "__exit__",
          [](Self& self, nb::handle type, nb::handle, nb::handle) {
            static Lazy reverb_error("reverb.errors", "ReverbError");
            const bool skip =
                !type.is_none() && (PyObject_IsSubclass(type.ptr(), reverb_error.get().ptr()) == 1 ||
                                    PyObject_IsSubclass(type.ptr(), PyExc_KeyboardInterrupt) == 1);
            if (!skip) self.Flush(0, {});
          },
          "type"_a.none(), "value"_a.none(), "traceback"_a.none())
      .def_prop_ro("step_is_open", &Self::step_is_open, "Whether the last append had partial_step=True.");
}

}  // namespace reverb::python
