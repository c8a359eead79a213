// rate_limiter.h — options and counters of a table's rate limiter.
//
// The rate limiter keeps the number of samples per insert near a target by blocking callers. It maintains a
// cursor, `inserts * samples_per_insert - samples`, and allows a call only if the cursor stays within
// [min_diff, max_diff]:
//
//   sampling n:   size >= min_size_to_sample  and  cursor - n                     >= min_diff
//   inserting n:  size + n <= min_size        or   cursor + n * samples_per_insert <= max_diff
//
// In a table with max_times_sampled, items may leave because of max_age, or because max_size was lowered,
// before they were sampled as often as their inserts demand. Nothing can be sampled in their place, so the
// cursor no longer counts those inserts: otherwise a queue would lose capacity for ever.
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

  // Sampling waits until the table contains this many items; there is no other limit.
  static RateLimiterOptions MinSize(int64_t min_size_to_sample) {
    return {.min_size_to_sample = min_size_to_sample};
  }
  // Allows at most `size` items that were not sampled yet. Gives a queue with Fifo selectors and
  // max_times_sampled = 1, and a stack with Lifo selectors.
  static RateLimiterOptions Queue(int64_t size) {
    return {.min_diff = 0, .max_diff = static_cast<double>(size)};
  }
  static RateLimiterOptions Stack(int64_t size) { return Queue(size); }
  // Sets bounds of `error_buffer` on both sides of samples_per_insert * min_size_to_sample. Fails for a
  // buffer so small that the table could block inserts and samples forever.
  static Result<RateLimiterOptions> SampleToInsertRatio(double samples_per_insert, int64_t min_size_to_sample,
                                                        double error_buffer);
  // Like above, with explicit bounds of the cursor.
  static Result<RateLimiterOptions> SampleToInsertRatio(double samples_per_insert, int64_t min_size_to_sample,
                                                        double min_diff, double max_diff);

  Status Validate() const;
  std::string ToString() const;
  friend bool operator==(const RateLimiterOptions&, const RateLimiterOptions&) = default;
};

// Counts since the table was created or reset.
struct RateLimiterCounters {
  int64_t inserts = 0;
  int64_t samples = 0;
  int64_t deletes = 0;  // evictions, expirations by max_times_sampled or max_age, explicit deletes
  // Inserts that the cursor does not count, because their samples can no longer come; see above.
  int64_t uncounted_inserts = 0;

  double Cursor(double samples_per_insert) const {
    return static_cast<double>(inserts - uncounted_inserts) * samples_per_insert -
           static_cast<double>(samples);
  }
  friend bool operator==(const RateLimiterCounters&, const RateLimiterCounters&) = default;
};

}  // namespace reverb

#endif  // REVERB_RATE_LIMITER_H_
