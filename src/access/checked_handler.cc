#include "access/checked_handler.h"

#include <vector>

#include "access/checked_rows.h"
#include "access/checked_streams.h"
#include "base/log.h"
#include "tensor/chunk_header.h"

namespace reverb::internal {
namespace {

Status StatusPart(const Status& status) { return status; }
template <typename T>
Status StatusPart(const Result<T>& result) {
  return result.status();
}

// Quotes a name that a client has chosen, so that it cannot forge a line of the log.
std::string QuotedName(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < ' ' || c == '"' || c == '\\' || byte == 0x7f) {
      constexpr char kDigits[] = "0123456789abcdef";
      quoted += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      quoted += c;
    }
  }
  return quoted + (text.size() > kMost ? "…\"" : "\"");
}

std::string_view VerbName(RowsVerb verb) {
  switch (verb) {
    case RowsVerb::kNone:
      break;
    case RowsVerb::kPut:
      return "Rows.Put";
    case RowsVerb::kClaim:
      return "Rows.Claim";
    case RowsVerb::kSettle:
      return "Rows.Settle";
    case RowsVerb::kGet:
      return "Rows.Get";
    case RowsVerb::kList:
      return "Rows.List";
    case RowsVerb::kDelete:
      return "Rows.Delete";
    case RowsVerb::kEnd:
      return "Rows.End";
    case RowsVerb::kSetVersion:
      return "Rows.SetVersion";
    case RowsVerb::kReserve:
      return "Rows.Reserve";
    case RowsVerb::kCancelReservation:
      return "Rows.CancelReservation";
    case RowsVerb::kInfo:
      return "Rows.Info";
    case RowsVerb::kCreateTable:
      return "Rows.CreateTable";
    case RowsVerb::kRemoveTable:
      return "Rows.RemoveTable";
    case RowsVerb::kSetState:
      return "Rows.SetState";
    case RowsVerb::kGetState:
      return "Rows.GetState";
    case RowsVerb::kCancel:
      return "Rows.Cancel";
  }
  return "Rows";
}

}  // namespace

Result<CheckedHandler::TokenPtr> CheckedHandler::Check(const Need& need, std::string_view action,
                                                       std::string_view table) const {
  if (!identity_) return TokenPtr();
  REVERB_ASSIGN_OR_RETURN(TokenPtr token, control_->Find(identity_->digest, identity_->name));
  REVERB_RETURN_IF_ERROR(token->Check(need, action, table));
  return token;
}

StreamClient CheckedHandler::ClientOf(TokenPtr token, const std::string& name) const {
  Usage usage = control_->UsageOf(token, name);
  return {.token = std::move(token), .usage = std::move(usage)};
}

Status CheckedHandler::CheckCall(Method method, std::string_view table) const {
  const std::optional<Need> need = NeedOf(method);
  if (!need) return Status::Internal("no right is known for this method");
  return Check(*need, MethodName(method), table).status();
}

void CheckedHandler::LogAction(std::string_view action, std::string_view table, const Status& outcome) const {
  if (!IsLogged()) return;
  std::string text = "audit: " + std::string(action);
  if (!table.empty()) text += " table=" + QuotedName(table);
  text += identity_ ? " token=" + QuotedName(identity_->name) : std::string(" token=none");
  const std::string result(StatusCodeName(outcome.code()));
  text += " client=" + QuotedName(address_) + " result=" + result;
  LogFields fields = {{"event", kEventAudit}, {"call", std::string(action)}};
  if (!table.empty()) fields.emplace_back("table", std::string(table));
  if (identity_) fields.emplace_back("token", identity_->name);
  fields.emplace_back("client", address_);
  fields.emplace_back("result", result);
  Log(outcome.ok() ? LogLevel::kInfo : LogLevel::kWarning, text, fields);
}

template <typename F>
auto CheckedHandler::Administer(const Need& need, std::string_view action, std::string_view table,
                                F&& execute) -> decltype(execute()) {
  if (const Result<TokenPtr> token = Check(need, action, table); !token.ok()) {
    LogAction(action, table, token.status());
    return token.status();
  }
  auto result = execute();
  LogAction(action, table, StatusPart(result));
  return result;
}

Result<ChunkRef> CheckedHandler::AllocateChunk(const ChunkHeader& header, uint8_t** payload) {
  received_bytes_->fetch_add(PayloadSize(header), std::memory_order_relaxed);
  return handler_->AllocateChunk(header, payload);
}

// --- Streams ---

Result<std::shared_ptr<InsertSession>> CheckedHandler::OpenInsert(const Hello& hello,
                                                                  std::shared_ptr<InsertPeer> peer) {
  REVERB_ASSIGN_OR_RETURN(TokenPtr token, Check(*NeedOf(Method::kInsert), MethodName(Method::kInsert), ""));
  StreamClient client = ClientOf(std::move(token), hello.client_name);
  if (client.is_unrestricted()) return handler_->OpenInsert(hello, std::move(peer));
  return OpenCheckedInsert(control_, handler_.get(), std::move(client), hello, std::move(peer),
                           received_bytes_);
}

