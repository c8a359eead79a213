// Operations of a table under its lock: inserts, samples and updates, and how inserts and samples wait.
#include <algorithm>
#include <string>
#include <utility>

#include "core/table.h"
#include "core/table_internal.h"
#include "tensor/limiter_text.h"

namespace reverb::internal {
namespace {

std::string Millis(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) + "ms";
}

}  // namespace

void ConcurrentTable::Start(Operation* op, Round* round) {
  if (!op->status.ok()) return Finish(op, std::move(op->status), round);  // rejected by the caller's checks
  if (op->cancel_requested) {
    return Finish(op, Status::Cancelled("table \"" + name() + "\": the call was cancelled by its caller"),
                  round);
  }
  RemoveAged(round);
  if (op->kind == Operation::Kind::kMutate) return StartMutate(op, round);
  if (closed_) return Finish(op, ClosedError(), round);
  const bool timed = stats_.ShouldTime();
  const TimePoint began = timed ? environment_.clock->Now() : TimePoint();
  const bool is_insert = op->kind == Operation::Kind::kInsert;
  if (is_insert) {
    StartInsert(op, round);
  } else {
    StartSample(op, round);
  }
  if (timed) {
    const TimePoint ended = environment_.clock->Now();
    is_insert ? stats_.CountInserting(ended - began) : stats_.CountSampling(ended - began);
    stats_.NoteCounters(ended, state_->limiter().counters());
  }
}

// Returns whether an insert that cannot continue now is finished.
bool ConcurrentTable::IsDone(const Operation& insert) {
  return insert.progress == static_cast<int64_t>(insert.items.size()) ||
         (insert.allow_partial && insert.progress > 0);
}

void ConcurrentTable::StartInsert(Operation* op, Round* round) {
  const auto total = static_cast<int64_t>(op->items.size());
  if (inserts_.empty()) {
    // Items are cold, and other threads may have written them: prefetch some ahead of the current one.
    constexpr int64_t kAhead = 4;
    for (int64_t i = op->progress; i < std::min(total, op->progress + kAhead); ++i) {
      state_->PrefetchInsert(op->items[static_cast<size_t>(i)]);
    }
    const int64_t wall_nanos = environment_.clock->WallNanos();
    WaitReason reason = WaitReason::kNone;
    while (op->progress < total && reason == WaitReason::kNone) {
      if (op->progress + kAhead < total) {
        state_->PrefetchInsert(op->items[static_cast<size_t>(op->progress + kAhead)]);
      }
      reason = ApplyNextItem(op, wall_nanos, round);
      // Alternate with waiting samples, which may make room for the next item.
      if (!samples_.empty() && AdvanceSample(round)) reason = WaitReason::kNone;
    }
    return IsDone(*op) ? Finish(op, Status::Ok(), round) : Enqueue(op, reason, round);
  }
  // Other inserts wait already. Inserts of existing keys are priority updates and need not wait.
  while (op->progress < total && state_->Contains(op->items[op->progress].key)) {
    StoreNextItem(op, 0, round);
  }
  IsDone(*op) ? Finish(op, Status::Ok(), round) : Enqueue(op, WaitReason::kQueued, round);
}

WaitReason ConcurrentTable::ApplyNextItem(Operation* op, int64_t wall_nanos, Round* round) {
  Item& item = op->items[static_cast<size_t>(op->progress)];
  WaitReason reason = state_->limiter().InsertWaitReason();
  // The data of an item whose key exists is not stored, so it needs no room.
  const bool is_bounded = !environment_.store->HasRoomForAny();
  if ((is_bounded || reason != WaitReason::kNone) && !state_->Contains(item.key)) {
    if (reason == WaitReason::kNone) reason = MakeRoom(item, round);
    if (reason != WaitReason::kNone) return reason;
  }
  StoreNextItem(op, wall_nanos, round);
  return WaitReason::kNone;
}

void ConcurrentTable::StoreNextItem(Operation* op, int64_t wall_nanos, Round* round) {
  Item& item = op->items[static_cast<size_t>(op->progress)];
  if (op->last_stored != nullptr) op->last_stored->store(item.number, std::memory_order_relaxed);
  state_->InsertOrAssign(std::move(item), wall_nanos, &round->effects);
  ++op->progress;
}

