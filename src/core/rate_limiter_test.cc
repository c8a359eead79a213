#include "core/rate_limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "core/table_state.h"
#include "testing/chunks.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kUnbounded = std::numeric_limits<double>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

RateLimiter WithCounters(const RateLimiterOptions& options, RateLimiterCounters counters) {
  RateLimiter limiter(options);
  limiter.set_counters(counters);
  return limiter;
}

// --- The arithmetic against the formulas of the contract, written a second time ---

bool MaySample(const RateLimiterOptions& o, const RateLimiterCounters& c, int64_t n) {
  const double cursor =
      static_cast<double>(c.inserts) * o.samples_per_insert - static_cast<double>(c.samples);
  return c.inserts - c.deletes >= o.min_size_to_sample && cursor - static_cast<double>(n) >= o.min_diff;
}

bool MayInsert(const RateLimiterOptions& o, const RateLimiterCounters& c, int64_t n) {
  if (c.inserts + n - c.deletes <= o.min_size_to_sample) return true;
  return static_cast<double>(c.inserts + n) * o.samples_per_insert - static_cast<double>(c.samples) <=
         o.max_diff;
}

RateLimiterOptions RandomOptions(Random* random) {
  constexpr double kRatios[] = {0.1, 1.0 / 3, 0.5, 0.7, 1, 2, 2.5, 7.3, 100};
  RateLimiterOptions options;
  options.samples_per_insert =
      random->Below(4) == 0 ? 0.01 + 10 * random->Unit() : kRatios[random->Below(std::size(kRatios))];
  options.min_size_to_sample = 1 + static_cast<int64_t>(random->Below(20));
  const double offset = options.samples_per_insert * static_cast<double>(options.min_size_to_sample);
  // Whole numbers among them, so that bounds are met exactly.
  const double buffer = random->Below(2) == 0 ? static_cast<double>(random->Below(30)) : 30 * random->Unit();
  options.min_diff = random->Below(4) == 0 ? -kUnbounded : offset - buffer;
  options.max_diff = random->Below(4) == 0 ? kUnbounded : offset + buffer;
  return options;
}

