// scattered_bytes.h — immutable bytes in several parts, as received from the network.
//
// Copies read directly from the parts. Only a caller that needs contiguous bytes pays for joining them, once.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_BASE_SCATTERED_BYTES_H_
#define REVERB_BASE_SCATTERED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"

namespace reverb::internal {

class ScatteredBytes {
 public:
  using Part = std::span<const uint8_t>;

  // `owner` keeps the parts alive; the bytes that it shows itself are not used.
  ScatteredBytes(Buffer owner, std::vector<Part> parts);

  size_t size() const { return size_; }
  std::span<const Part> parts() const { return parts_; }

  // Copies `size` bytes starting at `offset`. REQUIRES: offset + size <= size().
  void CopyTo(uint8_t* out, size_t offset, size_t size) const;
  // Returns all bytes as one contiguous part, which lives as long as this object.
  Part Contiguous() const;

 private:
  const Buffer owner_;
  const std::vector<Part> parts_;
  size_t size_ = 0;
  mutable std::once_flag once_;
  mutable Buffer contiguous_;
};

// Calls visit(part) for the pieces of `parts` that contain `size` bytes starting at `offset`.
template <typename F>
void ForEachPart(std::span<const ScatteredBytes::Part> parts, size_t offset, size_t size, const F& visit) {
  for (const auto part : parts) {
    if (size == 0) return;
    if (offset >= part.size()) {
      offset -= part.size();
      continue;
    }
    const size_t taken = part.size() - offset < size ? part.size() - offset : size;
    visit(part.subspan(offset, taken));
    offset = 0;
    size -= taken;
  }
}

}  // namespace reverb::internal

#endif  // REVERB_BASE_SCATTERED_BYTES_H_
