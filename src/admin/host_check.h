// host_check.h — decides whether a browser may have sent a request on behalf of another site.
//
// A page of another site can make a browser send requests to this port. The browser shows it the answer if the other
// site's name resolves to this address (DNS rebinding). Such requests carry the other name in Host, which is refused. An
// IP address cannot be rebound, so any is accepted; names need to be known.
//
// Threads: values and free functions without state.
#ifndef REVERB_ADMIN_HOST_CHECK_H_
#define REVERB_ADMIN_HOST_CHECK_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/status.h"

namespace reverb::internal {

class HostCheck {
 public:
  // `listen_host`: the host that the port listens on. `hosts`: further names of the machine, without ports.
  // INVALID_ARGUMENT names an entry that is no host.
  static Result<HostCheck> Make(const std::string& listen_host, const std::vector<std::string>& hosts);

  // INVALID_ARGUMENT without a Host; PERMISSION_DENIED for one that is not known, and for an Origin of another host.
  Status Check(const std::optional<std::string>& host, const std::optional<std::string>& origin) const;

 private:
  std::vector<std::string> names_;  // in lower case
};

// Returns whether the text is an IPv4 address, or an IPv6 address in brackets.
bool IsIpLiteral(std::string_view host);

}  // namespace reverb::internal

#endif  // REVERB_ADMIN_HOST_CHECK_H_
