// rate_limiter.h — what a table's rate limiter is told, and what it tells.
//
// The limiter keeps the number of samples per insert near a target by making callers
// wait. It moves a cursor, `inserts * samples_per_insert - samples`, and lets a call
// through only if the cursor stays inside [min_diff, max_diff]:
//
//   sampling n:   size >= min_size_to_sample  and  cursor - n                     >= min_diff
//   inserting n:  size + n <= min_size        or   cursor + n * samples_per_insert <= max_diff
#ifndef REVERB_RATE_LIMITER_H_
#define REVERB_RATE_LIMITER_H_

#include <cstdint>
#include <limits>
#include <string>

#include "reverb/status.h"

namespace reverb {

struct RateLimiterOptions {
  double samples_per_insert = 1.0;  // > 0
  int64_t min_size_to_sample = 1;   // > 0
  double min_diff = -std::numeric_limits<double>::max();
  double max_diff = std::numeric_limits<double>::max();

  // Sampling waits until the table holds this many items; nothing else is limited.
  static RateLimiterOptions MinSize(int64_t min_size_to_sample) {
    return {.min_size_to_sample = min_size_to_sample};
  }
  // At most `size` items that were not yet sampled. A queue with Fifo selectors and
  // max_times_sampled = 1, a stack with Lifo ones.
  static RateLimiterOptions Queue(int64_t size) {
    return {.min_diff = 0, .max_diff = static_cast<double>(size)};
  }
  static RateLimiterOptions Stack(int64_t size) { return Queue(size); }
  // Bounds of `error_buffer` on both sides of samples_per_insert * min_size_to_sample. Fails for
  // a buffer so small that the table could block inserts and samples for ever.
  static Result<RateLimiterOptions> SampleToInsertRatio(double samples_per_insert, int64_t min_size_to_sample,
                                                        double error_buffer);
  // The same with the two bounds of the cursor given as they are.
  static Result<RateLimiterOptions> SampleToInsertRatio(double samples_per_insert, int64_t min_size_to_sample,
                                                        double min_diff, double max_diff);

  Status Validate() const;
  std::string ToString() const;
  friend bool operator==(const RateLimiterOptions&, const RateLimiterOptions&) = default;
};

// The counters since the table was made or reset.
struct RateLimiterCounters {
  int64_t inserts = 0;
  int64_t samples = 0;
  int64_t deletes = 0;  // evictions, items used up, explicit deletes
  friend bool operator==(const RateLimiterCounters&, const RateLimiterCounters&) = default;
};

}  // namespace reverb

#endif  // REVERB_RATE_LIMITER_H_
