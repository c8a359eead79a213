// local_frame_fuzz.cc — what a hostile peer sends over a socket of the local transport.
//
// Input: a byte (bit 0: the reader is a server, bit 1: the bytes arrive one by one), then the bytes of the socket. They
// are also the beginning of the peer's shared memory, segment 0, so that references and bodies find something.
// Properties: nothing reads or writes out of bounds; every message that is accepted can be read.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>

#include "base/shared_memory.h"
#include "fuzz_target.h"
#include "transport/local/frame.h"
#include "transport/local/frame_io.h"
#include "transport/local/shared_messages.h"
#include "transport/wire.h"

namespace {

using namespace reverb;            // NOLINT
using namespace reverb::internal;  // NOLINT

constexpr size_t kMaxInput = 1 << 14;  // less than a socket accepts at once
constexpr WireLimits kWireLimits = {
    .max_message_bytes = 1 << 16,
    .max_chunk_bytes = 1 << 16,
    .max_items = 256,
    .max_chunks = 64,
    .max_slices = 1024,
    .chunk = {.max_chunk_raw_bytes = 1 << 16, .max_rows = 1 << 10, .max_columns = 16}};

// A block of shared memory at the beginning of segment 0.
uint8_t* PeerMemory() {
  static uint8_t* const block = ProcessSharedMemory()->Allocate(1 << 20);
  return block;
}

uint64_t Sum(ByteSlices slices) {
  uint64_t sum = 0;
  for (const ByteSlice slice : slices) sum = std::accumulate(slice.begin(), slice.end(), sum);
  return sum;
}

void Handle(IncomingFrame* frame, bool is_server, SegmentTable* segments) {
  switch (frame->header.kind) {
    case FrameKind::kGreeting:
      (void)DecodeLocalHello(frame->inline_bytes);
      (void)DecodeLocalWelcome(frame->inline_bytes);
      return;
    case FrameKind::kLease: {
      std::shared_ptr<const MappedSegment> mapping;
      const std::atomic<uint64_t>* word = nullptr;
      if (segments->ResolveLease(frame, &mapping, &word).ok()) (void)word->load();
      return;
    }
    case FrameKind::kMessage: {
      LocalMessage message;
      if (!segments->TakeBody(frame).ok()) return;
      if (!segments->Resolve(frame, kWireLimits.max_message_bytes, &message).ok()) return;
      FUZZ_CHECK(message.total_bytes <= kWireLimits.max_message_bytes);
      (void)Sum(message.slices);
      if (is_server) {
        if (!CheckReferencesAreInPayloads(*frame, message.slices).ok()) return;
        InsertDecoder decoder(
            [](const ChunkHeader& header, uint8_t** payload) {
              return Chunk::Uninitialized(1, header, payload, kWireLimits.chunk);
            },
            kWireLimits);
        (void)decoder.Decode(message.slices);
      } else {
        (void)DecodeSampleReply(message.slices, kWireLimits, frame->keeper, RowChecksums::kOptional);
      }
      return;
    }
    default:
      (void)Sum(ByteSlices(&frame->inline_bytes, 1));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > kMaxInput) return 0;
  const bool is_server = (data[0] & 1) != 0;
  const bool is_slow = (data[0] & 2) != 0;
  const std::span<const uint8_t> bytes(data + 1, size - 1);
  std::array<int, 2> ends = {};
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  Descriptor to(ends[0]);
  const Descriptor from(ends[1]);

  SharedMemory* const memory = ProcessSharedMemory();
  uint8_t* const peer = PeerMemory();
  std::memset(peer, 0, kMaxInput);
  if (!bytes.empty()) std::memcpy(peer, bytes.data(), bytes.size());
  const auto all_segments = std::make_shared<BoundedSum>(4);
  SegmentTable segments(4, is_server ? std::make_shared<SegmentQuota>(all_segments, 4) : nullptr);
  IncomingFrame announcing;
  announcing.header.kind = FrameKind::kMessage;
  announcing.announcements.push_back({.bytes = memory->segment_bytes(), .segment = 0, .reserved = 0});
  announcing.descriptors.emplace_back(fcntl(memory->descriptor(0), F_DUPFD_CLOEXEC, 0));
  FUZZ_CHECK(segments.TakeBody(&announcing).ok());

  FrameReader reader({.max_inline_bytes = kWireLimits.max_message_bytes,
                      .max_references = static_cast<uint32_t>(kWireLimits.max_slices),
                      .accepts_announcements = is_server,
                      .accepts_bodies = !is_server});
  for (size_t at = 0; at <= bytes.size();) {
    const size_t part = is_slow ? std::min<size_t>(1, bytes.size() - at) : bytes.size() - at;
    if (part > 0) FUZZ_CHECK(write(to.get(), bytes.data() + at, part) == static_cast<ssize_t>(part));
    at += part;
    if (at == bytes.size()) to.Close();
    reader.Refill();
    while (true) {
      IncomingFrame frame;
      Status status;
      const FrameReader::Outcome outcome = reader.Next(from.get(), &frame, &status);
      if (outcome == FrameReader::Outcome::kIncomplete) break;
      if (outcome != FrameReader::Outcome::kFrame) return 0;
      Handle(&frame, is_server, &segments);
    }
    if (at == bytes.size()) break;
  }
  return 0;
}
