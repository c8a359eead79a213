// rows.h — row tables from a client: rows under keys, whose columns arrive over time.
//
//   Rows rows = client.RowTable("rollouts").value();
//   RowWriteMode mode{.columns = {"tokens"}, .version = 3};
//   PutOutcome put = rows.Put(mode, new_rows).value();
//   RowBatch batch = rows.Claim({.consumer = "train", .count = 64, .needs = {"tokens"}}).value();
//   JaggedColumn tokens = batch.Column("tokens").value();
//   LeaseOutcome acknowledged = batch.Acknowledge().value();
//
// docs/rows.md describes row tables.
//
// Ownership: handles share the client's connection. A RowBatch that is destroyed keeps its lease, which then expires.
// Threads: Rows may be used by several threads. A RowBatch belongs to one thread at a time.
#ifndef REVERB_ROWS_H_
#define REVERB_ROWS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverb/lease.h"
#include "reverb/row_operations.h"
#include "reverb/row_table_options.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "reverb/wait.h"

namespace reverb {

namespace internal {
struct RowBatchFactory;
}  // namespace internal

// A row to be written.
struct NewRow {
  std::string key = {};
  std::string group = {};  // in tables with groups; empty for rows that exist
  std::vector<RowTag> tags = {};
  std::vector<TensorView> values = {};  // one for each column of the write
};

struct PutOutcome {
  int64_t stored = 0;
  // The keys of rows that were not stored, because they are stale, or were dropped before: their producer can stop.
  std::vector<std::string> aborted = {};
  int64_t version = 0;  // of the table
};

// The values of one column for all rows of a batch, one after the other.
struct JaggedColumn {
  Tensor values = {};
  // The values of row i are those from offsets[i] to offsets[i + 1].
  std::vector<int64_t> offsets = {0};
  bool is_scalar = false;  // each row has one value, without a dimension
};

// A row without its data.
struct RowInfo {
  std::string key = {};
  std::string group = {};
  int64_t version = 0;
  bool is_open = false;
  std::vector<RowTag> tags = {};
  std::vector<std::string> columns = {};  // that the row has; only from List(), as what follows
  bool is_requeued = false;               // open, and offered to the consumer "resume"
  bool is_stale = false;
  std::vector<std::string> leased_by = {};    // the consumers that have claimed it
  std::vector<std::string> consumed_by = {};  // those that have acknowledged it
};

// Rows with data: those of a claim, which are leased, or those that were read by key.
class RowBatch {
 public:
  RowBatch() = default;  // without rows

  const std::vector<RowInfo>& rows() const { return rows_; }
  const std::vector<std::string>& columns() const { return columns_; }
  int64_t version() const { return version_; }  // of the table
  uint64_t lease_id() const { return lease_id_; }
  // The batch of all ranks that this is a part of; absent without ranks.
  std::optional<int64_t> step() const { return step_; }

  // Copies the values of a column. NOT_FOUND if it was not requested; INVALID_ARGUMENT if rows differ in dtype, rank or
  // the later dimensions. A row that does not have the column has no values.
  Result<JaggedColumn> Column(std::string_view name) const;

  // Settle the lease of a claim: for the rows with these keys, or for all. Extend() always is for all.
  // LeaseOutcome::expired: the lease was lost, and others may have got the rows.
  // `state`: becomes that of the table (Rows::SetState) together with the acknowledgement; unless the lease was lost.
  Result<LeaseOutcome> Acknowledge(std::span<const std::string> keys = {}, const WaitOptions& wait = {},
                                   std::optional<std::string> state = {}) const;
  Result<LeaseOutcome> Release(std::span<const std::string> keys = {}, const WaitOptions& wait = {}) const;
  Result<LeaseOutcome> Extend(std::chrono::nanoseconds lease, const WaitOptions& wait = {}) const;

 private:
  friend class Rows;
  friend struct internal::RowBatchFactory;
  struct Data;
  Result<LeaseOutcome> Settle(RowSettlement settlement, std::span<const std::string> keys,
                              std::chrono::nanoseconds extension, const WaitOptions& wait,
                              std::optional<std::string> state = {}) const;

  std::vector<RowInfo> rows_;
  std::vector<std::string> columns_;
  int64_t version_ = 0;
  uint64_t lease_id_ = 0;
  std::optional<int64_t> step_ = {};
  std::shared_ptr<const Data> data_;
};

class Rows {
 public:
  const std::string& table() const;

  // Operations wait within `wait` where the table requires it: Put() for room, Claim() for rows, Reserve() for the
  // trainer. DEADLINE_EXCEEDED names the reasons. on_wait can end the wait: the server forgets the operation.

  // Writes rows, new ones or further columns of existing ones. Rows that were stored before an error stay.
  // Not repeated after UNAVAILABLE: the server may have stored the rows.
  Result<PutOutcome> Put(const RowWriteMode& mode, std::span<const NewRow> rows,
                         const WaitOptions& wait = {}) const;
  Result<RowBatch> Claim(const RowClaim& claim, const WaitOptions& wait = {}) const;
  // Returns the rows that exist, in the order of the keys, with these columns.
  Result<RowBatch> Get(std::span<const std::string> keys, std::span<const std::string> columns,
                       const WaitOptions& wait = {}) const;
  // Returns up to `limit` rows for which the condition is true; all if it is empty.
  Result<std::vector<RowInfo>> List(const std::string& where, int64_t limit,
                                    const WaitOptions& wait = {}) const;
  // Return the number of deleted rows.
  Result<int64_t> Delete(std::span<const std::string> keys, const WaitOptions& wait = {}) const;
  Result<int64_t> DeleteWhere(const std::string& where, const WaitOptions& wait = {}) const;
  // Closes, aborts or requeues open rows. Returns the keys of rows that are gone.
  Result<std::vector<std::string>> End(std::span<const std::string> keys, RowEnding ending,
                                       const WaitOptions& wait = {}) const;
  // `state`: becomes that of the table together with the version.
  Status SetVersion(int64_t version, const WaitOptions& wait = {},
                    std::optional<std::string> state = {}) const;

  // The caller's state: bytes that the server keeps with the rows, such as the position of a trainer's data loader.
  // Checkpoints contain it, consistent with the rows. INVALID_ARGUMENT above RowTableOptions::kMaxStateBytes.
  Status SetState(std::string state, const WaitOptions& wait = {}) const;
  // Returns the state that was set last; empty if there is none.
  Result<std::string> State(const WaitOptions& wait = {}) const;

  struct Reservation {
    uint64_t id = 0;
    int64_t version = 0;  // of the table
  };
  // Reserves n rows for `lease`. RowWriteMode::reservation uses them up.
  Result<Reservation> Reserve(int64_t n, std::optional<int64_t> version, std::chrono::nanoseconds lease,
                              const WaitOptions& wait = {}) const;
  // Gives back what is left. Returns whether there was something.
  Result<bool> CancelReservation(uint64_t id, const WaitOptions& wait = {}) const;

  Result<RowTableInfo> Info(const WaitOptions& wait = {}) const;

  struct Rep;
  explicit Rows(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}

 private:
  friend class AsyncRows;
  std::shared_ptr<const Rep> rep_;
};

}  // namespace reverb

#endif  // REVERB_ROWS_H_
