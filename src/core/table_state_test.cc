#include "core/table_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/table_state_testing.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::MakeChunk;
using test::MakeItem;
using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// --- Creation ---

TEST_F(TableStateTest, RefusesBadOptionsAndNamesTheTable) {
  const auto refused = [](TableOptions options) { return TableState::Create(std::move(options)).status(); };
  EXPECT_THAT(refused({.name = ""}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("name is empty")));
  for (const int64_t size : {int64_t{0}, int64_t{-1}, int64_t{1} << 31, (int64_t{1} << 31) - 1}) {
    EXPECT_THAT(
        refused({.name = "per", .max_size = size}),
        StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("\"per\""), HasSubstr(std::to_string(size)))));
  }
  EXPECT_OK(refused({.name = "per", .max_size = (int64_t{1} << 31) - 2}));
  EXPECT_THAT(refused({.name = "per", .sampler = SelectorOptions::Prioritized(-1)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"per\"")));
  EXPECT_THAT(refused({.name = "per", .remover = SelectorOptions::Prioritized(kNan)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"per\"")));
  EXPECT_THAT(
      refused({.name = "per", .rate_limiter = RateLimiterOptions::MinSize(0)}),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("\"per\""), HasSubstr("min_size_to_sample"))));
  EXPECT_THAT(refused({.name = "per", .sampler = {.kind = SelectorOptions::Kind::kCustom}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(refused({.name = "per", .custom_sampler = [] { return nullptr; }}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("sampler")));
  EXPECT_THAT(refused({.name = "per", .custom_remover = [] { return nullptr; }}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("remover")));
  EXPECT_THAT(refused({.name = "per", .extensions = {nullptr}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("extension")));
}

TEST_F(TableStateTest, RejectsOptionsThatClientsCouldNotRead) {
  const auto refused = [](TableOptions options) { return TableState::Create(std::move(options)).status(); };
  EXPECT_OK(refused({.name = std::string(1024, 'x')}));
  EXPECT_THAT(refused({.name = std::string(1025, 'x')}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("xxx"), HasSubstr("1025"), HasSubstr("1024"), HasSubstr("shorter"))));
  EXPECT_OK(refused({.name = "r\xC3\xA9play"}));
  EXPECT_THAT(refused({.name = "r\xE9play"}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
  const auto with_bounds = [](int64_t bytes) {
    return Signature::Leaf({"", DType::kUint8, Shape::UnknownRank()},
                           {Tensor::Allocate(DType::kUint8, {bytes}).value(),
                            Tensor::Allocate(DType::kUint8, {bytes}).value()})
        .value();
  };
  EXPECT_OK(refused({.name = "per", .signature = with_bounds((1 << 23) - 64)}));
  EXPECT_THAT(refused({.name = "per", .signature = with_bounds(1 << 23)}),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("\"per\""), HasSubstr("signature"))));
}

TEST_F(TableStateTest, StartsEmpty) {
  const auto state = Make({.max_size = 7, .max_times_sampled = 3});
  EXPECT_EQ(state->size(), 0);
  EXPECT_FALSE(state->CanSample());
  EXPECT_TRUE(state->CanInsert());
  const TableInfo info = Info(*state);
  EXPECT_EQ(info.name, "t");
  EXPECT_EQ(info.max_size, 7);
  EXPECT_EQ(info.max_times_sampled, 3);
  EXPECT_EQ(info.sampler.kind, SelectorOptions::Kind::kUniform);
  EXPECT_EQ(info.remover, SelectorOptions::Fifo());
  EXPECT_EQ(info.current_size, 0);
  EXPECT_EQ(info.num_episodes, 0);
  EXPECT_EQ(info.counters, RateLimiterCounters());
}

TEST_F(TableStateTest, QueueAndStackOptions) {
  const TableOptions queue = TableOptions::Queue("q", 5);
  EXPECT_EQ(queue.sampler, SelectorOptions::Fifo());
  EXPECT_EQ(queue.remover, SelectorOptions::Fifo());
  EXPECT_EQ(queue.max_size, 5);
  EXPECT_EQ(queue.max_times_sampled, 1);
  EXPECT_EQ(queue.rate_limiter, RateLimiterOptions::Queue(5));
  const TableOptions stack = TableOptions::Stack("s", 5);
  EXPECT_EQ(stack.sampler, SelectorOptions::Lifo());
  EXPECT_EQ(stack.remover, SelectorOptions::Lifo());
  EXPECT_EQ(stack.max_times_sampled, 1);
  EXPECT_EQ(stack.rate_limiter, RateLimiterOptions::Stack(5));
}

// --- Inserts ---

TEST_F(TableStateTest, InsertStoresTheItemUnchanged) {
  const auto state = Make({});
  Insert(state.get(), 42, 1.5, 7, 2);
  EXPECT_EQ(state->size(), 1);
  EXPECT_TRUE(state->Contains(42));
  EXPECT_FALSE(state->Contains(43));
  const auto item = state->Find(42);
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(item->key, 42u);
  EXPECT_EQ(item->priority, 1.5);
  EXPECT_EQ(item->times_sampled, 2);
  EXPECT_EQ(item->inserted_at, now_);
  EXPECT_EQ(ValueOf(item->trajectory), 42);
  EXPECT_FALSE(state->Find(43).has_value());
  EXPECT_EQ(state->limiter().counters(), (RateLimiterCounters{.inserts = 1}));
}

TEST_F(TableStateTest, AnyKeyIsAllowed) {
  const auto state = Make({.sampler = SelectorOptions::Fifo()});
  for (const uint64_t key : {uint64_t{0}, uint64_t{1}, UINT64_MAX, UINT64_MAX - 1, uint64_t{1} << 63})
    Insert(state.get(), key);
  EXPECT_THAT(Keys(*state), ElementsAre(0, 1, uint64_t{1} << 63, UINT64_MAX - 1, UINT64_MAX));
  EXPECT_THAT(SampleKeys(state.get(), 1), ElementsAre(0));
  Delete(state.get(), {0, UINT64_MAX});
  EXPECT_THAT(Keys(*state), ElementsAre(1, uint64_t{1} << 63, UINT64_MAX - 1));
}

TEST_F(TableStateTest, InsertOfAnExistingKeySetsItsPriorityAndNothingElse) {
  const auto state =
      Make({.sampler = SelectorOptions::MaxHeap(), .remover = SelectorOptions::Fifo(), .max_size = 2});
  Insert(state.get(), 1, 10, /*episode=*/5, /*times_sampled=*/3);
  Insert(state.get(), 2, 20);
  const int64_t bytes = Info(*state).referenced_bytes;
  Item again = MakeItem(1, 30, MakeChunk(&store_, 9, 0, 1, 111));
  again.times_sampled = 77;
  Effects effects;
  state->InsertOrAssign(std::move(again), 999'999, &effects);

  const auto item = state->Find(1);
  EXPECT_EQ(item->priority, 30);
  EXPECT_EQ(item->times_sampled, 3);
  EXPECT_EQ(item->inserted_at, 1'001);
  EXPECT_EQ(ValueOf(item->trajectory), 1) << "the new data is discarded";
  EXPECT_EQ(effects.released.size(), 1u) << "outside the lock";
  EXPECT_EQ(store_.stats().live_chunks, 3);
  effects = {};
  EXPECT_EQ(store_.stats().live_chunks, 2);

  const TableInfo info = Info(*state);
  EXPECT_EQ(info.counters, (RateLimiterCounters{.inserts = 2}));
  EXPECT_EQ(info.current_size, 2);
  EXPECT_EQ(info.num_episodes, 2);
  EXPECT_EQ(info.referenced_bytes, bytes);
  EXPECT_EQ(info.updates, 1);
  EXPECT_EQ(info.evictions, 0);
  EXPECT_THAT(SampleKeys(state.get(), 1), ElementsAre(1)) << "the sampler knows";
  // Its position in the order of insertion is unchanged.
  Insert(state.get(), 3, 1);
  EXPECT_THAT(Keys(*state), ElementsAre(2, 3));
}

TEST_F(TableStateTest, AssigningCountsAsAnUpdate) {
  const auto state = Make({.sampler = SelectorOptions::MinHeap(), .max_times_sampled = 1});
  for (const uint64_t key : {1, 2, 3}) Insert(state.get(), key, 5);
  Insert(state.get(), 1, 5);
  EXPECT_THAT(SampleKeys(state.get(), 3), ElementsAre(2, 3, 1));
}

TEST_F(TableStateTest, AnItemWithoutDataIsRefused) {
  const auto state = Make({});
  EXPECT_THAT(state->CheckItem({.key = 3, .priority = 1}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"t\""), HasSubstr("item 3"), HasSubstr("must not be empty"))));
}

// --- Invalid priorities ---

TEST_F(TableStateTest, RefusesPrioritiesThatEitherSelectorRefuses) {
  for (const SelectorOptions& sampler : AllSelectors()) {
    for (const SelectorOptions& remover : AllSelectors()) {
      SCOPED_TRACE(sampler.ToString() + ", " + remover.ToString());
      const auto state = Make({.sampler = sampler, .remover = remover});
      Insert(state.get(), 1, 1);
      const bool weighs = sampler.kind == SelectorOptions::Kind::kPrioritized ||
                          remover.kind == SelectorOptions::Kind::kPrioritized;
      const auto refusal = StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority,
                                    AllOf(HasSubstr("table \"t\""), HasSubstr("item 77")));
      EXPECT_THAT(state->CheckPriority(77, kNan), refusal);
      EXPECT_THAT(state->CheckItem(NewItem(77, kNan)), refusal);
      for (const double priority : {-1.0, -1e-300, -kInfinity, kInfinity}) {
        if (weighs) {
          EXPECT_THAT(state->CheckPriority(77, priority), refusal) << priority;
          EXPECT_THAT(state->CheckItem(NewItem(77, priority)), refusal) << priority;
        } else {
          EXPECT_OK(state->CheckPriority(77, priority)) << priority;
        }
      }
      for (const double priority : {0.0, -0.0, 1e-300, 1.0, 1e200})
        EXPECT_OK(state->CheckPriority(77, priority)) << priority;
      // The check changed nothing.
      EXPECT_EQ(state->size(), 1);
      EXPECT_FALSE(state->Contains(77));
      EXPECT_EQ(state->Find(1)->priority, 1);
      EXPECT_EQ(state->limiter().counters(), (RateLimiterCounters{.inserts = 1}));
      EXPECT_EQ(Info(*state).updates, 0);
      EXPECT_THAT(SampleKeys(state.get(), 2), ElementsAre(1, 1));
    }
  }
  EXPECT_EQ(store_.stats().live_chunks, 0);
}

// --- Eviction ---

TEST_F(TableStateTest, EveryRemoverEvictsByItsOwnRule) {
  // Keys in order of insertion 1..4 into a table of three.
  struct Case {
    SelectorOptions remover;
    std::vector<double> priorities;
    std::vector<uint64_t> left;
  };
  const std::vector<Case> cases = {
      {SelectorOptions::Fifo(), {1, 2, 3, 4}, {2, 3, 4}},
      {SelectorOptions::Lifo(), {1, 2, 3, 4}, {1, 2, 3}},  // the new item itself
      {SelectorOptions::MinHeap(), {3, 1, 2, 4}, {1, 3, 4}},
      {SelectorOptions::MinHeap(), {3, 4, 2, 1}, {1, 2, 3}},  // the new item itself
      {SelectorOptions::MinHeap(), {1, 1, 1, 1}, {2, 3, 4}},  // ties: the least recently updated
      {SelectorOptions::MaxHeap(), {3, 9, 2, 4}, {1, 3, 4}},
      {SelectorOptions::MaxHeap(), {7, 7, 7, 7}, {2, 3, 4}},
      {SelectorOptions::Prioritized(1, 1), {0, 0, 5, 0}, {1, 2, 4}},  // only one has a weight
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.remover.ToString());
    const auto state = Make({.remover = c.remover, .max_size = 3});
    for (uint64_t key = 1; key <= 4; ++key) Insert(state.get(), key, c.priorities[key - 1]);
    EXPECT_EQ(Keys(*state), c.left);
    EXPECT_EQ(state->size(), 3);
    EXPECT_EQ(Info(*state).evictions, 1);
    EXPECT_EQ(state->limiter().counters(), (RateLimiterCounters{.inserts = 4, .deletes = 1}));
    EXPECT_EQ(store_.stats().live_chunks, 3);
  }
}

