#include "core/extensions/insert_on_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class InsertOnSampleTest : public ::testing::Test {
 protected:
  ~InsertOnSampleTest() override { SetLogSink({}); }

  std::shared_ptr<ConcurrentTable> MakeTable(TableOptions options) {
    return ConcurrentTable::Create(std::move(options), {.store = store_, .clock = &clock_}).value();
  }
  // A table, first in first out, whose samples go to `target` too.
  std::shared_ptr<ConcurrentTable> MakeSource(const std::shared_ptr<ConcurrentTable>& target,
                                              InsertOnSampleOptions options = {}) {
    options.clock = &clock_;
    extension_ = MakeInsertOnSample(target, options).value();
    return MakeTable({.name = "source", .sampler = SelectorOptions::Fifo(), .extensions = {extension_}});
  }
  Item MakeItem(uint64_t key, double priority = 1) {
    return test::MakeItem(key, priority, test::MakeChunk(store_.get(), 1, static_cast<int64_t>(key), 1));
  }
  static std::vector<internal::Sample> Sample(ConcurrentTable* table, int64_t count = 1) {
    std::vector<internal::Sample> samples;
    EXPECT_OK(table->Sample(count, /*allow_partial=*/false, {.timeout = Duration(0)}, &samples));
    return samples;
  }

  ManualClock clock_;
  const std::shared_ptr<ChunkStore> store_ = std::make_shared<ChunkStore>(ChunkStore::Options(), &clock_);
  std::shared_ptr<InsertOnSample> extension_;  // of the last MakeSource()
};

// Takes one item and then no other before a sample.
RateLimiterOptions OneAtATime() { return RateLimiterOptions::Queue(1); }

TEST_F(InsertOnSampleTest, TheFirstSampleOfAnItemIsCopied) {
  auto target = MakeTable({.name = "target"});
  auto source = MakeSource(target);
  ASSERT_OK(source->Insert(MakeItem(7, 3.5)));
  EXPECT_EQ(target->size(), 0);

  const std::vector<internal::Sample> samples = Sample(source.get());
  const std::optional<internal::Sample> copy = target->Find(7);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->priority, 3.5);
  EXPECT_EQ(copy->times_sampled, 1);
  EXPECT_EQ(copy->trajectory.slice(0, 0).chunk, samples[0].trajectory.slice(0, 0).chunk);
  EXPECT_EQ(store_->stats().live_chunks, 1);
  EXPECT_EQ(extension_->counts().inserted, 1);
  EXPECT_EQ(extension_->counts().under_way, 0);
}

TEST_F(InsertOnSampleTest, LaterSamplesAreNot) {
  auto target = MakeTable({.name = "target"});
  auto source = MakeSource(target);
  ASSERT_OK(source->Insert(MakeItem(7)));
  Sample(source.get(), 3);
  const uint64_t key = 7;
  ASSERT_OK(target->Mutate({}, {&key, 1}));
  Sample(source.get(), 3);
  EXPECT_EQ(target->size(), 0);
  EXPECT_EQ(extension_->counts().inserted, 1);
}

TEST_F(InsertOnSampleTest, AnItemThatGoesWithItsSampleIsCopied) {
  auto target = MakeTable({.name = "target"});
  extension_ = MakeInsertOnSample(target).value();
  TableOptions queue = TableOptions::Queue("queue", 10);
  queue.extensions = {extension_};
  auto source = MakeTable(std::move(queue));
  for (uint64_t key = 1; key <= 3; ++key) ASSERT_OK(source->Insert(MakeItem(key)));
  Sample(source.get(), 3);
  EXPECT_EQ(source->size(), 0);
  EXPECT_EQ(target->size(), 3);
}

TEST_F(InsertOnSampleTest, AnExistingKeyOfTheTargetGetsThePriority) {
  auto target = MakeTable({.name = "target", .rate_limiter = OneAtATime()});
  auto source = MakeSource(target, {.timeout = Duration(0)});
  ASSERT_OK(target->Insert(MakeItem(7, 1)));  // no other may come
  ASSERT_OK(source->Insert(MakeItem(7, 2)));
  Sample(source.get());
  EXPECT_EQ(target->Find(7)->priority, 2);
  EXPECT_EQ(target->Find(7)->times_sampled, 0);
  EXPECT_EQ(extension_->counts().inserted, 1);
}

