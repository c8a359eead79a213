#include "core/table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/log.h"
#include "core/table_internal.h"

namespace reverb::internal {

Result<std::shared_ptr<ConcurrentTable>> ConcurrentTable::Create(TableOptions options,
                                                                 Environment environment) {
  if (environment.store == nullptr) {
    return Status::InvalidArgument("table \"" + options.name + "\": no chunk store was given");
  }
  if (const std::optional<int64_t> most = environment.store->options().max_bytes; most && *most < 1) {
    return Status::InvalidArgument("table \"" + options.name + "\": max_bytes of its store is " +
                                   std::to_string(*most) +
                                   ", so no item would fit; set it to at least 1, or to none for no bound");
  }
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<TableState> state, TableState::Create(std::move(options)));
  return std::shared_ptr<ConcurrentTable>(new ConcurrentTable(std::move(state), std::move(environment)));
}

ConcurrentTable::ConcurrentTable(std::unique_ptr<TableState> state, Environment environment)
    : environment_(std::move(environment)),
      state_(std::move(state)),
      has_max_age_(state_->has_max_age()),
      max_times_sampled_(state_->max_times_sampled()),
      max_bytes_(state_->max_bytes()),
      index_charge_(&environment_.store->budget(), MemoryPart::kIndex),
      stats_(environment_.clock->Now()) {
  state_->ChargeSnapshotsTo(&environment_.store->budget());
}

ConcurrentTable::~ConcurrentTable() {
  // No other thread holds the table, so no call waits in it. Asynchronous operations hold it through their
  // callbacks; remaining ones end with the table closed.
  Close();
  MutexLock lock(&mu_);
  if (alarm_ != 0) environment_.clock->Cancel(alarm_);
}

Status ConcurrentTable::CheckItem(const Item& item) const {
  REVERB_RETURN_IF_ERROR(state_->CheckItem(item));
  bool is_foreign = false;
  item.trajectory.ForEachChunk([&](const Chunk* chunk) { is_foreign |= !environment_.store->Holds(*chunk); });
  if (is_foreign) {
    return Status::InvalidArgument("table \"" + name() + "\", item " + std::to_string(item.key) +
                                   ": a chunk belongs to another store; add it to this table's store first");
  }
  const auto& max_bytes = environment_.store->options().max_bytes;
  if (max_bytes && item.trajectory.chunk_bytes() > *max_bytes) {
    return Status::ResourceExhausted("table \"" + name() + "\", item " + std::to_string(item.key) +
                                     ": its chunks take " + std::to_string(item.trajectory.chunk_bytes()) +
                                     " bytes, more than the store's max_bytes of " +
                                     std::to_string(*max_bytes) + "; write shorter items or raise max_bytes")
        .WithDetail(Detail::kMemoryFull);
  }
  const int64_t own_max_bytes = max_bytes_.load(std::memory_order_relaxed);
  if (own_max_bytes > 0 && item.trajectory.chunk_bytes() > own_max_bytes) {
    return Status::ResourceExhausted(
               "table \"" + name() + "\", item " + std::to_string(item.key) + ": its chunks take " +
               std::to_string(item.trajectory.chunk_bytes()) + " bytes, more than the table's max_bytes of " +
               std::to_string(own_max_bytes) + "; write shorter items or raise max_bytes")
        .WithDetail(Detail::kMemoryFull);
  }
  const MemoryBudget& budget = environment_.store->budget();
  if (budget.limit() && item.trajectory.chunk_bytes() > budget.shares().kept) {
    return Status::ResourceExhausted(
               "table \"" + name() + "\", item " + std::to_string(item.key) + ": its chunks take " +
               std::to_string(item.trajectory.chunk_bytes()) + " bytes, more than the " +
               std::to_string(budget.shares().kept) + " for items in the server's memory_limit of " +
               std::to_string(*budget.limit()) + "; write shorter items or raise memory_limit")
        .WithDetail(Detail::kMemoryFull);
  }
  return Status::Ok();
}

// In builds with assertions only.
void ConcurrentTable::AssertChecked([[maybe_unused]] std::span<const Item> items) const {
  assert(std::ranges::all_of(items, [this](const Item& item) { return CheckItem(item).ok(); }));
}

Status ConcurrentTable::Insert(std::span<Item> items, const Wait& wait, int64_t* applied) {
  if (applied) *applied = 0;
  for (const Item& item : items) REVERB_RETURN_IF_ERROR(CheckItem(item));
  Operation op(Operation::Kind::kInsert);
  op.items = items;
  op.timeout = wait.timeout;
  RunToEnd(&op, wait);
  if (applied) *applied = op.progress;
  return std::move(op.status);
}

