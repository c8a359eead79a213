// Runs all kinds of calls concurrently on a few tables. The checks hold for every interleaving; data races
// are left to ThreadSanitizer, which runs this without suppressions.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "core/table.h"
#include "testing/chunks.h"
#include "testing/effort.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;
using ::reverb::test::StatusIs;

const int kRounds = static_cast<int>(test::Effort(20'000, 1'500));

void RunThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

class TableConcurrencyTest : public ::testing::Test {
 protected:
  std::shared_ptr<ConcurrentTable> Make(TableOptions options) {
    return ConcurrentTable::Create(std::move(options), {.store = store_}).value();
  }
  Item NewItem(uint64_t key, double priority = 1) {
    return test::MakeItem(key, priority,
                          test::MakeChunk(store_.get(), key % 17, static_cast<int64_t>(key), 1));
  }

  std::shared_ptr<ChunkStore> store_ = std::make_shared<ChunkStore>(ChunkStore::Options{});
};

// Every item of a queue is sampled exactly once.
TEST_F(TableConcurrencyTest, AQueueLosesAndDuplicatesNothing) {
  constexpr int kProducers = 4, kConsumers = 4;
  auto table = Make(TableOptions::Queue("q", 16));
  std::array<std::vector<uint64_t>, kConsumers> drawn;
  std::atomic<int> running_producers{kProducers};
  RunThreads(kProducers + kConsumers, [&](int t) {
    if (t < kProducers) {
      for (int i = 0; i < kRounds; ++i) {
        const uint64_t key = static_cast<uint64_t>(t) * 1'000'000 + static_cast<uint64_t>(i);
        if (i % 5 == 0) {
          std::vector<Item> pair;
          pair.push_back(NewItem(key));
          pair.push_back(NewItem(key + 500'000));
          ASSERT_OK(table->Insert(pair));
        } else {
          ASSERT_OK(table->Insert(NewItem(key)));
        }
      }
      if (--running_producers == 0) {
        while (table->size() > 0) std::this_thread::yield();
        table->Close();
      }
      return;
    }
    std::vector<internal::Sample> samples;
    while (table->Sample(1 + t % 3, true, {}, &samples).ok()) {
    }
    for (const internal::Sample& sample : samples)
      drawn[static_cast<size_t>(t - kProducers)].push_back(sample.key);
  });
  std::vector<uint64_t> all;
  for (const auto& part : drawn) {
    all.insert(all.end(), part.begin(), part.end());
    // Each consumer sees the items of one producer in the order in which they were written.
    std::array<uint64_t, kProducers> last{};
    for (uint64_t key : part) {
      const uint64_t producer = key / 1'000'000, number = key % 1'000'000;
      if (number >= 500'000) continue;
      EXPECT_TRUE(last[producer] == 0 || number > last[producer]) << "producer " << producer;
      last[producer] = number;
    }
  }
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end()) << "an item came out twice";
  EXPECT_EQ(all.size(), static_cast<size_t>(kProducers * (kRounds + kRounds / 5)));
  table.reset();
  EXPECT_EQ(store_->stats().live_chunks, 0);
}

// Operations that are handed over to the lock's holder, and larger ones that are not, are each applied once.
TEST_F(TableConcurrencyTest, OperationsOfEverySizeAreAppliedOnce) {
  constexpr int kThreads = 6;
  constexpr int64_t kLargest = 40;
  auto table = Make({.name = "t", .sampler = SelectorOptions::Prioritized(1.0, 1), .max_size = 1'000'000});
  const int rounds = kRounds / 10;
  std::array<int64_t, kThreads> inserted{};
  std::array<int64_t, kThreads> sampled{};
  RunThreads(kThreads, [&](int t) {
    const auto index = static_cast<size_t>(t);
    std::vector<KeyPriority> updates;
    std::vector<internal::Sample> samples;
    for (int i = 0; i < rounds; ++i) {
      const int64_t count = 1 + (i * 7 + t) % kLargest;
      std::vector<Item> items;
      updates.clear();
      for (int64_t k = 0; k < count; ++k) {
        const uint64_t key =
            static_cast<uint64_t>(t) * 1'000'000 + static_cast<uint64_t>(inserted[index] + k);
        items.push_back(NewItem(key, 1));
        updates.push_back({key, 2});
      }
      const ConcurrentTable::Attempt attempt = table->TryInsert(items);
      ASSERT_OK(attempt.status);
      ASSERT_EQ(attempt.progress, count);
      inserted[index] += count;
      ASSERT_OK(table->Mutate(updates, {}));
      samples.clear();
      ASSERT_EQ(table->TrySample(count, &samples).progress, count);
      ASSERT_EQ(samples.size(), static_cast<size_t>(count));
      sampled[index] += count;
    }
  });
  int64_t all_inserted = 0, all_sampled = 0;
  for (size_t t = 0; t < kThreads; ++t) {
    all_inserted += inserted[t];
    all_sampled += sampled[t];
    for (int64_t i = 0; i < inserted[t]; ++i) {
      const std::optional<internal::Sample> item = table->Find(t * 1'000'000 + static_cast<uint64_t>(i));
      ASSERT_TRUE(item.has_value()) << "thread " << t << ", item " << i;
      ASSERT_EQ(item->priority, 2);
    }
  }
  const TableInfo info = table->Info();
  EXPECT_EQ(info.current_size, all_inserted);
  EXPECT_EQ(info.counters.inserts, all_inserted);
  EXPECT_EQ(info.counters.samples, all_sampled);
}

// Runs all operations concurrently on two tables that share chunks; ends with Close() while some calls wait.
TEST_F(TableConcurrencyTest, AllOperationsConcurrently) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::shared_ptr<ConcurrentTable>> tables = {
      Make({.name = "per", .sampler = SelectorOptions::Prioritized(0.7, 1), .max_size = 200}),
      Make({.name = "ratio",
            .sampler = SelectorOptions::Uniform(2),
            .remover = SelectorOptions::MinHeap(),
            .max_size = 100,
            .rate_limiter = *RateLimiterOptions::SampleToInsertRatio(2, 10, 20.0)}),
      Make(TableOptions::Queue("q", 50))};
  std::atomic<bool> stop{false};
  std::atomic<int64_t> callbacks{0}, started{0};
  const auto wait = Wait{.timeout = 2ms};

  std::thread ender([&] {
    // The duration is measured in operations, not in seconds.
    while (tables[0]->Info().counters.inserts < kRounds) std::this_thread::yield();
    stop = true;
    for (const auto& table : tables) table->Close();
  });
  RunThreads(10, [&](int t) {
    Random random(seed + static_cast<uint64_t>(t));
    std::vector<internal::Sample> samples;
    while (!stop) {
      ConcurrentTable& table = *tables[random.Below(tables.size())];
      const uint64_t key = random.Below(400);
      switch (t) {
        case 0:
        case 1:
        case 2: {
          // The same data in every table.
          Item item = NewItem(key, random.Unit());
          for (const auto& each : tables) {
            (void)each->Insert({.key = item.key, .priority = item.priority, .trajectory = item.trajectory},
                               wait);
          }
          break;
        }
        case 3:
        case 4: {
          const Status status =
              table.Sample(1 + static_cast<int64_t>(random.Below(8)), random.Below(2) == 0, wait, &samples);
          for (const internal::Sample& sample : samples) {
            // Sampled data remains readable whatever happens to the item.
            int64_t value = -1;
            ASSERT_OK(sample.trajectory.Read(0, {reinterpret_cast<uint8_t*>(&value), sizeof(value)}));
            ASSERT_EQ(value, 0);
            ASSERT_GT(sample.probability, 0);
            ASSERT_LE(sample.probability, 1);
          }
          samples.clear();
          break;
        }
        case 5: {
          const KeyPriority updates[] = {{key, random.Unit()}, {key + 1, random.Unit()}};
          const uint64_t deletes[] = {key + 2};
          ASSERT_OK(table.Mutate(updates, deletes));
          break;
        }
        case 6: {
          if (random.Below(50) == 0) table.Reset();
          const TableInfo info = table.Info();
          ASSERT_LE(info.current_size, info.max_size);
          ASSERT_EQ(info.current_size, info.counters.inserts - info.counters.deletes);
          std::this_thread::yield();
          break;
        }
        case 7: {
          const Snapshot snapshot = ConcurrentTable::TakeSnapshot(tables);
          for (const auto& shown : snapshot.tables) {
            int64_t items = 0;
            for (size_t i = 0; i < shown->num_slots(); ++i) {
              if (shown->slot(i).is_free()) continue;
              ++items;
              int64_t value = -1;
              ASSERT_OK(
                  shown->item(i).trajectory.Read(0, {reinterpret_cast<uint8_t*>(&value), sizeof(value)}));
              ASSERT_EQ(value, 0);
            }
            ASSERT_EQ(items, shown->size());
          }
          break;
        }
        case 8: {
          ++started;
          const ConcurrentTable::Handle handle =
              table.SampleAsync(2, false, 1ms, [&callbacks](Operation&) { ++callbacks; });
          if (random.Below(2) == 0) table.Cancel(handle);
          break;
        }
        default: {
          ++started;
          std::vector<Item> items;
          items.push_back(NewItem(random.Below(400)));
          table.InsertAsync(std::move(items), 1ms, [&callbacks](Operation&) { ++callbacks; });
          if (random.Below(100) == 0) {
            ASSERT_OK(tables[1]->SetRateLimiter(
                *RateLimiterOptions::SampleToInsertRatio(2, 10, 10.0 + random.Below(20))));
            ASSERT_OK(tables[0]->Change({.max_size = static_cast<int64_t>(50 + random.Below(150)),
                                         .max_times_sampled = static_cast<int32_t>(random.Below(3)),
                                         .max_age = Duration(1ms) * static_cast<int64_t>(random.Below(5))}));
          }
          break;
        }
      }
    }
  });
  ender.join();
  // Close() has ended all waits; the last callbacks may still run on the clock's thread.
  while (callbacks != started) std::this_thread::yield();
  tables.clear();
  // The last reference to a table may also be held there.
  while (store_->stats().live_chunks != 0) std::this_thread::yield();
}

// Callers that pass their operation to the lock's holder get their own result.
TEST_F(TableConcurrencyTest, ContendedSingleOperationsKeepTheirResultsApart) {
  auto table = Make({.name = "t", .sampler = SelectorOptions::MaxHeap(), .max_size = 1'000'000});
  RunThreads(8, [&](int t) {
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t key = static_cast<uint64_t>(t) * 1'000'000 + static_cast<uint64_t>(i);
      if (i % 7 == 3) {
        ASSERT_THAT(table->Insert(NewItem(key, std::numeric_limits<double>::quiet_NaN())),
                    StatusIs(StatusCode::kInvalidArgument));
        continue;
      }
      ASSERT_OK(table->Insert(NewItem(key, static_cast<double>(key))));
      ASSERT_EQ(table->Find(key)->priority, static_cast<double>(key));
      std::vector<internal::Sample> samples;
      ASSERT_OK(table->Sample(2, false, {}, &samples));
      ASSERT_EQ(samples.size(), 2u);
      ASSERT_GE(samples[0].priority, static_cast<double>(key));
    }
  });
  EXPECT_EQ(table->size(), 8 * (kRounds - (kRounds + 3) / 7));
}

