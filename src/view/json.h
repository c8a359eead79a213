// json.h — writes JSON in order.
//
//   JsonWriter json;
//   json.BeginObject().Field("name", "replay").Key("sizes").BeginArray().Value(1).Value(2).End().End();
#ifndef REVERB_VIEW_JSON_H_
#define REVERB_VIEW_JSON_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reverb::internal {

class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Begin('{', '}'); }
  JsonWriter& BeginArray() { return Begin('[', ']'); }
  JsonWriter& End();
  JsonWriter& Key(std::string_view key);

  // Replaces bytes that are not UTF-8 by U+FFFD.
  JsonWriter& Value(std::string_view text);
  JsonWriter& Value(const char* text) { return Value(std::string_view(text)); }
  JsonWriter& Value(bool value) { return Raw(value ? "true" : "false"); }
  template <std::integral T>
  JsonWriter& Value(T value) {
    return Raw(std::to_string(value));
  }
  // Writes null for NaN, the infinities, and the largest doubles, which stand for infinities.
  JsonWriter& Value(double value);
  JsonWriter& Null() { return Raw("null"); }
  // Writes a number, true, false or null as given.
  JsonWriter& Word(std::string_view word) { return Raw(word); }

  template <typename T>
  JsonWriter& Field(std::string_view key, const T& value) {
    return Key(key).Value(value);
  }
  template <typename T>
  JsonWriter& Field(std::string_view key, const std::optional<T>& value) {
    return value ? Field(key, *value) : Key(key).Null();
  }

  // Returns the bytes written so far.
  size_t size() const { return text_.size(); }
  // REQUIRES: all objects and arrays have ended.
  const std::string& text() const { return text_; }

 private:
  JsonWriter& Begin(char open, char close);
  JsonWriter& Raw(std::string_view raw);
  void Escape(std::string_view text);
  void Comma();

  std::string text_;
  std::vector<char> closers_;
  bool is_first_ = true;    // in its object or array
  bool after_key_ = false;  // a value follows
};

}  // namespace reverb::internal

#endif  // REVERB_VIEW_JSON_H_
