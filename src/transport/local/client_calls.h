// client_calls.h — single calls of a client that no thread waits for: many at a time over one socket.
//
// The replies are received on the loops that all clients of the process share. A broken socket ends all of its calls;
// the next call opens another one.
//
// Threads: all may be called concurrently.
#ifndef REVERB_TRANSPORT_LOCAL_CLIENT_CALLS_H_
#define REVERB_TRANSPORT_LOCAL_CLIENT_CALLS_H_

#include <functional>
#include <memory>

#include "base/mutex.h"
#include "reverb/status.h"
#include "transport/local/client_socket.h"
#include "transport/single_calls.h"
#include "transport/transport.h"
#include "transport/wire.h"

namespace reverb::internal {

class CallsSocket;

// The socket of a connection, opened when it is needed. Closes it when it is destroyed.
struct LocalCalls {
  LocalCalls() = default;
  ~LocalCalls();
  LocalCalls(const LocalCalls&) = delete;
  LocalCalls& operator=(const LocalCalls&) = delete;

  Mutex mu;
  std::shared_ptr<CallsSocket> socket GUARDED_BY(mu);
};

// See WireConnection::StartCall().
std::shared_ptr<PendingCall> StartLocalCall(
    const std::shared_ptr<LocalTarget>& target, LocalCalls* calls, Method method, const WireMessage& request,
    std::function<void(const Status& status, ByteSlices reply, bool was_sent)> done);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_CLIENT_CALLS_H_
