// The handles of include/reverb/async_rows.h.
#include "reverb/async_rows.h"

#include <algorithm>
#include <utility>

#include "api/rows_rep.h"
#include "base/mutex.h"
#include "transport/messages.h"

namespace reverb {

using internal::Mutex;
using internal::MutexLock;
using internal::PendingCall;
using internal::RowRecord;
using internal::RowsCall;
using internal::RowsReply;
using internal::RowsRequest;
using internal::RowsVerb;

// An operation: one request after the other.
struct AsyncCall::Rep : public std::enable_shared_from_this<AsyncCall::Rep> {
 public:
  // `fail` reports an error to the caller.
  Rep(std::shared_ptr<const Rows::Rep> rows_in, std::function<void(Status)> fail)
      : rows(std::move(rows_in)), fail_(std::move(fail)) {}

  // Sends a request. `next` gets the reply, unless the operation is over by then.
  void Send(RowsRequest request, Timeout timeout, std::function<void(RowsReply)> next) EXCLUDES(mu_) {
    uint64_t number = 0;
    {
      MutexLock lock(&mu_);
      if (is_over_) return;
      number = ++num_sent_;
    }
    std::shared_ptr<PendingCall> pending =
        rows->start(std::move(request), timeout,
                    [self = shared_from_this(), next = std::move(next)](Result<RowsReply> reply) {
                      if (!reply.ok()) return self->Fail(reply.status());
                      if (self->IsOver()) return self->GiveBack(reply->result);
                      next(*std::move(reply));
                    });
    {
      MutexLock lock(&mu_);
      if (number != num_sent_) return;  // has been answered
      if (!is_over_) {
        pending_ = std::move(pending);
        return;
      }
    }
    if (pending != nullptr) pending->Cancel();
  }
  void Send(RowsCall call, Timeout timeout, std::function<void(RowsReply)> next) {
    Send(RowsRequest{.call = std::move(call)}, timeout, std::move(next));
  }

  // Returns true once: the caller then reports the result.
  bool Finish() EXCLUDES(mu_) {
    std::shared_ptr<PendingCall> finished;  // freed without the lock
    MutexLock lock(&mu_);
    finished.swap(pending_);
    return !std::exchange(is_over_, true);
  }
  void Fail(Status status) {
    if (Finish()) fail_(std::move(status));
  }
  void Cancel() EXCLUDES(mu_) {
    std::shared_ptr<PendingCall> pending;
    {
      MutexLock lock(&mu_);
      if (std::exchange(is_over_, true)) return;
      pending.swap(pending_);
    }
    if (pending != nullptr) pending->Cancel();
    fail_(Status::Cancelled("the operation was cancelled by its caller"));
  }
  // Gives back what an operation has got that is over.
  void GiveBack(const internal::RowsResult& result) const {
    rows->GiveBack(result.lease_id, result.reservation);
  }

  const std::shared_ptr<const Rows::Rep> rows;

 private:
  bool IsOver() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return is_over_;
  }

  const std::function<void(Status)> fail_;

  mutable Mutex mu_;
  bool is_over_ GUARDED_BY(mu_) = false;
  uint64_t num_sent_ GUARDED_BY(mu_) = 0;
  std::shared_ptr<PendingCall> pending_ GUARDED_BY(mu_);
};

void AsyncCall::Cancel() const {
  if (rep_ != nullptr) rep_->Cancel();
}

