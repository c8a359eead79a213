#include "core/key_index.h"

#include <gtest/gtest.h>

#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "testing/seed.h"

namespace reverb::internal {
namespace {

TEST(KeyIndexTest, FindsInsertedKeysAndNoOthers) {
  KeyIndex index;
  EXPECT_FALSE(index.Find(0));
  EXPECT_EQ(index.FindOrInsert(0, 7), std::pair(Slot{7}, true));
  EXPECT_EQ(index.FindOrInsert(0, 8), std::pair(Slot{7}, false));
  EXPECT_EQ(index.Find(0), Slot{7});
  EXPECT_FALSE(index.Find(1));
  index.Erase(1);
  index.Erase(0);
  EXPECT_FALSE(index.Find(0));
  index.Erase(0);
  index.Prefetch(0);
}

TEST(KeyIndexTest, TheLargestKeyAndSlotWork) {
  KeyIndex index;
  EXPECT_TRUE(index.FindOrInsert(UINT64_MAX, UINT32_MAX - 1).second);
  EXPECT_EQ(index.Find(UINT64_MAX), UINT32_MAX - 1);
}

TEST(KeyIndexTest, ClearRemovesAllKeys) {
  KeyIndex index;
  for (uint64_t key = 0; key < 1000; ++key) index.FindOrInsert(key, static_cast<Slot>(key));
  index.Clear();
  for (uint64_t key = 0; key < 1000; ++key) EXPECT_FALSE(index.Find(key));
  EXPECT_TRUE(index.FindOrInsert(5, 1).second);
}

TEST(KeyIndexTest, ReserveKeepsTheContents) {
  KeyIndex index;
  index.FindOrInsert(3, 30);
  index.Reserve(1000);
  index.Reserve(10);
  EXPECT_EQ(index.Find(3), Slot{30});
  for (uint64_t key = 4; key < 5000; ++key)
    ASSERT_TRUE(index.FindOrInsert(key, static_cast<Slot>(10 * key)).second);
  for (uint64_t key = 3; key < 5000; ++key) ASSERT_EQ(index.Find(key), static_cast<Slot>(10 * key));
  EXPECT_FALSE(index.Find(5000));
}

TEST(KeyIndexTest, LargePartsAreDivided) {
  // Above 64 parts of 12,288 keys each.
  constexpr uint64_t kKeys = 2'000'000;
  KeyIndex index;
  for (uint64_t key = 0; key < kKeys; ++key) {
    ASSERT_TRUE(index.FindOrInsert(key * 3, static_cast<Slot>(key)).second);
  }
  EXPECT_EQ(index.size(), kKeys);
  EXPECT_GT(index.memory_bytes(), static_cast<int64_t>(kKeys * 16));
  EXPECT_LT(index.memory_bytes(), static_cast<int64_t>(kKeys * 64));
  for (uint64_t key = 0; key < kKeys; ++key) ASSERT_EQ(index.Find(key * 3), static_cast<Slot>(key));
  for (uint64_t key = 0; key < kKeys; key += 2) index.Erase(key * 3);
  for (uint64_t key = 0; key < kKeys; ++key) {
    ASSERT_EQ(index.Find(key * 3), key % 2 == 0 ? std::nullopt : std::optional(static_cast<Slot>(key)));
  }
  index.Reserve(3 * kKeys);
  EXPECT_EQ(index.Find(9), Slot{3});
  index.Clear();
  EXPECT_EQ(index.memory_bytes(), 0);
  index.Reserve(kKeys);
  EXPECT_TRUE(index.FindOrInsert(1, 1).second);
  EXPECT_EQ(index.Find(1), Slot{1});
}

TEST(KeyIndexTest, CountsKeys) {
  KeyIndex index;
  for (int round = 0; round < 3; ++round) {
    for (uint64_t key = 0; key < 1000; ++key) index.Increment(key);
  }
  EXPECT_EQ(index.size(), 1000u);
  for (uint64_t key = 0; key < 1000; ++key) {
    EXPECT_FALSE(index.Decrement(key));
    EXPECT_FALSE(index.Decrement(key));
    EXPECT_TRUE(index.Decrement(key));
  }
  EXPECT_EQ(index.size(), 0u);
}

// Consecutive keys, keys that differ only in high bits, random keys; inserts and deletes in random order.
TEST(KeyIndexTest, AgreesWithAnOrdinaryMap) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const int shift : {0, 20, 52}) {
    KeyIndex index;
    std::unordered_map<uint64_t, Slot> model;
    Random random(seed + static_cast<uint64_t>(shift));
    for (int step = 0; step < 200'000; ++step) {
      // Fewer keys than steps, so that most operations affect existing keys.
      const uint64_t key =
          shift == 20 ? random.Below(3000) * 0x123456789ABCDEFu : random.Below(3000) << shift;
      const auto slot = static_cast<Slot>(random.Below(1'000'000));
      if (random.Below(2) == 0) {
        const auto [it, is_new] = model.try_emplace(key, slot);
        ASSERT_EQ(index.FindOrInsert(key, slot), std::pair(it->second, is_new)) << "step " << step;
      } else {
        index.Erase(key);
        model.erase(key);
      }
      const uint64_t other = random.Below(3000) << shift;
      const auto it = model.find(other);
      ASSERT_EQ(index.Find(other), it == model.end() ? std::nullopt : std::optional(it->second))
          << "step " << step;
    }
    for (const auto& [key, slot] : model) ASSERT_EQ(index.Find(key), slot);
  }
}

}  // namespace
}  // namespace reverb::internal
