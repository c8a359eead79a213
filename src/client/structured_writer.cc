#include "client/structured_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "client/structured_config.h"

namespace reverb::internal {
namespace {

template <typename T>
T Load(const void* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

// Returns the value of a bool or integer with one element, truncated to 32 bits; absent for anything else.
std::optional<int64_t> ConditionValue(const TensorView& tensor) {
  if (tensor.num_elements() != 1) return std::nullopt;
  switch (tensor.dtype) {
    case DType::kBool:
      return Load<uint8_t>(tensor.data) != 0;
    case DType::kInt8:
      return Load<int8_t>(tensor.data);
    case DType::kUint8:
      return Load<uint8_t>(tensor.data);
    case DType::kInt16:
      return Load<int16_t>(tensor.data);
    case DType::kUint16:
      return Load<uint16_t>(tensor.data);
    case DType::kInt32:
    case DType::kUint32:
    case DType::kInt64:
    case DType::kUint64:
      return Load<int32_t>(tensor.data);  // little-endian: the low half comes first
    default:
      return std::nullopt;
  }
}

std::optional<double> TdErrorValue(const TensorView& tensor) {
  if (tensor.num_elements() != 1) return std::nullopt;
  switch (tensor.dtype) {
    case DType::kFloat64:
      return Load<double>(tensor.data);
    case DType::kFloat32:
      return Load<float>(tensor.data);
    case DType::kInt32:
      return Load<int32_t>(tensor.data);
    case DType::kInt64:
      return static_cast<double>(Load<int64_t>(tensor.data));
    default:
      return std::nullopt;
  }
}

int64_t MaxAgeOf(const StructuredWriterOptions& options) {
  int64_t age = 1;
  for (const StructuredConfig& config : options.configs) age = std::max(age, MaxAge(config));
  return age;
}

}  // namespace

StructuredWriterImpl::StructuredWriterImpl(StructuredWriterOptions options, std::unique_ptr<ItemSink> sink)
    : max_age_(MaxAgeOf(options)),
      writer_({.chunking = {.num_keep_alive_refs = max_age_, .max_chunk_length = options.max_chunk_length},
               .compression = options.compression,
               .signatures = options.signatures,
               .wait_for_room = options.wait_for_room,
               .seed = options.seed},
              std::move(sink), ColumnStore::Packing::kSmall, ColumnStore::ErrorStyle::kStructured) {
  const auto leaf = [&](int64_t source) -> Leaf& {
    if (static_cast<size_t>(source) >= leaves_.size()) leaves_.resize(source + 1);
    return leaves_[source];
  };
  for (StructuredConfig& config : options.configs) {
    AddBufferLengthCondition(&config);
    for (const PatternNode& node : config.pattern) leaf(node.source).in_pattern = true;
    for (const PatternCondition& condition : config.conditions) {
      if (condition.left == PatternCondition::Left::kData) leaf(condition.source).in_condition = true;
    }
    if (const auto* td_error = std::get_if<TdErrorPriority>(&config.priority)) {
      leaf(td_error->source).in_td_error = true;
    }
    configs_.push_back({.config = std::move(config)});
  }
  for (uint32_t i = 0; i < leaves_.size(); ++i) {
    if (!leaves_[i].in_pattern && leaves_[i].in_condition) (void)writer_.Discard(i);
    if (i < options.paths.size()) (void)writer_.NameColumn(i, std::move(options.paths[i]));
  }
}

// --- Appending ---

Status StructuredWriterImpl::Append(std::span<const std::optional<TensorView>> leaves, bool closes_step) {
  if (num_leaves_ && leaves.size() != *num_leaves_) {
    return Status::InvalidArgument("Flattened data has an unexpected length, got " +
                                   std::to_string(leaves.size()) + " but wanted " +
                                   std::to_string(*num_leaves_) + ".");
  }
  if (leaves.size() < leaves_.size()) {
    return Status::InvalidArgument("Flattened data has an unexpected length, got " +
                                   std::to_string(leaves.size()) + " but a config refers to leaf " +
                                   std::to_string(leaves_.size() - 1) + ".");
  }
  values_.clear();
  for (uint32_t i = 0; i < leaves_.size(); ++i) {
    if (leaves[i] && leaves_[i].is_used()) values_.push_back({.column = i, .value = *leaves[i]});
  }
  const int64_t newest = writer_.columns().position();
  REVERB_RETURN_IF_ERROR(closes_step ? writer_.Append(values_) : writer_.AppendPartial(values_));
  num_leaves_ = leaves.size();
  for (const ColumnValue& value : values_) Observe(leaves_[value.column], value.value, newest);
  return Apply(newest, false);
}

void StructuredWriterImpl::Observe(Leaf& leaf, const TensorView& value, int64_t position) {
  if (leaf.in_condition) {
    leaf.condition_position = position;
    leaf.condition_value = ConditionValue(value);
  }
  if (leaf.in_td_error) {
    const std::optional<double> number = TdErrorValue(value);
    leaf.td_errors.push_back() = {
        .position = position, .valid = number.has_value(), .value = number.value_or(0)};
    if (leaf.td_errors.size() > static_cast<size_t>(max_age_)) leaf.td_errors.pop_front();
  }
}

Status StructuredWriterImpl::EndEpisode(bool clear, const WaitOptions& wait) {
  const ColumnStore& columns = writer_.columns();
  const int64_t newest = columns.position() - !columns.step_is_open();
  if (!writer_.is_closed() && newest >= columns.episode_begin()) {
    REVERB_RETURN_IF_ERROR(Apply(newest, true));
  }
  return writer_.EndEpisode(clear, wait);
}

// --- Creating items ---

Status StructuredWriterImpl::Apply(int64_t newest, bool ends_episode) {
  const ColumnStore& columns = writer_.columns();
  bool any = false;
  for (uint32_t i = 0; i < leaves_.size() && !any; ++i) {
    any = leaves_[i].is_used() && columns.HasCell(i, newest);
  }
  if (!any) return Status::Ok();
  for (Config& config : configs_) {
    if (config.last_applied == newest) continue;
    if (config.last_checked != newest) {
      config.last_checked = newest;
      ++config.steps_since_applied;
    }
    if (!ConditionsHold(config, newest, ends_episode) || !ResolvePattern(config, newest)) continue;
    REVERB_ASSIGN_OR_RETURN(const double priority, PriorityOf(config));
    columns_.clear();
    for (size_t i = 0; i < ranges_.size(); ++i) {
      columns_.push_back({.cells = {&ranges_[i], 1}, .squeeze = !config.config.pattern[i].start});
    }
    REVERB_RETURN_IF_ERROR(
        writer_.CreateItem(config.config.table, priority, columns_, config.config.structure));
    config.last_applied = newest;
    config.steps_since_applied = 0;
  }
  return Status::Ok();
}

bool StructuredWriterImpl::ConditionsHold(const Config& config, int64_t newest, bool ends_episode) const {
  const ColumnStore& columns = writer_.columns();
  for (const PatternCondition& condition : config.config.conditions) {
    int64_t left = 0;
    switch (condition.left) {
      case PatternCondition::Left::kStepIndex:
        left = newest - columns.episode_begin();
        break;
      case PatternCondition::Left::kStepsSinceApplied:
        left = config.steps_since_applied;
        break;
      case PatternCondition::Left::kEndEpisode:
        left = ends_episode;
        break;
      case PatternCondition::Left::kBufferLength:
        left = std::min(newest + 1 - columns.history_begin(), max_age_);
        break;
      case PatternCondition::Left::kData: {
        const Leaf& leaf = leaves_[condition.source];
        if (leaf.condition_position != newest || !leaf.condition_value) return false;
        left = *leaf.condition_value;
        break;
      }
      case PatternCondition::Left::kNone:
        return false;
    }
    if (!Holds(condition, left)) return false;
  }
  return true;
}

bool StructuredWriterImpl::ResolvePattern(const Config& config, int64_t newest) {
  const ColumnStore& columns = writer_.columns();
  ranges_.clear();
  for (const PatternNode& node : config.config.pattern) {
    const int64_t after = newest + 1;
    const auto column = static_cast<uint32_t>(node.source);
    ranges_.push_back(node.start ? CellRange{.column = column,
                                             .begin = after + *node.start,
                                             .end = after + node.stop.value_or(0),
                                             .stride = node.step.value_or(1)}
                                 : CellRange::One(column, after + *node.stop));
    const CellRange& range = ranges_.back();
    for (int64_t position = range.begin; position < range.end; position += range.stride) {
      if (!columns.HasCell(column, position)) return false;
    }
  }
  return true;
}

Result<double> StructuredWriterImpl::PriorityOf(const Config& config) const {
  if (const double* constant = std::get_if<double>(&config.config.priority)) return *constant;
  const auto* td_error = std::get_if<TdErrorPriority>(&config.config.priority);
  if (td_error == nullptr) {
    return Status::InvalidArgument("the config for table '" + config.config.table +
                                   "' has no priority; set a constant or a TD error");
  }
  double priority = 0;
  const Ring<Number>& numbers = leaves_[td_error->source].td_errors;
  for (const CellRange& range : ranges_) {
    if (range.column != td_error->source) continue;
    double largest = 0;
    double sum = 0;
    int64_t rows = 0;
    size_t i = 0;
    for (int64_t position = range.begin; position < range.end; position += range.stride) {
      while (i < numbers.size() && numbers[i].position < position) ++i;
      if (i == numbers.size() || numbers[i].position != position || !numbers[i].valid) {
        return Status::InvalidArgument(
            "the TD error of table '" + config.config.table + "' uses leaf " +
            std::to_string(td_error->source) +
            ", which must be of one element and of dtype double, float, int32 or int64");
      }
      const double magnitude = std::abs(numbers[i].value);
      largest = std::max(largest, magnitude);
      sum += magnitude;
      ++rows;
    }
    const double weight = td_error->max_priority_weight;
    priority = weight * largest + (1 - weight) * sum / static_cast<double>(rows);
  }
  return priority;
}

}  // namespace reverb::internal
