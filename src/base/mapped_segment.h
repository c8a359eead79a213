// mapped_segment.h — a segment of the shared memory of another process, mapped for reading.
//
// The other process may be malicious: it may write to the segment at any time, but it cannot make an access
// fault, since the segment is checked to be a memfd that cannot shrink. Copy bytes before checking them.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_BASE_MAPPED_SEGMENT_H_
#define REVERB_BASE_MAPPED_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/mutex.h"
#include "reverb/status.h"

namespace reverb::internal {

class MappedSegment {
 public:
  // Bounds the address space that one segment of a peer can take.
  static constexpr uint64_t kMaxBytes = uint64_t{64} << 30;

  // Maps the memfd, whose size must be `bytes`. INVALID_ARGUMENT if it is something else than a sealed memfd
  // of that size. `descriptor` remains the caller's and is not needed afterwards.
  static Result<std::shared_ptr<const MappedSegment>> Map(int descriptor, uint64_t bytes);
  ~MappedSegment();
  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;

  uint64_t size() const { return bytes_.size(); }
  std::span<const uint8_t> bytes() const { return bytes_; }
  // Returns `length` bytes from `offset` on; INVALID_ARGUMENT if they are not all in the segment. Safe for
  // untrusted arguments.
  Result<std::span<const uint8_t>> Range(uint64_t offset, uint64_t length) const;

  bool Contains(std::span<const uint8_t> bytes) const {
    return bytes.data() >= bytes_.data() && bytes.data() + bytes.size() <= bytes_.data() + bytes_.size();
  }
  // Copies the pages that contain `bytes`, at the same addresses: from now on this mapping shows the bytes as
  // they are now, whatever the other process does with them. Other bytes of these pages do not change here any
  // more either, so the mapping must not be used for later messages. Bytes outside of the segment are ignored.
  // Returns false if the system has no memory left.
  bool MakePrivate(std::span<const uint8_t> bytes) const;

 private:
  explicit MappedSegment(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  const std::span<const uint8_t> bytes_;
  mutable Mutex private_mu_;  // held while pages are writable
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_MAPPED_SEGMENT_H_
