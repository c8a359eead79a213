// shared_messages.h — messages that refer to shared memory: what a sender keeps until it is returned, and how a
// receiver finds the referenced bytes.
//
// Threads: all methods of SentMessages and PeerSegment may be called concurrently; a SegmentTable belongs to one
// thread at a time.
#ifndef REVERB_TRANSPORT_LOCAL_SHARED_MESSAGES_H_
#define REVERB_TRANSPORT_LOCAL_SHARED_MESSAGES_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/mapped_segment.h"
#include "base/mutex.h"
#include "base/shared_memory.h"
#include "reverb/status.h"
#include "transport/local/frame.h"
#include "transport/wire_writer.h"

namespace reverb::internal {

// Shorter payloads of rows are sent inline: a reference takes 16 bytes, and costs more to follow than to copy. (Those of
// items are inline below kShareBytes.)
inline constexpr size_t kMinReferenceBytes = 128;
// A server puts references and inline bytes into shared memory if they are longer together: the socket would copy
// them twice.
inline constexpr size_t kMinBodyBytes = 4096;

// What several sockets use together, with a bound. All methods may be called concurrently.
class BoundedSum {
 public:
  explicit BoundedSum(uint64_t max) : max_(max) {}
  uint64_t max() const { return max_; }
  // Adds as much of `wanted` as the bound allows, and returns that.
  uint64_t AddUpTo(uint64_t wanted) {
    uint64_t used = used_.load(std::memory_order_relaxed);
    uint64_t added = 0;
    do {
      added = std::min(wanted, max_ - used);
    } while (!used_.compare_exchange_weak(used, used + added, std::memory_order_relaxed));
    return added;
  }
  void Subtract(uint64_t amount) { used_.fetch_sub(amount, std::memory_order_relaxed); }

 private:
  const uint64_t max_;
  std::atomic<uint64_t> used_{0};
};

// The sending end of one direction of a socket.
class SentMessages {
 public:
  // Parts of messages that are in `memory` are sent by reference, as long as the bytes that receivers refer to are
  // within `pinned_sum` (null: unbounded). `uses_bodies`: the receiver accepts bodies in shared memory.
  SentMessages(SharedMemory* memory, std::shared_ptr<BoundedSum> pinned_sum, bool uses_bodies)
      : memory_(memory), pinned_sum_(std::move(pinned_sum)), uses_bodies_(uses_bodies) {}
  ~SentMessages() { Clear(); }
  SentMessages(const SentMessages&) = delete;
  SentMessages& operator=(const SentMessages&) = delete;

  // Makes a frame of kind kMessage or kRequest. `keeper` keeps those parts alive that have no owner. REQUIRES: frames
  // are sent in the order in which they were made.
  OutgoingFrame MakeMessage(const WireMessage& message, std::shared_ptr<const void> keeper = nullptr,
                            FrameKind kind = FrameKind::kMessage, Method method = {}) EXCLUDES(mu_);
  // Makes a frame of kind kLease that refers to `word`, which is in the memory.
  OutgoingFrame MakeLease(std::span<const uint8_t> word, uint64_t value) EXCLUDES(mu_);
  // The receiver does not refer to these messages any more. An error if one of them was not sent.
  Status Return(std::span<const uint64_t> numbers) EXCLUDES(mu_);
  // Forgets all messages: the socket is closed.
  void Clear() EXCLUDES(mu_);

  struct Oldest {
    uint64_t number = 0;
    TimePoint sent;
  };
  std::optional<Oldest> oldest() const EXCLUDES(mu_);
  uint64_t pinned_bytes() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return pinned_bytes_;
  }

 private:
  // Returns where a part is, if it can be sent by reference. Announces its segment if that is necessary.
  std::optional<SharedMemory::Location> Locate(std::span<const uint8_t> part,
                                               std::vector<FrameAnnouncement>* announcements,
                                               OutgoingFrame* frame) REQUIRES(mu_);

  struct Pinned {
    std::vector<Buffer> parts;
    std::shared_ptr<const void> keeper;
    uint64_t bytes = 0;
    TimePoint sent;
  };
  // Moves references and inline bytes to a block of shared memory if that is worth it. At most `max_pinned_bytes` of
  // the message may be pinned.
  void MoveToBody(uint64_t max_pinned_bytes, std::vector<FrameReference>* references,
                  std::vector<FrameAnnouncement>* announcements, FrameHeader* header, OutgoingFrame* frame,
                  Pinned* pinned) REQUIRES(mu_);

  SharedMemory* const memory_;
  const std::shared_ptr<BoundedSum> pinned_sum_;
  const bool uses_bodies_;

