// Tests draws according to BatchRules: whole batches, and batches that are refused before anything is removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "core/table_state_testing.h"
#include "core/table_testing.h"
#include "testing/seed.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr BatchRules kSameShape{.check = BatchCheck::kSameShape};

class TableBatchesTest : public TableStateTest {
 protected:
  // Inserts an item of `rows` rows.
  void InsertRows(TableState* state, uint64_t key, uint32_t rows, double priority = 1) {
    Item item{.key = key,
              .priority = priority,
              .trajectory = Trajectory::Single(test::MakeChunk(&store_, 1, 0, rows), 0, rows).value()};
    Effects effects;
    state->InsertOrAssign(std::move(item), 1, &effects);
  }
  // Returns the keys.
  static Result<std::vector<uint64_t>> Draw(TableState* state, int64_t n, const BatchRules& rules, bool whole,
                                            const Trajectory* first = nullptr) {
    Effects effects;
    std::vector<internal::Sample> samples;
    REVERB_ASSIGN_OR_RETURN(const int64_t drawn,
                            state->SampleBatch(n, rules, first, whole, false, &samples, &effects));
    EXPECT_EQ(drawn, static_cast<int64_t>(samples.size()));
    std::vector<uint64_t> keys;
    for (const internal::Sample& sample : samples) keys.push_back(sample.key);
    return keys;
  }
};

TEST_F(TableBatchesTest, ARefusedBatchChangesNothing) {
  for (const SelectorOptions& sampler : AllSelectors()) {
    SCOPED_TRACE(sampler.ToString());
    auto state = Make({.sampler = sampler, .max_size = 100, .max_times_sampled = 1});
    for (uint64_t key = 1; key <= 5; ++key) InsertRows(state.get(), key, key == 3 ? 2 : 1, 1.0);
    const TableInfo before = Info(*state);
    EXPECT_THAT(Draw(state.get(), 5, kSameShape, true),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("while the batch has")));
    const TableInfo after = Info(*state);
    EXPECT_EQ(after.current_size, 5);
    EXPECT_EQ(after.counters.samples, before.counters.samples);
    EXPECT_EQ(after.counters.deletes, before.counters.deletes);
    EXPECT_EQ(after.num_unique_samples, before.num_unique_samples);
    for (const internal::Sample& item : All(*state)) EXPECT_EQ(item.times_sampled, 0) << item.key;
    // The lengths do not matter with padding.
    EXPECT_THAT(Draw(state.get(), 5, {.check = BatchCheck::kSameLayout}, true).value(),
                ::testing::UnorderedElementsAre(1, 2, 3, 4, 5));
    EXPECT_EQ(state->size(), 0);
  }
}

TEST_F(TableBatchesTest, TheOrderIsKept) {
  auto fifo = Make({.sampler = SelectorOptions::Fifo(), .max_size = 100, .max_times_sampled = 1});
  for (uint64_t key = 1; key <= 5; ++key) InsertRows(fifo.get(), key, key == 4 ? 2 : 1);
  EXPECT_THAT(
      Draw(fifo.get(), 4, kSameShape, true),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("table \"t\": sample 3 (key 4), column 0: it is "
                                                       "int64[2] while the batch has int64[1]; set `pad`")));
  EXPECT_THAT(Draw(fifo.get(), 3, kSameShape, true).value(), ElementsAre(1, 2, 3));
  EXPECT_THAT(SampleKeys(fifo.get(), 2), ElementsAre(4, 5));
  auto lifo = Make({.sampler = SelectorOptions::Lifo(), .max_size = 100, .max_times_sampled = 1});
  for (uint64_t key = 1; key <= 3; ++key) InsertRows(lifo.get(), key, key == 1 ? 2 : 1);
  EXPECT_THAT(Draw(lifo.get(), 3, kSameShape, true), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Draw(lifo.get(), 2, kSameShape, true).value(), ElementsAre(3, 2));
}

TEST_F(TableBatchesTest, ComparesWithTheFirstOfTheBatch) {
  auto state = Make({.sampler = SelectorOptions::Fifo(), .max_size = 100, .max_times_sampled = 1});
  InsertRows(state.get(), 1, 1);
  const Trajectory first = Trajectory::Single(test::MakeChunk(&store_, 1, 0, 2), 0, 2).value();
  EXPECT_THAT(Draw(state.get(), 1, kSameShape, false, &first), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Draw(state.get(), 1, kSameShape, false).value(), ElementsAre(1));
}

