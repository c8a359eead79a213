#include "specs.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "text.h"

namespace reverb::program {
namespace {

using Kind = SelectorOptions::Kind;

std::vector<std::string_view> Split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

// --- Selectors ---

const std::vector<std::string>& SelectorNames() {
  static const auto* const kNames = [] {
    auto* const names = new std::vector<std::string>();
    for (const auto& [name, kind] : internal::kSelectorNames) names->emplace_back(name);
    return names;
  }();
  return *kNames;
}

Result<SelectorOptions> ParseSelector(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  for (const auto& [known, kind] : internal::kSelectorNames) {
    if (known != name) continue;
    SelectorOptions selector{.kind = kind};
    if (equals != std::string_view::npos) {
      if (kind != Kind::kPrioritized) {
        return Status::InvalidArgument("the selector " + std::string(known) + " takes no number; got " +
                                       Quote(text));
      }
      REVERB_ASSIGN_OR_RETURN(selector.priority_exponent, ParseNumber(text.substr(equals + 1)));
    }
    REVERB_RETURN_IF_ERROR(selector.Validate());
    return selector;
  }
  return Status::InvalidArgument("there is no selector " + Quote(name) + "." +
                                 Suggest(name, SelectorNames()));
}

// --- Limiters ---

const std::vector<std::string>& LimiterKeys() {
  static const auto* const kKeys = new std::vector<std::string>{
      "min_size", "samples_per_insert", "error_buffer", "min_diff", "max_diff", "queue", "stack"};
  return *kKeys;
}

Status LimiterChange::Set(std::string_view key, std::string_view value) {
  const auto number = [&](std::optional<double>* to) -> Status {
    REVERB_ASSIGN_OR_RETURN(*to, ParseNumber(value));
    return Status::Ok();
  };
  const auto count = [&](std::optional<int64_t>* to) -> Status {
    REVERB_ASSIGN_OR_RETURN(*to, ParseCount(value));
    return Status::Ok();
  };
  if (key == "min_size" || key == "min_size_to_sample") return count(&min_size_to_sample);
  if (key == "samples_per_insert") return number(&samples_per_insert);
  if (key == "error_buffer") return number(&error_buffer);
  if (key == "min_diff") return number(&min_diff);
  if (key == "max_diff") return number(&max_diff);
  if (key == "queue" || key == "stack") return count(&queue);
  return Status::InvalidArgument("a limiter has no " + Quote(key) + "." + Suggest(key, LimiterKeys()));
}

Result<RateLimiterOptions> LimiterChange::ApplyTo(const RateLimiterOptions& limiter) const {
  const bool others = samples_per_insert || min_size_to_sample || error_buffer || min_diff || max_diff;
  if ((none || queue) && others) {
    return Status::InvalidArgument(std::string(none ? "none" : "queue") +
                                   " is a complete limiter; give no other keys");
  }
  if (none) return RateLimiterOptions::MinSize(1);
  if (queue) {
    const RateLimiterOptions options = RateLimiterOptions::Queue(*queue);
    REVERB_RETURN_IF_ERROR(options.Validate());
    return options;
  }
  RateLimiterOptions options = limiter;
  options.samples_per_insert = samples_per_insert.value_or(options.samples_per_insert);
  options.min_size_to_sample = min_size_to_sample.value_or(options.min_size_to_sample);
  if (error_buffer) {
    if (min_diff || max_diff) {
      return Status::InvalidArgument("error_buffer sets min_diff and max_diff; give one or the other");
    }
    return RateLimiterOptions::SampleToInsertRatio(options.samples_per_insert, options.min_size_to_sample,
                                                   *error_buffer);
  }
  options.min_diff = min_diff.value_or(options.min_diff);
  options.max_diff = max_diff.value_or(options.max_diff);
  REVERB_RETURN_IF_ERROR(options.Validate());
  return options;
}

Result<LimiterChange> ParseLimiter(std::string_view text) {
  LimiterChange change;
  bool is_empty = true;
  for (const std::string_view word : Split(text, " ,")) {
    if (word.empty()) continue;
    is_empty = false;
    const size_t equals = word.find('=');
    if (word == "none") {
      change.none = true;
    } else if (equals == std::string_view::npos) {
      return Status::InvalidArgument("expected KEY=VALUE, such as min_size=1000, or none; got " +
                                     Quote(word) + "." + Suggest(word, LimiterKeys()));
    } else {
      const std::string_view key = word.substr(0, equals);
      if (Status status = change.Set(key, word.substr(equals + 1)); !status.ok()) {
        if (std::ranges::find(LimiterKeys(), key) == LimiterKeys().end()) return status;
        return Status::InvalidArgument(std::string(key) + ": " + std::string(status.message()));
      }
    }
  }
  if (is_empty) {
    return Status::InvalidArgument("expected KEY=VALUE, such as min_size=1000, or none." +
                                   Suggest("", LimiterKeys()));
  }
  return change;
}

std::string ShowLimiter(const RateLimiterOptions& limiter) {
  constexpr double kUnbounded = std::numeric_limits<double>::max();
  std::string text = "sampling waits for " + ShowCount(limiter.min_size_to_sample, "item");
  if (limiter.min_diff <= -kUnbounded && limiter.max_diff >= kUnbounded) return text;
  return text + ", samples per insert " + ShowNumber(limiter.samples_per_insert) + " within " +
         ShowNumber(limiter.min_diff) + " … " + ShowNumber(limiter.max_diff);
}

// --- Tensors ---

Result<TensorSpec> ParseSpec(std::string_view text) {
  const Status wrong = Status::InvalidArgument(
      "expected a type and a shape, such as \"float32[84, 84]\", \"int32[]\" or \"uint8[?, 3]\" (? = any); "
      "got " +
      Quote(text));
  const size_t open = text.find('[');
  std::string_view name = text.substr(0, open);
  while (name.ends_with(' ')) name.remove_suffix(1);
  const std::optional<DType> dtype = ParseDType(name);
  if (!dtype) {
    std::vector<std::string> names;
    for (const DType known : AllDTypes()) names.emplace_back(DTypeName(known));
    return Status::InvalidArgument("there is no type " + Quote(name) + "." + Suggest(name, names));
  }
  std::vector<int64_t> dims;
  if (open != std::string_view::npos) {
    if (!text.ends_with(']')) return wrong;
    const std::string_view inside = text.substr(open + 1, text.size() - open - 2);
    if (inside.find_first_not_of(' ') != std::string_view::npos) {
      for (std::string_view part : Split(inside, ",")) {
        while (part.starts_with(' ')) part.remove_prefix(1);
        while (part.ends_with(' ')) part.remove_suffix(1);
        if (part == "?") {
          dims.push_back(Shape::kUnknownDim);
          continue;
        }
        const Result<int64_t> dim = ParseCount(part);
        if (!dim.ok()) return wrong;
        dims.push_back(*dim);
      }
    }
  }
  return TensorSpec{.name = {}, .dtype = *dtype, .shape = Shape(std::move(dims))};
}

// --- Tables ---

Result<TableOptions> ParseTable(std::string_view text) {
  std::vector<std::string_view> parts = Split(text, ":");
  const auto wrong = [&](std::string_view part, const Status& why) {
    return Status::InvalidArgument(Quote(text) + ": " + std::string(part) + ": " +
                                   std::string(why.message()));
  };
  TableOptions table{.name = std::string(parts[0])};
  if (table.name.empty()) {
    return Status::InvalidArgument(Quote(text) +
                                   ": the name is missing; expected NAME:SAMPLER:REMOVER:MAX_SIZE, such as "
                                   "replay:uniform:fifo:1000000");
  }
  LayoutPolicy layout = LayoutPolicy::kFirst;
  if (constexpr std::string_view kKey = "layout="; parts.size() > 1 && parts.back().starts_with(kKey)) {
    const std::string_view value = parts.back().substr(kKey.size());
    if (value != "first" && value != "any") {
      return Status::InvalidArgument(Quote(text) + ": layout: expected layout=first or layout=any; got " +
                                     Quote(value));
    }
    if (value == "any") layout = LayoutPolicy::kAny;
    parts.pop_back();
  }
  const bool is_queue = parts.size() > 1 && (parts[1] == "queue" || parts[1] == "stack");
  const size_t most = is_queue ? 3 : 5;
  if (parts.size() > most) {
    return Status::InvalidArgument(
        Quote(text) + ": there are " + std::to_string(parts.size()) + " parts; expected at most " +
        std::to_string(most) + ": " +
        (is_queue ? "NAME:queue:MAX_SIZE" : "NAME:SAMPLER:REMOVER:MAX_SIZE:LIMITER"));
  }
  if (is_queue) {
    if (parts.size() < 3)
      return Status::InvalidArgument(Quote(text) + ": a queue or stack needs a size, such as " + table.name +
                                     ":" + std::string(parts[1]) + ":1000");
    const Result<int64_t> size = ParseCount(parts[2]);
    if (!size.ok()) return wrong("MAX_SIZE", size.status());
    table =
        parts[1] == "queue" ? TableOptions::Queue(table.name, *size) : TableOptions::Stack(table.name, *size);
  } else {
    if (parts.size() > 1) {
      Result<SelectorOptions> sampler = ParseSelector(parts[1]);
      if (!sampler.ok()) return wrong("SAMPLER", sampler.status());
      table.sampler = *std::move(sampler);
    }
    if (parts.size() > 2) {
      Result<SelectorOptions> remover = ParseSelector(parts[2]);
      if (!remover.ok()) return wrong("REMOVER", remover.status());
      table.remover = *std::move(remover);
    }
    if (parts.size() > 3) {
      const Result<int64_t> size = ParseCount(parts[3]);
      if (!size.ok()) return wrong("MAX_SIZE", size.status());
      table.max_size = *size;
    }
    if (parts.size() > 4) {
      const Result<LimiterChange> change = ParseLimiter(parts[4]);
      if (!change.ok()) return wrong("LIMITER", change.status());
      Result<RateLimiterOptions> limiter = change->ApplyTo(table.rate_limiter);
      if (!limiter.ok()) return wrong("LIMITER", limiter.status());
      table.rate_limiter = *std::move(limiter);
    }
  }
  table.layout = layout;
  if (Status status = table.Validate(); !status.ok()) return wrong("table", status);
  return table;
}

}  // namespace reverb::program
