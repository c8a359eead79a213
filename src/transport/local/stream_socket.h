// stream_socket.h — one end of a socket that carries frames: reading on an event loop, writing from any thread.
//
// Frames are written by the thread that sends them, as far as the socket accepts them; the loop writes the rest.
// The loop reads frames and passes them to HandleFrame(), one at a time, unless a thread that waits for them does it
// in Poll(). Then the loop leaves reading to such threads until none has come for a while. The Handle functions are
// called without locks, HandleFrame() and HandleBadFrame() by the reading thread, the others on the loop's thread;
// HandleClosed() is the last call, made exactly once after a successful Attach(), when no thread reads.
//
// Ownership: the loop keeps an attached socket alive until it is closed. Others may hold it for longer; its
// methods then do nothing.
// Threads: Send(), WantMessage(), Close() and CloseAfterSending() may be called concurrently, also in Handle
// functions.
#ifndef REVERB_TRANSPORT_LOCAL_STREAM_SOCKET_H_
#define REVERB_TRANSPORT_LOCAL_STREAM_SOCKET_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/fork.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "reverb/status.h"
#include "transport/local/event_loop.h"
#include "transport/local/frame.h"
#include "transport/local/frame_io.h"

namespace reverb::internal {

class StreamSocket : public EventHandler, public std::enable_shared_from_this<StreamSocket> {
 public:
  StreamSocket(EventLoop* loop, Descriptor fd, const FrameLimits& limits)
      : loop_(loop),
        reader_(limits),
        fd_(std::move(fd)),
        waiting_charge_(limits.memory, MemoryPart::kReplies) {}
  StreamSocket(const StreamSocket&) = delete;
  StreamSocket& operator=(const StreamSocket&) = delete;

  // Starts to read. Returns false if the system cannot watch the socket; it is then closed.
  bool Attach() EXCLUDES(mu_);
  void OnEvents(uint32_t events) final EXCLUDES(mu_);

  enum class Sent : uint8_t {
    kNow,     // completely written
    kLater,   // the loop writes the rest
    kClosed,  // the socket is closed or closing
  };
  // `notify`: if the result is kLater, HandleWritten() is called when everything was written.
  Sent Send(OutgoingFrame frame, bool notify) EXCLUDES(mu_);
  // Waits until the socket is readable, for `most` at most, and reads frames on this thread. Returns false at once if
  // another thread reads, or if the socket is closing.
  bool Poll(Duration most) EXCLUDES(mu_);
  // A thread that will call Poll() again and again: until it is destroyed, nobody checks whether threads still do.
  class PollingScope {
   public:
    explicit PollingScope(StreamSocket* socket) : socket_(socket) { socket_->BeginPolling(); }
    ~PollingScope() { socket_->EndPolling(); }
    PollingScope(const PollingScope&) = delete;
    PollingScope& operator=(const PollingScope&) = delete;

   private:
    StreamSocket* const socket_;
  };
  // Accepts one more frame of kind kMessage.
  void WantMessage() EXCLUDES(mu_);
  // Closes the socket soon, without sending what is left. The first reason is passed to HandleClosed().
  void Close(Status why) EXCLUDES(mu_) { BeginClose(std::move(why), /*after_sending=*/false); }
  // The same, once everything was written. Received frames are dropped from now on.
  void CloseAfterSending(Status why) EXCLUDES(mu_) { BeginClose(std::move(why), /*after_sending=*/true); }
  bool IsClosing() const EXCLUDES(mu_) {
    if (IsInherited()) return true;
    MutexLock lock(&mu_);
    return reason_.has_value();
  }
  // Returns whether frames wait for being written and nothing was in the last four calls.
  bool IsStalled() EXCLUDES(mu_);

