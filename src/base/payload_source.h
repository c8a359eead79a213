// payload_source.h — where the payloads of chunks are allocated.
//
// A chunk without a PayloadSource has its payload in its own private memory (base/payload_memory.h).
// SharedMemory (base/shared_memory.h) provides memory that other processes can map.
//
// Ownership: a source outlives the blocks that it has allocated.
// Threads: all methods may be called concurrently.
#ifndef REVERB_BASE_PAYLOAD_SOURCE_H_
#define REVERB_BASE_PAYLOAD_SOURCE_H_

#include <cstddef>
#include <cstdint>

namespace reverb::internal {

class PayloadSource {
 public:
  // Returns at least `bytes` bytes, aligned to 16; null if the source has no memory left. The caller then
  // uses private memory.
  virtual uint8_t* Allocate(size_t bytes) = 0;
  // REQUIRES: `block` came from Allocate(bytes).
  virtual void Free(uint8_t* block, size_t bytes) = 0;

 protected:
  ~PayloadSource() = default;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_PAYLOAD_SOURCE_H_
