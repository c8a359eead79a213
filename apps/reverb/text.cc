#include "text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <limits>
#include <utility>

namespace reverb::program {

// --- Formatting ---

std::string ShowCount(int64_t count) {
  std::string digits = std::to_string(count);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string ShowCount(int64_t count, std::string_view noun) {
  return ShowCount(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string ShowBytes(int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(size) >= 1024 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  if (unit == 0 || size == std::floor(size)) return Format("%.0f %s", size, kUnits[unit]);
  return Format(size < 10 ? "%.2f %s" : "%.1f %s", size, kUnits[unit]);
}

std::string ShowDuration(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds < 0) return "0 s";
  // The bounds are those of rounding to three digits: 0.9996 s is "1.0 s", not "1e+03 ms".
  if (seconds < 0.9995e-3) return Format("%.3g µs", seconds * 1e6);
  if (seconds < 0.9995) return Format("%.3g ms", seconds * 1e3);
  if (seconds < 10) return Format("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(seconds);
  struct Unit {
    int64_t seconds;
    const char* name;
    int64_t part;
    const char* part_name;
  };
  constexpr std::array<Unit, 3> kUnits = {
      {{86'400, "d", 3600, "h"}, {3600, "h", 60, "min"}, {60, "min", 1, "s"}}};
  for (const Unit& unit : kUnits) {
    if (whole < unit.seconds) continue;
    const int64_t rest = whole % unit.seconds / unit.part;
    std::string text = std::to_string(whole / unit.seconds) + " " + unit.name;
    if (rest > 0) text += " " + std::to_string(rest) + " " + unit.part_name;
    return text;
  }
  return std::to_string(whole) + " s";
}

std::string ShowRate(double rate) {
  if (rate >= 1e6) return Format("%.2f M", rate / 1e6);
  if (rate >= 1e4) return Format("%.1f k", rate / 1e3);
  return Format(rate >= 100 || rate == 0 ? "%.0f" : "%.1f", rate);
}

std::string Quote(std::string_view text) { return "\"" + ShowName(text) + "\""; }

std::string Join(std::span<const std::string> parts, std::string_view between) {
  std::string joined;
  for (const std::string& part : parts) {
    if (!joined.empty()) joined += between;
    joined += part;
  }
  return joined;
}

// --- Parsing ---

namespace {

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// A number and its unit.
struct Measure {
  double number = 0;
  std::string_view unit;
};
std::optional<Measure> ParseMeasure(std::string_view text) {
  text = Trim(text);
  Measure measure;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), measure.number);
  if (error != std::errc() || !std::isfinite(measure.number)) return std::nullopt;
  measure.unit = Trim(text.substr(static_cast<size_t>(end - text.data())));
  return measure;
}

bool IsSame(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

Result<int64_t> ParseCount(std::string_view text) {
  std::string digits(Trim(text));
  std::erase_if(digits, [](char c) { return c == '_' || c == ','; });
  int64_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc() || end != digits.data() + digits.size() || count < 0) {
    return Status::InvalidArgument("expected a whole number, such as 1000000; got " + Quote(text));
  }
  return count;
}

Result<double> ParseNumber(std::string_view text) {
  const std::optional<Measure> measure = ParseMeasure(text);
  if (!measure || !measure->unit.empty()) {
    return Status::InvalidArgument("expected a number, such as 0.8; got " + Quote(text));
  }
  return measure->number;
}

Result<int64_t> ParseBytes(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 14> kUnits = {{{"", 1},
                                                                           {"B", 1},
                                                                           {"K", 0x1p10},
                                                                           {"M", 0x1p20},
                                                                           {"G", 0x1p30},
                                                                           {"T", 0x1p40},
                                                                           {"KiB", 0x1p10},
                                                                           {"MiB", 0x1p20},
                                                                           {"GiB", 0x1p30},
                                                                           {"TiB", 0x1p40},
                                                                           {"kB", 1e3},
                                                                           {"MB", 1e6},
                                                                           {"GB", 1e9},
                                                                           {"TB", 1e12}}};
  if (const std::optional<Measure> measure = ParseMeasure(text); measure && measure->number >= 0) {
    for (const auto& [unit, factor] : kUnits) {
      const double bytes = measure->number * factor;
      if (IsSame(unit, measure->unit) && bytes < 0x1p62) return static_cast<int64_t>(bytes);
    }
  }
  return Status::InvalidArgument("expected a size, such as \"4 GiB\", \"500 MB\" or 4096; got " +
                                 Quote(text));
}

Result<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 7> kUnits = {
      {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"min", 60e9}, {"h", 3600e9}, {"d", 86'400e9}}};
  if (const std::optional<Measure> measure = ParseMeasure(text); measure && measure->number >= 0) {
    for (const auto& [unit, factor] : kUnits) {
      const double nanos = measure->number * factor;
      if (IsSame(unit, measure->unit) && nanos < 0x1p62) {
        return std::chrono::nanoseconds(static_cast<int64_t>(nanos));
      }
    }
  }
  return Status::InvalidArgument("expected a time, such as \"5 min\", \"1.5 s\" or 30 (seconds); got " +
                                 Quote(text));
}

// --- Suggestions for unknown words ---

namespace {

// Returns the edit distance with transpositions.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      const size_t change = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({change, rows[i - 1][j] + 1, rows[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows.back().back();
}

}  // namespace

std::optional<std::string> Nearest(std::string_view word, std::span<const std::string> candidates) {
  word = word.substr(0, 100);
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const bool is_part = word.size() >= 3 && candidate.find(word) != std::string::npos;
    const size_t distance = is_part ? 1 : Distance(word, candidate);
    if (distance >= best_distance) continue;
    best = &candidate;
    best_distance = distance;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::string Suggest(std::string_view word, std::span<const std::string> candidates) {
  std::string text;
  if (const std::optional<std::string> nearest = Nearest(word, candidates)) {
    text = " Did you mean " + Quote(*nearest) + "?";
  }
  if (!candidates.empty()) text += " There are: " + Join(candidates, ", ") + ".";
  return text;
}

}  // namespace reverb::program