TEST_F(TableStateTest, RandomRemoversEvictEveryItemSoonerOrLater) {
  for (const SelectorOptions& remover : {SelectorOptions::Uniform(5), SelectorOptions::Prioritized(0, 5)}) {
    const auto state = Make({.remover = remover, .max_size = 4});
    std::map<uint64_t, int> evicted;
    for (uint64_t key = 0; key < 4; ++key) Insert(state.get(), key);
    for (int round = 0; round < 400; ++round) {
      Insert(state.get(), 4);
      ASSERT_EQ(state->size(), 4);
      for (uint64_t key = 0; key < 5; ++key) {
        if (state->Contains(key)) continue;
        ++evicted[key];
        if (key != 4) {
          Delete(state.get(), {4});
          Insert(state.get(), key);
        }
        break;
      }
    }
    EXPECT_EQ(evicted.size(), 5u);
    for (const auto& [key, count] : evicted) EXPECT_GT(count, 30) << key;
  }
}

TEST_F(TableStateTest, EvictOneRemovesWhatTheRemoverPicks) {
  const auto state = Make({.remover = SelectorOptions::Lifo()});
  for (uint64_t key = 1; key <= 3; ++key) Insert(state.get(), key);
  Effects effects;
  state->EvictOne(&effects);
  EXPECT_THAT(Keys(*state), ElementsAre(1, 2));
  EXPECT_EQ(effects.released.size(), 1u);
  state->EvictOne(&effects);
  state->EvictOne(&effects);
  EXPECT_EQ(state->size(), 0);
  EXPECT_EQ(Info(*state).evictions, 3);
  EXPECT_EQ(state->limiter().counters(), (RateLimiterCounters{.inserts = 3, .deletes = 3}));
}

