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

TEST(StructureNoteTest, TheFirstHoldsUntilAnotherDiffers) {
  StructureNote note;
  EXPECT_EQ(note.Get(), std::nullopt);
  EXPECT_FALSE(note.Take({}));
  EXPECT_EQ(note.Get(), std::nullopt);
  EXPECT_FALSE(note.Take(ListOf(1)));
  EXPECT_FALSE(note.Take(ListOf(1)));  // of another writer
  EXPECT_FALSE(note.Take({}));
  EXPECT_EQ(note.Get(), BytesOf(ListOf(1)));
  EXPECT_TRUE(note.Take(ListOf(2)));
  EXPECT_EQ(note.Get(), "");
  EXPECT_FALSE(note.Take(ListOf(3)));  // said before
  EXPECT_EQ(note.Get(), "");
}

TEST(StructureNoteTest, AResetMakesRoomForAnother) {
  StructureNote note;
  note.Take(ListOf(1));
  note.Reset();
  EXPECT_EQ(note.resets(), 1u);
  // Items that were on their way have the same still.
  EXPECT_EQ(note.Get(), BytesOf(ListOf(1)));
  EXPECT_FALSE(note.Take(ListOf(2)));
  EXPECT_EQ(note.Get(), BytesOf(ListOf(2)));
  EXPECT_TRUE(note.Take(ListOf(1)));
  note.Reset();
  EXPECT_EQ(note.resets(), 2u);
  EXPECT_EQ(note.Get(), std::nullopt);
  EXPECT_FALSE(note.Take(ListOf(1)));
  EXPECT_EQ(note.Get(), BytesOf(ListOf(1)));
}

TEST(StructureNoteTest, IsRestored) {
  StructureNote note;
  EXPECT_OK(note.Restore(std::nullopt));
  EXPECT_EQ(note.Get(), std::nullopt);
  EXPECT_OK(note.Restore(BytesOf(ListOf(2))));
  EXPECT_EQ(note.Get(), BytesOf(ListOf(2)));
  EXPECT_TRUE(note.Take(ListOf(1)));
  StructureNote other;
  EXPECT_OK(other.Restore(""));
  EXPECT_EQ(other.Get(), "");
  EXPECT_FALSE(other.Take(ListOf(1)));
  EXPECT_EQ(other.Get(), "");
  StructureNote damaged;
  EXPECT_THAT(damaged.Restore("\x01\x09"), StatusIs(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace reverb::internal
