// row_table.h — a row table for many threads: one lock around RowState, with queues of operations that wait.
//
// Writes of new rows, claims and reservations may have to wait. They occupy no thread: a thread that changes the
// state finishes those that no longer have to wait, the clock those whose time is over. Writes and reservations
// wait in the order of their arrival. So do claims that want the same rows (consumer, columns, groups and condition);
// others do not wait for each other. Writes to rows that exist, and new rows of groups that exist, never wait, not even
// behind other rows of their write. A write fails with UNAVAILABLE instead of waiting if too much data waits already.
//
// Done outside the lock: freeing data, and callbacks.
//
// Threads: all methods may be called concurrently. Callbacks must be quick and must not throw; they may call the
// table.
#ifndef REVERB_CORE_ROWS_ROW_TABLE_H_
#define REVERB_CORE_ROWS_ROW_TABLE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "core/chunk_store.h"
#include "core/rows/rank_claims.h"
#include "core/rows/row_snapshot.h"
#include "core/rows/row_state.h"
#include "core/rows/where.h"
#include "reverb/lease.h"
#include "reverb/row_table_options.h"
#include "reverb/status.h"
#include "tensor/row.h"

namespace reverb::internal {

// An operation that may wait. Shared between the table and the caller, who may cancel it.
struct RowOperation {
  enum class Kind : uint8_t { kWrite, kClaim, kReserve };

  explicit RowOperation(Kind kind_in) : kind(kind_in) {}
  RowOperation(const RowOperation&) = delete;
  RowOperation& operator=(const RowOperation&) = delete;

  // --- Set by the caller ---
  const Kind kind;
  std::optional<Duration> timeout = {};  // absent = wait forever, zero = try once
  RowWriteMode mode = {};                // kWrite
  std::vector<RowWrite> rows = {};       // kWrite
  RowClaim claim = {};                   // kClaim
  int64_t count = 0;                     // kReserve
  std::optional<int64_t> version = {};   // kReserve
  Duration lease{0};                     // kReserve
  // Called once, on some thread, when the operation has finished.
  std::function<void(RowOperation&)> on_done = {};

  // --- Results, once finished ---
  Status status = {};
  int64_t stored = 0;                     // kWrite: rows, whatever the status
  std::vector<std::string> refused = {};  // kWrite: keys of rows that are stale or gone
  ClaimedRows claimed = {};               // kClaim
  uint64_t reservation = 0;               // kReserve
  int64_t table_version = 0;

  // --- Owned by the table ---
  std::shared_ptr<const Where> where = {};
  RowState::Write write = {};
  size_t next = 0;  // row to be written
  RowWaitReason reason = RowWaitReason::kNone;
  uint64_t generation = 0;    // of the rows that a claim, or the groups that a write, has looked at
  int64_t waiting_bytes = 0;  // of a write: of its rows that wait
  TimePoint queued_at = {};
  std::optional<TimePoint> deadline = {};
  bool is_queued = false;
  bool is_finished = false;
};

class ConcurrentRows : public std::enable_shared_from_this<ConcurrentRows> {
 public:
  struct Environment {
    std::shared_ptr<ChunkStore> store;
    Clock* clock = RealClock();
    bool created_by_client = false;  // while the server ran
  };

  static Result<std::shared_ptr<ConcurrentRows>> Create(RowTableOptions options, Environment environment);
  ~ConcurrentRows();
  ConcurrentRows(const ConcurrentRows&) = delete;
  ConcurrentRows& operator=(const ConcurrentRows&) = delete;

  const std::string& name() const { return options().name; }
  const RowTableOptions& options() const { return state_->options(); }

  // Starts an operation. It may be finished when this returns.
  void Start(const std::shared_ptr<RowOperation>& operation) EXCLUDES(mu_);
  // Ends a waiting operation with CANCELLED; has no effect on one that has finished.
  void Cancel(const std::shared_ptr<RowOperation>& operation) EXCLUDES(mu_);

  // --- Operations that do not wait; see RowState ---
  Result<std::vector<std::string>> End(std::span<const std::string> keys, RowEnding ending) EXCLUDES(mu_);
  std::vector<RowRecord> Get(std::span<const std::string> keys, std::span<const std::string> columns)
      EXCLUDES(mu_);
  // `where`: an expression; empty = all rows.
  Result<std::vector<RowRecord>> List(const std::string& where, int64_t limit, uint64_t* cursor)
      EXCLUDES(mu_);
  Result<int64_t> Delete(std::span<const std::string> keys) EXCLUDES(mu_);
  Result<int64_t> DeleteWhere(const std::string& where) EXCLUDES(mu_);
  // `state`: the caller's, set together with it; not if the lease was lost.
  LeaseOutcome Settle(uint64_t lease, std::span<const std::string> keys, RowSettlement settlement,
                      Duration extension, const std::optional<std::string>& state = {}) EXCLUDES(mu_);
  Status SetVersion(int64_t version, const std::optional<std::string>& state = {}) EXCLUDES(mu_);
  void SetState(std::string state) EXCLUDES(mu_);
  std::string State() EXCLUDES(mu_);
  bool CancelReservation(uint64_t id) EXCLUDES(mu_);
  int64_t version() EXCLUDES(mu_);
  int64_t size() EXCLUDES(mu_);

  RowTableInfo Info() EXCLUDES(mu_);

