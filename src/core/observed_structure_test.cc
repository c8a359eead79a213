#include "core/observed_structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;

ItemStructure ListOf(size_t leaves) {
  return ItemStructure::Create(Signature::List(std::vector<Signature>(leaves)).value()).value();
}

std::string BytesOf(const ItemStructure& structure) { return std::string(structure.encoded()); }

TEST(ObservedStructureTest, KeepsTheFirstUntilAnotherDiffers) {
  ObservedStructure structure;
  EXPECT_EQ(structure.Get(), std::nullopt);
  EXPECT_FALSE(structure.Observe({}));
  EXPECT_EQ(structure.Get(), std::nullopt);
  EXPECT_FALSE(structure.Observe(ListOf(1)));
  EXPECT_FALSE(structure.Observe(ListOf(1)));  // from another writer
  EXPECT_FALSE(structure.Observe({}));
  EXPECT_EQ(structure.Get(), BytesOf(ListOf(1)));
  EXPECT_TRUE(structure.Observe(ListOf(2)));
  EXPECT_EQ(structure.Get(), "");
  EXPECT_FALSE(structure.Observe(ListOf(3)));  // already ambiguous
  EXPECT_EQ(structure.Get(), "");
}

TEST(ObservedStructureTest, AResetAllowsAnotherStructure) {
  ObservedStructure structure;
  structure.Observe(ListOf(1));
  structure.Reset();
  EXPECT_EQ(structure.resets(), 1u);
  // Items in flight still have the same structure.
  EXPECT_EQ(structure.Get(), BytesOf(ListOf(1)));
  EXPECT_FALSE(structure.Observe(ListOf(2)));
  EXPECT_EQ(structure.Get(), BytesOf(ListOf(2)));
  EXPECT_TRUE(structure.Observe(ListOf(1)));
  structure.Reset();
  EXPECT_EQ(structure.resets(), 2u);
  EXPECT_EQ(structure.Get(), std::nullopt);
  EXPECT_FALSE(structure.Observe(ListOf(1)));
  EXPECT_EQ(structure.Get(), BytesOf(ListOf(1)));
}

TEST(ObservedStructureTest, CanBeRestored) {
  ObservedStructure structure;
  EXPECT_OK(structure.Restore(std::nullopt));
  EXPECT_EQ(structure.Get(), std::nullopt);
  EXPECT_OK(structure.Restore(BytesOf(ListOf(2))));
  EXPECT_EQ(structure.Get(), BytesOf(ListOf(2)));
  EXPECT_TRUE(structure.Observe(ListOf(1)));
  ObservedStructure other;
  EXPECT_OK(other.Restore(""));
  EXPECT_EQ(other.Get(), "");
  EXPECT_FALSE(other.Observe(ListOf(1)));
  EXPECT_EQ(other.Get(), "");
  ObservedStructure damaged;
  EXPECT_THAT(damaged.Restore("\x01\x09"), StatusIs(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace reverb::internal