TEST_F(TableStateTest, ATableOfOneIsAlwaysFull) {
  const auto state = Make({.remover = SelectorOptions::Fifo(), .max_size = 1});
  for (uint64_t key = 1; key <= 5; ++key) {
    Insert(state.get(), key);
    EXPECT_THAT(Keys(*state), ElementsAre(key));
  }
}

// --- Sampling ---

TEST_F(TableStateTest, ASampleHasAllFields) {
  const auto state = Make({.sampler = SelectorOptions::MaxHeap()});
  Insert(state.get(), 1, 1);
  Insert(state.get(), 2, 2.5);
  const int64_t inserted_at = now_;
  Effects effects;
  std::vector<internal::Sample> samples(1);
  samples[0].key = 99;
  EXPECT_EQ(state->Sample(2, true, &samples, &effects), 2);
  ASSERT_EQ(samples.size(), 3u) << "appended";
  EXPECT_EQ(samples[0].key, 99u);
  for (int i = 1; i <= 2; ++i) {
    EXPECT_EQ(samples[i].key, 2u);
    EXPECT_EQ(samples[i].priority, 2.5);
    EXPECT_EQ(samples[i].probability, 1);
    EXPECT_EQ(samples[i].table_size, 2);
    EXPECT_EQ(samples[i].inserted_at, inserted_at);
    EXPECT_EQ(samples[i].times_sampled, i);
    EXPECT_TRUE(samples[i].rate_limited);
    EXPECT_EQ(ValueOf(samples[i].trajectory), 2);
  }
  EXPECT_TRUE(effects.empty());
  EXPECT_FALSE(Sample(state.get(), 1)[0].rate_limited);
  EXPECT_EQ(state->limiter().counters(), (RateLimiterCounters{.inserts = 2, .samples = 3}));
}

