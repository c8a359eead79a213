// specs.h — parses and formats selectors, limiters, tensor specs and tables for command lines and files.
//
// Errors name the expected and the given value; the caller adds the place.
#ifndef REVERB_APPS_REVERB_SPECS_H_
#define REVERB_APPS_REVERB_SPECS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/rate_limiter.h"
#include "reverb/selector.h"
#include "reverb/status.h"
#include "reverb/table_options.h"
#include "reverb/tensor.h"
#include "view/info_json.h"

namespace reverb::program {

// fifo, lifo, uniform, min_heap, max_heap, prioritized, prioritized=0.8.
Result<SelectorOptions> ParseSelector(std::string_view text);
const std::vector<std::string>& SelectorNames();
// Returns the form that ParseSelector() reads: "uniform", "prioritized=0.8".
using internal::ShowSelector;

// Requested changes of a limiter; absent settings stay unchanged.
struct LimiterChange {
  std::optional<double> samples_per_insert = {};
  std::optional<int64_t> min_size_to_sample = {};
  std::optional<double> error_buffer = {};  // sets both bounds
  std::optional<double> min_diff = {};
  std::optional<double> max_diff = {};
  std::optional<int64_t> queue = {};  // a complete limiter: at most this many items that were not sampled
  bool none = false;                  // resets: sampling waits for one item, no other limits

  // Sets one of LimiterKeys(). An error lists them.
  Status Set(std::string_view key, std::string_view value);
  Result<RateLimiterOptions> ApplyTo(const RateLimiterOptions& limiter) const;
};
const std::vector<std::string>& LimiterKeys();
// "samples_per_insert=4 min_size=1000 error_buffer=100", separated by spaces or commas; "none".
Result<LimiterChange> ParseLimiter(std::string_view text);
// Describes a limiter: "sampling waits for 100 items".
std::string ShowLimiter(const RateLimiterOptions& limiter);

// "float32[84, 84]", "int32[]", "int32", "uint8[?, 3]".
Result<TensorSpec> ParseSpec(std::string_view text);

// NAME[:SAMPLER[:REMOVER[:MAX_SIZE[:LIMITER]]]], NAME:queue:MAX_SIZE or NAME:stack:MAX_SIZE;
// each may be followed by :layout=any.
Result<TableOptions> ParseTable(std::string_view text);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_SPECS_H_