namespace {

using Operation = std::shared_ptr<AsyncCall::Rep>;

template <typename Result>
Operation NewOperation(const std::shared_ptr<const Rows::Rep>& rows,
                       const std::function<bool(Result)>& done) {
  return std::make_shared<AsyncCall::Rep>(rows, [done](Status status) { (void)done(std::move(status)); });
}

// Returns an operation that has failed.
template <typename Result>
AsyncCall Failed(const std::shared_ptr<const Rows::Rep>& rows, const std::function<bool(Result)>& done,
                 Status status) {
  const Operation operation = NewOperation(rows, done);
  operation->Fail(std::move(status));
  return AsyncCall(operation);
}

// Sends one request and passes read(reply).
template <typename T, typename F>
AsyncCall SendOne(const std::shared_ptr<const Rows::Rep>& rows, RowsCall call, Timeout timeout,
                  const std::function<bool(T)>& done, F read) {
  const Operation operation = NewOperation(rows, done);
  operation->Send(std::move(call), timeout, [operation, done, read](RowsReply reply) {
    if (operation->Finish()) (void)done(read(std::move(reply)));
  });
  return AsyncCall(operation);
}

// A reply whose lease is given back unless a batch was made of it: if reading the rest fails or is cancelled.
struct UnfinishedBatch {
  UnfinishedBatch(std::shared_ptr<const Rows::Rep> rows_in, RowsReply reply_in)
      : rows(std::move(rows_in)), reply(std::move(reply_in)), lease(reply.result.lease_id) {}
  ~UnfinishedBatch() { rows->GiveBack(lease, /*reservation=*/0); }
  UnfinishedBatch(const UnfinishedBatch&) = delete;
  UnfinishedBatch& operator=(const UnfinishedBatch&) = delete;

  const std::shared_ptr<const Rows::Rep> rows;
  RowsReply reply;
  uint64_t lease;  // 0: none, or passed on
};

// Reads what has no data yet, then passes the batch.
void FinishBatch(const Operation& operation, const std::shared_ptr<UnfinishedBatch>& unfinished,
                 const AsyncRows::Done<RowBatch>& done) {
  if (!Rows::Rep::HasRest(unfinished->reply)) {
    RowBatch batch = Rows::Rep::BatchOf(operation->rows, std::move(unfinished->reply));
    if (operation->Finish() && done(std::move(batch))) unfinished->lease = 0;
    return;
  }
  operation->Send(operation->rows->RestOf(unfinished->reply), {},
                  [operation, unfinished, done](RowsReply more) {
                    const Status status = operation->rows->AddRest(std::move(more), &unfinished->reply);
                    if (!status.ok()) return operation->Fail(status);
                    FinishBatch(operation, unfinished, done);
                  });
}
void FinishBatch(const Operation& operation, RowsReply reply, const AsyncRows::Done<RowBatch>& done) {
  FinishBatch(operation, std::make_shared<UnfinishedBatch>(operation->rows, std::move(reply)), done);
}

// A write in several requests.
struct PutInParts {
  Operation operation;
  std::vector<RowsRequest> requests;
  size_t next = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  Timeout timeout;
  PutOutcome outcome = {};
  AsyncRows::Done<PutOutcome> done;

  static void Continue(const std::shared_ptr<PutInParts>& put) {
    if (put->next == put->requests.size()) {
      if (put->operation->Finish()) (void)put->done(std::move(put->outcome));
      return;
    }
    RowsRequest request = std::move(put->requests[put->next++]);
    Timeout left = put->timeout;
    if (left && *left > left->zero()) {
      left = std::max<std::chrono::nanoseconds>(*left - (std::chrono::steady_clock::now() - put->start),
                                                std::chrono::nanoseconds(0));
    }
    request.call.timeout = left;
    put->operation->Send(std::move(request), Rows::Rep::Longer(left), [put](RowsReply reply) {
      Rows::Rep::AddPut(std::move(reply), &put->outcome);
      Continue(put);
    });
  }
};

// A list in several pages.
struct ListInPages {
  Operation operation;
  std::string where;
  int64_t limit = 0;
  Timeout timeout;
  std::vector<RowInfo> rows = {};
  AsyncRows::Done<std::vector<RowInfo>> done;