TEST_F(TableStateTest, SamplingAnEmptyTableGivesNothing) {
  const auto state = Make({});
  EXPECT_THAT(SampleKeys(state.get(), 5), IsEmpty());
  Insert(state.get(), 1);
  Delete(state.get(), {1});
  EXPECT_FALSE(state->CanSample());
  EXPECT_THAT(SampleKeys(state.get(), 5), IsEmpty());
  EXPECT_EQ(state->limiter().counters().samples, 0);
}

TEST_F(TableStateTest, SamplesAsManyAsTheLimiterAllows) {
  const auto state = Make(
      {.sampler = SelectorOptions::Fifo(),
       .rate_limiter = {.samples_per_insert = 1.5, .min_size_to_sample = 2, .min_diff = 0, .max_diff = 100}});
  Insert(state.get(), 1);
  EXPECT_THAT(SampleKeys(state.get(), 10), IsEmpty());
  Insert(state.get(), 2);
  EXPECT_THAT(SampleKeys(state.get(), 10), ElementsAre(1, 1, 1));
  Insert(state.get(), 3);
  EXPECT_THAT(SampleKeys(state.get(), 10), ElementsAre(1));
}

TEST_F(TableStateTest, ABatchIsTheSameAsManySingleSamples) {
  for (const SelectorOptions& sampler : AllSelectors()) {
    SCOPED_TRACE(sampler.ToString());
    const auto batched = Make({.sampler = sampler}), single = Make({.sampler = sampler});
    for (uint64_t key = 1; key <= 20; ++key) {
      Insert(batched.get(), key, static_cast<double>(key % 5));
      Insert(single.get(), key, static_cast<double>(key % 5));
    }
    const std::vector<internal::Sample> together = Sample(batched.get(), 300);
    ASSERT_EQ(together.size(), 300u);
    for (const internal::Sample& sample : together) {
      const std::vector<internal::Sample> alone = Sample(single.get(), 1);
      ASSERT_EQ(sample.key, alone[0].key);
      ASSERT_EQ(sample.probability, alone[0].probability);
      ASSERT_EQ(sample.times_sampled, alone[0].times_sampled);
    }
    EXPECT_EQ(Info(*batched).num_unique_samples, Info(*single).num_unique_samples);
  }
}

