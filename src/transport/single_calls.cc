#include "transport/single_calls.h"

#include <utility>

namespace reverb::internal {

std::string_view MethodName(Method method) {
  switch (method) {
    case Method::kInsert:
      return "Insert";
    case Method::kSample:
      return "Sample";
    case Method::kMutate:
      return "MutatePriorities";
    case Method::kReset:
      return "Reset";
    case Method::kInfo:
      return "Info";
    case Method::kInspect:
      return "Inspect";
    case Method::kSetRateLimiter:
      return "SetRateLimiter";
    case Method::kCreateTable:
      return "CreateTable";
    case Method::kRemoveTable:
      return "RemoveTable";
    case Method::kChangeTable:
      return "ChangeTable";
    case Method::kCheckpoint:
      return "Checkpoint";
    case Method::kSettleLeases:
      return "SettleLeases";
    case Method::kRows:
      return "Rows";
  }
  return {};
}

// --- The server's side ---

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
    case Method::kSettleLeases: {
      REVERB_ASSIGN_OR_RETURN(const SettleLeasesRequest settle, DecodeSettleLeasesRequest(request, limits));
      REVERB_ASSIGN_OR_RETURN(const LeaseOutcome outcome, handler->SettleLeases(settle));
      return EncodeLeaseOutcome(outcome);
    }
    default:
      return Status::Internal("this method is not a single call");
  }
}

std::shared_ptr<PendingCall> ServeRows(ByteSlices request, RequestHandler* handler,
                                       std::function<bool(Result<WireMessage>)> done) {
  const auto make_chunk = [handler](const ChunkHeader& header, uint8_t** payload) {
    return handler->AllocateChunk(header, payload);
  };
  Result<RowsRequest> decoded = DecodeRowsRequest(request, make_chunk, handler->wire_limits());
  if (!decoded.ok()) {
    (void)done(decoded.status());
    return nullptr;
  }
  return handler->StartRows(*std::move(decoded), [done = std::move(done)](Result<RowsReply> reply) {
    return done(reply.ok() ? Result<WireMessage>(EncodeRowsReply(*reply)) : reply.status());
  });
}

// --- The client's side ---

namespace {

// Calls `decode` and stores its value in `*out`.
template <typename T, typename F>
std::function<Status(ByteSlices)> DecodeInto(const F& decode, const WireLimits& limits, T* out) {
  return [&decode, &limits, out](ByteSlices reply) {
    Result<T> value = decode(reply, limits);
    if (!value.ok()) return std::move(value).status();
    *out = *std::move(value);
    return Status::Ok();
  };
}

}  // namespace

Result<ServerInfo> WireConnection::Info(const WaitOptions& wait) {
  ServerInfo info;
  REVERB_RETURN_IF_ERROR(
      Call(Method::kInfo, EncodeEmpty(), wait, DecodeInto(DecodeServerInfo, limits(), &info)));
  return info;
}

Status WireConnection::Mutate(const MutateRequest& request, const WaitOptions& wait) {
  return CallForNothing(Method::kMutate, EncodeMutateRequest(request), wait);
}

Status WireConnection::Reset(std::string_view table, const WaitOptions& wait) {
  return CallForNothing(Method::kReset, EncodeResetRequest(table), wait);
}

Status WireConnection::SetRateLimiter(const SetRateLimiterRequest& request, const WaitOptions& wait) {
  return CallForNothing(Method::kSetRateLimiter, EncodeSetRateLimiterRequest(request), wait);
}

Status WireConnection::CreateTable(const CreateTableRequest& request, const WaitOptions& wait) {
  return CallForNothing(Method::kCreateTable, EncodeCreateTableRequest(request), wait);
}

Status WireConnection::RemoveTable(std::string_view table, const WaitOptions& wait) {
  return CallForNothing(Method::kRemoveTable, EncodeRemoveTableRequest(table), wait);
}

Status WireConnection::ChangeTable(const ChangeTableRequest& request, const WaitOptions& wait) {
  return CallForNothing(Method::kChangeTable, EncodeChangeTableRequest(request), wait);
}

Result<InspectReply> WireConnection::Inspect(const InspectRequest& request, const WaitOptions& wait) {
  InspectReply reply;
  const auto decode = [](ByteSlices slices, const WireLimits& limits) {
    return DecodeInspectReply(slices, limits);
  };
  REVERB_RETURN_IF_ERROR(
      Call(Method::kInspect, EncodeInspectRequest(request), wait, DecodeInto(decode, limits(), &reply)));
  return reply;
}

Result<std::string> WireConnection::Checkpoint(const WaitOptions& wait) {
  std::string path;
  REVERB_RETURN_IF_ERROR(
      Call(Method::kCheckpoint, EncodeEmpty(), wait, DecodeInto(DecodeCheckpointReply, limits(), &path)));
  return path;
}

Result<LeaseOutcome> WireConnection::SettleLeases(const SettleLeasesRequest& request,
                                                  const WaitOptions& wait) {
  LeaseOutcome outcome;
  REVERB_RETURN_IF_ERROR(Call(Method::kSettleLeases, EncodeSettleLeasesRequest(request), wait,
                              DecodeInto(DecodeLeaseOutcome, limits(), &outcome)));
  return outcome;
}

Result<RowsReply> WireConnection::Rows(const RowsRequest& request, const WaitOptions& wait) {
  RowsReply reply;
  REVERB_RETURN_IF_ERROR(
      Call(Method::kRows, EncodeRowsRequest(request), wait, DecodeInto(DecodeRowsReply, limits(), &reply)));
  return reply;
}

Status WireConnection::CallForNothing(Method method, WireMessage request, const WaitOptions& wait) {
  return Call(method, std::move(request), wait,
              [this](ByteSlices reply) { return DecodeEmpty(reply, limits()); });
}

}  // namespace reverb::internal
