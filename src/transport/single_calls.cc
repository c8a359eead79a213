#include "transport/single_calls.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

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

Result<WireMessage> ServeCall(Method method, ByteSlices request, RequestHandler* handler) {
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

// Logs that a call was refused. The message of the status names the table.
void LogRefusedCall(Method method, const Status& status) {
  if (!IsRefusal(status)) return;
  // The checkpointer logs writes that fail.
  if (method == Method::kCheckpoint && status.code() != StatusCode::kInvalidArgument) return;
  const std::string name(MethodName(method));
  LogRefusal("call " + name + " " + std::string(StatusCodeName(status.code())),
             "refused a call of " + name + ": " + std::string(status.message()), status, {{"call", name}});
}

}  // namespace

Result<WireMessage> Serve(Method method, ByteSlices request, RequestHandler* handler) {
  Result<WireMessage> reply = ServeCall(method, request, handler);
  if (!reply.ok()) LogRefusedCall(method, reply.status());
  return reply;
}

Result<RowsRequest> DecodeRows(ByteSlices request, RequestHandler* handler) {
  const auto make_chunk = [handler](const ChunkHeader& header, uint8_t** payload) {
    return handler->AllocateChunk(header, payload);
  };
  return DecodeRowsRequest(request, make_chunk, handler->wire_limits());
}

std::shared_ptr<PendingCall> ServeRows(ByteSlices request, RequestHandler* handler,
                                       std::function<bool(Result<WireMessage>)> done) {
  return StartRows(DecodeRows(request, handler), handler, [done = std::move(done)](Result<RowsReply> reply) {
    return done(reply.ok() ? Result<WireMessage>(EncodeRowsReply(*reply)) : reply.status());
  });
}

std::shared_ptr<PendingCall> StartRows(Result<RowsRequest> request, RequestHandler* handler,
                                       std::function<bool(Result<RowsReply>)> done) {
  if (!request.ok()) {
    LogRefusedCall(Method::kRows, request.status());
    (void)done(request.status());
    return nullptr;
  }
  return handler->StartRows(*std::move(request), [done = std::move(done)](Result<RowsReply> reply) {
    if (!reply.ok()) LogRefusedCall(Method::kRows, reply.status());
    return done(std::move(reply));
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

Result<RowsRequest> EncodeParts(const RowsRequest& request) {
  RowsRequest whole{.call = request.call, .rows = request.rows};
  for (size_t next = 0; request.parts != nullptr && next < request.parts->size();) {
    REVERB_ASSIGN_OR_RETURN(std::vector<RowWrite> rows, request.parts->Encode(&next));
    std::ranges::move(rows, std::back_inserter(whole.rows));
  }
  return whole;
}

Result<RowsReply> WireConnection::Rows(const RowsRequest& request, const WaitOptions& wait) {
  if (request.parts != nullptr) {
    REVERB_ASSIGN_OR_RETURN(const RowsRequest whole, EncodeParts(request));
    return Rows(whole, wait);
  }
  RowsReply reply;
  const auto decode = [](ByteSlices slices, const WireLimits& limits) {
    return DecodeRowsReply(slices, limits);
  };
  REVERB_RETURN_IF_ERROR(
      Call(Method::kRows, EncodeRowsRequest(request), wait, DecodeInto(decode, limits(), &reply)));
  return reply;
}

// Cancels an operation by its number. Ending the call instead would lose what the server has sent meanwhile: a lease
// that nobody knows.
class WireConnection::RowsCancellation final : public PendingCall {
 public:
  RowsCancellation(std::shared_ptr<WireConnection> connection, std::string table, uint64_t call_id,
                   std::shared_ptr<PendingCall> call)
      : connection_(std::move(connection)),
        table_(std::move(table)),
        call_id_(call_id),
        call_(std::move(call)) {}

  void Cancel() override {
    if (call_id_ == 0 || !connection_->CanCancelByNumber()) return call_->Cancel();
    RowsRequest cancel;
    cancel.call.verb = RowsVerb::kCancel;
    cancel.call.table = table_;
    cancel.call.call_id = call_id_;
    (void)connection_->StartCall(Method::kRows, EncodeRowsRequest(cancel),
                                 [call = call_](const Status& status, ByteSlices, bool) {
                                   if (!status.ok()) call->Cancel();
                                 });
    // If neither call is answered.
    constexpr Duration kAnswerTimeout = std::chrono::seconds(10);
    RealClock()->CallAt(RealClock()->Now() + kAnswerTimeout, [weak = std::weak_ptr(call_)] {
      if (const std::shared_ptr<PendingCall> call = weak.lock()) call->Cancel();
    });
  }

 private:
  const std::shared_ptr<WireConnection> connection_;
  const std::string table_;
  const uint64_t call_id_;
  const std::shared_ptr<PendingCall> call_;
};

std::shared_ptr<PendingCall> WireConnection::StartRows(RowsRequest request, RowsReplied done) {
  const RowsVerb verb = request.call.verb;
  if (verb == RowsVerb::kPut || verb == RowsVerb::kClaim || verb == RowsVerb::kReserve) {
    request.call.call_id = EntropySeed() | 1;
  }
  std::shared_ptr<PendingCall> call =
      StartCall(Method::kRows, EncodeRowsRequest(request),
                [this, done = std::move(done), self = shared_from_this()](const Status& status,
                                                                          ByteSlices reply, bool was_sent) {
                  done(status.ok() ? DecodeRowsReply(reply, limits()) : Result<RowsReply>(status), was_sent);
                });
  if (call == nullptr) return nullptr;
  return std::make_shared<RowsCancellation>(shared_from_this(), std::move(request.call.table),
                                            request.call.call_id, std::move(call));
}

Status WireConnection::CallForNothing(Method method, WireMessage request, const WaitOptions& wait) {
  return Call(method, std::move(request), wait,
              [this](ByteSlices reply) { return DecodeEmpty(reply, limits()); });
}

}  // namespace reverb::internal
