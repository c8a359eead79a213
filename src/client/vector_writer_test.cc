#include "client/vector_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "client/fake_sink_testing.h"
#include "reverb/log.h"
#include "testing/effort.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::ColumnOf;
using test::FakeSink;
using test::FakeSinkState;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Mask = std::vector<uint8_t>;

constexpr double kOne[] = {1.0};

class VectorWriterTest : public ::testing::Test {
 protected:
  void Make(int64_t environments, int64_t chunk_length, int64_t keep) {
    Make({.num_environments = environments,
          .chunking = {.num_keep_alive_refs = keep, .max_chunk_length = chunk_length},
          .seed = 1});
  }
  void Make(const VectorWriterOptions& options) {
    writer_ = std::make_unique<VectorWriterImpl>(options, std::make_unique<FakeSink>(&sink_));
  }
  // Appends a step of int64 scalars in each environment, column by column.
  Status Step(const std::vector<std::vector<int64_t>>& columns, const Mask& mask = {}) {
    std::vector<int64_t> dims;
    for (const auto& column : columns) dims.push_back(static_cast<int64_t>(column.size()));
    std::vector<ColumnValue> values;
    for (uint32_t i = 0; i < columns.size(); ++i) {
      values.push_back({i, {DType::kInt64, {&dims[i], 1}, columns[i].data()}});
    }
    return writer_->Append(values, mask);
  }
  Result<std::vector<uint8_t>> Items(const std::vector<StepRange>& columns, const Mask& mask = {}) {
    std::vector<VectorItemColumn> item;
    for (const StepRange& column : columns) item.push_back({{&column, 1}});
    return writer_->CreateItems("table", kOne, item, mask);
  }
  // Returns the first column of each item.
  std::vector<std::vector<int64_t>> Sent() const {
    std::vector<std::vector<int64_t>> values;
    for (const Item& item : sink_.items) values.push_back(ColumnOf<int64_t>(item, 0));
    return values;
  }

  FakeSinkState sink_;
  std::unique_ptr<VectorWriterImpl> writer_;
};

TEST(VectorWriterOptionsTest, AreChecked) {
  EXPECT_THAT((VectorWriterOptions{.num_environments = 0}.Validate()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("between 1 and 65536 but got 0")));
  EXPECT_THAT((VectorWriterOptions{.num_environments = INT64_MAX}.Validate()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("but got 9223372036854775807")));
  EXPECT_THAT((VectorWriterOptions{.chunking = {.num_keep_alive_refs = 0}}.Validate()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("num_keep_alive_refs")));
}

// --- Steps ---

TEST_F(VectorWriterTest, EachEnvironmentGetsItsRows) {
  Make(3, 1, 2);
  ASSERT_OK(Step({{1, 2, 3}, {10, 20, 30}}));
  ASSERT_OK(Step({{4, 5, 6}, {40, 50, 60}}));
  const StepRange both{.column = 0, .begin = -2}, newest = StepRange::One(1, -1);
  const std::array columns{VectorItemColumn{{&both, 1}}, VectorItemColumn{{&newest, 1}, true}};
  const std::array priorities{0.5, 1.5, 2.5};
  EXPECT_THAT(writer_->CreateItems("table", priorities, columns, {}).value(), ElementsAre(1, 1, 1));
  ASSERT_EQ(sink_.items.size(), 3u);
  EXPECT_THAT(Sent(), ElementsAre(ElementsAre(1, 4), ElementsAre(2, 5), ElementsAre(3, 6)));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[1], 1), ElementsAre(50));
  EXPECT_TRUE(sink_.items[1].trajectory.squeeze(1));
  EXPECT_EQ(sink_.items[1].priority, 1.5);
  EXPECT_EQ(sink_.items[1].table, "table");
  EXPECT_THAT(sink_.pieces, ElementsAre(3)) << "in one call";
}

TEST_F(VectorWriterTest, RowsOfSeveralDimensionsAndStrings) {
  Make(2, 1, 1);
  const std::vector<float> numbers = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<std::string_view> texts = {"a", "bc", "", "defg"};
  const std::vector<int64_t> number_dims = {2, 2, 2}, text_dims = {2, 2};
  ASSERT_OK(writer_->Append(std::array{ColumnValue{0, {DType::kFloat32, number_dims, numbers.data()}},
                                       ColumnValue{1, {DType::kString, text_dims, texts.data()}}},
                            {}));
  ASSERT_OK(Items({{.column = 0}, {.column = 1}}));
  EXPECT_THAT(ColumnOf<float>(sink_.items[1], 0), ElementsAre(4, 5, 6, 7));
  std::vector<std::string> strings;
  ASSERT_OK(sink_.items[1].trajectory.ReadStrings(1, &strings));
  EXPECT_THAT(strings, ElementsAre("", "defg"));
}

