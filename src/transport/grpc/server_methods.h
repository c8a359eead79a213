// server_methods.h — the methods that a server offers over gRPC, and the messages of gRPC's health protocol.
//
// Threads: free functions without state.
#ifndef REVERB_TRANSPORT_GRPC_SERVER_METHODS_H_
#define REVERB_TRANSPORT_GRPC_SERVER_METHODS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reverb/status.h"
#include "transport/single_calls.h"
#include "transport/wire.h"

namespace reverb::internal {

// A method of the service, its stream of single calls, or a method of gRPC's health protocol.
struct GrpcMethod {
  enum class Kind : uint8_t { kReverb, kCalls, kHealthCheck, kHealthWatch };
  Kind kind = Kind::kReverb;
  Method method = {};  // of the service

  bool is_health() const { return kind == Kind::kHealthCheck || kind == Kind::kHealthWatch; }
};

// Returns the method with this path.
std::optional<GrpcMethod> FindMethod(std::string_view path);

// Numbers of grpc.health.v1.HealthCheckResponse.ServingStatus.
enum class Health : uint32_t { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

WireMessage EncodeHealth(Health health);
// Returns the name of the service in a HealthCheckRequest.
Result<std::string> DecodeHealthRequest(ByteSlices slices, const WireLimits& limits);
// Returns whether this server provides the service.
bool IsServed(std::string_view service);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_SERVER_METHODS_H_
