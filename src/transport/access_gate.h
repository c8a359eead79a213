// access_gate.h — how a transport finds out what its clients may do.
//
// Threads: an AccessGate may be called concurrently.
#ifndef REVERB_TRANSPORT_ACCESS_GATE_H_
#define REVERB_TRANSPORT_ACCESS_GATE_H_

#include <memory>
#include <string>

#include "reverb/status.h"
#include "transport/transport.h"

namespace reverb::internal {

// Who calls a server, as far as the transport knows.
struct Caller {
  std::string token = {};        // empty: none was sent
  std::string address = {};      // for messages: "192.0.2.1:4000", "pid 4711"
  bool is_same_user = false;     // the system says that the client runs as the server's user
  bool is_this_process = false;  // the system says that it is the server's own process
};

// Decides who may use a server. A transport asks once for each gRPC call and each local socket, and uses the handler
// that it gets for everything that this client requests.
class AccessGate {
 public:
  virtual ~AccessGate() = default;
  virtual Result<std::shared_ptr<RequestHandler>> Admit(const Caller& caller) = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_ACCESS_GATE_H_
