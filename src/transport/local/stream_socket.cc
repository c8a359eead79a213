#include "transport/local/stream_socket.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <thread>
#include <utility>

namespace reverb::internal {
namespace {

// After this time without a Poll() the loop reads again.
constexpr Duration kPollingIdle = std::chrono::milliseconds(20);
constexpr Duration kHangUpPause = std::chrono::microseconds(100);
// Frames of one socket that the loop handles before it looks at the others: a peer may send faster than they are handled.
constexpr int kMaxFramesPerTurn = 8;

// Waits until the socket is readable or closed.
bool WaitReadable(int fd, Duration most, AdaptiveSpin* spin) {
  pollfd polled = {.fd = fd, .events = POLLIN, .revents = 0};
  if (spin->Spin(most, [&] { return poll(&polled, 1, 0) > 0; })) return true;
  const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(most).count();
  const timespec timeout = {.tv_sec = nanos / 1'000'000'000, .tv_nsec = nanos % 1'000'000'000};
  return ppoll(&polled, 1, &timeout, nullptr) > 0;
}

}  // namespace

bool StreamSocket::Attach() {
  std::vector<OutgoingFrame> unsent;  // freed without the lock
  MutexLock lock(&mu_);
  watched_ = EPOLLIN | EPOLLRDHUP | (outbox_.empty() ? 0U : static_cast<uint32_t>(EPOLLOUT));
  // Events may come before this returns; they wait for the lock.
  watch_id_ = loop_->Add(fd_.get(), watched_, shared_from_this());
  if (watch_id_ != 0) return true;
  is_closed_ = true;
  reason_ = Status::ResourceExhausted("the system cannot watch another socket");
  fd_.Close();
  outbox_.Clear(&unsent);
  return false;
}

void StreamSocket::UpdateInterest() {
  const bool reads = !is_paused_ && !reason_ && !is_polled_;
  const uint32_t wanted = (is_polled_ ? 0U : static_cast<uint32_t>(EPOLLRDHUP)) |
                          (reads ? static_cast<uint32_t>(EPOLLIN) : 0U) |
                          (outbox_.empty() || is_broken_ ? 0U : static_cast<uint32_t>(EPOLLOUT));
  if (watch_id_ == 0 || is_closed_ || wanted == watched_) return;
  watched_ = wanted;
  loop_->Modify(fd_.get(), watch_id_, wanted);
}

void StreamSocket::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) Flush();
  if ((events & EPOLLIN) != 0) {
    ReadOnLoop();
  } else if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) {
    bool is_reading = false;
    {
      MutexLock lock(&mu_);
      if (is_polled_ && !is_reading_ && !reason_) {  // reads what the peer has sent before
        is_polled_ = false;
        return UpdateInterest();
      }
      is_reading = is_reading_;
    }
    if (is_reading) {
      // That thread notices it too, and closes the socket. This event cannot be disabled meanwhile.
      std::this_thread::sleep_for(kHangUpPause);
      return;
    }
    Close(Status::Unavailable("the peer has disconnected"));
    FinishClose();
  }
}

// --- Writing ---

StreamSocket::Sent StreamSocket::Send(OutgoingFrame frame, bool notify) {
  if (IsInherited()) {
    HandleInherited();
    return Sent::kClosed;
  }
  std::vector<OutgoingFrame> written;  // freed without the lock
  Status failure;
  {
    MutexLock lock(&mu_);
    if (reason_ || is_closed_) return Sent::kClosed;
    const bool was_empty = outbox_.empty();
    outbox_.Add(std::move(frame));
    if (was_empty && !is_broken_) {
      const Outbox::Outcome outcome = outbox_.Write(fd_.get(), &written);
      if (outcome == Outbox::Outcome::kEmpty) return Sent::kNow;
      if (outcome == Outbox::Outcome::kFailed) {
        if (errno != EPIPE && errno != ECONNRESET) {
          failure = Status::Unavailable("writing to the socket failed: " + std::string(std::strerror(errno)));
        }
        // Otherwise what the peer has sent before it closed the socket is read first.
        is_broken_ = true;
      }
    }
    notify_written_ |= notify;
    UpdateCharge();
    UpdateInterest();
  }
  if (!failure.ok()) Close(std::move(failure));
  return Sent::kLater;
}