  static void Continue(const std::shared_ptr<ListInPages>& list, uint64_t cursor) {
    RowsCall call = list->operation->rows->NewCall(RowsVerb::kList);
    call.claim.where = list->where;
    call.cursor = cursor;
    call.count = list->limit - std::ssize(list->rows);
    list->operation->Send(std::move(call), list->timeout, [list](RowsReply reply) {
      for (RowRecord& record : reply.rows) list->rows.push_back(Rows::Rep::InfoOf(&record));
      if (reply.result.cursor != 0 && std::ssize(list->rows) < list->limit) {
        return Continue(list, reply.result.cursor);
      }
      if (list->operation->Finish()) (void)list->done(std::move(list->rows));
    });
  }
};

}  // namespace

AsyncCall AsyncRows::Put(const RowWriteMode& mode, std::span<const NewRow> rows, Timeout timeout,
                         Done<PutOutcome> done) const {
  auto put = std::make_shared<PutInParts>();
  put->operation = NewOperation(rep_, done);
  put->timeout = timeout;
  put->done = std::move(done);
  for (size_t next = 0; next < rows.size();) {
    Result<RowsRequest> request = rep_->NextPut(mode, rows, &next);
    if (!request.ok()) {
      put->operation->Fail(request.status());
      return AsyncCall(put->operation);
    }
    put->requests.push_back(*std::move(request));
  }
  PutInParts::Continue(put);
  return AsyncCall(put->operation);
}

AsyncCall AsyncRows::Claim(const RowClaim& claim, Timeout timeout, Done<RowBatch> done) const {
  const Operation operation = NewOperation(rep_, done);
  RowsRequest request = rep_->ClaimRequest(claim);
  request.call.timeout = timeout;
  operation->Send(std::move(request), Rows::Rep::Longer(timeout),
                  [operation, done](RowsReply reply) { FinishBatch(operation, std::move(reply), done); });
  return AsyncCall(operation);
}

AsyncCall AsyncRows::Get(std::vector<std::string> keys, std::vector<std::string> columns, Timeout timeout,
                         Done<RowBatch> done) const {
  const Operation operation = NewOperation(rep_, done);
  RowsCall call = rep_->NewCall(RowsVerb::kGet);
  call.keys = std::move(keys);
  call.claim.select = std::move(columns);
  operation->Send(std::move(call), timeout,
                  [operation, done](RowsReply reply) { FinishBatch(operation, std::move(reply), done); });
  return AsyncCall(operation);
}

AsyncCall AsyncRows::List(std::string where, int64_t limit, Timeout timeout,
                          Done<std::vector<RowInfo>> done) const {
  auto list = std::make_shared<ListInPages>();
  list->operation = NewOperation(rep_, done);
  list->where = std::move(where);
  list->limit = limit;
  list->timeout = timeout;
  list->done = std::move(done);
  if (limit > 0) {
    ListInPages::Continue(list, 0);
  } else if (list->operation->Finish()) {
    (void)list->done(std::vector<RowInfo>());
  }
  return AsyncCall(list->operation);
}

AsyncCall AsyncRows::Delete(std::vector<std::string> keys, std::string where, Timeout timeout,
                            Done<int64_t> done) const {
  RowsCall call = rep_->NewCall(RowsVerb::kDelete);
  call.keys = std::move(keys);
  call.claim.where = std::move(where);
  return SendOne(rep_, std::move(call), timeout, done,
                 [](const RowsReply& reply) { return reply.result.count; });
}

AsyncCall AsyncRows::End(std::vector<std::string> keys, RowEnding ending, Timeout timeout,
                         Done<std::vector<std::string>> done) const {
  RowsCall call = rep_->NewCall(RowsVerb::kEnd);
  call.keys = std::move(keys);
  call.ending = ending;
  return SendOne(rep_, std::move(call), timeout, done,
                 [](RowsReply reply) { return std::move(reply.result.refused); });
}

