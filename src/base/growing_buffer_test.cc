#include "base/growing_buffer.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace reverb::internal {
namespace {

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Text(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

TEST(GrowingBufferTest, KeepsWhatWasWrittenWhileItGrows) {
  for (const size_t capacity : {0, 1, 7, 1000}) {
    GrowingBuffer bytes(capacity);
    std::string expected;
    for (int i = 0; i < 500; ++i) {
      const std::string text = std::to_string(i);
      bytes.Append(Bytes(text));
      expected += text;
      char* const at = bytes.Room(2);
      at[0] = ',';
      bytes.EndAt(at + 1);  // less than there was room for
      expected += ',';
    }
    EXPECT_EQ(bytes.size(), expected.size());
    EXPECT_EQ(Text(bytes.Take()), expected);
    EXPECT_EQ(bytes.size(), 0u);
  }
}

TEST(GrowingBufferTest, MovesWhatFollowsAGap) {
  GrowingBuffer bytes(4);
  bytes.Append(Bytes("abcd"));
  bytes.InsertGap(1, 3);
  ASSERT_EQ(bytes.size(), 7u);
  bytes.data()[1] = bytes.data()[2] = bytes.data()[3] = '.';
  EXPECT_EQ(std::string_view(bytes.data(), bytes.size()), "a...bcd");
  bytes.Erase(2, 2);
  EXPECT_EQ(std::string_view(bytes.data(), bytes.size()), "a.bcd");
  bytes.InsertGap(5, 1);  // at the end
  bytes.Erase(5, 1);
  EXPECT_EQ(Text(bytes.Take()), "a.bcd");
}

TEST(GrowingBufferTest, ReservedRoomIsUsedWithoutMoving) {
  GrowingBuffer bytes(2);
  bytes.Append(Bytes("ab"));
  bytes.Reserve(100);
  const char* const start = bytes.data();
  for (int i = 0; i < 100; ++i) bytes.Append(Bytes("x"));
  EXPECT_EQ(bytes.data(), start);
  EXPECT_EQ(Text(bytes.Take()), "ab" + std::string(100, 'x'));
}

TEST(GrowingBufferTest, NothingIsWritten) {
  GrowingBuffer bytes(0);
  bytes.Append({});
  EXPECT_TRUE(bytes.Take().empty());
}

}  // namespace
}  // namespace reverb::internal
