// The lock of a table: handing operations over to its holder, waiting for results, callbacks.
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

// Worth handing over: little to read and to write, compared with passing the lock on.
bool IsSmall(const Operation& op) {
  constexpr size_t kFew = 4;
  switch (op.kind) {
    case Operation::Kind::kInsert:
      return op.items.size() <= kFew;
    case Operation::Kind::kSample:
      return op.count <= static_cast<int64_t>(kFew);
    case Operation::Kind::kMutate:
      return op.updates.size() + op.deletes.size() <= kFew;
  }
  return false;
}

}  // namespace

void ConcurrentTable::Execute(Operation* op) {
  if (!mu_.TryLock()) {
    // A large operation moves so much memory that its own thread had better do it.
    if (!IsSmall(*op)) {
      mu_.Lock();
      StartOwn(op);
      return;
    }
    Push(op);
    // The holder may have looked for the last time just before: then the lock is free by now.
    if (!mu_.TryLock()) return;
    ScopedRound round;
    FinishRound(round.get());
    return;
  }
  StartOwn(op);
}

void ConcurrentTable::StartOwn(Operation* op) {
  ScopedRound round;
  // What was handed over before goes first, also what this very thread handed over.
  if (pushed_.load(std::memory_order_relaxed) != nullptr) TakeHandedOver(round.get());
  // Nobody sleeps on an operation that its own caller finishes.
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

void ConcurrentTable::TakeHandedOver(Round* round) {
  Operation* op = pushed_.exchange(nullptr, std::memory_order_acq_rel);
  Operation* oldest = nullptr;
  while (op != nullptr) {
    Operation* const next = op->next_pushed;
    op->next_pushed = oldest;
    oldest = op;
    op = next;
  }
  while (oldest != nullptr) {
    Operation* const next = oldest->next_pushed;  // the operation may be gone once finished
    Start(oldest, round);
    oldest = next;
  }
}

void ConcurrentTable::FinishRound(Round* round) {
  bool runs_callbacks = false;             // this thread, for now
  std::shared_ptr<ConcurrentTable> alive;  // a callback may let go of the last other reference
  for (int turn = 1;; ++turn) {
    if (pushed_.load(std::memory_order_relaxed) != nullptr) TakeHandedOver(round);
    if (!inserts_.empty() || !samples_.empty()) Advance(round);
    const auto state = !samples_.empty()   ? TableStats::State::kSamplesWait
                       : !inserts_.empty() ? TableStats::State::kInsertsWait
                                           : TableStats::State::kIdle;
    if (state != stats_.state()) stats_.SetState(state, environment_.clock->Now());
    if (!deadlines_.empty()) ArmAlarm();

    if (!callbacks_.empty() && alive == nullptr) alive = weak_from_this().lock();  // null in the destructor
    // Others' work must not keep one caller, or the clock's thread, for ever: after some turns the clock
    // is asked to call again.
    const bool hand_on = turn >= kMaxTurns && alive != nullptr;
    // Callbacks run one at a time: whoever runs them now will also see to these.
    if (callbacks_.empty() || hand_on) {
      if (std::exchange(runs_callbacks, false)) calling_back_ = false;
    } else if (runs_callbacks || !calling_back_) {
      calling_back_ = runs_callbacks = true;
      round->callbacks.swap(callbacks_);
    }
    const bool again = std::exchange(advance_again_, false);
    mu_.Unlock();

    LetGo(round);
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
    // Was anything handed over since we looked? Either this exchange comes before the push, which then
    // sees the lock given up and takes it; or it comes after, and sees what was pushed. (A plain load
    // could do neither.)
    Operation* expected = nullptr;
    if (pushed_.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel)) return;
    if (!mu_.TryLock()) return;  // whoever has it now will look, too
  }
}

void ConcurrentTable::LetGo(Round* round) {
  for (Operation* op : round->finished) {
    const uintptr_t signal = op->signal.exchange(Operation::kFinished, std::memory_order_acq_rel);
    // From here on `op` may be gone.
    if (signal != Operation::kUnderWay) reinterpret_cast<Parker*>(signal)->Unpark();
  }
  round->finished.clear();
  round->effects.LetGo();
}

void ConcurrentTable::RunCallbacks(Round* round) {
  for (const std::shared_ptr<Operation>& op : round->callbacks) {
    op->signal.store(Operation::kFinished, std::memory_order_release);
    if (op->on_done) op->on_done(*op);
    op->on_done = nullptr;  // lets go of what it holds
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
  // Handed over: the holder of the lock is at most a few operations away, unless it was descheduled.
  // Few spins: with more threads than processors they would take the time that the holder needs.
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
  // Of this wait alone: while we look after the table, callbacks may wait in calls of their own.
  Parker parker;
  uintptr_t expected = Operation::kUnderWay;
  if (!op->signal.compare_exchange_strong(expected, reinterpret_cast<uintptr_t>(&parker),
                                          std::memory_order_acq_rel)) {
    return;  // finished just now
  }
  // From here on the one who finishes it will call Unpark, and must be waited for. As long as nobody
  // has looked at the operation, look after it ourselves now and then.
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
