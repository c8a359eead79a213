// glob.h — patterns of table names: "*" stands for any characters, also none, and "?" for one byte.
#ifndef REVERB_ACCESS_GLOB_H_
#define REVERB_ACCESS_GLOB_H_

#include <cstddef>
#include <string_view>

namespace reverb::internal {

// Takes time proportional to the product of the lengths at most.
inline bool MatchesGlob(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;  // the last "*"
  size_t resume = 0;                     // the text after what that star stands for
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_GLOB_H_