TEST_F(VectorWriterTest, TheMaskSelectsEnvironments) {
  Make(3, 1, 3);
  ASSERT_OK(Step({{1, 2, 3}}));
  ASSERT_OK(Step({{4, 5, 6}}, {1, 0, 1}));
  EXPECT_EQ(writer_->environment(0).episode_steps(), 2);
  EXPECT_EQ(writer_->environment(1).episode_steps(), 1);
  EXPECT_THAT(Items({{.column = 0}}, {0, 1, 2}).value(), ElementsAre(0, 1, 1));
  EXPECT_THAT(Sent(), ElementsAre(ElementsAre(2), ElementsAre(3, 6)));
  ASSERT_OK(writer_->EndEpisode(Mask{0, 0, 1}));
  EXPECT_EQ(writer_->environment(2).episode_steps(), 0);
  EXPECT_EQ(writer_->environment(0).episode_steps(), 2);
  EXPECT_THAT(Step({{7, 8, 9}}, {1, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("2 values but there are 3 environments")));
}

TEST_F(VectorWriterTest, AWrongFirstDimensionNamesColumnActualAndExpectedSize) {
  Make(3, 1, 1);
  ASSERT_OK(writer_->NameColumn(0, "('obs',)"));
  EXPECT_THAT(Step({{1, 2}}), StatusIs(StatusCode::kInvalidArgument,
                                       AllOf(HasSubstr("column ('obs',)"), HasSubstr("got shape [2]"),
                                             HasSubstr("a first dimension of 3"))));
  const int64_t scalar = 1;
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{0, test::Scalar(scalar)}}, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("got shape []")));
  EXPECT_EQ(writer_->environment(0).episode_steps(), 0);
}

TEST_F(VectorWriterTest, AColumnIsTheSameInAllEnvironments) {
  Make(2, 1, 1);
  ASSERT_OK(writer_->NameColumn(0, "x"));
  ASSERT_OK(Step({{1, 2}}, {1, 0}));
  const std::array<float, 4> other = {};
  const std::vector<int64_t> dims = {2}, wide = {2, 2};
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{0, {DType::kFloat32, dims, other.data()}}}, Mask{0, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("column x. Got float but expected int64")));
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{0, {DType::kInt64, wide, other.data()}}}, Mask{0, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("Got rows of [2] which are incompatible")));
  ASSERT_OK(Step({{3, 4}}, {0, 1}));
}

TEST_F(VectorWriterTest, AFailingAppendChangesNoEnvironment) {
  Make(3, 1, 2);
  // A row that is too large, in the last environment only.
  const std::string chunk(16 << 20, 'x');
  std::vector<std::string_view> large(64, chunk);
  const std::vector<int64_t> dims = {3, 64};
  std::vector<std::string_view> rows(3 * 64, "small");
  std::copy(large.begin(), large.end(), rows.begin() + 2 * 64);
  const std::array step{ColumnValue{0, {DType::kString, dims, rows.data()}}};
  EXPECT_THAT(writer_->Append(step, {}),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("environment 2"), HasSubstr("bytes"))));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(writer_->environment(i).episode_steps(), 0) << i;
  ASSERT_OK(writer_->Append(step, Mask{1, 1, 0}));
  // The same column twice.
  EXPECT_THAT(writer_->Append(std::array{step[0], step[0]}, Mask{1, 1, 0}),
              StatusIs(StatusCode::kInvalidArgument));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(writer_->environment(i).episode_steps(), 1) << i;
}

TEST_F(VectorWriterTest, AnEmptySelectionChangesNothing) {
  Make(2, 1, 1);
  ASSERT_OK(Step({{1, 2}}, {0, 0}));
  EXPECT_THAT(Items({{.column = 0}}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("has no values")));
  ASSERT_OK(Step({{1, 2}}));
  EXPECT_THAT(Items({{.column = 0}}, {0, 0}).value(), ElementsAre(0, 0));
  ASSERT_OK(writer_->EndEpisode(Mask{0, 0}));
  EXPECT_THAT(sink_.items, IsEmpty());
  EXPECT_THAT(sink_.pieces, IsEmpty());
}

// --- Items ---

TEST_F(VectorWriterTest, EpisodesThatAreTooShortAreSkipped) {
  Make(2, 1, 3);
  for (int64_t step = 0; step < 5; ++step) {
    ASSERT_OK(Step({{step, 100 + step}}));
    const auto made = Items({{.column = 0, .begin = -3}, {.column = 0, .begin = -2, .end = -1}}).value();
    // The second environment restarts in the middle.
    EXPECT_THAT(made, ElementsAre(step >= 2, step == 2 || step == 4)) << step;
    if (step == 2) {
      ASSERT_OK(writer_->EndEpisode(Mask{0, 1}));
      ASSERT_OK(Step({{99, 102}}, {0, 1}));
    }
  }
  EXPECT_THAT(Sent(), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(100, 101, 102), ElementsAre(1, 2, 3),
                                  ElementsAre(2, 3, 4), ElementsAre(102, 103, 104)));
}

