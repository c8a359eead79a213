#include "tensor/limiter_text.h"

#include <cstdio>
#include <limits>

namespace reverb {

std::string RateLimiterOptions::ToString() const {
  return "samples_per_insert=" + internal::BriefNumber(samples_per_insert) +
         ", min_size_to_sample=" + std::to_string(min_size_to_sample) +
         ", min_diff=" + internal::ShowBound(min_diff) + ", max_diff=" + internal::ShowBound(max_diff);
}

std::string_view WaitReasonName(WaitReason reason) {
  switch (reason) {
    case WaitReason::kNone:
      return "none";
    case WaitReason::kMinSize:
      return "too few items to sample";
    case WaitReason::kTooManySamples:
      return "too many samples per insert";
    case WaitReason::kTooManyInserts:
      return "too many inserts per sample";
    case WaitReason::kMemory:
      return "store is full";
    case WaitReason::kQueued:
      return "behind earlier callers";
    case WaitReason::kLeased:
      return "items are leased";
  }
  return "unknown";
}

namespace internal {
namespace {

std::string DescribeWait(const TableInfo& table, const char* who, WaitReason reason) {
  const std::string why = reason == WaitReason::kNone
                              ? "no " + std::string(who) + " wait now"
                              : std::string(who) + " wait: " + std::string(WaitReasonName(reason));
  const std::string leased = table.leases.leased == 0 ? ""
                             : table.leases.leased == 1
                                 ? ", 1 item is leased"
                                 : ", " + std::to_string(table.leases.leased) + " items are leased";
  return "table \"" + table.name + "\" holds " + std::to_string(table.current_size) + " of " +
         std::to_string(table.max_size) + " items" + leased + "; " + why + " (" +
         table.rate_limiter.ToString() + ", " + std::to_string(table.counters.inserts) + " inserts and " +
         std::to_string(table.counters.samples) + " samples so far, cursor " + BriefNumber(table.cursor) +
         ")";
}

}  // namespace

std::string BriefNumber(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

std::string ShowBound(double value) {
  if (value >= std::numeric_limits<double>::max()) return "+unbounded";
  if (value <= -std::numeric_limits<double>::max()) return "-unbounded";
  return BriefNumber(value);
}

Detail DetailOf(WaitReason reason) {
  switch (reason) {
    case WaitReason::kNone:
      return Detail::kNone;
    case WaitReason::kMemory:
      return Detail::kMemoryFull;
    case WaitReason::kQueued:
      return Detail::kQueued;
    default:
      return Detail::kRateLimited;
  }
}

std::string DescribeInsertWait(const TableInfo& table) {
  return DescribeWait(table, "inserts", table.insert_wait_reason);
}

std::string DescribeSampleWait(const TableInfo& table) {
  return DescribeWait(table, "samples", table.sample_wait_reason);
}

}  // namespace internal
}  // namespace reverb
