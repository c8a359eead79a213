// table.h — a table for many threads: one lock around TableState, with fair queues in front of it.
//
// How a call runs (table_lock.cc). A thread that finds the lock free takes it, runs its own operation and
// those that other threads handed over meanwhile, and releases the lock. A thread that finds it taken hands
// its operation over and waits for the result. A contended lock therefore changes hands far less often than
// once per call. A large request for samples is not handed over: its thread is about to read the result, and
// spins for the lock before it sleeps if the machine has cores to spare.
//
// How a call waits (table_operations.cc). An insert or a sample that the limiter or the memory bound does not
// allow is appended to a queue, one for each kind. A thread that changes the state advances the queues,
// one insert and one sample request in turn, at most kMaxAdvance operations before it releases the lock for a
// moment. A waiter needs no thread; timeouts come from the clock. Priority updates, including inserts of
// existing keys, never queue.
//
// Done outside the lock: freeing data, waking callers, callbacks of asynchronous operations (one at a time,
// in the order in which the operations finished), and deferred work of extensions.
//
// Threads: all methods may be called concurrently. Callbacks must be quick and must not throw; they may
// call the table. A pending callback that holds the table keeps both alive until Close().
#ifndef REVERB_CORE_TABLE_H_
#define REVERB_CORE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "core/chunk_store.h"
#include "core/operation.h"
#include "core/restore.h"
#include "core/snapshot.h"
#include "core/table_state.h"
#include "core/table_stats.h"
#include "reverb/item.h"
#include "reverb/status.h"
#include "reverb/table_info.h"
#include "reverb/table_options.h"
#include "tensor/item.h"

namespace reverb::internal {

// How long a synchronous call may wait, and what can cancel the wait.
struct Wait {
  std::optional<Duration> timeout;  // absent = wait forever, zero = try once
  Cancellation* cancellation = nullptr;
};

class ConcurrentTable : public std::enable_shared_from_this<ConcurrentTable> {
 public:
  struct Environment {
    std::shared_ptr<ChunkStore> store;
    Clock* clock = RealClock();
  };

  // The outcome of an operation that does not wait.
  struct Attempt {
    int64_t progress = 0;                   // items inserted, or samples drawn, whatever the status
    WaitReason reason = WaitReason::kNone;  // why the next one would have to wait; kNone = done
    Status status = {};                     // not OK: the table is closed, or the request is invalid
  };

  static Result<std::shared_ptr<ConcurrentTable>> Create(TableOptions options, Environment environment);
  ~ConcurrentTable();
  ConcurrentTable(const ConcurrentTable&) = delete;
  ConcurrentTable& operator=(const ConcurrentTable&) = delete;

  const std::string& name() const { return state_->options().name; }
  // As created; Info() has the limits in force.
  const TableOptions& options() const { return state_->options(); }
  // The one in force. Takes no lock.
  int32_t max_times_sampled() const { return max_times_sampled_.load(std::memory_order_relaxed); }
  const std::shared_ptr<ChunkStore>& store() const { return environment_.store; }

  // --- Inserting ---
  // Returns why this item can never be inserted: a priority that a selector rejects, no data, chunks of
  // another store, or more data than the store may hold. The result never changes, so an item is checked
  // once: by Insert(), or by the caller of TryInsert() and InsertAsync().
  Status CheckItem(const Item& item) const;
  // Inserts the items in order, waiting where the limiter requires it. An item that fails CheckItem() fails
  // the whole call before anything is done. After a timeout or cancellation the first *applied items are
  // stored; the others are not and will not be.
  Status Insert(std::span<Item> items, const Wait& wait = {}, int64_t* applied = nullptr);
  Status Insert(Item item, const Wait& wait = {}) { return Insert({&item, 1}, wait); }
  // Inserts the items in order until one would have to wait. `last_stored`: see Operation.
  // REQUIRES: CheckItem() accepts every item.
  Attempt TryInsert(std::span<Item> items, std::atomic<uint64_t>* last_stored = nullptr);

