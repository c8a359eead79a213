#include "core/observed_structure.h"

namespace reverb::internal {

bool StructureNote::Take(const ItemStructure& structure) {
  MutexLock lock(&mu_);
  if (!structure || differ_) return false;
  if (!structure_ || is_of_before_) {
    structure_ = structure;
    is_of_before_ = false;
    return false;
  }
  differ_ = !(structure_ == structure);
  return differ_;
}

void StructureNote::Reset() {
  MutexLock lock(&mu_);
  if (differ_) structure_ = {};
  differ_ = false;
  is_of_before_ = true;
  resets_.fetch_add(1, std::memory_order_relaxed);
}

std::optional<std::string> StructureNote::Get() const {
  MutexLock lock(&mu_);
  if (!structure_) return std::nullopt;
  return differ_ ? std::string() : std::string(structure_.encoded());
}

Status StructureNote::Restore(const std::optional<std::string>& saved) {
  if (!saved) return Status::Ok();
  MutexLock lock(&mu_);
  differ_ = saved->empty();
  // Where they differ, any one will do.
  if (differ_) {
    REVERB_ASSIGN_OR_RETURN(structure_, ItemStructure::Create(Signature()));
  } else {
    REVERB_ASSIGN_OR_RETURN(structure_, ItemStructure::Decode(*saved));
  }
  return Status::Ok();
}

}  // namespace reverb::internal
