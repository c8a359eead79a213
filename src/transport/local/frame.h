// frame.h — what travels over a socket of the local transport: frames, and the greetings in the first ones.
//
//   frame := header announcement* reference* inline bytes
//
// References and inline bytes of a large message of a server are its body in shared memory instead; the client
// copies it before reading it.
//
// The message of a frame consists of its inline bytes with the referenced bytes of the sender's shared memory
// inserted at the positions that the references name. An announcement describes a segment of that memory, whose
// descriptor comes with the frame's first byte (SCM_RIGHTS), before the first reference to it on this socket.
// Both ends run on one machine: numbers have its byte order. docs/protocol.md describes the exchange.
//
// Threads: values and free functions without state.
#ifndef REVERB_TRANSPORT_LOCAL_FRAME_H_
#define REVERB_TRANSPORT_LOCAL_FRAME_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/descriptor.h"
#include "base/memory_budget.h"
#include "reverb/status.h"
#include "transport/messages.h"
#include "transport/single_calls.h"
#include "transport/wire.h"

namespace reverb::internal {

// The versions of the frames; those of the messages in them are negotiated as over gRPC.
inline constexpr uint32_t kLocalVersion = 2;

// Sent: the numbers never change.
enum class FrameKind : uint8_t {
  kGreeting = 1,  // the first frame in each direction: a LocalHello, a LocalWelcome
  kRequest = 2,   // client: a single call, or the first message of a stream; `method` says which
  kMessage = 3,   // a further message of a stream, or the reply of a single call
  kDone = 4,      // client: half-closes the stream
  kStatus = 5,    // server: a Status; ends the stream, the single call or, after a refusal, the socket
  kReturn = 6,    // the message `number` of the other direction is not referred to any more
  kReclaim = 7,   // asks for the return of all messages up to `number`
  kLease = 8,     // server: refers to a word that has the value `number` as long as references are valid
  kCall = 9,    // client: a single call with a `number` of its own; others may be waiting on the same socket
  kReply = 10,  // server: the reply of the call `number`
  kFailure = 11,  // server: a Status, of the call `number`
  kPart = 12,     // client: rows that belong to the next kRequest for a row table; not answered
};
inline constexpr FrameKind kLastFrameKind = FrameKind::kPart;
// Returns whether the frame is answered by one that may be large.
constexpr bool AsksForReply(FrameKind kind) {
  return kind == FrameKind::kRequest || kind == FrameKind::kCall;
}

inline constexpr uint64_t kNoBody = UINT64_MAX;

struct FrameHeader {
  FrameKind kind = {};
  uint8_t method = 0;  // a Method; of kRequest, kCall and kPart
  uint16_t num_announcements = 0;
  uint32_t num_references = 0;
  uint64_t inline_bytes = 0;
  // kMessage, kRequest and kPart with references: counts such messages in this direction, from 1. Others: see FrameKind.
  uint64_t number = 0;
  // The place of references and inline bytes, as in a reference, if they do not follow. Counts as a reference.
  uint64_t body = kNoBody;

  bool has_body() const { return body != kNoBody; }
};
static_assert(sizeof(FrameHeader) == 32);

// A place in shared memory: segment << 48 | offset.
constexpr uint64_t MakePlace(uint32_t segment, uint64_t offset) { return uint64_t{segment} << 48 | offset; }
constexpr uint32_t SegmentOf(uint64_t place) { return static_cast<uint32_t>(place >> 48); }
constexpr uint64_t OffsetOf(uint64_t place) { return place & ((uint64_t{1} << 48) - 1); }

struct FrameReference {
  uint32_t at = 0;  // the referenced bytes come before this one of the inline bytes
  uint32_t length = 0;
  uint64_t place = 0;

  uint32_t segment() const { return SegmentOf(place); }
  uint64_t offset() const { return OffsetOf(place); }
};
static_assert(sizeof(FrameReference) == 16);

struct FrameAnnouncement {
  uint64_t bytes = 0;
  uint32_t segment = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(FrameAnnouncement) == 16);

// SCM_RIGHTS carries at most 253.
inline constexpr size_t kMaxAnnouncements = 64;

// A frame to be sent.
struct OutgoingFrame {
  std::string head;  // header, announcements, references
  std::vector<Buffer> parts;
  std::vector<int> descriptors;        // of the announced segments; borrowed
  std::shared_ptr<const void> keeper;  // of parts without an owner

  size_t sent_bytes = 0;

  uint64_t total_bytes() const {
    uint64_t bytes = head.size();
    for (const Buffer& part : parts) bytes += part.size();
    return bytes;
  }
};
// A frame whose message is sent inline.
OutgoingFrame MakeFrame(FrameKind kind, const WireMessage& message, Method method = {});
OutgoingFrame MakeFrame(FrameKind kind, uint64_t number = 0);
// A frame of a call with a number.
OutgoingFrame MakeCallFrame(FrameKind kind, uint64_t number, const WireMessage& message, Method method = {});

// A received frame.
struct IncomingFrame {
  FrameHeader header;
  std::vector<FrameAnnouncement> announcements;
  std::vector<Descriptor> descriptors;  // as many
  std::vector<FrameReference> references;
  // Valid until the next frame is read, or as long as `keeper`, if that is not empty.
  std::span<const uint8_t> inline_bytes;
  Buffer keeper;
  MemoryCharge charge = {};  // of keeper, at a server
};

// --- Greetings ---

// Which process speaks, for messages and to detect strangers.
struct LocalIdentity {
  std::string boot_id;
  uint64_t network_namespace = 0;
  uint64_t process_id = 0;
};
LocalIdentity OwnIdentity();

struct LocalHello {
  uint32_t version = kLocalVersion;
  LocalIdentity identity;
  std::string wanted_address;
  std::string token;  // empty: none
};
struct LocalWelcome {
  uint32_t version = kLocalVersion;
  LocalIdentity identity;
  Id128 life_id{};
  uint64_t max_pinned_bytes = 0;  // of messages that the client's process may refer to, on all of its sockets
};

WireMessage EncodeLocalHello(const LocalHello& hello);
Result<LocalHello> DecodeLocalHello(std::span<const uint8_t> bytes);
WireMessage EncodeLocalWelcome(const LocalWelcome& welcome);
Result<LocalWelcome> DecodeLocalWelcome(std::span<const uint8_t> bytes);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_FRAME_H_
