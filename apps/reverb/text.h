// text.h — values as people read them, and what people write as values.
#ifndef REVERB_APPS_REVERB_TEXT_H_
#define REVERB_APPS_REVERB_TEXT_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/status.h"

namespace reverb::program {

[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);

// --- To read ---

// 1234567 -> "1,234,567".
std::string ShowCount(int64_t count);
// "12 items", "1 item".
std::string ShowCount(int64_t count, std::string_view noun);
// "1.5 GiB".
std::string ShowBytes(int64_t bytes);
// "0.25 s", "12 s", "3 min 12 s", "2 h 5 min", "3 d 4 h".
std::string ShowDuration(std::chrono::nanoseconds duration);
// The shortest form that says about as much: "0.8", "12", "1.2e+09".
std::string ShowNumber(double number);
// Bytes of the UTF-8 character that `text` begins with; 0 if it begins with none. REQUIRES: it is not empty.
size_t Utf8Size(std::string_view text);
// What came from elsewhere, fit for a terminal: no control characters, nothing but UTF-8, about so many
// bytes.
std::string ShowName(std::string_view name, size_t most = 200);
// In double quotes.
std::string Quote(std::string_view text);
std::string Join(std::span<const std::string> parts, std::string_view between);

// --- To write. Errors say what was expected; the caller says where ---

Result<int64_t> ParseCount(std::string_view text);  // >= 0; "1000000", "1_000_000", "1,000,000"
Result<double> ParseNumber(std::string_view text);
Result<int64_t> ParseBytes(std::string_view text);                      // "4 GiB", "512MB", "4096"
Result<std::chrono::nanoseconds> ParseDuration(std::string_view text);  // "5 min", "1.5s", "200ms", "30"

// --- When a word is unknown ---

// The candidate that was probably meant, if there is one.
std::optional<std::string> Nearest(std::string_view word, std::span<const std::string> candidates);
// ` did you mean "x"?`, or nothing; then what there is: ` there are "x" and "y"`.
std::string Suggest(std::string_view word, std::span<const std::string> candidates);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_TEXT_H_
