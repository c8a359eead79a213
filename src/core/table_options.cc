#include "reverb/table_options.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "core/table_state.h"
#include "tensor/limiter_text.h"

namespace reverb {

TableOptions TableOptions::Queue(std::string name, int64_t max_size) {
  return {.name = std::move(name),
          .sampler = SelectorOptions::Fifo(),
          .remover = SelectorOptions::Fifo(),
          .max_size = max_size,
          .max_times_sampled = 1,
          .rate_limiter = RateLimiterOptions::Queue(max_size)};
}

TableOptions TableOptions::Stack(std::string name, int64_t max_size) {
  return {.name = std::move(name),
          .sampler = SelectorOptions::Lifo(),
          .remover = SelectorOptions::Lifo(),
          .max_size = max_size,
          .max_times_sampled = 1,
          .rate_limiter = RateLimiterOptions::Stack(max_size)};
}

Status TableOptions::Validate() const {
  if (name.empty()) return Status::InvalidArgument("table: the name is empty; every table needs a name");
  if (name.size() > kMaxNameBytes) {
    constexpr size_t kShownBytes = 40;
    return Status::InvalidArgument("table \"" + std::string(internal::Utf8Prefix(name, kShownBytes)) +
                                   "…\": the name has " + std::to_string(name.size()) + " bytes, at most " +
                                   std::to_string(kMaxNameBytes) + " are allowed; use a shorter name");
  }
  if (!internal::IsUtf8(name)) {
    return Status::InvalidArgument("table: the name, of " + std::to_string(name.size()) +
                                   " bytes, is not valid UTF-8, which some clients could not read");
  }
  const std::string table = "table \"" + name + "\": ";
  // One slot more than max_size is used during an insert, and slots are numbered from 0 in 32 bits.
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max() - 1;
  if (max_size < 1 || max_size > kLargest) {
    return Status::InvalidArgument(table + "max_size is " + std::to_string(max_size) + "; it must be in 1.." +
                                   std::to_string(kLargest));
  }
  const auto in_table = [&](const Status& status) { return status.Prefixed("table \"" + name + "\""); };
  if (Status status = rate_limiter.Validate(); !status.ok()) return in_table(status);
  if (!custom_sampler) {
    if (Status status = sampler.Validate(); !status.ok()) return in_table(status);
  }
  if (!custom_remover) {
    if (Status status = remover.Validate(); !status.ok()) return in_table(status);
  }
  if (max_age < std::chrono::nanoseconds(0)) {
    return Status::InvalidArgument(table + "max_age is " + std::to_string(max_age.count()) +
                                   " ns; it must be positive, or zero for items that do not age");
  }
  if (max_bytes < 0) {
    return Status::InvalidArgument(table + "max_bytes is " + std::to_string(max_bytes) +
                                   "; it must be positive, or zero for no bound");
  }
  for (const auto& extension : extensions) {
    if (extension == nullptr) return Status::InvalidArgument(table + "an extension is null");
  }
  const size_t signature_bytes = signature ? EncodeSignature(*signature).size() : 0;
  if (signature_bytes > kMaxSignatureBytes) {
    return Status::InvalidArgument(table + "the signature takes " + std::to_string(signature_bytes) +
                                   " bytes, at most " + std::to_string(kMaxSignatureBytes) +
                                   " are allowed; use scalars as bounds");
  }
  return Status::Ok();
}

std::string_view LayoutPolicyName(LayoutPolicy policy) {
  return policy == LayoutPolicy::kAny ? "any" : "first";
}

TableSettings TableOptions::Settings() const {
  return {.name = name,
          .sampler = sampler,
          .remover = remover,
          .max_size = max_size,
          .max_times_sampled = max_times_sampled,
          .rate_limiter = rate_limiter,
          .signature = signature ? EncodeSignature(*signature) : std::string(),
          .layout = layout,
          .max_age_nanos = max_age.count(),
          .max_bytes = max_bytes,
          .created_by_client = created_by_client};
}

Result<TableOptions> TableOptions::FromSettings(const TableSettings& settings) {
  for (const auto& [role, selector] :
       {std::pair("sampler", &settings.sampler), std::pair("remover", &settings.remover)}) {
    if (selector->kind != SelectorOptions::Kind::kCustom) continue;
    return Status::InvalidArgument("table \"" + settings.name + "\": its " + role +
                                   " is a custom selector (" + selector->ToString() +
                                   "), which exists only in the process that created it; use a built-in one");
  }
  TableOptions options{.name = settings.name,
                       .sampler = settings.sampler,
                       .remover = settings.remover,
                       .max_size = settings.max_size,
                       .max_times_sampled = settings.max_times_sampled,
                       .max_age = std::chrono::nanoseconds(settings.max_age_nanos),
                       .max_bytes = settings.max_bytes,
                       .rate_limiter = settings.rate_limiter,
                       .layout = settings.layout,
                       .created_by_client = settings.created_by_client};
  if (!settings.signature.empty()) {
    Result<Signature> signature = DecodeSignature(settings.signature);
    if (!signature.ok()) {
      return Status::InvalidArgument("table \"" + settings.name +
                                     "\": " + std::string(signature.status().message()));
    }
    options.signature = *std::move(signature);
  }
  return options;
}

void TableChanges::ApplyTo(TableOptions* options) const {
  options->max_size = max_size.value_or(options->max_size);
  options->max_times_sampled = max_times_sampled.value_or(options->max_times_sampled);
  options->max_age = max_age.value_or(options->max_age);
  options->max_bytes = max_bytes.value_or(options->max_bytes);
  options->rate_limiter = rate_limiter.value_or(options->rate_limiter);
}

namespace internal {

std::vector<std::string> FindContradictions(const TableSettings& settings) {
  const RateLimiterOptions& limiter = settings.rate_limiter;
  const double per_insert = limiter.samples_per_insert;
  const bool limits_inserts = limiter.max_diff < std::numeric_limits<double>::max();
  const bool limits_samples = limiter.min_diff > -std::numeric_limits<double>::max();
  const std::string table = "table \"" + settings.name + "\": ";
  std::vector<std::string> found;
  if (limiter.min_size_to_sample > settings.max_size) {
    found.push_back(table + "min_size_to_sample " + std::to_string(limiter.min_size_to_sample) +
                    " exceeds max_size " + std::to_string(settings.max_size) +
                    ", so nothing can ever be sampled; lower the former or raise the latter");
  }
  if (limits_inserts && limits_samples && limiter.max_diff - limiter.min_diff < std::max(1.0, per_insert)) {
    found.push_back(table + "the limiter's bounds " + BriefNumber(limiter.min_diff) + " and " +
                    BriefNumber(limiter.max_diff) + " are closer than samples_per_insert " +
                    BriefNumber(per_insert) +
                    " allows: inserts and samples can block each other forever; widen them");
  }
  if (limits_inserts && settings.max_times_sampled >= 1 && per_insert > settings.max_times_sampled) {
    found.push_back(table + "max_times_sampled " + std::to_string(settings.max_times_sampled) +
                    " allows fewer samples of an item than samples_per_insert " + BriefNumber(per_insert) +
                    " requires, so inserts will wait for samples that cannot come; raise the former or lower "
                    "the latter");
  }
  if (limits_inserts && limiter.min_diff >= 0 && settings.max_times_sampled == 1 && per_insert == 1 &&
      limiter.max_diff > static_cast<double>(settings.max_size)) {
    found.push_back(table + "the limiter allows " + BriefNumber(limiter.max_diff) +
                    " items that were not sampled, and max_size is " + std::to_string(settings.max_size) +
                    ": items will be evicted before they are sampled; make both the same");
  }
  return found;
}

bool SelectTheSame(const SelectorOptions& a, const SelectorOptions& b) {
  if (a.kind != b.kind) return false;
  return a.kind != SelectorOptions::Kind::kPrioritized || a.priority_exponent == b.priority_exponent;
}

}  // namespace internal
}  // namespace reverb