TEST_F(TableBatchesTest, UnsupportedDTypesAreNotTaken) {
  auto state = Make({.sampler = SelectorOptions::Fifo(), .max_size = 100, .max_times_sampled = 1});
  InsertRows(state.get(), 1, 1);
  const BatchRules rules{.unsupported_dtypes = uint64_t{1} << static_cast<uint32_t>(DType::kInt64)};
  EXPECT_THAT(Draw(state.get(), 1, rules, false),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("this client cannot represent int64")));
  EXPECT_EQ(state->size(), 1);
}

TEST_F(TableBatchesTest, WholeOrNone) {
  auto queue = Make(TableOptions::Queue("q", 10));
  for (uint64_t key = 1; key <= 3; ++key) InsertRows(queue.get(), key, 1);
  const BatchRules rules{.all_or_nothing = true};
  EXPECT_THAT(Draw(queue.get(), 4, rules, true).value(), ElementsAre());
  EXPECT_EQ(queue->size(), 3);
  EXPECT_THAT(Draw(queue.get(), 3, rules, true).value(), ElementsAre(1, 2, 3));
  // Without removal, the limiter decides.
  auto replay = Make(
      {.sampler = SelectorOptions::Fifo(),
       .max_size = 10,
       .rate_limiter = {.samples_per_insert = 2, .min_size_to_sample = 1, .min_diff = 0, .max_diff = 9}});
  InsertRows(replay.get(), 1, 1);
  EXPECT_THAT(Draw(replay.get(), 3, rules, true).value(), ElementsAre());
  EXPECT_THAT(Draw(replay.get(), 2, rules, true).value(), ElementsAre(1, 1));
}

