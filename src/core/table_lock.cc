// The lock of a table: handing operations over to its holder, waiting for results, callbacks.
#include <algorithm>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/table.h"
#include "core/table_internal.h"

namespace reverb::internal {
namespace {

void CpuRelax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns whether handing the operation over is cheaper than waiting for the lock. The holder has the table
// in its cache and reads the items of an insert once, with prefetching. Samples are read by their caller next,
// which needs them in its own cache.
bool IsHandedOver(const Operation& op) {
  // With many threads, the data of the table would otherwise move from cache to cache with the lock.
  const size_t max_changes = HasManyProcessors() ? 128 : 16;
  constexpr int64_t kMaxSamples = 4;
  switch (op.kind) {
    case Operation::Kind::kInsert:
      return op.items.size() <= max_changes;
    case Operation::Kind::kSample:
      return op.count <= kMaxSamples;
    case Operation::Kind::kMutate:
      return op.updates.size() + op.deletes.size() <= max_changes;
  }
  return false;
}

}  // namespace

bool HasManyProcessors() {
  constexpr unsigned kMinProcessors = 8;
  static const bool has_many = std::thread::hardware_concurrency() >= kMinProcessors;
  return has_many;
}

void ConcurrentTable::Execute(Operation* op) {
  if (!mu_.TryLock()) {
    if (!IsHandedOver(*op)) {
      LockForLargeOperation();
      StartOwn(op);
      return;
    }
    Push(op);
    // The holder may have checked pushed_ for the last time just before: then the lock is free now.
    if (!mu_.TryLock()) return;
    ScopedRound round;
    FinishRound(round.get());
    return;
  }
  StartOwn(op);
}

void ConcurrentTable::LockForLargeOperation() {
  // Other operations take some microseconds, about as long as going to sleep and being woken. The pauses grow,
  // so that many waiting threads rarely touch the lock's cache line.
  constexpr int kAttempts = 32;
  constexpr int kMaxPauses = 16;
  for (int i = 0, pauses = 1; HasManyProcessors() && i < kAttempts; ++i) {
    for (int pause = 0; pause < pauses; ++pause) CpuRelax();
    if (mu_.TryLock()) return;
    pauses = std::min(2 * pauses, kMaxPauses);
  }
  mu_.Lock();
}

void ConcurrentTable::StartOwn(Operation* op) {
  ScopedRound round;
  // Operations handed over earlier go first, including those of this thread.
  if (pushed_.load(std::memory_order_relaxed) != nullptr) RunHandedOver(round.get());
  // No thread sleeps on an operation that its own caller finishes.
  round->own = op;
  Start(op, round.get());
  round->own = nullptr;
  FinishRound(round.get());
}

void ConcurrentTable::Push(Operation* op) {
  Operation* head = pushed_.load(std::memory_order_relaxed);
  do {
    op->next_pushed = head;
  } while (!pushed_.compare_exchange_weak(head, op, std::memory_order_acq_rel, std::memory_order_relaxed));
}

void ConcurrentTable::RunHandedOver(Round* round) {
  Operation* op = pushed_.exchange(nullptr, std::memory_order_acq_rel);
  Operation* oldest = nullptr;
  while (op != nullptr) {
    Operation* const next = op->next_pushed;
    op->next_pushed = oldest;
    oldest = op;
    op = next;
  }
  while (oldest != nullptr) {
    Operation* const next = oldest->next_pushed;  // the operation may be destroyed once finished
    Start(oldest, round);
    oldest = next;
  }
}

void ConcurrentTable::FinishRound(Round* round) {
  bool runs_callbacks = false;             // this thread runs callbacks now
  std::shared_ptr<ConcurrentTable> alive;  // a callback may drop the last other reference
  for (int turn = 1;; ++turn) {
    if (pushed_.load(std::memory_order_relaxed) != nullptr) RunHandedOver(round);
    if (!inserts_.empty() || !samples_.empty()) Advance(round);
    const auto state = !samples_.empty()   ? TableStats::State::kSamplesWait
                       : !inserts_.empty() ? TableStats::State::kInsertsWait
                                           : TableStats::State::kIdle;
    if (state != stats_.state()) stats_.SetState(state, environment_.clock->Now());
    if (!deadlines_.empty() || state_->depends_on_time()) ArmAlarm();
    ChargeIndex();

    if (!callbacks_.empty() && alive == nullptr) alive = weak_from_this().lock();  // null in the destructor
    // Work for other callers must not occupy one caller, or the clock's thread, forever: after some turns
    // an alarm continues it.
    const bool hand_on = turn >= kMaxTurns && alive != nullptr;
    // Callbacks run one at a time: a thread that runs them now will run these too.
    if (callbacks_.empty() || hand_on) {
      if (std::exchange(runs_callbacks, false)) calling_back_ = false;
    } else if (runs_callbacks || !calling_back_) {
      calling_back_ = runs_callbacks = true;
      round->callbacks.swap(callbacks_);
    }
    const bool again = std::exchange(advance_again_, false);
    mu_.Unlock();

    WakeAndRunEffects(round);
    if (hand_on) {
      environment_.clock->CallAt(environment_.clock->Now(), [weak = weak_from_this()] {
        if (const auto table = weak.lock()) table->WithLock([](Round*) {});
      });
      return;
    }
    if (runs_callbacks) RunCallbacks(round);
    if (again || runs_callbacks) {
      mu_.Lock();
      continue;
    }
    // Check for operations handed over since the last look. Either this exchange comes before the push,
    // whose thread then sees the lock released and takes it; or it comes after, and sees what was pushed.
    // (A plain load guarantees neither.)
    Operation* expected = nullptr;
    if (pushed_.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel)) return;
    if (!mu_.TryLock()) return;  // the thread that holds it now will check pushed_ too
  }
}

