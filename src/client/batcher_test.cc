#include "client/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/random.h"
#include "tensor/chunk.h"
#include "tensor/column.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a chunk of `rows` rows of int32 [2], counting up from `first`, and a second column of strings.
ChunkRef MakeChunk(uint32_t rows, int32_t first, CodecPolicy policy) {
  std::vector<int32_t> values(rows * 2);
  std::vector<std::string> words;
  for (uint32_t i = 0; i < rows * 2; ++i) values[i] = first + static_cast<int32_t>(i);
  for (uint32_t i = 0; i < rows; ++i) words.push_back("w" + std::to_string(first) + "/" + std::to_string(i));
  std::vector<uint8_t> raw(values.size() * 4), payload;
  std::memcpy(raw.data(), values.data(), raw.size());
  ChunkHeader header{.last_step = rows - 1, .rows = rows};
  ColumnEncoder numbers(DType::kInt32, {2}, policy);
  header.columns.push_back(numbers.Encode(raw, rows, &payload).value());
  ColumnEncoder strings(DType::kString, {}, policy);
  const std::vector<std::string_view> views(words.begin(), words.end());
  header.columns.push_back(strings.EncodeStrings(views, rows, &payload).value());
  return Chunk::Copy(NextChunkId(), header, payload).value();
}

Sample MakeSample(std::vector<ColumnSpec> columns) {
  Sample sample;
  sample.trajectory = Trajectory::Create(columns).value();
  return sample;
}

std::vector<int32_t> GatherNumbers(std::span<const Sample> samples, Status* status) {
  const auto layout = LayoutOf(samples.front()).value();
  std::vector<int32_t> out(layout[0].sample_elements * samples.size(), -1);
  const ColumnTarget target{.data = reinterpret_cast<uint8_t*>(out.data())};
  *status = Gather(samples, layout, {&target, 1});
  return out;
}

class BatcherTest : public ::testing::TestWithParam<CodecPolicy> {};
INSTANTIATE_TEST_SUITE_P(Codecs, BatcherTest, ::testing::Values(CodecPolicy::kNone, CodecPolicy::kLz4),
                         [](const auto& info) { return info.param == CodecPolicy::kNone ? "raw" : "lz4"; });

TEST_P(BatcherTest, RowsOfOneOrManySlices) {
  const ChunkRef a = MakeChunk(100, 0, GetParam()), b = MakeChunk(100, 1000, GetParam());
  std::vector<Sample> samples;
  samples.push_back(MakeSample({{.slices = {{a, 0, 3, 2}}}}));
  samples.push_back(MakeSample({{.slices = {{a, 0, 99, 1}, {b, 0, 0, 1}}}}));
  Status status;
  EXPECT_THAT(GatherNumbers(samples, &status), ElementsAre(6, 7, 8, 9, 198, 199, 1000, 1001));
  EXPECT_OK(status);
  EXPECT_THAT(LayoutOf(samples[0])->at(0).Dims(2), ElementsAre(2, 2, 2));
}