ConcurrentTable::Attempt ConcurrentTable::TryInsert(std::span<Item> items,
                                                    std::atomic<uint64_t>* last_stored) {
  AssertChecked(items);
  Operation op(Operation::Kind::kInsert);
  op.items = items;
  op.last_stored = last_stored;
  op.may_wait = false;
  return RunOnce(&op);
}

Status ConcurrentTable::Sample(int64_t count, bool allow_partial, const Wait& wait,
                               std::vector<internal::Sample>* out, const BatchOrder& order) {
  REVERB_RETURN_IF_ERROR(CheckCount(count));
  Operation op(Operation::Kind::kSample);
  op.order = order;
  op.count = count;
  op.allow_partial = allow_partial;
  op.samples = out;
  op.timeout = wait.timeout;
  RunToEnd(&op, wait);
  return std::move(op.status);
}

ConcurrentTable::Attempt ConcurrentTable::TrySample(int64_t count, std::vector<internal::Sample>* out,
                                                    const BatchOrder& order) {
  if (Status status = CheckCount(count); !status.ok()) return {.status = std::move(status)};
  // Allocates without the lock. A larger request may yield far fewer samples.
  constexpr int64_t kReserved = 1024;
  if (out->empty()) out->reserve(static_cast<size_t>(std::min(count, kReserved)));
  // Threads that wait for the lock poll it for a while before they sleep. A large draw releases it in between, so
  // that few of them have to sleep.
  constexpr int64_t kMaxPiece = 128;
  const int64_t piece = HasManyProcessors() && order.is_divisible() ? std::min(count, kMaxPiece) : count;
  Attempt total;
  while (total.progress < count && total.status.ok()) {
    Operation op(Operation::Kind::kSample);
    op.order = order;
    op.count = std::min(piece, count - total.progress);
    op.allow_partial = true;
    op.samples = out;
    op.may_wait = false;
    Attempt attempt = RunOnce(&op);
    total.progress += attempt.progress;
    total.reason = attempt.reason;
    total.status = std::move(attempt.status);
    if (attempt.progress < op.count) break;
  }
  return total;
}

Status ConcurrentTable::CheckCount(int64_t count) const {
  if (count >= 1 && count <= kMaxSampleCount) return Status::Ok();
  return Status::InvalidArgument("table \"" + name() + "\": " + std::to_string(count) +
                                 " samples requested in one call; request 1 to " +
                                 std::to_string(kMaxSampleCount));
}

Status ConcurrentTable::Mutate(std::span<const KeyPriority> updates, std::span<const uint64_t> deletes) {
  for (const KeyPriority& update : updates)
    REVERB_RETURN_IF_ERROR(state_->CheckPriority(update.key, update.priority));
  Operation op(Operation::Kind::kMutate);
  op.updates = updates;
  op.deletes = deletes;
  RunToEnd(&op, {});
  return std::move(op.status);
}

TimePoint ConcurrentTable::LeaseEnd(Duration lease) const {
  const TimePoint now = environment_.clock->Now();
  return lease < TimePoint::max() - now ? now + lease : TimePoint::max();
}

template <typename Settle>
LeaseOutcome ConcurrentTable::SettleInParts(std::span<const LeaseGrant> grants, Settle settle) {
  LeaseOutcome outcome;
  while (!grants.empty()) {
    const auto part = grants.first(std::min<size_t>(grants.size(), kMaxRemovals));
    grants = grants.subspan(part.size());
    WithLock([&](Round* round) {
      mu_.AssertHeld();
      RemoveAged(round);
      outcome += settle(part, round);
    });
  }
  return outcome;
}

LeaseOutcome ConcurrentTable::Acknowledge(std::span<const LeaseGrant> grants) {
  return SettleInParts(grants, [this](std::span<const LeaseGrant> part, Round* round) {
    mu_.AssertHeld();
    return state_->Acknowledge(part, &round->effects);
  });
}

LeaseOutcome ConcurrentTable::Release(std::span<const LeaseGrant> grants) {
  return SettleInParts(grants, [this](std::span<const LeaseGrant> part, Round*) {
    mu_.AssertHeld();
    return state_->Release(part);
  });
}

LeaseOutcome ConcurrentTable::Extend(std::span<const LeaseGrant> grants, Duration lease) {
  return SettleInParts(grants, [this, lease](std::span<const LeaseGrant> part, Round*) {
    mu_.AssertHeld();
    return state_->Extend(part, LeaseEnd(lease));
  });
}

