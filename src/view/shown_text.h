// shown_text.h — values and names as text for users.
//
// Threads: free functions without state.
#ifndef REVERB_VIEW_SHOWN_TEXT_H_
#define REVERB_VIEW_SHOWN_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace reverb::internal {

[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);
// Returns a short form: "0.8", "12", "1.2e+09".
std::string ShowNumber(double number);
// Returns the bytes of the UTF-8 character at the start of `text`; 0 if invalid. REQUIRES: `text` is not
// empty.
size_t Utf8Size(std::string_view text);
// Makes external text safe for a terminal: no control characters, valid UTF-8, about that many bytes.
std::string ShowName(std::string_view name, size_t most = 200);
// Returns the bytes in base64, with padding.
std::string Base64(std::span<const uint8_t> bytes);

}  // namespace reverb::internal

#endif  // REVERB_VIEW_SHOWN_TEXT_H_
