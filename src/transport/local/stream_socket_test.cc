#include "transport/local/stream_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "testing/wait.h"

namespace reverb::internal {
namespace {

// A socket whose peer sends faster than frames are handled: whenever one was, the peer fills the socket again.
class FloodedSocket final : public StreamSocket {
 public:
  FloodedSocket(EventLoop* loop, Descriptor ours, Descriptor peer)
      : StreamSocket(loop, std::move(ours), {}), peer_(std::move(peer)) {
    FrameHeader header;
    header.kind = FrameKind::kMessage;
    header.inline_bytes = kInlineBytes;
    frame_.assign(reinterpret_cast<const char*>(&header), sizeof header);
    frame_.resize(sizeof header + kInlineBytes);
  }

  void Fill() {
    ssize_t written = 0;
    while ((written = write(peer_.get(), frame_.data() + begin_, frame_.size() - begin_)) > 0) {
      begin_ += static_cast<size_t>(written);
      if (begin_ < frame_.size()) continue;
      begin_ = 0;
      ++num_sent_;
    }
  }
  // No frame is sent any more.
  void Stop() { is_stopped_ = true; }
  int num_sent() const { return num_sent_; }
  int num_frames() const { return num_frames_; }
  bool is_closed() const { return is_closed_; }

 protected:
  void HandleFrame(IncomingFrame* frame) override {
    EXPECT_EQ(frame->inline_bytes.size(), kInlineBytes);
    ++num_frames_;
    if (!is_stopped_) Fill();
  }
  void HandleClosed(Status /*why*/) override { is_closed_ = true; }

 private:
  static constexpr size_t kInlineBytes = 100;

  const Descriptor peer_;
  std::string frame_;
  size_t begin_ = 0;  // of what the peer has to send next of frame_
  std::atomic<bool> is_stopped_{false};
  std::atomic<int> num_sent_{0};
  std::atomic<int> num_frames_{0};
  std::atomic<bool> is_closed_{false};
};

class StreamSocketTest : public ::testing::Test {
 protected:
  std::shared_ptr<FloodedSocket> Make() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    EXPECT_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    auto socket = std::make_shared<FloodedSocket>(loop_.get(), Descriptor(ends[0]), Descriptor(ends[1]));
    socket->Fill();
    return socket;
  }
  void CloseAndWait(const std::shared_ptr<FloodedSocket>& socket) {
    socket->Stop();
    socket->Close(Status::Unavailable("the test is over"));
    EXPECT_TRUE(test::WaitUntil([&] { return socket->is_closed(); }));
  }

  const std::unique_ptr<EventLoop> loop_ = EventLoop::Start("rv-test").value();
};

TEST_F(StreamSocketTest, ASocketThatIsNeverEmptyLeavesTimeForOthers) {
  const std::shared_ptr<FloodedSocket> flooded = Make();
  const std::shared_ptr<FloodedSocket> other = Make();
  ASSERT_TRUE(flooded->Attach());
  EXPECT_TRUE(test::WaitUntil([&] { return flooded->num_frames() > 100; }));
  ASSERT_TRUE(other->Attach());
  EXPECT_TRUE(test::WaitUntil([&] { return other->num_frames() > 100; }));
  const int before = flooded->num_frames();
  EXPECT_TRUE(test::WaitUntil([&] { return flooded->num_frames() > before + 100; }));
  // However long it goes on, only some frames are handled between two events of another socket.
  EXPECT_TRUE(test::WaitUntil([&] { return flooded->num_frames() > 20'000; }));
  std::atomic<int> frames{0};
  loop_->Post([&] {  // runs between two turns
    const int begin = flooded->num_frames();
    loop_->Post([&, begin] { frames = flooded->num_frames() - begin + 1; });
  });
  EXPECT_TRUE(test::WaitUntil([&] { return frames > 0; }));
  EXPECT_LT(frames, 100);
  CloseAndWait(flooded);
  CloseAndWait(other);
}

TEST_F(StreamSocketTest, EveryFrameIsHandledWhenNoMoreCome) {
  const std::shared_ptr<FloodedSocket> socket = Make();
  socket->Stop();
  ASSERT_GT(socket->num_sent(), 50);
  ASSERT_TRUE(socket->Attach());
  EXPECT_TRUE(test::WaitUntil([&] { return socket->num_frames() == socket->num_sent(); }));
  CloseAndWait(socket);
}

TEST_F(StreamSocketTest, AThreadThatPollsTakesOverWhatWasReceived) {
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    const std::shared_ptr<FloodedSocket> socket = Make();
    socket->Stop();
    ASSERT_TRUE(socket->Attach());
    EXPECT_TRUE(test::WaitUntil([&] {
      (void)socket->Poll(std::chrono::milliseconds(1));
      return socket->num_frames() == socket->num_sent();
    }));
    CloseAndWait(socket);
  }
}

}  // namespace
}  // namespace reverb::internal
