// server_methods.h — the methods that a server offers over gRPC: their names, what single calls do, and the
// messages of gRPC's health protocol.
//
// Threads: free functions without state.
#ifndef REVERB_TRANSPORT_GRPC_SERVER_METHODS_H_
#define REVERB_TRANSPORT_GRPC_SERVER_METHODS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reverb/status.h"
#include "transport/transport.h"
#include "transport/wire.h"

namespace reverb::internal {

enum class Method {
  kInsert,
  kSample,
  kMutate,
  kReset,
  kInfo,
  kInspect,
  kSetRateLimiter,
  kCreateTable,
  kRemoveTable,
  kChangeTable,
  kCheckpoint,
  kHealthCheck,
  kHealthWatch,
};

std::optional<Method> FindMethod(std::string_view name);

inline bool IsHealth(Method method) {
  return method == Method::kHealthCheck || method == Method::kHealthWatch;
}

// Decodes a request of a single call, executes it, and encodes the reply.
Result<WireMessage> Serve(Method method, ByteSlices request, RequestHandler* handler);

// Numbers of grpc.health.v1.HealthCheckResponse.ServingStatus.
enum class Health : uint32_t { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

WireMessage EncodeHealth(Health health);
// Returns the name of the service in a HealthCheckRequest.
Result<std::string> DecodeHealthRequest(ByteSlices slices, const WireLimits& limits);
// Returns whether this server provides the service.
bool IsServed(std::string_view service);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_SERVER_METHODS_H_