void ConcurrentTable::WakeAndRunEffects(Round* round) {
  for (Operation* op : round->finished) {
    const uintptr_t signal = op->signal.exchange(Operation::kFinished, std::memory_order_acq_rel);
    // `op` may be destroyed from here on.
    if (signal != Operation::kUnderWay) reinterpret_cast<Parker*>(signal)->Unpark();
  }
  round->finished.clear();
  round->effects.RunAndClear();
}

void ConcurrentTable::RunCallbacks(Round* round) {
  for (const std::shared_ptr<Operation>& op : round->callbacks) {
    op->signal.store(Operation::kFinished, std::memory_order_release);
    if (op->on_done) op->on_done(*op);
    op->on_done = nullptr;  // releases what it captured
  }
  round->callbacks.clear();
}

ConcurrentTable::Attempt ConcurrentTable::RunOnce(Operation* op) {
  RunToEnd(op, {});
  return {.progress = op->progress, .reason = op->wait_reason, .status = std::move(op->status)};
}

void ConcurrentTable::RunToEnd(Operation* op, const Wait& wait) {
  if (wait.cancellation == nullptr) {
    Execute(op);
    AwaitFinished(op);
    return;
  }
  uint64_t id = 0;
  const bool registered = wait.cancellation->Add(&id, [this, op] {
    WithLock([&](Round* round) {
      mu_.AssertHeld();
      CancelLocked(op, round);
    });
  });
  if (!registered) {
    op->status = Status::Cancelled("table \"" + name() + "\": the call was cancelled before it began");
    return;
  }
  Execute(op);
  AwaitFinished(op);
  wait.cancellation->Remove(id);
}

void ConcurrentTable::AwaitFinished(Operation* op) {
  // The operation was handed over; the lock's holder is at most a few operations away, unless it was
  // descheduled. Spin little: with more threads than processors, spinning takes time from the holder.
  constexpr int kSpins = 8;
  constexpr int kYields = 64;
  for (int i = 0; i < kSpins + kYields; ++i) {
    if (op->finished()) return;
    if (op->is_queued.load(std::memory_order_acquire)) break;
    if (i < kSpins) {
      CpuRelax();
    } else {
      std::this_thread::yield();
    }
    if (i % 8 == 7 && mu_.TryLock()) {
      ScopedRound round;
      FinishRound(round.get());
    }
  }
  // Used for this wait only: while this thread runs operations below, callbacks may wait in nested calls.
  Parker parker;
  uintptr_t expected = Operation::kUnderWay;
  if (!op->signal.compare_exchange_strong(expected, reinterpret_cast<uintptr_t>(&parker),
                                          std::memory_order_acq_rel)) {
    return;  // finished meanwhile
  }
  // From here on the finishing thread calls Unpark(), which must be waited for. Until a thread has started
  // the operation, try to run it here from time to time.
  for (;;) {
    if (op->is_queued.load(std::memory_order_acquire)) {
      parker.Park();
      return;
    }
    if (parker.ParkFor(std::chrono::milliseconds(1))) return;
    if (mu_.TryLock()) {
      ScopedRound round;
      FinishRound(round.get());
    }
  }
}

}  // namespace reverb::internal
