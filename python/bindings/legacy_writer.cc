// reverb.Writer, the older API: whole steps, and items of the last n steps.
#include <atomic>
#include <chrono>
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
#include "nests.h"
#include "python_api.h"
#include "reverb/writer.h"
#include "tree.h"

namespace reverb::python {
namespace {

class WriterObject {
 public:
  WriterObject(ClientObject& client, int64_t max_sequence_length, bool delta_encoded,
               std::optional<int64_t> chunk_length, std::optional<int64_t> max_in_flight_items,
               Timeout timeout)
      : max_sequence_length_(max_sequence_length),
        delta_encoded_(delta_encoded),
        max_in_flight_items_(max_in_flight_items),
        room_(std::make_unique<RoomWait>()) {
    WriterOptions options{.max_sequence_length = max_sequence_length,
                          .chunk_length = chunk_length,
                          .max_in_flight_items = max_in_flight_items,
                          .wait_for_room = room_->options()};
    RaiseUnlessOk(options.Validate());
    chunk_length_ = chunk_length.value_or(std::min<int64_t>(10, max_sequence_length));
    options.signatures = client.FetchSignatures(timeout);
    const Client handle = client.client();
    writer_ = Owned<Writer>(
        ValueOrRaise(Waiting().Run([&](const WaitOptions&) { return handle.NewWriter(options); })));
  }

  void Append(nb::handle data) {
    Call(data, [this](std::span<const TensorView> step) { return writer_->Append(step); });
    ++steps_;
  }
  void AppendSequence(nb::handle sequence) {
    Call(sequence, [this](std::span<const TensorView> steps) { return writer_->AppendSequence(steps); });
  }
  void CreateItem(std::string_view table, int64_t num_timesteps, nb::handle priority) {
    EmitLog();
    const double number = ToDouble(priority, "priority");
    const Turn::Holder turn(turn_);
    RaiseUnlessOk(room_->Run([&] { return writer_->CreateItem(table, num_timesteps, number, structure_); }));
  }
  void Flush(std::optional<double> timeout) {
    const Turn::Holder turn(turn_);
    RaiseUnlessOk(Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) {
      return writer_->Flush(wait);
    }));
  }
  void Close(std::optional<double> timeout) {
    const Turn::Holder turn(turn_);
    const Timeout limit = TimeoutFromSeconds(timeout);
    // The writer is closed also if an exception of a signal handler ends the wait.
    const Finally close([this] { (void)writer_->Close({.timeout = std::chrono::nanoseconds(0)}); });
    const Status status = Waiting(limit).Run([&](const WaitOptions& wait) { return writer_->Flush(wait); });
    num_discarded_ = writer_->unconfirmed_items();
    RaiseUnlessOk(status);
  }
  // The number of items that were not confirmed when the writer was closed.
  int64_t num_discarded() const { return num_discarded_; }
  bool is_closed() {
    if (turn_.is_inherited()) return true;
    const Turn::Holder turn(turn_);
    return writer_->is_closed();
  }
  std::string ToRepr() {
    const bool closed = is_closed();
    return "Writer(chunk_length=" + std::to_string(chunk_length_) +
           ", max_timesteps=" + std::to_string(max_sequence_length_) +
           ", delta_encoded=" + (delta_encoded_ ? "1" : "0") +
           ", max_in_flight_items=" + std::to_string(max_in_flight_items_.value_or(1'000'000)) +
           ", episode_id=" + std::to_string(reinterpret_cast<uintptr_t>(this)) +
           ", index_within_episode=" + std::to_string(steps_ / chunk_length_ * chunk_length_) +
           ", closed=" + (closed ? "1" : "0") + "), closed: " + (closed ? "True" : "False");
  }

 private:
  template <typename Method>
  void Call(nb::handle data, Method method) {
    EmitLog();
    const Turn::Holder turn(turn_);
    std::vector<Structure::Leaf> leaves;
    ItemStructure structure = nests_.Flatten(data.ptr(), &leaves);
    Views views;
    std::vector<TensorView> values;
    for (const auto& [unused, leaf] : leaves) values.push_back(views.Add(leaf.ptr()));
    RaiseUnlessOk(room_->Run([&] { return method(values); }));
    structure_ = std::move(structure);
  }

  const int64_t max_sequence_length_;
  const bool delta_encoded_;
  const std::optional<int64_t> max_in_flight_items_;
  int64_t chunk_length_ = 1;
  int64_t steps_ = 0;
  int64_t num_discarded_ = 0;
  Turn turn_;
  std::unique_ptr<RoomWait> room_;
  Owned<Writer> writer_;
  ItemNest nests_;
  ItemStructure structure_;  // of the last step
};

}  // namespace

void BindLegacyWriter(nb::module_& module) {
  using Self = WriterObject;
  nb::class_<Self>(module, "Writer", nb::is_weak_referenceable(), nb::dynamic_attr(),
                   "The native part of reverb.Writer.")
      .def(
          "__init__",
          [](Self* self, ClientObject& client, int64_t max_sequence_length, Truth delta_encoded,
             std::optional<int64_t> chunk_length, std::optional<int64_t> max_in_flight_items,
             std::optional<double> timeout) {
            new (self) Self(client, max_sequence_length, delta_encoded.value, chunk_length,
                            max_in_flight_items, TimeoutFromSeconds(timeout));
          },
          "client"_a, "max_sequence_length"_a, "delta_encoded"_a, "chunk_length"_a.none(),
          "max_in_flight_items"_a.none(), "timeout"_a.none())
      .def("append", &Self::Append, "data"_a.none(),
           "Adds a step: any nest of values. The first step fixes the number of leaves, their dtypes and "
           "shapes.")
      .def("append_sequence", &Self::AppendSequence, "sequence"_a.none(),
           "Adds several steps: every leaf has time as its first dimension, of the same length.")
      .def("create_item", &Self::CreateItem, "table"_a, "num_timesteps"_a, "priority"_a.none(),
           "Creates an item of the last `num_timesteps` steps. It is sent once the chunk of the newest step "
           "is complete, or by flush() or close().")
      .def("_flush", &Self::Flush, "timeout"_a.none())
      .def("_close", &Self::Close, "timeout"_a.none())
      .def_prop_ro("_is_closed", &Self::is_closed)
      .def_prop_ro("_num_discarded", &Self::num_discarded)
      .def("__repr__", &Self::ToRepr);
}

}  // namespace reverb::python