ConcurrentTable::Handle ConcurrentTable::InsertAsync(std::vector<Item> items, std::optional<Duration> timeout,
                                                     std::function<void(Operation&)> on_done,
                                                     bool allow_partial, std::atomic<uint64_t>* last_stored) {
  AssertChecked(items);
  auto op = std::make_shared<Operation>(Operation::Kind::kInsert);
  op->last_stored = last_stored;
  op->allow_partial = allow_partial;
  op->own_items = std::move(items);
  op->items = op->own_items;
  op->timeout = timeout;
  op->on_done = std::move(on_done);
  op->self = op;
  Execute(op.get());
  return op;
}

ConcurrentTable::Handle ConcurrentTable::SampleAsync(int64_t count, bool allow_partial,
                                                     std::optional<Duration> timeout,
                                                     std::function<void(Operation&)> on_done,
                                                     const BatchOrder& order) {
  auto op = std::make_shared<Operation>(Operation::Kind::kSample);
  op->order = order;
  op->count = count;
  op->allow_partial = allow_partial;
  op->samples = &op->own_samples;
  op->timeout = timeout;
  op->on_done = std::move(on_done);
  op->self = op;
  op->status = CheckCount(count);
  Execute(op.get());
  return op;
}

void ConcurrentTable::Cancel(const Handle& handle) {
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    CancelLocked(handle.get(), round);
  });
}

void ConcurrentTable::CancelLocked(Operation* op, Round* round) {
  if (op->finished()) return;
  if (!op->is_waiting) {
    op->cancel_requested = true;  // handed over and not started yet; or finished and about to be reported
    return;
  }
  Finish(op,
         Status::Cancelled("table \"" + name() + "\": the " +
                           (op->kind == Operation::Kind::kInsert ? "insert" : "sample") +
                           " was cancelled by its caller while it waited (" +
                           std::string(WaitReasonName(op->wait_reason)) + ")"),
         round);
}

void ConcurrentTable::Reset() {
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    state_->Reset(&round->effects);
    stats_.ForgetCounters(environment_.clock->Now());
  });
}

Status ConcurrentTable::SetRateLimiter(const RateLimiterOptions& options) {
  if (Status status = options.Validate(); !status.ok()) {
    return status.Prefixed("table \"" + name() + "\"");
  }
  WithLock([&](Round*) {
    mu_.AssertHeld();
    state_->SetRateLimiter(options);
  });
  return Status::Ok();
}

Status ConcurrentTable::Change(const TableChanges& changes) {
  {
    ReadLock lock(this);
    TableOptions changed = options();
    const TableSettings now = state_->Settings();
    changed.max_size = now.max_size;
    changed.max_times_sampled = now.max_times_sampled;
    changed.max_age = Duration(now.max_age_nanos);
    changed.max_bytes = now.max_bytes;
    changed.rate_limiter = now.rate_limiter;
    changes.ApplyTo(&changed);
    REVERB_RETURN_IF_ERROR(changed.Validate());
  }
  const auto remove_some = [this](Round* round) {
    mu_.AssertHeld();
    return RemoveAged(round, kMaxRemovals) || state_->EvictExcess(kMaxRemovals, &round->effects);
  };
  bool has_more = false;
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    const ClockReading now{.now = environment_.clock->Now(), .wall_nanos = environment_.clock->WallNanos()};
    state_->Change(changes, now);
    has_max_age_.store(state_->has_max_age(), std::memory_order_relaxed);
    max_times_sampled_.store(state_->max_times_sampled(), std::memory_order_relaxed);
    max_bytes_.store(state_->max_bytes(), std::memory_order_relaxed);
    has_more = remove_some(round);
  });
  while (has_more) WithLock([&](Round* round) { has_more = remove_some(round); });
  for (const std::string& text : FindContradictions(Info())) Log(LogLevel::kWarning, text);
  return Status::Ok();
}

void ConcurrentTable::CloseLocked(Round* round) {
  closed_ = true;
  while (!inserts_.empty()) Finish(inserts_.head(), ClosedError(), round);
  while (!samples_.empty()) Finish(samples_.head(), ClosedError(), round);
  if (room_ticket_ != 0) environment_.store->StopWaiting(std::exchange(room_ticket_, 0));
}

void ConcurrentTable::Close() {
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    CloseLocked(round);
  });
}

void ConcurrentTable::Remove() {
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    removed_.store(true, std::memory_order_release);
    CloseLocked(round);
    state_->Reset(&round->effects);
  });
}

Status ConcurrentTable::ClosedError() const {
  if (is_removed()) return Status::NotFound("table \"" + name() + "\" was removed from the server");
  return Status::Cancelled("table \"" + name() + "\" was closed").WithDetail(Detail::kTableClosed);
}

