// endpoint.h — where the local socket of a server is, and which addresses mean this host.
//
// A server that listens on a port has its socket at /tmp/reverb-<uid>/<network namespace>-<port>.sock. The
// folder belongs to one user and has mode 0700, so that no other user can offer a socket in it. The number of
// the network namespace keeps containers apart that share /tmp: the same port is a different server in each.
// An address unix:/path names a socket itself.
//
// Nothing here uses gRPC, DNS or a thread, so that a process created by fork() can use it.
// Threads: all functions may be called concurrently.
#ifndef REVERB_TRANSPORT_LOCAL_ENDPOINT_H_
#define REVERB_TRANSPORT_LOCAL_ENDPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reverb/status.h"

namespace reverb::internal {

// Returns whether an address names a socket ("unix:/path") instead of a port.
bool IsUnixAddress(std::string_view address);

// Returns whether connections to `host` stay on this host: a loopback address, "localhost", the host's name or
// the address of one of its interfaces. Does not resolve other names, since that may take seconds.
bool IsThisHost(std::string_view host);

// Returns where the server at `address` ("localhost:8000", "unix:/path") has its socket if it runs on this
// host and has one. Absent for other hosts and for addresses without a port.
std::optional<std::string> LocalSocketPath(std::string_view address);
// The same for a server of this user that listens on `port`.
std::string LocalSocketPath(int port);

// Returns whether a server that listens at `served` (host:port) is the one that is reachable at `wanted`.
bool ServesAddress(std::string_view served, std::string_view wanted);

// Creates the folder of LocalSocketPath(port). PERMISSION_DENIED if it exists and other users could have put a
// socket into it.
Status PrepareLocalFolder();

// Identifies a socket: a server that starts creates another one, even at the same path.
struct SocketFile {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t changed_nanos = 0;
  friend bool operator==(const SocketFile&, const SocketFile&) = default;
};

// Returns the socket at `path`: NOT_FOUND if there is none, PERMISSION_DENIED if it is in our folder and that
// is not private.
Result<SocketFile> FindLocalSocket(const std::string& path);
// Returns whether a process accepts connections at `path`. Does not block; PERMISSION_DENIED if this user may
// not connect, UNAVAILABLE if the server has ended.
Status CheckLocalListener(const std::string& path);

// Returns false if the environment variable REVERB_LOCAL is 0 (off, false, no): the process then neither
// offers nor uses local endpoints.
bool IsLocalEnabled();

// Returns the ID of this boot of the system; empty if unknown.
std::string BootId();
// Returns the inode number of this process's network namespace; 0 if unknown.
uint64_t NetworkNamespace();

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_ENDPOINT_H_
