#include "tensor/distinct_chunks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tensor/column.h"

namespace reverb::internal {
namespace {

ChunkRef MakeChunk(uint64_t id, size_t row_bytes) {
  ColumnEncoder encoder(DType::kUint8, {static_cast<uint32_t>(row_bytes)}, CodecPolicy::kNone);
  std::vector<uint8_t> payload;
  ChunkHeader header;
  header.rows = 1;
  header.columns.push_back(encoder.Encode(std::vector<uint8_t>(row_bytes), 1, &payload).value());
  return Chunk::Copy(id, header, payload).value();
}

Trajectory TrajectoryOver(const std::vector<ChunkRef>& chunks) {
  std::vector<ColumnSpec> columns;
  for (const ChunkRef& chunk : chunks) columns.push_back({.slices = {{.chunk = chunk, .length = 1}}});
  return Trajectory::Create(columns).value();
}

TEST(DistinctChunksTest, AChunkCountsOnceFromItsFirstUseToItsLast) {
  const ChunkRef a = MakeChunk(7, 100);
  const ChunkRef b = MakeChunk(9, 100);
  const Trajectory both = TrajectoryOver({a, b});
  const Trajectory one = TrajectoryOver({b});
  DistinctChunks chunks;
  EXPECT_EQ(chunks.Add(both), a->bytes() + b->bytes());
  EXPECT_EQ(chunks.Add(one), 0);
  EXPECT_EQ(chunks.Remove(both), a->bytes());
  EXPECT_EQ(chunks.bytes(), b->bytes());
  EXPECT_EQ(chunks.Remove(one), b->bytes());
  EXPECT_EQ(chunks.bytes(), 0);
}

TEST(DistinctChunksTest, AgreesWithAPlainCountInAnyOrder) {
  std::mt19937 random(11);
  std::vector<ChunkRef> all;
  for (uint64_t id = 1; id <= 30; ++id) all.push_back(MakeChunk(id * 3, 8 * id));
  DistinctChunks chunks;
  std::vector<std::pair<Trajectory, std::vector<const Chunk*>>> held;
  std::map<const Chunk*, int> model;
  const auto model_bytes = [&] {
    int64_t bytes = 0;
    for (const auto& [chunk, uses] : model) bytes += uses > 0 ? chunk->bytes() : 0;
    return bytes;
  };
  for (size_t step = 0; step < 2000; ++step) {
    if (held.empty() || (held.size() < 20 && random() % 2 == 0)) {
      std::set<size_t> picked;
      while (picked.size() < 1 + step % 4) picked.insert(random() % all.size());
      std::vector<ChunkRef> refs;
      std::vector<const Chunk*> plain;
      for (const size_t i : picked) {
        refs.push_back(all[i]);
        plain.push_back(all[i].get());
        ++model[all[i].get()];
      }
      std::ranges::shuffle(refs, random);
      held.emplace_back(TrajectoryOver(refs), plain);
      chunks.Add(held.back().first);
    } else {
      const size_t i = random() % held.size();
      chunks.Remove(held[i].first);
      for (const Chunk* chunk : held[i].second) --model[chunk];
      held.erase(held.begin() + static_cast<ptrdiff_t>(i));
    }
    ASSERT_EQ(chunks.bytes(), model_bytes()) << "step " << step;
  }
}

TEST(DistinctChunksTest, ALongLivedChunkDoesNotRetainRemovedEntries) {
  DistinctChunks chunks;
  const Trajectory first = TrajectoryOver({MakeChunk(1, 8)});
  const int64_t stays = chunks.Add(first);
  for (uint64_t id = 2; id < 10'000; ++id) {
    const Trajectory passing = TrajectoryOver({MakeChunk(id, 8)});
    chunks.Add(passing);
    chunks.Remove(passing);
  }
  EXPECT_EQ(chunks.bytes(), stays);
  EXPECT_LT(chunks.num_entries(), 200u);
}

TEST(DistinctChunksTest, AnyOrderOfManyChunksTakesLittleTime) {
  // Inserting each of these between two others, and moving those, would take minutes.
  constexpr uint64_t kChunks = 400'000;
  std::vector<Trajectory> trajectories;
  for (const uint64_t parity : {0, 1}) {
    for (uint64_t id = 1; id <= kChunks / 2; ++id) {
      trajectories.push_back(Trajectory::Single(MakeChunk(2 * id + parity, 8), 0, 1).value());
    }
  }
  DistinctChunks chunks;
  int64_t bytes = 0;
  for (const Trajectory& trajectory : trajectories) bytes += chunks.Add(trajectory);
  EXPECT_EQ(chunks.bytes(), bytes);
  EXPECT_EQ(chunks.num_entries(), kChunks);
  // From the middle on, so that the first entries stay.
  for (size_t i = 0; i < trajectories.size(); ++i) {
    chunks.Remove(trajectories[(i + kChunks / 4) % trajectories.size()]);
  }
  EXPECT_EQ(chunks.bytes(), 0);
  EXPECT_EQ(chunks.num_entries(), 0u);
}

}  // namespace
}  // namespace reverb::internal