// Returns the elements that a Python slice selects, if all its indices exist.
std::optional<std::vector<int64_t>> Chosen(const StepRange& range, int64_t length) {
  const auto at = [&](std::optional<int64_t> p, int64_t absent) {
    return !p ? absent : *p < 0 ? *p + length : *p;
  };
  const int64_t begin = at(range.begin, range.stride > 0 ? 0 : length - 1);
  const int64_t end = at(range.end, range.stride > 0 ? length : -1);
  std::vector<int64_t> steps;
  for (int64_t i = begin; range.stride > 0 ? i < end : i > end; i += range.stride) {
    if (i < 0 || i >= length) return std::nullopt;
    steps.push_back(i);
  }
  return steps.empty() ? std::nullopt : std::optional(steps);
}

TEST_F(VectorWriterTest, RangesBehaveLikeSlices) {
  const std::vector<std::optional<int64_t>> bounds = {std::nullopt, -6, -4, -3, -1, 0, 1, 2, 4, 6};
  for (int64_t length = 0; length <= 5; ++length) {
    Make(2, 1, 6);
    ASSERT_OK(Step({{7, 7}}, {0, 1}));
    for (int64_t step = 0; step < length; ++step) ASSERT_OK(Step({{step, 7}}));
    for (const auto& begin : bounds) {
      for (const auto& end : bounds) {
        for (const int64_t stride : {1, 2, 3, -1, -2}) {
          const StepRange range{.column = 0, .begin = begin, .end = end, .stride = stride};
          SCOPED_TRACE(std::to_string(length) + ": " + (begin ? std::to_string(*begin) : "") + ":" +
                       (end ? std::to_string(*end) : "") + ":" + std::to_string(stride));
          sink_.items.clear();
          bool is_ever = false;
          for (int64_t other = 0; other < 30; ++other) is_ever |= Chosen(range, other).has_value();
          if (!is_ever) {
            EXPECT_THAT(Items({range}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("names no step")));
            continue;
          }
          const auto expected = Chosen(range, length);
          const auto made = Items({range}, {1, 0});
          ASSERT_OK(made);
          ASSERT_EQ(made.value()[0], expected.has_value());
          ASSERT_EQ(Sent().size(), expected ? 1u : 0u);
          if (expected) {
            EXPECT_EQ(Sent()[0], *expected);
          }
        }
      }
    }
    writer_->Close();
  }
}

TEST_F(VectorWriterTest, ExtremeRangesAreHandled) {
  Make(1, 1, 4);
  for (int64_t step = 0; step < 3; ++step) ASSERT_OK(Step({{step}}));
  constexpr int64_t kMin = INT64_MIN, kMax = INT64_MAX;
  for (const int64_t begin : {kMin, kMin + 1, int64_t{0}, int64_t{2}, kMax - 1, kMax}) {
    for (const int64_t end : {kMin, kMin + 1, int64_t{-1}, int64_t{0}, kMax - 1, kMax}) {
      for (const int64_t stride : {kMin, kMin + 1, int64_t{-1}, int64_t{1}, kMax - 1, kMax}) {
        const auto made = Items({{.column = 0, .begin = begin, .end = end, .stride = stride}});
        if (!made.ok()) {
          EXPECT_THAT(made.status(), StatusIs(StatusCode::kInvalidArgument,
                                              AnyOf(HasSubstr("is older than"), HasSubstr("names no step"))));
        } else if (made.value()[0]) {
          EXPECT_EQ(Sent().back().at(0), begin);
        }
      }
    }
  }
  EXPECT_THAT(Items({{.column = 0, .stride = 0}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("stride")));
  EXPECT_THAT(Items({{.column = UINT32_MAX}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("column 4294967295 has no values")));
  EXPECT_THAT(Items({}), StatusIs(StatusCode::kInvalidArgument, "trajectory must not be empty."));
  EXPECT_THAT(writer_->CreateItems("table", kOne, std::array{VectorItemColumn{}}, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("empty column")));
}

TEST_F(VectorWriterTest, AnErrorInOneEnvironmentCreatesNoItems) {
  Make(3, 1, 2);
  ASSERT_OK(Step({{1, 2, 3}, {1, 2, 3}}));
  ASSERT_OK(Step({{4, 5, 6}}, {0, 0, 1}));
  EXPECT_THAT(Items({{.column = 1, .begin = -1}}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("environment 2"), HasSubstr("cannot contain any None"))));
  const StepRange newest = StepRange::One(0, -1), all{.column = 0};
  const std::array priorities{1.0, std::nan(""), 1.0};
  const std::array columns{VectorItemColumn{{&newest, 1}}};
  EXPECT_THAT(writer_->CreateItems("table", priorities, columns, {}),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("environment 1"), HasSubstr("nan"))));
  EXPECT_THAT(writer_->CreateItems("table", std::span(priorities).first(2), columns, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("2 priorities for 3 environments")));
  EXPECT_THAT(writer_->CreateItems("table", kOne, std::array{VectorItemColumn{{&all, 1}, true}}, {}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("environment 2"), HasSubstr("exactly one row"))));
  EXPECT_THAT(Items({{.column = 0, .begin = -3}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("the last 2 steps")));
  EXPECT_THAT(sink_.items, IsEmpty());
  // Errors in environments that are not selected do not matter.
  EXPECT_THAT(writer_->CreateItems("table", priorities, columns, Mask{1, 0, 0}).value(),
              ElementsAre(1, 0, 0));
}

