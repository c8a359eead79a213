#include "bench/message.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace reverb::bench {
namespace {

// Marks the rest of the line as text.
constexpr std::string_view kTextMark = ": ";

std::string Format(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

}  // namespace

Message& Message::Set(std::string_view key, std::string_view value) {
  words_.insert_or_assign(std::string(key), std::string(value));
  return *this;
}
Message& Message::Set(std::string_view key, int64_t value) { return Set(key, std::to_string(value)); }
Message& Message::Set(std::string_view key, double value) { return Set(key, Format(value)); }
Message& Message::Set(std::string_view key, std::span<const double> values) {
  std::string list;
  for (const double value : values) {
    if (!list.empty()) list += ',';
    list += Format(value);
  }
  return Set(key, list);
}
Message& Message::SetText(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  text_ = std::move(text);
  return *this;
}

std::string Message::Get(std::string_view key) const {
  const auto found = words_.find(key);
  return found == words_.end() ? std::string() : found->second;
}
int64_t Message::GetInt(std::string_view key) const { return std::strtoll(Get(key).c_str(), nullptr, 10); }
double Message::GetNumber(std::string_view key) const { return std::strtod(Get(key).c_str(), nullptr); }
std::vector<double> Message::GetList(std::string_view key) const {
  std::vector<double> values;
  const std::string list = Get(key);
  for (const char* at = list.c_str(); *at != '\0';) {
    char* end = nullptr;
    values.push_back(std::strtod(at, &end));
    if (end == at) break;
    at = *end == ',' ? end + 1 : end;
  }
  return values;
}

std::string Message::Encode() const {
  std::string line = verb_;
  if (!text_.empty()) return line.append(kTextMark).append(text_);
  for (const auto& [key, value] : words_) line.append(" ").append(key).append("=").append(value);
  return line;
}

Message Message::Decode(std::string_view line) {
  const size_t verb_end = std::min(line.find(' '), line.find(kTextMark));
  Message message{std::string(line.substr(0, verb_end))};
  if (verb_end == std::string_view::npos) return message;
  line.remove_prefix(verb_end);
  if (line.starts_with(kTextMark)) {
    message.text_ = line.substr(kTextMark.size());
    return message;
  }
  while (!line.empty()) {
    line.remove_prefix(1);  // the space
    const std::string_view word = line.substr(0, line.find(' '));
    const size_t equals = word.find('=');
    if (equals != std::string_view::npos) message.Set(word.substr(0, equals), word.substr(equals + 1));
    line.remove_prefix(word.size());
  }
  return message;
}

}  // namespace reverb::bench
