// Tests the public writer handles over a fake sink.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "api/writer_factory.h"
#include "client/fake_sink_testing.h"
#include "reverb/vector_writer.h"
#include "reverb/writer.h"
#include "testing/status_matchers.h"

namespace reverb {
namespace {

using internal::WriterFactory;
using test::ColumnOf;
using test::FakeSink;
using test::FakeSinkState;
using test::IsOk;
using test::Scalar;
using test::StatusIs;
using ::testing::ElementsAre;

TEST(PublicWriterTest, TrajectoryWriter) {
  FakeSinkState sink;
  Result<TrajectoryWriter> made = WriterFactory::MakeTrajectoryWriter(
      std::make_unique<FakeSink>(&sink), {.chunking = {.num_keep_alive_refs = 3, .max_chunk_length = 1}});
  ASSERT_OK(made.status());
  TrajectoryWriter writer = *std::move(made);
  ASSERT_OK(writer.NameColumn(0, "obs"));
  ASSERT_OK(writer.Configure(1, {.num_keep_alive_refs = 5}));
  EXPECT_EQ(writer.column_spec(0), std::nullopt);
  for (int64_t i = 0; i < 4; ++i) {
    ASSERT_OK(writer.AppendPartial(std::array{ColumnValue{0, Scalar(i)}}));
    EXPECT_TRUE(writer.step_is_open());
    ASSERT_OK(writer.Append(std::array{ColumnValue{1, Scalar(i)}}));
  }
  EXPECT_EQ(writer.position(), 4);
  EXPECT_EQ(writer.episode_steps(), 4);
  EXPECT_EQ(writer.history_length(), 4);
  EXPECT_EQ(writer.num_columns(), 2u);
  EXPECT_EQ(writer.num_keep_alive_refs(), 5);
  EXPECT_EQ(writer.column_spec(0), (TensorSpec{"obs", DType::kInt64, Shape({})}));
  EXPECT_FALSE(writer.HasCell(0, 0));
  EXPECT_TRUE(writer.HasCell(1, 0));
  EXPECT_OK(writer.Read(0, 3));
  const CellRange last = {.column = 0, .begin = 2, .end = 4};
  ASSERT_OK(writer.CreateItem("table", 1.0, std::array{ItemColumn{{&last, 1}}}));
  EXPECT_THAT(ColumnOf<int64_t>(sink.items.at(0), 0), ElementsAre(2, 3));
  ASSERT_OK(writer.Flush());
  ASSERT_OK(writer.EndEpisode());
  const std::array<int64_t, 2> rows = {7, 8};
  const std::array<int64_t, 1> dims = {2};
  ASSERT_OK(writer.AppendSequence(std::array{ColumnValue{0, {DType::kInt64, dims, rows.data()}}}));
  EXPECT_EQ(writer.episode_steps(), 2);
  const Result<std::vector<CellRange>> stack = writer.Stack(0, 3);
  ASSERT_OK(stack);
  ASSERT_OK(writer.CreateItem("table", 1.0, std::array{ItemColumn{*stack}}));
  EXPECT_THAT(ColumnOf<int64_t>(sink.items.at(1), 0), ElementsAre(7, 7, 8));
  EXPECT_THAT(writer.Stack(0, 0), StatusIs(StatusCode::kInvalidArgument));
  writer.Close();
  EXPECT_THAT(writer.Append({}), StatusIs(StatusCode::kCancelled));
}

TEST(PublicWriterTest, StructuredWriter) {
  FakeSinkState sink;
  StructuredWriterOptions options;
  options.configs.push_back({.pattern = {{.stop = -1}}, .table = "table", .conditions = {}, .priority = 2.0});
  Result<StructuredWriter> made =
      WriterFactory::MakeStructuredWriter(std::make_unique<FakeSink>(&sink), options);
  ASSERT_OK(made.status());
  StructuredWriter writer = *std::move(made);
  const int64_t value = 7;
  ASSERT_OK(writer.AppendPartial(std::array{std::optional(Scalar(value))}));
  EXPECT_TRUE(writer.step_is_open());
  ASSERT_OK(writer.Append(std::array{std::optional<TensorView>()}));
  ASSERT_OK(writer.Flush());
  ASSERT_OK(writer.EndEpisode());
  ASSERT_EQ(sink.items.size(), 1u);
  EXPECT_EQ(sink.items[0].priority, 2.0);
}

TEST(PublicWriterTest, VectorWriter) {
  FakeSinkState sink;
  Result<VectorWriter> made = WriterFactory::MakeVectorWriter(
      std::make_unique<FakeSink>(&sink),
      {.num_environments = 2, .chunking = {.num_keep_alive_refs = 3, .max_chunk_length = 1}});
  ASSERT_OK(made.status());
  VectorWriter writer = *std::move(made);
  EXPECT_EQ(writer.num_environments(), 2);
  ASSERT_OK(writer.NameColumn(0, "obs"));
  ASSERT_OK(writer.Configure(1, {.num_keep_alive_refs = 5}));
  const std::array<int64_t, 2> rows = {7, 8};
  const std::array<int64_t, 1> dims = {2};
  const std::array step{ColumnValue{0, {DType::kInt64, dims, rows.data()}}};
  ASSERT_OK(writer.Append(step));
  ASSERT_OK(writer.AppendPartial({}, std::array<uint8_t, 2>{0, 1}));
  EXPECT_EQ(writer.episode_steps(1), 1);
  ASSERT_OK(writer.Append(step, std::array<uint8_t, 2>{0, 1}));
  EXPECT_EQ(writer.episode_steps(1), 2);
  const StepRange newest = StepRange::One(0, -1);
  EXPECT_THAT(
      writer.CreateItems("table", std::array{1.0}, std::array{VectorItemColumn{{&newest, 1}, true}}).value(),
      ElementsAre(1, 1));
  EXPECT_THAT(ColumnOf<int64_t>(sink.items.at(1), 0), ElementsAre(8));
  const StepRange stack = StepRange::Stack(0, 3);
  EXPECT_THAT(writer.CreateItems("table", std::array{1.0}, std::array{VectorItemColumn{{&stack, 1}}},
                                 std::array<uint8_t, 2>{0, 1}),
              ::testing::Truly([](const auto& made) { return made.ok() && made->at(1) == 1; }));
  EXPECT_THAT(ColumnOf<int64_t>(sink.items.at(2), 0), ElementsAre(8, 8, 8));
  EXPECT_FALSE(writer.may_wait());
  ASSERT_OK(writer.Flush());
  ASSERT_OK(writer.EndEpisode());
  EXPECT_EQ(writer.episode_steps(1), 0);
  writer.Close();
  EXPECT_THAT(writer.Append(step), StatusIs(StatusCode::kCancelled));
}

TEST(PublicWriterTest, Writer) {
  FakeSinkState sink;
  Result<Writer> made =
      WriterFactory::MakeWriter(std::make_unique<FakeSink>(&sink), {.max_sequence_length = 2});
  ASSERT_OK(made.status());
  Writer writer = *std::move(made);
  const int64_t value = 7;
  ASSERT_OK(writer.Append(std::array{Scalar(value)}));
  ASSERT_OK(writer.CreateItem("table", 1, 1.0));
  ASSERT_OK(writer.Close());
  EXPECT_TRUE(writer.is_closed());
  EXPECT_EQ(sink.items.size(), 1u);
}

TEST(PublicWriterTest, BadOptionsCloseTheSink) {
  FakeSinkState sink;
  EXPECT_THAT(WriterFactory::MakeTrajectoryWriter(std::make_unique<FakeSink>(&sink),
                                                  {.chunking = {.num_keep_alive_refs = 0}})
                  .status(),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_TRUE(sink.is_closed);
  sink = {};
  EXPECT_THAT(
      WriterFactory::MakeVectorWriter(std::make_unique<FakeSink>(&sink), {.num_environments = 0}).status(),
      StatusIs(StatusCode::kInvalidArgument));
  EXPECT_TRUE(sink.is_closed);
}

}  // namespace
}  // namespace reverb