TableInfo ConcurrentTable::Info() {
  TableInfo info;
  ReadLock lock(this);
  const TimePoint now = environment_.clock->Now();
  state_->FillInfo(&info);
  stats_.FillInfo(now, info.counters, &info);
  stats_.NoteCounters(now, info.counters);
  info.waiting_inserts = inserts_.size();
  info.waiting_samples = samples_.size();
  const auto look_at = [&](const WaitQueue& queue, WaitReason* reason) {
    if (queue.empty()) return;
    *reason = queue.head()->wait_reason;
    info.longest_wait_nanos = std::max(info.longest_wait_nanos, (now - queue.head()->queued_at).count());
  };
  look_at(inserts_, &info.insert_wait_reason);
  look_at(samples_, &info.sample_wait_reason);
  info.closed = closed_;
  return info;
}

std::pair<std::optional<double>, int64_t> ConcurrentTable::Mass() {
  ReadLock lock(this);
  return {state_->sampling_mass(), state_->size()};
}

int64_t ConcurrentTable::size() {
  ReadLock lock(this);
  return state_->size();
}

Result<bool> ConcurrentTable::CanInsert(int64_t n) {
  if (n < 1)
    return Status::InvalidArgument("can_insert: the number of inserts is " + std::to_string(n) +
                                   "; it must be at least 1");
  ReadLock lock(this);
  return state_->limiter().CanInsert(n);
}

Result<bool> ConcurrentTable::CanSample(int64_t n) {
  if (n < 1)
    return Status::InvalidArgument("can_sample: the number of samples is " + std::to_string(n) +
                                   "; it must be at least 1");
  ReadLock lock(this);
  const bool all_leased = state_->num_leased() > 0 && state_->num_leased() == state_->size();
  return !all_leased && state_->limiter().CanSample(n);
}

std::optional<internal::Sample> ConcurrentTable::Find(uint64_t key) {
  ReadLock lock(this);
  return state_->Find(key);
}

std::vector<internal::Sample> ConcurrentTable::Peek(int64_t n, uint64_t* cursor) {
  ReadLock lock(this);
  return state_->Peek(n, cursor);
}

std::vector<ItemMark> ConcurrentTable::Survey(size_t most) {
  ReadLock lock(this);
  return state_->Survey(most);
}

Snapshot ConcurrentTable::TakeSnapshot(std::span<const std::shared_ptr<ConcurrentTable>> tables,
                                       const std::function<void()>& at_cut) {
  // Locks are taken in one global order. No other function takes two.
  std::vector<ConcurrentTable*> order;
  for (const auto& table : tables) order.push_back(table.get());
  std::ranges::sort(order);
  order.erase(std::unique(order.begin(), order.end()), order.end());
  Snapshot snapshot;
  snapshot.tables.reserve(tables.size());
  if (tables.empty()) {
    if (at_cut) at_cut();
    return snapshot;
  }
  // Measured in real time, whatever clock the tables use.
  std::optional<std::chrono::steady_clock::time_point> first_locked;
  for (ConcurrentTable* table : order) {
    table->mu_.Lock();
    if (!first_locked) first_locked = std::chrono::steady_clock::now();
  }
  for (const auto& table : tables) snapshot.tables.push_back(table->state_->TakeSnapshot());
  if (at_cut) at_cut();
  for (ConcurrentTable* table : order) table->mu_.Unlock();
  snapshot.locks_held = std::chrono::steady_clock::now() - *first_locked;
  // Run the operations that callers handed over while the locks were held.
  for (ConcurrentTable* table : order) table->WithLock([](Round*) {});
  return snapshot;
}

void ConcurrentTable::BeginRestore(uint64_t num_slots, uint64_t num_items) {
  WithLock([&](Round*) { state_->BeginRestore(num_slots, num_items); });
}

Status ConcurrentTable::RestoreItems(std::span<SavedItem> items) {
  // No other thread uses the table yet: no round is needed.
  MutexLock lock(&mu_);
  for (const SavedItem& item : items) state_->PrefetchRestore(item);
  for (SavedItem& item : items) REVERB_RETURN_IF_ERROR(state_->RestoreItem(std::move(item)));
  return Status::Ok();
}

Status ConcurrentTable::FinishRestore(const SavedTableState& state) {
  Status status;
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    status = state_->FinishRestore(
        state, &round->effects,
        {.now = environment_.clock->Now(), .wall_nanos = environment_.clock->WallNanos()});
    stats_.ForgetCounters(environment_.clock->Now(), state_->limiter().counters());
  });
  return status;
}

}  // namespace reverb::internal
