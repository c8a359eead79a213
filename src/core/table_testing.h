// table_testing.h — a fixture for tests of ConcurrentTable: a manual clock, a store, and operations whose
// outcome is recorded.
#ifndef REVERB_CORE_TABLE_TESTING_H_
#define REVERB_CORE_TABLE_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/table.h"
#include "testing/chunks.h"

namespace reverb::internal {

class TableFixture : public ::testing::Test {
 protected:
  std::shared_ptr<ConcurrentTable> Make(TableOptions options) {
    if (options.name.empty()) options.name = "t";
    Result<std::shared_ptr<ConcurrentTable>> table =
        ConcurrentTable::Create(std::move(options), {.store = store_, .clock = &clock_});
    EXPECT_TRUE(table.ok()) << table.status().ToString();
    return *std::move(table);
  }
  std::shared_ptr<ConcurrentTable> MakeQueue(int64_t size) { return Make(TableOptions::Queue("q", size)); }

  Item MakeItem(uint64_t key, double priority = 1) {
    return test::MakeItem(key, priority, test::MakeChunk(store_.get(), key, 0, 1));
  }
  Status Insert(ConcurrentTable& table, uint64_t key, double priority = 1,
                std::optional<Duration> timeout = Duration(0)) {
    return table.Insert(MakeItem(key, priority), {.timeout = timeout});
  }
  // Samples without waiting, and returns the keys.
  std::vector<uint64_t> Sample(ConcurrentTable& table, int64_t count) {
    std::vector<internal::Sample> samples;
    (void)table.Sample(count, true, {.timeout = Duration(0)}, &samples);
    return Keys(samples);
  }
  static std::vector<uint64_t> Keys(const std::vector<internal::Sample>& samples) {
    std::vector<uint64_t> keys;
    for (const internal::Sample& sample : samples) keys.push_back(sample.key);
    return keys;
  }

  // The outcome of an asynchronous operation.
  struct Pending {
    ConcurrentTable::Handle handle;
    bool done = false;
    Status status;
    int64_t progress = 0;
    std::vector<uint64_t> keys;
  };
  Pending* InsertAsync(ConcurrentTable& table, std::vector<uint64_t> keys,
                       std::optional<Duration> timeout = {}) {
    Pending* const pending = &pendings_.emplace_back();
    std::vector<Item> items;
    for (uint64_t key : keys) items.push_back(MakeItem(key));
    pending->handle = table.InsertAsync(std::move(items), timeout, Recorder(pending));
    return pending;
  }
  Pending* SampleAsync(ConcurrentTable& table, int64_t count, bool partial = true,
                       std::optional<Duration> timeout = {}) {
    Pending* const pending = &pendings_.emplace_back();
    pending->handle = table.SampleAsync(count, partial, timeout, Recorder(pending));
    return pending;
  }
  std::function<void(Operation&)> Recorder(Pending* pending) {
    return [this, pending](Operation& op) {
      EXPECT_FALSE(pending->done) << "reported twice";
      pending->done = true;
      pending->status = op.status;
      pending->progress = op.progress;
      pending->keys = Keys(op.own_samples);
      order_.push_back(pending);
    };
  }

  ManualClock clock_;
  std::shared_ptr<ChunkStore> store_ = std::make_shared<ChunkStore>(ChunkStore::Options{}, &clock_);
  std::deque<Pending> pendings_;  // outlive the tables, whose destructors end operations
  std::vector<Pending*> order_;   // asynchronous operations, in the order in which they ended
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_TABLE_TESTING_H_
