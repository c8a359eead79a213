// rate_limiter.h — the arithmetic of the rate limiter: counters, and whether an insert or sample is allowed.
//
// Threads: the caller holds the table's lock.
#ifndef REVERB_CORE_RATE_LIMITER_H_
#define REVERB_CORE_RATE_LIMITER_H_

#include <cstdint>
#include <string>

#include "reverb/rate_limiter.h"
#include "reverb/table_info.h"

namespace reverb::internal {

class RateLimiter {
 public:
  // REQUIRES: options.Validate().ok().
  explicit RateLimiter(const RateLimiterOptions& options) : options_(options) {}

  const RateLimiterOptions& options() const { return options_; }
  void set_options(const RateLimiterOptions& options) { options_ = options; }
  const RateLimiterCounters& counters() const { return counters_; }
  void set_counters(const RateLimiterCounters& counters) { counters_ = counters; }
  double cursor() const { return counters_.Cursor(options_.samples_per_insert); }

  // REQUIRES: n >= 1. Returns false for an `n` that can never be allowed.
  bool CanSample(int64_t n) const {
    return counters_.inserts - counters_.deletes >= options_.min_size_to_sample &&
           cursor() - static_cast<double>(n) >= options_.min_diff;
  }
  bool CanInsert(int64_t n) const {
    const int64_t size = counters_.inserts - counters_.deletes;
    // Avoids overflow for a huge n.
    return n <= options_.min_size_to_sample - size ||
           (static_cast<double>(counters_.inserts - counters_.uncounted_inserts) + static_cast<double>(n)) *
                       options_.samples_per_insert -
                   static_cast<double>(counters_.samples) <=
               options_.max_diff;
  }
  // Returns the largest k <= n for which k consecutive samples are allowed, if no item is inserted or
  // deleted.
  int64_t MaxSamples(int64_t n) const;

  void CountInsert() { ++counters_.inserts; }
  void CountSamples(int64_t n) { counters_.samples += n; }
  void CountDelete() { ++counters_.deletes; }
  // An item left, after CountDelete(), and can no longer be sampled. Writes off its insert if the cursor
  // demands more samples than the inserts of the items that are left.
  void WriteOffInsert() {
    const int64_t size = counters_.inserts - counters_.deletes;
    if (cursor() > static_cast<double>(size) * options_.samples_per_insert) ++counters_.uncounted_inserts;
  }
  void Reset() { counters_ = {}; }

  // Returns why one more sample or insert has to wait; kNone if it is allowed.
  WaitReason SampleWaitReason() const;
  WaitReason InsertWaitReason() const;
  // Returns "size 3, min_size_to_sample 100; cursor 2.5 in [-1, 9], samples_per_insert 2", for error
  // messages.
  std::string Describe() const;

 private:
  RateLimiterOptions options_;
  RateLimiterCounters counters_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_RATE_LIMITER_H_
