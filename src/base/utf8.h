// utf8.h — checks and cuts of text in UTF-8.
#ifndef REVERB_BASE_UTF8_H_
#define REVERB_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

namespace reverb::internal {

// Whether all of `text` is UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF.
bool IsUtf8(std::string_view text);

// At most `max_bytes` of the beginning of `text`, not ending within a character.
std::string_view Utf8Prefix(std::string_view text, size_t max_bytes);

}  // namespace reverb::internal

#endif  // REVERB_BASE_UTF8_H_
