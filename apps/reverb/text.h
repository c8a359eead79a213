// text.h — formats values for users, and parses values that users write.
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
#include "view/shown_text.h"

namespace reverb::program {

using internal::Format;
using internal::ShowName;
using internal::ShowNumber;

// --- Formatting ---

// 1234567 -> "1,234,567".
std::string ShowCount(int64_t count);
// "12 items", "1 item".
std::string ShowCount(int64_t count, std::string_view noun);
// "1.5 GiB".
std::string ShowBytes(int64_t bytes);
// "0.25 s", "12 s", "3 min 12 s", "2 h 5 min", "3 d 4 h".
std::string ShowDuration(std::chrono::nanoseconds duration);
// Returns a rate per second: "0", "12.5", "340", "12.0 k", "1.25 M".
std::string ShowRate(double rate);
// Returns ShowName() in double quotes.
std::string Quote(std::string_view text);
std::string Join(std::span<const std::string> parts, std::string_view between);

// --- Parsing. Errors name the expected value; the caller adds the place ---

Result<int64_t> ParseCount(std::string_view text);  // >= 0; "1000000", "1_000_000", "1,000,000"
Result<double> ParseNumber(std::string_view text);
Result<int64_t> ParseBytes(std::string_view text);                      // "4 GiB", "512MB", "4096"
Result<std::chrono::nanoseconds> ParseDuration(std::string_view text);  // "5 min", "1.5s", "200ms", "30"

// --- Suggestions for unknown words ---

// Returns the candidate that was probably meant, if there is one.
std::optional<std::string> Nearest(std::string_view word, std::span<const std::string> candidates);
// Returns ` Did you mean "x"?` if there is such a candidate, then ` There are: x, y.`
std::string Suggest(std::string_view word, std::span<const std::string> candidates);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_TEXT_H_
