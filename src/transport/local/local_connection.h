// local_connection.h — connects to a server of another process of this host, over its Unix socket.
//
// Every stream has a socket of its own; single calls share a small pool. Closing a socket is cancelling.
// A child created by fork() inherits connections and uses sockets of its own: single calls and new streams
// just work there, and the streams of the parent are closed with UNAVAILABLE in the child.
//
// Threads: all functions may be called concurrently.
#ifndef REVERB_TRANSPORT_LOCAL_LOCAL_CONNECTION_H_
#define REVERB_TRANSPORT_LOCAL_LOCAL_CONNECTION_H_

#include <memory>
#include <string>

#include "base/clock.h"
#include "reverb/status.h"
#include "transport/messages.h"
#include "transport/transport.h"
#include "transport/wire.h"

namespace reverb::internal {

struct LocalOptions {
  std::string path;
  // The address that the user gave, for messages; "" = "unix:" and the path. If it is host:port, a server that
  // is not reachable at that address refuses the connection.
  std::string wanted_address;
  // Accepts a server of another user: the path was given by the user, not found.
  bool any_user = false;
  WireLimits limits;
  std::string token = {};  // proves to the server who this client is; empty: none
};

// Connects when the first call or stream needs it, and again after the server was restarted.
Result<std::shared_ptr<Connection>> ConnectLocal(const LocalOptions& options);

// Finds out whether a server listens at the path and accepts this client, and returns its life id.
// UNAVAILABLE: nothing listens there, or no answer came within `timeout`. FAILED_PRECONDITION or
// PERMISSION_DENIED: the server refuses, since it is not the one that is reachable at `wanted_address`, belongs
// to another user, or speaks another version.
Result<Id128> ProbeLocal(const LocalOptions& options, Duration timeout);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_LOCAL_CONNECTION_H_
