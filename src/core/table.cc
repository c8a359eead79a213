#include "core/table.h"

#include <algorithm>
#include <cassert>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/limiter_text.h"
#include "base/log.h"

namespace reverb::internal {
namespace {

void CpuRelax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::string Millis(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) + "ms";
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

// This thread's Round, so that its vectors keep their memory from call to call. Callbacks may call
// tables again; inner calls get a Round of their own, and so do calls of static objects that die after
// the thread's own.
class ConcurrentTable::ScopedRound {
 public:
  ScopedRound() {
    static thread_local bool is_gone = false;  // trivial, so it outlives the Round
    struct ThreadsRound : Round {
      ~ThreadsRound() { is_gone = true; }
    };
    static thread_local ThreadsRound mine;
    if (!is_gone && !mine.in_use) {
      round_ = &mine;
    } else {
      own_ = std::make_unique<Round>();
      round_ = own_.get();
    }
    round_->in_use = true;
  }
  ~ScopedRound() {
    // FinishRound() has emptied it; memory for an unusually large call is not kept.
    constexpr size_t kKeep = 4096;
    if (round_->effects.released.capacity() > kKeep) round_->effects.released = {};
    round_->in_use = false;
  }
  Round* get() { return round_; }
  Round* operator->() { return round_; }

 private:
  std::unique_ptr<Round> own_;
  Round* round_;
};

template <typename Body>
void ConcurrentTable::WithLock(Body body) {
  ScopedRound round;
  mu_.Lock();
  if (pushed_.load(std::memory_order_relaxed) != nullptr) TakeHandedOver(round.get());
  body(round.get());
  FinishRound(round.get());
}

// The lock for a look at the state. Operations handed over meanwhile are seen to afterwards: nobody waits
// for the asynchronous ones who could look after them.
class SCOPED_CAPABILITY ConcurrentTable::ReadLock {
 public:
  explicit ReadLock(ConcurrentTable* table) ACQUIRE(table->mu_) : table_(table) { table_->mu_.Lock(); }
  ~ReadLock() RELEASE() {
    table_->mu_.Unlock();
    Operation* expected = nullptr;  // as in FinishRound()
    if (!table_->pushed_.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel)) {
      table_->WithLock([](Round*) {});
    }
  }
  ReadLock(const ReadLock&) = delete;
  ReadLock& operator=(const ReadLock&) = delete;

 private:
  ConcurrentTable* const table_;
};

Result<std::shared_ptr<ConcurrentTable>> ConcurrentTable::Create(TableOptions options,
                                                                 Environment environment) {
  if (environment.store == nullptr) {
    return Status::InvalidArgument("table \"" + options.name + "\": no chunk store was given");
  }
  if (const std::optional<int64_t> most = environment.store->options().max_bytes; most && *most < 1) {
    return Status::InvalidArgument("table \"" + options.name + "\": max_bytes of its store is " +
                                   std::to_string(*most) +
                                   ", so that no item would fit; give at least 1, or none for no bound");
  }
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<TableState> state, TableState::Create(std::move(options)));
  return std::shared_ptr<ConcurrentTable>(new ConcurrentTable(std::move(state), std::move(environment)));
}

ConcurrentTable::ConcurrentTable(std::unique_ptr<TableState> state, Environment environment)
    : environment_(std::move(environment)), state_(std::move(state)), stats_(environment_.clock->Now()) {}

ConcurrentTable::~ConcurrentTable() {
  // Nobody else holds the table, so nobody waits in it: asynchronous operations hold it through
  // their callbacks or were the last to go, and are told so.
  Close();
  MutexLock lock(&mu_);
  if (alarm_ != 0) environment_.clock->Cancel(alarm_);
}

// --- Calls -----------------------------------------------------------------------------------

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
                               std::vector<SampledItem>* out) {
  REVERB_RETURN_IF_ERROR(CheckCount(count));
  Operation op(Operation::Kind::kSample);
  op.count = count;
  op.allow_partial = allow_partial;
  op.samples = out;
  op.timeout = wait.timeout;
  RunToEnd(&op, wait);
  return std::move(op.status);
}

