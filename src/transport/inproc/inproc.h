// inproc.h — client and server in one process, without a socket between them.
//
// Messages are passed as values on the caller's thread, and chunks are shared. A server is identified by its
// random life id, which it also sends over the network. A client that connects by address and finds the id in
// this registry knows that the server is in its own process.
//
// Threads: all functions may be called concurrently.
#ifndef REVERB_TRANSPORT_INPROC_INPROC_H_
#define REVERB_TRANSPORT_INPROC_INPROC_H_

#include <memory>

#include "transport/messages.h"
#include "transport/transport.h"

namespace reverb::internal {

// Registers the handler for clients of this process, until it is unregistered or destroyed.
void RegisterInprocServer(const std::shared_ptr<RequestHandler>& handler);
void UnregisterInprocServer(const Id128& life_id);

// Returns whether any server is registered in this process.
bool HasInprocServers();
// Returns whether this server runs in this process.
bool IsInprocServer(const Id128& life_id);
// Returns null if this server does not run in this process.
std::shared_ptr<Connection> ConnectInproc(const Id128& life_id);
// Connects to a given handler. The connection owns a reference to it.
std::shared_ptr<Connection> ConnectInproc(std::shared_ptr<RequestHandler> handler);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_INPROC_INPROC_H_
