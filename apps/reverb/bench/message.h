// message.h — one line of text between a benchmark and its processes: a verb and words `key=value`.
#ifndef REVERB_APPS_BENCH_MESSAGE_H_
#define REVERB_APPS_BENCH_MESSAGE_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reverb::bench {

class Message {
 public:
  explicit Message(std::string verb = {}) : verb_(std::move(verb)) {}

  const std::string& verb() const { return verb_; }

  // Values must not contain spaces or line breaks.
  Message& Set(std::string_view key, std::string_view value);
  Message& Set(std::string_view key, int64_t value);
  Message& Set(std::string_view key, double value);
  Message& Set(std::string_view key, std::span<const double> values);
  // Sets free text, which must be the only value.
  Message& SetText(std::string text);

  // Return empty or 0 if the key is not set.
  std::string Get(std::string_view key) const;
  int64_t GetInt(std::string_view key) const;
  double GetNumber(std::string_view key) const;
  std::vector<double> GetList(std::string_view key) const;
  const std::string& text() const { return text_; }

  std::string Encode() const;  // without the line break
  static Message Decode(std::string_view line);

 private:
  std::string verb_;
  std::string text_;
  std::map<std::string, std::string, std::less<>> words_;
};

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_MESSAGE_H_
