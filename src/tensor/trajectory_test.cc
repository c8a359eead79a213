#include "tensor/trajectory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/column.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::MakeChunk;
using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

template <typename T>
std::vector<uint8_t> BytesOf(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Creates chunks and counts the live ones.
class CountingStore final : public ChunkLedger {
 public:
  struct Stats {
    int64_t live_chunks = 0;
  };
  Result<ChunkRef> Add(const ChunkHeader& header, std::span<const uint8_t> payload) {
    Result<ChunkRef> chunk = Chunk::Copy(++last_id_, header, payload);
    if (chunk.ok()) (*chunk)->AttachLedger(this);
    return chunk;
  }
  Stats stats() const { return {live_}; }

  void CountNew(int64_t) override { ++live_; }
  void CountStored(Chunk*, int64_t) override {}
  void CountDestroyed(int64_t) override { --live_; }

 private:
  uint64_t last_id_ = 0;
  std::atomic<int64_t> live_{0};
};

class TrajectoryTest : public testing::Test {
 protected:
  // Columns of each step s: 0: s (int64), 1: {s, s + 0.5} (float32[2]), 2: "step s" (string).
  ChunkRef MakeWideChunk(int64_t first_step, uint32_t rows) {
    std::vector<int64_t> numbers;
    std::vector<float> pairs;
    std::vector<std::string> names;
    for (int64_t s = first_step; s < first_step + rows; ++s) {
      numbers.push_back(s);
      pairs.push_back(static_cast<float>(s));
      pairs.push_back(static_cast<float>(s) + 0.5f);
      names.push_back("step " + std::to_string(s));
    }
    ChunkHeader header{
        .episode_id = 1, .first_step = first_step, .last_step = first_step + rows - 1, .rows = rows};
    std::vector<uint8_t> payload;
    header.columns.push_back(ColumnEncoder(DType::kInt64, {}, CodecPolicy::kNone)
                                 .Encode(BytesOf(numbers), rows, &payload)
                                 .value());
    header.columns.push_back(ColumnEncoder(DType::kFloat32, {2}, CodecPolicy::kNone)
                                 .Encode(BytesOf(pairs), rows, &payload)
                                 .value());
    const std::vector<std::string_view> views(names.begin(), names.end());
    header.columns.push_back(
        ColumnEncoder(DType::kString, {}, CodecPolicy::kNone).EncodeStrings(views, rows, &payload).value());
    return store_.Add(header, payload).value();
  }
  ChunkRef MakeTypedChunk(DType dtype, std::vector<uint32_t> row_shape) {
    const size_t bytes = NumElements(row_shape) * ItemSize(dtype);
    ChunkHeader header{.episode_id = 1, .first_step = 0, .last_step = 0, .rows = 1};
    std::vector<uint8_t> payload;
    ColumnEncoder encoder(dtype, std::move(row_shape), CodecPolicy::kNone);
    header.columns.push_back(encoder.Encode(std::vector<uint8_t>(bytes), 1, &payload).value());
    return store_.Add(header, payload).value();
  }

  static std::vector<int64_t> ReadNumbers(const Trajectory& trajectory, uint32_t column) {
    std::vector<int64_t> values(static_cast<size_t>(trajectory.length(column)), -1);
    EXPECT_OK(trajectory.Read(column, {reinterpret_cast<uint8_t*>(values.data()), values.size() * 8}));
    return values;
  }
  static std::vector<Chunk*> ChunksOf(const Trajectory& trajectory) {
    std::vector<Chunk*> chunks;
    trajectory.ForEachChunk([&](Chunk* chunk) { chunks.push_back(chunk); });
    return chunks;
  }

  CountingStore store_;
};

TEST_F(TrajectoryTest, ADefaultTrajectoryIsEmpty) {
  const Trajectory empty;
  EXPECT_TRUE(empty.empty());
  EXPECT_EQ(empty.num_columns(), 0u);
  EXPECT_EQ(empty.num_chunks(), 0u);
  EXPECT_EQ(empty.chunk_bytes(), 0);
  EXPECT_TRUE(ChunksOf(empty).empty());
  const Trajectory copy = empty;  // NOLINT: copying an empty one works too
  EXPECT_TRUE(copy.empty());
}

TEST_F(TrajectoryTest, OneSliceOfOneChunk) {
  const ChunkRef chunk = MakeChunk(&store_, 1, 0, 10, 100);
  const auto trajectory = Trajectory::Single(chunk, 2, 5);
  ASSERT_OK(trajectory);
  EXPECT_FALSE(trajectory->empty());
  EXPECT_EQ(trajectory->num_columns(), 1u);
  EXPECT_EQ(trajectory->num_slices(0), 1u);
  EXPECT_EQ(trajectory->length(0), 5);
  EXPECT_FALSE(trajectory->squeeze(0));
  const SliceView slice = trajectory->slice(0, 0);
  EXPECT_EQ(slice.chunk, chunk.get());
  EXPECT_EQ(slice.chunk_column, 0u);
  EXPECT_EQ(slice.offset, 2u);
  EXPECT_EQ(slice.length, 5u);
  EXPECT_EQ(trajectory->num_chunks(), 1u);
  EXPECT_THAT(ChunksOf(*trajectory), ElementsAre(chunk.get()));
  EXPECT_EQ(trajectory->chunk_bytes(), chunk->bytes());
  EXPECT_EQ(trajectory->column_view(0).dtype, DType::kInt64);
  EXPECT_TRUE(trajectory->column_view(0).row_shape.empty());
  EXPECT_THAT(ReadNumbers(*trajectory, 0), ElementsAre(102, 103, 104, 105, 106));
}

TEST_F(TrajectoryTest, CreateOfOneSliceIsTheSameAsSingle) {
  const ChunkRef chunk = MakeChunk(&store_, 1, 0, 10);
  const auto single = Trajectory::Single(chunk, 3, 1, true);
  const auto created =
      Trajectory::Create({{{.slices = {{.chunk = chunk, .offset = 3, .length = 1}}, .squeeze = true}}});
  ASSERT_OK(single);
  ASSERT_OK(created);
  EXPECT_EQ(created->handle().bits, single->handle().bits);
  EXPECT_EQ(created->handle().offset, single->handle().offset);
  EXPECT_EQ(created->handle().length, single->handle().length);
  EXPECT_TRUE(created->squeeze(0));
  EXPECT_EQ(created->length(0), 1);
}

TEST_F(TrajectoryTest, SeveralColumnsOfSeveralChunks) {
  const ChunkRef a = MakeWideChunk(0, 4), b = MakeWideChunk(4, 4);
  const auto trajectory = Trajectory::Create({{
      {.slices = {{.chunk = a, .chunk_column = 0, .offset = 2, .length = 2},
                  {.chunk = b, .chunk_column = 0, .offset = 0, .length = 3}}},
      {.slices = {{.chunk = b, .chunk_column = 1, .offset = 3, .length = 1}}, .squeeze = true},
      {.slices = {{.chunk = a, .chunk_column = 2, .offset = 1, .length = 2}}},
  }});
  ASSERT_OK(trajectory);
  EXPECT_EQ(trajectory->num_columns(), 3u);
  EXPECT_EQ(trajectory->num_slices(0), 2u);
  EXPECT_EQ(trajectory->num_slices(1), 1u);
  EXPECT_EQ(trajectory->num_slices(2), 1u);
  EXPECT_EQ(trajectory->length(0), 5);
  EXPECT_EQ(trajectory->length(1), 1);
  EXPECT_EQ(trajectory->length(2), 2);
  EXPECT_FALSE(trajectory->squeeze(0));
  EXPECT_TRUE(trajectory->squeeze(1));
  EXPECT_FALSE(trajectory->squeeze(2));
  EXPECT_EQ(trajectory->slice(0, 1).chunk, b.get());
  EXPECT_EQ(trajectory->slice(1, 0).chunk_column, 1u);
  EXPECT_THAT(ChunksOf(*trajectory), ElementsAre(a.get(), b.get())) << "each once, in order of appearance";
  EXPECT_EQ(trajectory->chunk_bytes(), a->bytes() + b->bytes());

  EXPECT_THAT(ReadNumbers(*trajectory, 0), ElementsAre(2, 3, 4, 5, 6));
  EXPECT_EQ(trajectory->column_view(1).dtype, DType::kFloat32);
  EXPECT_THAT(trajectory->column_view(1).row_shape, ElementsAre(2));
  float pair[2];
  ASSERT_OK(trajectory->Read(1, {reinterpret_cast<uint8_t*>(pair), sizeof(pair)}));
  EXPECT_THAT(pair, ElementsAre(7.0f, 7.5f));
  std::vector<std::string> names = {"kept"};
  ASSERT_OK(trajectory->ReadStrings(2, &names));
  EXPECT_THAT(names, ElementsAre("kept", "step 1", "step 2"));
}

TEST_F(TrajectoryTest, OneColumnThatIsNotTheFirstOfItsChunk) {
  const ChunkRef chunk = MakeWideChunk(5, 3);
  const auto trajectory =
      Trajectory::Create({{{.slices = {{.chunk = chunk, .chunk_column = 1, .offset = 1, .length = 1}}}}});
  ASSERT_OK(trajectory);
  EXPECT_EQ(trajectory->slice(0, 0).chunk_column, 1u);
  float pair[2];
  ASSERT_OK(trajectory->Read(0, {reinterpret_cast<uint8_t*>(pair), sizeof(pair)}));
  EXPECT_THAT(pair, ElementsAre(6.0f, 6.5f));
}

// dm-reverb got this wrong: rows of one chunk that are not consecutive.
TEST_F(TrajectoryTest, SlicesOfOneChunkMaySkipRepeatAndRunBackwards) {
  const ChunkRef chunk = MakeChunk(&store_, 1, 0, 10, 100);
  const auto rows = [&](std::vector<std::pair<uint32_t, uint32_t>> slices) {
    ColumnSpec column;
    for (const auto& [offset, length] : slices)
      column.slices.push_back({.chunk = chunk, .offset = offset, .length = length});
    const auto trajectory = Trajectory::Create({{column}});
    EXPECT_OK(trajectory);
    EXPECT_EQ(trajectory->num_slices(0), slices.size());
    EXPECT_EQ(trajectory->num_chunks(), 1u);
    EXPECT_EQ(trajectory->chunk_bytes(), chunk->bytes());
    return ReadNumbers(*trajectory, 0);
  };
  EXPECT_THAT(rows({{0, 1}, {2, 1}, {4, 1}}), ElementsAre(100, 102, 104)) << "every second";
  EXPECT_THAT(rows({{3, 1}, {3, 1}, {3, 1}}), ElementsAre(103, 103, 103)) << "the same";
  EXPECT_THAT(rows({{3, 1}, {2, 1}, {1, 1}}), ElementsAre(103, 102, 101)) << "backwards";
  EXPECT_THAT(rows({{4, 3}, {5, 3}}), ElementsAre(104, 105, 106, 105, 106, 107)) << "overlapping";
  EXPECT_THAT(rows({{4, 2}, {6, 2}}), ElementsAre(104, 105, 106, 107)) << "adjacent";
}

TEST_F(TrajectoryTest, ManyChunks) {
  // More than the scan limit, with repeats before and after that point.
  constexpr uint32_t kChunks = 100;
  std::vector<ChunkRef> chunks;
  for (uint32_t i = 0; i < kChunks; ++i) chunks.push_back(MakeChunk(&store_, 1, i, 2, int64_t{2} * i));
  for (const uint32_t count : {15u, 16u, 17u, 18u, kChunks}) {
    ColumnSpec forward, backward;
    std::vector<int64_t> expected_forward, expected_backward;
    std::vector<Chunk*> distinct;
    for (uint32_t i = 0; i < count; ++i) {
      forward.slices.push_back({.chunk = chunks[i], .offset = 0, .length = 2});
      expected_forward.insert(expected_forward.end(), {int64_t{2} * i, int64_t{2} * i + 1});
      // Repeats an old one.
      forward.slices.push_back({.chunk = chunks[i / 2], .offset = 1, .length = 1});
      expected_forward.push_back(int64_t{2} * (i / 2) + 1);
      distinct.push_back(chunks[i].get());
    }
    for (uint32_t i = count; i-- > 0;) {
      backward.slices.push_back({.chunk = chunks[i], .offset = 1, .length = 1});
      expected_backward.push_back(int64_t{2} * i + 1);
    }
    const auto trajectory = Trajectory::Create({{forward, backward}});
    ASSERT_OK(trajectory);
    EXPECT_EQ(trajectory->num_chunks(), count);
    EXPECT_THAT(ChunksOf(*trajectory), ElementsAreArray(distinct));
    EXPECT_THAT(ReadNumbers(*trajectory, 0), ElementsAreArray(expected_forward));
    EXPECT_THAT(ReadNumbers(*trajectory, 1), ElementsAreArray(expected_backward));
  }
}

TEST_F(TrajectoryTest, OnlyASingleRowCanBeSqueezed) {
  const ChunkRef chunk = MakeChunk(&store_, 1, 0, 10);
  EXPECT_OK(Trajectory::Single(chunk, 0, 1, true));
  EXPECT_THAT(Trajectory::Single(chunk, 0, 2, true),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("column 0"), HasSubstr("2 rows"))));
  const ColumnSpec plain{.slices = {{.chunk = chunk, .offset = 0, .length = 3}}};
  const ColumnSpec two_slices{
      .slices = {{.chunk = chunk, .offset = 0, .length = 1}, {.chunk = chunk, .offset = 4, .length = 1}},
      .squeeze = true};
  EXPECT_THAT(Trajectory::Create({{plain, two_slices}}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("column 1"), HasSubstr("squeezed"), HasSubstr("2 rows"))));
  const ColumnSpec long_slice{.slices = {{.chunk = chunk, .offset = 0, .length = 3}}, .squeeze = true};
  EXPECT_THAT(Trajectory::Create({{long_slice}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("3 rows")));
  EXPECT_THAT(Trajectory::Create({{plain, long_slice}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("column 1")));
}

TEST_F(TrajectoryTest, RejectsColumnsWithoutRows) {
  const ChunkRef chunk = MakeChunk(&store_, 1, 0, 10);
  EXPECT_THAT(Trajectory::Create({}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("item trajectory must not be empty")));
  EXPECT_THAT(Trajectory::Create({{ColumnSpec()}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("item trajectory must not be empty")));
  const ColumnSpec good{.slices = {{.chunk = chunk, .offset = 0, .length = 3}}};
  EXPECT_THAT(
      Trajectory::Create({{good, ColumnSpec()}}),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("must not be empty"), HasSubstr("column 1"))));
}

