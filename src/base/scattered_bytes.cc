#include "base/scattered_bytes.h"

#include <algorithm>
#include <cstring>

namespace reverb::internal {
namespace {

// Parts are at random addresses: the hardware does not prefetch them. Of each, at most this many bytes are
// prefetched, this many parts ahead, into the second-level cache.
constexpr size_t kPrefetchBytes = 1024;
constexpr size_t kPrefetchAhead = 24;
constexpr int kSecondLevel = 2;
constexpr size_t kCacheLineBytes = 64;

void PrefetchPart(ScatteredBytes::Part part) {
  const size_t bytes = std::min(part.size(), kPrefetchBytes);
  const auto prefetch = [](const uint8_t* line) {
    __builtin_prefetch(line, 0, kSecondLevel);
    asm volatile("");  // without it, GCC 12 removes calls of functions that only prefetch
  };
  for (size_t i = 0; i < bytes; i += kCacheLineBytes) prefetch(part.data() + i);
  if (bytes > kCacheLineBytes) prefetch(part.data() + bytes - 1);
}

// Copies `count` parts of kBytes each, or of `bytes` if kBytes is 0, one after the other. The compiler emits no call for
// small constants. Also prefetches parts after them, which the caller may copy next.
template <size_t kBytes>
void CopyParts(uint8_t* out, std::span<const ScatteredBytes::Part> parts, size_t count, size_t bytes) {
  if constexpr (kBytes > 0) bytes = kBytes;
  for (size_t i = 0; i < std::min(count, kPrefetchAhead); ++i) PrefetchPart(parts[i]);
  for (size_t i = 0; i < count; ++i) {
    if (i + kPrefetchAhead < parts.size()) PrefetchPart(parts[i + kPrefetchAhead]);
    std::memcpy(out + i * bytes, parts[i].data(), kBytes > 0 ? kBytes : bytes);
  }
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
  // Whole parts of one size, as the rows of a batch: the last one may be shorter.
  if (const size_t bytes = part_bytes_; bytes > 0 && offset == 0 && size % bytes == 0 &&
                                        (size / bytes < parts.size() || parts.back().size() == bytes)) {
    const size_t count = size / bytes;
    switch (bytes) {
      case 1:
        CopyParts<1>(out, parts, count, bytes);
        break;
      case 2:
        CopyParts<2>(out, parts, count, bytes);
        break;
      case 4:
        CopyParts<4>(out, parts, count, bytes);
        break;
      case 8:
        CopyParts<8>(out, parts, count, bytes);
        break;
      default:
        CopyParts<0>(out, parts, count, bytes);
    }
    return owner_.CheckValid();
  }
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
