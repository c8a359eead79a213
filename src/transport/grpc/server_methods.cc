#include "transport/grpc/server_methods.h"

#include "transport/grpc/grpc_internal.h"

namespace reverb::internal {

std::optional<GrpcMethod> FindMethod(std::string_view path) {
  if (path == kHealthCheckMethod) return GrpcMethod{.kind = GrpcMethod::Kind::kHealthCheck};
  if (path == kHealthWatchMethod) return GrpcMethod{.kind = GrpcMethod::Kind::kHealthWatch};
  if (path == kCallsMethod) return GrpcMethod{.kind = GrpcMethod::Kind::kCalls};
  if (!path.starts_with(kServicePrefix)) return std::nullopt;
  path.remove_prefix(kServicePrefix.size());
  for (auto method = Method::kInsert; method <= kLastMethod;
       method = static_cast<Method>(static_cast<uint8_t>(method) + 1)) {
    if (MethodName(method) == path) return GrpcMethod{.method = method};
  }
  return std::nullopt;
}

WireMessage EncodeHealth(Health health) {
  WireWriter writer;
  writer.Uint(1, static_cast<uint32_t>(health));
  return writer.Finish();
}

Result<std::string> DecodeHealthRequest(ByteSlices slices, const WireLimits& limits) {
  std::string service;
  ProtoReader reader(slices);
  while (reader.Next()) {
    if (reader.field() == 1) reader.Read(&service, limits.max_name_bytes);
  }
  REVERB_RETURN_IF_ERROR(reader.status("HealthCheckRequest"));
  return service;
}

bool IsServed(std::string_view service) { return service.empty() || service == "reverb.v1.Reverb"; }

}  // namespace reverb::internal