RateLimiterCounters RandomCounters(Random* random, const RateLimiterOptions& options) {
  RateLimiterCounters counters;
  counters.inserts = static_cast<int64_t>(random->Below(random->Below(3) == 0 ? 1'000'000'000 : 60));
  counters.deletes = static_cast<int64_t>(random->Below(static_cast<uint64_t>(counters.inserts) + 1));
  if (random->Below(2) == 0)
    counters.deletes = std::max<int64_t>(0, counters.inserts - static_cast<int64_t>(random->Below(25)));
  const double cursor = 80 * random->Unit() - 20;
  counters.samples = std::max<int64_t>(
      0, static_cast<int64_t>(static_cast<double>(counters.inserts) * options.samples_per_insert - cursor));
  return counters;
}

TEST(RateLimiterArithmeticTest, AgreesWithTheFormulas) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  Random random(seed);
  int allowed = 0, refused = 0;
  for (int i = 0; i < 300'000; ++i) {
    const RateLimiterOptions options = RandomOptions(&random);
    ASSERT_OK(options.Validate());
    const RateLimiterCounters counters = RandomCounters(&random, options);
    const RateLimiter limiter = WithCounters(options, counters);
    const int64_t n = 1 + static_cast<int64_t>(random.Below(random.Below(8) == 0 ? 1'000'000 : 8));
    SCOPED_TRACE("round " + std::to_string(i) + ": " + limiter.Describe() + ", n " + std::to_string(n));
    ASSERT_EQ(limiter.CanSample(n), MaySample(options, counters, n));
    ASSERT_EQ(limiter.CanInsert(n), MayInsert(options, counters, n));
    ASSERT_EQ(limiter.cursor(), static_cast<double>(counters.inserts) * options.samples_per_insert -
                                    static_cast<double>(counters.samples));

    const bool too_few = counters.inserts - counters.deletes < options.min_size_to_sample;
    ASSERT_EQ(limiter.SampleWaitReason(), MaySample(options, counters, 1) ? WaitReason::kNone
                                          : too_few                       ? WaitReason::kMinSize
                                                                          : WaitReason::kTooManySamples);
    ASSERT_EQ(limiter.InsertWaitReason(),
              MayInsert(options, counters, 1) ? WaitReason::kNone : WaitReason::kTooManyInserts);
    ++(limiter.CanSample(n) ? allowed : refused);
  }
  // The random cases lie on both sides.
  EXPECT_GT(allowed, 10'000);
  EXPECT_GT(refused, 10'000);
}

// How many samples one caller after the other would get.
int64_t SamplesOneByOne(RateLimiter limiter, int64_t n) {
  int64_t k = 0;
  while (k < n && limiter.CanSample(1)) {
    limiter.CountSamples(1);
    ++k;
  }
  return k;
}

TEST(RateLimiterArithmeticTest, MaxSamplesIsSamplingOneByOne) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  Random random(seed);
  int cut_short = 0;
  for (int i = 0; i < 100'000; ++i) {
    const RateLimiterOptions options = RandomOptions(&random);
    const RateLimiter limiter = WithCounters(options, RandomCounters(&random, options));
    const int64_t n = static_cast<int64_t>(random.Below(120));
    const int64_t k = limiter.MaxSamples(n);
    ASSERT_EQ(k, SamplesOneByOne(limiter, n)) << "round " << i << ": " << limiter.Describe() << ", n " << n;
    if (k > 0 && k < n) ++cut_short;
  }
  EXPECT_GT(cut_short, 1'000);
}

TEST(RateLimiterArithmeticTest, MaxSamplesWithFractionsThatDoublesCannotHold) {
  for (const double ratio : {0.1, 1.0 / 3, 0.7, 1.1, 1e-3}) {
    for (int64_t inserts = 1; inserts <= 2'000; ++inserts) {
      for (const double min_diff : {0.0, 0.1, -0.3, 1.0 / 3}) {
        const RateLimiter limiter = WithCounters(
            {.samples_per_insert = ratio, .min_diff = min_diff, .max_diff = 1e9}, {.inserts = inserts});
        ASSERT_EQ(limiter.MaxSamples(kHuge), SamplesOneByOne(limiter, kHuge))
            << ratio << " " << inserts << " " << min_diff;
      }
    }
  }
}

TEST(RateLimiterArithmeticTest, MaxSamplesOfNothing) {
  const RateLimiter empty(RateLimiterOptions::MinSize(1));
  EXPECT_EQ(empty.MaxSamples(10), 0);
  const RateLimiter ready = WithCounters(RateLimiterOptions::MinSize(1), {.inserts = 1});
  EXPECT_EQ(ready.MaxSamples(0), 0);
  EXPECT_EQ(ready.MaxSamples(-3), 0);
}

TEST(RateLimiterArithmeticTest, HugeNumbersNeitherOverflowNorPass) {
  const RateLimiter unlimited = WithCounters(RateLimiterOptions::MinSize(1), {.inserts = 5});
  EXPECT_TRUE(unlimited.CanSample(kHuge));
  EXPECT_TRUE(unlimited.CanInsert(kHuge));
  EXPECT_EQ(unlimited.MaxSamples(kHuge), kHuge);

  const RateLimiter queue = WithCounters(RateLimiterOptions::Queue(10), {.inserts = 5});
  EXPECT_FALSE(queue.CanSample(kHuge));
  EXPECT_FALSE(queue.CanInsert(kHuge));
  EXPECT_EQ(queue.MaxSamples(kHuge), 5);

  // A min size that no table reaches.
  const RateLimiter distant = WithCounters(RateLimiterOptions::MinSize(kHuge), {.inserts = 5});
  EXPECT_FALSE(distant.CanSample(1));
  EXPECT_TRUE(distant.CanInsert(kHuge));

  // Counters of a table that ran for years.
  constexpr int64_t kLong = int64_t{1} << 52;
  const RateLimiter old = WithCounters(RateLimiterOptions::Queue(10),
                                       {.inserts = kLong, .samples = kLong - 7, .deletes = kLong - 7});
  EXPECT_EQ(old.cursor(), 7);
  EXPECT_TRUE(old.CanSample(7));
  EXPECT_FALSE(old.CanSample(8));
  EXPECT_TRUE(old.CanInsert(3));
  EXPECT_FALSE(old.CanInsert(4));
  EXPECT_EQ(old.MaxSamples(100), 7);
}

TEST(RateLimiterArithmeticTest, BothBoundsAreInclusive) {
  const RateLimiterOptions options{
      .samples_per_insert = 1, .min_size_to_sample = 1, .min_diff = 2, .max_diff = 5};
  const RateLimiter limiter = WithCounters(options, {.inserts = 4});
  EXPECT_TRUE(limiter.CanSample(2));
  EXPECT_FALSE(limiter.CanSample(3));
  EXPECT_TRUE(limiter.CanInsert(1));
  EXPECT_FALSE(limiter.CanInsert(2));
}

TEST(RateLimiterArithmeticTest, InsertsAreFreeUpToTheMinimumSize) {
  const RateLimiterOptions options{
      .samples_per_insert = 10, .min_size_to_sample = 3, .min_diff = -1, .max_diff = 0};
  RateLimiter limiter(options);
  EXPECT_TRUE(limiter.CanInsert(3));
  EXPECT_FALSE(limiter.CanInsert(4));
  for (int i = 0; i < 3; ++i) limiter.CountInsert();
  EXPECT_FALSE(limiter.CanInsert(1));
  limiter.CountDelete();
  EXPECT_TRUE(limiter.CanInsert(1));
}

TEST(RateLimiterArithmeticTest, ResetClearsCountersAndKeepsOptions) {
  RateLimiter limiter =
      WithCounters(RateLimiterOptions::Queue(2), {.inserts = 3, .samples = 2, .deletes = 1});
  limiter.Reset();
  EXPECT_EQ(limiter.counters(), RateLimiterCounters());
  EXPECT_EQ(limiter.options(), RateLimiterOptions::Queue(2));
  EXPECT_EQ(limiter.cursor(), 0);
}

TEST(RateLimiterTest, DescribesItself) {
  const RateLimiter limiter =
      WithCounters({.samples_per_insert = 2, .min_size_to_sample = 100, .min_diff = -1, .max_diff = 9},
                   {.inserts = 4, .samples = 5, .deletes = 1});
  EXPECT_EQ(limiter.Describe(), "size 3, min_size_to_sample 100; cursor 3 in [-1, 9], samples_per_insert 2");
  EXPECT_THAT(RateLimiterOptions::MinSize(7).ToString(),
              AllOf(HasSubstr("min_size_to_sample=7"), HasSubstr("min_diff=-unbounded"),
                    HasSubstr("max_diff=+unbounded")));
}

TEST(RateLimiterTest, EveryWaitReasonHasAName) {
  for (int i = 0; i < kNumWaitReasons; ++i)
    EXPECT_NE(WaitReasonName(static_cast<WaitReason>(i)), "unknown") << i;
}

// --- Factories ---

TEST(RateLimiterOptionsTest, MinSizeLimitsNothingElse) {
  const RateLimiterOptions options = RateLimiterOptions::MinSize(3);
  EXPECT_EQ(options.samples_per_insert, 1);
  EXPECT_EQ(options.min_size_to_sample, 3);
  EXPECT_EQ(options.min_diff, -kUnbounded);
  EXPECT_EQ(options.max_diff, kUnbounded);
}

TEST(RateLimiterOptionsTest, QueueAndStackHaveTheSameNumbers) {
  const RateLimiterOptions queue = RateLimiterOptions::Queue(10);
  EXPECT_EQ(queue.samples_per_insert, 1);
  EXPECT_EQ(queue.min_size_to_sample, 1);
  EXPECT_EQ(queue.min_diff, 0);
  EXPECT_EQ(queue.max_diff, 10);
  EXPECT_EQ(RateLimiterOptions::Stack(10), queue);
}

TEST(RateLimiterOptionsTest, SampleToInsertRatioCentresTheBuffer) {
  const auto options = RateLimiterOptions::SampleToInsertRatio(2, 3, 3.0);
  ASSERT_OK(options);
  EXPECT_EQ(options->samples_per_insert, 2);
  EXPECT_EQ(options->min_size_to_sample, 3);
  EXPECT_EQ(options->min_diff, 3);
  EXPECT_EQ(options->max_diff, 9);
}

TEST(RateLimiterOptionsTest, SampleToInsertRatioTakesARangeAsItIs) {
  const auto options = RateLimiterOptions::SampleToInsertRatio(1, 10, 7, 12);
  ASSERT_OK(options);
  EXPECT_EQ(options->min_diff, 7);
  EXPECT_EQ(options->max_diff, 12);
}

// The examples that the Python API pins.
TEST(RateLimiterOptionsTest, SampleToInsertRatioRefusesBuffersThatCouldBlockForEver) {
  const auto with_buffer = [](double ratio, int64_t min_size, double buffer) {
    return RateLimiterOptions::SampleToInsertRatio(ratio, min_size, buffer).status();
  };
  const auto with_range = [](double ratio, int64_t min_size, double min_diff, double max_diff) {
    return RateLimiterOptions::SampleToInsertRatio(ratio, min_size, min_diff, max_diff).status();
  };
  EXPECT_THAT(with_buffer(5, 10, 4), StatusIs(StatusCode::kInvalidArgument, HasSubstr("too small")));
  EXPECT_THAT(with_buffer(0.5, 10, 0.9), StatusIs(StatusCode::kInvalidArgument, HasSubstr("too small")));
  EXPECT_OK(with_buffer(0.5, 10, 1.1));
  EXPECT_THAT(with_range(5, 10, 8, 12), StatusIs(StatusCode::kInvalidArgument, HasSubstr("too small")));
  EXPECT_THAT(with_range(0.1, 10, 9.5, 10.5), StatusIs(StatusCode::kInvalidArgument, HasSubstr("too small")));
  EXPECT_OK(with_range(1, 10, 5, 9));
  EXPECT_THAT(with_range(1, 10, 11, 15),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("could never begin")));
  EXPECT_OK(with_range(1, 10, 7, 12));
  EXPECT_THAT(with_range(1, 0, -100, 100),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("min_size_to_sample is 0")));

  // Exactly enough is enough.
  EXPECT_OK(with_buffer(5, 10, 5));
  EXPECT_OK(with_buffer(0.5, 10, 1));
}

TEST(RateLimiterOptionsTest, SampleToInsertRatioRefusesNonsense) {
  for (const double ratio : {0.0, -1.0, kNan, kInfinity}) {
    EXPECT_THAT(RateLimiterOptions::SampleToInsertRatio(ratio, 1, 100.0),
                StatusIs(StatusCode::kInvalidArgument))
        << ratio;
  }
  EXPECT_THAT(RateLimiterOptions::SampleToInsertRatio(1, 1, kNan), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(RateLimiterOptions::SampleToInsertRatio(1, 1, -5.0), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(RateLimiterOptions::SampleToInsertRatio(1, 1, 0.0, kNan),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(RateLimiterOptionsTest, ValidateNamesWhatIsWrong) {
  EXPECT_OK(RateLimiterOptions().Validate());
  for (const double ratio : {0.0, -0.5, kNan, kInfinity}) {
    EXPECT_THAT(RateLimiterOptions{.samples_per_insert = ratio}.Validate(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("samples_per_insert")))
        << ratio;
  }
  for (const int64_t min_size : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    EXPECT_THAT(RateLimiterOptions::MinSize(min_size).Validate(),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("min_size_to_sample is " + std::to_string(min_size))));
  }
  EXPECT_THAT((RateLimiterOptions{.min_diff = 2, .max_diff = 1}).Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("min_diff 2 and max_diff 1")));
  EXPECT_THAT(RateLimiterOptions{.min_diff = kNan}.Validate(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(RateLimiterOptions{.max_diff = kNan}.Validate(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(RateLimiterOptions::Queue(-1).Validate(), StatusIs(StatusCode::kInvalidArgument));
}

// --- The worked traces of the contract, played on a table ---

class LimiterTraceTest : public testing::Test {
 protected:
  void Make(TableOptions options) {
    options.name = "t";
    auto state = TableState::Create(std::move(options));
    ASSERT_OK(state);
    state_ = *std::move(state);
  }
  // False, and nothing done, when the limiter does not allow it.
  bool Insert(uint64_t key, double priority = 1) {
    if (!state_->CanInsert()) return false;
    Effects effects;
    state_->InsertOrAssign(test::MakeItem(key, priority, test::MakeChunk(&store_, key, 0, 1)), 0, &effects);
    return true;
  }
  std::vector<uint64_t> Sample(int64_t n) {
    Effects effects;
    std::vector<internal::Sample> samples;
    state_->Sample(n, false, &samples, &effects);
    std::vector<uint64_t> keys;
    for (const internal::Sample& sample : samples) keys.push_back(sample.key);
    return keys;
  }
  void Delete(uint64_t key) {
    Effects effects;
    state_->Mutate({}, {{key}}, &effects);
  }
  const RateLimiterCounters& counters() const { return state_->limiter().counters(); }
  double cursor() const { return state_->limiter().cursor(); }

  ChunkStore store_{{}};
  std::unique_ptr<TableState> state_;
};

TEST_F(LimiterTraceTest, SampleToInsertRatio) {
  Make({.sampler = SelectorOptions::Fifo(),
        .rate_limiter = *RateLimiterOptions::SampleToInsertRatio(2, 3, 3.0)});
  for (uint64_t key = 1; key <= 3; ++key) {
    EXPECT_THAT(Sample(1), ElementsAre()) << "before item " << key;
    EXPECT_TRUE(Insert(key));
    EXPECT_EQ(cursor(), 2.0 * static_cast<double>(key));
  }
  EXPECT_TRUE(Insert(4));   // 8 <= 9
  EXPECT_FALSE(Insert(5));  // 10 > 9
  EXPECT_EQ(Sample(100).size(), 5u);
  EXPECT_EQ(cursor(), 3);
  EXPECT_EQ(Sample(1).size(), 0u);  // 2 < 3
  EXPECT_EQ(state_->limiter().SampleWaitReason(), WaitReason::kTooManySamples);
  EXPECT_TRUE(Insert(5));
  EXPECT_EQ(cursor(), 5);
}

TEST_F(LimiterTraceTest, SamplingWithDeletesStopsAtTheMinimumSize) {
  Make({.sampler = SelectorOptions::Fifo(),
        .max_times_sampled = 1,
        .rate_limiter = RateLimiterOptions::MinSize(3)});
  for (uint64_t key = 1; key <= 5; ++key) EXPECT_TRUE(Insert(key));
  EXPECT_THAT(Sample(10), ElementsAre(1, 2, 3));
  EXPECT_EQ(state_->limiter().SampleWaitReason(), WaitReason::kMinSize);
}

TEST_F(LimiterTraceTest, Queue) {
  Make(TableOptions::Queue("t", 2));
  EXPECT_TRUE(Insert(1));
  EXPECT_TRUE(Insert(2));
  EXPECT_FALSE(Insert(3));
  EXPECT_EQ(state_->limiter().InsertWaitReason(), WaitReason::kTooManyInserts);
  EXPECT_THAT(Sample(1), ElementsAre(1));
  EXPECT_EQ(counters(), (RateLimiterCounters{.inserts = 2, .samples = 1, .deletes = 1}));
  EXPECT_TRUE(Insert(3));
  EXPECT_THAT(Sample(10), ElementsAre(2, 3));
  EXPECT_THAT(Sample(10), ElementsAre());
}

TEST_F(LimiterTraceTest, Stack) {
  Make(TableOptions::Stack("t", 2));
  EXPECT_TRUE(Insert(1));
  EXPECT_TRUE(Insert(2));
  EXPECT_FALSE(Insert(3));
  EXPECT_THAT(Sample(1), ElementsAre(2));
  EXPECT_TRUE(Insert(3));
  EXPECT_THAT(Sample(10), ElementsAre(3, 1));
}

TEST_F(LimiterTraceTest, ExplicitDeletesDoNotMakeRoomInAQueue) {
  Make(TableOptions::Queue("t", 2));
  EXPECT_TRUE(Insert(1));
  EXPECT_TRUE(Insert(2));
  Delete(1);
  EXPECT_EQ(counters(), (RateLimiterCounters{.inserts = 2, .samples = 0, .deletes = 1}));
  EXPECT_FALSE(Insert(3));  // resulting size 2 > 1, cursor 3 > 2
  Delete(2);
  EXPECT_TRUE(Insert(3));  // resulting size 1
}

TEST_F(LimiterTraceTest, EvictionCountsAsADelete) {
  Make({.remover = SelectorOptions::Fifo(), .max_size = 2, .rate_limiter = RateLimiterOptions::MinSize(1)});
  for (uint64_t key = 1; key <= 3; ++key) EXPECT_TRUE(Insert(key));
  EXPECT_FALSE(state_->Contains(1));
  EXPECT_TRUE(state_->Contains(2));
  EXPECT_TRUE(state_->Contains(3));
  EXPECT_EQ(counters(), (RateLimiterCounters{.inserts = 3, .samples = 0, .deletes = 1}));
}

TEST_F(LimiterTraceTest, PrioritizedProbabilities) {
  Make({.sampler = SelectorOptions::Prioritized(1, 7)});
  EXPECT_TRUE(Insert(1, 1));
  EXPECT_TRUE(Insert(2, 0.1));
  EXPECT_TRUE(Insert(3, 0));
  Effects effects;
  std::vector<internal::Sample> samples;
  ASSERT_EQ(state_->Sample(1'000, false, &samples, &effects), 1'000);
  for (const internal::Sample& sample : samples) {
    ASSERT_NE(sample.key, 3u);
    ASSERT_NEAR(sample.probability, sample.key == 1 ? 1 / 1.1 : 0.1 / 1.1, 1e-15);
  }
  const KeyPriority zero[] = {{1, 0}, {2, 0}};
  state_->Mutate(zero, {}, &effects);
  samples.clear();
  state_->Sample(100, false, &samples, &effects);
  for (const internal::Sample& sample : samples) ASSERT_EQ(sample.probability, 1.0 / 3);
}

TEST_F(LimiterTraceTest, HeapTies) {
  for (const SelectorOptions& heap : {SelectorOptions::MinHeap(), SelectorOptions::MaxHeap()}) {
    Make({.sampler = heap, .max_times_sampled = 1});
    for (const uint64_t key : {2, 0, 1}) EXPECT_TRUE(Insert(key, 5));
    const KeyPriority same[] = {{2, 5}};
    Effects effects;
    state_->Mutate(same, {}, &effects);
    EXPECT_THAT(Sample(3), ElementsAre(0, 1, 2));
  }
}

TEST_F(LimiterTraceTest, OptionsMayChangeWhileCountersStay) {
  Make(TableOptions::Queue("t", 2));
  EXPECT_TRUE(Insert(1));
  EXPECT_TRUE(Insert(2));
  EXPECT_FALSE(Insert(3));
  state_->SetRateLimiter(RateLimiterOptions::Queue(3));
  EXPECT_TRUE(Insert(3));
  EXPECT_EQ(cursor(), 3);
}

}  // namespace
}  // namespace reverb::internal