TEST_F(TableBatchesTest, ImpossibleBatchesAreKnown) {
  auto queue = Make(TableOptions::Queue("q", 10));
  EXPECT_OK(queue->CheckWholeBatch(10));
  EXPECT_THAT(queue->CheckWholeBatch(11), StatusIs(StatusCode::kInvalidArgument, HasSubstr("never")));
  auto replay = Make({.max_size = 10});
  EXPECT_OK(replay->CheckWholeBatch(1000));
  auto twice = Make({.max_size = 10, .max_times_sampled = 2});
  EXPECT_OK(twice->CheckWholeBatch(15));
  EXPECT_THAT(twice->CheckWholeBatch(30), StatusIs(StatusCode::kInvalidArgument));
  auto limited = Make(
      {.max_size = 10,
       .rate_limiter = {.samples_per_insert = 2, .min_size_to_sample = 1, .min_diff = -2, .max_diff = 9}});
  EXPECT_OK(limited->CheckWholeBatch(11));
  EXPECT_THAT(limited->CheckWholeBatch(12), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(TableBatchesTest, TheLimitsInForceCount) {
  auto state = Make({.sampler = SelectorOptions::Fifo(), .max_size = 10});
  for (uint64_t key = 1; key <= 6; ++key) InsertRows(state.get(), key, 1);
  const BatchRules rules{.all_or_nothing = true};
  EXPECT_OK(state->CheckWholeBatch(100));
  EXPECT_THAT(Draw(state.get(), 2, rules, true).value(), ElementsAre(1, 1));
  // max_times_sampled: the first item is used up.
  state->Change({.max_times_sampled = 1}, {});
  EXPECT_OK(state->CheckWholeBatch(10));
  EXPECT_THAT(state->CheckWholeBatch(11),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_size is 10")));
  EXPECT_THAT(Draw(state.get(), 3, rules, true).value(), ElementsAre(1, 2, 3));
  // max_size, and the limiter.
  state->Change({.max_size = 2}, {});
  EXPECT_THAT(state->CheckWholeBatch(3), StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_size is 2")));
  state->Change({.max_size = 10, .rate_limiter = RateLimiterOptions{.min_diff = 0, .max_diff = 4}}, {});
  EXPECT_THAT(state->CheckWholeBatch(5), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Draw(state.get(), 2, rules, true).value(), ElementsAre()) << "the cursor is 1";
  EXPECT_THAT(Draw(state.get(), 1, rules, true).value(), ElementsAre(4));
  // Without max_times_sampled nothing is removed any more.
  state->Change({.max_times_sampled = 0, .rate_limiter = RateLimiterOptions::MinSize(1)}, {});
  EXPECT_THAT(Draw(state.get(), 4, rules, true).value(), ElementsAre(5, 5, 5, 5));
  EXPECT_EQ(state->size(), 2);
}

TEST_F(TableBatchesTest, ABatchOfATableOfAnyLayoutIsCheckedBeforeItIsTaken) {
  auto state = Make({.sampler = SelectorOptions::Fifo(),
                     .max_size = 10,
                     .max_times_sampled = 1,
                     .layout = LayoutPolicy::kAny});
  InsertRows(state.get(), 1, 1);
  Item other{.key = 2,
             .priority = 1,
             .trajectory = Trajectory::Single(test::MakeChunk(&store_, 1, 0, 2), 0, 2).value()};
  Effects effects;
  state->InsertOrAssign(std::move(other), 1, &effects);
  EXPECT_THAT(Draw(state.get(), 2, kSameShape, true), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(state->size(), 2);
}

// Draws whole batches and refused ones from one table, and single samples from another: both see the same.
TEST_F(TableBatchesTest, BatchesAreLikeSingleDraws) {
  Random random(test::Seed());
  for (const SelectorOptions& sampler : {SelectorOptions::Fifo(), SelectorOptions::Lifo(),
                                         SelectorOptions::MinHeap(), SelectorOptions::MaxHeap()}) {
    SCOPED_TRACE(sampler.ToString());
    const TableOptions options{.sampler = sampler, .max_size = 50, .max_times_sampled = 2};
    auto batches = Make(options), single = Make(options);
    uint64_t key = 0;
    for (int step = 0; step < 500; ++step) {
      if (random.Below(2) == 0) {
        const auto priority = static_cast<double>(random.Below(5));
        const auto rows = static_cast<uint32_t>(1 + random.Below(8) / 7);
        ++key;
        InsertRows(batches.get(), key, rows, priority);
        InsertRows(single.get(), key, rows, priority);
        continue;
      }
      const auto n = static_cast<int64_t>(1 + random.Below(4));
      const auto drawn = Draw(batches.get(), n, kSameShape, true);
      if (!drawn.ok()) {
        EXPECT_THAT(drawn, StatusIs(StatusCode::kInvalidArgument));
      } else if (!drawn->empty()) {
        EXPECT_EQ(*drawn, SampleKeys(single.get(), n));
      }
      ASSERT_EQ(Keys(*batches), Keys(*single)) << step;
      EXPECT_EQ(Info(*batches).counters.samples, Info(*single).counters.samples);
    }
  }
}

TEST_F(TableBatchesTest, ItemsThatMayBeSampledSeveralTimes) {
  // Needs 3 items: the two that are left may lack one draw each.
  auto state = Make({.sampler = SelectorOptions::Uniform(3),
                     .max_size = 4,
                     .max_times_sampled = 2,
                     .rate_limiter = RateLimiterOptions::MinSize(3)});
  EXPECT_OK(state->CheckWholeBatch(6));
  EXPECT_THAT(state->CheckWholeBatch(7), StatusIs(StatusCode::kInvalidArgument));
  for (uint64_t key = 1; key <= 4; ++key) InsertRows(state.get(), key, 1);
  const BatchRules rules{.all_or_nothing = true};
  const std::vector<uint64_t> keys = Draw(state.get(), 4, rules, true).value();
  ASSERT_EQ(keys.size(), 4u);
  for (uint64_t key = 1; key <= 4; ++key) EXPECT_LE(std::ranges::count(keys, key), 2);
}

TEST_F(TableBatchesTest, ARefusedBatchLeavesASnapshotInPlace) {
  auto state = Make({.sampler = SelectorOptions::Fifo(), .max_size = 100, .max_times_sampled = 2});
  for (uint64_t key = 1; key <= 3; ++key) InsertRows(state.get(), key, key == 3 ? 2 : 1);
  const auto snapshot = state->TakeSnapshot();
  EXPECT_THAT(Draw(state.get(), 6, kSameShape, true), StatusIs(StatusCode::kInvalidArgument));
  for (const internal::Sample& item : All(*state)) EXPECT_EQ(item.times_sampled, 0) << item.key;
  EXPECT_THAT(Draw(state.get(), 4, kSameShape, true).value(), ElementsAre(1, 1, 2, 2));
}

TEST_F(TableBatchesTest, ExtensionsSeeEachDrawBeforeTheNext) {
  std::vector<std::string> log;
  auto recorder = std::make_shared<Recorder>("r", &log);
  auto state = Make({.sampler = SelectorOptions::MaxHeap(),
                     .max_size = 10,
                     .max_times_sampled = 1,
                     .extensions = {recorder}});
  for (uint64_t key = 1; key <= 4; ++key) InsertRows(state.get(), key, key == 1 ? 2 : 1, 10.0 - key);
  // Drawn in the order 2, 3, 4, 1, unless the draw of 2 lifts 4.
  Update(state.get(), {{1, 1}});
  recorder->then = [](const std::string& what, const ItemView& item, TableExtension::Context& context) {
    if (what == "sample" && item.key == 2) context.UpdatePriority(4, 100);
  };
  EXPECT_THAT(Draw(state.get(), 2, kSameShape, false).value(), ElementsAre(2, 4));
  // What was drawn before the error is gone, and the text does not claim otherwise.
  Effects effects;
  std::vector<internal::Sample> samples;
  const Result<int64_t> refused =
      state->SampleBatch(2, kSameShape, nullptr, false, false, &samples, &effects);
  EXPECT_THAT(refused,
              StatusIs(StatusCode::kInvalidArgument, ::testing::Not(HasSubstr("no item was removed"))));
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].key, 3u);
  EXPECT_THAT(Keys(*state), ElementsAre(1));
}

TEST_F(TableBatchesTest, TimestepsNeedColumnsOfEqualLength) {
  auto state = Make({.sampler = SelectorOptions::Fifo(), .max_size = 100, .max_times_sampled = 1});
  InsertRows(state.get(), 1, 3);
  const BatchRules rules{.timesteps = true};
  EXPECT_THAT(Draw(state.get(), 1, rules, false).value(), ElementsAre(1));
}

class TableBatchOrderTest : public TableFixture {};

TEST_F(TableBatchOrderTest, AWholeBatchWaitsAndTakesNothingAtItsTimeout) {
  const auto queue = MakeQueue(10);
  const BatchOrder order{.rules = {.all_or_nothing = true}};
  ASSERT_OK(Insert(*queue, 1));
  std::vector<internal::Sample> samples;
  EXPECT_THAT(queue->Sample(2, true, {.timeout = Duration(0)}, &samples, order),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("0 of 2 samples drawn (all_or_nothing)")));
  EXPECT_EQ(queue->size(), 1);
  std::vector<uint64_t> keys;
  Status status = Status::Internal("not called");
  queue->SampleAsync(
      2, true, {},
      [&](Operation& done) {
        status = done.status;
        keys = Keys(done.own_samples);
      },
      order);
  EXPECT_EQ(queue->Info().waiting_samples, 1);
  ASSERT_OK(Insert(*queue, 2));
  EXPECT_OK(status);
  EXPECT_THAT(keys, ElementsAre(1, 2));
  EXPECT_THAT(queue->TrySample(11, &samples, order).status, StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(TableBatchOrderTest, AWaitingBatchEndsWhenAChangeMakesItImpossible) {
  const auto queue = MakeQueue(10);
  ASSERT_OK(Insert(*queue, 1));
  Status status = Status::Internal("not called");
  queue->SampleAsync(6, true, {}, [&](Operation& done) { status = done.status; },
                     {.rules = {.all_or_nothing = true}});
  ASSERT_OK(queue->Change({.max_size = 7}));
  EXPECT_EQ(queue->Info().waiting_samples, 1);
  ASSERT_OK(queue->Change({.max_size = 5, .rate_limiter = RateLimiterOptions::Queue(5)}));
  EXPECT_THAT(status,
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("6 samples can never be drawn together (all_or_nothing): max_size is 5")));
  EXPECT_EQ(queue->Info().waiting_samples, 0);
  EXPECT_EQ(queue->size(), 1);
}

TEST_F(TableBatchOrderTest, ABatchThatCannotBecomeCompleteEnds) {
  // Full, and its limiter accepts no insert before a sample; one draw of the first item was taken before.
  const auto table = Make({.sampler = SelectorOptions::Fifo(),
                           .max_size = 2,
                           .max_times_sampled = 2,
                           .rate_limiter = {.samples_per_insert = 2, .min_diff = 0, .max_diff = 4}});
  for (uint64_t key = 1; key <= 2; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_THAT(Sample(*table, 1), ElementsAre(1));
  std::vector<internal::Sample> samples;
  EXPECT_THAT(table->Sample(4, true, {}, &samples, {.rules = {.all_or_nothing = true}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("accepts no others before some are sampled")));
  EXPECT_EQ(table->size(), 2);
}

// Counts how often it is asked for items.
class CountingFifo : public Selector {
 public:
  explicit CountingFifo(int64_t* calls) : calls_(calls) {}
  void Insert(const SelectorItem& item) override { slots_.push_back(item.slot); }
  void Undelete(const SelectorItem& item) override { slots_.insert(slots_.begin(), item.slot); }
  void Update(std::span<const SelectorItem>) override {}
  void Delete(Slot slot) override { std::erase(slots_, slot); }
  void Sample(std::span<Selection> out) override {
    for (Selection& selection : out) selection = {.slot = slots_.front(), .probability = 1};
    *calls_ += static_cast<int64_t>(out.size());
  }
  void Clear() override { slots_.clear(); }
  SelectorOptions options() const override {
    return {.kind = SelectorOptions::Kind::kCustom, .custom_name = "counting"};
  }

 private:
  int64_t* const calls_;
  std::vector<Slot> slots_;
};

TEST_F(TableBatchOrderTest, ABatchIsPlannedOnceItMayBeComplete) {
  int64_t calls = 0;
  TableOptions options = TableOptions::Queue("q", 100);
  options.custom_sampler = [&] { return std::make_unique<CountingFifo>(&calls); };
  const auto queue = Make(options);
  bool done = false;
  queue->SampleAsync(100, true, {}, [&](Operation&) { done = true; }, {.rules = {.all_or_nothing = true}});
  for (uint64_t key = 1; key <= 99; ++key) ASSERT_OK(Insert(*queue, key));
  EXPECT_EQ(calls, 0) << "each insert plans the batch";
  ASSERT_OK(Insert(*queue, 100));
  EXPECT_TRUE(done);
  EXPECT_EQ(calls, 100);
}

TEST_F(TableBatchOrderTest, AWholeBatchHasNoOldItems) {
  TableOptions options = TableOptions::Queue("q", 10);
  options.max_age = std::chrono::seconds(10);
  const auto queue = Make(options);
  for (uint64_t key = 1; key <= 2; ++key) ASSERT_OK(Insert(*queue, key));
  std::vector<uint64_t> keys;
  queue->SampleAsync(3, true, {}, [&](Operation& done) { keys = Keys(done.own_samples); },
                     {.rules = {.all_or_nothing = true}});
  clock_.Advance(std::chrono::seconds(5));
  EXPECT_EQ(queue->Info().waiting_samples, 1);
  clock_.Advance(std::chrono::seconds(6));  // both are gone
  for (uint64_t key = 3; key <= 4; ++key) ASSERT_OK(Insert(*queue, key));
  EXPECT_EQ(queue->Info().waiting_samples, 1);
  ASSERT_OK(Insert(*queue, 5));
  EXPECT_THAT(keys, ElementsAre(3, 4, 5));
}

TEST_F(TableBatchOrderTest, ABatchThatComparesDoesNotBlockInserts) {
  const auto queue = MakeQueue(2);
  std::vector<uint64_t> keys;
  bool done = false;
  queue->SampleAsync(5, /*allow_partial=*/false, {},
                     [&](Operation& operation) {
                       done = true;
                       keys = Keys(operation.own_samples);
                     },
                     {.rules = kSameShape});
  Pending* const inserts = InsertAsync(*queue, {1, 2, 3, 4, 5});
  EXPECT_TRUE(inserts->done);
  EXPECT_TRUE(done);
  EXPECT_THAT(keys, ElementsAre(1, 2, 3, 4, 5));
  queue->Close();
}

TEST_F(TableBatchOrderTest, ABatchThatDoesNotFitIsTakenInParts) {
  TableOptions options{.sampler = SelectorOptions::Fifo(), .max_size = 2, .max_times_sampled = 1};
  const auto table = Make(options);
  std::vector<uint64_t> keys;
  table->SampleAsync(3, /*allow_partial=*/false, {},
                     [&](Operation& operation) { keys = Keys(operation.own_samples); },
                     {.rules = kSameShape});
  for (uint64_t key = 1; key <= 3; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_THAT(keys, ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace reverb::internal