TEST_F(TrajectoryTest, RejectsSlicesOutsideTheirChunk) {
  const ChunkRef chunk = MakeChunk(&store_, 1, 0, 10);
  const SliceSpec good{.chunk = chunk, .offset = 0, .length = 3};
  // Each invalid slice alone (the short form), as a later slice, and in a later column.
  const auto refused = [&](SliceSpec bad, std::string_view text) {
    const auto is_refused = StatusIs(StatusCode::kInvalidArgument, HasSubstr(std::string(text)));
    EXPECT_THAT(Trajectory::Create({{{.slices = {bad}}}}), is_refused);
    EXPECT_THAT(Trajectory::Create({{{.slices = {good, bad}}}}),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("column 0, slice 1"), HasSubstr(std::string(text)))));
    EXPECT_THAT(Trajectory::Create({{{.slices = {good}}, {.slices = {bad}}}}),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("column 1, slice 0"), HasSubstr(std::string(text)))));
    if (bad.chunk_column == 0) {
      EXPECT_THAT(Trajectory::Single(bad.chunk, bad.offset, bad.length), is_refused);
    }
  };
  refused({.chunk = ChunkRef(), .offset = 0, .length = 1}, "no chunk");
  refused({.chunk = chunk, .chunk_column = 1, .offset = 0, .length = 1}, "column 1 of a chunk that has 1");
  refused({.chunk = chunk, .chunk_column = UINT32_MAX, .offset = 0, .length = 1}, "of a chunk that has 1");
  refused({.chunk = chunk, .offset = 0, .length = 0}, "10 rows");
  refused({.chunk = chunk, .offset = 0, .length = 11}, "10 rows");
  refused({.chunk = chunk, .offset = 10, .length = 1}, "10 rows");
  refused({.chunk = chunk, .offset = 9, .length = 2}, "10 rows");
  refused({.chunk = chunk, .offset = UINT32_MAX, .length = 1}, "10 rows");
  refused({.chunk = chunk, .offset = 1, .length = UINT32_MAX}, "10 rows");  // the sum overflows
  refused({.chunk = chunk, .offset = 2, .length = 1u << 31}, "10 rows");
  refused({.chunk = chunk, .offset = 2, .length = (1u << 31) | 1}, "10 rows");  // not a squeezed row
  EXPECT_OK(Trajectory::Single(chunk, 9, 1));
  EXPECT_OK(Trajectory::Single(chunk, 0, 10));
}