WaitReason ConcurrentTable::MakeRoom(const Item& item, Round* round) {
  ChunkStore& store = *environment_.store;
  int64_t evicted = 0;
  for (bool registered = false;;) {
    int64_t more = 0;
    item.trajectory.ForEachChunk([&](const Chunk* chunk) {
      if (!chunk->is_stored()) more += chunk->bytes();
    });
    if (store.HasRoomFor(more)) return WaitReason::kNone;
    if (MayEvictFor(item, more, evicted)) {
      const int64_t before = state_->referenced_bytes();
      state_->EvictOne(&round->effects);
      const int64_t bytes = std::max<int64_t>(before - state_->referenced_bytes(), 1);
      evicted += bytes;
      if (store.tier() != nullptr) store.tier()->NoteEvicted(bytes);
      continue;
    }
    if (registered) return WaitReason::kMemory;
    // Register for a wake-up, then check again: room made in between would go unnoticed.
    WaitForRoom();
    registered = true;
  }
}

bool ConcurrentTable::MayEvictFor(const Item& item, int64_t more, int64_t evicted) const {
  const ChunkStore& store = *environment_.store;
  // A full table would evict for this item anyway. With kEvict any table evicts, unless the data of other
  // tables alone leaves no room. (Shared chunks make that sum too optimistic, never too strict.)
  const bool evicts = store.options().policy == MemoryPolicy::kEvict;
  if (evicts ? state_->size() < 1 : !state_->IsFullFor(item)) return false;
  if (const ChunkTier* const tier = store.tier();
      tier != nullptr && store.HasRoomInBound(more) &&
      (tier->holds_memory() || store.budget().HasRoomToKeep(more))) {
    // The tier makes room, or just did. If it cannot, evicting frees memory, or space on the disk for the tier.
    return tier->MayEvict() && evicted <= 2 * more;
  }
  if (!evicts) return true;
  const int64_t own = state_->referenced_bytes();
  if (!store.HasRoomInBound(more)) return store.stored_bytes() - own + more <= *store.options().max_bytes;
  const MemoryBudget::Usage usage = store.budget().usage();
  const int64_t missing = usage.kept() + more - store.budget().shares().kept;
  if (own < missing) return false;
  // What a snapshot keeps is not freed by evicting it. Evicts only as much as makes room once that is written, and waits.
  return !state_->parks_removed_items() || usage.parked < missing;
}

void ConcurrentTable::WaitForRoom() {
  if (room_ticket_ != 0) environment_.store->StopWaiting(room_ticket_);
  room_ticket_ = environment_.store->WaitForRoom([weak = weak_from_this()] {
    if (const auto table = weak.lock()) table->WithLock([](Round*) {});
  });
}

void ConcurrentTable::StartSample(Operation* op, Round* round) {
  if (!samples_.empty()) return Enqueue(op, WaitReason::kQueued, round);
  if (Status status = Draw(op, round); !status.ok()) return Finish(op, std::move(status), round);
  if (HasEnough(*op)) return Finish(op, Status::Ok(), round);
  Enqueue(op, SampleWaitReason(*op), round);
}

Status ConcurrentTable::Draw(Operation* op, Round* round) {
  const int64_t missing = op->count - op->progress;
  if (op->order.lease > Duration(0)) return DrawLeased(op);
  if (op->order.rules.empty()) [[likely]] {
    op->progress += state_->Sample(missing, op->has_waited, op->samples, &round->effects);
    return Status::Ok();
  }
  // Checked each time: the limits of the table may have changed.
  if (op->order.rules.all_or_nothing) REVERB_RETURN_IF_ERROR(state_->CheckWholeBatch(op->count));
  // A batch is taken in parts if it does not fit into the table, or if waiting inserts may need the room.
  const bool whole = op->order.rules.all_or_nothing ||
                     (op->order.rules.check != BatchCheck::kNone && state_->removes_sampled_items() &&
                      inserts_.empty() && state_->CanDrawWhole(op->count));
  const size_t before = op->samples->size();
  const Result<int64_t> result =
      state_->SampleBatch(missing, op->order.rules, op->order.first.empty() ? nullptr : &op->order.first,
                          whole, op->has_waited, op->samples, &round->effects);
  const auto drawn = static_cast<int64_t>(op->samples->size() - before);
  op->progress += drawn;
  if (drawn > 0 && op->order.first.empty()) op->order.first = (*op->samples)[before].trajectory;
  REVERB_RETURN_IF_ERROR(result.status());
  if (drawn == 0 && op->order.rules.all_or_nothing) return state_->CheckMayComplete(op->count);
  return Status::Ok();
}

// Draws all samples together, or none. Two consumers that hold a part of a batch each, and wait for the rest, would
// wait for the end of the other's leases, and leases would run while their samples wait.
Status ConcurrentTable::DrawLeased(Operation* op) {
  if (op->count > 1) REVERB_RETURN_IF_ERROR(state_->CheckWholeLease(op->count));
  const size_t before = op->samples->size();
  const Result<int64_t> drawn = state_->SampleLeased(
      op->count - op->progress, op->order.rules, op->order.first.empty() ? nullptr : &op->order.first,
      /*whole=*/true, op->has_waited, LeaseEnd(op->order.lease), op->samples);
  REVERB_RETURN_IF_ERROR(drawn.status());
  op->progress += *drawn;
  if (*drawn > 0 && op->order.first.empty()) op->order.first = (*op->samples)[before].trajectory;
  return *drawn == 0 && op->count > 1 ? state_->CheckMayComplete(op->count) : Status::Ok();
}

