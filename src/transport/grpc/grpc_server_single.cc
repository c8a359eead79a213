// Calls with one request, and the watch over the server's health.
#include <string>
#include <string_view>
#include <utility>

#include "transport/grpc/grpc_server_call.h"

namespace reverb::internal {

namespace {

// Answers with what `status` says, or with an empty message.
Result<WireMessage> EmptyIfOk(Status status) {
  if (!status.ok()) return status;
  return EncodeEmpty();
}

// Decodes a request, does what it asks, encodes the answer.
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

// --- Health ---------------------------------------------------------------------------------------

// Numbers of grpc.health.v1.HealthCheckResponse.ServingStatus.
enum class Health : uint32_t { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

WireMessage EncodeHealth(Health health) {
  WireWriter writer;
  writer.Uint(1, static_cast<uint32_t>(health));
  return writer.Finish();
}

// HealthCheckRequest: the name of a service.
Result<std::string> DecodeHealthRequest(ByteSlices slices, const WireLimits& limits) {
  std::string service;
  WireReader reader(slices);
  while (reader.Next()) {
    if (reader.field() == 1) reader.Read(&service, limits.max_name_bytes);
  }
  REVERB_RETURN_IF_ERROR(reader.status("HealthCheckRequest"));
  return service;
}

bool IsOurs(std::string_view service) { return service.empty() || service == "reverb.v1.Reverb"; }

Health HealthOf(const ServerCore& core) { return core.stopping() ? Health::kNotServing : Health::kServing; }

// --- Calls ----------------------------------------------------------------------------------------

class SingleCall final : public ServerCall {
 public:
  SingleCall(std::shared_ptr<ServerCore> core, Method method)
      : ServerCall(std::move(core)), method_(method) {}

 protected:
  void HandleMessage() override {
    if (method_ == Method::kCheckpoint) return Detach();
    Answer(core());
  }
  void HandleDone() override { EndCall(Status::InvalidArgument("the call came without a request")); }

 private:
  void Answer(ServerCore* core) {
    const Result<WireMessage> reply = method_ == Method::kHealthCheck
                                          ? CheckHealth(core)
                                          : Serve(method_, received()->Open(), core->handler());
    received()->Release();
    if (reply.ok()) {
      EndWith(*reply, Status::Ok());
    } else {
      EndCall(reply.status());
    }
  }

  Result<WireMessage> CheckHealth(ServerCore* core) {
    REVERB_ASSIGN_OR_RETURN(const std::string service,
                            DecodeHealthRequest(received()->Open(), core->limits()));
    if (!IsOurs(service)) return Status::NotFound("there is no service \"" + service + "\" here");
    return EncodeHealth(HealthOf(*core));
  }

  // The completion threads are few and must not be kept.
  void Detach() {
    const auto call = std::static_pointer_cast<SingleCall>(self());
    const bool started = core()->tasks()->Start([call, core = shared_core()] { call->Answer(core.get()); });
    if (!started)
      EndCall(Status::Unavailable("too many checkpoints are being written, or the server is stopping"));
  }

  const Method method_;
};

class HealthWatchCall final : public ServerCall {
 public:
  using ServerCall::ServerCall;
  void OnStopping(const Status& why) override { EndWith(EncodeHealth(Health::kNotServing), why); }

 protected:
  void HandleMessage() override {
    const Result<std::string> service = DecodeHealthRequest(received()->Open(), core()->limits());
    received()->Release();
    if (!service.ok()) return EndCall(service.status());
    // If the server begins to stop just now, this is not sent: the call is ending already.
    Write(EncodeHealth(IsOurs(*service) ? HealthOf(*core()) : Health::kServiceUnknown));
  }
  void HandleDone() override { EndCall(Status::InvalidArgument("the call came without a request")); }
};

}  // namespace

std::shared_ptr<ServerCall> MakeSingleCall(Method method, std::shared_ptr<ServerCore> core) {
  return std::make_shared<SingleCall>(std::move(core), method);
}

std::shared_ptr<ServerCall> MakeHealthWatchCall(std::shared_ptr<ServerCore> core) {
  return std::make_shared<HealthWatchCall>(std::move(core));
}

}  // namespace reverb::internal
