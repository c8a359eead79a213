#include "core/rate_limiter.h"

#include <algorithm>
#include <cmath>

#include "tensor/limiter_text.h"

namespace reverb {

Status RateLimiterOptions::Validate() const {
  if (!(samples_per_insert > 0) || !std::isfinite(samples_per_insert)) {
    return Status::InvalidArgument("rate limiter: samples_per_insert is " +
                                   internal::BriefNumber(samples_per_insert) +
                                   "; it must be a positive finite number");
  }
  if (min_size_to_sample < 1) {
    return Status::InvalidArgument("rate limiter: min_size_to_sample is " +
                                   std::to_string(min_size_to_sample) + "; it must be at least 1");
  }
  if (std::isnan(min_diff) || std::isnan(max_diff) || min_diff > max_diff) {
    return Status::InvalidArgument("rate limiter: min_diff " + internal::BriefNumber(min_diff) +
                                   " and max_diff " + internal::BriefNumber(max_diff) +
                                   " allow no cursor; min_diff must not exceed max_diff");
  }
  return Status::Ok();
}

Result<RateLimiterOptions> RateLimiterOptions::SampleToInsertRatio(double samples_per_insert,
                                                                   int64_t min_size_to_sample,
                                                                   double error_buffer) {
  const double offset = samples_per_insert * static_cast<double>(min_size_to_sample);
  return SampleToInsertRatio(samples_per_insert, min_size_to_sample, offset - error_buffer,
                             offset + error_buffer);
}

Result<RateLimiterOptions> RateLimiterOptions::SampleToInsertRatio(double samples_per_insert,
                                                                   int64_t min_size_to_sample,
                                                                   double min_diff, double max_diff) {
  const RateLimiterOptions options{.samples_per_insert = samples_per_insert,
                                   .min_size_to_sample = min_size_to_sample,
                                   .min_diff = min_diff,
                                   .max_diff = max_diff};
  if (!(samples_per_insert > 0)) return options.Validate();
  const double needed = 2 * std::max(1.0, samples_per_insert);
  if (!(max_diff - min_diff >= needed)) {
    return Status::InvalidArgument(
        "rate limiter: the error buffer spans " + internal::BriefNumber(max_diff - min_diff) +
        ", too small for samples_per_insert " + internal::BriefNumber(samples_per_insert) +
        ": inserts and samples could block each other forever; make it at least " +
        internal::BriefNumber(needed));
  }
  const double start = samples_per_insert * static_cast<double>(min_size_to_sample);
  if (min_diff > start) {
    return Status::InvalidArgument(
        "rate limiter: min_diff " + internal::BriefNumber(min_diff) +
        " exceeds samples_per_insert * min_size_to_sample = " + internal::BriefNumber(start) +
        ": sampling could never begin; lower min_diff or raise min_size_to_sample");
  }
  if (Status status = options.Validate(); !status.ok()) return status;
  return options;
}

namespace internal {

int64_t RateLimiter::MaxSamples(int64_t n) const {
  if (n < 1 || !CanSample(1)) return 0;
  // The result must equal that of sampling one by one, to the last bit of rounding. So the last steps before
  // the bound are checked individually; far from the bound no check is needed.
  const double room = SampleCursor() - options_.min_diff;
  if (room >= static_cast<double>(n) + 2) return n;
  const double inserted =
      static_cast<double>(counters_.inserts - counters_.uncounted_inserts) * options_.samples_per_insert;
  int64_t k = std::max<int64_t>(0, static_cast<int64_t>(std::floor(room)) - 2);
  const int64_t samples = counters_.samples + reserved_;
  while (k < n && inserted - static_cast<double>(samples + k) - 1.0 >= options_.min_diff) ++k;
  return k;
}

WaitReason RateLimiter::SampleWaitReason() const {
  if (CanSample(1)) return WaitReason::kNone;
  if (counters_.inserts - counters_.deletes < options_.min_size_to_sample) return WaitReason::kMinSize;
  // Would it be allowed if the leased samples came back?
  return cursor() - 1.0 >= options_.min_diff ? WaitReason::kLeased : WaitReason::kTooManySamples;
}

WaitReason RateLimiter::InsertWaitReason() const {
  return CanInsert(1) ? WaitReason::kNone : WaitReason::kTooManyInserts;
}

std::string RateLimiter::Describe() const {
  return "size " + std::to_string(counters_.inserts - counters_.deletes) + ", min_size_to_sample " +
         std::to_string(options_.min_size_to_sample) + "; cursor " + BriefNumber(cursor()) + " in [" +
         ShowBound(options_.min_diff) + ", " + ShowBound(options_.max_diff) + "], samples_per_insert " +
         BriefNumber(options_.samples_per_insert);
}

}  // namespace internal
}  // namespace reverb