AsyncCall AsyncRows::SetVersion(int64_t version, Timeout timeout, std::function<bool(Status)> done,
                                std::optional<std::string> state) const {
  RowsCall call = rep_->NewCall(RowsVerb::kSetVersion);
  call.version = version;
  if (const Status status = rep_->AddState(std::move(state), &call); !status.ok()) {
    return Failed(rep_, done, status);
  }
  return SendOne(rep_, std::move(call), timeout, done, [](const RowsReply&) { return Status::Ok(); });
}

AsyncCall AsyncRows::SetState(std::string state, Timeout timeout, std::function<bool(Status)> done) const {
  RowsCall call = rep_->NewCall(RowsVerb::kSetState);
  if (const Status status = rep_->AddState(std::move(state), &call); !status.ok()) {
    return Failed(rep_, done, status);
  }
  return SendOne(rep_, std::move(call), timeout, done, [](const RowsReply&) { return Status::Ok(); });
}

AsyncCall AsyncRows::State(Timeout timeout, Done<std::string> done) const {
  return SendOne(rep_, rep_->NewCall(RowsVerb::kGetState), timeout, done,
                 [](RowsReply reply) { return std::move(reply.result.state).value_or(std::string()); });
}

AsyncCall AsyncRows::Reserve(int64_t n, std::optional<int64_t> version, std::chrono::nanoseconds lease,
                             Timeout timeout, Done<Rows::Reservation> done) const {
  const Operation operation = NewOperation(rep_, done);
  RowsCall call = rep_->NewCall(RowsVerb::kReserve);
  call.count = n;
  call.version = version;
  call.extension = lease;
  call.timeout = timeout;
  operation->Send(std::move(call), Rows::Rep::Longer(timeout), [operation, done](const RowsReply& reply) {
    const Rows::Reservation reserved{.id = reply.result.reservation, .version = reply.result.version};
    if (!operation->Finish() || !done(reserved)) operation->GiveBack(reply.result);
  });
  return AsyncCall(operation);
}

AsyncCall AsyncRows::CancelReservation(uint64_t id, Timeout timeout, Done<bool> done) const {
  RowsCall call = rep_->NewCall(RowsVerb::kCancelReservation);
  call.reservation = id;
  return SendOne(rep_, std::move(call), timeout, done,
                 [](const RowsReply& reply) { return reply.result.was_known; });
}

AsyncCall AsyncRows::Info(Timeout timeout, Done<RowTableInfo> done) const {
  return SendOne(rep_, rep_->NewCall(RowsVerb::kInfo), timeout, done, Rows::Rep::TableInfoOf);
}

AsyncCall AsyncRows::Settle(const RowBatch& batch, RowSettlement settlement, std::vector<std::string> keys,
                            std::chrono::nanoseconds extension, Timeout timeout, Done<LeaseOutcome> done,
                            std::optional<std::string> state) const {
  if (batch.lease_id() == 0) {
    const Operation operation = NewOperation(rep_, done);
    if (batch.step() && batch.rows().empty() && operation->Finish()) {  // the part of a rank without rows
      (void)done(LeaseOutcome());
    }
    operation->Fail(
        Status::FailedPrecondition("these rows are not leased: only those of a claim are settled"));
    return AsyncCall(operation);
  }
  RowsCall call = rep_->NewCall(RowsVerb::kSettle);
  call.lease_id = batch.lease_id();
  call.settlement = settlement;
  call.keys = std::move(keys);
  call.extension = extension;
  if (const Status status = rep_->AddState(std::move(state), &call); !status.ok()) {
    return Failed(rep_, done, status);
  }
  return SendOne(rep_, std::move(call), timeout, done,
                 [](const RowsReply& reply) { return reply.result.outcome; });
}

void AsyncRows::ReturnLease(uint64_t lease_id) const { rep_->GiveBack(lease_id, 0); }
void AsyncRows::ReturnReservation(uint64_t id) const { rep_->GiveBack(0, id); }

}  // namespace reverb
