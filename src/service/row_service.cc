#include "service/row_service.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "transport/wire.h"

namespace reverb::internal {
namespace {

// Bounds one reply to kList; the cursor continues after it.
constexpr int64_t kMaxListedRows = 10'000;

class PendingRows final : public PendingCall {
 public:
  PendingRows(std::shared_ptr<ConcurrentRows> table, std::shared_ptr<RowOperation> operation)
      : table_(std::move(table)), operation_(std::move(operation)) {}
  void Cancel() override { table_->Cancel(operation_); }

 private:
  const std::shared_ptr<ConcurrentRows> table_;
  const std::shared_ptr<RowOperation> operation_;
};

std::string TableText(std::string_view name) {
  return "row table \"" + std::string(name.substr(0, 200)) + "\"";
}

}  // namespace

Status RowService::Create(const RowTableOptions& options, bool exist_ok) {
  REVERB_ASSIGN_OR_RETURN(
      const std::shared_ptr<ConcurrentRows> table,
      ConcurrentRows::Create(options,
                             {.store = options_.store, .clock = options_.clock, .created_by_client = true}));
  const Status added = Add(table);
  if (added.ok()) {
    Status status = options_.check_info();
    if (!status.ok()) {
      MutexLock lock(&mu_);
      tables_.erase(options.name);
    }
    return status;
  }
  MutexLock lock(&mu_);
  const auto found = tables_.find(options.name);
  if (found == tables_.end()) return added;
  const bool is_same = found->second->options() == options;
  if (exist_ok && is_same) return Status::Ok();
  return Status::AlreadyExists(TableText(options.name) + " exists already, with " +
                               (is_same ? "the same settings; pass exist_ok to use it"
                                        : "other settings; remove it, or use another name"));
}

Status RowService::Add(const std::shared_ptr<ConcurrentRows>& table) {
  if (options_.is_taken(table->name())) {
    return Status::AlreadyExists("there is a table of items named \"" + table->name() +
                                 "\"; use another name");
  }
  MutexLock lock(&mu_);
  if (tables_.emplace(table->name(), table).second) return Status::Ok();
  return Status::AlreadyExists(TableText(table->name()) + " exists already");
}

bool RowService::Has(std::string_view name) const {
  MutexLock lock(&mu_);
  return tables_.contains(name);
}

Result<std::shared_ptr<ConcurrentRows>> RowService::Find(std::string_view name) const {
  MutexLock lock(&mu_);
  const auto found = tables_.find(name);
  if (found != tables_.end()) return found->second;
  constexpr size_t kMaxNamed = 20;
  std::string known;
  size_t named = 0;
  for (const auto& [each, table] : tables_) {
    if (named++ == kMaxNamed) break;
    known += (known.empty() ? "\"" : ", \"") + each + "\"";
  }
  if (tables_.size() > kMaxNamed) known += ", …";
  return Status::NotFound("there is no " + TableText(name) + " on this server; its row tables are " +
                          (known.empty() ? "none" : known));
}

std::vector<std::shared_ptr<ConcurrentRows>> RowService::tables() const {
  std::vector<std::shared_ptr<ConcurrentRows>> tables;
  MutexLock lock(&mu_);
  for (const auto& [name, table] : tables_) tables.push_back(table);
  return tables;
}

void RowService::Close() {
  for (const std::shared_ptr<ConcurrentRows>& table : tables()) table->Close();
}

void RowService::BoundData(RowsReply* reply) const {
  uint64_t bytes = 0;
  uint64_t decoded_bytes = 0;
  size_t next = 0;
  for (; next < reply->rows.size(); ++next) {
    for (const RowSegment& segment : reply->rows[next].segments) {
      bytes += segment.stored_bytes();
      decoded_bytes += segment.decoded_bytes();
    }
    if (next > 0 && (bytes > options_.max_reply_bytes || decoded_bytes > kDecodedBytesPerReply)) break;
  }
  reply->rows_with_data = next;
  for (; next < reply->rows.size(); ++next) reply->rows[next].segments.clear();
}

std::shared_ptr<PendingCall> RowService::Start(RowsRequest request, const RequestHandler::RowsDone& done) {
  const RowsVerb verb = request.call.verb;
  if (verb != RowsVerb::kPut && verb != RowsVerb::kClaim && verb != RowsVerb::kReserve) {
    (void)done(Execute(request.call));
    return nullptr;
  }
  Result<std::shared_ptr<ConcurrentRows>> table = Find(request.call.table);
  if (!table.ok()) {
    (void)done(table.status());
    return nullptr;
  }
  return StartWaiting(*table, std::move(request), done);
}

std::shared_ptr<PendingCall> RowService::StartWaiting(const std::shared_ptr<ConcurrentRows>& table,
                                                      RowsRequest request,
                                                      const RequestHandler::RowsDone& done) {
  RowsCall& call = request.call;
  const RowOperation::Kind kind = call.verb == RowsVerb::kPut     ? RowOperation::Kind::kWrite
                                  : call.verb == RowsVerb::kClaim ? RowOperation::Kind::kClaim
                                                                  : RowOperation::Kind::kReserve;
  auto operation = std::make_shared<RowOperation>(kind);
  operation->timeout = call.timeout;
  operation->mode = std::move(call.write);
  operation->rows = std::move(request.rows);
  operation->claim = std::move(call.claim);
  operation->count = call.count;
  operation->version = call.version;
  operation->lease = call.extension;
  // The table keeps the operation, not the other way round: this holds the table weakly.
  operation->on_done = [this, done, weak = std::weak_ptr(table),
                        call_id = call.call_id](RowOperation& finished) {
    if (call_id != 0) {
      MutexLock lock(&calls_mu_);
      calls_.erase(call_id);
    }
    if (!finished.status.ok()) {
      (void)done(finished.status);
      return;
    }
    RowsReply reply;
    reply.result.version = finished.table_version;
    reply.result.count = finished.stored;
    reply.result.refused = std::move(finished.refused);
    reply.result.columns = std::move(finished.claimed.columns);
    reply.result.lease_id = finished.claimed.lease;
    reply.result.step = finished.claimed.step;
    reply.result.reservation = finished.reservation;
    reply.rows = std::move(finished.claimed.rows);
    BoundData(&reply);
    if (done(std::move(reply))) return;
    // Nobody has got it.
    const std::shared_ptr<ConcurrentRows> rows = weak.lock();
    if (rows == nullptr) return;
    if (finished.claimed.lease != 0) rows->Settle(finished.claimed.lease, {}, RowSettlement::kReturn, {});
    if (finished.reservation != 0) rows->CancelReservation(finished.reservation);
  };
  auto pending = std::make_shared<PendingRows>(table, operation);
  bool is_cancelled = false;
  if (call.call_id != 0) {
    MutexLock lock(&calls_mu_);
    is_cancelled = std::ranges::find(cancelled_early_, call.call_id) != cancelled_early_.end();
    if (!is_cancelled) calls_[call.call_id] = pending;
  }
  if (is_cancelled) {
    (void)done(Status::Cancelled(TableText(call.table) + ": the call was cancelled by its caller"));
    return nullptr;
  }
  table->Start(operation);
  return pending;
}

bool RowService::CancelCall(uint64_t call_id) {
  // Calls may overtake each other on the way: what is cancelled may still come.
  constexpr size_t kMaxEarly = 1024;
  std::shared_ptr<PendingCall> pending;
  {
    MutexLock lock(&calls_mu_);
    const auto found = calls_.find(call_id);
    if (found != calls_.end()) {
      pending = found->second.lock();
    } else {
      cancelled_early_.push_back(call_id);
      if (cancelled_early_.size() > kMaxEarly) cancelled_early_.pop_front();
    }
  }
  if (pending != nullptr) pending->Cancel();
  return pending != nullptr;
}

Result<RowsReply> RowService::Execute(const RowsCall& call) {
  RowsReply reply;
  switch (call.verb) {
    case RowsVerb::kCancel:
      reply.result.was_known = CancelCall(call.call_id);
      return reply;
    case RowsVerb::kCreateTable:
      if (!call.create) return Status::InvalidArgument("the request to create a row table has no settings");
      REVERB_RETURN_IF_ERROR(Create(*call.create, call.exist_ok));
      Log(LogLevel::kInfo, TableText(call.create->name) + " was created by a client",
          {{"event", kEventTable}, {"table", call.create->name}});
      return reply;
    case RowsVerb::kRemoveTable: {
      REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentRows> table, Find(call.table));
      {
        MutexLock lock(&mu_);
        tables_.erase(call.table);
      }
      table->Remove();
      Log(LogLevel::kInfo, TableText(call.table) + " was removed by a client",
          {{"event", kEventTable}, {"table", call.table}});
      return reply;
    }
    case RowsVerb::kInfo:
      if (call.table.empty()) {
        for (const std::shared_ptr<ConcurrentRows>& table : tables())
          reply.result.tables.push_back(table->Info());
        return reply;
      }
      break;
    default:
      break;
  }
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentRows> table, Find(call.table));
  return ExecuteOn(*table, call);
}