  // --- Sampling ---
  // Appends `count` samples (at most 2^20) to *out; with allow_partial, at least one and as many as are
  // allowed at that moment. Samples that were drawn are in *out whatever the status.
  Status Sample(int64_t count, bool allow_partial, const Wait& wait, std::vector<internal::Sample>* out,
                const BatchOrder& order = {});
  // Appends up to `count` samples, as many as are allowed now. A reason means that not even one is.
  Attempt TrySample(int64_t count, std::vector<internal::Sample>* out, const BatchOrder& order = {});

  // --- Changing items ---
  // Deletes, then updates, each in order. Ignores unknown keys. A priority that a selector rejects fails the
  // whole call before anything is done.
  Status Mutate(std::span<const KeyPriority> updates, std::span<const uint64_t> deletes);

  // --- Leases; see TableState ---
  // Samples are leased by BatchOrder::lease. These end the leases, or extend them to `lease` from now on.
  // Leases that the table does not know are counted.
  LeaseOutcome Acknowledge(std::span<const LeaseGrant> grants);
  LeaseOutcome Release(std::span<const LeaseGrant> grants);
  LeaseOutcome Extend(std::span<const LeaseGrant> grants, Duration lease);

  // --- The layout of items (table_layout.h) ---
  // Returns an error if a writer's item has another layout than the table. Insert() does not check this.
  Status CheckLayout(const Item& item, TableLayout::Checked* last) const {
    return state_->layout().Check(item, last);
  }

  // --- The same without a waiting thread ---
  // Calls on_done once, on some thread, when the operation has finished.
  using Handle = std::shared_ptr<Operation>;
  // With allow_partial an insert finishes when at least one item is stored and the next would have to wait:
  // `progress` is the number of stored items; the others are still in own_items.
  // REQUIRES: CheckItem() accepts every item.
  Handle InsertAsync(std::vector<Item> items, std::optional<Duration> timeout,
                     std::function<void(Operation&)> on_done, bool allow_partial = false,
                     std::atomic<uint64_t>* last_stored = nullptr);
  Handle SampleAsync(int64_t count, bool allow_partial, std::optional<Duration> timeout,
                     std::function<void(Operation&)> on_done, const BatchOrder& order = {});
  // Ends a waiting operation with CANCELLED; has no effect on one that has finished.
  void Cancel(const Handle& handle);

  // --- The table as a whole ---
  // Empties the table. Waiting calls keep waiting, with reset limiter counters.
  void Reset();
  Status SetRateLimiter(const RateLimiterOptions& options);
  // Changes limits of the table while it is in use. Waiting calls continue if they may now. On return the
  // table has at most max_size items and none that is older than max_age.
  Status Change(const TableChanges& changes);
  // Ends all waits with CANCELLED; later inserts and samples fail the same way. Other calls keep working.
  void Close();
  // Like Close(), with NOT_FOUND, for a table that no longer belongs to its server; frees all items.
  void Remove();
  bool is_removed() const { return removed_.load(std::memory_order_acquire); }

  TableInfo Info();
  int64_t size();
  // Returns Selector::Mass() of the sampler and, as of the same moment, the number of items.
  std::pair<std::optional<double>, int64_t> Mass();
  Result<bool> CanInsert(int64_t n);
  Result<bool> CanSample(int64_t n);
  std::optional<internal::Sample> Find(uint64_t key);
  // Up to n items from *cursor on (0 = start); does not count as sampling.
  std::vector<internal::Sample> Peek(int64_t n, uint64_t* cursor);
  // Returns what is known of up to `most` items, evenly spread over the table.
  std::vector<ItemMark> Survey(size_t most);

  // Captures all tables at one instant. Holds their locks together, for a time that does not grow with the
  // payload and hardly with the number of items. Calls `at_cut` meanwhile: it must be quick and must not call
  // a table.
  static Snapshot TakeSnapshot(std::span<const std::shared_ptr<ConcurrentTable>> tables,
                               const std::function<void()>& at_cut = {}) NO_THREAD_SAFETY_ANALYSIS;

