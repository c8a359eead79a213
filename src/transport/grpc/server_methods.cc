#include "transport/grpc/server_methods.h"

#include <array>
#include <utility>

#include "transport/grpc/grpc_internal.h"

namespace reverb::internal {

std::optional<Method> FindMethod(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Method>, 13> kMethods = {{
      {kInsertMethod, Method::kInsert},
      {kSampleMethod, Method::kSample},
      {kMutateMethod, Method::kMutate},
      {kResetMethod, Method::kReset},
      {kInfoMethod, Method::kInfo},
      {kInspectMethod, Method::kInspect},
      {kSetRateLimiterMethod, Method::kSetRateLimiter},
      {kCreateTableMethod, Method::kCreateTable},
      {kRemoveTableMethod, Method::kRemoveTable},
      {kChangeTableMethod, Method::kChangeTable},
      {kCheckpointMethod, Method::kCheckpoint},
      {kHealthCheckMethod, Method::kHealthCheck},
      {kHealthWatchMethod, Method::kHealthWatch},
  }};
  for (const auto& [known, method] : kMethods) {
    if (known == name) return method;
  }
  return std::nullopt;
}

namespace {

// Returns the error, or an empty message.
Result<WireMessage> EmptyIfOk(Status status) {
  if (!status.ok()) return status;
  return EncodeEmpty();
}

}  // namespace

Result<WireMessage> Serve(Method method, ByteSlices request, RequestHandler* handler) {
  const WireLimits& limits = handler->wire_limits();
  switch (method) {
    case Method::kMutate: {
      REVERB_ASSIGN_OR_RETURN(const MutateRequest mutate, DecodeMutateRequest(request, limits));
      return EmptyIfOk(handler->Mutate(mutate));
    }
    case Method::kReset: {
      REVERB_ASSIGN_OR_RETURN(const std::string table, DecodeResetRequest(request, limits));
      return EmptyIfOk(handler->Reset(table));
    }
    case Method::kSetRateLimiter: {
      REVERB_ASSIGN_OR_RETURN(const SetRateLimiterRequest set, DecodeSetRateLimiterRequest(request, limits));
      return EmptyIfOk(handler->SetRateLimiter(set));
    }
    case Method::kCreateTable: {
      REVERB_ASSIGN_OR_RETURN(const CreateTableRequest create, DecodeCreateTableRequest(request, limits));
      return EmptyIfOk(handler->CreateTable(create));
    }
    case Method::kRemoveTable: {
      REVERB_ASSIGN_OR_RETURN(const std::string table, DecodeRemoveTableRequest(request, limits));
      return EmptyIfOk(handler->RemoveTable(table));
    }
    case Method::kChangeTable: {
      REVERB_ASSIGN_OR_RETURN(const ChangeTableRequest change, DecodeChangeTableRequest(request, limits));
      return EmptyIfOk(handler->ChangeTable(change));
    }
    case Method::kInfo: {
      REVERB_RETURN_IF_ERROR(DecodeEmpty(request, limits));
      REVERB_ASSIGN_OR_RETURN(const ServerInfo info, handler->Info());
      return EncodeServerInfo(info);
    }
    case Method::kInspect: {
      REVERB_ASSIGN_OR_RETURN(const InspectRequest inspect, DecodeInspectRequest(request, limits));
      REVERB_ASSIGN_OR_RETURN(const InspectReply reply, handler->Inspect(inspect));
      return EncodeInspectReply(reply);
    }
    case Method::kCheckpoint: {
      REVERB_RETURN_IF_ERROR(DecodeEmpty(request, limits));
      REVERB_ASSIGN_OR_RETURN(const std::string path, handler->Checkpoint());
      return EncodeCheckpointReply(path);
    }
    default:
      return Status::Internal("this method is not a single call");
  }
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
