// utf8.h — validation and truncation of UTF-8 text.
#ifndef REVERB_BASE_UTF8_H_
#define REVERB_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

namespace reverb::internal {

// Returns whether `text` is valid UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF.
bool IsUtf8(std::string_view text);

// Returns the longest prefix of at most `max_bytes` that does not end within a character.
std::string_view Utf8Prefix(std::string_view text, size_t max_bytes);

}  // namespace reverb::internal

#endif  // REVERB_BASE_UTF8_H_
