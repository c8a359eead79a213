// flat_array.h — a growable array that does not copy its elements when it is large.
//
// std::vector copies all elements when it grows, which stops a table of millions of items for tenths of a second. A large
// FlatArray is a mapping of its own: the system moves its pages to where there is room (mremap), and pages that were never
// written take no memory. Elements stay contiguous.
//
// Threads: one at a time. Copies of a process after fork() are independent.
#ifndef REVERB_BASE_FLAT_ARRAY_H_
#define REVERB_BASE_FLAT_ARRAY_H_

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace reverb::internal {

// Memory that grows. What is new is zero. Aligned to 64 bytes.
class GrowingMemory {
 public:
  // Larger blocks are mappings: growing them takes time in proportion to their page tables, not to their bytes.
  static constexpr size_t kMinMappedBytes = size_t{256} << 10;

  GrowingMemory() = default;
  GrowingMemory(GrowingMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  GrowingMemory& operator=(GrowingMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~GrowingMemory() { Free(); }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Throws std::bad_alloc if there is no memory; nothing has changed then. REQUIRES: bytes >= this->bytes().
  void Grow(size_t bytes);
  void Free();

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

template <typename T>
class FlatArray {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64, "elements are moved as bytes");

 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return reinterpret_cast<T*>(memory_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.data()); }
  T& operator[](size_t i) {
    assert(i < size_);
    return data()[i];
  }
  const T& operator[](size_t i) const {
    assert(i < size_);
    return data()[i];
  }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }

  // New elements are copies of `value`.
  void Resize(size_t size, const T& value = T()) {
    if (size > size_) {
      const T copy = value;
      Reserve(size);
      std::fill(data() + size_, data() + size, copy);
    }
    size_ = size;
  }
  void PushBack(const T& value) {
    const T copy = value;  // `value` may be an element
    Reserve(size_ + 1);
    data()[size_++] = copy;
  }
  void PopBack() {
    assert(size_ > 0);
    --size_;
  }
  void Reserve(size_t size) {
    if (size * sizeof(T) > memory_.bytes()) [[unlikely]]
      memory_.Grow(std::max(size * sizeof(T), 2 * memory_.bytes()));
  }
  // Frees the memory.
  void Clear() {
    memory_.Free();
    size_ = 0;
  }

 private:
  GrowingMemory memory_;
  size_t size_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_FLAT_ARRAY_H_
