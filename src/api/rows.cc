// The handles of include/reverb/rows.h.
#include "reverb/rows.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "api/client_rep.h"
#include "api/row_batch_factory.h"
#include "api/rows_rep.h"
#include "base/duration_text.h"
#include "base/log.h"
#include "tensor/row.h"
#include "transport/messages.h"

namespace reverb {

using internal::Duration;
using internal::RowRecord;
using internal::RowsCall;
using internal::RowSegment;
using internal::RowsReply;
using internal::RowsRequest;
using internal::RowsVerb;

namespace {

// Bounds the data of one request. A write of more rows is divided.
constexpr int64_t kMaxPutBytes = int64_t{32} << 20;

// Reads the data of rows that did not fit into the reply.
Status ReadRest(const Rows::Rep& rep, RowsReply* reply, const WaitOptions& wait) {
  while (Rows::Rep::HasRest(*reply)) {
    REVERB_ASSIGN_OR_RETURN(RowsReply more, rep.Send(rep.RestOf(*reply), wait));
    REVERB_RETURN_IF_ERROR(rep.AddRest(std::move(more), reply));
  }
  return Status::Ok();
}

int64_t BytesOf(const NewRow& row) {
  int64_t bytes = 0;
  for (const TensorView& value : row.values) bytes += static_cast<int64_t>(value.num_bytes());
  return bytes;
}

// Returns the rows from `*next` on that one request may have, and advances `*next`.
Result<std::span<const NewRow>> RowsOfNextPut(const RowWriteMode& mode, std::span<const NewRow> rows,
                                              size_t* next) {
  const size_t first = *next;
  int64_t bytes = 0;
  for (; *next < rows.size(); ++*next) {
    const NewRow& row = rows[*next];
    if (row.values.size() != mode.columns.size()) {
      return Status::InvalidArgument("row \"" + row.key + "\" has " + std::to_string(row.values.size()) +
                                     " values for the " + std::to_string(mode.columns.size()) +
                                     " columns of the write");
    }
    bytes += BytesOf(row);
    if (*next > first && bytes > kMaxPutBytes) break;
  }
  return rows.subspan(first, *next - first);
}

Result<std::vector<internal::RowWrite>> EncodeRows(std::span<const NewRow> rows,
                                                   internal::PayloadSource* source) {
  std::vector<internal::RowWrite> writes;
  writes.reserve(rows.size());
  for (const NewRow& row : rows) {
    internal::RowWrite& write = writes.emplace_back();
    write.key = row.key;
    write.group = row.group;
    write.tags = row.tags;
    if (row.values.empty()) continue;
    Result<internal::ChunkRef> chunk = internal::EncodeRow(row.values, source);
    if (!chunk.ok()) return chunk.status().Prefixed("row \"" + row.key + "\"");
    write.chunk = *std::move(chunk);
  }
  return writes;
}

// Rows in shared memory, which the server copies while the next ones are encoded.
class SharedRowParts final : public internal::RowParts {
 public:
  SharedRowParts(std::span<const NewRow> rows, internal::PayloadSource* source)
      : rows_(rows), source_(source) {}

  Result<std::vector<internal::RowWrite>> Encode(size_t* next) const override {
    // The first part is small, so that the server starts early; few large ones are cheaper than many.
    const int64_t most = *next == 0 ? kFirstPartBytes : kPartBytes;
    const size_t first = *next;
    int64_t bytes = 0;
    while (*next < rows_.size() && (*next == first || bytes < most)) bytes += BytesOf(rows_[(*next)++]);
    return EncodeRows(rows_.subspan(first, *next - first), source_);
  }
  size_t size() const override { return rows_.size(); }

 private:
  static constexpr int64_t kFirstPartBytes = int64_t{64} << 10;
  static constexpr int64_t kPartBytes = int64_t{512} << 10;

