// buffer.h — immutable bytes with shared ownership.
//
// A Buffer is a view plus a reference to the owner that keeps the bytes alive: a heap block, a mapped file,
// or another BufferOwner. Copying a Buffer costs one atomic increment; slicing shares the owner.
//
// An owner can lose its bytes: a peer that shares its memory may take it back. CheckValid() tells so, and is
// called after copying from such bytes.
//
// Threads: distinct Buffers over the same bytes may be used concurrently.
#ifndef REVERB_BASE_BUFFER_H_
#define REVERB_BASE_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "reverb/status.h"

namespace reverb::internal {

class BufferOwner {
 public:
  BufferOwner() = default;
  BufferOwner(const BufferOwner&) = delete;
  BufferOwner& operator=(const BufferOwner&) = delete;
  void Ref() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) Destroy();
  }
  // Returns an error if the bytes may no longer be the original ones. An override must not order its check
  // before earlier reads of the bytes (std::atomic_thread_fence).
  virtual Status CheckValid() const { return Status::Ok(); }

 protected:
  virtual ~BufferOwner() = default;
  // Frees the bytes and this object. Override it if the object was not allocated with `new`.
  virtual void Destroy() { delete this; }

 private:
  std::atomic<uint32_t> refs_{1};
};

class Buffer {
 public:
  Buffer() = default;
  // Takes over one reference to `owner`, which may be null for static bytes.
  Buffer(BufferOwner* owner, const uint8_t* data, size_t size) : owner_(owner), data_(data), size_(size) {}
  Buffer(const Buffer& other) : owner_(other.owner_), data_(other.data_), size_(other.size_) {
    if (owner_) owner_->Ref();
  }
  Buffer(Buffer&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() {
    if (owner_) owner_->Unref();
  }

  // Allocates owner and bytes in one block. Write the bytes to `*out`.
  static Buffer Allocate(size_t size, uint8_t** out);
  static Buffer CopyOf(std::span<const uint8_t> bytes);
  static Buffer CopyOf(std::string_view bytes);

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // False for static bytes and for an empty Buffer.
  bool has_owner() const { return owner_ != nullptr; }
  std::span<const uint8_t> span() const { return {data_, size_}; }
  // Call it after copying from the bytes, before the copy is used.
  Status CheckValid() const { return owner_ ? owner_->CheckValid() : Status::Ok(); }

  // REQUIRES: offset + length <= size().
  Buffer Slice(size_t offset, size_t length) const {
    if (owner_) owner_->Ref();
    return Buffer(owner_, data_ + offset, length);
  }

 private:
  BufferOwner* owner_ = nullptr;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_BUFFER_H_
