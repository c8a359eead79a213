// local_transport_testing.h — a fixture for tests of the local transport, a client that breaks its rules, and processes.
#ifndef REVERB_TRANSPORT_LOCAL_LOCAL_TRANSPORT_TESTING_H_
#define REVERB_TRANSPORT_LOCAL_LOCAL_TRANSPORT_TESTING_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverb/log.h"
#include "testing/status_matchers.h"
#include "transport/local/client_socket.h"
#include "transport/local/frame.h"
#include "transport/local/frame_io.h"
#include "transport/local/local_connection.h"
#include "transport/local/local_server.h"
#include "transport/transport_testing.h"

namespace reverb::internal {

// A client's socket that sends any bytes.
class RawSocket {
 public:
  explicit RawSocket(const std::string& path)
      : target_(
            std::make_shared<LocalTarget>(LocalOptions{.path = path, .wanted_address = {}, .limits = {}})),
        fd_(ConnectSocket(target_.get()).value()),
        reader_(target_->frame_limits()) {}

  int fd() const { return fd_.get(); }
  void Close() { fd_.Close(); }

  // Returns false if the server has closed the socket.
  bool Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n > 0) {
        sent += static_cast<size_t>(n);
      } else if (n < 0 && errno == EAGAIN) {
        Wait(POLLOUT);
      } else {
        return false;
      }
    }
    return true;
  }
  bool Send(const OutgoingFrame& frame) {
    Outbox outbox;
    outbox.Add(frame);
    std::vector<OutgoingFrame> written;
    while (true) {
      const Outbox::Outcome outcome = outbox.Write(fd_.get(), &written);
      if (outcome != Outbox::Outcome::kFull) return outcome == Outbox::Outcome::kEmpty;
      Wait(POLLOUT);
    }
  }
  // Greets, and sends the first message of a stream.
  void Open(Method method, const WireMessage& first) {
    (void)Greet();
    Send(MakeFrame(FrameKind::kRequest, first, method));
  }
  LocalWelcome Greet() {
    Send(MakeGreeting(*target_));
    const std::optional<IncomingFrame> welcome = Receive();
    EXPECT_TRUE(welcome && welcome->header.kind == FrameKind::kGreeting);
    return DecodeLocalWelcome(welcome->inline_bytes).value();
  }

  // Returns the next frame; nothing when the server has closed the socket. The frame is valid until the next
  // call.
  std::optional<IncomingFrame> Receive() {
    while (true) {
      IncomingFrame frame;
      Status status;
      reader_.Refill();
      switch (reader_.Next(fd_.get(), &frame, &status)) {
        case FrameReader::Outcome::kFrame:
          return frame;
        case FrameReader::Outcome::kIncomplete:
          if (!Wait(POLLIN)) return std::nullopt;
          break;
        default:
          return std::nullopt;
      }
    }
  }
  // Returns the status with which the server ends this connection, after any messages; UNKNOWN if it closes the
  // socket without one.
  Status ReceiveStatus() {
    while (std::optional<IncomingFrame> frame = Receive()) {
      if (frame->header.kind == FrameKind::kStatus) return StatusOf(*target_, *frame);
    }
    return Status(StatusCode::kUnknown, "the server has closed the socket");
  }
  bool Wait(short events) {
    pollfd polled = {.fd = fd_.get(), .events = events, .revents = 0};
    return poll(&polled, 1, 60'000) > 0;
  }

 private:
  const std::shared_ptr<LocalTarget> target_;
  Descriptor fd_;
  FrameReader reader_;
};

// Collects the warnings that are logged while it exists.
struct WarningsForTest {
  WarningsForTest() {
    SetLogSink([this](LogLevel level, std::string_view message) {
      if (level == LogLevel::kWarning) messages.Put(std::string(message));
    });
  }
  ~WarningsForTest() { SetLogSink({}); }
  WarningsForTest(const WarningsForTest&) = delete;
  WarningsForTest& operator=(const WarningsForTest&) = delete;

  Mailbox<std::string> messages;
};

// A child created by fork(). Its exit status is 1 if an expectation has failed there.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<void()>& run) : pid_(fork()) {
    if (pid_ == 0) {
      run();
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
  }
  ~ChildProcess() {
    Kill(SIGKILL);
    (void)Wait();
  }
  void Kill(int signal) {
    if (pid_ > 0) kill(pid_, signal);
  }
  // Returns when all threads of the process are stopped.
  void Stop() {
    int status = 0;
    Kill(SIGSTOP);
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  // Returns the exit status; -1 if a signal has ended the process.
  int Wait() {
    int status = 0;
    if (pid_ <= 0 || waitpid(std::exchange(pid_, -1), &status, 0) < 0) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

class LocalTransportTest : public TransportTest {
 protected:
  void StartServer(LocalServer::Options options = {}) {
    options.path = path_;
    auto server = LocalServer::Start(options, handler_);
    ASSERT_OK(server);
    server_ = *std::move(server);
    connection_ = ConnectLocal({.path = path_}).value();
  }

  const std::string path_ = testing::TempDir() + "reverb-" + std::to_string(getpid()) + "-" +
                            std::to_string(testing::UnitTest::GetInstance()->current_test_info()->line()) +
                            ".sock";
  std::unique_ptr<LocalServer> server_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_LOCAL_TRANSPORT_TESTING_H_
