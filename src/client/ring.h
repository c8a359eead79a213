// ring.h — a queue in one array that grows by doubling and never shrinks.
//
// Popped elements stay constructed, so that elements that own memory reuse it: the caller clears anything
// that must not be retained. Threads: one at a time.
#ifndef REVERB_CLIENT_RING_H_
#define REVERB_CLIENT_RING_H_

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace reverb::internal {

template <typename T>
class Ring {
 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // REQUIRES for all of these: the element exists.
  T& operator[](size_t i) {
    assert(i < size_);
    return slots_[(first_ + i) & (slots_.size() - 1)];
  }
  const T& operator[](size_t i) const {
    assert(i < size_);
    return slots_[(first_ + i) & (slots_.size() - 1)];
  }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }
  const T& back() const { return (*this)[size_ - 1]; }

  // Returns the new last element, which may contain an old value.
  T& push_back() {
    if (size_ == slots_.size()) Grow();
    ++size_;
    return back();
  }
  void pop_front() {
    assert(size_ > 0);
    first_ = (first_ + 1) & (slots_.size() - 1);
    --size_;
  }

 private:
  void Grow() {
    std::vector<T> larger(slots_.empty() ? 4 : slots_.size() * 2);
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> slots_;  // the size is zero or a power of two
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_RING_H_
