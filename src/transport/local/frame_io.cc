#include "transport/local/frame_io.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "transport/listener.h"

namespace reverb::internal {
namespace {

// How much is read at least at a time.
constexpr size_t kReadBytes = size_t{16} << 10;
// Longer inline bytes get a block of their own, which the decoded values may keep.
constexpr size_t kOwnBlockBytes = size_t{8} << 10;
// Parts that one system call writes.
constexpr size_t kMaxVectors = 256;

Status Malformed(const std::string& what) {
  return Status::InvalidArgument("the frame violates the protocol: " + what);
}

// Passes: the peer may connect again.
Status NoDescriptors(const std::string& why) {
  return Status::Unavailable("the process that receives shared memory has no file descriptors left: " + why +
                             "; raise its limit (ulimit -n, or LimitNOFILE of systemd), or use gRPC "
                             "(local=False)");
}

}  // namespace

// --- Reading --------------------------------------------------------------------------------------

Status FrameReader::CheckHeader(const FrameHeader& header) const {
  const auto kind = static_cast<uint8_t>(header.kind);
  if (kind < static_cast<uint8_t>(FrameKind::kGreeting) || kind > static_cast<uint8_t>(kLastFrameKind)) {
    return Malformed("unknown kind " + std::to_string(kind));
  }
  if (header.inline_bytes > limits_.max_inline_bytes) {
    return Status::ResourceExhausted("a message has " + std::to_string(header.inline_bytes) +
                                     " bytes, more than the " + std::to_string(limits_.max_inline_bytes) +
                                     " that are accepted");
  }
  if (header.num_references > limits_.max_references) {
    return Status::ResourceExhausted("a message has " + std::to_string(header.num_references) +
                                     " references, more than the " + std::to_string(limits_.max_references) +
                                     " that are accepted");
  }
  if (header.has_body() && (header.kind != FrameKind::kMessage || !limits_.accepts_bodies)) {
    return Malformed("a body in shared memory is not accepted here");
  }
  if (header.num_announcements > kMaxAnnouncements) {
    return Malformed(std::to_string(header.num_announcements) + " announcements, more than " +
                     std::to_string(kMaxAnnouncements));
  }
  return Status::Ok();
}

void FrameReader::Reserve(size_t bytes) {
  if (capacity_ - end_ >= bytes) return;
  const size_t used = buffered();
  if (capacity_ - used < bytes) {
    const size_t capacity = std::max(used + bytes, std::max(kReadBytes, capacity_ * 2));
    auto block = std::make_unique_for_overwrite<uint8_t[]>(capacity);
    if (used > 0) std::memcpy(block.get(), block_.get() + begin_, used);
    block_ = std::move(block);
    capacity_ = capacity;
  } else {
    std::memmove(block_.get(), block_.get() + begin_, used);
  }
  begin_ = 0;
  end_ = used;
}

FrameReader::Outcome FrameReader::Parse(IncomingFrame* frame, Status* status) {
  FrameHeader header;
  wanted_ = sizeof header;
  if (buffered() < wanted_) return Outcome::kIncomplete;
  std::memcpy(&header, block_.get() + begin_, sizeof header);
  if (*status = CheckHeader(header); !status->ok()) return Outcome::kFailed;
  const size_t announcements = header.num_announcements * sizeof(FrameAnnouncement);
  const size_t references = header.has_body() ? 0 : header.num_references * sizeof(FrameReference);
  const size_t inline_bytes = header.has_body() ? 0 : header.inline_bytes;
  const bool is_large = inline_bytes >= kOwnBlockBytes || references > 0;
  wanted_ += announcements + references + (is_large ? 0 : inline_bytes);
  if (buffered() < wanted_) return Outcome::kIncomplete;
  const uint8_t* at = block_.get() + begin_ + sizeof header;
  *frame = {};
  frame->header = header;
  frame->announcements.resize(header.num_announcements);
  if (announcements > 0) std::memcpy(frame->announcements.data(), at, announcements);
  at += announcements;
  frame->references.resize(references / sizeof(FrameReference));
  if (references > 0) std::memcpy(frame->references.data(), at, references);
  at += references;
  begin_ += wanted_;
  if (!is_large) {
    frame->inline_bytes = {at, inline_bytes};
    return FinishFrame(frame, status);
  }
  frame->keeper = Buffer::Allocate(inline_bytes, &large_bytes_);
  frame->inline_bytes = frame->keeper.span();
  large_received_ = std::min<size_t>(inline_bytes, buffered());
  // Only what has arrived: a peer that announces much and sends nothing must not take memory from others.
  frame->charge = {limits_.memory, MemoryPart::kReceiving, static_cast<int64_t>(large_received_)};
  std::memcpy(large_bytes_, block_.get() + begin_, large_received_);
  begin_ += large_received_;
  if (large_received_ == inline_bytes) {
    large_bytes_ = nullptr;
    return FinishFrame(frame, status);
  }
  large_ = std::move(*frame);
  return Outcome::kIncomplete;
}

FrameReader::Outcome FrameReader::FinishFrame(IncomingFrame* frame, Status* status) {
  const size_t count = frame->header.num_announcements;
  // They come with the first byte of the frame.
  if (descriptors_.size() < count) {
    *status = has_lost_descriptors_
                  ? NoDescriptors("all are in use")
                  : Malformed("a descriptor of announced shared memory did not arrive with its frame");
    return Outcome::kFailed;
  }
  for (size_t i = 0; i < count; ++i) {
    frame->descriptors.push_back(std::move(descriptors_.front()));
    descriptors_.pop_front();
  }
  return Outcome::kFrame;
}

FrameReader::Outcome FrameReader::Next(int fd, IncomingFrame* frame, Status* status) {
  while (true) {
    if (large_bytes_ == nullptr) {
      const Outcome parsed = Parse(frame, status);
      if (parsed != Outcome::kIncomplete) return parsed;
    } else if (large_received_ == large_.inline_bytes.size()) {
      large_bytes_ = nullptr;
      *frame = std::exchange(large_, {});
      return FinishFrame(frame, status);
    }
    if (const Outcome received = Receive(fd, status); received != Outcome::kFrame) return received;
  }
}

// Returns kFrame if bytes have arrived.
FrameReader::Outcome FrameReader::Receive(int fd, Status* status) {
  if (is_drained_) {
    if (begin_ == end_) {  // an idle socket uses no memory
      block_.reset();
      capacity_ = begin_ = end_ = 0;
    }
    return Outcome::kIncomplete;
  }
  iovec into = {};
  if (large_bytes_ != nullptr) {
    into = {large_bytes_ + large_received_, large_.inline_bytes.size() - large_received_};
  } else {
    Reserve(std::max(wanted_ - buffered(), kReadBytes));
    into = {block_.get() + end_, capacity_ - end_};
  }
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxAnnouncements * sizeof(int))> control;
  msghdr message = {};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = 0;
  do {
    received = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      is_drained_ = true;
      return Outcome::kIncomplete;
    }
    if (errno == ECONNRESET) return Outcome::kClosed;
    *status = Status::Unavailable("reading from the socket failed: " + std::string(std::strerror(errno)));
    return Outcome::kFailed;
  }
  std::optional<std::string> shortage;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int passed = -1;
      std::memcpy(&passed, CMSG_DATA(part) + i * sizeof(int), sizeof passed);
      descriptors_.emplace_back(passed);
      if (limits_.spares_descriptors && !shortage) shortage = DescriptorShortage(passed, /*is_brief=*/true);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) has_lost_descriptors_ = true;
  if (shortage) {
    descriptors_.clear();
    *status = NoDescriptors(*shortage);
    return Outcome::kFailed;
  }
  if (!limits_.accepts_announcements && !descriptors_.empty()) {
    *status = Malformed("descriptors are not accepted here");
    return Outcome::kFailed;
  }
  if (descriptors_.size() > kMaxAnnouncements) {
    *status = Malformed("descriptors without announcements");
    return Outcome::kFailed;
  }
  if (received == 0) return Outcome::kClosed;
  if (large_bytes_ != nullptr) {
    large_received_ += static_cast<size_t>(received);
    large_.charge.Set(static_cast<int64_t>(large_received_));
  } else {
    end_ += static_cast<size_t>(received);
  }
  is_drained_ = static_cast<size_t>(received) < into.iov_len;
  return Outcome::kFrame;
}

