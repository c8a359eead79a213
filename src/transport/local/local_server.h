// local_server.h — serves a RequestHandler to other processes of this host over a Unix socket.
//
// Handlers and sessions are called on a few threads of the server's own, a checkpoint on a thread of its own.
// They must not block. A socket belongs to one thread, which makes all calls of its session.
//
// Ownership: keeps the handler alive until the last session is over. Sessions may keep their peers longer than
// this object lives; such peers do nothing.
// Threads: all methods may be called concurrently, but not from inside a handler or a session.
#ifndef REVERB_TRANSPORT_LOCAL_LOCAL_SERVER_H_
#define REVERB_TRANSPORT_LOCAL_LOCAL_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "reverb/status.h"
#include "transport/access_gate.h"
#include "transport/traffic.h"
#include "transport/transport.h"

namespace reverb::internal {

class LocalServer {
 public:
  struct Options {
    // The socket. It gets mode 0600, or 0666 without `same_user_only`. One that a killed server has left
    // behind is replaced.
    std::string path;
    // host:port at which this server is reachable over gRPC. Clients that look for another address are
    // refused. Empty: accepts all.
    std::string tcp_address;
    // Refuses clients of other users.
    bool same_user_only = true;
    // Maximum number of open sockets, each of which carries a stream or single calls. Further ones are refused
    // with RESOURCE_EXHAUSTED.
    size_t max_streams = 10'000;
    // 0 = half as many as there are processors, 1 to 4.
    int num_threads = 0;
    // A client that neither takes what was sent to it nor returns memory that it was shown for this long is
    // disconnected.
    Duration stalled_client_timeout = std::chrono::seconds(60);
    // Maximum bytes of this process's memory that one client process may refer to, over all of its sockets. Further
    // data is copied into the socket instead.
    uint64_t max_pinned_bytes = uint64_t{256} << 20;
    // Null: everybody who may connect may do everything.
    std::shared_ptr<AccessGate> gate = nullptr;
    // Null: messages are not counted.
    std::shared_ptr<TrafficCounters> traffic = nullptr;
  };

  // Starts a server that listens when this returns. The error names the path.
  static Result<std::unique_ptr<LocalServer>> Start(const Options& options,
                                                    std::shared_ptr<RequestHandler> handler);
  ~LocalServer();  // Stop(0)
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  // Refuses new sockets and calls, and ends all streams with UNAVAILABLE. Closes what is still open after
  // `grace`. Returns when no handler and no session will be called any more; waits for a checkpoint in
  // progress. Idempotent.
  void Stop(Duration grace);

 private:
  class Impl;
  explicit LocalServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_LOCAL_SERVER_H_