WaitReason ConcurrentTable::SampleWaitReason(const Operation& op) const {
  const WaitReason reason = state_->SampleWaitReason();
  if (reason != WaitReason::kNone || op.progress == op.count) return reason;
  // One sample would be allowed, but not a whole batch.
  const RateLimiter& limiter = state_->limiter();
  if (state_->has_leases()) return WaitReason::kLeased;
  return limiter.cursor() - static_cast<double>(op.count - op.progress) < limiter.options().min_diff
             ? WaitReason::kTooManySamples
             : WaitReason::kMinSize;
}

bool ConcurrentTable::HasEnough(const Operation& op) const {
  return op.progress == op.count || (op.allow_partial && op.progress > 0);
}

void ConcurrentTable::StartMutate(Operation* op, Round* round) {
  state_->Mutate(op->updates, op->deletes, &round->effects);
  Finish(op, Status::Ok(), round);
}

bool ConcurrentTable::RemoveAged(Round* round, int64_t most) {
  if (!state_->depends_on_time()) [[likely]]
    return has_aged_ = false;
  has_aged_ = state_->AdvanceTo(environment_.clock->Now(), &round->effects, most);
  return has_aged_;
}

std::optional<TimePoint> ConcurrentTable::NextAgedAlarm() const {
  if (!state_->depends_on_time()) return std::nullopt;
  // Not before what is due already.
  if (has_aged_) return environment_.clock->Now();
  std::optional<TimePoint> due = state_->NextLeaseExpiry();
  const std::optional<TimePoint> next = state_->has_max_age() ? state_->NextAged() : std::nullopt;
  if (!next) return due;
  const Duration slack =
      std::clamp<Duration>(state_->max_age() / 128, std::chrono::milliseconds(1), std::chrono::seconds(1));
  if (*next < TimePoint::max() - slack) due = std::min(*next + slack, due.value_or(TimePoint::max()));
  return due;
}

void ConcurrentTable::Advance(Round* round) {
  // Waiting calls continue when all old items are gone.
  if (RemoveAged(round, kMaxRemovals)) return;
  for (int budget = kMaxAdvance; budget > 0; --budget) {
    const bool inserted = !inserts_.empty() && AdvanceInsert(round);
    const bool sampled = !samples_.empty() && AdvanceSample(round);
    if (!inserted && !sampled) return;
  }
  advance_again_ = true;
}

bool ConcurrentTable::AdvanceInsert(Round* round) {
  Operation* const op = inserts_.head();
  const WaitReason reason = ApplyNextItem(op, environment_.clock->WallNanos(), round);
  if (reason != WaitReason::kNone) {
    if (IsDone(*op)) {
      Finish(op, Status::Ok(), round);
      return true;
    }
    SetReason(op, reason);
    return false;
  }
  if (op->progress == static_cast<int64_t>(op->items.size())) Finish(op, Status::Ok(), round);
  return true;
}

bool ConcurrentTable::AdvanceSample(Round* round) {
  Operation* const op = samples_.head();
  const int64_t before = op->progress;
  if (Status status = Draw(op, round); !status.ok()) {
    Finish(op, std::move(status), round);
    return true;
  }
  if (HasEnough(*op)) {
    Finish(op, Status::Ok(), round);
    return true;
  }
  SetReason(op, SampleWaitReason(*op));
  return op->progress > before;
}

// --- Waiting ---------------------------------------------------------------------------------

WaitQueue& ConcurrentTable::QueueOf(const Operation& op) {
  return op.kind == Operation::Kind::kInsert ? inserts_ : samples_;
}

void ConcurrentTable::Enqueue(Operation* op, WaitReason reason, Round* round) {
  op->wait_reason = reason;
  if (!op->may_wait) return Finish(op, Status::Ok(), round);
  if (op->timeout && *op->timeout <= Duration(0)) {
    op->queued_at = environment_.clock->Now();
    return Finish(op, TimeoutError(*op), round);
  }
  op->has_waited = true;
  op->queued_at = op->reason_since = environment_.clock->Now();
  QueueOf(*op).PushBack(op);
  if (op->timeout) {
    // A timeout so long that the sum would overflow means no timeout.
    if (*op->timeout < TimePoint::max() - op->queued_at) {
      op->deadline = op->queued_at + *op->timeout;
      deadlines_.emplace(*op->deadline, op);
    }
  }
  op->is_queued.store(true, std::memory_order_release);
}