Result<RowsReply> RowService::ExecuteOn(ConcurrentRows& table, const RowsCall& call) {
  RowsReply reply;
  switch (call.verb) {
    case RowsVerb::kSettle:
      if (call.settlement == RowSettlement::kExtend && call.extension <= Duration(0)) {
        return Status::InvalidArgument(TableText(call.table) + ": a lease is extended by " +
                                       std::to_string(call.extension.count()) +
                                       " ns; give a positive time, or release it");
      }
      if (call.state && call.settlement != RowSettlement::kAcknowledge) {
        return Status::InvalidArgument(TableText(call.table) +
                                       ": a state is set with an acknowledgement only");
      }
      reply.result.outcome =
          table.Settle(call.lease_id, call.keys, call.settlement, call.extension, call.state);
      break;
    case RowsVerb::kGet:
      reply.rows = table.Get(call.keys, call.claim.select);
      reply.result.columns = call.claim.select;
      break;
    case RowsVerb::kList: {
      uint64_t cursor = call.cursor;
      REVERB_ASSIGN_OR_RETURN(
          reply.rows,
          table.List(call.claim.where, std::clamp<int64_t>(call.count, 1, kMaxListedRows), &cursor));
      reply.result.cursor = cursor;
      break;
    }
    case RowsVerb::kDelete: {
      if (call.claim.where.empty()) {
        REVERB_ASSIGN_OR_RETURN(reply.result.count, table.Delete(call.keys));
      } else {
        REVERB_ASSIGN_OR_RETURN(reply.result.count, table.DeleteWhere(call.claim.where));
      }
      break;
    }
    case RowsVerb::kEnd: {
      REVERB_ASSIGN_OR_RETURN(reply.result.refused, table.End(call.keys, call.ending));
      break;
    }
    case RowsVerb::kSetVersion:
      if (!call.version)
        return Status::InvalidArgument(TableText(call.table) + ": the request has no version");
      REVERB_RETURN_IF_ERROR(table.SetVersion(*call.version, call.state));
      break;
    case RowsVerb::kSetState:
      table.SetState(call.state.value_or(""));
      break;
    case RowsVerb::kGetState:
      reply.result.state = table.State();
      break;
    case RowsVerb::kCancelReservation:
      reply.result.was_known = table.CancelReservation(call.reservation);
      break;
    case RowsVerb::kInfo:
      reply.result.tables.push_back(table.Info());
      break;
    default:
      return Status::Unimplemented(TableText(call.table) + ": this server does not know the operation " +
                                   std::to_string(static_cast<int>(call.verb)));
  }
  reply.result.version = table.version();
  BoundData(&reply);
  return reply;
}

}  // namespace reverb::internal