  const std::span<const NewRow> rows_;
  internal::PayloadSource* const source_;
};

// The segments of one column, by row.
std::vector<std::span<const RowSegment>> SegmentsOf(const std::vector<RowRecord>& records, size_t column) {
  std::vector<std::span<const RowSegment>> all;
  all.reserve(records.size());
  for (const RowRecord& record : records) {
    size_t first = 0;
    for (size_t i = 0; i < column; ++i) first += record.num_segments[i];
    all.push_back(std::span(record.segments).subspan(first, record.num_segments[column]));
  }
  return all;
}

}  // namespace

// --- Requests and replies -------------------------------------------------------------------------

Result<RowsReply> Rows::Rep::SendWaiting(RowsRequest request, const WaitOptions& wait) const {
  request.call.timeout = wait.timeout;
  const auto start = std::chrono::steady_clock::now();
  bool was_logged = false;
  const auto on_wait = [&, verb = request.call.verb] {
    const Duration waited = std::chrono::steady_clock::now() - start;
    if (!was_logged && waited > internal::WaitLogAfter()) {
      was_logged = true;
      LogWait(verb, waited);
    }
    return wait.on_wait ? wait.on_wait() : Status::Ok();
  };
  return call(request, {.timeout = Longer(wait.timeout), .on_wait = on_wait});
}

void Rows::Rep::LogWait(RowsVerb verb, Duration waited) const {
  constexpr Duration kExplainTimeout = std::chrono::seconds(1);
  const char* const what = verb == RowsVerb::kPut ? "put" : verb == RowsVerb::kClaim ? "claim" : "reserve";
  std::string text =
      "table \"" + table + "\": " + what + "() is still waiting after " + internal::DurationText(waited);
  const Result<RowsReply> reply = Send(NewCall(RowsVerb::kInfo), {.timeout = kExplainTimeout});
  if (reply.ok() && !reply->result.tables.empty()) {
    const RowTableInfo& info = reply->result.tables.front();
    const std::string& reason = verb == RowsVerb::kPut     ? info.write_reason
                                : verb == RowsVerb::kClaim ? info.claim_reason
                                                           : info.reservation_reason;
    if (!reason.empty()) text += ": " + reason;
  }
  internal::LogWait(std::string("rows ") + what + " " + table, std::move(text));
}

Status Rows::Rep::AddState(std::optional<std::string> state, RowsCall* call) const {
  if (state && state->size() > RowTableOptions::kMaxStateBytes) {
    return Status::InvalidArgument("table \"" + table + "\": the state has " + std::to_string(state->size()) +
                                   " bytes, more than " + std::to_string(RowTableOptions::kMaxStateBytes) +
                                   "; keep large data as columns of rows, or in a file");
  }
  call->state = std::move(state);
  return Status::Ok();
}

Result<RowsRequest> Rows::Rep::NextPut(const RowWriteMode& mode, std::span<const NewRow> rows,
                                       size_t* next) const {
  REVERB_ASSIGN_OR_RETURN(const std::span<const NewRow> some, RowsOfNextPut(mode, rows, next));
  RowsRequest request{.call = NewCall(RowsVerb::kPut)};
  request.call.write = mode;
  REVERB_ASSIGN_OR_RETURN(request.rows, EncodeRows(some, /*source=*/nullptr));
  return request;
}

void Rows::Rep::AddPut(RowsReply reply, PutOutcome* outcome) {
  outcome->stored += reply.result.count;
  outcome->version = reply.result.version;
  std::ranges::move(reply.result.refused, std::back_inserter(outcome->aborted));
}

void Rows::Rep::GiveBack(uint64_t lease, uint64_t reservation) const {
  constexpr std::chrono::seconds kGiveBackTimeout{30};
  const auto ignore = [](const Result<RowsReply>&) {};
  if (lease != 0) {
    RowsCall to = NewCall(RowsVerb::kSettle);
    to.lease_id = lease;
    to.settlement = RowSettlement::kReturn;
    (void)start({.call = std::move(to)}, kGiveBackTimeout, ignore);
  }
  if (reservation != 0) {
    RowsCall to = NewCall(RowsVerb::kCancelReservation);
    to.reservation = reservation;
    (void)start({.call = std::move(to)}, kGiveBackTimeout, ignore);
  }
}

RowsRequest Rows::Rep::ClaimRequest(const RowClaim& claim) const {
  RowsRequest request{.call = NewCall(RowsVerb::kClaim)};
  request.call.claim = claim;
  if (claim.holder.empty()) request.call.claim.holder = holder;
  return request;
}

RowsCall Rows::Rep::RestOf(const RowsReply& reply) const {
  RowsCall get = NewCall(RowsVerb::kGet);
  get.claim.select = reply.result.columns;
  for (size_t i = reply.rows_with_data; i < reply.rows.size(); ++i) get.keys.push_back(reply.rows[i].key);
  return get;
}

Status Rows::Rep::AddRest(RowsReply more, RowsReply* reply) const {
  if (more.rows_with_data == 0 || more.rows.front().key != reply->rows[reply->rows_with_data].key) {
    return Status::NotFound("table \"" + table + "\": row \"" + reply->rows[reply->rows_with_data].key +
                            "\" was deleted while the batch was read");
  }
  for (size_t i = 0; i < more.rows_with_data && reply->rows_with_data < reply->rows.size(); ++i) {
    RowRecord& row = reply->rows[reply->rows_with_data];
    if (more.rows[i].key != row.key) break;
    row.num_segments = std::move(more.rows[i].num_segments);
    row.segments = std::move(more.rows[i].segments);
    ++reply->rows_with_data;
  }
  return Status::Ok();
}

RowInfo Rows::Rep::InfoOf(RowRecord* record) {
  return {.key = record->key,
          .group = std::move(record->group),
          .version = record->version,
          .is_open = record->is_open,
          .tags = std::move(record->tags),
          .columns = std::move(record->columns),
          .is_requeued = record->is_requeued,
          .is_stale = record->is_stale,
          .leased_by = std::move(record->leased_by),
          .consumed_by = std::move(record->consumed_by)};
}

RowBatch Rows::Rep::BatchOf(const std::shared_ptr<const Rep>& rep, RowsReply reply) {
  RowBatch batch;
  batch.version_ = reply.result.version;
  batch.lease_id_ = reply.result.lease_id;
  batch.step_ = reply.result.step;
  batch.columns_ = std::move(reply.result.columns);
  for (RowRecord& record : reply.rows) batch.rows_.push_back(InfoOf(&record));
  batch.data_ = std::make_shared<const RowBatch::Data>(RowBatch::Data{rep, std::move(reply.rows)});
  return batch;
}

Result<RowTableInfo> Rows::Rep::TableInfoOf(RowsReply reply) {
  if (reply.result.tables.empty()) return Status::Internal("the server has sent no information");
  return std::move(reply.result.tables.front());
}

RowBatch internal::RowBatchFactory::Make(std::vector<std::string> columns, std::vector<RowRecord> records,
                                         int64_t version) {
  RowBatch batch;
  batch.version_ = version;
  batch.columns_ = std::move(columns);
  for (RowRecord& record : records) batch.rows_.push_back(Rows::Rep::InfoOf(&record));
  batch.data_ = std::make_shared<const RowBatch::Data>(RowBatch::Data{nullptr, std::move(records)});
  return batch;
}

// --- RowBatch -------------------------------------------------------------------------------------

Result<JaggedColumn> RowBatch::Column(std::string_view name) const {
  const auto found = std::ranges::find(columns_, name);
  if (found == columns_.end()) {
    return Status::NotFound("the batch has no column \"" + std::string(name) +
                            "\"; name it in needs or select when you claim or get rows");
  }
  JaggedColumn column;
  if (data_ == nullptr) return column;
  const auto all = SegmentsOf(data_->records, static_cast<size_t>(found - columns_.begin()));
  const RowSegment* first = nullptr;
  int64_t total = 0;
  for (size_t row = 0; row < all.size(); ++row) {
    for (const RowSegment& segment : all[row]) {
      const internal::ColumnView view = segment.column();
      if (first == nullptr) first = &segment;
      const internal::ColumnView want = first->column();
      const bool fits = view.dtype == want.dtype && view.row_shape.size() == want.row_shape.size() &&
                        (view.row_shape.empty() ||
                         std::ranges::equal(view.row_shape.subspan(1), want.row_shape.subspan(1)));
      if (!fits) {
        return Status::InvalidArgument(
            "column \"" + std::string(name) + "\": row \"" + rows_[row].key +
            "\" has another dtype, rank or later dimension than the first row, so that the "
            "values cannot be joined");
      }
      total += segment.length();
    }
    column.offsets.push_back(total);
  }
  if (first == nullptr) return column;
  const internal::ColumnView view = first->column();
  column.is_scalar = view.row_shape.empty();
  std::vector<int64_t> dims = {total};
  for (size_t i = 1; i < view.row_shape.size(); ++i) dims.push_back(view.row_shape[i]);
  REVERB_ASSIGN_OR_RETURN(column.values, Tensor::Allocate(view.dtype, std::move(dims)));
  if (view.dtype == DType::kString) {
    std::vector<std::string> strings;
    for (const auto& segments : all) {
      for (const RowSegment& segment : segments)
        REVERB_RETURN_IF_ERROR(ReadSegmentStrings(segment, &strings));
    }
    column.values.strings() = std::move(strings);
    return column;
  }
  std::span<uint8_t> rest = column.values.bytes();
  for (const auto& segments : all) {
    for (const RowSegment& segment : segments) {
      const size_t size = segment.column().row_bytes();
      if (size == 0) continue;
      REVERB_RETURN_IF_ERROR(ReadSegment(segment, rest.first(size)));
      rest = rest.subspan(size);
    }
  }
  return column;
}

Result<LeaseOutcome> RowBatch::Settle(RowSettlement settlement, std::span<const std::string> keys,
                                      std::chrono::nanoseconds extension, const WaitOptions& wait,
                                      std::optional<std::string> state) const {
  if (lease_id_ == 0) {
    if (step_ && rows_.empty()) return LeaseOutcome();  // the part of a rank without rows
    return Status::FailedPrecondition("these rows are not leased: only those of a claim are settled");
  }
  RowsCall call = data_->rows->NewCall(RowsVerb::kSettle);
  call.lease_id = lease_id_;
  call.settlement = settlement;
  call.keys.assign(keys.begin(), keys.end());
  call.extension = extension;
  REVERB_RETURN_IF_ERROR(data_->rows->AddState(std::move(state), &call));
  REVERB_ASSIGN_OR_RETURN(const RowsReply reply, data_->rows->Send(std::move(call), wait));
  return reply.result.outcome;
}

Result<LeaseOutcome> RowBatch::Acknowledge(std::span<const std::string> keys, const WaitOptions& wait,
                                           std::optional<std::string> state) const {
  return Settle(RowSettlement::kAcknowledge, keys, Duration(0), wait, std::move(state));
}
Result<LeaseOutcome> RowBatch::Release(std::span<const std::string> keys, const WaitOptions& wait) const {
  return Settle(RowSettlement::kRelease, keys, Duration(0), wait);
}
Result<LeaseOutcome> RowBatch::Extend(std::chrono::nanoseconds lease, const WaitOptions& wait) const {
  return Settle(RowSettlement::kExtend, {}, lease, wait);
}

// --- Rows -----------------------------------------------------------------------------------------

const std::string& Rows::table() const { return rep_->table; }

Result<PutOutcome> Rows::Put(const RowWriteMode& mode, std::span<const NewRow> rows,
                             const WaitOptions& wait) const {
  PutOutcome outcome;
  const auto start = std::chrono::steady_clock::now();
  internal::PayloadSource* const source = mode.columns.empty() ? nullptr : rep_->payload_source(wait);
  for (size_t next = 0; next < rows.size();) {
    REVERB_ASSIGN_OR_RETURN(const std::span<const NewRow> some, RowsOfNextPut(mode, rows, &next));
    const SharedRowParts parts(some, source);
    RowsRequest request{.call = rep_->NewCall(RowsVerb::kPut), .parts = &parts};
    request.call.write = mode;
    WaitOptions rest = wait;
    if (wait.timeout && *wait.timeout > Duration(0)) {
      rest.timeout =
          std::max<Duration>(*wait.timeout - (std::chrono::steady_clock::now() - start), Duration(0));
    }
    REVERB_ASSIGN_OR_RETURN(RowsReply reply, rep_->SendWaiting(std::move(request), rest));
    Rep::AddPut(std::move(reply), &outcome);
  }
  return outcome;
}

Result<RowBatch> Rows::Claim(const RowClaim& claim, const WaitOptions& wait) const {
  REVERB_ASSIGN_OR_RETURN(RowsReply reply, rep_->SendWaiting(rep_->ClaimRequest(claim), wait));
  if (Status status = ReadRest(*rep_, &reply, {.on_wait = wait.on_wait}); !status.ok()) {
    rep_->GiveBack(reply.result.lease_id, /*reservation=*/0);
    return status;
  }
  return Rep::BatchOf(rep_, std::move(reply));
}

Result<RowBatch> Rows::Get(std::span<const std::string> keys, std::span<const std::string> columns,
                           const WaitOptions& wait) const {
  RowsCall call = rep_->NewCall(RowsVerb::kGet);
  call.keys.assign(keys.begin(), keys.end());
  call.claim.select.assign(columns.begin(), columns.end());
  REVERB_ASSIGN_OR_RETURN(RowsReply reply, rep_->Send(std::move(call), wait));
  REVERB_RETURN_IF_ERROR(ReadRest(*rep_, &reply, wait));
  return Rep::BatchOf(rep_, std::move(reply));
}

Result<std::vector<RowInfo>> Rows::List(const std::string& where, int64_t limit,
                                        const WaitOptions& wait) const {
  std::vector<RowInfo> rows;
  uint64_t cursor = 0;
  do {
    RowsCall call = rep_->NewCall(RowsVerb::kList);
    call.claim.where = where;
    call.cursor = cursor;
    call.count = limit - std::ssize(rows);
    if (call.count < 1) break;
    REVERB_ASSIGN_OR_RETURN(RowsReply reply, rep_->Send(std::move(call), wait));
    for (RowRecord& record : reply.rows) rows.push_back(Rep::InfoOf(&record));
    cursor = reply.result.cursor;
  } while (cursor != 0);
  return rows;
}

Result<int64_t> Rows::Delete(std::span<const std::string> keys, const WaitOptions& wait) const {
  RowsCall call = rep_->NewCall(RowsVerb::kDelete);
  call.keys.assign(keys.begin(), keys.end());
  REVERB_ASSIGN_OR_RETURN(const RowsReply reply, rep_->Send(std::move(call), wait));
  return reply.result.count;
}

Result<int64_t> Rows::DeleteWhere(const std::string& where, const WaitOptions& wait) const {
  if (where.empty())
    return Status::InvalidArgument("the condition is empty; to delete all rows, use \"true\"");
  RowsCall call = rep_->NewCall(RowsVerb::kDelete);
  call.claim.where = where;
  REVERB_ASSIGN_OR_RETURN(const RowsReply reply, rep_->Send(std::move(call), wait));
  return reply.result.count;
}

Result<std::vector<std::string>> Rows::End(std::span<const std::string> keys, RowEnding ending,
                                           const WaitOptions& wait) const {
  RowsCall call = rep_->NewCall(RowsVerb::kEnd);
  call.keys.assign(keys.begin(), keys.end());
  call.ending = ending;
  REVERB_ASSIGN_OR_RETURN(RowsReply reply, rep_->Send(std::move(call), wait));
  return std::move(reply.result.refused);
}

Status Rows::SetVersion(int64_t version, const WaitOptions& wait, std::optional<std::string> state) const {
  RowsCall call = rep_->NewCall(RowsVerb::kSetVersion);
  call.version = version;
  REVERB_RETURN_IF_ERROR(rep_->AddState(std::move(state), &call));
  return rep_->Send(std::move(call), wait).status();
}

Status Rows::SetState(std::string state, const WaitOptions& wait) const {
  RowsCall call = rep_->NewCall(RowsVerb::kSetState);
  REVERB_RETURN_IF_ERROR(rep_->AddState(std::move(state), &call));
  return rep_->Send(std::move(call), wait).status();
}

Result<std::string> Rows::State(const WaitOptions& wait) const {
  REVERB_ASSIGN_OR_RETURN(RowsReply reply, rep_->Send(rep_->NewCall(RowsVerb::kGetState), wait));
  return std::move(reply.result.state).value_or("");
}

Result<Rows::Reservation> Rows::Reserve(int64_t n, std::optional<int64_t> version,
                                        std::chrono::nanoseconds lease, const WaitOptions& wait) const {
  RowsRequest request{.call = rep_->NewCall(RowsVerb::kReserve)};
  request.call.count = n;
  request.call.version = version;
  request.call.extension = lease;
  REVERB_ASSIGN_OR_RETURN(const RowsReply reply, rep_->SendWaiting(std::move(request), wait));
  return Reservation{.id = reply.result.reservation, .version = reply.result.version};
}

Result<bool> Rows::CancelReservation(uint64_t id, const WaitOptions& wait) const {
  RowsCall call = rep_->NewCall(RowsVerb::kCancelReservation);
  call.reservation = id;
  REVERB_ASSIGN_OR_RETURN(const RowsReply reply, rep_->Send(std::move(call), wait));
  return reply.result.was_known;
}

Result<RowTableInfo> Rows::Info(const WaitOptions& wait) const {
  REVERB_ASSIGN_OR_RETURN(RowsReply reply, rep_->Send(rep_->NewCall(RowsVerb::kInfo), wait));
  return Rep::TableInfoOf(std::move(reply));
}

// --- Client ---------------------------------------------------------------------------------------

namespace {

Result<std::shared_ptr<internal::ServerLink>> OnlyServer(const Client::Rep& rep) {
  if (rep.only) return rep.only;
  return Status::FailedPrecondition(
      "this client uses several servers, but a row table is on one; connect to the address of that server");
}

}  // namespace

Result<Rows> Client::RowTable(std::string name) const {
  REVERB_RETURN_IF_ERROR(OnlyServer(*rep()).status());
  auto rows = std::make_shared<Rows::Rep>();
  rows->table = std::move(name);
  rows->holder = rep()->options.name;
  // Through the client: in a child created by fork() it has another connection.
  rows->call = [client = *this](const RowsRequest& request, const WaitOptions& wait) {
    return client.rep()->only->Rows(request, wait);
  };
  rows->start = [client = *this](RowsRequest request, Timeout timeout,
                                 std::function<void(Result<RowsReply>)> done) {
    return internal::ServerLink::StartRows(client.rep()->only, std::move(request), timeout, std::move(done));
  };
  rows->payload_source = [client = *this](const WaitOptions& wait) {
    return client.rep()->only->payload_source(wait);
  };
  return Rows(std::move(rows));
}

Status Client::CreateRowTable(const RowTableOptions& options, bool exist_ok, const WaitOptions& wait) const {
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<internal::ServerLink> server, OnlyServer(*rep()));
  REVERB_RETURN_IF_ERROR(options.Validate());
  RowsRequest request;
  request.call.verb = RowsVerb::kCreateTable;
  request.call.create = options;
  request.call.exist_ok = exist_ok;
  return server->Rows(request, wait).status();
}

Status Client::RemoveRowTable(std::string_view name, const WaitOptions& wait) const {
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<internal::ServerLink> server, OnlyServer(*rep()));
  RowsRequest request;
  request.call.verb = RowsVerb::kRemoveTable;
  request.call.table = std::string(name);
  return server->Rows(request, wait).status();
}

Result<std::vector<RowTableInfo>> Client::InfoOfRowTables(const WaitOptions& wait) const {
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<internal::ServerLink> server, OnlyServer(*rep()));
  RowsRequest request;
  request.call.verb = RowsVerb::kInfo;
  REVERB_ASSIGN_OR_RETURN(RowsReply reply, server->Rows(request, wait));
  return std::move(reply.result.tables);
}

}  // namespace reverb