TEST_F(TableStateTest, MaxTimesSampledRemovesWithTheLastSample) {
  for (const int32_t limit : {1, 2, 3}) {
    const auto state = Make({.sampler = SelectorOptions::Fifo(), .max_times_sampled = limit});
    Insert(state.get(), 1);
    Insert(state.get(), 2);
    std::vector<internal::Sample> samples = Sample(state.get(), 100);
    ASSERT_EQ(samples.size(), static_cast<size_t>(2 * limit));
    for (int32_t i = 0; i < 2 * limit; ++i) {
      EXPECT_EQ(samples[i].key, i < limit ? 1u : 2u);
      EXPECT_EQ(samples[i].times_sampled, i % limit + 1);
      EXPECT_EQ(samples[i].table_size, i < limit ? 2 : 1) << "before the deletion";
      EXPECT_EQ(ValueOf(samples[i].trajectory), i < limit ? 1 : 2) << "still readable";
    }
    EXPECT_EQ(state->size(), 0);
    EXPECT_EQ(Info(*state).expirations, 2);
    EXPECT_EQ(state->limiter().counters(),
              (RateLimiterCounters{.inserts = 2, .samples = 2 * limit, .deletes = 2}));
    EXPECT_EQ(store_.stats().live_chunks, 2) << "held by the samples";
    samples.clear();
    EXPECT_EQ(store_.stats().live_chunks, 0);
  }
}

TEST_F(TableStateTest, ItemsInsertedUsedUpAreRemovedByTheirNextSample) {
  const auto state = Make({.sampler = SelectorOptions::Fifo(), .max_times_sampled = 3});
  Insert(state.get(), 1, 1, 1, /*times_sampled=*/2);
  Insert(state.get(), 2, 1, 1, /*times_sampled=*/3);
  Insert(state.get(), 3, 1, 1, /*times_sampled=*/100);
  Insert(state.get(), 4, 1, 1, /*times_sampled=*/0);
  EXPECT_THAT(SampleKeys(state.get(), 100), ElementsAre(1, 2, 3, 4, 4, 4));
}

TEST_F(TableStateTest, ZeroAndNegativeMaxTimesSampledMeanNever) {
  for (const int32_t limit : {0, -1}) {
    const auto state = Make({.sampler = SelectorOptions::Fifo(), .max_times_sampled = limit});
    Insert(state.get(), 1);
    EXPECT_EQ(SampleKeys(state.get(), 500).size(), 500u);
    EXPECT_EQ(state->Find(1)->times_sampled, 500);
  }
}

TEST_F(TableStateTest, TheCountOfSamplesStopsAtItsLargestValue) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  const auto state = Make({});
  Insert(state.get(), 1, 1, 1, kMost - 1);
  EXPECT_EQ(Sample(state.get(), 1)[0].times_sampled, kMost);
  EXPECT_EQ(Sample(state.get(), 1)[0].times_sampled, kMost);
}

