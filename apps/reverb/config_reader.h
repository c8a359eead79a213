// config_reader.h — reads the values of a configuration file and remembers the first problem.
//
// A function that finds no acceptable value records why and returns nothing; the code that reads a section then
// continues, so that it reads like the format of the file. Errors name the file, the line, the key and the expected
// value.
//
// Threads: for one thread.
#ifndef REVERB_APPS_REVERB_CONFIG_READER_H_
#define REVERB_APPS_REVERB_CONFIG_READER_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Header-only, since the distribution provides the library only as a shared one.
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "reverb/status.h"
#include "text.h"

namespace reverb::program {

class ConfigReader {
 public:
  explicit ConfigReader(std::string path) : path_(std::move(path)) {}

  // --- Problems ---

  // The first problem; OK if there was none.
  const Status& problem() const { return problem_; }
  // An error at a place of the file.
  Status At(const toml::source_position& where, const std::string& text) const;

  void Problem(const toml::node& node, const std::string& text) { ProblemAt(node.source().begin, text); }
  void ProblemAt(const toml::source_position& where, const std::string& text);
  void Expected(const toml::node& node, const std::string& key, const std::string& what);
  // Returns whether the status is OK; otherwise records it as the problem.
  bool Check(const toml::node& node, const std::string& key, const Status& status);
  // Checks that each key is known; `where` names the part of the file.
  void CheckKeys(const toml::table& table, const std::string& prefix, const std::vector<std::string>& known,
                 const std::string& where);

  // --- Values ---

  const toml::table* Table(const toml::node& node, const std::string& key);
  std::optional<std::string> String(const toml::node& node, const std::string& key, const std::string& what);
  std::optional<int64_t> Integer(const toml::node& node, const std::string& key, int64_t least, int64_t most);
  std::optional<int64_t> Bytes(const toml::node& node, const std::string& key);
  std::optional<std::chrono::nanoseconds> Time(const toml::node& node, const std::string& key);
  std::optional<bool> Boolean(const toml::node& node, const std::string& key);

  // --- Values of a key, if the table has it. The key's full name, for errors, is `prefix` + `name` ---

  // Reads the path of a file.
  void PathInto(const toml::table& table, const char* name, const std::string& prefix,
                const std::string& example, std::string* to);
  // Reads a number of things, at least `least`.
  template <typename T>
  void CountInto(const toml::table& table, const char* name, const std::string& prefix, int64_t least,
                 T* to) {
    const toml::node* const node = table.get(name);
    if (node == nullptr) return;
    if (const auto count = Integer(*node, prefix + name, least, INT64_MAX)) *to = static_cast<T>(*count);
  }
  // Reads one of a few words, each with its value.
  template <typename T>
  void WordInto(const toml::table& table, const char* name, const std::string& prefix,
                const std::vector<std::pair<std::string, T>>& words, T* to) {
    const toml::node* const node = table.get(name);
    if (node == nullptr) return;
    std::vector<std::string> quoted;
    for (const auto& [word, value] : words) {
      if (const auto* text = node->as_string(); text != nullptr && **text == word) {
        *to = value;
        return;
      }
      quoted.push_back(Quote(word));
    }
    Expected(*node, prefix + name, Join(quoted, " or "));
  }

 private:
  const std::string path_;
  Status problem_;
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_CONFIG_READER_H_
