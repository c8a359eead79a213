#include "client/legacy_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string_view>
#include <vector>

#include "client/fake_sink_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::ColumnOf;
using test::FakeSink;
using test::FakeSinkState;
using test::IsOk;
using test::Scalar;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class LegacyWriterTest : public ::testing::Test {
 protected:
  void Make(WriterOptions options) {
    ASSERT_OK(options.Validate());
    options.seed = 1;
    writer_ = std::make_unique<LegacyWriter>(options, std::make_unique<FakeSink>(&sink_));
  }
  Status Step(int64_t a, float b) { return writer_->Append(std::array{Scalar(a), Scalar(b)}); }

  FakeSinkState sink_;
  std::unique_ptr<LegacyWriter> writer_;
};

TEST(WriterOptionsTest, AreChecked) {
  EXPECT_THAT((WriterOptions{.max_sequence_length = 0}.Validate()), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT((WriterOptions{.max_sequence_length = 2, .chunk_length = 0}.Validate()),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT((WriterOptions{.max_sequence_length = 2, .chunk_length = 3}.Validate()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("got 3")));
  EXPECT_THAT((WriterOptions{.max_in_flight_items = 0}.Validate()), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(WriterOptions{}.Validate());
}

TEST_F(LegacyWriterTest, ItemsAreTheLastStepsInChunksOfAllColumns) {
  Make({.max_sequence_length = 3, .chunk_length = 2});
  for (int i = 0; i < 5; ++i) ASSERT_OK(Step(i, 10.f + static_cast<float>(i)));
  ASSERT_OK(writer_->CreateItem("table", 3, 0.5));
  EXPECT_THAT(sink_.items, IsEmpty());  // the newest step has no chunk yet
  ASSERT_OK(Step(5, 15));
  ASSERT_EQ(sink_.items.size(), 1u);
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 0), ElementsAre(2, 3, 4));
  EXPECT_THAT(ColumnOf<float>(sink_.items[0], 1), ElementsAre(12, 13, 14));
  EXPECT_EQ(sink_.items[0].trajectory.num_chunks(), 2u);
  EXPECT_FALSE(sink_.items[0].trajectory.squeeze(0));
  ASSERT_OK(writer_->CreateItem("table", 2, 1.5));  // complete: sent immediately
  EXPECT_EQ(sink_.items.size(), 2u);
}

TEST_F(LegacyWriterTest, InvalidItemsAreRejected) {
  Make({.max_sequence_length = 2});
  ASSERT_OK(Step(0, 0));
  EXPECT_THAT(writer_->CreateItem("table", 0, 1), StatusIs(StatusCode::kInvalidArgument, HasSubstr("got 0")));
  EXPECT_THAT(writer_->CreateItem("table", 2, 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("only 1")));
  EXPECT_THAT(writer_->CreateItem("table", 3, 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_sequence_length is 2")));
  EXPECT_THAT(writer_->CreateItem("table", 1, std::nan("")), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(LegacyWriterTest, TheFirstStepFixesDTypesAndShapes) {
  Make({.max_sequence_length = 2, .chunk_length = 1});
  ASSERT_OK(Step(0, 0));
  const int64_t a = 0;
  const float b = 0;
  const std::vector<int64_t> one = {1};
  EXPECT_THAT(writer_->Append(std::array{Scalar(a)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1 tensors")));
  EXPECT_THAT(writer_->Append(std::array{Scalar(b), Scalar(b)}),
              StatusIs(StatusCode::kInvalidArgument,
                       StartsWith("Cannot concatenate tensors that have different data types.")));
  EXPECT_THAT(writer_->Append(std::array{Scalar(a), TensorView{DType::kFloat32, one, &b}}),
              StatusIs(StatusCode::kInvalidArgument, StartsWith("Unable to concatenate tensors at index 1")));
  EXPECT_THAT(writer_->Append({}), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK(Step(1, 1));
  ASSERT_OK(writer_->CreateItem("table", 2, 1));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items.at(0), 0), ElementsAre(0, 1));
}

TEST_F(LegacyWriterTest, SequencesAreSplitIntoSteps) {
  Make({.max_sequence_length = 3, .chunk_length = 1});
  const std::array<int64_t, 6> numbers = {1, 2, 3, 4, 5, 6};
  const std::array<std::string_view, 3> texts = {"a", "b", "c"};
  const std::vector<int64_t> three_two = {3, 2}, three = {3}, none = {0, 2}, no_texts = {0};
  ASSERT_OK(writer_->AppendSequence(std::array{TensorView{DType::kInt64, three_two, numbers.data()},
                                               TensorView{DType::kString, three, texts.data()}}));
  ASSERT_OK(writer_->AppendSequence(std::array{TensorView{DType::kInt64, none, numbers.data()},
                                               TensorView{DType::kString, no_texts, texts.data()}}));
  ASSERT_OK(writer_->CreateItem("table", 2, 1));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items.at(0), 0), ElementsAre(3, 4, 5, 6));
  std::vector<std::string> read;
  ASSERT_OK(sink_.items[0].trajectory.ReadStrings(1, &read));
  EXPECT_THAT(read, ElementsAre("b", "c"));

  EXPECT_THAT(writer_->AppendSequence({}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(writer_->AppendSequence(std::array{Scalar(numbers[0])}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("scalar")));
  EXPECT_THAT(writer_->AppendSequence(std::array{TensorView{DType::kInt64, three_two, numbers.data()},
                                                 TensorView{DType::kString, no_texts, texts.data()}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("same number")));
}

TEST_F(LegacyWriterTest, SignatureDescribesAStepOrAnItem) {
  TableSignatures signatures;
  signatures["step"] =
      std::vector<TensorSpec>{{"a", DType::kInt64, Shape({})}, {"b", DType::kFloat32, Shape({})}};
  signatures["item"] =
      std::vector<TensorSpec>{{"a", DType::kInt64, Shape({2})}, {"b", DType::kFloat32, Shape({2})}};
  signatures["other"] = std::vector<TensorSpec>{{"a", DType::kInt64, Shape({})}};
  signatures["any"] = std::nullopt;
  Make({.max_sequence_length = 3, .signatures = std::make_shared<SignatureSource>(signatures)});
  for (int i = 0; i < 3; ++i) ASSERT_OK(Step(i, 0));
  EXPECT_OK(writer_->CreateItem("step", 3, 1));
  EXPECT_OK(writer_->CreateItem("item", 2, 1));
  EXPECT_OK(writer_->CreateItem("any", 2, 1));
  EXPECT_THAT(writer_->CreateItem("item", 3, 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("column 'a'")));
  EXPECT_THAT(writer_->CreateItem("other", 1, 1), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(writer_->CreateItem("none", 1, 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("could not be found")));
}

TEST_F(LegacyWriterTest, WaitsWhenTooManyItemsAreUnconfirmed) {
  Make({.max_sequence_length = 1, .max_in_flight_items = 2});
  ASSERT_OK(Step(0, 0));
  ASSERT_OK(writer_->CreateItem("table", 1, 1));
  ASSERT_OK(writer_->CreateItem("table", 1, 1));
  EXPECT_THAT(sink_.awaited, IsEmpty());
  ASSERT_OK(writer_->CreateItem("table", 1, 1));
  EXPECT_THAT(sink_.awaited, ElementsAre(1));
  sink_.confirms = false;
  EXPECT_THAT(writer_->CreateItem("table", 1, 1), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(sink_.items.size(), 3u);
}

TEST_F(LegacyWriterTest, FlushAwaitsConfirmations) {
  Make({.max_sequence_length = 4, .chunk_length = 4});
  ASSERT_OK(Step(0, 0));
  ASSERT_OK(writer_->CreateItem("table", 1, 1));
  ASSERT_OK(writer_->Flush({}));
  EXPECT_EQ(sink_.items.size(), 1u);
  EXPECT_EQ(sink_.pending, 0);
  ASSERT_OK(Step(1, 1));  // the chunk of the flush is short
  ASSERT_OK(writer_->CreateItem("table", 2, 1));
  sink_.confirms = false;
  EXPECT_THAT(writer_->Flush({}), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items.at(1), 0), ElementsAre(0, 1));
}

TEST_F(LegacyWriterTest, ItemsDoNotSpanEpisodes) {
  Make({.max_sequence_length = 4, .chunk_length = 4});
  ASSERT_OK(Step(0, 0));
  ASSERT_OK(writer_->CreateItem("table", 1, 1));
  ASSERT_OK(writer_->EndEpisode({}));
  EXPECT_EQ(sink_.pending, 0);
  ASSERT_OK(Step(1, 1));
  EXPECT_THAT(writer_->CreateItem("table", 2, 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("only 1 steps")));
  ASSERT_OK(writer_->CreateItem("table", 1, 1));
  ASSERT_OK(writer_->Flush({}));
  const auto episode = [&](size_t item) {
    return sink_.items.at(item).trajectory.slice(0, 0).chunk->header().episode_id();
  };
  EXPECT_NE(episode(0), episode(1));
}

TEST_F(LegacyWriterTest, CloseFlushesAndIsFinal) {
  Make({.max_sequence_length = 4, .chunk_length = 4});
  ASSERT_OK(Step(0, 0));
  ASSERT_OK(writer_->CreateItem("table", 1, 1));
  ASSERT_OK(writer_->Close({}));
  EXPECT_EQ(sink_.items.size(), 1u);
  EXPECT_TRUE(sink_.is_closed);
  EXPECT_THAT(Step(1, 1),
              StatusIs(StatusCode::kFailedPrecondition, "Calling method Append after Close has been called"));
  EXPECT_THAT(writer_->CreateItem("table", 1, 1), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(writer_->Flush({}), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(writer_->Close({}), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(LegacyWriterTest, CloseReportsUnconfirmedItems) {
  Make({.max_sequence_length = 1});
  ASSERT_OK(Step(0, 0));
  ASSERT_OK(writer_->CreateItem("table", 1, 1));
  sink_.confirms = false;
  EXPECT_THAT(writer_->Close({}), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(writer_->is_closed());
}

}  // namespace
}  // namespace reverb::internal
