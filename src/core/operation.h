// operation.h — one call on a table while it is in progress.
//
// A synchronous operation lives on its caller's stack; an asynchronous one is shared between the table and
// the caller, who may cancel it. The table owns an operation from Execute() until it has finished; then the
// caller may read the results.
#ifndef REVERB_CORE_OPERATION_H_
#define REVERB_CORE_OPERATION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/parker.h"
#include "reverb/item.h"
#include "reverb/status.h"
#include "reverb/table_info.h"
#include "tensor/batch_rules.h"
#include "tensor/item.h"

namespace reverb::internal {

// The rules for drawing samples. INVALID_ARGUMENT, and nothing is drawn, if an item violates them, or if a table
// can never provide so many samples together. If the rules compare samples, a table that removes sampled
// items draws all together or waits, unless they do not fit into it or inserts wait: they may need the room.
struct BatchOrder {
  BatchRules rules = {};
  Trajectory first = {};  // of the batch, if it was drawn before
  // Above 0: the samples are leased for this long, and drawn together: all or none.
  Duration lease{0};

  // Returns whether the samples may be drawn in parts, between which the table's lock is released.
  bool is_divisible() const {
    return !rules.all_or_nothing && rules.check == BatchCheck::kNone && lease <= Duration(0);
  }
};

struct Operation {
  enum class Kind : uint8_t { kInsert, kSample, kMutate };

  explicit Operation(Kind kind_in) : kind(kind_in) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // --- Set by the caller ---
  const Kind kind;
  bool allow_partial = false;       // not kMutate: finishes once it has progress and would have to wait
  bool may_wait = true;             // false: finishes with OK and `wait_reason` instead of waiting
  std::optional<Duration> timeout;  // absent = wait forever, zero = try once
  std::span<Item> items;            // kInsert; consumed in order
  // kInsert: receives each item's number under the table's lock as the item is stored, so that it agrees with
  // a snapshot of the table. Null when items have no numbers; outlives the operation.
  std::atomic<uint64_t>* last_stored = nullptr;
  int64_t count = 0;                        // kSample
  std::vector<Sample>* samples = nullptr;   // kSample; appended to
  BatchOrder order;                         // kSample; receives the first sample of the batch
  std::span<const KeyPriority> updates;     // kMutate
  std::span<const uint64_t> deletes;        // kMutate
  std::function<void(Operation&)> on_done;  // asynchronous operations only

  // --- Results, once finished ---
  Status status;
  int64_t progress = 0;                        // items inserted, or samples drawn, whatever the status
  WaitReason wait_reason = WaitReason::kNone;  // why it waits, or would have to

  // --- Owned by the table ---
  Operation* next_pushed = nullptr;  // list of operations handed to the lock's holder
  std::shared_ptr<Operation> self;   // keeps an asynchronous operation alive until on_done was called
  bool has_waited = false;
  TimePoint queued_at;     // start of the whole wait
  TimePoint reason_since;  // start of the wait for the current reason
  std::optional<TimePoint> deadline;
  Operation* prev_waiter = nullptr;
  Operation* next_waiter = nullptr;
  bool is_waiting = false;             // linked into a queue
  bool cancel_requested = false;       // before the table started it
  std::atomic<bool> is_queued{false};  // waits for the limiter: its caller need not spin

  // 0 = in progress; 1 = finished; else the Parker of the sleeping caller.
  static constexpr uintptr_t kUnderWay = 0;
  static constexpr uintptr_t kFinished = 1;
  std::atomic<uintptr_t> signal{kUnderWay};

  bool finished() const { return signal.load(std::memory_order_acquire) == kFinished; }

  // Storage of asynchronous operations.
  std::vector<Item> own_items;
  std::vector<Sample> own_samples;
};

// Operations that wait, first come first served.
class WaitQueue {
 public:
  bool empty() const { return head_ == nullptr; }
  int64_t size() const { return size_; }
  Operation* head() const { return head_; }
  void PushBack(Operation* op) {
    op->prev_waiter = tail_;
    op->next_waiter = nullptr;
    (tail_ ? tail_->next_waiter : head_) = op;
    tail_ = op;
    op->is_waiting = true;
    ++size_;
  }
  void Remove(Operation* op) {
    (op->prev_waiter ? op->prev_waiter->next_waiter : head_) = op->next_waiter;
    (op->next_waiter ? op->next_waiter->prev_waiter : tail_) = op->prev_waiter;
    op->prev_waiter = op->next_waiter = nullptr;
    op->is_waiting = false;
    --size_;
  }

 private:
  Operation* head_ = nullptr;
  Operation* tail_ = nullptr;
  int64_t size_ = 0;
};

// Lets another thread cancel a synchronous wait.
class Cancellation {
 public:
  // Ends the operations that use it with CANCELLED, now and later. Returns when all hooks have run.
  void Cancel() EXCLUDES(mu_) {
    // Hooks take a table's lock and may run callbacks of other operations, which may call this object: so
    // they run without mu_, and Remove() waits for them.
    std::map<uint64_t, std::function<void()>> hooks;
    {
      MutexLock lock(&mu_);
      cancelled_ = true;
      hooks.swap(hooks_);
      ++running_;
    }
    for (auto& [id, hook] : hooks) hook();
    MutexLock lock(&mu_);
    --running_;
    idle_.NotifyAll();
  }
  bool cancelled() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return cancelled_;
  }
  // Registers `hook`, which runs at most once, if Cancel() is called before Remove(). Returns false, without
  // registering it, when Cancel() was called already.
  bool Add(uint64_t* id, std::function<void()> hook) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (cancelled_) return false;
    *id = ++last_id_;
    hooks_.emplace(*id, std::move(hook));
    return true;
  }
  // Unregisters the hook. On return it is not running and will not run.
  void Remove(uint64_t id) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (hooks_.erase(id) > 0) return;
    while (running_ > 0) idle_.Wait(&mu_);
  }

 private:
  mutable Mutex mu_;
  CondVar idle_;
  bool cancelled_ GUARDED_BY(mu_) = false;
  int running_ GUARDED_BY(mu_) = 0;
  uint64_t last_id_ GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::function<void()>> hooks_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_OPERATION_H_
