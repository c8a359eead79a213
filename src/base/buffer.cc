#include "base/buffer.h"

#include <limits>
#include <new>

namespace reverb::internal {
namespace {

// Blocks of at least this size are aligned to a cache line, for SIMD and for direct I/O of pages.
constexpr size_t kLargeBytes = 4096;
constexpr size_t kLargeAlignment = 64;
constexpr size_t kSmallAlignment = 16;

// Lies in front of the bytes, in the same allocation.
class HeapBlock final : public BufferOwner {
 public:
  static HeapBlock* New(size_t size) {
    const size_t alignment = size >= kLargeBytes ? kLargeAlignment : kSmallAlignment;
    const size_t header = HeaderBytes(alignment);
    // No object can be larger. A size above the maximum makes operator new throw std::bad_alloc; a sum that
    // overflows, here or when operator new rounds it up, would allocate a small block.
    constexpr size_t kMaxBytes = std::numeric_limits<ptrdiff_t>::max();
    const size_t total = size > kMaxBytes - header ? kMaxBytes + 1 : header + size;
    void* const memory = ::operator new(total, static_cast<std::align_val_t>(alignment));
    return new (memory) HeapBlock(alignment);
  }

  uint8_t* bytes() { return reinterpret_cast<uint8_t*>(this) + HeaderBytes(alignment_); }

 private:
  explicit HeapBlock(size_t alignment) : alignment_(static_cast<uint32_t>(alignment)) {}

  static constexpr size_t HeaderBytes(size_t alignment) {
    return (sizeof(HeapBlock) + alignment - 1) / alignment * alignment;
  }

  void Destroy() override {
    const auto alignment = static_cast<std::align_val_t>(alignment_);
    this->~HeapBlock();
    ::operator delete(static_cast<void*>(this), alignment);
  }

  const uint32_t alignment_;
};

}  // namespace

Buffer Buffer::Allocate(size_t size, uint8_t** out) {
  if (size == 0) {
    // A valid address, which memcpy() requires even for zero bytes.
    alignas(kSmallAlignment) static uint8_t nothing[kSmallAlignment];
    *out = nothing;
    return Buffer(nullptr, nothing, 0);
  }
  HeapBlock* const block = HeapBlock::New(size);
  *out = block->bytes();
  return Buffer(block, *out, size);
}

Buffer Buffer::CopyOf(std::span<const uint8_t> bytes) {
  uint8_t* out;
  Buffer buffer = Allocate(bytes.size(), &out);
  if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
  return buffer;
}

Buffer Buffer::CopyOf(std::string_view bytes) {
  return CopyOf(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

}  // namespace reverb::internal