TEST_F(VectorWriterTest, WholeEpisodesThatAreNoLongerStored) {
  Make(2, 1, 2);
  for (int64_t step = 0; step < 3; ++step) ASSERT_OK(Step({{step, step}}));
  EXPECT_THAT(Items({{.column = 0}}), StatusIs(StatusCode::kInvalidArgument,
                                               AllOf(HasSubstr("environment 0"), HasSubstr("expired"))));
}

TEST_F(VectorWriterTest, SignaturesAreChecked) {
  TableSignatures signatures;
  signatures["table"] = std::vector<TensorSpec>{{.name = "x", .dtype = DType::kFloat32, .shape = Shape({2})}};
  Make({.num_environments = 2,
        .chunking = {.num_keep_alive_refs = 2},
        .signatures = std::make_shared<SignatureSource>(signatures)});
  ASSERT_OK(Step({{1, 2}}));
  EXPECT_THAT(Items({{.column = 0}}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("environment 0")));
  EXPECT_THAT(sink_.items, IsEmpty());
}

// The signatures of a server whose table changes.
struct ChangingSignatures {
  static TableSignatures Of(DType dtype) {
    return {{"table", std::vector<TensorSpec>{{.name = "x", .dtype = dtype, .shape = Shape({1})}}}};
  }
  std::shared_ptr<SignatureSource> NewSource(TableSignatures known) {
    return std::make_shared<SignatureSource>(std::move(known),
                                             [this]() -> Result<std::shared_ptr<const TableSignatures>> {
                                               ++fetches;
                                               if (!health.ok()) return health;
                                               return std::make_shared<const TableSignatures>(present);
                                             });
  }
  TableSignatures present = Of(DType::kInt64);
  Status health;
  int fetches = 0;
};

TEST_F(VectorWriterTest, EnvironmentsFetchTheSignatureOfANewTableOnce) {
  ChangingSignatures server;
  Make({.num_environments = 3, .chunking = {.num_keep_alive_refs = 2}, .signatures = server.NewSource({})});
  ASSERT_OK(Step({{1, 2, 3}}));
  for (int i = 0; i < 2; ++i) EXPECT_THAT(Items({{.column = 0}}).value(), ElementsAre(1, 1, 1));
  EXPECT_EQ(server.fetches, 1);
}

TEST_F(VectorWriterTest, EnvironmentsFetchTheSignatureOfAReplacedTableOnce) {
  ChangingSignatures server;
  Make({.num_environments = 3,
        .chunking = {.num_keep_alive_refs = 2},
        .signatures = server.NewSource(ChangingSignatures::Of(DType::kFloat32))});
  ASSERT_OK(Step({{1, 2, 3}}));
  EXPECT_THAT(Items({{.column = 0}}, {1, 0, 0}).value(), ElementsAre(1, 0, 0));
  EXPECT_THAT(Items({{.column = 0}}).value(), ElementsAre(1, 1, 1));
  EXPECT_EQ(server.fetches, 1);
  // An environment that knows only the oldest signatures tries those of the others, and fetches new ones.
  Make({.num_environments = 2,
        .chunking = {.num_keep_alive_refs = 2},
        .signatures = server.NewSource(ChangingSignatures::Of(DType::kFloat32))});
  ASSERT_OK(Step({{1, 2}}));
  server.present = ChangingSignatures::Of(DType::kFloat64);
  EXPECT_THAT(Items({{.column = 0}}, {1, 0}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("float64")));
  EXPECT_EQ(server.fetches, 2) << "once for each rejected item";
  server.present = ChangingSignatures::Of(DType::kInt64);
  EXPECT_THAT(Items({{.column = 0}}, {0, 1}).value(), ElementsAre(0, 1));
  EXPECT_EQ(server.fetches, 3);
}

