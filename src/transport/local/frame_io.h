// frame_io.h — reads frames from a socket and writes them to it, without blocking.
//
// Threads: a FrameReader and an Outbox belong to one thread at a time.
#ifndef REVERB_TRANSPORT_LOCAL_FRAME_IO_H_
#define REVERB_TRANSPORT_LOCAL_FRAME_IO_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/descriptor.h"
#include "base/memory_budget.h"
#include "reverb/status.h"
#include "transport/local/frame.h"

namespace reverb::internal {

// Of the sockets at both ends: a batch by reference fits.
inline constexpr int kSendBufferBytes = 1 << 20;

// Limits that a FrameReader enforces before it allocates memory.
struct FrameLimits {
  uint64_t max_inline_bytes = uint64_t{256} << 20;
  uint32_t max_references = uint32_t{1} << 20;
  bool accepts_announcements = true;
  // Refuses descriptors that this process needs for files: see DescriptorShortage().
  bool spares_descriptors = false;
  bool accepts_bodies = false;
  // Inline bytes of large frames are charged to it, and frames that wait for being written; null: to nothing.
  MemoryBudget* memory = nullptr;
};

class FrameReader {
 public:
  explicit FrameReader(const FrameLimits& limits) : limits_(limits) {}

  enum class Outcome : uint8_t {
    kFrame,
    kIncomplete,  // the socket has no more bytes now
    kClosed,      // the peer has closed the socket between two frames
    kFailed,      // see `status`
  };
  // Reads the next frame. Returns kIncomplete without a system call if the last one has emptied the socket;
  // call Refill() when there is more to read.
  Outcome Next(int fd, IncomingFrame* frame, Status* status);
  void Refill() { is_drained_ = false; }
  // Frees a large frame that was not received completely. Next() must not be called any more.
  void Drop();

 private:
  // Returns nothing when bytes are missing.
  Outcome Parse(IncomingFrame* frame, Status* status);
  Status CheckHeader(const FrameHeader& header) const;
  Outcome FinishFrame(IncomingFrame* frame, Status* status);
  Outcome Receive(int fd, Status* status);
  size_t buffered() const { return end_ - begin_; }
  void Reserve(size_t bytes);

  const FrameLimits limits_;
  // Received bytes that were not returned yet: [begin_, end_) of a block that exists only while it is in use.
  std::unique_ptr<uint8_t[]> block_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t wanted_ = 0;                   // bytes of the frame that must be buffered before it can be parsed
  std::deque<Descriptor> descriptors_;  // of frames that were not returned yet
  bool has_lost_descriptors_ = false;   // this process could not take some
  bool is_drained_ = false;
  // A frame whose inline bytes are received into a block of their own.
  IncomingFrame large_;
  uint8_t* large_bytes_ = nullptr;  // null: there is none
  size_t large_received_ = 0;
};

// Frames that wait for being written.
class Outbox {
 public:
  enum class Outcome : uint8_t {
    kEmpty,   // everything was written
    kFull,    // the socket accepts no more bytes now
    kFailed,  // the peer has closed the socket, or see errno
  };

  bool empty() const { return frames_.empty(); }
  void Add(OutgoingFrame frame) {
    num_waiting_bytes_ += frame.total_bytes();
    frames_.push_back(std::move(frame));
  }
  // Writes as much as the socket accepts. Moves written frames to `*written`, to be freed without locks.
  Outcome Write(int fd, std::vector<OutgoingFrame>* written);
  void Clear(std::vector<OutgoingFrame>* unsent);
  uint64_t num_written_bytes() const { return num_written_bytes_; }
  uint64_t num_waiting_bytes() const { return num_waiting_bytes_; }

 private:
  std::deque<OutgoingFrame> frames_;
  uint64_t num_waiting_bytes_ = 0;
  uint64_t num_written_bytes_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_FRAME_IO_H_
