#include "base/payload_source.h"

#include <gtest/gtest.h>

#include <array>

namespace reverb::internal {
namespace {

class OneBlockSource final : public PayloadSource {
 public:
  bool is_enabled() const override { return enabled; }
  uint8_t* Allocate(size_t bytes) override {
    allocated_bytes = bytes;
    return block.data();
  }
  void Free(uint8_t* freed, size_t bytes) override {
    EXPECT_EQ(freed, block.data());
    EXPECT_EQ(bytes, allocated_bytes);
    allocated_bytes = 0;
  }

  std::array<uint8_t, 16> block;
  size_t allocated_bytes = 0;
  bool enabled = true;
};

TEST(LargeBlockSourceTest, SmallBlocksAreNotOfTheSource) {
  OneBlockSource source;
  LargeBlockSource large(&source, 10);
  EXPECT_EQ(large.Allocate(9), nullptr);
  EXPECT_EQ(source.allocated_bytes, 0u);
  EXPECT_EQ(large.Allocate(10), source.block.data());
  EXPECT_EQ(source.allocated_bytes, 10u);
  large.Free(source.block.data(), 10);
  EXPECT_EQ(source.allocated_bytes, 0u);
}

TEST(LargeBlockSourceTest, IsEnabledWithItsSource) {
  OneBlockSource source;
  const LargeBlockSource large(&source, 10);
  EXPECT_TRUE(large.is_enabled());
  source.enabled = false;
  EXPECT_FALSE(large.is_enabled());
}

}  // namespace
}  // namespace reverb::internal