TEST_F(TableStateTest, CountsUniqueSamples) {
  const auto state = Make({.sampler = SelectorOptions::Lifo()});
  Insert(state.get(), 1);
  SampleKeys(state.get(), 3);
  EXPECT_EQ(Info(*state).num_unique_samples, 1);
  Insert(state.get(), 2);
  SampleKeys(state.get(), 3);
  EXPECT_EQ(Info(*state).num_unique_samples, 2);
  Insert(state.get(), 3, 1, 1, /*times_sampled=*/1);
  SampleKeys(state.get(), 3);
  EXPECT_EQ(Info(*state).num_unique_samples, 2) << "it had been sampled before it came";
  Delete(state.get(), {3});
  EXPECT_EQ(Info(*state).num_unique_samples, 2);
}

// --- Updates and deletes ---

TEST_F(TableStateTest, DeletesComeBeforeUpdates) {
  const auto state = Make({});
  Insert(state.get(), 1, 1);
  Insert(state.get(), 2, 1);
  Update(state.get(), {{1, 10}, {2, 20}}, {1});
  EXPECT_THAT(Keys(*state), ElementsAre(2));
  EXPECT_EQ(state->Find(2)->priority, 20);
  const TableInfo info = Info(*state);
  EXPECT_EQ(info.explicit_deletes, 1);
  EXPECT_EQ(info.updates, 1);
  EXPECT_EQ(info.unknown_keys, 1) << "key 1 was gone when it was to be updated";
}

TEST_F(TableStateTest, UnknownKeysAreCountedAndSkipped) {
  const auto state = Make({.sampler = SelectorOptions::MaxHeap()});
  Insert(state.get(), 1, 1);
  Update(state.get(), {{7, 100}, {1, 5}, {8, 100}}, {9, 9});
  EXPECT_THAT(Keys(*state), ElementsAre(1));
  EXPECT_EQ(state->Find(1)->priority, 5);
  EXPECT_EQ(Info(*state).unknown_keys, 4);
  EXPECT_EQ(Info(*state).updates, 1);
  EXPECT_EQ(state->limiter().counters(), (RateLimiterCounters{.inserts = 1}));
  Update(state.get(), {}, {});
}

TEST_F(TableStateTest, UpdatesAreAppliedInOrder) {
  for (const SelectorOptions& heap : {SelectorOptions::MinHeap(), SelectorOptions::MaxHeap()}) {
    SCOPED_TRACE(heap.ToString());
    const auto state = Make({.sampler = heap, .max_times_sampled = 1});
    for (const uint64_t key : {1, 2, 3, 4}) Insert(state.get(), key, static_cast<double>(key));
    // The last of several updates of a key wins; the order of updates decides ties.
    Update(state.get(), {{3, 9}, {1, 5}, {4, 5}, {3, 5}, {2, 5}, {1, 5}});
    EXPECT_EQ(Info(*state).updates, 6);
    EXPECT_THAT(SampleKeys(state.get(), 4), ElementsAre(4, 3, 2, 1));
  }
}

TEST_F(TableStateTest, BothSelectorsSeeUpdates) {
  const auto state = Make(
      {.sampler = SelectorOptions::Prioritized(1, 3), .remover = SelectorOptions::MinHeap(), .max_size = 3});
  for (const uint64_t key : {1, 2, 3}) Insert(state.get(), key, 1);
  Update(state.get(), {{1, 0}, {2, 0}, {3, 3}});
  for (const internal::Sample& sample : Sample(state.get(), 50)) {
    ASSERT_EQ(sample.key, 3u);
    ASSERT_EQ(sample.probability, 1);
    ASSERT_EQ(sample.priority, 3);
  }
  Insert(state.get(), 4, 2);
  EXPECT_THAT(Keys(*state), ElementsAre(2, 3, 4));
}

TEST_F(TableStateTest, ADeletedKeyMayBeInsertedAgain) {
  const auto state = Make({.sampler = SelectorOptions::Fifo(), .max_times_sampled = 1});
  for (const uint64_t key : {1, 2, 3}) Insert(state.get(), key);
  Delete(state.get(), {1, 1});
  EXPECT_EQ(Info(*state).explicit_deletes, 1);
  EXPECT_EQ(Info(*state).unknown_keys, 1);
  Insert(state.get(), 1);
  EXPECT_EQ(state->Find(1)->times_sampled, 0);
  EXPECT_THAT(SampleKeys(state.get(), 3), ElementsAre(2, 3, 1));
}