TEST_F(VectorWriterTest, ReportsWhySignaturesCannotBeFetched) {
  ChangingSignatures server;
  server.health = Status::Unavailable("no answer");
  const std::shared_ptr<SignatureSource> source =
      server.NewSource({{"other", std::nullopt}, *ChangingSignatures::Of(DType::kFloat32).begin()});
  Make({.num_environments = 2, .chunking = {.num_keep_alive_refs = 2}, .signatures = source});
  ASSERT_OK(Step({{1, 2}}));
  const StepRange all{.column = 0};
  const std::array columns{VectorItemColumn{{&all, 1}}};
  EXPECT_THAT(writer_->CreateItems("new", kOne, columns, {}),
              StatusIs(StatusCode::kUnavailable, AllOf(HasSubstr("'new'"), HasSubstr("no answer"))));
  EXPECT_EQ(server.fetches, 1);
  EXPECT_THAT(Items({{.column = 0}}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("inconsistent")))
      << "the table is known";
}

// --- The sink ---

TEST_F(VectorWriterTest, AppendsThatCompleteChunksSendOneBatch) {
  Make(4, 2, 2);
  ASSERT_OK(Step({{1, 2, 3, 4}}));
  ASSERT_OK(Items({{.column = 0, .begin = -1}}));
  EXPECT_THAT(sink_.items, IsEmpty());
  ASSERT_OK(Step({{5, 6, 7, 8}}));
  EXPECT_THAT(sink_.pieces, ElementsAre(4));
}

TEST_F(VectorWriterTest, ChunksAreForgottenAfterTheItemsThatContainThem) {
  Make(2, 2, 2);
  for (int64_t step = 0; step < 9; ++step) {
    ASSERT_OK(Step({{step, step}}));
    ASSERT_OK(Items({{.column = 0, .begin = -2}}));
    if (step == 4) {
      ASSERT_OK(writer_->EndEpisode(Mask{1, 0}));
    }
  }
  ASSERT_OK(writer_->EndEpisode({}));
  std::set<uint64_t> sent;
  for (const Item& item : sink_.items) {
    item.trajectory.ForEachChunk([&](const Chunk* chunk) { sent.insert(chunk->id()); });
  }
  EXPECT_EQ(std::set(sink_.forgotten.begin(), sink_.forgotten.end()), sent);
  EXPECT_EQ(sink_.forgotten.size(), sent.size()) << "each once";
  for (size_t i = 0; i < sink_.forgotten.size(); ++i) {
    for (size_t later = sink_.forgotten_after[i]; later < sink_.items.size(); ++later) {
      sink_.items[later].trajectory.ForEachChunk(
          [&](const Chunk* chunk) { EXPECT_NE(chunk->id(), sink_.forgotten[i]) << later; });
    }
  }
}

TEST_F(VectorWriterTest, FlushLeavesEachEnvironmentTheSameNumberOfItems) {
  Make(2, 10, 10);
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_OK(Step({{step, 10 + step}}));
    ASSERT_OK(Items({{.column = 0, .begin = -1}}));
  }
  EXPECT_EQ(writer_->unconfirmed_items(), 6);
  ASSERT_OK(writer_->Flush(6, {}));
  EXPECT_THAT(sink_.items, IsEmpty()) << "all items may wait";
  EXPECT_THAT(sink_.awaited, ElementsAre(0));
  ASSERT_OK(writer_->Flush(4, {}));
  // The chunk of the oldest item of each environment also contains the rows of the others.
  EXPECT_EQ(sink_.items.size(), 6u);
  EXPECT_THAT(sink_.awaited, ElementsAre(0, 4));
  ASSERT_OK(Step({{3, 13}}));
  ASSERT_OK(Items({{.column = 0, .begin = -1}}, {1, 0}));
  ASSERT_OK(Items({{.column = 0, .begin = -1}}));
  ASSERT_OK(writer_->Flush(0, {}));
  EXPECT_EQ(sink_.items.size(), 9u);
  EXPECT_EQ(sink_.awaited.back(), 0);
  EXPECT_THAT(writer_->Flush(-1, {}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("got -1")));
  sink_.pending = 3;
  sink_.confirms = false;
  EXPECT_EQ(writer_->unconfirmed_items(), 3);
  EXPECT_THAT(writer_->Flush(2, {}), StatusIs(StatusCode::kDeadlineExceeded));
}

TEST_F(VectorWriterTest, EndOfEpisodeDoesNotWait) {
  Make(2, 10, 10);
  sink_.confirms = false;
  ASSERT_OK(Step({{1, 2}}));
  ASSERT_OK(Items({{.column = 0}}));
  ASSERT_OK(writer_->EndEpisode(Mask{0, 1}));
  EXPECT_THAT(Sent(), ElementsAre(ElementsAre(2))) << "the other environment's chunk continues";
  EXPECT_THAT(sink_.awaited, IsEmpty());
  sink_.confirms = true;
}