TEST_P(BatcherTest, SqueezedColumnsLoseTheTimeDimension) {
  const ChunkRef a = MakeChunk(10, 0, GetParam());
  std::vector<Sample> samples;
  for (uint32_t i = 0; i < 3; ++i)
    samples.push_back(MakeSample({{.slices = {{a, 0, i, 1}}, .squeeze = true}}));
  Status status;
  EXPECT_THAT(GatherNumbers(samples, &status), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(LayoutOf(samples[0])->at(0).Dims(3), ElementsAre(3, 2));
}

TEST_P(BatcherTest, Strings) {
  const ChunkRef a = MakeChunk(10, 7, GetParam());
  std::vector<Sample> samples;
  samples.push_back(MakeSample({{.slices = {{a, 1, 4, 2}}}}));
  samples.push_back(MakeSample({{.slices = {{a, 1, 0, 2}}}}));
  std::vector<std::string> strings;
  const ColumnTarget target{.strings = &strings};
  ASSERT_OK(Gather(samples, LayoutOf(samples[0]).value(), {&target, 1}));
  EXPECT_THAT(strings, ElementsAre("w7/4", "w7/5", "w7/0", "w7/1"));
}

TEST_P(BatcherTest, ManySamplesInRandomOrder) {
  Random random(3);
  std::vector<ChunkRef> chunks;
  for (int i = 0; i < 40; ++i) chunks.push_back(MakeChunk(50, i * 1000, GetParam()));
  std::vector<Sample> samples;
  std::vector<int32_t> expected;
  for (int i = 0; i < 500; ++i) {
    const auto chunk = static_cast<int32_t>(random.Below(40)), row = static_cast<int32_t>(random.Below(50));
    samples.push_back(
        MakeSample({{.slices = {{chunks[static_cast<size_t>(chunk)], 0, static_cast<uint32_t>(row), 1}}}}));
    expected.push_back(chunk * 1000 + 2 * row);
    expected.push_back(chunk * 1000 + 2 * row + 1);
  }
  Status status;
  EXPECT_EQ(GatherNumbers(samples, &status), expected);
  EXPECT_OK(status);
}

// Rows are found some samples ahead, except those of samples that have to be decoded.
TEST(Batcher, RawAndCompressedSamplesOfSeveralChunksInTurn) {
  Random random(4);
  std::vector<ChunkRef> chunks;
  for (int i = 0; i < 20; ++i) {
    chunks.push_back(MakeChunk(50, i * 1000, i % 2 == 0 ? CodecPolicy::kNone : CodecPolicy::kLz4));
  }
  std::vector<Sample> samples;
  std::vector<int32_t> first(2 * 300), second(2 * 300);
  for (size_t i = 0; i < 300; ++i) {
    const std::array<uint32_t, 2> chunk = {static_cast<uint32_t>(random.Below(20)),
                                           static_cast<uint32_t>(random.Below(20))};
    const auto row = static_cast<uint32_t>(random.Below(50));
    samples.push_back(MakeSample({{.slices = {{chunks[chunk[0]], 0, row, 1}}, .squeeze = true},
                                  {.slices = {{chunks[chunk[1]], 0, 49 - row, 1}}}}));
    for (uint32_t k = 0; k < 2; ++k) {
      first[2 * i + k] = static_cast<int32_t>(chunk[0] * 1000 + 2 * row + k);
      second[2 * i + k] = static_cast<int32_t>(chunk[1] * 1000 + 2 * (49 - row) + k);
    }
  }
  std::vector<int32_t> a(first.size()), b(second.size());
  std::vector<int64_t> lengths(300);
  const std::array<ColumnTarget, 2> targets = {
      ColumnTarget{.data = reinterpret_cast<uint8_t*>(a.data())},
      ColumnTarget{.data = reinterpret_cast<uint8_t*>(b.data()), .lengths = lengths.data()}};
  ASSERT_OK(Gather(samples, LayoutOf(samples[0]).value(), targets));
  EXPECT_EQ(a, first);
  EXPECT_EQ(b, second);
  EXPECT_EQ(lengths, std::vector<int64_t>(300, 1));
}

// Samples whose rows are known are checked by the number of their layout.
TEST(Batcher, AnErrorNamesTheFirstSampleOfAnotherLayoutAmongKnownRows) {
  const ChunkRef a = MakeChunk(50, 0, CodecPolicy::kNone);
  const auto sample = [&](uint32_t row, uint32_t length) {
    return MakeSample(
        {{.slices = {{a, 0, row, length}}}, {.slices = {{a, 0, 49 - row, 1}}, .squeeze = true}});
  };
  std::vector<Sample> samples;
  for (uint32_t row = 0; row < 40; ++row) samples.push_back(sample(row, 2));
  samples[33] = sample(33, 3);
  ASSERT_NE(samples[33].trajectory.row_layout(), 0u);
  std::vector<int32_t> first(4 * 40, -1), second(2 * 40, -1);
  const std::array<ColumnTarget, 2> targets = {
      ColumnTarget{.data = reinterpret_cast<uint8_t*>(first.data())},
      ColumnTarget{.data = reinterpret_cast<uint8_t*>(second.data())}};
  EXPECT_THAT(Gather(samples, LayoutOf(samples[0]).value(), targets),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("sample 33")));
  // With padding, each has its own length.
  std::vector<int64_t> lengths(40);
  first.assign(6 * 40, -1);
  const std::array<ColumnTarget, 2> padded = {
      ColumnTarget{.data = reinterpret_cast<uint8_t*>(first.data()), .lengths = lengths.data()},
      ColumnTarget{.data = reinterpret_cast<uint8_t*>(second.data())}};
  ASSERT_OK(Gather(samples, PaddedLayoutOf(samples).value(), padded));
  for (int32_t row = 0; row < 40; ++row) {
    const auto at = static_cast<size_t>(row);
    EXPECT_EQ(lengths[at], row == 33 ? 3 : 2);
    const bool is_longest = row == 33;
    EXPECT_THAT(std::span(first).subspan(6 * at, 6),
                ElementsAre(2 * row, 2 * row + 1, 2 * row + 2, 2 * row + 3, is_longest ? 2 * row + 4 : 0,
                            is_longest ? 2 * row + 5 : 0));
    EXPECT_THAT(std::span(second).subspan(2 * at, 2), ElementsAre(98 - 2 * row, 99 - 2 * row));
  }
}