  mutable Mutex mu_;
  uint64_t last_number_ GUARDED_BY(mu_) = 0;
  uint32_t last_segment_ GUARDED_BY(mu_) = UINT32_MAX;  // is announced
  std::set<uint32_t> announced_ GUARDED_BY(mu_);
  std::map<uint64_t, Pinned> pinned_ GUARDED_BY(mu_);
  uint64_t pinned_bytes_ GUARDED_BY(mu_) = 0;
};

// What the clients of a server may make it map. Threads: all methods may be called concurrently.
class SegmentQuota {
 public:
  // `all`: bounds the segments of all clients together; `max_segments`: those of one.
  SegmentQuota(std::shared_ptr<BoundedSum> all, uint64_t max_segments)
      : all_(std::move(all)), mine_(max_segments) {}
  // RESOURCE_EXHAUSTED if this client has too many segments, UNAVAILABLE if all clients together have.
  Status Take();
  void Return();

 private:
  const std::shared_ptr<BoundedSum> all_;
  BoundedSum mine_;
};

// A segment of another process. All sockets of this process that it is announced on share one.
class PeerSegment {
 public:
  // Returns the segment of a received descriptor, which is mapped if it is not yet. `quota`: of a client. Its segments are
  // mapped once, and no descriptor is kept: a server never calls Retire(). Null: the segment is a server's.
  static Result<std::shared_ptr<PeerSegment>> Find(Descriptor fd, uint64_t bytes,
                                                   const std::shared_ptr<SegmentQuota>& quota);

  // Takes over what was taken from `quota`.
  PeerSegment(Descriptor fd, uint64_t bytes, std::shared_ptr<SegmentQuota> quota)
      : bytes_(bytes), quota_(std::move(quota)), fd_(std::move(fd)) {}
  ~PeerSegment() {
    if (quota_ != nullptr) quota_->Return();
  }
  PeerSegment(const PeerSegment&) = delete;
  PeerSegment& operator=(const PeerSegment&) = delete;

  Result<std::shared_ptr<const MappedSegment>> mapping() EXCLUDES(mu_);
  // Returns a mapping in which nothing is made private.
  Result<std::shared_ptr<const MappedSegment>> live_mapping() EXCLUDES(mu_);
  // Makes the next mapping() a new one. See MappedSegment::MakePrivate().
  void Retire(const MappedSegment* mapping) EXCLUDES(mu_);

 private:
  const uint64_t bytes_;
  const std::shared_ptr<SegmentQuota> quota_;
  Mutex mu_;
  Descriptor fd_ GUARDED_BY(mu_);  // closed once it is mapped, if there is a quota
  std::shared_ptr<const MappedSegment> mapping_ GUARDED_BY(mu_);
  std::shared_ptr<const MappedSegment> live_mapping_ GUARDED_BY(mu_);
};

// A received message.
struct LocalMessage {
  std::vector<ByteSlice> slices;
  uint64_t total_bytes = 0;
  uint64_t referenced_bytes = 0;
  // The mappings that slices point into.
  std::vector<std::shared_ptr<const MappedSegment>> mappings;
  std::vector<std::shared_ptr<PeerSegment>> segments;  // of mappings
};

// The segments that were announced on one socket.
class SegmentTable {
 public:
  // `max_segments` bounds the segments of this socket. `quota`: if the peer is a client.
  explicit SegmentTable(size_t max_segments, std::shared_ptr<SegmentQuota> quota = nullptr)
      : max_segments_(max_segments), quota_(std::move(quota)) {}

  // Takes the announcements of a frame and copies its body from shared memory, if it has one, into the frame.
  Status TakeBody(IncomingFrame* frame);
  // Takes the announcements of a frame and finds the bytes of its message. An error if the frame refers to
  // anything that was not announced. `slices` point into the frame and into mappings.
  Status Resolve(IncomingFrame* frame, uint64_t max_message_bytes, LocalMessage* message);
  // Finds the word of a frame of kind kLease.
  Status ResolveLease(IncomingFrame* frame, std::shared_ptr<const MappedSegment>* mapping,
                      const std::atomic<uint64_t>** word);

  // Unmaps what no message refers to: the socket is closed.
  void Clear() { segments_.clear(); }

 private:
  Status Announce(IncomingFrame* frame);

  const size_t max_segments_;
  const std::shared_ptr<SegmentQuota> quota_;
  std::unordered_map<uint32_t, std::shared_ptr<PeerSegment>> segments_;
};

// Checks that all references of a message of an insert stream are within payloads of chunks. The sender may
// change referenced bytes at any time; payloads are copied before they are checked, all else is read in place.
Status CheckReferencesAreInPayloads(const IncomingFrame& frame, ByteSlices message);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_SHARED_MESSAGES_H_