void ConcurrentTable::Dequeue(Operation* op) {
  WaitQueue& queue = QueueOf(*op);
  queue.Remove(op);
  stats_.CountWait(op->wait_reason, environment_.clock->Now() - op->reason_since,
                   op->kind == Operation::Kind::kInsert);
  // The next in the queue no longer waits for others.
  if (!queue.empty() && queue.head()->wait_reason == WaitReason::kQueued) {
    const WaitReason reason = op->kind == Operation::Kind::kInsert ? state_->limiter().InsertWaitReason()
                                                                   : state_->SampleWaitReason();
    if (reason != WaitReason::kNone) SetReason(queue.head(), reason);
  }
  if (!op->deadline) return;
  for (auto it = deadlines_.lower_bound(*op->deadline); it != deadlines_.end(); ++it) {
    if (it->second != op) continue;
    deadlines_.erase(it);
    return;
  }
}

void ConcurrentTable::SetReason(Operation* op, WaitReason reason) {
  if (op->wait_reason == reason) return;
  const TimePoint now = environment_.clock->Now();
  stats_.CountWait(op->wait_reason, now - op->reason_since, op->kind == Operation::Kind::kInsert);
  op->wait_reason = reason;
  op->reason_since = now;
}

void ConcurrentTable::Finish(Operation* op, Status status, Round* round) {
  if (op->is_waiting) Dequeue(op);
  op->status = std::move(status);
  if (op->self) {
    callbacks_.push_back(std::move(op->self));
  } else if (op == round->own) {
    op->signal.store(Operation::kFinished, std::memory_order_relaxed);
  } else if (uintptr_t expected = Operation::kUnderWay;
             !op->signal.compare_exchange_strong(expected, Operation::kFinished, std::memory_order_acq_rel)) {
    round->finished.push_back(op);  // its caller sleeps: wake it without the lock
  }
}

Status ConcurrentTable::TimeoutError(const Operation& op) const {
  const bool is_insert = op.kind == Operation::Kind::kInsert;
  const Duration waited = environment_.clock->Now() - op.queued_at;
  std::string text = "table \"" + name() + "\": Timeout exceeded: ";
  if (is_insert) {
    text += std::to_string(op.progress) + " of " + std::to_string(op.items.size()) + " items inserted in ";
  } else {
    text += std::to_string(op.progress) + " of " + std::to_string(op.count) + " samples drawn" +
            (op.order.rules.all_or_nothing ? " (all_or_nothing) in " : " in ");
  }
  text += Millis(waited) + ", then " + std::string(WaitReasonName(op.wait_reason)) + " (" +
          state_->limiter().Describe();
  if (!is_insert && state_->num_leased() > 0) {
    text += "; items that are leased: " + std::to_string(state_->num_leased());
  }
  if (op.wait_reason == WaitReason::kMemory) {
    text += "; " + environment_.store->DescribeMemory();
  }
  if (op.wait_reason == WaitReason::kQueued) {
    const WaitQueue& queue = is_insert ? inserts_ : samples_;
    text += "; " + std::to_string(queue.size()) + " callers in the queue";
    if (!queue.empty()) text += ", the first: " + std::string(WaitReasonName(queue.head()->wait_reason));
  }
  return Status::DeadlineExceeded(text + ")").WithDetail(DetailOf(op.wait_reason));
}

void ConcurrentTable::ArmAlarm() {
  std::optional<TimePoint> due = NextAgedAlarm();
  if (!deadlines_.empty()) due = std::min(deadlines_.begin()->first, due.value_or(TimePoint::max()));
  if (!due) return;
  const TimePoint next = *due;
  if (armed_for_ && *armed_for_ <= next) return;
  if (alarm_ != 0) environment_.clock->Cancel(alarm_);
  armed_for_ = next;
  alarm_ = environment_.clock->CallAt(next, [weak = weak_from_this(), next] {
    if (const auto table = weak.lock()) table->OnAlarm(next);
  });
}

void ConcurrentTable::OnAlarm(TimePoint armed_for) {
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    if (armed_for_ == armed_for) {
      armed_for_.reset();
      alarm_ = 0;
    }
    // Run the operations that are allowed now, then time out the others. If Advance() stopped early, the
    // alarm is set again.
    Advance(round);
    const TimePoint now = environment_.clock->Now();
    while (!advance_again_ && !has_aged_ && !deadlines_.empty() && deadlines_.begin()->first <= now) {
      Operation* const op = deadlines_.begin()->second;
      Finish(op, TimeoutError(*op), round);
    }
  });
}

}  // namespace reverb::internal
