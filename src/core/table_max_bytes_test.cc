// Tests tables with max_bytes: the remover evicts items when the data of the table becomes larger.
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "core/table_testing.h"
#include "testing/chunks.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TableMaxBytesTest : public TableFixture {
 protected:
  int64_t ChunkBytes() { return test::MakeChunk(store_.get(), 0, 0, 1)->bytes(); }
  TableOptions Options(int64_t chunks) {
    return {.remover = SelectorOptions::Fifo(), .max_bytes = chunks * ChunkBytes()};
  }
};

TEST_F(TableMaxBytesTest, TheRemoverMakesRoom) {
  auto table = Make(Options(2));
  for (uint64_t key : {1, 2, 3, 4}) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(table->size(), 2);
  EXPECT_FALSE(table->Find(2));
  EXPECT_TRUE(table->Find(3));
  EXPECT_EQ(table->Info().evictions, 2);
  EXPECT_EQ(table->Info().max_bytes, 2 * ChunkBytes());
}

TEST_F(TableMaxBytesTest, OtherTablesAreNotAffected) {
  auto small = Make(Options(2));
  auto other = Make({.name = "other"});
  for (uint64_t key : {1, 2, 3, 4}) {
    ASSERT_OK(Insert(*small, key));
    ASSERT_OK(Insert(*other, key));
  }
  EXPECT_EQ(small->size(), 2);
  EXPECT_EQ(other->size(), 4);
}

TEST_F(TableMaxBytesTest, FullTablesGoOnWhenTheStoreIsFullToo) {
  store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.max_bytes = 4 * ChunkBytes()}, &clock_);
  auto first = Make(Options(2));
  auto second = Make(Options(2));
  for (uint64_t key = 1; key <= 20; ++key) {
    ASSERT_OK(Insert(*first, key));
    ASSERT_OK(Insert(*second, 100 + key));
  }
  EXPECT_EQ(first->size(), 2);
  EXPECT_EQ(second->size(), 2);
}

TEST_F(TableMaxBytesTest, ATableThatIsNotFullWaitsForTheStore) {
  store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.max_bytes = 4 * ChunkBytes()}, &clock_);
  auto table = Make(Options(5));
  for (uint64_t key : {1, 2, 3, 4}) ASSERT_OK(Insert(*table, key));
  EXPECT_THAT(Insert(*table, 5), StatusIs(StatusCode::kDeadlineExceeded, Detail::kMemoryFull));
  EXPECT_EQ(table->size(), 4);
}

TEST_F(TableMaxBytesTest, ALargeItemEvictsSeveral) {
  auto table = Make(Options(4));
  for (uint64_t key : {1, 2, 3, 4}) ASSERT_OK(Insert(*table, key));
  const ChunkRef large = test::MakeChunk(store_.get(), 5, 0, 20);
  ASSERT_GT(large->bytes(), ChunkBytes());
  ASSERT_LT(large->bytes(), 3 * ChunkBytes());
  ASSERT_OK(table->Insert(test::MakeItem(5, 1, large), {.timeout = Duration(0)}));
  EXPECT_TRUE(table->Find(5));
  EXPECT_LT(table->size(), 4);
  EXPECT_LE(table->Info().referenced_bytes, 4 * ChunkBytes());
}

TEST_F(TableMaxBytesTest, SharedChunksCountOnce) {
  auto table = Make(Options(2));
  const ChunkRef shared = test::MakeChunk(store_.get(), 1, 0, 1);
  for (uint64_t key = 0; key < 100; ++key) {
    ASSERT_OK(table->Insert(test::MakeItem(key, 1, shared), {.timeout = Duration(0)}));
  }
  EXPECT_EQ(table->size(), 100);
  ASSERT_OK(Insert(*table, 100));
  EXPECT_EQ(table->size(), 101);
  // The chunk is freed with the last of its items.
  ASSERT_OK(Insert(*table, 101));
  EXPECT_EQ(table->size(), 2);
}