TEST_F(VectorWriterTest, WaitsOnceForAFullSinkBeforeAcceptingTheItems) {
  Make(2, 4, 4);
  ASSERT_OK(Step({{1, 2}}));
  ASSERT_OK(Items({{.column = 0}}));
  sink_.is_full = true;
  sink_.confirms = false;
  EXPECT_THAT(Items({{.column = 0}}), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(sink_.items.size(), 2u) << "earlier items were sent";
  sink_.confirms = true;
  EXPECT_THAT(Items({{.column = 0}}).value(), ElementsAre(1, 1));
  EXPECT_EQ(sink_.waits_for_room, 2);
  EXPECT_EQ(sink_.items.size(), 4u);
}

TEST_F(VectorWriterTest, EveryCallReportsAnErrorOfTheSink) {
  Make(2, 1, 1);
  ASSERT_OK(Step({{1, 2}}));
  sink_.health = Status::Unavailable("gone");
  EXPECT_THAT(Step({{1, 2}}), StatusIs(StatusCode::kUnavailable, "gone"));
  EXPECT_THAT(Items({{.column = 0}}), StatusIs(StatusCode::kUnavailable, "gone"));
  EXPECT_THAT(writer_->EndEpisode({}), StatusIs(StatusCode::kUnavailable, "gone"));
  EXPECT_THAT(writer_->Flush(0, {}), StatusIs(StatusCode::kUnavailable, "gone"));
}

TEST_F(VectorWriterTest, CloseDiscardsItems) {
  Make(2, 4, 4);
  ASSERT_OK(Step({{1, 2}}));
  ASSERT_OK(Items({{.column = 0}}));
  EXPECT_EQ(writer_->Close(), 2);
  EXPECT_EQ(writer_->Close(), 0);
  EXPECT_TRUE(sink_.is_closed);
  EXPECT_THAT(sink_.items, IsEmpty());
  for (const Status& status :
       {Step({{1, 2}}), Items({{.column = 0}}).status(), writer_->EndEpisode({}), writer_->Flush(0, {})}) {
    EXPECT_THAT(status, StatusIs(StatusCode::kCancelled, "VectorWriter::Close has been called."));
  }
}

TEST_F(VectorWriterTest, DestructionFlushesAndLogsLostItemsOnce) {
  Make(3, 4, 4);
  ASSERT_OK(Step({{1, 2, 3}}));
  ASSERT_OK(Items({{.column = 0}}));
  sink_.confirms = false;
  std::vector<std::string> said;
  SetLogSink([&](LogLevel, std::string_view text) { said.emplace_back(text); });
  writer_ = nullptr;
  SetLogSink(nullptr);
  EXPECT_EQ(sink_.items.size(), 3u);
  EXPECT_THAT(sink_.awaited, ElementsAre(0));
  EXPECT_TRUE(sink_.is_closed);
  EXPECT_THAT(said, ElementsAre(HasSubstr("with 3 items that are not confirmed")));
}

// --- Partial steps, stacks and the chunking of columns ---

TEST_F(VectorWriterTest, AStepMayBeAppendedInParts) {
  Make(2, 1, 4);
  const std::vector<int64_t> dims = {2}, observations = {1, 2}, actions = {10, 20}, others = {11, 21};
  const std::array observation{ColumnValue{0, {DType::kInt64, dims, observations.data()}}};
  const std::array action{ColumnValue{1, {DType::kInt64, dims, actions.data()}}};
  ASSERT_OK(writer_->AppendPartial(observation, {}));
  EXPECT_EQ(writer_->environment(0).episode_steps(), 0);
  EXPECT_THAT(Items({StepRange::One(0, -1)}).value(), ElementsAre(1, 1)) << "of the open step";
  EXPECT_THAT(Sent(), ElementsAre(ElementsAre(1), ElementsAre(2)));
  const Mask second = {0, 1};
  ASSERT_OK(writer_->Append(action, second));
  EXPECT_EQ(writer_->environment(0).episode_steps(), 0);
  EXPECT_EQ(writer_->environment(1).episode_steps(), 1);
  // Environment 0 still has its observation; the other one gets none.
  EXPECT_THAT(writer_->Append(observation, {}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("environment 0"), HasSubstr("already been set"))));
  EXPECT_EQ(writer_->environment(1).history_length(), 1) << "a failed append changes nothing";
  const std::array other{ColumnValue{1, {DType::kInt64, dims, others.data()}}};
  ASSERT_OK(writer_->Append(other, Mask{1, 0}));
  EXPECT_THAT(Items({StepRange::One(0, 0), StepRange::One(1, 0)}).value(), ElementsAre(1, 1));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[2], 1), ElementsAre(11));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[3], 1), ElementsAre(20));
  ASSERT_OK(writer_->AppendPartial(observation, {}));
  ASSERT_OK(writer_->EndEpisode({}));
  ASSERT_OK(writer_->Append(observation, {})) << "the end of the episode closed the step";
}

