#include "transport/local/frame_io.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "base/descriptor.h"
#include "base/memory_budget.h"

namespace reverb::internal {
namespace {

constexpr int64_t kFrameBytes = 64 << 10;

class FrameIoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ours_ = Descriptor(ends[0]);
    theirs_ = Descriptor(ends[1]);
    budget_.Open(int64_t{1} << 30, RealClock());
  }
  void Send(const void* data, size_t bytes) {
    ASSERT_EQ(write(theirs_.get(), data, bytes), static_cast<ssize_t>(bytes));
  }
  void SendHeader() {
    FrameHeader header;
    header.kind = FrameKind::kMessage;
    header.inline_bytes = kFrameBytes;
    Send(&header, sizeof header);
  }
  int64_t receiving() const { return budget_.usage().receiving; }

  Descriptor ours_;
  Descriptor theirs_;
  MemoryBudget budget_;
};

TEST_F(FrameIoTest, ALargeFrameIsChargedWhileItExists) {
  FrameReader reader({.memory = &budget_});
  SendHeader();
  const std::string half(kFrameBytes / 2, 'x');
  Send(half.data(), half.size());
  Status status;
  {
    IncomingFrame frame;
    ASSERT_EQ(reader.Next(ours_.get(), &frame, &status), FrameReader::Outcome::kIncomplete);
    EXPECT_EQ(receiving(), kFrameBytes / 2) << "what has arrived";
    Send(half.data(), half.size());
    reader.Refill();
    ASSERT_EQ(reader.Next(ours_.get(), &frame, &status), FrameReader::Outcome::kFrame);
    EXPECT_EQ(frame.inline_bytes.size(), static_cast<size_t>(kFrameBytes));
    EXPECT_EQ(receiving(), kFrameBytes);
  }
  EXPECT_EQ(receiving(), 0);
}

TEST_F(FrameIoTest, AnIncompleteFrameIsNotChargedAfterTheEnd) {
  FrameReader reader({.memory = &budget_});
  SendHeader();
  const std::string some(1000, 'x');
  Send(some.data(), some.size());
  IncomingFrame frame;
  Status status;
  ASSERT_EQ(reader.Next(ours_.get(), &frame, &status), FrameReader::Outcome::kIncomplete);
  EXPECT_EQ(receiving(), 1000);
  reader.Drop();
  EXPECT_EQ(receiving(), 0);
}

TEST_F(FrameIoTest, WithoutABudgetNothingIsCharged) {
  FrameReader reader({});
  SendHeader();
  IncomingFrame frame;
  Status status;
  EXPECT_EQ(reader.Next(ours_.get(), &frame, &status), FrameReader::Outcome::kIncomplete);
  EXPECT_EQ(receiving(), 0);
}

}  // namespace
}  // namespace reverb::internal
