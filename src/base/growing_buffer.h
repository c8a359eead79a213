// growing_buffer.h — bytes that are written one after the other and then become a Buffer without a copy.
//
// A std::string checks its capacity and writes a terminating zero with each byte. Here the writer asks for enough
// room first, writes through a pointer, and says where it has stopped.
//
// Threads: a GrowingBuffer belongs to one thread.
#ifndef REVERB_BASE_GROWING_BUFFER_H_
#define REVERB_BASE_GROWING_BUFFER_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/buffer.h"

namespace reverb::internal {

class GrowingBuffer {
 public:
  explicit GrowingBuffer(size_t capacity) { Grow(capacity); }
  GrowingBuffer(const GrowingBuffer&) = delete;
  GrowingBuffer& operator=(const GrowingBuffer&) = delete;

  size_t size() const { return static_cast<size_t>(end_ - begin_); }
  // Valid until bytes are added.
  char* data() { return begin_; }

  // Returns the position for the next bytes, with room for `count` of them.
  char* Room(size_t count) {
    if (static_cast<size_t>(limit_ - end_) < count) [[unlikely]]
      Grow(count);
    return end_;
  }
  // Adds the bytes from the position that Room() has returned to `end`.
  void EndAt(char* end) {
    assert(end >= end_ && end <= limit_);
    end_ = end;
  }
  void Append(std::span<const uint8_t> bytes) {
    if (bytes.empty()) return;
    char* const at = Room(bytes.size());
    std::memcpy(at, bytes.data(), bytes.size());
    end_ = at + bytes.size();
  }
  // Moves the bytes from `at` on by `count`. The bytes between are what they happen to be.
  void InsertGap(size_t at, size_t count) {
    Room(count);
    std::memmove(begin_ + at + count, begin_ + at, size() - at);
    end_ += count;
  }
  void Erase(size_t at, size_t count) {
    std::memmove(begin_ + at, begin_ + at + count, size() - at - count);
    end_ -= count;
  }
  // Makes room for `count` more bytes, and no more than that if there is less now.
  void Reserve(size_t count) {
    if (static_cast<size_t>(limit_ - end_) < count) Reallocate(size() + count);
  }
  // Returns the bytes; nothing is left here, and nothing may be added.
  Buffer Take();

 private:
  // Makes room for `count` more bytes, and for as many as there are.
  void Grow(size_t count);
  void Reallocate(size_t capacity);

  Buffer block_;  // its bytes are written through the pointers below
  char* begin_ = nullptr;
  char* end_ = nullptr;    // of what was written
  char* limit_ = nullptr;  // of the block
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_GROWING_BUFFER_H_