TEST_F(TrajectoryTest, RejectsColumnsOfMixedDTypesOrShapes) {
  const ChunkRef numbers = MakeChunk(&store_, 1, 0, 1);
  const ChunkRef floats = MakeTypedChunk(DType::kFloat32, {});
  const ChunkRef pairs = MakeTypedChunk(DType::kFloat32, {2});
  const ChunkRef pairs_too = MakeTypedChunk(DType::kFloat32, {2});
  const ChunkRef triples = MakeTypedChunk(DType::kFloat32, {3});
  const ChunkRef tall = MakeTypedChunk(DType::kFloat32, {2, 1});
  const auto join = [](const ChunkRef& a, const ChunkRef& b) {
    return Trajectory::Create({{{.slices = {{.chunk = a, .offset = 0, .length = 1},
                                            {.chunk = b, .offset = 0, .length = 1}}}}})
        .status();
  };
  EXPECT_THAT(join(numbers, floats),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("column 0 mixes"), HasSubstr("int64[]"), HasSubstr("float32[]"))));
  EXPECT_THAT(join(floats, pairs), StatusIs(StatusCode::kInvalidArgument, HasSubstr("float32[2]")));
  EXPECT_THAT(join(pairs, triples), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(join(pairs, tall), StatusIs(StatusCode::kInvalidArgument, HasSubstr("float32[2, 1]")));
  EXPECT_OK(join(pairs, pairs_too));
  // Different columns may differ.
  EXPECT_OK(Trajectory::Create({{{.slices = {{.chunk = numbers, .offset = 0, .length = 1}}},
                                 {.slices = {{.chunk = pairs, .offset = 0, .length = 1}}}}}));
}

