// scratch.h — temporary memory for one call, reused by the thread.
//
// A thread keeps at most kMaxKeptBytes per use; larger blocks are freed when the Scratch is destroyed. The
// contents are initially undefined. Two Scratches of the same use must not exist on one thread at the same
// time: they would share their bytes.
// Threads: an object belongs to the thread that created it.
#ifndef REVERB_TENSOR_SCRATCH_H_
#define REVERB_TENSOR_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "reverb/status.h"

namespace reverb::internal {

class Scratch {
 public:
  enum Use : uint8_t { kDelta, kCompressed, kStrings, kDecoded, kSnappy, kNumUses };
  static constexpr size_t kMaxKeptBytes = size_t{1} << 20;

  Scratch(Use use, size_t size);
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Null if no memory is left.
  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<uint8_t> span() const { return {data_, size_}; }

  static Status NoMemory(size_t size) {
    return Status::ResourceExhausted("no memory for " + std::to_string(size) + " bytes of scratch space");
  }

 private:
  std::unique_ptr<uint8_t[]> own_;  // set if too large to keep
  uint8_t* data_;
  const size_t size_;
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_SCRATCH_H_
