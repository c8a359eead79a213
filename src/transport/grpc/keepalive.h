// keepalive.h — how both ends of the gRPC transport detect a peer that vanished without closing the connection.
//
// A side that has received nothing for a quarter of keepalive_timeout sends a ping, and closes the connection if
// there is no answer in the rest of the time. gRPC answers pings, so a peer that does not read its stream is not
// affected.
#ifndef REVERB_TRANSPORT_GRPC_KEEPALIVE_H_
#define REVERB_TRANSPORT_GRPC_KEEPALIVE_H_

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>

#include "reverb/wait.h"

namespace reverb::internal {

inline constexpr std::chrono::seconds kDefaultKeepaliveTimeout{20};

// The values of gRPC's options.
struct KeepaliveMillis {
  int time = INT_MAX;  // no pings
  int timeout = INT_MAX;
};
inline KeepaliveMillis SplitKeepalive(const Timeout& timeout) {
  if (!timeout) return {};
  const int64_t millis = std::chrono::duration_cast<std::chrono::milliseconds>(*timeout).count();
  const int64_t time = std::max<int64_t>(millis / 4, 1);
  const auto to_int = [](int64_t value) { return static_cast<int>(std::clamp<int64_t>(value, 1, INT_MAX)); };
  return {.time = to_int(time), .timeout = to_int(millis - time)};
}

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_KEEPALIVE_H_
