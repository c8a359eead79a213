#include "service/row_service.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

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
      ConcurrentRows::Create(options, {.store = options_.store, .clock = options_.clock}));
  if (options_.is_taken(options.name)) {
    return Status::AlreadyExists("there is a table of items named \"" + options.name +
                                 "\"; use another name");
  }
  MutexLock lock(&mu_);
  const auto [found, is_new] = tables_.emplace(options.name, table);
  if (is_new) return Status::Ok();
  const bool is_same = found->second->options() == options;
  if (exist_ok && is_same) return Status::Ok();
  return Status::AlreadyExists(TableText(options.name) + " exists already, with " +
                               (is_same ? "the same settings; pass exist_ok to use it"
                                        : "other settings; remove it, or use another name"));
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
  size_t next = 0;
  for (; next < reply->rows.size(); ++next) {
    for (const RowSegment& segment : reply->rows[next].segments) {
      bytes += segment.chunk->header().column_payload_size(segment.chunk_column);
    }
    if (bytes > options_.max_reply_bytes && next > 0) break;
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
  operation->on_done = [this, done, weak = std::weak_ptr(table)](RowOperation& finished) {
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
    reply.result.reservation = finished.reservation;
    reply.rows = std::move(finished.claimed.rows);
    BoundData(&reply);
    if (done(std::move(reply))) return;
    // Nobody has got it.
    const std::shared_ptr<ConcurrentRows> rows = weak.lock();
    if (rows == nullptr) return;
    if (finished.claimed.lease != 0) rows->Settle(finished.claimed.lease, {}, RowSettlement::kRelease, {});
    if (finished.reservation != 0) rows->CancelReservation(finished.reservation);
  };
  table->Start(operation);
  return std::make_shared<PendingRows>(table, std::move(operation));
}

Result<RowsReply> RowService::Execute(const RowsCall& call) {
  RowsReply reply;
  switch (call.verb) {
    case RowsVerb::kCreateTable:
      if (!call.create) return Status::InvalidArgument("the request to create a row table has no settings");
      REVERB_RETURN_IF_ERROR(Create(call.create->ToOptions(), call.exist_ok));
      Log(LogLevel::kInfo, TableText(call.create->options.name) + " was created by a client");
      return reply;
    case RowsVerb::kRemoveTable: {
      REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentRows> table, Find(call.table));
      {
        MutexLock lock(&mu_);
        tables_.erase(call.table);
      }
      table->Remove();
      Log(LogLevel::kInfo, TableText(call.table) + " was removed by a client");
      return reply;
    }
    case RowsVerb::kInfo:
      if (call.table.empty()) {
        for (const std::shared_ptr<ConcurrentRows>& table : tables())
          reply.result.tables.push_back(InfoOf(*table));
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
      reply.result.outcome = table.Settle(call.lease_id, call.keys, call.settlement, call.extension);
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
      REVERB_RETURN_IF_ERROR(table.SetVersion(*call.version));
      break;
    case RowsVerb::kCancelReservation:
      reply.result.was_known = table.CancelReservation(call.reservation);
      break;
    case RowsVerb::kInfo:
      reply.result.tables.push_back(InfoOf(table));
      break;
    default:
      return Status::Unimplemented(TableText(call.table) + ": this server does not know the operation " +
                                   std::to_string(static_cast<int>(call.verb)));
  }
  reply.result.version = table.version();
  BoundData(&reply);
  return reply;
}

RowTableReport RowService::InfoOf(ConcurrentRows& table) {
  return {.settings = RowTableRecord::Of(table.options()), .info = table.Info()};
}

}  // namespace reverb::internal
