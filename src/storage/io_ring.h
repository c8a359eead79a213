// io_ring.h — reads of files that the kernel performs in the background: Linux's io_uring.
//
// Uses the system calls directly: the two operations that are needed take less code than a dependency on liburing
// would take in the build, the wheels and the installed package.
//
// Threads: Wake() may be called by any thread, everything else by one thread.
#ifndef REVERB_STORAGE_IO_RING_H_
#define REVERB_STORAGE_IO_RING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/descriptor.h"

namespace reverb::internal {

class IoRing {
 public:
  struct Completion {
    uint64_t id = 0;
    int32_t result = 0;  // number of bytes, or a negative errno
  };

  // Returns null if the kernel lacks io_uring or forbids it to this process. `depth`: the maximum number of reads
  // at a time.
  static std::unique_ptr<IoRing> Create(uint32_t depth);
  ~IoRing();
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;

  // Queues a read; Wait() starts it. `out` must stay valid until its completion is returned.
  // REQUIRES: fewer than `depth` reads are in flight.
  void Add(int descriptor, uint64_t offset, std::span<uint8_t> out, uint64_t id);
  // Starts the queued reads and waits until one has completed or Wake() is called. Returns the number of
  // completions, the first of which are in `out`. Returns a negative errno if the ring is broken.
  int Wait(std::span<Completion> out);
  // Makes the current or next Wait() return.
  void Wake();

 private:
  IoRing() = default;
  int SetUp(uint32_t depth);
  void Push(uint8_t opcode, int descriptor, uint64_t offset, void* memory, uint32_t size, uint64_t id);
  size_t Take(std::span<Completion> out);

  struct Mapping {
    void* address = nullptr;
    size_t size = 0;
  };

  Descriptor ring_;
  Descriptor event_;
  uint64_t event_value_ = 0;  // that the kernel reads the event into
  bool is_event_armed_ = false;
  uint32_t unsubmitted_ = 0;
  Mapping submissions_, completions_, entries_;
  // In memory that the kernel shares.
  uint32_t* submission_tail_ = nullptr;
  uint32_t submission_mask_ = 0;
  uint32_t* submission_array_ = nullptr;
  uint32_t* completion_head_ = nullptr;
  uint32_t* completion_tail_ = nullptr;
  uint32_t completion_mask_ = 0;
  void* completion_entries_ = nullptr;
};

}  // namespace reverb::internal

#endif  // REVERB_STORAGE_IO_RING_H_