// An operation that is passed to a thread in a read-only call is executed.
TEST_F(TableConcurrencyTest, AsynchronousOperationsAreRunByReaders) {
  auto table = Make({.name = "t", .max_size = 5000});
  for (uint64_t key = 0; key < 5000; ++key) ASSERT_OK(table->Insert(NewItem(key)));
  std::atomic<bool> stop{false};
  std::atomic<int> looks{0};
  std::thread looker([&] {
    while (!stop) {
      uint64_t cursor = 0;
      (void)table->Peek(5000, &cursor);
      ++looks;
    }
  });
  while (looks < 100) {
    std::atomic<bool> done{false};
    table->SampleAsync(1, true, {}, [&](Operation&) { done = true; });
    while (!done) std::this_thread::yield();  // never ends if the operation was lost
  }
  stop = true;
  looker.join();
}

// Operations of one thread are applied and confirmed in the order in which the thread submitted them.
TEST_F(TableConcurrencyTest, AsynchronousOperationsOfOneThreadKeepTheirOrder) {
  auto table = Make({.name = "t", .max_size = 1000});
  std::atomic<bool> stop{false};
  std::vector<std::thread> noise;
  for (int i = 0; i < 2; ++i) {
    noise.emplace_back([&] {
      const KeyPriority update{1, 1.0};
      while (!stop) {
        (void)table->Mutate({&update, 1}, {});
        (void)table->Info();
      }
    });
  }
  std::vector<int> order;  // callbacks of a table run one at a time
  std::atomic<int> done{0};
  for (int i = 0; i < kRounds; ++i) {
    std::vector<Item> items;
    items.push_back(NewItem(static_cast<uint64_t>(i)));
    table->InsertAsync(std::move(items), {}, [&, i](Operation&) {
      order.push_back(i);
      ++done;
    });
  }
  while (done < kRounds) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : noise) thread.join();
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

