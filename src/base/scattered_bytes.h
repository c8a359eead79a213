// scattered_bytes.h — immutable bytes that lie in many parts, as a network hands them over.
//
// Whoever wants to copy them somewhere copies from the parts; only who needs them in one piece pays for
// putting them together, once.
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

  // `keeper` keeps the parts alive; what bytes it shows itself does not matter.
  ScatteredBytes(Buffer keeper, std::vector<Part> parts);

  size_t size() const { return size_; }
  std::span<const Part> parts() const { return parts_; }

  // Copies `size` bytes from `offset` on. REQUIRES: offset + size <= size().
  void CopyTo(uint8_t* out, size_t offset, size_t size) const;
  // All of them in one piece, which lives as long as this object.
  Part Together() const;

 private:
  const Buffer keeper_;
  const std::vector<Part> parts_;
  size_t size_ = 0;
  mutable std::once_flag once_;
  mutable Buffer together_;
};

// Calls visit(part) for the pieces of `parts` that hold `size` bytes from `offset` on.
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
