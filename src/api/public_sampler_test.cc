// Tests the Sampler handle: batches, memory of the caller, and samples left over by errors.
#include "reverb/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "reverb/server.h"
#include "testing/status_matchers.h"

namespace reverb {
namespace {

using namespace std::chrono_literals;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Client::TablePriority> kIntoT = {{"t", 1.0}};

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  const T* data = reinterpret_cast<const T*>(tensor.data());
  return {data, data + tensor.num_elements()};
}

class PublicSamplerTest : public ::testing::Test {
 protected:
  template <typename T>
  void Insert(DType dtype, T value) {
    const TensorView step{.dtype = dtype, .dims = {}, .data = &value};
    ASSERT_OK(client_.Insert({&step, 1}, kIntoT));
  }
  // Inserts one item for each length, whose rows are 0, 1, ….
  void InsertSequences(std::initializer_list<int64_t> lengths) {
    Writer writer = client_.NewWriter({.max_sequence_length = 8}).value();
    for (const int64_t length : lengths) {
      for (int64_t row = 0; row < length; ++row) {
        const TensorView step{.dtype = DType::kInt64, .dims = {}, .data = &row};
        ASSERT_OK(writer.Append({&step, 1}));
      }
      ASSERT_OK(writer.CreateItem("t", length, 1.0));
      ASSERT_OK(writer.EndEpisode());
    }
  }
  // Each item is sampled once, in the order of insertion.
  Sampler NewSampler(int64_t max_samples) {
    return client_
        .NewSampler({.table = "t", .max_samples = max_samples, .max_in_flight_samples_per_worker = 2})
        .value();
  }

  Server server_ = Server::Start({.tables = {{.name = "t",
                                              .sampler = SelectorOptions::Fifo(),
                                              .remover = SelectorOptions::Fifo(),
                                              .max_times_sampled = 1,
                                              .layout = LayoutPolicy::kAny}},
                                  .port = std::nullopt})
                       .value();
  Client client_ = server_.in_process_client();
};

TEST_F(PublicSamplerTest, BatchesHaveOneTensorPerColumnAndReuseItsMemory) {
  for (int64_t value = 0; value < 4; ++value) Insert(DType::kInt64, value);
  Sampler sampler = NewSampler(4);
  Batch batch;
  ASSERT_OK(sampler.NextBatch(2, &batch));
  ASSERT_EQ(batch.columns.size(), 1u);
  EXPECT_THAT(batch.columns[0].dims(), ElementsAre(2, 1));
  EXPECT_THAT(Values<int64_t>(batch.columns[0]), ElementsAre(0, 1));
  EXPECT_THAT(batch.info.times_sampled, ElementsAre(1, 1));
  EXPECT_TRUE(batch.lengths.empty());
  const uint8_t* const memory = batch.columns[0].data();
  ASSERT_OK(sampler.NextBatch(2, &batch));
  EXPECT_EQ(batch.columns[0].data(), memory);
  EXPECT_THAT(Values<int64_t>(batch.columns[0]), ElementsAre(2, 3));
  EXPECT_THAT(sampler.NextBatch(1, &batch), StatusIs(StatusCode::kOutOfRange));
  EXPECT_EQ(sampler.stats().delivered, 4);
}

TEST_F(PublicSamplerTest, SamplesOfAFailedBatchComeFirstInTheNextCall) {
  Insert(DType::kInt64, int64_t{5});
  Insert(DType::kFloat32, 6.0f);
  Sampler sampler = NewSampler(2);
  Batch batch;
  EXPECT_THAT(sampler.NextBatch(2, &batch), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(sampler.stats().delivered, 0);
  EXPECT_EQ(sampler.stats().waiting, 2);
  EXPECT_THAT(Values<int64_t>(sampler.Next().value().column(0).value()), ElementsAre(5));
  std::vector<SampledTrajectory> rest;
  ASSERT_OK(sampler.NextSome(10, &rest));
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_THAT(Values<float>(rest[0].column(0).value()), ElementsAre(6));
  EXPECT_EQ(sampler.stats().delivered, 2);
  EXPECT_EQ(sampler.stats().waiting, 0);
}

TEST_F(PublicSamplerTest, TakesTheReceivedSamplesOfOneLayoutAsABatch) {
  InsertSequences({2, 2, 3, 3, 3, 1});
  Sampler sampler =
      client_
          .NewSampler(
              {.table = "t", .max_samples = 6, .max_in_flight_samples_per_worker = 6, .whole_windows = true})
          .value();
  Batch batch;
  std::vector<std::vector<int64_t>> dims;
  for (Status status = sampler.NextSome(4, &batch, {}); status.ok();
       status = sampler.NextSome(4, &batch, {})) {
    dims.push_back(batch.columns[0].dims());
    EXPECT_THAT(batch.squeezed, ElementsAre(false));
    EXPECT_EQ(batch.info.keys.size(), static_cast<size_t>(dims.back()[0]));
  }
  // At most four at a time; the others of the four wait for the next call.
  EXPECT_THAT(dims, ElementsAre(ElementsAre(2, 2), ElementsAre(2, 3), ElementsAre(1, 3), ElementsAre(1, 1)));
  EXPECT_EQ(sampler.stats().delivered, 6);
}

TEST_F(PublicSamplerTest, ATimeoutInTheMiddleOfABatchLosesNothing) {
  Insert(DType::kInt64, int64_t{5});
  Sampler sampler = NewSampler(2);
  Batch batch;
  EXPECT_THAT(sampler.NextBatch(2, &batch, WaitOptions{.timeout = 20ms}),
              StatusIs(StatusCode::kDeadlineExceeded));
  Insert(DType::kInt64, int64_t{6});
  ASSERT_OK(sampler.NextBatch(2, &batch, WaitOptions{.timeout = 60s}));
  EXPECT_THAT(Values<int64_t>(batch.columns[0]), ElementsAre(5, 6));
}

TEST_F(PublicSamplerTest, WritesIntoMemoryOfTheCaller) {
  for (const int64_t value : {7, 8}) Insert(DType::kInt64, value);
  Sampler sampler = NewSampler(2);
  std::array<int64_t, 2> memory{};
  BatchInfo info;
  EXPECT_THAT(sampler.NextBatch(2, std::span<const ColumnMemory>(), &info),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("0 columns"), HasSubstr("have 1"))));
  const ColumnMemory small{memory.data(), 8};
  EXPECT_THAT(sampler.NextBatch(2, {&small, 1}, &info),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("16 bytes"), HasSubstr("8"))));
  const ColumnMemory exact{memory.data(), sizeof(memory)};
  ASSERT_OK(sampler.NextBatch(2, {&exact, 1}, &info));
  EXPECT_THAT(memory, ElementsAre(7, 8));
  EXPECT_EQ(info.keys.size(), 2u);
}

