// message_socket.h — a StreamSocket whose messages may refer to shared memory, in both directions.
//
// The sender of a message keeps it until the receiver has returned it. The receiver returns a message when the
// last Buffer that keeps it is destroyed; several returns travel together, with the next message if one follows
// soon. A receiver that already refers to much copies the bytes and returns the message at once. One that refers
// to messages for long, or closes the socket, makes the referenced pages its own.
//
// A sender that closes the socket revokes the lease of the receiver, a word in shared memory, before it frees what
// the receiver refers to. A receiver checks the lease after copying from a message (Buffer::CheckValid).
//
// Threads: see StreamSocket. Receive() and HandleMemoryFrame() are called by the thread that reads.
#ifndef REVERB_TRANSPORT_LOCAL_MESSAGE_SOCKET_H_
#define REVERB_TRANSPORT_LOCAL_MESSAGE_SOCKET_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/shared_memory.h"
#include "reverb/status.h"
#include "transport/local/shared_messages.h"
#include "transport/local/stream_socket.h"

namespace reverb::internal {

class MessageSocket : public StreamSocket {
 public:
  struct Options {
    FrameLimits frames;
    SharedMemory* memory = nullptr;  // of messages that are sent
    uint64_t max_message_bytes = 0;
    std::shared_ptr<BoundedSum> pinned_sum = nullptr;  // of sent messages; null: unbounded
    size_t max_segments = 0;                           // that the peer may announce
    std::shared_ptr<SegmentQuota> quota = nullptr;     // of a client's segments
    bool sends_bodies = false;                         // large messages have their body in shared memory
  };
  MessageSocket(EventLoop* loop, Descriptor fd, const Options& options)
      : StreamSocket(loop, std::move(fd), options.frames),
        max_message_bytes_(options.max_message_bytes),
        sent_(options.memory, options.pinned_sum, options.sends_bodies),
        segments_(options.max_segments, options.quota),
        memory_(options.memory) {}

  // Sends a message. `keeper` keeps parts without an owner alive. One call at a time.
  Sent SendMessage(const WireMessage& message, std::shared_ptr<const void> keeper = nullptr) {
    return SendAs(FrameKind::kMessage, {}, message, std::move(keeper));
  }

  // Asks a client that refers to old messages to return them. Returns the reason to disconnect one that has
  // not returned a message, or taken anything, for `timeout`. To be called a few times in that time.
  Status CheckProgress(TimePoint now, Duration timeout);
  // Enables references to memory of this process in messages. To be called before the first one.
  void GrantLease() EXCLUDES(lease_mu_);
  uint64_t sent_pinned_bytes() const { return sent_.pinned_bytes(); }

 protected:
  // Finds the bytes of a message: `*slices`, which are valid as long as `*frame`, `*message` and `*keeper`. `*keeper`
  // keeps the bytes alive that they refer to, and with them the sender's memory.
  Status Receive(IncomingFrame* frame, LocalMessage* message, Buffer* keeper, ByteSlices* slices);
  // Handles frames that concern shared memory; INVALID_ARGUMENT for any other.
  Status HandleMemoryFrame(IncomingFrame* frame);
  // The maximum number of bytes that this end refers to.
  void set_max_received_pinned_bytes(uint64_t bytes) { max_received_pinned_bytes_ = bytes; }
  // Sends the request of a single call, like a message.
  Sent SendRequest(Method method, const WireMessage& message) {
    return SendAs(FrameKind::kRequest, method, message, nullptr);
  }
  // Sends a part of the next request.
  Sent SendPart(Method method, const WireMessage& message) {
    return SendAs(FrameKind::kPart, method, message, nullptr);
  }
  // Detaches all received messages from the sender's memory: it is reused when the socket is closed.
  void HandleClosing() final {
    Reclaim(UINT64_MAX);
    ReleaseSent();
    segments_.Clear();
  }

 private:
  class Keeper;

  Sent SendAs(FrameKind kind, Method method, const WireMessage& message, std::shared_ptr<const void> keeper);
  // Revokes the lease, and frees the messages that the receiver refers to.
  void ReleaseSent() EXCLUDES(lease_mu_);
  Status TakeLease(IncomingFrame* frame) EXCLUDES(lease_mu_);
  // Returns an error if the sender may have reused memory that this end refers to.
  Status CheckLease() const;
  // Copies the referenced bytes.
  static Buffer CopyReferenced(LocalMessage* message);
  void ReturnMessage(uint64_t number) EXCLUDES(returns_mu_);
  // Returns the frames for pending returns; empty if nothing is pending.
  std::string TakeReturns() EXCLUDES(returns_mu_);
  void SendReturns();
  // Detaches all referenced memory of messages up to `number` from the sender's, and returns them.
  void Reclaim(uint64_t number) EXCLUDES(received_mu_);

  const uint64_t max_message_bytes_;
  SentMessages sent_;
  SegmentTable segments_;  // used by the thread that reads
  std::atomic<uint64_t> max_received_pinned_bytes_{0};

  // The lease that was granted to the peer: a block of shared memory.
  SharedMemory* const memory_;
  Mutex lease_mu_;
  uint8_t* granted_ GUARDED_BY(lease_mu_) = nullptr;
  // The lease that the peer has granted. Set before the first message is received.
  std::shared_ptr<const MappedSegment> lease_mapping_;
  const std::atomic<uint64_t>* lease_ = nullptr;
  uint64_t lease_value_ = 0;

  Mutex received_mu_;
  std::map<uint64_t, Keeper*> received_ GUARDED_BY(received_mu_);  // alive, and not returned
  uint64_t received_pinned_bytes_ GUARDED_BY(received_mu_) = 0;

  Mutex returns_mu_;
  std::vector<uint64_t> returns_ GUARDED_BY(returns_mu_);
  bool has_timer_ GUARDED_BY(returns_mu_) = false;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_MESSAGE_SOCKET_H_