TEST_F(InsertOnSampleTest, ABlockedTargetDoesNotBlockTheSamplerAndTheCopyTimesOut) {
  auto target = MakeTable({.name = "target", .rate_limiter = OneAtATime()});
  auto source = MakeSource(target, {.timeout = milliseconds(200)});
  ASSERT_OK(target->Insert(MakeItem(100)));
  for (uint64_t key = 1; key <= 2; ++key) ASSERT_OK(source->Insert(MakeItem(key)));

  Sample(source.get());  // returns, with time standing still
  EXPECT_EQ(extension_->counts().under_way, 1);
  EXPECT_EQ(target->Info().waiting_inserts, 1);
  ASSERT_OK(source->Insert(MakeItem(3)));  // and the source goes on
  EXPECT_EQ(source->Info().waiting_samples, 0);

  clock_.Advance(milliseconds(199));
  EXPECT_EQ(extension_->counts().timed_out, 0);
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(extension_->counts().timed_out, 1);
  EXPECT_EQ(extension_->counts().under_way, 0);
  EXPECT_EQ(target->size(), 1);
  EXPECT_FALSE(target->Find(1));
}

TEST_F(InsertOnSampleTest, AWaitingCopyGetsInWhenTheTargetAllowsIt) {
  auto target = MakeTable({.name = "target", .rate_limiter = OneAtATime()});
  auto source = MakeSource(target);  // for ever
  ASSERT_OK(target->Insert(MakeItem(100)));
  ASSERT_OK(source->Insert(MakeItem(1)));
  Sample(source.get());
  clock_.Advance(std::chrono::hours(1));
  EXPECT_EQ(extension_->counts().under_way, 1);
  Sample(target.get());
  EXPECT_EQ(extension_->counts().inserted, 1);
  EXPECT_TRUE(target->Find(1));
}

TEST_F(InsertOnSampleTest, ADroppedCopyLetsGoOfItsData) {
  auto target = MakeTable({.name = "target", .rate_limiter = OneAtATime()});
  auto source = MakeSource(target, {.timeout = milliseconds(1)});
  ASSERT_OK(target->Insert(MakeItem(100)));
  ASSERT_OK(source->Insert(MakeItem(1)));
  Sample(source.get());
  source->Reset();
  EXPECT_EQ(store_->stats().live_chunks, 2);  // the copy still waits
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(store_->stats().live_chunks, 1);
}

TEST_F(InsertOnSampleTest, MoreThanMaxUnderWayAreDropped) {
  auto target = MakeTable({.name = "target", .rate_limiter = OneAtATime()});
  auto source = MakeSource(target, {.max_under_way = 2});
  ASSERT_OK(target->Insert(MakeItem(100)));
  for (uint64_t key = 1; key <= 5; ++key) {
    ASSERT_OK(source->Insert(MakeItem(key)));
    Sample(source.get());
    const uint64_t oldest = key;
    ASSERT_OK(source->Mutate({}, {&oldest, 1}));
  }
  EXPECT_EQ(extension_->counts().under_way, 2);
  EXPECT_EQ(extension_->counts().failed, 3);
  EXPECT_EQ(target->Info().waiting_inserts, 2);
}

TEST_F(InsertOnSampleTest, WhatTheTargetRefusesIsCountedAndLoggedOnceInAWhile) {
  Mutex mu;
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel level, std::string_view message) {
    EXPECT_EQ(level, LogLevel::kWarning);
    MutexLock lock(&mu);
    lines.emplace_back(message);
  });
  auto target = MakeTable({.name = "target", .sampler = SelectorOptions::Prioritized(1)});
  extension_ = MakeInsertOnSample(target, {.clock = &clock_}).value();
  auto source = MakeTable({.name = "source",
                           .sampler = SelectorOptions::Fifo(),
                           .max_times_sampled = 1,
                           .extensions = {extension_}});
  for (uint64_t key = 1; key <= 5; ++key) ASSERT_OK(source->Insert(MakeItem(key, -1)));
  Sample(source.get(), 5);
  EXPECT_EQ(extension_->counts().failed, 5);
  EXPECT_EQ(target->size(), 0);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("the copy of item 1 was dropped")));

  clock_.Advance(std::chrono::minutes(1));
  ASSERT_OK(source->Insert(MakeItem(6, -1)));
  Sample(source.get());
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[1], HasSubstr("target"));
}