Status ConcurrentTable::CheckCount(int64_t count) const {
  if (count >= 1 && count <= kMaxSampleCount) return Status::Ok();
  return Status::InvalidArgument("table \"" + name() + "\": " + std::to_string(count) +
                                 " samples asked for in one call; ask for 1 to " +
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
                                                     std::function<void(Operation&)> on_done) {
  auto op = std::make_shared<Operation>(Operation::Kind::kSample);
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
    op->cancel_requested = true;  // handed over and not looked at yet; or finished and about to be reported
    return;
  }
  Finish(op,
         Status::Cancelled("table \"" + name() + "\": the " +
                           (op->kind == Operation::Kind::kInsert ? "insert" : "sample") +
                           " was cancelled by its caller while it waited (" +
                           std::string(WaitReasonName(op->wait_reason)) + ")"),
         round);
}

void ConcurrentTable::TakeStructure(const ItemStructure& structure) {
  if (options().signature || !state_->structure().Take(structure)) return;
  Log(LogLevel::kInfo, "table \"" + name() +
                           "\": writers put items of different structure into it, and it has no signature; "
                           "batches of it are flat lists of columns");
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
    return Status(status.code(), "table \"" + name() + "\": " + std::string(status.message()),
                  status.detail());
  }
  WithLock([&](Round*) {
    mu_.AssertHeld();
    state_->SetRateLimiter(options);
  });
  return Status::Ok();
}

void ConcurrentTable::Close() {
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    closed_ = true;
    while (!inserts_.empty()) Finish(inserts_.head(), ClosedError(), round);
    while (!samples_.empty()) Finish(samples_.head(), ClosedError(), round);
    if (room_ticket_ != 0) environment_.store->StopWaiting(std::exchange(room_ticket_, 0));
  });
}

Status ConcurrentTable::ClosedError() const {
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

int64_t ConcurrentTable::size() {
  ReadLock lock(this);
  return state_->size();
}

Result<bool> ConcurrentTable::CanInsert(int64_t n) {
  if (n < 1)
    return Status::InvalidArgument("can_insert: the number of inserts is " + std::to_string(n) +
                                   "; ask for at least one");
  ReadLock lock(this);
  return state_->limiter().CanInsert(n);
}

Result<bool> ConcurrentTable::CanSample(int64_t n) {
  if (n < 1)
    return Status::InvalidArgument("can_sample: the number of samples is " + std::to_string(n) +
                                   "; ask for at least one");
  ReadLock lock(this);
  return state_->limiter().CanSample(n);
}

std::optional<PeekedItem> ConcurrentTable::Find(uint64_t key) {
  ReadLock lock(this);
  return state_->Find(key);
}

std::vector<PeekedItem> ConcurrentTable::Peek(int64_t n, uint64_t* cursor) {
  ReadLock lock(this);
  return state_->Peek(n, cursor);
}

Snapshot ConcurrentTable::TakeSnapshot(std::span<const std::shared_ptr<ConcurrentTable>> tables,
                                       const std::function<void()>& at_cut) {
  // One order for all who take several locks. Nothing else takes two.
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
  // Real time whatever clock the tables live by: this is a measurement.
  std::optional<std::chrono::steady_clock::time_point> first_locked;
  for (ConcurrentTable* table : order) {
    table->mu_.Lock();
    if (!first_locked) first_locked = std::chrono::steady_clock::now();
  }
  for (const auto& table : tables) snapshot.tables.push_back(table->state_->TakeSnapshot());
  if (at_cut) at_cut();
  for (ConcurrentTable* table : order) table->mu_.Unlock();
  snapshot.locks_held = std::chrono::steady_clock::now() - *first_locked;
  // Callers who found a lock taken meanwhile have handed their operations over: see to them.
  for (ConcurrentTable* table : order) table->WithLock([](Round*) {});
  return snapshot;
}

void ConcurrentTable::BeginRestore(uint64_t num_slots, uint64_t num_items) {
  WithLock([&](Round*) { state_->BeginRestore(num_slots, num_items); });
}

Status ConcurrentTable::RestoreItems(std::span<SavedItem> items) {
  // Nobody else knows the table yet: no round is needed.
  MutexLock lock(&mu_);
  for (const SavedItem& item : items) state_->PrefetchRestore(item);
  for (SavedItem& item : items) REVERB_RETURN_IF_ERROR(state_->RestoreItem(std::move(item)));
  return Status::Ok();
}

Status ConcurrentTable::FinishRestore(const SavedTableState& state) {
  Status status;
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    status = state_->FinishRestore(state, &round->effects);
    stats_.ForgetCounters(environment_.clock->Now(), state_->limiter().counters());
  });
  return status;
}

