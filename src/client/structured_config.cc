#include "client/structured_config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tensor/column.h"

namespace reverb {
namespace {

// The maximum number of steps that a writer keeps; far from overflow.
constexpr int64_t kMaxAge = int64_t{1} << 32;
constexpr int64_t kMaxLeaves = internal::DecodeLimits{}.max_columns;

Status Invalid(const std::string& what) { return Status::InvalidArgument(what); }
std::string Number(int64_t value) { return std::to_string(value); }

Status CheckSource(int64_t source) {
  if (source >= 0 && source < kMaxLeaves) return Status::Ok();
  return Invalid("its source index is " + Number(source) + ", it must be >= 0 and below " +
                 Number(kMaxLeaves));
}

Status CheckNode(const PatternNode& node) {
  REVERB_RETURN_IF_ERROR(CheckSource(node.source));
  if (!node.start && !node.stop) return Invalid("it has neither start nor stop; set at least one");
  if (node.start && *node.start >= 0) {
    return Invalid("start is " + Number(*node.start) + ", it must be < 0 (-1 is the newest step)");
  }
  if (node.stop && *node.stop > 0) return Invalid("stop is " + Number(*node.stop) + ", it must be <= 0");
  if (node.start && node.stop && *node.start >= *node.stop) {
    return Invalid("start (" + Number(*node.start) + ") must be < stop (" + Number(*node.stop) + ")");
  }
  if (!node.start && *node.stop >= 0) {
    return Invalid("stop is " + Number(*node.stop) + ", it must be < 0 when there is no start");
  }
  if (node.step && !node.start) return Invalid("it has a step but no start");
  if (node.step && *node.step <= 0) return Invalid("step is " + Number(*node.step) + ", it must be > 0");
  if (std::min(node.start.value_or(0), node.stop.value_or(0)) < -kMaxAge) {
    return Invalid("it reaches back more than " + Number(kMaxAge) + " steps");
  }
  return Status::Ok();
}

Status CheckCondition(const PatternCondition& condition) {
  using Left = PatternCondition::Left;
  using Comparison = PatternCondition::Comparison;
  if (condition.left == Left::kNone) return Invalid("its left side is not set");
  if (condition.comparison == Comparison::kNone) return Invalid("its comparison is not set");
  if (condition.left == Left::kData) REVERB_RETURN_IF_ERROR(CheckSource(condition.source));
  if (condition.comparison == Comparison::kModuloEqual) {
    if (condition.modulo <= 0)
      return Invalid("its modulo is " + Number(condition.modulo) + ", it must be > 0");
    if (condition.value < 0)
      return Invalid("its remainder is " + Number(condition.value) + ", it must be >= 0");
  }
  if (condition.left == Left::kEndEpisode &&
      (condition.comparison != Comparison::kEqual || condition.value != 1 || condition.inverse)) {
    return Invalid("the end of an episode can only be compared as == 1, not inverted");
  }
  return Status::Ok();
}

}  // namespace

Status StructuredConfig::Validate() const {
  if (pattern.empty()) return Invalid("the pattern must have at least one node");
  if (table.empty()) return Invalid("the table must not be empty");
  for (size_t i = 0; i < pattern.size(); ++i) {
    const Status status = CheckNode(pattern[i]);
    if (!status.ok()) return status.Prefixed("pattern node " + Number(static_cast<int64_t>(i)));
  }
  for (size_t i = 0; i < conditions.size(); ++i) {
    const Status status = CheckCondition(conditions[i]);
    if (!status.ok()) return status.Prefixed("condition " + Number(static_cast<int64_t>(i)));
  }
  if (const double* constant = std::get_if<double>(&priority); constant && std::isnan(*constant)) {
    return Invalid("`priority` must not be nan.");
  }
  if (const auto* td_error = std::get_if<TdErrorPriority>(&priority)) {
    if (!std::isfinite(td_error->max_priority_weight)) return Invalid("max_priority_weight must be finite");
    const Status status = CheckSource(td_error->source);
    if (!status.ok()) return status.Prefixed("TD error");
  }
  return Status::Ok();
}

Status StructuredWriterOptions::Validate() const {
  if (configs.empty()) return Invalid("a structured writer needs at least one config");
  int64_t age = 1;
  for (size_t i = 0; i < configs.size(); ++i) {
    const Status status = configs[i].Validate();
    if (!status.ok()) {
      return status.Prefixed("Invalid configuration at position " + Number(static_cast<int64_t>(i)));
    }
    age = std::max(age, internal::MaxAge(configs[i]));
  }
  return ChunkingOptions{.num_keep_alive_refs = age, .max_chunk_length = max_chunk_length}.Validate();
}

namespace internal {

int64_t MaxAge(const StructuredConfig& config) {
  int64_t age = 1;
  for (const PatternNode& node : config.pattern)
    age = std::max(age, -(node.start ? *node.start : *node.stop));
  return age;
}

void AddBufferLengthCondition(StructuredConfig* config) {
  using Left = PatternCondition::Left;
  using Comparison = PatternCondition::Comparison;
  const int64_t age = MaxAge(*config);
  const auto suffices = [&](const PatternCondition& condition) {
    return condition.left == Left::kBufferLength && condition.comparison == Comparison::kAtLeast &&
           !condition.inverse && condition.value >= age;
  };
  if (std::ranges::any_of(config->conditions, suffices)) return;
  config->conditions.push_back(
      {.left = Left::kBufferLength, .comparison = Comparison::kAtLeast, .value = age});
}

bool Holds(const PatternCondition& condition, int64_t left) {
  bool holds = false;
  switch (condition.comparison) {
    case PatternCondition::Comparison::kEqual:
      holds = left == condition.value;
      break;
    case PatternCondition::Comparison::kAtLeast:
      holds = left >= condition.value;
      break;
    case PatternCondition::Comparison::kModuloEqual:
      holds = left % condition.modulo == condition.value;  // the remainder has the sign of the dividend
      break;
    case PatternCondition::Comparison::kNone:
      return false;
  }
  return holds != condition.inverse;
}

}  // namespace internal
}  // namespace reverb
