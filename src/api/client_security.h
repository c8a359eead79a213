// client_security.h — TLS options and tokens of clients: from the environment, and whether they may be sent.
//
// Threads: free functions without state.
#ifndef REVERB_API_CLIENT_SECURITY_H_
#define REVERB_API_CLIENT_SECURITY_H_

#include <string>
#include <string_view>

#include "reverb/access.h"
#include "reverb/client.h"
#include "reverb/status.h"

namespace reverb::internal {

// Adds what the options leave to the environment, and checks the token. INVALID_ARGUMENT never contains the token.
Result<ClientOptions> WithEnvironment(ClientOptions options);

// Returns whether nobody else can read what is sent to this host.
bool IsThisMachine(std::string_view host);

// `is_sent`: a token would be sent to `address` in plaintext. Logs a warning or returns FAILED_PRECONDITION, if the
// server is on another machine.
Status CheckPlaintextToken(const std::string& address, bool is_sent, PlaintextToken policy);

}  // namespace reverb::internal

#endif  // REVERB_API_CLIENT_SECURITY_H_
