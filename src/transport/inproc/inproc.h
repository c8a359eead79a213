// inproc.h — client and server in one process, without a socket between them.
//
// Messages pass as values, on the caller's thread; chunks are shared. A server is found by the
// random id of its life, which it also tells over the network: a client that reaches a server by
// address and finds that id here knows that it is talking to its own process.
//
// Threads: all functions may be called concurrently.
#ifndef REVERB_TRANSPORT_INPROC_INPROC_H_
#define REVERB_TRANSPORT_INPROC_INPROC_H_

#include <memory>

#include "transport/messages.h"
#include "transport/transport.h"

namespace reverb::internal {

// Lets clients of this process find the handler, until it is unregistered or gone.
void RegisterInprocServer(const std::shared_ptr<RequestHandler>& handler);
void UnregisterInprocServer(const Id128& life_id);

// Whether any server lives in this process.
bool HasInprocServers();
// Whether this one does.
bool IsInprocServer(const Id128& life_id);
// Null when no such server lives in this process.
std::shared_ptr<Connection> ConnectInproc(const Id128& life_id);
// To a handler at hand. The connection holds it.
std::shared_ptr<Connection> ConnectInproc(std::shared_ptr<RequestHandler> handler);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_INPROC_INPROC_H_