// --- Episodes and bytes ---

TEST_F(TableStateTest, CountsEpisodesByTheChunksOfPresentItems) {
  const auto state = Make({});
  const ChunkRef a0 = MakeChunk(&store_, 100, 0, 2), a1 = MakeChunk(&store_, 100, 2, 2),
                 b = MakeChunk(&store_, 200, 0, 2);
  const auto insert = [&](uint64_t key, std::vector<ChunkRef> chunks) {
    ColumnSpec column;
    for (const ChunkRef& chunk : chunks) column.slices.push_back({.chunk = chunk, .offset = 0, .length = 1});
    Effects effects;
    state->InsertOrAssign({.key = key, .priority = 1, .trajectory = Trajectory::Create({{column}}).value()},
                          0, &effects);
  };
  const auto counts = [&] {
    const TableInfo info = Info(*state);
    return std::vector<int64_t>{info.num_episodes, info.num_deleted_episodes};
  };
  insert(1, {a0, a1});
  EXPECT_THAT(counts(), ElementsAre(1, 0));
  insert(2, {a1, b, a1});
  EXPECT_THAT(counts(), ElementsAre(2, 0));
  insert(3, {b});
  EXPECT_EQ(Info(*state).referenced_bytes, a0->bytes() + 2 * a1->bytes() + 2 * b->bytes());
  EXPECT_EQ(store_.stored_bytes(), a0->bytes() + a1->bytes() + b->bytes()) << "each chunk once";
  Delete(state.get(), {2});
  EXPECT_THAT(counts(), ElementsAre(2, 0));
  Delete(state.get(), {3});
  EXPECT_THAT(counts(), ElementsAre(1, 1));
  EXPECT_EQ(store_.stored_bytes(), a0->bytes() + a1->bytes());
  insert(4, {b});
  EXPECT_THAT(counts(), ElementsAre(2, 1)) << "an episode may come back";
  Delete(state.get(), {1, 4});
  EXPECT_THAT(counts(), ElementsAre(0, 3));
  EXPECT_EQ(Info(*state).referenced_bytes, 0);
  EXPECT_EQ(store_.stored_bytes(), 0);
}

TEST_F(TableStateTest, TablesMayShareChunks) {
  const auto first = Make({}), second = Make({});
  const ChunkRef chunk = MakeChunk(&store_, 1, 0, 2);
  Effects effects;
  first->InsertOrAssign(MakeItem(1, 1, chunk), 0, &effects);
  second->InsertOrAssign(MakeItem(1, 1, chunk), 0, &effects);
  EXPECT_EQ(store_.stored_bytes(), chunk->bytes());
  Delete(first.get(), {1});
  EXPECT_EQ(store_.stored_bytes(), chunk->bytes());
  Delete(second.get(), {1});
  EXPECT_EQ(store_.stored_bytes(), 0);
}

// --- Data released outside the lock ---

TEST_F(TableStateTest, DataIsFreedWithTheEffectsAndNotBefore) {
  const auto state = Make({.remover = SelectorOptions::Fifo(), .max_size = 3, .max_times_sampled = 1});
  for (uint64_t key = 1; key <= 3; ++key) Insert(state.get(), key);
  Effects effects;
  EXPECT_TRUE(effects.empty());
  state->InsertOrAssign(NewItem(4, 1), 0, &effects);  // evicts
  EXPECT_EQ(effects.released.size(), 1u);
  std::vector<internal::Sample> samples;
  state->Sample(1, false, &samples, &effects);  // uses one up
  EXPECT_EQ(effects.released.size(), 2u);
  state->Mutate({}, {{All(*state)[0].key}}, &effects);
  EXPECT_EQ(effects.released.size(), 3u);
  EXPECT_EQ(store_.stats().live_chunks, 4);
  state->Reset(&effects);
  EXPECT_EQ(effects.retired_slots.size(), 1u);
  EXPECT_EQ(store_.stats().live_chunks, 4);
  samples.clear();
  effects = {};
  EXPECT_EQ(store_.stats().live_chunks, 0);
  EXPECT_EQ(store_.stored_bytes(), 0);
}