TEST_F(InsertOnSampleTest, AClosedTargetGetsNothing) {
  auto target = MakeTable({.name = "target", .rate_limiter = OneAtATime()});
  auto source = MakeSource(target);
  ASSERT_OK(target->Insert(MakeItem(100)));
  for (uint64_t key = 1; key <= 2; ++key) ASSERT_OK(source->Insert(MakeItem(key)));
  Sample(source.get());
  target->Close();
  EXPECT_EQ(extension_->counts().failed, 1);
  EXPECT_EQ(extension_->counts().under_way, 0);
}

TEST_F(InsertOnSampleTest, NeitherTableKeepsTheOtherAlive) {
  auto target = MakeTable({.name = "target", .rate_limiter = OneAtATime()});
  auto source = MakeSource(target);
  ASSERT_OK(target->Insert(MakeItem(100)));
  for (uint64_t key = 1; key <= 2; ++key) ASSERT_OK(source->Insert(MakeItem(key)));
  Sample(source.get());  // this copy waits

  const std::weak_ptr<ConcurrentTable> gone = target;
  target.reset();
  EXPECT_TRUE(gone.expired());
  EXPECT_EQ(extension_->counts().failed, 1);
  const uint64_t oldest = 1;
  ASSERT_OK(source->Mutate({}, {&oldest, 1}));
  Sample(source.get());  // this one finds no target
  EXPECT_EQ(extension_->counts().failed, 2);

  const std::weak_ptr<ConcurrentTable> also_gone = source;
  source.reset();
  EXPECT_TRUE(also_gone.expired());
}

TEST_F(InsertOnSampleTest, TheSourceMayGoWhileACopyWaits) {
  auto target = MakeTable({.name = "target", .rate_limiter = OneAtATime()});
  auto source = MakeSource(target);
  ASSERT_OK(target->Insert(MakeItem(100)));
  ASSERT_OK(source->Insert(MakeItem(1)));
  Sample(source.get());
  source.reset();
  extension_.reset();
  Sample(target.get());
  EXPECT_TRUE(target->Find(1));
}

TEST_F(InsertOnSampleTest, ATableIsNotItsOwnTarget) {
  auto source = MakeSource(nullptr);
  EXPECT_THAT(extension_->Bind(source),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("table \"source\"")));
  ASSERT_OK(source->Insert(MakeItem(1)));
  Sample(source.get());
  EXPECT_EQ(extension_->counts().failed, 1);  // no target was set
}