void FrameReader::Drop() {
  large_ = {};
  large_bytes_ = nullptr;
}

// --- Writing --------------------------------------------------------------------------------------

Outbox::Outcome Outbox::Write(int fd, std::vector<OutgoingFrame>* written) {
  while (!frames_.empty()) {
    OutgoingFrame& frame = frames_.front();
    std::array<iovec, kMaxVectors> vectors;
    size_t count = 0;
    size_t bytes = 0;
    size_t skip = frame.sent_bytes;
    const auto add = [&](const void* data, size_t size) {
      if (skip >= size) {
        skip -= size;
        return;
      }
      vectors[count++] = {const_cast<char*>(static_cast<const char*>(data)) + skip, size - skip};
      bytes += size - skip;
      skip = 0;
    };
    add(frame.head.data(), frame.head.size());
    size_t next = 0;
    for (; next < frame.parts.size() && count < kMaxVectors; ++next) {
      add(frame.parts[next].data(), frame.parts[next].size());
    }
    const bool is_rest = next == frame.parts.size();

    msghdr message = {};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxAnnouncements * sizeof(int))> control = {};
    if (frame.sent_bytes == 0 && !frame.descriptors.empty()) {
      const size_t size = frame.descriptors.size() * sizeof(int);
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(size);
      cmsghdr* const part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(size);
      std::memcpy(CMSG_DATA(part), frame.descriptors.data(), size);
    }
    ssize_t sent = 0;
    do {
      sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
      // ETOOMANYREFS: too many descriptors are in flight to processes that do not read.
      const bool is_full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
      return is_full ? Outcome::kFull : Outcome::kFailed;
    }
    num_written_bytes_ += static_cast<uint64_t>(sent);
    num_waiting_bytes_ -= static_cast<uint64_t>(sent);
    frame.sent_bytes += static_cast<size_t>(sent);
    if (static_cast<size_t>(sent) < bytes) continue;  // the next attempt finds the socket full, or goes on
    if (!is_rest) continue;
    written->push_back(std::move(frame));
    frames_.pop_front();
  }
  return Outcome::kEmpty;
}

void Outbox::Clear(std::vector<OutgoingFrame>* unsent) {
  for (OutgoingFrame& frame : frames_) unsent->push_back(std::move(frame));
  frames_.clear();
  num_waiting_bytes_ = 0;
}

}  // namespace reverb::internal
