#include "base/scattered_bytes.h"

#include <algorithm>
#include <cstring>

namespace reverb::internal {
namespace {

// Parts are at random addresses: the hardware does not prefetch them. Of each, at most this many bytes are
// prefetched, this many parts ahead.
constexpr size_t kPrefetchBytes = 1024;
constexpr size_t kPrefetchAhead = 8;
constexpr size_t kCacheLineBytes = 64;

void PrefetchPart(ScatteredBytes::Part part) {
  const size_t bytes = std::min(part.size(), kPrefetchBytes);
  for (size_t i = 0; i < bytes; i += kCacheLineBytes) __builtin_prefetch(part.data() + i);
}

}  // namespace

ScatteredBytes::ScatteredBytes(Buffer owner, std::vector<Part> parts)
    : owner_(std::move(owner)), parts_(std::move(parts)) {
  for (const Part part : parts_) size_ += part.size();
  if (parts_.empty()) return;
  const size_t first = parts_.front().size();
  const auto has_first_size = [&](Part part) { return part.size() == first; };
  if (first > 0 && parts_.back().size() <= first &&
      std::all_of(parts_.begin(), parts_.end() - 1, has_first_size)) {
    part_bytes_ = first;
    return;
  }
  ends_.reserve(parts_.size());
  size_t end = 0;
  for (const Part part : parts_) ends_.push_back(end += part.size());
}

std::span<const ScatteredBytes::Part> ScatteredBytes::PartsFrom(size_t* offset) const {
  size_t index = 0;
  if (part_bytes_ > 0) {
    index = std::min(*offset / part_bytes_, parts_.size() - 1);
    *offset -= index * part_bytes_;
  } else if (!parts_.empty()) {
    index = static_cast<size_t>(std::ranges::upper_bound(ends_, *offset) - ends_.begin());
    if (index > 0) *offset -= ends_[index - 1];
  }
  return std::span(parts_).subspan(index);
}

Status ScatteredBytes::CopyTo(uint8_t* out, size_t offset, size_t size) const {
  const std::span<const Part> parts = PartsFrom(&offset);
  const bool is_long = !parts.empty() && size > parts[0].size();
  for (size_t i = 1; is_long && i < std::min(kPrefetchAhead, parts.size()); ++i) PrefetchPart(parts[i]);
  for (size_t i = 0; size > 0; ++i, offset = 0) {
    if (i + kPrefetchAhead < parts.size() && size > parts[i].size()) PrefetchPart(parts[i + kPrefetchAhead]);
    const size_t taken = std::min(parts[i].size() - offset, size);
    if (taken > 0) std::memcpy(out, parts[i].data() + offset, taken);
    out += taken;
    size -= taken;
  }
  return owner_.CheckValid();
}

ScatteredBytes::Part ScatteredBytes::Contiguous() const {
  std::call_once(once_, [this] {
    uint8_t* out = nullptr;
    contiguous_ = Buffer::Allocate(size_, &out);
    (void)CopyTo(out, 0, size_);
  });
  return contiguous_.span();
}

}  // namespace reverb::internal