TEST_F(TrajectoryTest, ReadRequiresAnOutputOfExactSize) {
  const ChunkRef chunk = MakeChunk(&store_, 1, 0, 10);
  const auto single = Trajectory::Single(chunk, 0, 4);
  const auto several = Trajectory::Create({{{.slices = {{.chunk = chunk, .offset = 0, .length = 2},
                                                        {.chunk = chunk, .offset = 5, .length = 2}}}}});
  ASSERT_OK(single);
  ASSERT_OK(several);
  std::vector<uint8_t> out(40);
  for (const Trajectory* trajectory : {&*single, &*several}) {
    EXPECT_OK(trajectory->Read(0, std::span(out).first(32)));
    EXPECT_THAT(trajectory->Read(0, std::span(out).first(31)),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("too small")));
    EXPECT_THAT(trajectory->Read(0, std::span(out).first(33)),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("too large")));
    EXPECT_THAT(trajectory->Read(0, {}), StatusIs(StatusCode::kInvalidArgument));
  }
}

TEST_F(TrajectoryTest, StringsAndNumbersHaveSeparateReadMethods) {
  const ChunkRef chunk = MakeWideChunk(0, 3);
  const auto trajectory =
      Trajectory::Create({{{.slices = {{.chunk = chunk, .chunk_column = 0, .offset = 0, .length = 3}}},
                           {.slices = {{.chunk = chunk, .chunk_column = 2, .offset = 2, .length = 1},
                                       {.chunk = chunk, .chunk_column = 2, .offset = 0, .length = 2}}}}});
  ASSERT_OK(trajectory);
  std::vector<std::string> names;
  ASSERT_OK(trajectory->ReadStrings(1, &names));
  EXPECT_THAT(names, ElementsAre("step 2", "step 0", "step 1"));
  EXPECT_FALSE(trajectory->ReadStrings(0, &names).ok());
  EXPECT_FALSE(trajectory->Read(1, {}).ok());
}

