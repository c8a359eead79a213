#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace reverb::internal {
namespace {

TEST(Utf8Test, ValidatesUtf8) {
  for (const char* const text : {"", "replay", "r\xC3\xA9play", "\xE2\x88\x9E", "\xF0\x9F\x8E\xB2"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  EXPECT_TRUE(IsUtf8(std::string("a\0b", 3)));
  for (const char* const text : {"\xFF", "a\x80", "\xC3", "\xC3(", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                                 "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x88"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

TEST(Utf8Test, APrefixEndsWithAWholeCharacter) {
  EXPECT_EQ(Utf8Prefix("abc", 3), "abc");
  EXPECT_EQ(Utf8Prefix("abc", 2), "ab");
  EXPECT_EQ(Utf8Prefix("a\xE2\x88\x9E", 3), "a");
  EXPECT_EQ(Utf8Prefix("a\xE2\x88\x9E", 4), "a\xE2\x88\x9E");
  EXPECT_EQ(Utf8Prefix("\xE2\x88\x9E", 0), "");
}

}  // namespace
}  // namespace reverb::internal
