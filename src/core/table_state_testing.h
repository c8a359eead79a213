// table_state_testing.h — a fixture for tests of TableState, whose items have a chunk of their own, with
// short names for operations; and an extension that records its calls.
#ifndef REVERB_CORE_TABLE_STATE_TESTING_H_
#define REVERB_CORE_TABLE_STATE_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/table_state.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"

namespace reverb::internal {

inline std::vector<SelectorOptions> AllSelectors() {
  return {SelectorOptions::Fifo(),    SelectorOptions::Lifo(),    SelectorOptions::Uniform(11),
          SelectorOptions::MinHeap(), SelectorOptions::MaxHeap(), SelectorOptions::Prioritized(0.8, 12)};
}

class TableStateTest : public testing::Test {
 protected:
  static std::unique_ptr<TableState> Make(TableOptions options) {
    options.name = "t";
    auto state = TableState::Create(std::move(options));
    EXPECT_OK(state);
    return *std::move(state);
  }

  // Creates an item with a chunk of its own: one row whose value is the key.
  Item NewItem(uint64_t key, double priority, uint64_t episode = 1, int32_t times_sampled = 0) {
    Item item =
        test::MakeItem(key, priority, test::MakeChunk(&store_, episode, 0, 1, static_cast<int64_t>(key)));
    item.times_sampled = times_sampled;
    return item;
  }
  void Insert(TableState* state, uint64_t key, double priority = 1, uint64_t episode = 1,
              int32_t times_sampled = 0) {
    Item item = NewItem(key, priority, episode, times_sampled);
    ASSERT_OK(state->CheckItem(item));
    Effects effects;
    state->InsertOrAssign(std::move(item), ++now_, &effects);
  }
  std::vector<internal::Sample> Sample(TableState* state, int64_t n) {
    Effects effects;
    std::vector<internal::Sample> samples;
    const int64_t drawn = state->Sample(n, false, &samples, &effects);
    EXPECT_EQ(drawn, static_cast<int64_t>(samples.size()));
    return samples;
  }
  std::vector<uint64_t> SampleKeys(TableState* state, int64_t n) {
    std::vector<uint64_t> keys;
    for (const internal::Sample& sample : Sample(state, n)) keys.push_back(sample.key);
    return keys;
  }
  static void Update(TableState* state, std::vector<KeyPriority> updates,
                     std::vector<uint64_t> deletes = {}) {
    Effects effects;
    state->Mutate(updates, deletes, &effects);
  }
  static void Delete(TableState* state, std::vector<uint64_t> keys) { Update(state, {}, std::move(keys)); }
  static void Reset(TableState* state) {
    Effects effects;
    state->Reset(&effects);
  }

  static std::vector<internal::Sample> All(const TableState& state) {
    uint64_t cursor = 0;
    std::vector<internal::Sample> items = state.Peek(1'000'000, &cursor);
    std::ranges::sort(items, {}, &internal::Sample::key);
    return items;
  }
  static std::vector<uint64_t> Keys(const TableState& state) {
    std::vector<uint64_t> keys;
    for (const internal::Sample& item : All(state)) keys.push_back(item.key);
    return keys;
  }
  static TableInfo Info(const TableState& state) {
    TableInfo info;
    state.FillInfo(&info);
    return info;
  }
  static int64_t ValueOf(const Trajectory& trajectory) {
    int64_t value = -1;
    EXPECT_OK(trajectory.Read(0, {reinterpret_cast<uint8_t*>(&value), sizeof(value)}));
    return value;
  }

  ChunkStore store_{{}};
  int64_t now_ = 1'000;
};

// Records the calls of an extension, and runs the test's hooks.
class Recorder : public TableExtension {
 public:
  explicit Recorder(std::string name, std::vector<std::string>* log) : name_(std::move(name)), log_(log) {}
  std::string name() const override { return name_; }
  void OnInsert(const ItemView& item, Context& context) override { Note("insert", item, context); }
  void OnDelete(const ItemView& item, Context& context) override { Note("delete", item, context); }
  void OnUpdate(const ItemView& item, Context& context) override { Note("update", item, context); }
  void OnSample(const ItemView& item, Context& context) override { Note("sample", item, context); }
  void OnReset() override { log_->push_back(name_ + ": reset"); }
  std::string SaveState() const override { return "state of " + name_; }

  std::function<void(const std::string& what, const ItemView&, Context&)> then;

 private:
  void Note(const std::string& what, const ItemView& item, Context& context) {
    EXPECT_NE(item.trajectory, nullptr);
    EXPECT_EQ(item.trajectory->num_columns(), 1u);
    EXPECT_EQ(item.bytes, item.trajectory->chunk_bytes());
    const int priority = static_cast<int>(item.priority);
    log_->push_back(name_ + ": " + what + " " + std::to_string(item.key) + " priority " +
                    std::to_string(priority) + " times " + std::to_string(item.times_sampled));
    if (then) then(what, item, context);
  }

  const std::string name_;
  std::vector<std::string>* const log_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_TABLE_STATE_TESTING_H_