void StreamSocket::Flush() {
  std::vector<OutgoingFrame> written;  // freed without the lock
  bool notify = false;
  bool finish = false;
  bool reads_on = false;
  {
    MutexLock lock(&mu_);
    if (is_closed_ || is_broken_) return;
    const Outbox::Outcome outcome = outbox_.Write(fd_.get(), &written);
    if (outcome == Outbox::Outcome::kFailed) is_broken_ = true;
    if (outcome == Outbox::Outcome::kEmpty) notify = std::exchange(notify_written_, false) && !reason_;
    finish = reason_.has_value();
    if (awaits_room_ && outbox_.num_waiting_bytes() <= max_waiting_bytes() / 2) {
      reads_on = true;
      awaits_room_ = is_paused_ = false;
    }
    UpdateCharge();
    UpdateInterest();
  }
  if (notify) HandleWritten();
  if (reads_on) ReadOnLoop();
  if (finish) FinishClose();
}

void StreamSocket::UpdateCharge() {
  waiting_charge_.Set(charges_waiting_bytes() ? static_cast<int64_t>(outbox_.num_waiting_bytes()) : 0);
}

bool StreamSocket::IsStalled() {
  MutexLock lock(&mu_);
  const uint64_t bytes = outbox_.num_written_bytes();
  const bool has_stalled = !outbox_.empty() && bytes == std::exchange(checked_bytes_, bytes);
  num_stalled_checks_ = has_stalled ? num_stalled_checks_ + 1 : 0;
  return num_stalled_checks_ >= 4;
}

// --- Reading ---

void StreamSocket::WantMessage() {
  if (IsInherited()) return HandleInherited();
  {
    MutexLock lock(&mu_);
    ++num_wanted_;
    if (!std::exchange(is_paused_, false) || reason_) return;
  }
  loop_->Post([self = shared_from_this()] { self->ReadOnLoop(); });
}

bool StreamSocket::MayHandle(const IncomingFrame& frame) {
  const bool asks_for_reply = AsksForReply(frame.header.kind);
  if (!asks_for_reply && (frame.header.kind != FrameKind::kMessage || !limits_messages())) return true;
  MutexLock lock(&mu_);
  if (asks_for_reply) {
    if (outbox_.num_waiting_bytes() <= max_waiting_bytes()) return true;
    awaits_room_ = true;
  } else if (num_wanted_ > 0) {
    --num_wanted_;
    return true;
  }
  is_paused_ = true;
  UpdateInterest();
  return false;
}

void StreamSocket::ReadOnLoop() {
  int fd = -1;
  {
    MutexLock lock(&mu_);
    if (is_closed_ || reason_ || is_paused_ || is_reading_ || will_continue_) return;
    is_reading_ = true;
    UpdateInterest();
    fd = fd_.get();
  }
  const bool is_unfinished = ReadFrames(fd, kMaxFramesPerTurn);
  {
    MutexLock lock(&mu_);
    is_reading_ = false;
    is_unfinished_ = will_continue_ = is_unfinished;
  }
  if (is_unfinished) loop_->Post([self = shared_from_this()] { self->ContinueReading(); });
}

void StreamSocket::ContinueReading() {
  {
    MutexLock lock(&mu_);
    will_continue_ = false;
    if (!std::exchange(is_unfinished_, false)) return;  // Poll() has read on
  }
  ReadOnLoop();
}