// Hooks and callbacks may make blocking calls, whatever the thread that runs them waits for.
TEST_F(TableConcurrencyTest, DeferredWorkOfAnExtensionMayBlock) {
  class WaitsLater final : public TableExtension {
   public:
    explicit WaitsLater(std::shared_ptr<ConcurrentTable> other) : other_(std::move(other)) {}
    std::string name() const override { return "waits_later"; }
    void OnUpdate(const ItemView&, Context& context) override {
      context.AfterUnlock([this] {
        std::vector<internal::Sample> samples;
        const Status status = other_->Sample(1, true, {.timeout = 1ms}, &samples);
        if (status.code() == StatusCode::kDeadlineExceeded) ++timed_out;
      });
    }
    std::atomic<int> timed_out{0};

   private:
    const std::shared_ptr<ConcurrentTable> other_;
  };
  auto empty = Make({.name = "empty"});
  auto extension = std::make_shared<WaitsLater>(empty);
  auto table = Make({.name = "t", .extensions = {extension}});
  ASSERT_OK(table->Insert(NewItem(1)));
  constexpr int kUpdates = 20;
  RunThreads(8, [&](int) {
    const KeyPriority update{1, 1.0};
    for (int i = 0; i < kUpdates; ++i) ASSERT_OK(table->Mutate({&update, 1}, {}));
  });
  while (extension->timed_out < 8 * kUpdates) std::this_thread::yield();
  EXPECT_EQ(empty->Info().waiting_samples, 0);
}

// Timeouts run on the clock's thread while callers start and end.
TEST_F(TableConcurrencyTest, RealTimeoutsEndEveryWait) {
  auto table = Make({.name = "t"});
  std::atomic<int> timed_out{0};
  RunThreads(8, [&](int t) {
    for (int i = 0; i < 20; ++i) {
      std::vector<internal::Sample> samples;
      const Status status =
          table->Sample(1, true, {.timeout = std::chrono::microseconds(200 * (t + 1))}, &samples);
      if (status.code() == StatusCode::kDeadlineExceeded) ++timed_out;
    }
  });
  EXPECT_EQ(timed_out, 160);
  EXPECT_EQ(table->Info().waiting_samples, 0);
}

}  // namespace
}  // namespace reverb::internal