  // --- Checkpoints ---
  struct Snapshots {
    std::vector<std::unique_ptr<RowTableSnapshot>> tables;
    Duration locks_held{0};  // from the first lock taken to the last one released
  };
  // Captures all tables at one instant, and calls `at_cut` while they are locked.
  static Snapshots TakeSnapshots(std::span<const std::shared_ptr<ConcurrentRows>> tables,
                                 const std::function<void()>& at_cut = {}) NO_THREAD_SAFETY_ANALYSIS;
  // See RowState. To be called before other threads use the table.
  Status BeginRestore(SavedRowTable saved) EXCLUDES(mu_);
  Status RestoreRow(SavedRow row) EXCLUDES(mu_);
  Status FinishRestore() EXCLUDES(mu_);

  // Ends all waits with CANCELLED; later operations that may wait fail the same way. Others keep working.
  void Close() EXCLUDES(mu_);
  // Like Close(), with NOT_FOUND, for a table that no longer belongs to its server.
  void Remove() EXCLUDES(mu_);

 private:
  using Waiting = std::list<std::shared_ptr<RowOperation>>;
  // What is left to do without the lock.
  struct Round {
    RowEffects effects;
    Waiting finished;
    std::shared_ptr<const std::string> former_state;
  };

  ConcurrentRows(std::unique_ptr<RowState> state, Environment environment);

  // Runs body(round) under the lock, then everything that follows from it.
  template <typename Body>
  void WithLock(Body body) EXCLUDES(mu_);
  // Checks what does not depend on rows, and parses.
  Status Prepare(RowOperation* operation) REQUIRES(mu_);
  // Returns whether the operation is finished.
  bool Try(const std::shared_ptr<RowOperation>& operation, Round* round) REQUIRES(mu_);
  bool TryWrite(RowOperation* write, Round* round) REQUIRES(mu_);
  // Moves rows that never wait before the row that has to, and returns whether there are any.
  bool MoveForward(RowOperation* write) REQUIRES(mu_);
  // Returns whether `bytes` may be stored now; otherwise Advance() is called when that may have changed.
  bool HasRoomFor(int64_t bytes) REQUIRES(mu_);
  void ChargeIndex() REQUIRES(mu_) {
    constexpr int64_t kGranule = 64 << 10;
    const int64_t bytes = state_->index_bytes();
    const int64_t change = bytes - index_charge_.bytes();
    if (change >= kGranule || change <= -kGranule) [[unlikely]]
      index_charge_.Set(bytes);
  }
  bool TryClaim(RowOperation* claim, Round* round) REQUIRES(mu_);
  bool TryReserve(RowOperation* reserve) REQUIRES(mu_);
  // Tries the operations that wait, in their order.
  void Advance(Round* round) REQUIRES(mu_);
  void AdvanceInOrder(Waiting* waiting, Round* round) REQUIRES(mu_);
  // Stores those rows of waiting writes that join a group that was created meanwhile.
  void AdvanceJoiningWrites(Round* round) REQUIRES(mu_);
  void AdvanceClaims(Round* round) REQUIRES(mu_);
  // Returns whether a write may wait with `bytes` of data.
  bool MayWait(int64_t bytes) const REQUIRES(mu_);
  void SetWaitingBytes(RowOperation* operation, int64_t bytes) REQUIRES(mu_);
  void Finish(const std::shared_ptr<RowOperation>& operation, Round* round) REQUIRES(mu_);
  void Enqueue(const std::shared_ptr<RowOperation>& operation, Round* round) REQUIRES(mu_);
  void Dequeue(const std::shared_ptr<RowOperation>& operation) REQUIRES(mu_);
  Waiting* QueueOf(const RowOperation& operation) REQUIRES(mu_);
  std::string WaitText(RowOperation* operation) REQUIRES(mu_);
  Status TimeoutError(RowOperation* operation) REQUIRES(mu_);
  Status NoRoomToWait(RowOperation* write, int64_t bytes) REQUIRES(mu_);
  void EndAll(const Status& why, Round* round) REQUIRES(mu_);
  void SetUserState(std::shared_ptr<const std::string> state, Round* round) REQUIRES(mu_);
  // Ends leases and waits whose time is over.
  void AdvanceTime(Round* round) REQUIRES(mu_);
  void ArmAlarm() REQUIRES(mu_);
  void OnAlarm(TimePoint armed_for) EXCLUDES(mu_);

  const Environment environment_;
  const std::unique_ptr<RowState> state_;  // guarded by mu_, except for options()
  RankClaims ranks_ GUARDED_BY(mu_);

  Mutex mu_;
  Status closed_ GUARDED_BY(mu_);  // not OK: why operations no longer wait
  Waiting writes_ GUARDED_BY(mu_);
  Waiting claims_ GUARDED_BY(mu_);
  Waiting reserves_ GUARDED_BY(mu_);
  // RowState::groups_created() when waiting writes were last tried.
  uint64_t groups_seen_ GUARDED_BY(mu_) = 0;
  std::set<std::pair<TimePoint, RowOperation*>> deadlines_ GUARDED_BY(mu_);
  std::optional<TimePoint> armed_for_ GUARDED_BY(mu_);
  Clock::AlarmId alarm_ GUARDED_BY(mu_) = 0;
  uint64_t room_ticket_ GUARDED_BY(mu_) = 0;
  MemoryCharge waiting_charge_ GUARDED_BY(mu_);  // of writes_
  MemoryCharge index_charge_ GUARDED_BY(mu_);    // of RowState::index_bytes()
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_ROWS_ROW_TABLE_H_