bool StreamSocket::Poll(Duration most) {
  if (IsInherited()) return false;
  int fd = -1;
  bool checks = false;
  bool is_unfinished = false;
  {
    MutexLock lock(&mu_);
    if (watch_id_ == 0 || is_closed_ || reason_ || is_reading_) return false;
    is_reading_ = true;
    is_polled_ = true;
    is_unfinished = std::exchange(is_unfinished_, false);
    checks = num_pollers_ == 0 && !std::exchange(will_check_, true);
    UpdateInterest();
    fd = fd_.get();
  }
  if (checks) CheckPollingLater();
  if (is_unfinished || WaitReadable(fd, most, &spin_)) {
    (void)ReadFrames(fd, std::numeric_limits<int>::max());
  }
  bool is_closing = false;
  {
    MutexLock lock(&mu_);
    is_reading_ = false;
    last_poll_ = std::chrono::steady_clock::now();
    is_closing = reason_.has_value();
  }
  if (is_closing) loop_->Post([self = shared_from_this()] { self->FinishClose(); });
  return true;
}

void StreamSocket::CheckPollingLater() {
  RealClock()->CallAt(RealClock()->Now() + kPollingIdle, [weak = weak_from_this()] {
    if (const std::shared_ptr<StreamSocket> self = weak.lock()) self->EndPollingIfIdle();
  });
}

void StreamSocket::EndPollingIfIdle() {
  {
    MutexLock lock(&mu_);
    will_check_ = false;
    if (is_closed_ || !is_polled_ || num_pollers_ > 0) return;
    const bool is_idle = !is_reading_ && std::chrono::steady_clock::now() - last_poll_ >= kPollingIdle;
    if (is_idle) {
      is_polled_ = false;
      return UpdateInterest();
    }
    will_check_ = true;
  }
  CheckPollingLater();
}

void StreamSocket::BeginPolling() {
  MutexLock lock(&mu_);
  ++num_pollers_;
}

void StreamSocket::EndPolling() {
  {
    MutexLock lock(&mu_);
    if (--num_pollers_ > 0 || is_closed_ || !is_polled_ || std::exchange(will_check_, true)) return;
  }
  CheckPollingLater();
}

bool StreamSocket::ReadFrames(int fd, int most) {
  reader_.Refill();
  while (!IsClosing()) {
    if (most-- == 0) return true;
    if (!held_) {
      Status status;
      IncomingFrame& frame = held_.emplace();
      const FrameReader::Outcome outcome = reader_.Next(fd, &frame, &status);
      if (outcome != FrameReader::Outcome::kFrame) {
        held_.reset();
        if (outcome == FrameReader::Outcome::kFailed) {
          HandleBadFrame(std::move(status));
        } else if (outcome == FrameReader::Outcome::kClosed) {
          Close(Status::Unavailable("the peer has disconnected"));
        }
        return false;
      }
    }
    if (!MayHandle(*held_)) return false;
    IncomingFrame frame = *std::move(held_);
    held_.reset();
    HandleFrame(&frame);
  }
  return false;
}

// --- Closing ---

void StreamSocket::BeginClose(Status why, bool after_sending) {
  if (IsInherited()) return HandleInherited();
  {
    MutexLock lock(&mu_);
    if (is_closed_) return;
    if (!reason_) {
      reason_ = std::move(why);
      close_after_sending_ = after_sending;
    } else if (after_sending || !close_after_sending_) {
      return;
    }
    if (!after_sending) close_after_sending_ = false;
    UpdateInterest();
  }
  loop_->Post([self = shared_from_this()] { self->FinishClose(); });
}

void StreamSocket::FinishClose() {
  std::vector<OutgoingFrame> unsent;  // freed without the lock
  Status why;
  {
    MutexLock lock(&mu_);
    if (is_closed_ || !reason_ || is_reading_) return;  // Poll() calls this again
    if (close_after_sending_ && !is_broken_ && !outbox_.empty()) return;
  }
  HandleClosing();  // this thread alone closes the socket
  {
    MutexLock lock(&mu_);
    is_closed_ = true;
    why = *reason_;
    loop_->Remove(fd_.get(), watch_id_);
    fd_.Close();
    outbox_.Clear(&unsent);
    waiting_charge_.Set(0);
  }
  held_.reset();
  reader_.Drop();
  HandleClosed(std::move(why));
}

}  // namespace reverb::internal
