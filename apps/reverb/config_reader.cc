#include "config_reader.h"

#include <algorithm>
#include <string_view>

namespace reverb::program {
namespace {

// Describes a value, for errors that name the value found.
std::string ShowValue(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return Quote(**node.as_string());
    case toml::node_type::integer:
      return std::to_string(**node.as_integer());
    case toml::node_type::floating_point:
      return ShowNumber(**node.as_floating_point());
    case toml::node_type::boolean:
      return **node.as_boolean() ? "true" : "false";
    case toml::node_type::table:
      return "a table of keys";
    case toml::node_type::array:
      return "a list";
    default:
      return "a date or time";
  }
}

}  // namespace

Status ConfigReader::At(const toml::source_position& where, const std::string& text) const {
  std::string place = path_;
  if (where.line > 0) place += ":" + std::to_string(where.line) + ":" + std::to_string(where.column);
  return Status::InvalidArgument(place + ": " + text);
}

void ConfigReader::ProblemAt(const toml::source_position& where, const std::string& text) {
  if (problem_.ok()) problem_ = At(where, text);
}

void ConfigReader::Expected(const toml::node& node, const std::string& key, const std::string& what) {
  Problem(node, "key " + Quote(key) + ": expected " + what + "; got " + ShowValue(node));
}

bool ConfigReader::Check(const toml::node& node, const std::string& key, const Status& status) {
  if (!status.ok()) Problem(node, "key " + Quote(key) + ": " + std::string(status.message()));
  return status.ok();
}

void ConfigReader::CheckKeys(const toml::table& table, const std::string& prefix,
                             const std::vector<std::string>& known, const std::string& where) {
  for (const auto& [key, node] : table) {
    const std::string_view name = key.str();
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string full = prefix + std::string(name);
    if (name.starts_with("checkpoint") && prefix == "server.") {
      ProblemAt(key.source().begin,
                "there is no key " + Quote(full) + "; checkpoints are configured in [checkpoint]");
    }
    ProblemAt(key.source().begin, "there is no key " + Quote(full) + where + "." + Suggest(name, known));
  }
}

const toml::table* ConfigReader::Table(const toml::node& node, const std::string& key) {
  if (!node.is_table()) Expected(node, key, "a table of keys, [" + key + "]");
  return node.as_table();
}

std::optional<std::string> ConfigReader::String(const toml::node& node, const std::string& key,
                                                const std::string& what) {
  if (const auto* text = node.as_string()) return **text;
  Expected(node, key, what);
  return std::nullopt;
}

std::optional<int64_t> ConfigReader::Integer(const toml::node& node, const std::string& key, int64_t least,
                                             int64_t most) {
  if (const auto* number = node.as_integer(); number && **number >= least && **number <= most)
    return **number;
  std::string what = "a whole number from " + std::to_string(least);
  if (most < INT64_MAX) what += " to " + std::to_string(most);
  Expected(node, key, most < INT64_MAX ? what : what + " on");
  return std::nullopt;
}

std::optional<int64_t> ConfigReader::Bytes(const toml::node& node, const std::string& key) {
  if (const auto* number = node.as_integer(); number && **number >= 0) return **number;
  if (const auto* text = node.as_string()) {
    const Result<int64_t> bytes = ParseBytes(**text);
    if (bytes.ok()) return *bytes;
  }
  Expected(node, key, "a size, such as \"4 GiB\", \"500 MB\" or 4096");
  return std::nullopt;
}

std::optional<std::chrono::nanoseconds> ConfigReader::Time(const toml::node& node, const std::string& key) {
  std::string text;
  if (const auto* words = node.as_string()) text = **words;
  if (node.is_number()) text = ShowNumber(*node.value<double>());
  const Result<std::chrono::nanoseconds> time = ParseDuration(text);
  if (!text.empty() && time.ok()) return *time;
  Expected(node, key, "a time, such as \"5 min\", \"1.5 s\" or 30 (seconds)");
  return std::nullopt;
}

std::optional<bool> ConfigReader::Boolean(const toml::node& node, const std::string& key) {
  if (const auto* value = node.as_boolean()) return **value;
  Expected(node, key, "true or false");
  return std::nullopt;
}

void ConfigReader::PathInto(const toml::table& table, const char* name, const std::string& prefix,
                            const std::string& example, std::string* to) {
  const toml::node* const node = table.get(name);
  if (node == nullptr) return;
  const std::string what = "the path of a file, such as " + example;
  const auto path = String(*node, prefix + name, what);
  if (path && path->empty()) Expected(*node, prefix + name, what);
  if (path) *to = *path;
}

}  // namespace reverb::program
