// table.h — a table that many threads use: one lock around the rules, fair queues in front of it.
//
// How a call runs. Whoever finds the lock free takes it, does its own operation and those that
// others handed over meanwhile, and lets go; whoever finds it taken hands its operation over and
// waits for the result. So a contended lock is passed on far less often than once per call. (Large
// batches are not handed over: there the work outweighs the lock.)
//
// How a call waits. An insert or a sample that the limiter (or the memory bound) does not allow
// goes to the end of a queue, one for each kind. Whoever changes the state moves the queues on,
// one insert and one sample request in turn, at most kMaxAdvance operations before it gives
// the lock up for a moment. No thread belongs to a waiter; time-outs come from the clock.
// Priority updates, also those in the guise of inserts of existing keys, never queue.
//
// What happens outside the lock: freeing data, waking callers, callbacks of asynchronous
// operations (one at a time, in the order in which the operations finished), and what extensions
// asked to do later.
//
// Threads: all methods may be called concurrently. Callbacks must be quick and must not throw; they may
// call the table. One that waits to be called and holds the table keeps both alive until Close().
#ifndef REVERB_CORE_TABLE_H_
#define REVERB_CORE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
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

// How long a synchronous call may wait, and who may end that.
struct Wait {
  std::optional<Duration> timeout;  // absent = for ever, zero = try once
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
  const TableOptions& options() const { return state_->options(); }
  const std::shared_ptr<ChunkStore>& store() const { return environment_.store; }

  // --- Inserting ---
  // Returns why this item can never be inserted: a priority that a selector rejects, no data, chunks of
  // another store, or more data than the store may hold. The answer depends on nothing that changes, so an
  // item is checked once: by Insert(), or by the caller of TryInsert() and InsertAsync().
  Status CheckItem(const Item& item) const;
  // Applies the items in order, waiting where the limiter says so. An item that fails CheckItem fails
  // the whole call before anything is done. On a time-out or cancellation the first *applied items are
  // in and the others are not and will not be.
  Status Insert(std::span<Item> items, const Wait& wait = {}, int64_t* applied = nullptr);
  Status Insert(Item item, const Wait& wait = {}) { return Insert({&item, 1}, wait); }
  // Applies the items in order until one would have to wait. `last_stored`: see Operation.
  // REQUIRES: CheckItem() accepts every item.
  Attempt TryInsert(std::span<Item> items, std::atomic<uint64_t>* last_stored = nullptr);

  // --- Sampling ---
  // Appends `count` samples (at most 2^20) to *out; with allow_partial, at least one and as many as are
  // allowed at that moment. Whatever the status, what was drawn is in *out.
  Status Sample(int64_t count, bool allow_partial, const Wait& wait, std::vector<internal::Sample>* out);
  // Appends up to `count` samples, as many as are allowed now. A reason means that not even one is.
  Attempt TrySample(int64_t count, std::vector<internal::Sample>* out);

  // --- Changing items ---
  // Deletes, then updates, each in order. Unknown keys are ignored. A priority that is refused fails
  // the whole call before anything is done.
  Status Mutate(std::span<const KeyPriority> updates, std::span<const uint64_t> deletes);

  // --- The nest that items were written in (observed_structure.h); tables with a signature do not listen ---
  void TakeStructure(const ItemStructure& structure);
  uint64_t structure_resets() const { return state_->structure().resets(); }

  // --- The same without a waiting thread ---
  // The operation is finished when on_done was called with it, once, on some thread.
  using Handle = std::shared_ptr<Operation>;
  // With allow_partial an insert is done when at least one item is in and the next would have to wait:
  // `progress` says how many are, the others are still in own_items.
  // REQUIRES: CheckItem() accepts every item.
  Handle InsertAsync(std::vector<Item> items, std::optional<Duration> timeout,
                     std::function<void(Operation&)> on_done, bool allow_partial = false,
                     std::atomic<uint64_t>* last_stored = nullptr);
  Handle SampleAsync(int64_t count, bool allow_partial, std::optional<Duration> timeout,
                     std::function<void(Operation&)> on_done);
  // Ends a waiting operation with CANCELLED; does nothing to one that has finished.
  void Cancel(const Handle& handle);

  // --- The table as a whole ---
  // Empties it. Calls that wait go on waiting, under a fresh limiter.
  void Reset();
  Status SetRateLimiter(const RateLimiterOptions& options);
  // Ends all waits with CANCELLED; later inserts and samples end so at once. The rest keeps working.
  void Close();

  TableInfo Info();
  int64_t size();
  Result<bool> CanInsert(int64_t n);
  Result<bool> CanSample(int64_t n);
  std::optional<internal::Sample> Find(uint64_t key);
  // Up to n items from *cursor on (0 = start); does not count as sampling.
  std::vector<internal::Sample> Peek(int64_t n, uint64_t* cursor);

