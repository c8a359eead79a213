// wire_memory_testing.h — sends messages with references to shared memory, for tests of the encoding.
#ifndef REVERB_TRANSPORT_WIRE_MEMORY_TESTING_H_
#define REVERB_TRANSPORT_WIRE_MEMORY_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/mapped_segment.h"
#include "base/shared_memory.h"
#include "transport/wire.h"
#include "transport/wire_testing.h"

namespace reverb::internal {

// What a peer has received: references to shared memory are resolved in its own mapping of the segments.
struct ReceivedParts final : BufferOwner {
  Status CheckValid() const override {
    return is_revoked ? Status::Unavailable("the server has revoked the message") : Status::Ok();
  }
  std::vector<std::shared_ptr<const MappedSegment>> segments;
  std::vector<std::string> inline_parts;
  std::vector<ByteSlice> slices;
  uint64_t referenced_bytes = 0;
  bool is_revoked = false;
};

// Shared memory, and a peer that maps it.
class MemoryPeers {
 public:
  SharedMemory* memory() { return &memory_; }

  // Sends the message as the local transport does. The caller owns a reference to the result.
  ReceivedParts* Transfer(const WireMessage& message) {
    auto* const received = new ReceivedParts;
    for (uint32_t i = 0; i < memory_.num_segments(); ++i) {
      received->segments.push_back(
          MappedSegment::Map(memory_.descriptor(i), memory_.segment_bytes()).value());
    }
    received->inline_parts.reserve(message.parts().size());
    for (const Buffer& part : message.parts()) {
      if (const auto place = memory_.Find(part.data())) {
        received->slices.push_back(
            received->segments[place->segment]->Range(place->offset, part.size()).value());
        received->referenced_bytes += part.size();
      } else {
        received->slices.push_back(test::SliceOf(
            received->inline_parts.emplace_back(reinterpret_cast<const char*>(part.data()), part.size())));
      }
    }
    return received;
  }

 private:
  ManualClock clock_;
  SharedMemory memory_{&clock_, {.segment_bytes = size_t{256} << 20, .max_segments = 4}};
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_MEMORY_TESTING_H_