TEST_F(VectorWriterTest, ALaterEnvironmentMayRejectAPartOfAStep) {
  Make(2, 1, 4);
  ASSERT_OK(Step({{1, 2}, {3, 4}}));
  const std::vector<int64_t> dims = {2}, values = {5, 6};
  const std::array first{ColumnValue{0, {DType::kInt64, dims, values.data()}}};
  ASSERT_OK(writer_->AppendPartial(first, Mask{0, 1}));
  EXPECT_THAT(writer_->AppendPartial(first, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("environment 1")));
  EXPECT_FALSE(writer_->environment(0).columns().step_is_open());
}

TEST_F(VectorWriterTest, StacksRepeatTheFirstStepOfEachEpisode) {
  Make(2, 1, 4);
  ASSERT_OK(Step({{0, 100}}));
  ASSERT_OK(writer_->EndEpisode(Mask{0, 1}));
  ASSERT_OK(Step({{1, 101}}));
  EXPECT_THAT(Items({StepRange::Stack(0, 3)}).value(), ElementsAre(1, 1));
  EXPECT_THAT(Sent(), ElementsAre(ElementsAre(0, 0, 1), ElementsAre(101, 101, 101)));
  EXPECT_THAT(Items({StepRange::Stack(0, 3, -1), StepRange::Stack(0, 2)}).value(), ElementsAre(1, 0))
      << "environment 1 has no step before the newest";
  EXPECT_THAT(Sent().back(), ElementsAre(0, 0, 0));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items.back(), 1), ElementsAre(0, 1));
  for (int64_t i = 2; i < 6; ++i) ASSERT_OK(Step({{i, 100 + i}}));
  EXPECT_THAT(Items({StepRange::Stack(0, 3, -1)}).value(), ElementsAre(1, 1));
  EXPECT_THAT(Sent().back(), ElementsAre(102, 103, 104));
  EXPECT_THAT(Items({StepRange::Stack(0, 3, 5)}, Mask{1, 0}).value(), ElementsAre(1, 0));
  EXPECT_THAT(Sent().back(), ElementsAre(2, 3, 4));
}

TEST_F(VectorWriterTest, InvalidStacksAreRejected) {
  Make(2, 1, 4);
  ASSERT_OK(Step({{0, 100}}));
  const auto rejects = [&](const StepRange& range, auto matcher) {
    EXPECT_THAT(Items({range}), StatusIs(StatusCode::kInvalidArgument, matcher));
  };
  rejects(StepRange::Stack(0, -1), HasSubstr("> 0, without a begin and with stride 1, but got -1"));
  rejects({.column = 0, .begin = 0, .stack = 2}, HasSubstr("without a begin"));
  rejects(StepRange::Stack(0, 5), AllOf(HasSubstr("a stack of 5 steps"), HasSubstr("the last 4 steps")));
  rejects(StepRange::Stack(0, 4, -1), AllOf(HasSubstr("that ends at -1"), HasSubstr("the last 4 steps")));
  rejects(StepRange::Stack(0, 4, INT64_MIN), HasSubstr("the last 4 steps"));
  rejects(StepRange::Stack(0, 2, 0), HasSubstr("names no step"));
  rejects(StepRange::Stack(7, 2), HasSubstr("has no values"));
}

TEST_F(VectorWriterTest, StacksAreBoundedByWhatTheirOwnColumnKeeps) {
  Make(2, 1, 8);
  ASSERT_OK(writer_->Configure(0, {.num_keep_alive_refs = 2, .max_chunk_length = 1}));
  for (int64_t step = 0; step < 4; ++step) {
    ASSERT_OK(Step({{step, 100 + step}, {step, step}}));
    EXPECT_THAT(Items({StepRange::Stack(0, 3)}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("the last 2 steps")))
        << "from the first step on";
    EXPECT_THAT(Items({StepRange::Stack(0, 2, -1)}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("the last 2 steps")));
    EXPECT_THAT(Items({StepRange::Stack(0, 2), StepRange::Stack(1, 8)}).value(), ElementsAre(1, 1));
  }
  EXPECT_THAT(Sent().back(), ElementsAre(102, 103));
}