// --- Running ---------------------------------------------------------------------------------

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

// --- Operations under the lock ---------------------------------------------------------------

void ConcurrentTable::Start(Operation* op, Round* round) {
  if (!op->status.ok()) return Finish(op, std::move(op->status), round);  // refused before it came here
  if (op->cancel_requested) {
    return Finish(op, Status::Cancelled("table \"" + name() + "\": the call was cancelled by its caller"),
                  round);
  }
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

// For an insert that can go no further now.
bool ConcurrentTable::IsDone(const Operation& insert) {
  return insert.progress == static_cast<int64_t>(insert.items.size()) ||
         (insert.allow_partial && insert.progress > 0);
}

void ConcurrentTable::StartInsert(Operation* op, Round* round) {
  const auto total = static_cast<int64_t>(op->items.size());
  if (inserts_.empty()) {
    WaitReason reason = WaitReason::kNone;
    while (op->progress < total && reason == WaitReason::kNone) {
      reason = ApplyNextItem(op, round);
      // In turn with those who wait to sample, who may make way for the next item.
      if (!samples_.empty() && AdvanceSample(round)) reason = WaitReason::kNone;
    }
    return IsDone(*op) ? Finish(op, Status::Ok(), round) : Enqueue(op, reason, round);
  }
  // Others wait already. Priority updates in the guise of inserts need not.
  while (op->progress < total && state_->Contains(op->items[op->progress].key)) {
    StoreNextItem(op, 0, round);
  }
  IsDone(*op) ? Finish(op, Status::Ok(), round) : Enqueue(op, WaitReason::kQueued, round);
}

WaitReason ConcurrentTable::ApplyNextItem(Operation* op, Round* round) {
  Item& item = op->items[static_cast<size_t>(op->progress)];
  WaitReason reason = state_->limiter().InsertWaitReason();
  // The data of an item that is there already is not kept, so it needs no room.
  const bool is_bounded = environment_.store->options().max_bytes.has_value();
  if ((is_bounded || reason != WaitReason::kNone) && !state_->Contains(item.key)) {
    if (reason == WaitReason::kNone) reason = MakeRoom(item, round);
    if (reason != WaitReason::kNone) return reason;
  }
  StoreNextItem(op, environment_.clock->WallNanos(), round);
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
  for (bool registered = false;;) {
    int64_t more = 0;
    item.trajectory.ForEachChunk([&](const Chunk* chunk) {
      if (!chunk->is_stored()) more += chunk->bytes();
    });
    if (store.HasRoomFor(more)) return WaitReason::kNone;
    // A full table would evict for this item anyway; by policy any table evicts, unless what others
    // hold leaves no room even so. (Shared chunks make that last sum too hopeful, never too strict.)
    const bool could_fit =
        store.stored_bytes() - state_->referenced_bytes() + more <= *store.options().max_bytes;
    const bool may_evict = store.options().policy == MemoryPolicy::kEvict
                               ? could_fit && state_->size() > 0
                               : state_->size() >= options().max_size;
    if (may_evict) {
      state_->EvictOne(&round->effects);
      continue;
    }
    if (registered) return WaitReason::kMemory;
    // Ask to be woken, then look again: room made in between would go unnoticed.
    WaitForRoom();
    registered = true;
  }
}

void ConcurrentTable::WaitForRoom() {
  if (room_ticket_ != 0) environment_.store->StopWaiting(room_ticket_);
  room_ticket_ = environment_.store->WaitForRoom([weak = weak_from_this()] {
    if (const auto table = weak.lock()) table->WithLock([](Round*) {});
  });
}

void ConcurrentTable::StartSample(Operation* op, Round* round) {
  if (!samples_.empty()) return Enqueue(op, WaitReason::kQueued, round);
  Draw(op, round);
  if (HasEnough(*op)) return Finish(op, Status::Ok(), round);
  Enqueue(op, state_->limiter().SampleWaitReason(), round);
}

void ConcurrentTable::Draw(Operation* op, Round* round) {
  op->progress += state_->Sample(op->count - op->progress, op->has_waited, op->samples, &round->effects);
}

bool ConcurrentTable::HasEnough(const Operation& op) const {
  return op.progress == op.count || (op.allow_partial && op.progress > 0);
}

void ConcurrentTable::StartMutate(Operation* op, Round* round) {
  state_->Mutate(op->updates, op->deletes, &round->effects);
  Finish(op, Status::Ok(), round);
}

void ConcurrentTable::Advance(Round* round) {
  for (int budget = kMaxAdvance; budget > 0; --budget) {
    const bool inserted = !inserts_.empty() && AdvanceInsert(round);
    const bool sampled = !samples_.empty() && AdvanceSample(round);
    if (!inserted && !sampled) return;
  }
  advance_again_ = true;
}

bool ConcurrentTable::AdvanceInsert(Round* round) {
  Operation* const op = inserts_.head();
  const WaitReason reason = ApplyNextItem(op, round);
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
  Draw(op, round);
  if (HasEnough(*op)) {
    Finish(op, Status::Ok(), round);
    return true;
  }
  SetReason(op, state_->limiter().SampleWaitReason());
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
    // A time-out so long that the sum would overflow is no time-out.
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
  stats_.CountWait(op->wait_reason, environment_.clock->Now() - op->reason_since);
  // The next in line no longer waits for others.
  if (!queue.empty() && queue.head()->wait_reason == WaitReason::kQueued) {
    const WaitReason reason = op->kind == Operation::Kind::kInsert ? state_->limiter().InsertWaitReason()
                                                                   : state_->limiter().SampleWaitReason();
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
  stats_.CountWait(op->wait_reason, now - op->reason_since);
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
  } else {
    round->finished.push_back(op);
  }
}

Status ConcurrentTable::TimeoutError(const Operation& op) const {
  const bool is_insert = op.kind == Operation::Kind::kInsert;
  const Duration waited = environment_.clock->Now() - op.queued_at;
  std::string text = "table \"" + name() + "\": Timeout exceeded: ";
  if (is_insert) {
    text += std::to_string(op.progress) + " of " + std::to_string(op.items.size()) + " items inserted in ";
  } else {
    text += std::to_string(op.progress) + " of " + std::to_string(op.count) + " samples drawn in ";
  }
  text += Millis(waited) + ", then " + std::string(WaitReasonName(op.wait_reason)) + " (" +
          state_->limiter().Describe();
  if (op.wait_reason == WaitReason::kMemory) {
    text += "; stored " + std::to_string(environment_.store->stored_bytes()) + " of max_bytes " +
            std::to_string(environment_.store->options().max_bytes.value_or(0));
  }
  if (op.wait_reason == WaitReason::kQueued) {
    const WaitQueue& queue = is_insert ? inserts_ : samples_;
    text += "; " + std::to_string(queue.size()) + " callers in line";
    if (!queue.empty()) text += ", the first: " + std::string(WaitReasonName(queue.head()->wait_reason));
  }
  return Status::DeadlineExceeded(text + ")").WithDetail(DetailOf(op.wait_reason));
}

void ConcurrentTable::ArmAlarm() {
  const TimePoint next = deadlines_.begin()->first;
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
    // Those who may go now go; then the time of the others is up. If more may go than one turn takes,
    // the alarm rings again.
    Advance(round);
    const TimePoint now = environment_.clock->Now();
    while (!advance_again_ && !deadlines_.empty() && deadlines_.begin()->first <= now) {
      Operation* const op = deadlines_.begin()->second;
      Finish(op, TimeoutError(*op), round);
    }
  });
}

}  // namespace reverb::internal
