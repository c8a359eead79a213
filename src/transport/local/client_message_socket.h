// client_message_socket.h — what a client's sockets with references have in common: greeting, end, and fork().
//
// Threads: see StreamSocket. The functions to be overridden are called by the thread that reads.
#ifndef REVERB_TRANSPORT_LOCAL_CLIENT_MESSAGE_SOCKET_H_
#define REVERB_TRANSPORT_LOCAL_CLIENT_MESSAGE_SOCKET_H_

#include <atomic>
#include <memory>
#include <optional>

#include "reverb/status.h"
#include "transport/local/client_socket.h"
#include "transport/local/event_loop.h"
#include "transport/local/message_socket.h"

namespace reverb::internal {

// Returns one of the loops that all clients of this process share.
Result<EventLoop*> NextClientLoop();

class ClientMessageSocket : public MessageSocket {
 public:
  ClientMessageSocket(std::shared_ptr<LocalTarget> target, EventLoop* loop, Descriptor fd);

  // Starts to read. If that fails, HandleClosed() was called.
  void BeginReading();

 protected:
  const LocalTarget& target() const { return *target_; }
  void CancelStream() { Close(Status::Cancelled("the stream was cancelled on this side")); }

  virtual void HandleGreeted() {}
  // Decodes a message and passes it on. An error closes the socket.
  virtual Status HandleMessage(IncomingFrame* frame) = 0;
  // The server has sent a status, after the greeting.
  virtual void HandleStatus(Status status) { EndWith(std::move(status)); }
  // The last call.
  virtual void HandleEnd(Status status) = 0;
  // Closes the socket; HandleEnd() gets this status.
  void EndWith(Status status);

  void HandleFrame(IncomingFrame* frame) final;
  void HandleClosed(Status why) final;
  // In a child: the socket is the parent's, so it is over here, and the client opens another one.
  void HandleInherited() final;

 private:
  const std::shared_ptr<LocalTarget> target_;
  // Used by the thread that reads.
  bool is_greeted_ = false;
  std::atomic<bool> was_ended_{false};
  std::optional<Status> server_status_;  // with which the server has ended the stream
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_CLIENT_MESSAGE_SOCKET_H_
