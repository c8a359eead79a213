#include "core/observed_structure.h"

namespace reverb::internal {

bool ObservedStructure::Observe(const ItemStructure& structure) {
  MutexLock lock(&mu_);
  if (!structure || is_ambiguous_) return false;
  if (!structure_ || from_before_reset_) {
    structure_ = structure;
    from_before_reset_ = false;
    return false;
  }
  is_ambiguous_ = !(structure_ == structure);
  return is_ambiguous_;
}

void ObservedStructure::Reset() {
  MutexLock lock(&mu_);
  if (is_ambiguous_) structure_ = {};
  is_ambiguous_ = false;
  from_before_reset_ = true;
  resets_.fetch_add(1, std::memory_order_relaxed);
}

std::optional<std::string> ObservedStructure::Get() const {
  MutexLock lock(&mu_);
  if (!structure_) return std::nullopt;
  return is_ambiguous_ ? std::string() : std::string(structure_.encoded());
}

Status ObservedStructure::Restore(const std::optional<std::string>& saved) {
  if (!saved) return Status::Ok();
  MutexLock lock(&mu_);
  is_ambiguous_ = saved->empty();
  // If it is ambiguous, any structure will do.
  if (is_ambiguous_) {
    REVERB_ASSIGN_OR_RETURN(structure_, ItemStructure::Create(Signature()));
  } else {
    REVERB_ASSIGN_OR_RETURN(structure_, ItemStructure::Decode(*saved));
  }
  return Status::Ok();
}

}  // namespace reverb::internal
