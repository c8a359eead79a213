// scattered_bytes.h — immutable bytes in several parts, as received from another process.
//
// Copies read directly from the parts, of which there may be thousands: the first one is found by its
// position. Only a caller that needs contiguous bytes pays for joining them, once.
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
#include "reverb/status.h"

namespace reverb::internal {

class ScatteredBytes {
 public:
  using Part = std::span<const uint8_t>;

  // `owner` keeps the parts alive; the bytes that it shows itself are not used.
  ScatteredBytes(Buffer owner, std::vector<Part> parts);

  size_t size() const { return size_; }
  std::span<const Part> parts() const { return parts_; }

  // Returns the parts from the one on that contains byte `offset`, which it sets to the offset in that part.
  // REQUIRES: *offset <= size().
  std::span<const Part> PartsFrom(size_t* offset) const;

  // Copies `size` bytes starting at `offset`. Fails if the owner has lost the bytes (Buffer::CheckValid): the
  // copy is then worthless. REQUIRES: offset + size <= size().
  Status CopyTo(uint8_t* out, size_t offset, size_t size) const;
  // Returns all bytes as one contiguous part, which lives as long as this object. If the owner had lost the
  // bytes before they were joined, CheckValid() of the owner fails.
  Part Contiguous() const;

 private:
  const Buffer owner_;
  const std::vector<Part> parts_;
  size_t size_ = 0;
  // The size of all parts, except that the last one may be shorter; 0 if they differ.
  size_t part_bytes_ = 0;
  std::vector<size_t> ends_;  // of the parts, if they differ
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