  // --- Restoring a checkpoint, before any other use of the table; see TableState ---
  void BeginRestore(uint64_t num_slots, uint64_t num_items);
  Status RestoreItems(std::span<SavedItem> items);
  Status FinishRestore(const SavedTableState& state);

 private:
  static constexpr int kMaxAdvance = 256;
  static constexpr int kMaxTurns = 64;
  // Items that are removed because of a limit before the lock is released for a moment.
  static constexpr int64_t kMaxRemovals = 4096;
  // Bounds the samples that are drawn while the lock is held.
  static constexpr int64_t kMaxSampleCount = int64_t{1} << 20;

  // The work that a thread that holds the lock does after releasing it.
  struct Round {
    Effects effects;
    std::vector<Operation*> finished;                  // synchronous, and their callers sleep
    std::deque<std::shared_ptr<Operation>> callbacks;  // asynchronous
    Operation* own = nullptr;                          // the operation that this thread starts for itself
    bool in_use = false;
  };
  class ScopedRound;
  class ReadLock;

  ConcurrentTable(std::unique_ptr<TableState> state, Environment environment);

  Status CheckCount(int64_t count) const;
  void AssertChecked(std::span<const Item> items) const;
  // Entry point of every operation: finishes, queues or hands it over.
  void Execute(Operation* op);
  void RunToEnd(Operation* op, const Wait& wait);
  // REQUIRES: !op->may_wait.
  Attempt RunOnce(Operation* op);
  void AwaitFinished(Operation* op);
  void StartOwn(Operation* op) RELEASE(mu_);
  void LockForLargeOperation() ACQUIRE(mu_);
  void Push(Operation* op);
  // Runs `body` under the lock, then everything that follows from it.
  template <typename Body>
  void WithLock(Body body);

  // Does the remaining work under the lock, releases it, and does the rest.
  void FinishRound(Round* round) RELEASE(mu_);
  // Starts the operations that other threads handed over, in their order.
  void RunHandedOver(Round* round) REQUIRES(mu_);
  // Wakes the callers of finished operations, then runs the deferred work.
  void WakeAndRunEffects(Round* round) EXCLUDES(mu_);
  void RunCallbacks(Round* round) EXCLUDES(mu_);

  void Start(Operation* op, Round* round) REQUIRES(mu_);
  static bool IsDone(const Operation& insert);
  void StartInsert(Operation* op, Round* round) REQUIRES(mu_);
  void StartSample(Operation* op, Round* round) REQUIRES(mu_);
  void StartMutate(Operation* op, Round* round) REQUIRES(mu_);
  void Advance(Round* round) REQUIRES(mu_);
  bool AdvanceInsert(Round* round) REQUIRES(mu_);
  bool AdvanceSample(Round* round) REQUIRES(mu_);
  // Inserts the next item of `op`. Returns kNone when done, else why the item has to wait.
  WaitReason ApplyNextItem(Operation* op, int64_t wall_nanos, Round* round) REQUIRES(mu_);
  // Stores the next item of `op`. REQUIRES: it need not wait.
  void StoreNextItem(Operation* op, int64_t wall_nanos, Round* round) REQUIRES(mu_);
  WaitReason MakeRoom(const Item& item, Round* round) REQUIRES(mu_);
  // Returns whether evicting an item can make room for `more` bytes of `item`. `evicted`: the bytes evicted for them so far.
  bool MayEvictFor(const Item& item, int64_t more, int64_t evicted) const REQUIRES(mu_);
  void ChargeIndex() REQUIRES(mu_) {
    state_->CountCopies();
    constexpr int64_t kGranule = 64 << 10;
    const int64_t bytes = state_->index_bytes();
    const int64_t change = bytes - index_charge_.bytes();
    if (change >= kGranule || change <= -kGranule) [[unlikely]]
      index_charge_.Set(bytes);
  }
  // Returns an error, which must end the operation, if the rules of its batch are violated.
  Status Draw(Operation* op, Round* round) REQUIRES(mu_);
  Status DrawLeased(Operation* op) REQUIRES(mu_);
  bool HasEnough(const Operation& op) const REQUIRES(mu_);
  // Returns why the next sample of the operation has to wait.
  WaitReason SampleWaitReason(const Operation& op) const REQUIRES(mu_);

