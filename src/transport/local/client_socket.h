// client_socket.h — a client's sockets: how they are connected, and single calls over them.
//
// A single call is sent and received on the caller's thread.
//
// Threads: free functions without state; a CallSocket belongs to one thread at a time.
#ifndef REVERB_TRANSPORT_LOCAL_CLIENT_SOCKET_H_
#define REVERB_TRANSPORT_LOCAL_CLIENT_SOCKET_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "reverb/status.h"
#include "transport/adaptive_spin.h"
#include "transport/local/frame.h"
#include "transport/local/frame_io.h"
#include "transport/local/local_connection.h"
#include "transport/single_calls.h"

namespace reverb::internal {

// What a connection and its streams share.
struct LocalTarget {
  explicit LocalTarget(const LocalOptions& given)
      : options(given), address(given.wanted_address.empty() ? "unix:" + given.path : given.wanted_address) {}

  // Errors of the connection name the address: "no connection to the server at …".
  Status Unreachable(const std::string& why) const {
    return Status::Unavailable("no connection to the server at " + address + ": " + why);
  }
  FrameLimits frame_limits() const;

  const LocalOptions options;
  const std::string address;
  // Whether the last attempt to reach the server succeeded, as far as is known.
  std::atomic<bool> is_connected{false};
};

// Returns a connected, non-blocking socket. UNAVAILABLE if nothing listens there, PERMISSION_DENIED if the
// server belongs to another user.
Result<Descriptor> ConnectSocket(LocalTarget* target);
// The first frame of a client.
OutgoingFrame MakeGreeting(const LocalTarget& target);
// Checks the first frame of a server.
Result<LocalWelcome> CheckWelcome(const LocalTarget& target, const IncomingFrame& frame);
// Returns the Status in a frame of kind kStatus.
Status StatusOf(const LocalTarget& target, const IncomingFrame& frame);

class CallSocket {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Called about every 50 ms while a call waits. An error ends the call.
  using OnWait = std::function<Status()>;

  CallSocket(std::shared_ptr<LocalTarget> target, Descriptor fd)
      : target_(std::move(target)), fd_(std::move(fd)), reader_(target_->frame_limits()) {}

  // Returns false if the server has closed the socket, or has sent what nobody has asked for.
  bool IsUsable();
  // Greets if that has not happened yet, and returns the server's life id.
  Result<Id128> Greet(const OnWait& on_wait);
  // REQUIRES: Greet() was successful. After an error for which !is_reusable(), the socket must be closed.
  Status Call(Method method, const WireMessage& request, const OnWait& on_wait,
              const std::function<Status(ByteSlices)>& decode);
  // Returns whether another call may follow.
  bool is_reusable() const { return is_reusable_; }

 private:
  Status Write(OutgoingFrame frame, const OnWait& on_wait);
  Status Read(const OnWait& on_wait, IncomingFrame* frame);
  // Waits until the socket is readable or writable.
  Status Wait(short events, const OnWait& on_wait);
  Status Broken(const std::string& why);

  const std::shared_ptr<LocalTarget> target_;
  const Descriptor fd_;
  FrameReader reader_;
  AdaptiveSpin spin_;
  bool is_greeted_ = false;
  bool is_reusable_ = false;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_CLIENT_SOCKET_H_
