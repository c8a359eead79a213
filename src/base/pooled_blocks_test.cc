// Tests what starts threads. A program of its own: the tests of fork() need one that has none.
#include "base/pooled_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/shared_memory.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

TEST(PooledBlocksTest, BlocksOfASizeThatGrowsAreResidentBeforeTheyAreNeeded) {
  static SharedMemory& memory = *new SharedMemory(RealClock(), {.populates_ahead = true});  // never destroyed
  constexpr size_t kBytes = 40'000;
  std::vector<uint8_t*> blocks;
  const auto add = [&] {
    uint8_t* const block = memory.Allocate(kBytes);
    ASSERT_NE(block, nullptr);
    std::memset(block, 7, kBytes);
    blocks.push_back(block);
  };
  for (size_t i = 1; i < PooledBlocks::kMinGrowth; ++i) add();
  EXPECT_EQ(memory.stats().idle_bytes, 0u) << "few blocks of a size are not many";
  const auto is_ahead = [&] {
    const size_t idle = memory.stats().idle_bytes;
    return idle > PooledBlocks::kAheadBytes - 2 * kBytes && idle <= PooledBlocks::kAheadBytes;
  };
  // The interval of a release may begin in between, and the count anew.
  EXPECT_TRUE(test::WaitUntil([&] {
    add();
    return memory.stats().idle_bytes > 0;
  }));
  EXPECT_TRUE(test::WaitUntil([&] {
    if (memory.stats().idle_bytes == 0) add();
    return is_ahead();
  }));
  std::ranges::sort(blocks);
  EXPECT_EQ(std::ranges::adjacent_find(blocks), blocks.end()) << "no block twice";
  for (uint8_t* const block : blocks) {
    EXPECT_TRUE(std::ranges::all_of(std::span(block, kBytes), [](uint8_t byte) { return byte == 7; }));
    memory.Free(block, kBytes);
  }
  EXPECT_TRUE(test::WaitUntil([&] { return memory.stats().idle_bytes == 0; }))
      << "what is not used is returned";
}

}  // namespace
}  // namespace reverb::internal
