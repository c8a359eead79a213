// resolver.h — finds the servers of a set by its address: the list itself, DNS, or a folder in which they
// register.
#ifndef REVERB_API_RESOLVER_H_
#define REVERB_API_RESOLVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "reverb/status.h"

namespace reverb::internal {

struct ResolvedServer {
  std::string address;
  uint32_t shard = 0;  // 0 = unknown
  // May be another address of a server that also has one that is not an alternative.
  bool is_alternative = false;
};

// Threads: called by one thread at a time.
class Resolver {
 public:
  virtual ~Resolver() = default;
  // Returns the present servers. May block for a while.
  virtual Result<std::vector<ResolvedServer>> Resolve(TimePoint now) = 0;
};

// Splits "a:1,b:2".
std::vector<std::string> SplitAddresses(std::string_view list);
// Returns whether the address names a set whose servers change: dns:///name:port, file:///path.
bool IsResolvedAddress(std::string_view address);
// INVALID_ARGUMENT for an address that is not one of these, or is invalid.
Result<std::unique_ptr<Resolver>> MakeResolver(const std::string& address);

}  // namespace reverb::internal

#endif  // REVERB_API_RESOLVER_H_