TEST_F(TableStateTest, ADestroyedTableFreesEverything) {
  auto state = Make({});
  for (uint64_t key = 1; key <= 1'000; ++key) Insert(state.get(), key);
  EXPECT_EQ(store_.stats().live_chunks, 1'000);
  state.reset();
  EXPECT_EQ(store_.stats().live_chunks, 0);
  EXPECT_EQ(store_.stored_bytes(), 0);
}

// --- Find and peek ---

TEST_F(TableStateTest, FindAndPeekDoNotCountAsSampling) {
  const auto state = Make({.sampler = SelectorOptions::MinHeap(), .max_times_sampled = 1});
  for (uint64_t key = 1; key <= 3; ++key) Insert(state.get(), key, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(All(*state).size(), 3u);
    EXPECT_EQ(state->Find(1)->times_sampled, 0);
  }
  EXPECT_EQ(Info(*state).num_unique_samples, 0);
  EXPECT_EQ(state->limiter().counters(), (RateLimiterCounters{.inserts = 3}));
  EXPECT_THAT(SampleKeys(state.get(), 1), ElementsAre(1)) << "nor as a touch";
}

TEST_F(TableStateTest, PeekWalksTheTableInSteps) {
  const auto state = Make({});
  for (uint64_t key = 0; key < 1'000; ++key) Insert(state.get(), key);
  for (uint64_t key = 0; key < 1'000; key += 3) Delete(state.get(), {key});
  uint64_t cursor = 0;
  std::vector<uint64_t> keys;
  for (;;) {
    const std::vector<internal::Sample> part = state->Peek(7, &cursor);
    if (part.empty()) break;
    EXPECT_LE(part.size(), 7u);
    for (const internal::Sample& item : part) keys.push_back(item.key);
  }
  std::ranges::sort(keys);
  EXPECT_EQ(keys, Keys(*state));
  EXPECT_EQ(keys.size(), static_cast<size_t>(state->size()));
  EXPECT_THAT(state->Peek(7, &cursor), IsEmpty());
  cursor = UINT64_MAX;
  EXPECT_THAT(state->Peek(7, &cursor), IsEmpty());
  cursor = 0;
  EXPECT_THAT(state->Peek(0, &cursor), IsEmpty());
}

TEST_F(TableStateTest, AFoundItemOutlivesItsRemoval) {
  const auto state = Make({});
  Insert(state.get(), 5);
  const auto item = state->Find(5);
  Delete(state.get(), {5});
  EXPECT_EQ(ValueOf(item->trajectory), 5);
}

// --- Reset ---

TEST_F(TableStateTest, ResetEmptiesTheTableAndTheLimiter) {
  for (const SelectorOptions& selector : AllSelectors()) {
    SCOPED_TRACE(selector.ToString());
    const auto state =
        Make({.sampler = selector, .remover = selector, .max_size = 3, .max_times_sampled = 2});
    for (uint64_t key = 1; key <= 5; ++key) Insert(state.get(), key, 1, key);
    SampleKeys(state.get(), 3);
    Reset(state.get());
    EXPECT_EQ(state->size(), 0);
    EXPECT_THAT(Keys(*state), IsEmpty());
    EXPECT_FALSE(state->CanSample());
    EXPECT_EQ(store_.stats().live_chunks, 0);
    TableInfo info = Info(*state);
    EXPECT_EQ(info.counters, RateLimiterCounters());
    EXPECT_EQ(info.num_episodes, 0);
    EXPECT_EQ(info.num_deleted_episodes, 0);
    EXPECT_EQ(info.num_unique_samples, 0);
    EXPECT_EQ(info.referenced_bytes, 0);
    for (uint64_t key = 1; key <= 5; ++key) EXPECT_FALSE(state->Contains(key));
    // Continues like a new table.
    for (uint64_t key = 1; key <= 5; ++key) Insert(state.get(), key, 1, key);
    EXPECT_EQ(state->size(), 3);
    EXPECT_EQ(SampleKeys(state.get(), 1).size(), 1u);
    info = Info(*state);
    EXPECT_EQ(info.num_episodes, 3);
    EXPECT_EQ(info.num_deleted_episodes, 2);
    EXPECT_EQ(info.counters, (RateLimiterCounters{.inserts = 5, .samples = 1, .deletes = 2}));
    Reset(state.get());
    Reset(state.get());
  }
}

}  // namespace
}  // namespace reverb::internal
