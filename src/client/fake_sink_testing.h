// fake_sink_testing.h — a fake sink for tests of writers, which records items and is controlled by the test.
#ifndef REVERB_CLIENT_FAKE_SINK_TESTING_H_
#define REVERB_CLIENT_FAKE_SINK_TESTING_H_

#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/item_sink.h"
#include "reverb/tensor.h"
#include "reverb/writer.h"

namespace reverb::test {

// The state that a test reads and sets. Outlives the writer that owns the sink.
struct FakeSinkState {
  std::vector<internal::Item> items;
  std::vector<size_t> pieces;  // the number of items in each batch
  std::vector<uint64_t> forgotten;
  std::vector<size_t> forgotten_after;  // for each forgotten chunk: the number of items before it
  std::vector<int64_t> awaited;         // the argument of each AwaitPending()
  int64_t pending = 0;
  int64_t waits_for_room = 0;
  bool is_closed = false;

  bool confirms = true;  // waits succeed; otherwise they time out
  bool is_full = false;
  Status health;
};

class FakeSink final : public internal::ItemSink {
 public:
  explicit FakeSink(FakeSinkState* state) : state_(state) {}

  Status Add(internal::Item item) override {
    REVERB_RETURN_IF_ERROR(state_->health);
    state_->items.push_back(std::move(item));
    ++state_->pending;
    return Status::Ok();
  }
  Status AddAll(std::span<internal::Item> items) override {
    state_->pieces.push_back(items.size());
    return ItemSink::AddAll(items);
  }
  void Forget(uint64_t chunk_id) override {
    state_->forgotten.push_back(chunk_id);
    state_->forgotten_after.push_back(state_->items.size());
  }
  int64_t pending_items() const override { return state_->pending; }
  bool is_full() const override { return state_->is_full; }
  Status WaitForRoom(const WaitOptions&) override {
    ++state_->waits_for_room;
    if (!state_->confirms) return Status::DeadlineExceeded("Timeout exceeded: no room");
    state_->is_full = false;
    return Status::Ok();
  }
  Status AwaitPending(int64_t at_most, const WaitOptions&) override {
    state_->awaited.push_back(at_most);
    REVERB_RETURN_IF_ERROR(state_->health);
    if (state_->pending <= at_most) return Status::Ok();
    if (!state_->confirms) return Status::DeadlineExceeded("Timeout exceeded: items are not confirmed");
    state_->pending = at_most;
    return Status::Ok();
  }
  Status status() const override { return state_->health; }
  void Close() override { state_->is_closed = true; }

 private:
  FakeSinkState* const state_;
};

// Returns the values of a fixed-size column of an item, concatenated.
template <typename T>
std::vector<T> ColumnOf(const internal::Item& item, uint32_t column) {
  const internal::ColumnView view = item.trajectory.column_view(column);
  std::vector<T> values(static_cast<size_t>(item.trajectory.length(column)) * view.row_elements());
  const Status status =
      item.trajectory.Read(column, {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)});
  return status.ok() ? values : std::vector<T>{};
}

// Returns a view of a scalar, which must outlive the view.
template <typename T>
TensorView Scalar(DType dtype, const T& value) {
  return {.dtype = dtype, .dims = {}, .data = &value};
}
inline TensorView Scalar(const int64_t& value) { return Scalar(DType::kInt64, value); }
inline TensorView Scalar(const float& value) { return Scalar(DType::kFloat32, value); }
inline TensorView Scalar(const double& value) { return Scalar(DType::kFloat64, value); }

}  // namespace reverb::test

#endif  // REVERB_CLIENT_FAKE_SINK_TESTING_H_
