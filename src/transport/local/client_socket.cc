#include "transport/local/client_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace reverb::internal {
namespace {

// How often a waiting call checks for cancellation.
constexpr int kWaitMillis = 50;
constexpr char kClosedByServer[] = "it has closed the connection";

std::string ConnectError(const std::string& path, int error) {
  if (error == ENOENT || error == ECONNREFUSED) return "nothing listens at " + path;
  std::string text = path + ": " + std::strerror(error);
  if (error == EMFILE) text += "; close files or raise the limit (ulimit -n)";
  if (error == EAGAIN) text = path + ": too many clients wait for being accepted";
  return text;
}

}  // namespace

FrameLimits LocalTarget::frame_limits() const {
  return {.max_inline_bytes = options.limits.max_message_bytes,
          .max_references = static_cast<uint32_t>(options.limits.max_slices),
          .accepts_bodies = true};
}

Result<Descriptor> ConnectSocket(LocalTarget* target) {
  const std::string& path = target->options.path;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Status::InvalidArgument("the path of a unix socket has 1 to " +
                                   std::to_string(sizeof address.sun_path - 1) + " bytes, this one " +
                                   std::to_string(path.size()));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  target->is_connected = false;
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return target->Unreachable(ConnectError(path, errno));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EACCES || errno == EPERM) {
      return Status::PermissionDenied("no connection to the server at " + target->address + ": " + path +
                                      " belongs to another user");
    }
    return target->Unreachable(ConnectError(path, errno));
  }
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (!target->options.any_user &&
      (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())) {
    return Status::PermissionDenied("no connection to the server at " + target->address + ": the server at " +
                                    path + " runs as another user (" + std::to_string(peer.uid) + ", not " +
                                    std::to_string(geteuid()) + ")");
  }
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
  return fd;
}

OutgoingFrame MakeGreeting(const LocalTarget& target) {
  LocalHello hello;
  hello.identity = OwnIdentity();
  hello.wanted_address = target.options.wanted_address;
  hello.token = target.options.token;
  return MakeFrame(FrameKind::kGreeting, EncodeLocalHello(hello));
}

Result<LocalWelcome> CheckWelcome(const LocalTarget& target, const IncomingFrame& frame) {
  if (frame.header.kind == FrameKind::kStatus) return StatusOf(target, frame);
  if (frame.header.kind != FrameKind::kGreeting) {
    return Status::FailedPrecondition("the server at " + target.address + " has not greeted");
  }
  REVERB_ASSIGN_OR_RETURN(LocalWelcome welcome, DecodeLocalWelcome(frame.inline_bytes));
  if (welcome.version != kLocalVersion) {
    return Status::FailedPrecondition("the server at " + target.address + " speaks version " +
                                      std::to_string(welcome.version) + " of the local transport, not " +
                                      std::to_string(kLocalVersion));
  }
  return welcome;
}

Status StatusOf(const LocalTarget& target, const IncomingFrame& frame) {
  const ByteSlice slice = frame.inline_bytes;
  Status status;
  REVERB_RETURN_IF_ERROR(DecodeStatus(ByteSlices(&slice, 1), &status, target.options.limits));
  return status;
}

// --- Single calls ---------------------------------------------------------------------------------

bool CallSocket::IsUsable() {
  char byte = 0;
  const ssize_t received = recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

Status CallSocket::Broken(const std::string& why) {
  target_->is_connected = false;
  return target_->Unreachable(why);
}

Status CallSocket::Wait(short events, const OnWait& on_wait) {
  pollfd polled = {.fd = fd_.get(), .events = events, .revents = 0};
  if (spin_.Spin(Duration::max(), [&] { return poll(&polled, 1, 0) > 0; })) return Status::Ok();
  while (true) {
    const int ready = poll(&polled, 1, kWaitMillis);
    if (ready > 0) return Status::Ok();
    if (ready < 0 && errno != EINTR) return Broken(std::strerror(errno));
    REVERB_RETURN_IF_ERROR(on_wait());
  }
}

Status CallSocket::Write(OutgoingFrame frame, const OnWait& on_wait) {
  Outbox outbox;
  outbox.Add(std::move(frame));
  std::vector<OutgoingFrame> written;
  while (true) {
    switch (outbox.Write(fd_.get(), &written)) {
      case Outbox::Outcome::kEmpty:
        return Status::Ok();
      case Outbox::Outcome::kFull:
        REVERB_RETURN_IF_ERROR(Wait(POLLOUT, on_wait));
        break;
      case Outbox::Outcome::kFailed:
        // The server may have sent a reason before it closed the socket.
        if (errno == EPIPE || errno == ECONNRESET) return Status::Ok();
        return Broken(std::strerror(errno));
    }
  }
}

Status CallSocket::Read(const OnWait& on_wait, IncomingFrame* frame) {
  reader_.Refill();
  while (true) {
    Status status;
    switch (reader_.Next(fd_.get(), frame, &status)) {
      case FrameReader::Outcome::kFrame:
        return Status::Ok();
      case FrameReader::Outcome::kIncomplete:
        REVERB_RETURN_IF_ERROR(Wait(POLLIN, on_wait));
        reader_.Refill();
        break;
      case FrameReader::Outcome::kClosed:
        return Broken(kClosedByServer);
      case FrameReader::Outcome::kFailed:
        return status.Prefixed("the server at " + target_->address);
    }
  }
}

Result<Id128> CallSocket::Greet(const OnWait& on_wait) {
  REVERB_RETURN_IF_ERROR(Write(MakeGreeting(*target_), on_wait));
  IncomingFrame frame;
  REVERB_RETURN_IF_ERROR(Read(on_wait, &frame));
  REVERB_ASSIGN_OR_RETURN(const LocalWelcome welcome, CheckWelcome(*target_, frame));
  target_->is_connected = true;
  is_greeted_ = true;
  return welcome.life_id;
}

Status CallSocket::Call(Method method, const WireMessage& request, const OnWait& on_wait,
                        const std::function<Status(ByteSlices)>& decode) {
  is_reusable_ = false;
  REVERB_RETURN_IF_ERROR(Write(MakeFrame(FrameKind::kRequest, request, method), on_wait));
  IncomingFrame frame;
  REVERB_RETURN_IF_ERROR(Read(on_wait, &frame));
  is_reusable_ = true;
  if (frame.header.kind == FrameKind::kStatus) return StatusOf(*target_, frame);
  if (frame.header.kind != FrameKind::kMessage) {
    is_reusable_ = false;
    return Status::DataLoss("the server at " + target_->address + " has answered with a frame of kind " +
                            std::to_string(static_cast<int>(frame.header.kind)));
  }
  const ByteSlice slice = frame.inline_bytes;
  return decode(ByteSlices(&slice, 1));
}

}  // namespace reverb::internal
