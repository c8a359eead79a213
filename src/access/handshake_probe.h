// handshake_probe.h — finds out why a connection to a server fails: gRPC reports that a handshake failed, not why.
//
// Threads: free functions without state.
#ifndef REVERB_ACCESS_HANDSHAKE_PROBE_H_
#define REVERB_ACCESS_HANDSHAKE_PROBE_H_

#include <optional>
#include <string>

#include "access/tls_files.h"
#include "base/clock.h"
#include "reverb/status.h"

namespace reverb::internal {

// Connects to host:port like a client with these settings (absent: plaintext). FAILED_PRECONDITION if one of both
// has to change before a connection can succeed: a certificate that has expired or is signed by another authority, a
// name that differs, TLS on one side only. OK otherwise, also if nobody answers. Takes about `timeout` at most.
Status ExplainHandshake(const std::string& address, const std::optional<ClientTlsTexts>& tls,
                        Duration timeout);

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_HANDSHAKE_PROBE_H_
