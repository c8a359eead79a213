// query.h — the target of an HTTP request: its path, and the parameters after "?".
//
// Threads: values and free functions without state.
#ifndef REVERB_ADMIN_QUERY_H_
#define REVERB_ADMIN_QUERY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverb/status.h"

namespace reverb::internal {

struct RequestTarget {
  std::vector<std::string> path = {};  // its parts, decoded: "/a/b%2Fc" is {"a", "b/c"}; "/" is {}
  std::vector<std::pair<std::string, std::string>> parameters = {};  // decoded, in their order

  // Return the value of a parameter, or `otherwise` if there is none. INVALID_ARGUMENT names the parameter, its value and
  // the range.
  Result<int64_t> Integer(std::string_view name, int64_t otherwise, int64_t least, int64_t most) const;
  Result<double> Number(std::string_view name, double otherwise, double least, double most) const;
  // 0 or 1.
  Result<bool> Flag(std::string_view name, bool otherwise) const;
  Result<uint64_t> Key(std::string_view name) const;  // 0 if there is none
  // INVALID_ARGUMENT if a parameter has another name than these, or occurs twice.
  Status CheckNames(std::initializer_list<std::string_view> known) const;

 private:
  std::optional<std::string_view> Find(std::string_view name) const;
};

// INVALID_ARGUMENT for targets that do not begin with "/", and for "%" without two hexadecimal digits.
Result<RequestTarget> ParseTarget(std::string_view target);

}  // namespace reverb::internal

#endif  // REVERB_ADMIN_QUERY_H_
