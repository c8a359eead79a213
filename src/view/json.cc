#include "view/json.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "view/shown_text.h"

namespace reverb::internal {
void JsonWriter::Comma() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (!is_first_) text_ += ',';
  is_first_ = false;
}

JsonWriter& JsonWriter::Begin(char open, char close) {
  Comma();
  text_ += open;
  closers_.push_back(close);
  is_first_ = true;
  return *this;
}

JsonWriter& JsonWriter::End() {
  text_ += closers_.back();
  closers_.pop_back();
  is_first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Raw(std::string_view raw) {
  Comma();
  text_ += raw;
  return *this;
}

void JsonWriter::Escape(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const size_t size = Utf8Size(text);
    const char c = text[0];
    if (size == 0) {
      text_ += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      (text_ += '\\') += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (size == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      text_ += code;
    } else {
      text_ += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  text_ += '"';
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Comma();
  Escape(key);
  text_ += ':';
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::Value(std::string_view text) {
  Comma();
  Escape(text);
  return *this;
}

JsonWriter& JsonWriter::Value(double value) {
  if (!std::isfinite(value) || std::abs(value) >= std::numeric_limits<double>::max()) return Null();
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  // Uses the shorter form if it is the same number.
  char brief[32];
  std::snprintf(brief, sizeof(brief), "%.15g", value);
  return Raw(std::strtod(brief, nullptr) == value ? brief : text);
}

}  // namespace reverb::internal