TEST_F(PublicSamplerTest, StringsNeedABatch) {
  const std::string_view text = "abc";
  Insert(DType::kString, text);
  Sampler sampler = NewSampler(1);
  BatchInfo info;
  const ColumnMemory memory{};
  EXPECT_THAT(sampler.NextBatch(1, {&memory, 1}, &info),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("strings")));
  Batch batch;
  ASSERT_OK(sampler.NextBatch(1, &batch));
  EXPECT_THAT(batch.columns[0].strings(), ElementsAre("abc"));
}

TEST_F(PublicSamplerTest, PadsShorterSamplesOnRequest) {
  InsertSequences({1, 3});
  Sampler sampler = NewSampler(2);
  Batch batch;
  EXPECT_THAT(sampler.NextBatch(2, &batch), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK(sampler.NextBatch(2, &batch, BatchOptions{.pad = true}));
  EXPECT_THAT(batch.columns[0].dims(), ElementsAre(2, 3));
  EXPECT_THAT(Values<int64_t>(batch.columns[0]), ElementsAre(0, 0, 0, 0, 1, 2));
  EXPECT_THAT(batch.lengths, ElementsAre(ElementsAre(1, 3)));
}

TEST_F(PublicSamplerTest, CloseWorksAfterMoves) {
  Sampler first = NewSampler(-1);
  Sampler second = std::move(first);
  second.Close();
  EXPECT_THAT(second.Next(), StatusIs(StatusCode::kCancelled));
  second = NewSampler(1);
  Insert(DType::kInt64, int64_t{9});
  EXPECT_OK(second.Next({.timeout = 60s}));
}

}  // namespace
}  // namespace reverb