// Samples as received from a server that has arranged them for a batch.
TEST_P(BatcherTest, RunsOfConsecutiveRows) {
  const ChunkRef a = MakeChunk(100, 0, GetParam()), b = MakeChunk(100, 1000, GetParam());
  const Trajectory first =
      Trajectory::CreateSeries({{{.slices = {{a, 0, 10, 2}}}, {.slices = {{b, 0, 0, 1}}, .squeeze = true}}},
                               40)
          .value();
  // Two runs, one of them backwards, and one sample that is not part of the series.
  std::vector<Sample> samples;
  for (const uint32_t i : {3, 4, 5, 20, 21, 19, 18}) samples.push_back({.trajectory = first.InSeries(i)});
  samples.push_back(MakeSample({{.slices = {{b, 0, 7, 2}}}, {.slices = {{a, 0, 9, 1}}, .squeeze = true}}));
  std::vector<int32_t> pairs, rows;
  for (const int32_t i : {3, 4, 5, 20, 21, 19, 18}) {
    for (int32_t k = 0; k < 4; ++k) pairs.push_back(20 + 4 * i + k);
    for (int32_t k = 0; k < 2; ++k) rows.push_back(1000 + 2 * i + k);
  }
  pairs.insert(pairs.end(), {1014, 1015, 1016, 1017});
  rows.insert(rows.end(), {18, 19});

  const auto layout = LayoutOf(samples[0]).value();
  std::vector<int32_t> got_pairs(pairs.size(), -1), got_rows(rows.size(), -1);
  std::vector<int64_t> lengths(samples.size(), -1);
  const ColumnTarget targets[] = {
      {.data = reinterpret_cast<uint8_t*>(got_pairs.data()), .lengths = lengths.data()},
      {.data = reinterpret_cast<uint8_t*>(got_rows.data())}};
  ASSERT_OK(Gather(samples, layout, targets));
  EXPECT_EQ(got_pairs, pairs);
  EXPECT_EQ(got_rows, rows);
  EXPECT_THAT(lengths, ::testing::Each(2));

  // Rows of a run that is shorter than the batch are padded individually.
  std::vector<Sample> mixed(samples.begin(), samples.begin() + 2);
  mixed.push_back(MakeSample({{.slices = {{b, 0, 7, 3}}}, {.slices = {{a, 0, 9, 1}}, .squeeze = true}}));
  std::vector<int32_t> padded(3 * 6, -1);
  const ColumnTarget with_padding[] = {
      {.data = reinterpret_cast<uint8_t*>(padded.data()), .lengths = lengths.data()},
      {.data = reinterpret_cast<uint8_t*>(got_rows.data())}};
  ASSERT_OK(Gather(mixed, PaddedLayoutOf(mixed).value(), with_padding));
  EXPECT_THAT(padded,
              ElementsAre(32, 33, 34, 35, 0, 0, 36, 37, 38, 39, 0, 0, 1014, 1015, 1016, 1017, 1018, 1019));
}

TEST(Batcher, AnErrorNamesARunOfAnotherLayout) {
  const ChunkRef a = MakeChunk(10, 0, CodecPolicy::kNone);
  const Trajectory series = Trajectory::CreateSeries({{{.slices = {{a, 0, 0, 2}}}}}, 3).value();
  std::vector<Sample> samples;
  samples.push_back(MakeSample({{.slices = {{a, 0, 3, 1}}}}));
  for (uint32_t i = 0; i < 3; ++i) samples.push_back({.trajectory = series.InSeries(i)});
  Status status;
  GatherNumbers(samples, &status);
  EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, HasSubstr("sample 1")));
}

TEST(Batcher, AnErrorNamesASampleOfAnotherLayout) {
  const ChunkRef a = MakeChunk(10, 0, CodecPolicy::kNone);
  Status status;
  std::vector<Sample> lengths;
  lengths.push_back(MakeSample({{.slices = {{a, 0, 0, 2}}}}));
  lengths.push_back(MakeSample({{.slices = {{a, 0, 0, 3}}}}));
  GatherNumbers(lengths, &status);
  EXPECT_THAT(
      status,
      StatusIs(StatusCode::kInvalidArgument,
               HasSubstr("sample 1 (key 0), column 0: it is int32[3, 2] while the batch has int32[2, 2]")));
  std::vector<Sample> squeezed;
  squeezed.push_back(MakeSample({{.slices = {{a, 0, 0, 1}}}}));
  squeezed.push_back(MakeSample({{.slices = {{a, 0, 0, 1}}, .squeeze = true}}));
  GatherNumbers(squeezed, &status);
  EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument,
                               HasSubstr("it is int32[2] while the batch has int32[1, 2]")));
  std::vector<Sample> dtypes;
  dtypes.push_back(MakeSample({{.slices = {{a, 0, 0, 1}}}}));
  dtypes.push_back(MakeSample({{.slices = {{a, 1, 0, 1}}}}));
  GatherNumbers(dtypes, &status);
  EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, HasSubstr("string[1]")));
  std::vector<Sample> columns;
  columns.push_back(MakeSample({{.slices = {{a, 0, 0, 1}}}}));
  columns.push_back(MakeSample({{.slices = {{a, 0, 0, 1}}}, {.slices = {{a, 0, 0, 1}}}}));
  GatherNumbers(columns, &status);
  EXPECT_THAT(status,
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("has 2 columns while the batch has 1")));
  EXPECT_THAT(LayoutOf(Sample{}), StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace reverb::internal
