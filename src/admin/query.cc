#include "admin/query.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "view/shown_text.h"

namespace reverb::internal {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Result<std::string> DecodePercent(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      const int high = i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? HexValue(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return Status::InvalidArgument("the address has a \"%\" without two hexadecimal digits after it: \"" +
                                       ShowName(text) + "\"; write a percent sign as %25");
      }
      decoded += static_cast<char>(high << 4 | low);
      i += 2;
    }
  }
  return decoded;
}

Status BadParameter(std::string_view name, std::string_view value, const std::string& expected) {
  return Status::InvalidArgument("the parameter " + ShowName(name) + " is \"" + ShowName(value) +
                                 "\"; expected " + expected);
}

template <typename T>
std::optional<T> ParseWhole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string_view> RequestTarget::Find(std::string_view name) const {
  for (const auto& [key, value] : parameters) {
    if (key == name) return value;
  }
  return std::nullopt;
}

Result<int64_t> RequestTarget::Integer(std::string_view name, int64_t otherwise, int64_t least,
                                       int64_t most) const {
  const std::optional<std::string_view> text = Find(name);
  if (!text) return otherwise;
  const std::optional<int64_t> value = ParseWhole<int64_t>(*text);
  if (!value || *value < least || *value > most) {
    return BadParameter(name, *text,
                        "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *value;
}

Result<double> RequestTarget::Number(std::string_view name, double otherwise, double least,
                                     double most) const {
  const std::optional<std::string_view> text = Find(name);
  if (!text) return otherwise;
  const std::optional<double> value = ParseWhole<double>(*text);
  if (!value || !std::isfinite(*value) || *value < least || *value > most) {
    return BadParameter(name, *text, "a number from " + ShowNumber(least) + " to " + ShowNumber(most));
  }
  return *value;
}

Result<bool> RequestTarget::Flag(std::string_view name, bool otherwise) const {
  const std::optional<std::string_view> text = Find(name);
  if (!text) return otherwise;
  if (*text != "0" && *text != "1") return BadParameter(name, *text, "0 or 1");
  return *text == "1";
}

Result<uint64_t> RequestTarget::Key(std::string_view name) const {
  const std::optional<std::string_view> text = Find(name);
  if (!text) return uint64_t{0};
  const std::optional<uint64_t> value = ParseWhole<uint64_t>(*text);
  if (!value) return BadParameter(name, *text, "the \"next\" of an earlier answer");
  return *value;
}

Status RequestTarget::CheckNames(std::initializer_list<std::string_view> known) const {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].first;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string names;
      for (const std::string_view each : known) names += (names.empty() ? "" : ", ") + std::string(each);
      return Status::InvalidArgument("there is no parameter \"" + ShowName(name) + "\"; " +
                                     (names.empty() ? "this address has none" : "there are: " + names));
    }
    for (size_t k = 0; k < i; ++k) {
      if (parameters[k].first == name) {
        return Status::InvalidArgument("the parameter " + name + " is given twice; leave one out");
      }
    }
  }
  return Status::Ok();
}

Result<RequestTarget> ParseTarget(std::string_view target) {
  if (!target.starts_with('/')) {
    return Status::InvalidArgument("the address \"" + ShowName(target) + "\" does not begin with \"/\"");
  }
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  std::string_view path = target.substr(1, question == std::string_view::npos ? question : question - 1);
  RequestTarget parsed;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    REVERB_ASSIGN_OR_RETURN(std::string part, DecodePercent(path.substr(0, slash), /*plus_is_space=*/false));
    parsed.path.push_back(std::move(part));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  if (question == std::string_view::npos) return parsed;
  std::string_view query = target.substr(question + 1);
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    if (!pair.empty()) {
      const size_t equals = pair.find('=');
      REVERB_ASSIGN_OR_RETURN(std::string name, DecodePercent(pair.substr(0, equals), true));
      std::string value;
      if (equals != std::string_view::npos) {
        REVERB_ASSIGN_OR_RETURN(value, DecodePercent(pair.substr(equals + 1), true));
      }
      parsed.parameters.emplace_back(std::move(name), std::move(value));
    }
    if (end == std::string_view::npos) break;
    query.remove_prefix(end + 1);
  }
  return parsed;
}

}  // namespace reverb::internal
