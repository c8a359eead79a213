// block_buffer.h — memory for whole blocks of a file.
#ifndef REVERB_STORAGE_BLOCK_BUFFER_H_
#define REVERB_STORAGE_BLOCK_BUFFER_H_

#include <cstdint>
#include <new>
#include <span>

#include "base/file_system.h"
#include "base/payload_memory.h"

namespace reverb::internal {

class BlockBuffer {
 public:
  // REQUIRES: a multiple of BlockFile::kBlockBytes.
  explicit BlockBuffer(uint64_t bytes)
      : bytes_(bytes), data_(static_cast<uint8_t*>(ProcessPayloadMemory()->Allocate(bytes, kAlign))) {}
  ~BlockBuffer() {
    if (data_ != nullptr) ProcessPayloadMemory()->Free(data_, bytes_, kAlign);
  }
  BlockBuffer(const BlockBuffer&) = delete;
  BlockBuffer& operator=(const BlockBuffer&) = delete;

  uint8_t* data() const { return data_; }  // null: no memory
  std::span<uint8_t> span() const { return {data_, bytes_}; }

 private:
  static constexpr std::align_val_t kAlign{BlockFile::kBlockBytes};

  const uint64_t bytes_;
  uint8_t* const data_;
};

}  // namespace reverb::internal

#endif  // REVERB_STORAGE_BLOCK_BUFFER_H_
