#include "reverb/selector.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "core/selectors/selectors_internal.h"
#include "core/selectors/slot_list.h"
#include "core/selectors/slot_set.h"

namespace reverb {
namespace internal {

std::string NumberText(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

Status CheckItems(const Selector& selector, std::span<const SelectorItem> items) {
  SlotSet seen;
  for (const SelectorItem& item : items) {
    if (Status status = selector.CheckPriority(item.priority); !status.ok()) {
      return CorruptState("restoring a " + selector.options().ToString() + " selector: item in slot " +
                          std::to_string(item.slot) + ": " + std::string(status.message()));
    }
    if (seen.Contains(item.slot)) {
      return CorruptState("restoring a " + selector.options().ToString() + " selector: two items in slot " +
                          std::to_string(item.slot));
    }
    seen.Insert(item.slot);
  }
  return Status::Ok();
}

size_t SelectorBytesPerSlot(SelectorOptions::Kind kind) {
  switch (kind) {
    case SelectorOptions::Kind::kFifo:
    case SelectorOptions::Kind::kLifo:
      return SlotList::kBytesPerSlot;
    case SelectorOptions::Kind::kUniform:
      return 8;  // two arrays of positions
    case SelectorOptions::Kind::kMinHeap:
    case SelectorOptions::Kind::kMaxHeap:
      return 28;  // an entry, and its position
    case SelectorOptions::Kind::kPrioritized:
      return 10;  // a weight, the sums above it, and a bit
    case SelectorOptions::Kind::kCustom:
      break;
  }
  return 24;
}

}  // namespace internal

std::string SelectorOptions::ToString() const {
  const std::string seed_text = seed.has_value() ? "seed=" + std::to_string(*seed) : std::string();
  switch (kind) {
    case Kind::kCustom:
      return custom_name.empty() ? "custom" : "custom(" + custom_name + ")";
    case Kind::kFifo:
      return "fifo";
    case Kind::kLifo:
      return "lifo";
    case Kind::kUniform:
      return seed_text.empty() ? "uniform" : "uniform(" + seed_text + ")";
    case Kind::kMinHeap:
      return "min_heap";
    case Kind::kMaxHeap:
      return "max_heap";
    case Kind::kPrioritized:
      return "prioritized(exponent=" + internal::NumberText(priority_exponent) +
             (seed_text.empty() ? "" : ", " + seed_text) + ")";
  }
  return "unknown(" + std::to_string(static_cast<int>(kind)) + ")";
}

Status SelectorOptions::Validate() const {
  switch (kind) {
    case Kind::kCustom:
    case Kind::kFifo:
    case Kind::kLifo:
    case Kind::kUniform:
    case Kind::kMinHeap:
    case Kind::kMaxHeap:
      return Status::Ok();
    case Kind::kPrioritized:
      if (!std::isfinite(priority_exponent) || priority_exponent < 0) {
        return Status::InvalidArgument("prioritized selector: priority_exponent " +
                                       internal::NumberText(priority_exponent) +
                                       " must be a finite number of at least 0");
      }
      return Status::Ok();
  }
  return Status::InvalidArgument("selector kind " + std::to_string(static_cast<int>(kind)) +
                                 " is not known; it may be from a later release");
}

Status Selector::CheckPriority(double priority) const {
  if (std::isnan(priority)) {
    return Status::InvalidArgument("priority nan: must not be NaN; use a number")
        .WithDetail(Detail::kInvalidPriority);
  }
  return Status::Ok();
}

Status Selector::Restore(std::span<const SelectorItem> items, std::string_view state) {
  if (!state.empty()) {
    return internal::CorruptState("restoring a " + options().ToString() + " selector: it has no state, but " +
                                  std::to_string(state.size()) + " bytes were saved");
  }
  REVERB_RETURN_IF_ERROR(internal::CheckItems(*this, items));
  for (const SelectorItem& item : items) Insert(item);
  return Status::Ok();
}

Result<std::unique_ptr<Selector>> MakeSelector(const SelectorOptions& options) {
  REVERB_RETURN_IF_ERROR(options.Validate());
  switch (options.kind) {
    case SelectorOptions::Kind::kCustom:
      break;
    case SelectorOptions::Kind::kFifo:
    case SelectorOptions::Kind::kLifo:
      return internal::MakeOrderSelector(options);
    case SelectorOptions::Kind::kUniform:
      return internal::MakeUniformSelector(options);
    case SelectorOptions::Kind::kMinHeap:
    case SelectorOptions::Kind::kMaxHeap:
      return internal::MakeHeapSelector(options);
    case SelectorOptions::Kind::kPrioritized:
      return internal::MakePrioritizedSelector(options);
  }
  return Status::InvalidArgument(
      "selector " + options.ToString() +
      ": the library cannot create a custom selector; pass the object in TableOptions");
}

}  // namespace reverb
