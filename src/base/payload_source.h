// payload_source.h — where the payloads of chunks are allocated.
//
// A chunk without a PayloadSource has its payload in its own private memory (base/payload_memory.h).
// SharedMemory (base/shared_memory.h) provides memory that other processes can map.
//
// Ownership: a source outlives the blocks that it has allocated.
// Threads: all methods may be called concurrently.
#ifndef REVERB_BASE_PAYLOAD_SOURCE_H_
#define REVERB_BASE_PAYLOAD_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace reverb::internal {

class PayloadSource {
 public:
  // Returns false if Allocate() would return null now whatever the size.
  virtual bool is_enabled() const { return true; }
  // Returns at least `bytes` bytes, aligned to 16; null if the source has no memory left. The caller then
  // uses private memory.
  virtual uint8_t* Allocate(size_t bytes) = 0;
  // REQUIRES: `block` came from Allocate(bytes).
  virtual void Free(uint8_t* block, size_t bytes) = 0;

 protected:
  ~PayloadSource() = default;
};

// Passes requests on to another source once that is enabled; until then it has no memory, so that chunks are private.
class OnDemandSource final : public PayloadSource {
 public:
  explicit OnDemandSource(PayloadSource* source) : source_(source) {}

  void Enable() { is_enabled_.store(true, std::memory_order_relaxed); }
  bool is_enabled() const override { return is_enabled_.load(std::memory_order_relaxed); }
  uint8_t* Allocate(size_t bytes) override { return is_enabled() ? source_->Allocate(bytes) : nullptr; }
  void Free(uint8_t* block, size_t bytes) override { source_->Free(block, bytes); }

 private:
  PayloadSource* const source_;
  std::atomic<bool> is_enabled_{false};
};

// Passes requests for large blocks on to another source; it has no memory for smaller ones, so that those chunks are
// private.
class LargeBlockSource final : public PayloadSource {
 public:
  LargeBlockSource(PayloadSource* source, size_t min_bytes) : source_(source), min_bytes_(min_bytes) {}

  bool is_enabled() const override { return source_->is_enabled(); }
  uint8_t* Allocate(size_t bytes) override { return bytes < min_bytes_ ? nullptr : source_->Allocate(bytes); }
  void Free(uint8_t* block, size_t bytes) override { source_->Free(block, bytes); }

 private:
  PayloadSource* const source_;
  const size_t min_bytes_;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_PAYLOAD_SOURCE_H_
