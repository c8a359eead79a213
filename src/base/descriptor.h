// descriptor.h — owns a file descriptor; a child created by fork() loses it.
//
// A child must not use the sockets of its parent: it would take the parent's messages. And it must not keep them
// open: their peers would not notice that the parent has died, a lock of a file would outlive it, and the space of a
// removed file would not be free. So all of these descriptors are closed in a child at once, which others do not see,
// since the parent has them too. Objects that the child inherits then have no descriptor, and notice that by
// ForkGeneration() (base/fork.h).
//
// Threads: a Descriptor belongs to one thread at a time.
#ifndef REVERB_BASE_DESCRIPTOR_H_
#define REVERB_BASE_DESCRIPTOR_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/fork.h"

namespace reverb::internal {

class Descriptor {
 public:
  Descriptor() = default;
  // Takes ownership of `fd`; negative: of none.
  explicit Descriptor(int fd);
  Descriptor(Descriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
      generation_ = other.generation_;
    }
    return *this;
  }
  ~Descriptor() { Close(); }

  // Returns -1 if there is none, also in a child of the process that opened it.
  int get() const { return fd_ >= 0 && generation_ == ForkGeneration() ? fd_ : -1; }
  bool is_open() const { return get() >= 0; }
  void Close();
  // Same for a file, whose last descriptor may take long to close, because its space is freed. Does not keep others from
  // opening, closing and forking meanwhile: a child that is created in this moment keeps the file open.
  void CloseFile();

 private:
  int fd_ = -1;
  uint64_t generation_ = 0;
};

// Returns the number of open Descriptors of this process.
size_t NumDescriptorsForTesting();

}  // namespace reverb::internal

#endif  // REVERB_BASE_DESCRIPTOR_H_
