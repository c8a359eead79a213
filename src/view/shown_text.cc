#include "view/shown_text.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <limits>

namespace reverb::internal {

std::string Format(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::string text(static_cast<size_t>(std::max(size, 0)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

std::string ShowNumber(double number) {
  if (number >= std::numeric_limits<double>::max()) return "∞";
  if (number <= -std::numeric_limits<double>::max()) return "-∞";
  if (number == std::floor(number) && std::abs(number) < 1e15) return Format("%.0f", number);
  return Format("%.6g", number);
}

size_t Utf8Size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t size = lead < 0x80   ? 1
                      : lead < 0xc2 ? 0
                      : lead < 0xe0 ? 2
                      : lead < 0xf0 ? 3
                      : lead < 0xf5 ? 4
                                    : 0;
  if (size == 0 || size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // An overlong form, a surrogate, or beyond the last character.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return size;
}

std::string ShowName(std::string_view name, size_t most) {
  std::string shown;
  while (!name.empty() && shown.size() < most) {
    const size_t size = Utf8Size(name);
    const auto first = static_cast<unsigned char>(name[0]);
    // U+0080 to U+009F are control characters too.
    const bool is_control = first < 0x20 || first == 0x7f ||
                            (first == 0xc2 && size == 2 && static_cast<unsigned char>(name[1]) < 0xa0);
    shown += size == 0 || is_control ? std::string_view("?") : name.substr(0, size);
    name.remove_prefix(std::max<size_t>(size, 1));
  }
  if (!name.empty()) shown += "…";
  return shown;
}

std::string Base64(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = bytes.size() - i;
    const uint32_t group = uint32_t{bytes[i]} << 16 | (left > 1 ? uint32_t{bytes[i + 1]} << 8 : 0) |
                           (left > 2 ? uint32_t{bytes[i + 2]} : 0);
    text += kDigits[group >> 18];
    text += kDigits[group >> 12 & 63];
    text += left > 1 ? kDigits[group >> 6 & 63] : '=';
    text += left > 2 ? kDigits[group & 63] : '=';
  }
  return text;
}

}  // namespace reverb::internal