  // All tables at one instant. Their locks are held together, for a time that does not grow with the
  // payload and hardly with the number of items.
  // `at_cut` is called while they are: it must be quick and must not call a table.
  static Snapshot TakeSnapshot(std::span<const std::shared_ptr<ConcurrentTable>> tables,
                               const std::function<void()>& at_cut = {}) NO_THREAD_SAFETY_ANALYSIS;

  // --- Filling it from a checkpoint, before anything else is done with it; see TableState ---
  void BeginRestore(uint64_t num_slots, uint64_t num_items);
  Status RestoreItems(std::span<SavedItem> items);
  Status FinishRestore(const SavedTableState& state);

 private:
  static constexpr int kMaxAdvance = 256;
  static constexpr int kMaxTurns = 64;
  // Drawn under one hold of the lock, so there is a bound.
  static constexpr int64_t kMaxSampleCount = int64_t{1} << 20;

  // What one holder of the lock takes out with it.
  struct Round {
    Effects effects;
    std::vector<Operation*> finished;                  // synchronous
    std::deque<std::shared_ptr<Operation>> callbacks;  // asynchronous
    Operation* own = nullptr;                          // the one that this thread is starting for itself
    bool in_use = false;
  };
  class ScopedRound;
  class ReadLock;

  ConcurrentTable(std::unique_ptr<TableState> state, Environment environment);

  Status CheckCount(int64_t count) const;
  void AssertChecked(std::span<const Item> items) const;
  // Entry of every operation; finishes, queues or hands it over.
  void Execute(Operation* op);
  void RunToEnd(Operation* op, const Wait& wait);
  // REQUIRES: !op->may_wait.
  Attempt RunOnce(Operation* op);
  void AwaitFinished(Operation* op);
  void StartOwn(Operation* op) RELEASE(mu_);
  void Push(Operation* op);
  // Runs `body` under the lock and then all that follows from it.
  template <typename Body>
  void WithLock(Body body);

  // Does what is left to do under the lock, gives it up, and does the rest.
  void FinishRound(Round* round) RELEASE(mu_);
  void TakeHandedOver(Round* round) REQUIRES(mu_);
  void LetGo(Round* round) EXCLUDES(mu_);
  void RunCallbacks(Round* round) EXCLUDES(mu_);

  void Start(Operation* op, Round* round) REQUIRES(mu_);
  static bool IsDone(const Operation& insert);
  void StartInsert(Operation* op, Round* round) REQUIRES(mu_);
  void StartSample(Operation* op, Round* round) REQUIRES(mu_);
  void StartMutate(Operation* op, Round* round) REQUIRES(mu_);
  void Advance(Round* round) REQUIRES(mu_);
  bool AdvanceInsert(Round* round) REQUIRES(mu_);
  bool AdvanceSample(Round* round) REQUIRES(mu_);
  // Applies the next item of `op`; kNone when done, else why it has to wait.
  WaitReason ApplyNextItem(Operation* op, Round* round) REQUIRES(mu_);
  // Hands the next item to the state, which never refuses it.
  void StoreNextItem(Operation* op, int64_t wall_nanos, Round* round) REQUIRES(mu_);
  WaitReason MakeRoom(const Item& item, Round* round) REQUIRES(mu_);
  void Draw(Operation* op, Round* round) REQUIRES(mu_);
  bool HasEnough(const Operation& op) const REQUIRES(mu_);

  // Puts `op` to the end of its queue, or ends it if it may not wait.
  void Enqueue(Operation* op, WaitReason reason, Round* round) REQUIRES(mu_);
  void Dequeue(Operation* op) REQUIRES(mu_);
  void Finish(Operation* op, Status status, Round* round) REQUIRES(mu_);
  void SetReason(Operation* op, WaitReason reason) REQUIRES(mu_);
  WaitQueue& QueueOf(const Operation& op) REQUIRES(mu_);
  void CancelLocked(Operation* op, Round* round) REQUIRES(mu_);
  Status TimeoutError(const Operation& op) const REQUIRES(mu_);
  Status ClosedError() const;

  void ArmAlarm() REQUIRES(mu_);
  void OnAlarm(TimePoint armed_for);
  void WaitForRoom() REQUIRES(mu_);

  // Set once; read without a lock.
  const Environment environment_;
  const std::unique_ptr<TableState>
      state_;  // the object is guarded by mu_, save for its "any thread" methods

  // Operations handed to the holder of the lock, newest first.
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
  bool advance_again_ GUARDED_BY(mu_) = false;  // the budget ran out before the work did
  bool calling_back_ GUARDED_BY(mu_) = false;   // some thread runs callbacks
  std::deque<std::shared_ptr<Operation>> callbacks_ GUARDED_BY(mu_);
  TableStats stats_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_TABLE_H_
