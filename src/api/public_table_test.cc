#include "reverb/table.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reverb/extensions.h"
#include "testing/status_matchers.h"

namespace reverb {
namespace {

using namespace std::chrono_literals;
using test::StatusIs;
using ::testing::ElementsAre;

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  const T* data = reinterpret_cast<const T*>(tensor.data());
  return {data, data + tensor.num_elements()};
}

TEST(PublicTableTest, SamplesReturnInsertedData) {
  Store store;
  Table table = Table::Create({.name = "replay", .sampler = SelectorOptions::Fifo()}, store).value();
  const float observations[] = {0, 1, 10, 11, 20, 21};
  const int64_t observation_dims[] = {3, 2};
  const std::string_view names[] = {"a", std::string_view("b\0b", 3), "c"};
  const int64_t name_dims[] = {3};
  const TensorView columns[] = {{DType::kFloat32, observation_dims, observations},
                                {DType::kString, name_dims, names}};
  const ChunkHandle chunk = store.AddChunk({.episode_id = 1}, columns).value();
  EXPECT_EQ(chunk.num_rows(), 3u);
  EXPECT_EQ(chunk.num_columns(), 2u);

  // Steps 1 and 2, then step 0 again; the name of step 1 alone.
  ASSERT_OK(table.Insert({.key = 7,
                          .priority = 2.5,
                          .columns = {{.slices = {{chunk, 0, 1, 2}, {chunk, 0, 0, 1}}},
                                      {.slices = {{chunk, 1, 1, 1}}, .squeeze = true}}}));
  const std::vector<SampledTrajectory> samples = table.Sample(1).value();
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].key(), 7u);
  EXPECT_EQ(samples[0].priority(), 2.5);
  EXPECT_EQ(samples[0].probability(), 1.0);
  EXPECT_EQ(samples[0].times_sampled(), 1);
  const Tensor observed = samples[0].column(0).value();
  EXPECT_THAT(observed.dims(), ElementsAre(3, 2));
  EXPECT_THAT(Values<float>(observed), ElementsAre(10, 11, 20, 21, 0, 1));
  const Tensor name = samples[0].column(1).value();
  EXPECT_TRUE(name.dims().empty());
  EXPECT_FALSE(samples[0].is_squeezed(0));
  EXPECT_TRUE(samples[0].is_squeezed(1));
  EXPECT_THAT(name.strings(), ElementsAre(std::string("b\0b", 3)));
  EXPECT_THAT(samples[0].column(2).status(), StatusIs(StatusCode::kInvalidArgument));
}

TEST(PublicTableTest, FindAndPeekAreNotCounted) {
  Store store;
  Table table = Table::Create({.name = "t"}, store).value();
  const int32_t values[] = {5};
  const int64_t dims[] = {1};
  const TensorView column{DType::kInt32, dims, values};
  const ChunkHandle chunk = store.AddChunk({}, {&column, 1}).value();
  ASSERT_OK(table.Insert({.key = 1, .columns = {{.slices = {{chunk}}}}}));
  EXPECT_EQ(Values<int32_t>(table.Find(1)->column(0).value()), std::vector<int32_t>{5});
  EXPECT_EQ(table.Peek(10).size(), 1u);
  EXPECT_FALSE(table.Find(2));
  EXPECT_EQ(table.Info().counters.samples, 0);
  const KeyPriority update{1, 4.0};
  ASSERT_OK(table.UpdatePriorities({&update, 1}));
  EXPECT_EQ(table.Find(1)->priority(), 4.0);
  const uint64_t key = 1;
  ASSERT_OK(table.Delete({&key, 1}));
  EXPECT_EQ(table.size(), 0);
}

TEST(PublicTableTest, SampledItemsAreCopiedToAnotherTable) {
  Store store;
  Table target = Table::Create({.name = "seen"}, store).value();
  const std::shared_ptr<InsertOnSampleExtension> copies = MakeInsertOnSample(target).value();
  Table table = Table::Create({.name = "t", .extensions = {copies}}, store).value();
  const int32_t values[] = {5};
  const int64_t dims[] = {1};
  const TensorView column{DType::kInt32, dims, values};
  const ChunkHandle chunk = store.AddChunk({}, {&column, 1}).value();
  ASSERT_OK(table.Insert({.key = 9, .columns = {{.slices = {{chunk}}}}}));
  EXPECT_EQ(target.size(), 0);
  ASSERT_OK(table.Sample(2).status());
  ASSERT_TRUE(target.Find(9));
  EXPECT_EQ(target.Find(9)->times_sampled(), 1);
  EXPECT_EQ(copies->counts().inserted, 1) << "once, though sampled twice";
}

TEST(PublicTableTest, ATimeoutGivesTheReasonAndWhatWasDrawn) {
  Store store;
  Table table = Table::Create(TableOptions::Queue("q", 4), store).value();
  const int32_t values[] = {5};
  const int64_t dims[] = {1};
  const TensorView column{DType::kInt32, dims, values};
  ASSERT_OK(table.Insert({.key = 1, .columns = {{.slices = {{store.AddChunk({}, {&column, 1}).value()}}}}}));
  std::vector<SampledTrajectory> partial;
  EXPECT_THAT(table.Sample(2, 1ms, &partial).status(),
              StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
  EXPECT_EQ(partial.size(), 1u);
}

TEST(PublicTableTest, BadChunksAreErrors) {
  Store store;
  const int32_t values[] = {1, 2, 3};
  const int64_t three[] = {3}, two[] = {2}, none[] = {0};
  const TensorView unequal[] = {{DType::kInt32, three, values}, {DType::kInt32, two, values}};
  EXPECT_THAT(store.AddChunk({}, unequal).status(), StatusIs(StatusCode::kInvalidArgument));
  const TensorView scalar{DType::kInt32, {}, values};
  EXPECT_THAT(store.AddChunk({}, {&scalar, 1}).status(), StatusIs(StatusCode::kInvalidArgument));
  const TensorView empty{DType::kInt32, none, values};
  EXPECT_THAT(store.AddChunk({}, {&empty, 1}).status(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(store.AddChunk({}, {}).status(), StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace reverb
