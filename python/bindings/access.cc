// Tokens files, for reverb.security.
#include "reverb/access.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "errors.h"
#include "python_api.h"

namespace reverb::python {
namespace {

using Seconds = std::optional<int64_t>;
using TokenTuple = std::tuple<std::string, std::vector<bool>, std::vector<std::string>, Seconds,
                              std::optional<int64_t>, std::optional<int64_t>, std::optional<int64_t>>;

std::string NewToken(const std::string& path, std::string name, const std::vector<bool>& rights,
                     std::vector<std::string> tables, Seconds expires, std::optional<int64_t> max_streams,
                     std::optional<int64_t> max_bytes_per_second, std::optional<int64_t> max_waiting_bytes) {
  TokenOptions options{.name = std::move(name),
                       .read = rights.at(0),
                       .write = rights.at(1),
                       .admin = rights.at(2),
                       .tables = std::move(tables),
                       .max_streams = max_streams,
                       .max_bytes_per_second = max_bytes_per_second,
                       .max_waiting_bytes = max_waiting_bytes};
  if (expires) options.expires = std::chrono::system_clock::from_time_t(*expires);
  return ValueOrRaise(AddToken(path, options));
}

std::vector<TokenTuple> AllTokens(const std::string& path) {
  std::vector<TokenTuple> result;
  for (TokenEntry& entry : ValueOrRaise(ReadTokens(path))) {
    TokenOptions& token = entry.options;
    Seconds expires;
    if (token.expires) expires = std::chrono::system_clock::to_time_t(*token.expires);
    result.emplace_back(std::move(token.name), std::vector<bool>{token.read, token.write, token.admin},
                        std::move(token.tables), expires, token.max_streams, token.max_bytes_per_second,
                        token.max_waiting_bytes);
  }
  return result;
}

}  // namespace

void BindAccess(nb::module_& module) {
  module.def("_add_token", &NewToken, "path"_a, "name"_a, "rights"_a, "tables"_a, "expires"_a.none(),
             "max_streams"_a.none(), "max_bytes_per_second"_a.none(), "max_waiting_bytes"_a.none());
  module.def(
      "_remove_token",
      [](const std::string& path, const std::string& name) { RaiseUnlessOk(RemoveToken(path, name)); },
      "path"_a, "name"_a);
  module.def("_read_tokens", &AllTokens, "path"_a);
}

}  // namespace reverb::python