Result<std::shared_ptr<SampleSession>> CheckedHandler::OpenSample(const Hello& hello,
                                                                  std::shared_ptr<SamplePeer> peer) {
  REVERB_ASSIGN_OR_RETURN(TokenPtr token, Check(*NeedOf(Method::kSample), MethodName(Method::kSample), ""));
  StreamClient client = ClientOf(std::move(token), hello.client_name);
  if (client.is_unrestricted()) return handler_->OpenSample(hello, std::move(peer));
  return OpenCheckedSample(control_, handler_.get(), std::move(client), hello, std::move(peer));
}

// --- Single calls ---

Result<ServerInfo> CheckedHandler::Info() {
  REVERB_ASSIGN_OR_RETURN(const TokenPtr token, Check(*NeedOf(Method::kInfo), MethodName(Method::kInfo), ""));
  Result<ServerInfo> info = handler_->Info();
  if (token != nullptr && info.ok()) token->HideOtherTables(&*info);
  return info;
}

Status CheckedHandler::Mutate(const MutateRequest& request) {
  if (!request.deletes.empty()) {
    if (!request.updates.empty()) REVERB_RETURN_IF_ERROR(CheckCall(Method::kMutate, request.table));
    return Administer(Need::Of(Right::kAdmin), "Delete", request.table,
                      [&] { return handler_->Mutate(request); });
  }
  REVERB_RETURN_IF_ERROR(CheckCall(Method::kMutate, request.table));
  return handler_->Mutate(request);
}

Status CheckedHandler::Reset(std::string_view table) {
  return Administer(*NeedOf(Method::kReset), MethodName(Method::kReset), table,
                    [&] { return handler_->Reset(table); });
}

Status CheckedHandler::SetRateLimiter(const SetRateLimiterRequest& request) {
  return Administer(*NeedOf(Method::kSetRateLimiter), MethodName(Method::kSetRateLimiter), request.table,
                    [&] { return handler_->SetRateLimiter(request); });
}

Status CheckedHandler::CreateTable(const CreateTableRequest& request) {
  return Administer(*NeedOf(Method::kCreateTable), MethodName(Method::kCreateTable), request.table.name,
                    [&] { return handler_->CreateTable(request); });
}

Status CheckedHandler::RemoveTable(std::string_view table) {
  return Administer(*NeedOf(Method::kRemoveTable), MethodName(Method::kRemoveTable), table,
                    [&] { return handler_->RemoveTable(table); });
}

Status CheckedHandler::ChangeTable(const ChangeTableRequest& request) {
  return Administer(*NeedOf(Method::kChangeTable), MethodName(Method::kChangeTable), request.table,
                    [&] { return handler_->ChangeTable(request); });
}

Result<InspectReply> CheckedHandler::Inspect(const InspectRequest& request) {
  REVERB_RETURN_IF_ERROR(CheckCall(Method::kInspect, request.table));
  return handler_->Inspect(request);
}

Result<std::string> CheckedHandler::Checkpoint() {
  return Administer(*NeedOf(Method::kCheckpoint), MethodName(Method::kCheckpoint), "",
                    [&] { return handler_->Checkpoint(); });
}

Result<LeaseOutcome> CheckedHandler::SettleLeases(const SettleLeasesRequest& request) {
  REVERB_RETURN_IF_ERROR(CheckCall(Method::kSettleLeases, request.table));
  return handler_->SettleLeases(request);
}

std::shared_ptr<PendingCall> CheckedHandler::StartRows(RowsRequest request, const RowsDone& done) {
  const RowsVerb verb = request.call.verb;
  const std::optional<Need> need = NeedOf(verb);
  // The service explains what it does not know.
  if (!need) return handler_->StartRows(std::move(request), done);
  const std::string table =
      verb == RowsVerb::kCreateTable && request.call.create ? request.call.create->name : request.call.table;
  // Only kInfo may concern all tables.
  const Result<TokenPtr> token = table.empty() && verb != RowsVerb::kInfo && identity_
                                     ? Result<TokenPtr>(Status::InvalidArgument(
                                           std::string(VerbName(verb)) + ": the request names no table"))
                                     : Check(*need, VerbName(verb), table);
  const bool is_audited = need->needs(Right::kAdmin);
  if (!token.ok()) {
    if (is_audited) LogAction(VerbName(verb), table, token.status());
    (void)done(token.status());
    return nullptr;
  }
  if (is_audited) {
    // Such operations do not wait: they are done when this returns.
    return handler_->StartRows(std::move(request), [this, &table, verb, &done](Result<RowsReply> reply) {
      LogAction(VerbName(verb), table, reply.status());
      return done(std::move(reply));
    });
  }
  StreamClient client = ClientOf(*token, request.call.claim.holder);
  if (client.is_unrestricted()) return handler_->StartRows(std::move(request), done);
  if (verb == RowsVerb::kInfo && *token != nullptr) {
    return handler_->StartRows(std::move(request), [&done, token = *token](Result<RowsReply> reply) {
      if (reply.ok()) {
        std::erase_if(reply->result.tables,
                      [&token](const RowTableInfo& info) { return !token->MayUse(info.settings.name); });
      }
      return done(std::move(reply));
    });
  }
  const auto rows = std::make_shared<CheckedRows>(control_, handler_, std::move(client), done);
  rows->Start(std::move(request));
  return rows;
}

}  // namespace reverb::internal
