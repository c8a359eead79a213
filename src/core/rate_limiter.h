// rate_limiter.h — the arithmetic of the rate limiter: counters, and whether an insert or sample is allowed.
//
// Leases (core/leases.h) reserve samples: a reserved sample counts when another sample is to be allowed, so that
// leases cannot exceed the ratio. It does not count for inserts, nor in the counters, until it is
// acknowledged: a queue whose items are leased stays full.
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
           SampleCursor() - static_cast<double>(n) >= options_.min_diff;
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
  // Returns whether it did.
  bool WriteOffInsert() {
    const int64_t size = counters_.inserts - counters_.deletes;
    if (!(cursor() > static_cast<double>(size) * options_.samples_per_insert)) return false;
    ++counters_.uncounted_inserts;
    return true;
  }
  void Reset() {
    counters_ = {};
    reserved_ = 0;
  }

  // --- Leases ---
  int64_t reserved() const { return reserved_; }
  void ReserveSample() { ++reserved_; }
  void UnreserveSample() { --reserved_; }

  // Returns why one more sample or insert has to wait; kNone if it is allowed.
  WaitReason SampleWaitReason() const;
  WaitReason InsertWaitReason() const;
  // Returns "size 3, min_size_to_sample 100; cursor 2.5 in [-1, 9], samples_per_insert 2", for error
  // messages.
  std::string Describe() const;

 private:
  // The cursor as if all reserved samples were drawn.
  double SampleCursor() const {
    return static_cast<double>(counters_.inserts - counters_.uncounted_inserts) *
               options_.samples_per_insert -
           static_cast<double>(counters_.samples + reserved_);
  }

  RateLimiterOptions options_;
  RateLimiterCounters counters_;
  int64_t reserved_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_RATE_LIMITER_H_