TEST_F(InsertOnSampleTest, OptionsAreChecked) {
  EXPECT_THAT(MakeInsertOnSample(nullptr, {.max_under_way = 0}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(MakeInsertOnSample(nullptr, {.clock = nullptr}), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(InsertOnSampleTest, OneObjectServesOneTable) {
  auto target = MakeTable({.name = "target"});
  auto source = MakeSource(target);
  EXPECT_THAT(ConcurrentTable::Create({.name = "second", .extensions = {extension_}},
                                      {.store = store_, .clock = &clock_}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("insert_on_sample")));
}

TEST_F(InsertOnSampleTest, ACopyIsNotCopiedBack) {
  auto to_right = MakeInsertOnSample(nullptr).value();
  auto to_left = MakeInsertOnSample(nullptr).value();
  auto left = MakeTable({.name = "left", .max_times_sampled = 1, .extensions = {to_right}});
  auto right = MakeTable({.name = "right", .max_times_sampled = 2, .extensions = {to_left}});
  ASSERT_OK(to_right->Bind(right));
  ASSERT_OK(to_left->Bind(left));
  ASSERT_OK(left->Insert(MakeItem(1)));
  Sample(left.get());
  EXPECT_EQ(left->size(), 0);
  EXPECT_EQ(right->size(), 1);
  Sample(right.get());
  EXPECT_EQ(left->size(), 0);
  EXPECT_EQ(right->size(), 0);
}

// Every sample of one table lets one sampler of the other go ahead.
TEST_F(InsertOnSampleTest, ALongChainOfCopiesDoesNotNest) {
  constexpr uint64_t kItems = 20'000;
  auto to_right = MakeInsertOnSample(nullptr).value();
  auto to_left = MakeInsertOnSample(nullptr).value();
  const auto options = [&](std::string name, std::shared_ptr<TableExtension> extension) {
    return TableOptions{.name = std::move(name),
                        .sampler = SelectorOptions::Fifo(),
                        .max_times_sampled = 1,
                        .rate_limiter = {.min_diff = kItems},
                        .extensions = {std::move(extension)}};
  };
  auto left = MakeTable(options("left", to_right));
  auto right = MakeTable(options("right", to_left));
  ASSERT_OK(to_right->Bind(right));
  ASSERT_OK(to_left->Bind(left));
  std::atomic<uint64_t> sampled = 0;
  for (uint64_t i = 0; i < kItems; ++i) {
    ASSERT_OK(left->Insert(MakeItem(i)));
    ASSERT_OK(right->Insert(MakeItem(kItems + i)));
  }
  for (uint64_t i = 0; i < kItems; ++i) {
    left->SampleAsync(1, false, {}, [&](Operation& op) { sampled += op.status.ok(); });
    right->SampleAsync(1, false, {}, [&](Operation& op) { sampled += op.status.ok(); });
  }
  EXPECT_EQ(sampled, 0u);
  ASSERT_OK(left->Insert(MakeItem(2 * kItems)));
  EXPECT_EQ(sampled, 2 * kItems);
  EXPECT_EQ(to_right->counts().inserted, static_cast<int64_t>(kItems));
  EXPECT_EQ(to_left->counts().inserted, static_cast<int64_t>(kItems));
}

TEST_F(InsertOnSampleTest, TwoTablesFeedEachOtherFromManyThreads) {
  // Real time, for a target that makes copies wait now and then.
  auto to_right = MakeInsertOnSample(nullptr, {.timeout = milliseconds(5)}).value();
  auto to_left = MakeInsertOnSample(nullptr, {.timeout = milliseconds(5)}).value();
  const auto make = [&](std::string name, RateLimiterOptions limiter,
                        std::shared_ptr<TableExtension> extension) {
    return ConcurrentTable::Create({.name = std::move(name),
                                    .max_size = 100,
                                    .rate_limiter = limiter,
                                    .extensions = {std::move(extension)}},
                                   {.store = store_})
        .value();
  };
  auto left = make("left", RateLimiterOptions::MinSize(1), to_right);
  auto right = make("right", {.samples_per_insert = 1, .max_diff = 50}, to_left);
  ASSERT_OK(to_right->Bind(right));
  ASSERT_OK(to_left->Bind(left));

  constexpr uint64_t kThreads = 6;
  constexpr uint64_t kRounds = 400;
  std::atomic<int64_t> first_samples[2] = {0, 0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ConcurrentTable* const table = t % 2 == 0 ? left.get() : right.get();
      std::vector<internal::Sample> samples;
      for (uint64_t i = 0; i < kRounds; ++i) {
        // Copies may have filled the table: then this waits in vain, and the sample makes room.
        const Status status = table->Insert(MakeItem(1 + t * kRounds + i), {.timeout = milliseconds(1)});
        ASSERT_TRUE(status.ok() || status.code() == StatusCode::kDeadlineExceeded) << status.ToString();
        samples.clear();
        ASSERT_OK(table->Sample(2, /*allow_partial=*/true, {.timeout = std::chrono::seconds(60)}, &samples));
        for (const internal::Sample& sample : samples) first_samples[t % 2] += sample.times_sampled == 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // What still waits ends here.
  left->Close();
  right->Close();
  const InsertOnSample* const extensions[2] = {to_right.get(), to_left.get()};
  for (int i = 0; i < 2; ++i) {
    InsertOnSample::Counts counts = extensions[i]->counts();
    // The timer's thread may be calling back at this moment.
    for (int tries = 0; counts.under_way > 0 && tries < 1'000; ++tries) {
      std::this_thread::sleep_for(milliseconds(10));
      counts = extensions[i]->counts();
    }
    EXPECT_EQ(counts.under_way, 0);
    EXPECT_GT(first_samples[i], 0);
    EXPECT_EQ(counts.inserted + counts.timed_out + counts.failed, first_samples[i]);
  }
  EXPECT_GT(to_right->counts().inserted + to_left->counts().inserted, 0);
}

}  // namespace
}  // namespace reverb::internal