 protected:
  // Called for each frame; those of kind kMessage only as many times as WantMessage() was called, if
  // `limits_messages`.
  virtual void HandleFrame(IncomingFrame* frame) = 0;
  // A frame violates the protocol or a limit, or the socket cannot be read.
  virtual void HandleBadFrame(Status why) { Close(std::move(why)); }
  virtual void HandleWritten() {}
  // Called before the peer can notice that this end closes the socket.
  virtual void HandleClosing() {}
  virtual void HandleClosed(Status why) = 0;
  virtual bool limits_messages() const { return false; }
  // While more bytes wait for being written, no frame is handled that asks for a reply. Unlimited for clients: both ends
  // must not wait for each other.
  virtual uint64_t max_waiting_bytes() const { return UINT64_MAX; }
  // Returns whether bytes that wait for being written are charged to FrameLimits::memory. May be called on any thread.
  virtual bool charges_waiting_bytes() const { return true; }
  // Called instead, on the caller's thread, when a child created by fork() uses a socket of its parent. The
  // parent's lock and thread are of no use there.
  virtual void HandleInherited() {}

  EventLoop* loop() const { return loop_; }

  // See PollingScope.
  void BeginPolling() EXCLUDES(mu_);
  void EndPolling() EXCLUDES(mu_);

 private:
  void BeginClose(Status why, bool after_sending) EXCLUDES(mu_);
  // Closes the socket if that is due. On the loop's thread.
  void FinishClose() EXCLUDES(mu_);
  // Reads on the loop's thread, unless another thread does, or ContinueReading() will.
  void ReadOnLoop() EXCLUDES(mu_);
  // Reads on, after the other sockets of the loop had their turn.
  void ContinueReading() EXCLUDES(mu_);
  // Returns false if the socket has no more frames now, true after `most` of them.
  bool ReadFrames(int fd, int most) EXCLUDES(mu_);
  // Makes the loop read again if no thread has called Poll() for a while.
  void EndPollingIfIdle() EXCLUDES(mu_);
  void CheckPollingLater();
  void Flush() EXCLUDES(mu_);
  // Charges what waits for being written.
  void UpdateCharge() REQUIRES(mu_);
  // Returns false if the frame must wait for WantMessage(), or until enough was written.
  bool MayHandle(const IncomingFrame& frame) EXCLUDES(mu_);
  // Passes what to watch to the loop.
  void UpdateInterest() REQUIRES(mu_);

  bool IsInherited() const { return generation_ != ForkGeneration(); }

  const uint64_t generation_ = ForkGeneration();
  EventLoop* const loop_;
  // Used by the thread that reads: see is_reading_.
  FrameReader reader_;
  std::optional<IncomingFrame> held_;  // see MayHandle()
  AdaptiveSpin spin_;

  mutable Mutex mu_;
  Descriptor fd_ GUARDED_BY(mu_);  // closed on the loop's thread only
  uint64_t watch_id_ GUARDED_BY(mu_) = 0;
  uint32_t watched_ GUARDED_BY(mu_) = 0;
  Outbox outbox_ GUARDED_BY(mu_);
  MemoryCharge waiting_charge_ GUARDED_BY(mu_);
  bool is_broken_ GUARDED_BY(mu_) = false;  // the peer reads nothing more; it may have sent a reason
  bool notify_written_ GUARDED_BY(mu_) = false;
  int64_t num_wanted_ GUARDED_BY(mu_) = 0;
  bool is_paused_ GUARDED_BY(mu_) = false;      // held_ waits
  bool awaits_room_ GUARDED_BY(mu_) = false;    // until enough was written
  bool is_reading_ GUARDED_BY(mu_) = false;     // a thread uses reader_ and held_, and calls HandleFrame()
  bool is_unfinished_ GUARDED_BY(mu_) = false;  // frames that were received already may wait in reader_
  bool will_continue_ GUARDED_BY(mu_) = false;  // ContinueReading() is posted
  bool is_polled_ GUARDED_BY(mu_) = false;      // the loop does not watch for frames
  int num_pollers_ GUARDED_BY(mu_) = 0;         // PollingScopes
  bool will_check_ GUARDED_BY(mu_) = false;     // EndPollingIfIdle() will be called
  std::chrono::steady_clock::time_point last_poll_ GUARDED_BY(mu_);
  std::optional<Status> reason_ GUARDED_BY(mu_);  // of closing
  bool close_after_sending_ GUARDED_BY(mu_) = false;
  bool is_closed_ GUARDED_BY(mu_) = false;
  uint64_t checked_bytes_ GUARDED_BY(mu_) = 0;  // written at the last call of IsStalled()
  int num_stalled_checks_ GUARDED_BY(mu_) = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_STREAM_SOCKET_H_
