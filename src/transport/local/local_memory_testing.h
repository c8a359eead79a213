// local_memory_testing.h — what tests of messages with references to shared memory have in common.
#ifndef REVERB_TRANSPORT_LOCAL_LOCAL_MEMORY_TESTING_H_
#define REVERB_TRANSPORT_LOCAL_LOCAL_MEMORY_TESTING_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/payload_source.h"
#include "base/shared_memory.h"
#include "testing/wait.h"
#include "transport/local/frame.h"
#include "transport/local/local_transport_testing.h"

namespace reverb::internal {

// Shared memory that is overwritten when it is freed, so that a late reader notices.
class ScribblingSource final : public PayloadSource {
 public:
  uint8_t* Allocate(size_t bytes) override {
    ++num_blocks;
    return ProcessSharedMemory()->Allocate(bytes);
  }
  void Free(uint8_t* block, size_t bytes) override {
    std::memset(block, 0xdd, bytes);
    ProcessSharedMemory()->Free(block, bytes);
    --num_blocks;
  }
  std::atomic<int> num_blocks{0};
};

class LocalMemoryFixture : public LocalTransportTest {
 protected:
  // Before the source is destroyed.
  void TearDown() override {
    connection_.reset();
    server_.reset();
  }
  bool NothingIsPinned() {
    return test::WaitUntil([&] { return source_.num_blocks == 0; });
  }

  ScribblingSource source_;
};

// Makes a frame of a message that refers to shared memory, right or wrong.
struct HostileFrame {
  FrameKind kind = FrameKind::kMessage;
  Method method = Method::kRows;  // of kRequest
  std::vector<FrameAnnouncement> announcements = {};
  std::vector<FrameReference> references = {};
  std::vector<int> descriptors = {};
  std::string inline_bytes = {};

  OutgoingFrame Make() const {
    FrameHeader header;
    header.kind = kind;
    if (kind == FrameKind::kRequest) header.method = static_cast<uint8_t>(method);
    header.num_announcements = static_cast<uint16_t>(announcements.size());
    header.num_references = static_cast<uint32_t>(references.size());
    header.inline_bytes = inline_bytes.size();
    header.number = 1;
    OutgoingFrame frame;
    frame.head.assign(reinterpret_cast<const char*>(&header), sizeof header);
    frame.head.append(reinterpret_cast<const char*>(announcements.data()),
                      announcements.size() * sizeof(FrameAnnouncement));
    frame.head.append(reinterpret_cast<const char*>(references.data()),
                      references.size() * sizeof(FrameReference));
    frame.head += inline_bytes;
    frame.descriptors = descriptors;
    return frame;
  }
};

inline constexpr uint64_t kMemfdBytes = 1 << 20;

inline Descriptor MakeMemfd(unsigned seals = F_SEAL_SHRINK | F_SEAL_GROW, uint64_t bytes = kMemfdBytes) {
  Descriptor fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_LOCAL_MEMORY_TESTING_H_