TEST_F(TableMaxBytesTest, ItemsThatNeverFitAreRejected) {
  auto table = Make(Options(1));
  const Item large = test::MakeItem(1, 1, test::MakeChunk(store_.get(), 0, 0, 100));
  EXPECT_THAT(table->CheckItem(large), StatusIs(StatusCode::kResourceExhausted, Detail::kMemoryFull));
  EXPECT_THAT(table->CheckItem(large),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("\"t\""),
                             HasSubstr("the table's max_bytes of " + std::to_string(ChunkBytes())))));
}

TEST_F(TableMaxBytesTest, NegativeBoundsAreRejected) {
  TableOptions options = Options(1);
  options.name = "t";
  options.max_bytes = -1;
  EXPECT_THAT(options.Validate(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_bytes is -1")));
}

TEST_F(TableMaxBytesTest, TheBoundCanBeChanged) {
  auto table = Make({.remover = SelectorOptions::Fifo()});
  for (uint64_t key = 0; key < 10; ++key) ASSERT_OK(Insert(*table, key));
  const int64_t one = ChunkBytes();
  ASSERT_OK(table->Change({.max_bytes = 3 * one}));
  EXPECT_EQ(table->size(), 3);
  EXPECT_TRUE(table->Find(9));
  ASSERT_OK(Insert(*table, 10));
  EXPECT_EQ(table->size(), 3);
  ASSERT_OK(table->Change({.max_bytes = 5 * one}));
  for (uint64_t key = 11; key < 20; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(table->size(), 5);
  ASSERT_OK(table->Change({.max_bytes = 0}));
  for (uint64_t key = 20; key < 30; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(table->size(), 15);
  EXPECT_EQ(table->Info().max_bytes, 0);
  EXPECT_THAT(table->Change({.max_bytes = -5}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("-5")));
}

TEST_F(TableMaxBytesTest, AResetStartsAnew) {
  auto table = Make(Options(3));
  for (int round = 0; round < 3; ++round) {
    for (uint64_t key = 0; key < 10; ++key) ASSERT_OK(Insert(*table, key));
    EXPECT_EQ(table->size(), 3);
    table->Reset();
    EXPECT_EQ(table->size(), 0);
  }
}

// Items of random chunks come and go; the data of the others is compared with a plain sum.
TEST_F(TableMaxBytesTest, TheDataIsWithinTheBound) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  Random random(seed);
  std::vector<ChunkRef> chunks;
  for (uint64_t i = 0; i < 30; ++i)
    chunks.push_back(test::MakeChunk(store_.get(), i, 0, static_cast<uint32_t>(1 + random.Below(30))));
  for (const SelectorOptions& remover : {SelectorOptions::Fifo(), SelectorOptions::Uniform(seed)}) {
    constexpr int64_t kMaxBytes = 2000;
    auto table = Make({.remover = remover, .max_size = 20, .max_bytes = kMaxBytes});
    std::map<uint64_t, Chunk*> chunk_of;
    for (uint64_t key = 0; key < 2000; ++key) {
      const ChunkRef& chunk = chunks[random.Below(chunks.size())];
      chunk_of[key] = chunk.get();
      ASSERT_OK(table->Insert(test::MakeItem(key, 1, chunk), {.timeout = Duration(0)}));
      if (random.Below(3) == 0) {
        const std::vector<uint64_t> deleted = {random.Below(key + 1)};
        ASSERT_OK(table->Mutate({}, deleted));
      }
      std::set<Chunk*> present;
      for (const auto& [each, its_chunk] : chunk_of) {
        if (table->Find(each)) present.insert(its_chunk);
      }
      int64_t bytes = 0;
      for (const Chunk* each : present) bytes += each->bytes();
      ASSERT_LE(bytes, kMaxBytes);
      std::erase_if(chunk_of, [&](const auto& each) { return !table->Find(each.first); });
    }
    EXPECT_GT(table->Info().evictions, 100);
  }
}

}  // namespace
}  // namespace reverb::internal