  // Appends `op` to its queue, or finishes it if it may not wait.
  void Enqueue(Operation* op, WaitReason reason, Round* round) REQUIRES(mu_);
  void Dequeue(Operation* op) REQUIRES(mu_);
  // Ends `op`. The caller of a synchronous one may destroy it from here on.
  void Finish(Operation* op, Status status, Round* round) REQUIRES(mu_);
  void SetReason(Operation* op, WaitReason reason) REQUIRES(mu_);
  WaitQueue& QueueOf(const Operation& op) REQUIRES(mu_);
  void CancelLocked(Operation* op, Round* round) REQUIRES(mu_);
  Status TimeoutError(const Operation& op) const REQUIRES(mu_);
  Status ClosedError() const;
  void CloseLocked(Round* round) REQUIRES(mu_);

  // Returns now + lease, or the last time if the sum would overflow.
  TimePoint LeaseEnd(Duration lease) const;
  // Runs settle(part) under the lock for parts of `grants` that are not too large.
  template <typename Settle>
  LeaseOutcome SettleInParts(std::span<const LeaseGrant> grants, Settle settle);

  // Removes items that have reached max_age and ends leases that have expired, at most `most`. Returns whether
  // others are left. Called before the state is used.
  bool RemoveAged(Round* round, int64_t most = std::numeric_limits<int64_t>::max()) REQUIRES(mu_);
  // Returns when the alarm for them is due: for aged items a little late, so that one alarm serves many.
  std::optional<TimePoint> NextAgedAlarm() const REQUIRES(mu_);
  void ArmAlarm() REQUIRES(mu_);
  void OnAlarm(TimePoint armed_for);
  void WaitForRoom() REQUIRES(mu_);

  // Set once; read without a lock.
  const Environment environment_;
  const std::unique_ptr<TableState>
      state_;  // the object is guarded by mu_, except for its "any thread" methods

  std::atomic<bool> removed_{false};
  // Copies of settings that are in the state, for readers without the lock.
  std::atomic<bool> has_max_age_;
  std::atomic<int32_t> max_times_sampled_;
  std::atomic<int64_t> max_bytes_;

  // Operations handed over to the lock's holder, newest first.
  std::atomic<Operation*> pushed_{nullptr};

  // Everything below is guarded by mu_.
  Mutex mu_;
  bool closed_ GUARDED_BY(mu_) = false;
  WaitQueue inserts_ GUARDED_BY(mu_);
  WaitQueue samples_ GUARDED_BY(mu_);
  std::multimap<TimePoint, Operation*> deadlines_ GUARDED_BY(mu_);
  std::optional<TimePoint> armed_for_ GUARDED_BY(mu_);
  Clock::AlarmId alarm_ GUARDED_BY(mu_) = 0;
  uint64_t room_ticket_ GUARDED_BY(mu_) = 0;
  MemoryCharge index_charge_ GUARDED_BY(mu_);   // of TableState::index_bytes()
  bool advance_again_ GUARDED_BY(mu_) = false;  // Advance() stopped at kMaxAdvance
  bool has_aged_ GUARDED_BY(mu_) = false;       // Advance() stopped at kMaxRemovals: the alarm continues
  bool calling_back_ GUARDED_BY(mu_) = false;   // a thread runs callbacks
  std::deque<std::shared_ptr<Operation>> callbacks_ GUARDED_BY(mu_);
  TableStats stats_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_TABLE_H_
