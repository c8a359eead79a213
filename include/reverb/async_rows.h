// async_rows.h — operations on a row table that no thread waits for (docs/rows.md).
//
//   const reverb::AsyncRows rows(client.RowTable("rollouts").value());
//   // Called on a thread of the library: it must be quick and must not block. It returns whether somebody takes the
//   // batch, which is given back otherwise.
//   const auto take = [](reverb::Result<reverb::RowBatch> batch) { return batch.ok() && !batch->rows().empty(); };
//   const reverb::AsyncCall call = rows.Claim({.consumer = "train", .count = 64}, {}, take);
//   call.Cancel();
//
// Starting an operation does not block. `done` is called once, on any thread, possibly before the call returns. A
// cancelled operation is CANCELLED, here at once and at the server as soon as it knows; rows that were claimed meanwhile
// are given back, rows that were put stay.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_ASYNC_ROWS_H_
#define REVERB_ASYNC_ROWS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverb/lease.h"
#include "reverb/row_operations.h"
#include "reverb/rows.h"
#include "reverb/status.h"
#include "reverb/wait.h"

namespace reverb {

// An operation that was started. Destroying it does not end the operation.
class AsyncCall {
 public:
  AsyncCall() = default;
  void Cancel() const;

  struct Rep;
  explicit AsyncCall(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}

 private:
  std::shared_ptr<Rep> rep_;
};

// The operations of Rows. Arguments are copied; values of rows are encoded before Put() returns.
class AsyncRows {
 public:
  // Returns whether it has taken the result.
  template <typename T>
  using Done = std::function<bool(Result<T>)>;

  explicit AsyncRows(const Rows& rows) : rep_(rows.rep_) {}

  AsyncCall Put(const RowWriteMode& mode, std::span<const NewRow> rows, Timeout timeout,
                Done<PutOutcome> done) const;
  AsyncCall Claim(const RowClaim& claim, Timeout timeout, Done<RowBatch> done) const;
  AsyncCall Get(std::vector<std::string> keys, std::vector<std::string> columns, Timeout timeout,
                Done<RowBatch> done) const;
  AsyncCall List(std::string where, int64_t limit, Timeout timeout, Done<std::vector<RowInfo>> done) const;
  // `where` empty: the rows with these keys.
  AsyncCall Delete(std::vector<std::string> keys, std::string where, Timeout timeout,
                   Done<int64_t> done) const;
  AsyncCall End(std::vector<std::string> keys, RowEnding ending, Timeout timeout,
                Done<std::vector<std::string>> done) const;
  // `state`: becomes the state of the caller together with the version.
  AsyncCall SetVersion(int64_t version, Timeout timeout, std::function<bool(Status)> done,
                       std::optional<std::string> state = {}) const;
  AsyncCall SetState(std::string state, Timeout timeout, std::function<bool(Status)> done) const;
  AsyncCall State(Timeout timeout, Done<std::string> done) const;
  AsyncCall Reserve(int64_t n, std::optional<int64_t> version, std::chrono::nanoseconds lease,
                    Timeout timeout, Done<Rows::Reservation> done) const;
  AsyncCall CancelReservation(uint64_t id, Timeout timeout, Done<bool> done) const;
  AsyncCall Info(Timeout timeout, Done<RowTableInfo> done) const;
  // Settles the lease of a batch, for these rows or for all. `extension`: kExtend only. `state`: kAcknowledge only;
  // becomes the state of the caller together with the acknowledgement, unless the lease was lost.
  AsyncCall Settle(const RowBatch& batch, RowSettlement settlement, std::vector<std::string> keys,
                   std::chrono::nanoseconds extension, Timeout timeout, Done<LeaseOutcome> done,
                   std::optional<std::string> state = {}) const;

  // Give back what nobody has got after all. They do not wait, and report no error: a lease expires at last.
  void ReturnLease(uint64_t lease_id) const;
  void ReturnReservation(uint64_t id) const;

 private:
  std::shared_ptr<const Rows::Rep> rep_;
};

}  // namespace reverb

#endif  // REVERB_ASYNC_ROWS_H_