TEST_F(TrajectoryTest, CompressedBlocksCanBeReadFromAnySlice) {
  constexpr uint32_t kRows = 30'000;  // several blocks
  std::vector<int64_t> values(kRows);
  for (uint32_t i = 0; i < kRows; ++i) values[i] = i / 3;
  ChunkHeader header{.episode_id = 1, .first_step = 0, .last_step = kRows - 1, .rows = kRows};
  std::vector<uint8_t> payload;
  header.columns.push_back(
      ColumnEncoder(DType::kInt64, {}, CodecPolicy::kAuto).Encode(BytesOf(values), kRows, &payload).value());
  ASSERT_GT(header.columns[0].blocks.size(), 1u);
  const ChunkRef chunk = store_.Add(header, payload).value();
  const auto trajectory =
      Trajectory::Create({{{.slices = {{.chunk = chunk, .offset = 29'990, .length = 10},
                                       {.chunk = chunk, .offset = 0, .length = kRows},
                                       {.chunk = chunk, .offset = 8'000, .length = 500}}}}});
  ASSERT_OK(trajectory);
  std::vector<int64_t> expected(values.end() - 10, values.end());
  expected.insert(expected.end(), values.begin(), values.end());
  expected.insert(expected.end(), values.begin() + 8'000, values.begin() + 8'500);
  EXPECT_EQ(ReadNumbers(*trajectory, 0), expected);
}

// --- Ownership ---

TEST_F(TrajectoryTest, KeepsItsChunksAliveUntilDestroyed) {
  ChunkRef a = MakeChunk(&store_, 1, 0, 4, 10), b = MakeChunk(&store_, 1, 4, 4, 20);
  auto single = Trajectory::Single(a, 0, 4);
  auto several = Trajectory::Create({{{.slices = {{.chunk = a, .offset = 0, .length = 1},
                                                  {.chunk = b, .offset = 0, .length = 1},
                                                  {.chunk = a, .offset = 2, .length = 1}}}}});
  ASSERT_OK(single);
  ASSERT_OK(several);
  a = ChunkRef();
  b = ChunkRef();
  EXPECT_EQ(store_.stats().live_chunks, 2);
  EXPECT_THAT(ReadNumbers(*several, 0), ElementsAre(10, 20, 12));
  *several = Trajectory(*single);
  EXPECT_EQ(store_.stats().live_chunks, 1);
  EXPECT_THAT(ReadNumbers(*several, 0), ElementsAre(10, 11, 12, 13));
  *several = Trajectory(), *single = Trajectory();
  EXPECT_EQ(store_.stats().live_chunks, 0);
}

TEST_F(TrajectoryTest, ARejectedTrajectoryKeepsNoChunks) {
  {
    const ChunkRef chunk = MakeChunk(&store_, 1, 0, 4);
    EXPECT_FALSE(Trajectory::Single(chunk, 4, 1).ok());
    EXPECT_FALSE(Trajectory::Create({{{.slices = {{.chunk = chunk, .offset = 0, .length = 1},
                                                  {.chunk = chunk, .offset = 4, .length = 1}}}}})
                     .ok());
  }
  EXPECT_EQ(store_.stats().live_chunks, 0);
}

TEST_F(TrajectoryTest, CopiesAndMoves) {
  for (const bool is_block : {false, true}) {
    SCOPED_TRACE(is_block);
    {
      const auto make = [&](int64_t value) {
        ChunkRef chunk = MakeChunk(&store_, 1, 0, 2, value);
        if (!is_block) return Trajectory::Single(std::move(chunk), 1, 1).value();
        const SliceSpec slice{.chunk = chunk, .offset = 1, .length = 1};
        return Trajectory::Create({{{.slices = {slice}}, {.slices = {slice}}}}).value();
      };
      Trajectory a = make(10);
      Trajectory b = make(20);
      EXPECT_EQ(store_.stats().live_chunks, 2);
      Trajectory copy = a;
      EXPECT_EQ(copy.handle().bits, a.handle().bits);
      Trajectory moved = std::move(a);
      EXPECT_TRUE(a.empty());  // NOLINT: moved from, so empty
      EXPECT_THAT(ReadNumbers(moved, 0), ElementsAre(11));
      copy = b;
      EXPECT_THAT(ReadNumbers(copy, 0), ElementsAre(21));
      copy = *&copy;  // self-assignment
      EXPECT_THAT(ReadNumbers(copy, 0), ElementsAre(21));
      b = std::move(moved);
      EXPECT_THAT(ReadNumbers(b, 0), ElementsAre(11));
      // Raw handles.
      const TrajectoryHandle handle = b.Release();
      EXPECT_TRUE(b.empty());
      Trajectory shared = Trajectory::Share(handle);
      Trajectory adopted = Trajectory::Adopt(handle);
      EXPECT_THAT(ReadNumbers(shared, 0), ElementsAre(11));
      adopted = Trajectory();
      EXPECT_THAT(ReadNumbers(shared, 0), ElementsAre(11));
      EXPECT_EQ(store_.stats().live_chunks, 2);
    }
    EXPECT_EQ(store_.stats().live_chunks, 0);
  }
}

TEST_F(TrajectoryTest, TheCountedObjectIsTheOneACopyAccesses) {
  const ChunkRef chunk = MakeChunk(&store_, 1, 0, 2);
  const Trajectory single = Trajectory::Single(chunk, 0, 1).value();
  EXPECT_EQ(Trajectory::counted_object(single.handle()), chunk.get());
  EXPECT_EQ(Trajectory::counted_object(TrajectoryHandle()), nullptr);
}

TEST_F(TrajectoryTest, ASeriesConsistsOfConsecutiveRows) {
  {
    const ChunkRef a = MakeWideChunk(0, 20), b = MakeWideChunk(100, 9);
    const std::vector<ColumnSpec> columns = {
        {.slices = {{a, 0, 2, 3}}}, {.slices = {{b, 0, 1, 1}}, .squeeze = true}, {.slices = {{b, 2, 0, 2}}}};
    const Trajectory first = Trajectory::CreateSeries(columns, 4).value();
    const Trajectory third = first.InSeries(2);
    EXPECT_THAT(ReadNumbers(first, 0), ElementsAre(2, 3, 4));
    EXPECT_THAT(ReadNumbers(third, 0), ElementsAre(8, 9, 10));
    EXPECT_THAT(ReadNumbers(third, 1), ElementsAre(103));
    EXPECT_FALSE(third.squeeze(0));
    EXPECT_TRUE(third.squeeze(1));
    std::vector<std::string> names;
    ASSERT_OK(third.ReadStrings(2, &names));
    EXPECT_THAT(names, ElementsAre("step 104", "step 105"));
    EXPECT_THAT(ChunksOf(third), ElementsAre(a.get(), b.get()));
    EXPECT_TRUE(third.Follows(first.InSeries(1)));
    EXPECT_FALSE(third.Follows(first));
    EXPECT_FALSE(third.Follows(third));
    EXPECT_FALSE(first.Follows(third));
    EXPECT_FALSE(third.Follows(Trajectory::CreateSeries(columns, 4).value().InSeries(1)));

    // One slice of one chunk needs no block.
    const Trajectory alone =
        Trajectory::CreateSeries({{{.slices = {{a, 0, 1, 1}}, .squeeze = true}}}, 19).value();
    EXPECT_THAT(ReadNumbers(alone.InSeries(18), 0), ElementsAre(19));
    EXPECT_TRUE(alone.InSeries(18).squeeze(0));
    EXPECT_TRUE(alone.InSeries(18).Follows(alone.InSeries(17)));
    EXPECT_FALSE(alone.InSeries(18).Follows(alone.InSeries(16)));
    EXPECT_FALSE(Trajectory().Follows(Trajectory()));
  }
  EXPECT_EQ(store_.stats().live_chunks, 0);
}

TEST_F(TrajectoryTest, ASeriesMustFitIntoItsChunks) {
  const ChunkRef a = MakeWideChunk(0, 10);
  const auto create = [&](uint32_t offset, uint32_t length, uint32_t count) {
    return Trajectory::CreateSeries({{{.slices = {{a, 0, offset, length}}}}}, count);
  };
  EXPECT_OK(create(1, 3, 3));
  EXPECT_OK(create(9, 1, 1));
  const auto refused = [](const char* text) {
    return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(create(2, 3, 3),
              refused("3 times 3 rows from 2 on are not all in the chunk, which has 10 rows"));
  EXPECT_THAT(create(11, 1, 1), refused("which has 10 rows"));
  EXPECT_THAT(create(0, 0, 3), refused("rows 0 to 0"));
  EXPECT_THAT(create(10, 1, 0), refused("not all in the chunk"));
  EXPECT_THAT(create(0, UINT32_MAX, UINT32_MAX), refused("which has 10 rows"));
  EXPECT_THAT(Trajectory::CreateSeries({{{.slices = {{a, 0, 0, 1}, {a, 0, 1, 1}}}}}, 2),
              refused("has 2 slices"));
  EXPECT_THAT(Trajectory::CreateSeries({{{.slices = {{ChunkRef(), 0, 0, 1}}}}}, 1), refused("has 0 rows"));
  EXPECT_THAT(Trajectory::CreateSeries({}, 1), refused("it has no column"));
}

TEST_F(TrajectoryTest, RowsOfSingleRawSlicesAreKnown) {
  const ChunkRef a = MakeWideChunk(0, 10), b = MakeWideChunk(100, 10);
  const auto create = [](std::vector<ColumnSpec> columns) { return Trajectory::Create(columns).value(); };
  const Trajectory item = create(
      {{.slices = {{a, 0, 3, 2}}}, {.slices = {{b, 1, 7, 1}}, .squeeze = true}, {.slices = {{b, 0, 9, 1}}}});
  ASSERT_NE(item.row_layout(), 0u);
  ASSERT_EQ(item.rows().size(), 3u);
  for (uint32_t c = 0; c < 3; ++c) {
    std::vector<uint8_t> read(static_cast<size_t>(item.length(c)) * 8);
    ASSERT_OK(item.Read(c, read));
    EXPECT_THAT(std::span(item.rows()[c], read.size()), ElementsAreArray(read)) << c;
  }
  // The rest of the block is where it is expected.
  EXPECT_THAT(ChunksOf(item), ElementsAre(a.get(), b.get()));
  EXPECT_THAT(ReadNumbers(item, 0), ElementsAre(3, 4));
  EXPECT_THAT(ReadNumbers(item, 2), ElementsAre(109));
  EXPECT_TRUE(item.squeeze(1));
  EXPECT_FALSE(item.squeeze(2));

  // Other rows of other chunks have the same layout.
  EXPECT_EQ(create({{.slices = {{b, 0, 0, 2}}},
                    {.slices = {{a, 1, 0, 1}}, .squeeze = true},
                    {.slices = {{a, 0, 1, 1}}}})
                .row_layout(),
            item.row_layout());
  // Another length, another column, one that is not squeezed.
  const Trajectory two = create({{.slices = {{a, 0, 3, 1}}}, {.slices = {{a, 1, 3, 1}}}});
  for (const Trajectory& other :
       {create({{.slices = {{a, 0, 3, 2}}}, {.slices = {{a, 1, 3, 1}}}}),
        create({{.slices = {{a, 1, 3, 1}}}, {.slices = {{a, 0, 3, 1}}}}),
        create({{.slices = {{a, 0, 3, 1}}, .squeeze = true}, {.slices = {{a, 1, 3, 1}}}})}) {
    EXPECT_NE(other.row_layout(), 0u);
    EXPECT_NE(other.row_layout(), two.row_layout());
  }
}

TEST_F(TrajectoryTest, ReplacedChunksHaveTheirRowsElsewhere) {
  const ChunkRef a = MakeWideChunk(0, 10), b = MakeWideChunk(100, 10);
  const std::vector<ColumnSpec> columns = {{.slices = {{a, 0, 3, 2}}},
                                           {.slices = {{a, 1, 3, 1}}, .squeeze = true}};
  const Trajectory item = Trajectory::Create(columns).value();
  ASSERT_NE(item.row_layout(), 0u);
  const Trajectory replaced = item.WithChunks([&](const Chunk*) { return b; }).value();
  EXPECT_EQ(replaced.row_layout(), 0u);
  EXPECT_LT(replaced.memory_bytes(), item.memory_bytes());
  EXPECT_THAT(ChunksOf(replaced), ElementsAre(b.get()));
  EXPECT_THAT(ReadNumbers(replaced, 0), ElementsAre(103, 104));
  EXPECT_TRUE(replaced.squeeze(1));
  EXPECT_THAT(ReadNumbers(item, 0), ElementsAre(3, 4)) << "is unchanged";
}

TEST_F(TrajectoryTest, RowsOfOtherTrajectoriesAreNotKnown) {
  const ChunkRef a = MakeWideChunk(0, 10);
  const auto layout_of = [](std::vector<ColumnSpec> columns) {
    return Trajectory::Create(columns).value().row_layout();
  };
  EXPECT_EQ(Trajectory().row_layout(), 0u);
  EXPECT_EQ(layout_of({{.slices = {{a, 0, 0, 1}}}}), 0u) << "without a block";
  EXPECT_EQ(layout_of({{.slices = {{a, 0, 0, 1}, {a, 0, 5, 1}}}, {.slices = {{a, 1, 0, 1}}}}), 0u)
      << "two slices";
  EXPECT_EQ(layout_of({{.slices = {{a, 0, 0, 1}}}, {.slices = {{a, 2, 0, 1}}}}), 0u) << "strings";
  // Rows of a series are not those of its first element.
  const std::vector<ColumnSpec> columns = {{.slices = {{a, 0, 0, 1}}}, {.slices = {{a, 1, 0, 1}}}};
  EXPECT_NE(layout_of(columns), 0u);
  EXPECT_EQ(Trajectory::CreateSeries(columns, 4).value().InSeries(2).row_layout(), 0u);
  // Compressed rows.
  std::vector<uint8_t> payload;
  ChunkHeader header{.last_step = 999, .rows = 1000};
  header.columns.push_back(ColumnEncoder(DType::kInt64, {}, CodecPolicy::kLz4)
                               .Encode(std::vector<uint8_t>(8000), 1000, &payload)
                               .value());
  const ChunkRef compressed = store_.Add(header, payload).value();
  EXPECT_EQ(layout_of({{.slices = {{a, 0, 0, 1}}}, {.slices = {{compressed, 0, 0, 1}}}}), 0u);
  // A payload that is not in memory of the chunk: its owner may lose it.
  const ChunkRef external = Chunk::External(7, a->header().Unpack(), Buffer::CopyOf(a->payload())).value();
  EXPECT_EQ(layout_of({{.slices = {{external, 0, 0, 1}}}, {.slices = {{external, 1, 0, 1}}}}), 0u);
  // Too many columns.
  EXPECT_NE(layout_of(std::vector<ColumnSpec>(16, columns[0])), 0u);
  EXPECT_EQ(layout_of(std::vector<ColumnSpec>(17, columns[0])), 0u);
}

TEST_F(TrajectoryTest, ScatteredBytesReadLikeContiguousBytes) {
  const ChunkRef whole = MakeWideChunk(5, 20);
  const std::span<const uint8_t> payload = whole->payload();
  std::vector<ScatteredBytes::Part> parts;
  for (size_t at = 0; at < payload.size(); at += 7) {
    parts.push_back(payload.subspan(at, std::min<size_t>(7, payload.size() - at)));
  }
  const ChunkRef scattered = Chunk::Scattered(99, whole->header().Unpack(),
                                              std::make_unique<ScatteredBytes>(Buffer(), std::move(parts)))
                                 .value();
  ASSERT_TRUE(scattered->is_scattered());
  for (uint32_t column = 0; column < 2; ++column) {
    EXPECT_OK(VerifyChecksums(whole->header().column(column), whole->column_payload(column)));
    for (const auto& [offset, length] : {std::pair(0u, 20u), std::pair(3u, 1u), std::pair(7u, 13u)}) {
      const auto read = [&, offset = offset, length = length](const ChunkRef& chunk) {
        const Trajectory trajectory =
            Trajectory::Create(std::vector<ColumnSpec>{{.slices = {{.chunk = chunk,
                                                                    .chunk_column = column,
                                                                    .offset = offset,
                                                                    .length = length}}}})
                .value();
        std::vector<uint8_t> out(length * 8);
        EXPECT_OK(trajectory.Read(0, out));
        return out;
      };
      EXPECT_EQ(read(scattered), read(whole));
    }
  }
  EXPECT_TRUE(std::ranges::equal(scattered->payload(), payload));
}

}  // namespace
}  // namespace reverb::internal