TEST_F(VectorWriterTest, ColumnsCanBeConfigured) {
  Make(2, 1, 2);
  ASSERT_OK(writer_->Configure(1, {.num_keep_alive_refs = 6, .max_chunk_length = 3}));
  ASSERT_OK(Step({{1, 2}, {10, 20}}));
  EXPECT_THAT(Items({StepRange::One(1, -1)}).value(), ElementsAre(1, 1));
  EXPECT_THAT(sink_.items, IsEmpty()) << "the chunk of three rows is not full";
  EXPECT_THAT(writer_->Configure(1, {.num_keep_alive_refs = 6, .max_chunk_length = 1}),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("environment 0"), HasSubstr("Flush must be called"))));
  EXPECT_THAT(writer_->Configure(1, {.num_keep_alive_refs = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("num_keep_alive_refs must be > 0")));
  ASSERT_OK(writer_->Flush(0, {}));
  ASSERT_OK(writer_->Configure(1, {.num_keep_alive_refs = 6, .max_chunk_length = 1}));
  for (int64_t i = 0; i < 5; ++i) ASSERT_OK(Step({{i, i}, {i, i}}));
  EXPECT_THAT(Items({{.column = 1, .begin = -6}}).value(), ElementsAre(1, 1));
  EXPECT_EQ(sink_.items.size(), 4u);
  EXPECT_THAT(Sent().back(), ElementsAre(20, 0, 1, 2, 3, 4));
}

// --- Comparison with writers of one environment each ---

TEST_F(VectorWriterTest, RandomUseAgreesWithSingleWriters) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  Random random(seed);
  for (int64_t round = 0; round < test::Effort(60, 10); ++round) {
    const size_t count = 1 + random.Below(5);
    const auto keep = static_cast<int64_t>(1 + random.Below(6));
    const auto chunk_length = static_cast<int64_t>(1 + random.Below(static_cast<uint64_t>(keep)));
    sink_ = {};
    Make(static_cast<int64_t>(count), chunk_length, keep);
    std::vector<FakeSinkState> sinks(count);
    std::vector<std::unique_ptr<TrajectoryWriterImpl>> singles;
    for (size_t i = 0; i < count; ++i) {
      singles.push_back(std::make_unique<TrajectoryWriterImpl>(
          TrajectoryWriterOptions{
              .chunking = {.num_keep_alive_refs = keep, .max_chunk_length = chunk_length}},
          std::make_unique<FakeSink>(&sinks[i])));
    }
    for (int64_t step = 0; step < 40; ++step) {
      Mask mask(count);
      for (uint8_t& chosen : mask) chosen = step == 0 || random.Below(4) != 0;
      std::vector<int64_t> values;
      for (size_t i = 0; i < count; ++i) values.push_back(static_cast<int64_t>(i) * 1000 + step);
      ASSERT_OK(Step({values, values}, mask));
      for (size_t i = 0; i < count; ++i) {
        if (!mask[i]) continue;
        ASSERT_OK(singles[i]->Append(
            std::array{ColumnValue{0, test::Scalar(values[i])}, ColumnValue{1, test::Scalar(values[i])}}));
      }
      const auto back = static_cast<int64_t>(1 + random.Below(static_cast<uint64_t>(keep)));
      const std::vector<uint8_t> made =
          Items({{.column = 0, .begin = -back}, {.column = 1, .begin = -1}}).value();
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(made[i], singles[i]->history_length() >= back) << i;
        if (!made[i]) continue;
        const int64_t end = singles[i]->columns().position();
        const CellRange some{0, end - back, end}, newest{1, end - 1, end};
        ASSERT_OK(singles[i]->CreateItem("table", 1.0,
                                         std::array{ItemColumn{{&some, 1}}, ItemColumn{{&newest, 1}}}));
      }
      for (uint8_t& chosen : mask) chosen = random.Below(8) == 0;
      ASSERT_OK(writer_->EndEpisode(mask));
      for (size_t i = 0; i < count; ++i) {
        if (mask[i]) {
          ASSERT_OK(singles[i]->EndEpisode(true, {}));
        }
      }
    }
    ASSERT_OK(writer_->Flush(0, {}));
    // Items by environment, in order.
    std::vector<std::vector<std::vector<int64_t>>> got(count), expected(count);
    for (const Item& item : sink_.items) {
      const std::vector<int64_t> rows = ColumnOf<int64_t>(item, 0);
      got[static_cast<size_t>(rows.at(0) / 1000)].push_back(rows);
      EXPECT_THAT(ColumnOf<int64_t>(item, 1), ElementsAre(rows.back()));
    }
    for (size_t i = 0; i < count; ++i) {
      ASSERT_OK(singles[i]->Flush(0, {}));
      for (const Item& item : sinks[i].items) expected[i].push_back(ColumnOf<int64_t>(item, 0));
    }
    EXPECT_EQ(got, expected);
    writer_->Close();
  }
}

}  // namespace
}  // namespace reverb::internal
