#include "core/rows/row_table.h"

#include <algorithm>
#include <chrono>

#include "base/duration_text.h"
#include "base/random.h"

namespace reverb::internal {
namespace {

// Claims that want the same rows are served in the order of their arrival.
bool WantTheSame(const RowClaim& a, const RowClaim& b) {
  return a.consumer == b.consumer && a.needs == b.needs && a.where == b.where &&
         a.whole_groups == b.whole_groups && (a.ranks > 0) == (b.ranks > 0);
}

}  // namespace

Result<std::shared_ptr<ConcurrentRows>> ConcurrentRows::Create(RowTableOptions options,
                                                               Environment environment) {
  // A random first id keeps leases of former runs of a server apart from new ones.
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<RowState> state,
                          RowState::Create(std::move(options), EntropySeed()));
  return std::shared_ptr<ConcurrentRows>(new ConcurrentRows(std::move(state), std::move(environment)));
}

ConcurrentRows::ConcurrentRows(std::unique_ptr<RowState> state, Environment environment)
    : environment_(std::move(environment)),
      state_(std::move(state)),
      ranks_(state_.get()),
      waiting_charge_(&environment_.store->budget(), MemoryPart::kWaiting),
      index_charge_(&environment_.store->budget(), MemoryPart::kIndex) {}

ConcurrentRows::~ConcurrentRows() {
  Close();
  MutexLock lock(&mu_);
  if (alarm_ != 0) environment_.clock->Cancel(alarm_);
  if (room_ticket_ != 0) environment_.store->StopWaiting(room_ticket_);
}

// --- Rounds ---------------------------------------------------------------------------------------

template <typename Body>
void ConcurrentRows::WithLock(Body body) {
  Round round;
  {
    MutexLock lock(&mu_);
    AdvanceTime(&round);
    body(&round);
    Advance(&round);
    ArmAlarm();
    ChargeIndex();
  }
  round.effects.released.clear();
  for (const std::shared_ptr<RowOperation>& operation : round.finished) {
    if (operation->on_done) operation->on_done(*operation);
    operation->on_done = nullptr;  // releases what it captured
  }
}

void ConcurrentRows::Start(const std::shared_ptr<RowOperation>& operation) {
  Status status;
  for (RowWrite& row : operation->rows) {
    if (!row.chunk) continue;
    Result<ChunkRef> entered = environment_.store->Enter(row.chunk);
    if (!entered.ok()) {
      status = entered.status();
      break;
    }
    row.chunk = *std::move(entered);
  }
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    if (status.ok()) status = closed_;
    if (status.ok()) status = Prepare(operation.get());
    if (!status.ok()) {
      operation->status = std::move(status);
      return Finish(operation, round);
    }
    // One that arrives later must not overtake.
    // A rank joins those that wait for the same batch.
    const bool waits_in_line =
        operation->kind == RowOperation::Kind::kClaim
            ? operation->claim.ranks == 0 &&
                  std::ranges::any_of(
                      claims_, [&](const auto& other) { return WantTheSame(other->claim, operation->claim); })
            : operation->kind == RowOperation::Kind::kReserve && !reserves_.empty();
    if (waits_in_line || !Try(operation, round)) Enqueue(operation, round);
  });
}

void ConcurrentRows::Cancel(const std::shared_ptr<RowOperation>& operation) {
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    if (!operation->is_queued) return;
    Dequeue(operation);
    operation->status = Status::Cancelled("table \"" + name() + "\": the call was cancelled by its caller");
    Finish(operation, round);
  });
}

Status ConcurrentRows::Prepare(RowOperation* operation) {
  if (operation->kind == RowOperation::Kind::kWrite) {
    REVERB_ASSIGN_OR_RETURN(operation->write, state_->Prepare(operation->mode, operation->rows));
    // A write with an error stores nothing.
    for (const RowWrite& row : operation->rows) {
      REVERB_RETURN_IF_ERROR(state_->Check(operation->write, row));
      const std::optional<int64_t> max_bytes = environment_.store->options().max_bytes;
      if (row.chunk && max_bytes && row.chunk->bytes() > *max_bytes) {
        return Status::ResourceExhausted(
            "table \"" + name() + "\": row \"" + row.key + "\" has " + std::to_string(row.chunk->bytes()) +
            " bytes, more than the server's max_bytes = " + std::to_string(*max_bytes));
      }
      const MemoryBudget& budget = environment_.store->budget();
      if (row.chunk && budget.limit() && row.chunk->bytes() > budget.shares().kept) {
        return Status::ResourceExhausted(
            "table \"" + name() + "\": row \"" + row.key + "\" has " + std::to_string(row.chunk->bytes()) +
            " bytes, more than the " + std::to_string(budget.shares().kept) +
            " for rows in the server's memory_limit = " + std::to_string(*budget.limit()));
      }
    }
  } else if (operation->kind == RowOperation::Kind::kClaim) {
    REVERB_RETURN_IF_ERROR(state_->CheckClaim(operation->claim));
    REVERB_RETURN_IF_ERROR(ranks_.Check(operation->claim));
    if (operation->claim.where.empty()) return Status::Ok();
    REVERB_ASSIGN_OR_RETURN(Where where, Where::Parse(operation->claim.where));
    operation->where = std::make_shared<const Where>(std::move(where));
  }
  return Status::Ok();
}

// --- Operations -----------------------------------------------------------------------------------

bool ConcurrentRows::Try(const std::shared_ptr<RowOperation>& operation, Round* round) {
  bool is_done = false;
  switch (operation->kind) {
    case RowOperation::Kind::kWrite:
      is_done = TryWrite(operation.get(), round);
      break;
    case RowOperation::Kind::kClaim:
      is_done = TryClaim(operation.get(), round);
      break;
    default:
      is_done = TryReserve(operation.get());
  }
  if (is_done) Finish(operation, round);
  return is_done;
}

bool ConcurrentRows::HasRoomFor(int64_t bytes) {
  ChunkStore& store = *environment_.store;
  if (store.HasRoomFor(bytes)) return true;
  if (room_ticket_ != 0) return false;
  room_ticket_ = store.WaitForRoom([weak = weak_from_this()] {
    const std::shared_ptr<ConcurrentRows> table = weak.lock();
    if (!table) return;
    table->WithLock([&](Round*) {
      table->mu_.AssertHeld();
      table->room_ticket_ = 0;
    });
  });
  // Room made in between would go unnoticed.
  return store.HasRoomFor(bytes);
}

bool ConcurrentRows::TryWrite(RowOperation* write, Round* round) {
  while (write->next < write->rows.size()) {
    RowWrite& row = write->rows[write->next];
    if (!state_->NeverWaits(write->write, row)) {
      // New rows of a write that comes later wait behind those of earlier ones.
      if (!writes_.empty() && writes_.front().get() != write) {
        write->reason = writes_.front()->reason;
        if (MoveForward(write)) continue;
        return false;
      }
      if (row.chunk && !HasRoomFor(row.chunk->bytes())) {
        write->reason = RowWaitReason::kMemory;
        if (MoveForward(write)) continue;
        return false;
      }
    }
    const int64_t bytes = row.chunk ? row.chunk->bytes() : 0;
    // The key survives in the error and the list of refused rows.
    Result<RowFate> fate = state_->Store(write->write, &row, &round->effects);
    if (!fate.ok()) {
      write->status = fate.status();
      return true;
    }
    if (*fate == RowFate::kWaits) {
      write->reason = state_->wait_reason();
      if (MoveForward(write)) continue;
      return false;
    }
    if (*fate == RowFate::kRefused) {
      write->refused.push_back(row.key);
      if (row.chunk) round->effects.released.push_back(std::move(row.chunk));
    } else {
      ++write->stored;
    }
    if (write->is_queued) SetWaitingBytes(write, write->waiting_bytes - bytes);
    ++write->next;
  }
  return true;
}

bool ConcurrentRows::MoveForward(RowOperation* write) {
  // What was found before is still true as long as no group was created.
  const uint64_t generation = state_->groups_created() + 1;
  if (std::exchange(write->generation, generation) == generation) return false;
  const auto never_waits = [&](const RowWrite& row) { return state_->NeverWaits(write->write, row); };
  const std::span<RowWrite> left = std::span(write->rows).subspan(write->next);
  if (std::ranges::none_of(left, never_waits)) return false;
  // Not that of std::ranges, which clang 14 does not compile.
  std::stable_partition(left.begin(), left.end(), never_waits);
  return true;
}

bool ConcurrentRows::TryClaim(RowOperation* claim, Round* round) {
  const uint64_t generation = state_->Generation(claim->claim);
  const bool is_decided = ranks_.IsDecided(claim->claim);
  if (claim->is_queued && claim->generation == generation && !is_decided) return false;
  claim->generation = generation;
  Result<std::optional<ClaimedRows>> claimed =
      claim->claim.ranks > 0 ? ranks_.Claim(claim->claim, claim->where.get(), &round->effects)
                             : state_->Claim(claim->claim, claim->where.get());
  if (!claimed.ok()) {
    claim->status = claimed.status();
    return true;
  }
  if (!claimed->has_value()) return false;
  claim->claimed = **std::move(claimed);
  return true;
}

bool ConcurrentRows::TryReserve(RowOperation* reserve) {
  Result<uint64_t> id = state_->Reserve(reserve->count, reserve->version, reserve->lease);
  if (!id.ok()) {
    reserve->status = id.status();
    return true;
  }
  reserve->reason = state_->wait_reason();
  reserve->reservation = *id;
  return *id != 0;
}

// --- Waiting --------------------------------------------------------------------------------------

void ConcurrentRows::Advance(Round* round) {
  AdvanceInOrder(&reserves_, round);
  AdvanceInOrder(&writes_, round);
  AdvanceJoiningWrites(round);
  AdvanceClaims(round);
}

void ConcurrentRows::AdvanceInOrder(Waiting* waiting, Round* round) {
  while (!waiting->empty()) {
    const std::shared_ptr<RowOperation> first = waiting->front();
    if (!Try(first, round)) return;
    Dequeue(first);
  }
}

void ConcurrentRows::AdvanceJoiningWrites(Round* round) {
  if (std::exchange(groups_seen_, state_->groups_created()) == state_->groups_created()) return;
  for (auto next = writes_.begin(); next != writes_.end();) {
    const std::shared_ptr<RowOperation> operation = *next;
    ++next;
    // The first one has just been tried.
    if (operation != writes_.front() && Try(operation, round)) Dequeue(operation);
  }
}

void ConcurrentRows::AdvanceClaims(Round* round) {
  std::vector<const RowClaim*> blocked;
  for (auto next = claims_.begin(); next != claims_.end();) {
    const std::shared_ptr<RowOperation> operation = *next;
    ++next;
    const auto wants_the_same = [&](const RowClaim* other) { return WantTheSame(*other, operation->claim); };
    if (std::ranges::any_of(blocked, wants_the_same) && !ranks_.IsDecided(operation->claim)) continue;
    if (Try(operation, round)) {
      Dequeue(operation);
    } else {
      blocked.push_back(&operation->claim);
    }
  }
}

ConcurrentRows::Waiting* ConcurrentRows::QueueOf(const RowOperation& operation) {
  switch (operation.kind) {
    case RowOperation::Kind::kWrite:
      return &writes_;
    case RowOperation::Kind::kClaim:
      return &claims_;
    default:
      return &reserves_;
  }
}

void ConcurrentRows::Enqueue(const std::shared_ptr<RowOperation>& operation, Round* round) {
  operation->queued_at = environment_.clock->Now();
  if (operation->timeout && *operation->timeout <= Duration(0)) {
    operation->status = TimeoutError(operation.get());
    return Finish(operation, round);
  }
  if (operation->kind == RowOperation::Kind::kWrite) {
    int64_t bytes = 0;
    for (const RowWrite& row : std::span(operation->rows).subspan(operation->next)) {
      if (row.chunk) bytes += row.chunk->bytes();
    }
    if (!MayWait(bytes)) {
      operation->status = NoRoomToWait(operation.get(), bytes);
      return Finish(operation, round);
    }
    SetWaitingBytes(operation.get(), bytes);
  }
  if (operation->timeout && *operation->timeout < TimePoint::max() - operation->queued_at) {
    operation->deadline = operation->queued_at + *operation->timeout;
    deadlines_.emplace(*operation->deadline, operation.get());
  }
  operation->is_queued = true;
  QueueOf(*operation)->push_back(operation);
}

void ConcurrentRows::Dequeue(const std::shared_ptr<RowOperation>& operation) {
  operation->is_queued = false;
  if (operation->deadline) deadlines_.erase({*operation->deadline, operation.get()});
  QueueOf(*operation)->remove(operation);
  SetWaitingBytes(operation.get(), 0);
  if (operation->kind == RowOperation::Kind::kClaim) ranks_.StopWaiting(operation->claim);
}

// The data of a waiting write is in transit. It may wait for updates of rows that exist, which must find room there.
bool ConcurrentRows::MayWait(int64_t bytes) const {
  const MemoryBudget& budget = environment_.store->budget();
  if (bytes == 0) return true;
  // Bounds the writes that wait for all tables together. The data of this one is included.
  if (budget.TransitLevel() == MemoryLevel::kFull) return false;
  const int64_t waiting = waiting_charge_.bytes();
  return waiting == 0 || waiting + bytes <= budget.shares().transit / 2;
}

void ConcurrentRows::SetWaitingBytes(RowOperation* operation, int64_t bytes) {
  waiting_charge_.Set(waiting_charge_.bytes() + bytes - operation->waiting_bytes);
  operation->waiting_bytes = bytes;
}

void ConcurrentRows::Finish(const std::shared_ptr<RowOperation>& operation, Round* round) {
  operation->is_finished = true;
  operation->table_version = state_->version();
  round->finished.push_back(operation);
}

std::string ConcurrentRows::WaitText(RowOperation* operation) {
  if (operation->kind == RowOperation::Kind::kClaim) {
    return state_->Explain(operation->claim, operation->where.get());
  }
  const RowCounts counts = state_->Counts();
  switch (operation->reason) {
    case RowWaitReason::kFull:
      return "the table has " + std::to_string(counts.rows) +
             " rows (max_rows = " + std::to_string(options().max_rows) +
             "); consume or delete rows, or raise max_rows";
    case RowWaitReason::kBusy:
      return std::to_string(counts.running) +
             " rows are reserved and not yet put (max_running = " + std::to_string(options().max_running) +
             ")";
    case RowWaitReason::kMemory:
      return "the memory of the server is full: " + environment_.store->DescribeMemory() +
             "; consume or delete rows, or raise the bound";
    default:
      return "producers are ahead of the trainer: " + std::to_string(counts.accepted) +
             " rows were accepted and " + std::to_string(counts.running) + " are reserved at version " +
             std::to_string(state_->version()) + ", which leaves room for " +
             std::to_string(std::max<int64_t>(state_->Capacity(), 0)) + "; set_version() makes more";
  }
}

Status ConcurrentRows::TimeoutError(RowOperation* operation) {
  const std::string after =
      *operation->timeout <= Duration(0) ? "now" : "within " + DurationText(*operation->timeout);
  std::string what;
  switch (operation->kind) {
    case RowOperation::Kind::kWrite:
      what = "stored " + std::to_string(operation->stored) + " of " + std::to_string(operation->rows.size()) +
             " rows " + after;
      break;
    case RowOperation::Kind::kClaim:
      what = "no rows to claim " + after;
      break;
    default:
      what = "cannot reserve " + std::to_string(operation->count) + " rows " + after;
  }
  return Status::DeadlineExceeded("table \"" + name() + "\": " + what + ": " + WaitText(operation))
      .WithDetail(operation->reason == RowWaitReason::kMemory ? Detail::kMemoryFull : Detail::kRateLimited);
}

Status ConcurrentRows::NoRoomToWait(RowOperation* write, int64_t bytes) {
  const MemoryBudget& budget = environment_.store->budget();
  return Status::Unavailable("table \"" + name() + "\": stored " + std::to_string(write->stored) + " of " +
                             std::to_string(write->rows.size()) + " rows: " + WaitText(write) +
                             ". The other " + std::to_string(bytes) +
                             " bytes cannot wait on the server: " + std::to_string(waiting_charge_.bytes()) +
                             " bytes wait for this table, and " + std::to_string(budget.transit()) +
                             " of the " + std::to_string(budget.shares().transit) +
                             " bytes for data in transit in memory_limit are used; put the rest again later, "
                             "or raise memory_limit")
      .WithDetail(Detail::kMemoryFull);
}

void ConcurrentRows::AdvanceTime(Round* round) {
  const TimePoint now = environment_.clock->Now();
  state_->AdvanceTo(now, &round->effects);
  if (deadlines_.empty() || deadlines_.begin()->first > now) return;
  // What has become possible by now is not too late.
  Advance(round);
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    RowOperation* const late = deadlines_.begin()->second;
    const Waiting& queue = *QueueOf(*late);
    const std::shared_ptr<RowOperation> operation =
        *std::ranges::find(queue, late, &std::shared_ptr<RowOperation>::get);
    operation->status = TimeoutError(late);
    Dequeue(operation);
    Finish(operation, round);
  }
}

void ConcurrentRows::ArmAlarm() {
  std::optional<TimePoint> due = state_->NextExpiry();
  if (!deadlines_.empty() && (!due || deadlines_.begin()->first < *due)) due = deadlines_.begin()->first;
  if (!due || *due == TimePoint::max() || (armed_for_ && *armed_for_ <= *due)) return;
  if (armed_for_) environment_.clock->Cancel(alarm_);
  armed_for_ = *due;
  alarm_ = environment_.clock->CallAt(*due, [weak = weak_from_this(), at = *due] {
    if (const std::shared_ptr<ConcurrentRows> table = weak.lock()) table->OnAlarm(at);
  });
}

void ConcurrentRows::OnAlarm(TimePoint armed_for) {
  WithLock([&](Round*) {
    mu_.AssertHeld();
    if (armed_for_ == armed_for) armed_for_.reset();
  });
}

void ConcurrentRows::EndAll(const Status& why, Round* round) {
  if (closed_.ok()) closed_ = why;
  for (Waiting* const queue : {&writes_, &claims_, &reserves_}) {
    while (!queue->empty()) {
      const std::shared_ptr<RowOperation> operation = queue->front();
      operation->status = why;
      Dequeue(operation);
      Finish(operation, round);
    }
  }
}

void ConcurrentRows::Close() {
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    EndAll(Status::Cancelled("table \"" + name() + "\" was closed").WithDetail(Detail::kTableClosed), round);
  });
}

void ConcurrentRows::Remove() {
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    EndAll(Status::NotFound("table \"" + name() + "\" was removed"), round);
    std::vector<std::string> keys;
    uint64_t cursor = 0;
    for (const RowRecord& row : state_->List(nullptr, state_->size(), &cursor)) keys.push_back(row.key);
    state_->Delete(keys, &round->effects);
  });
}

// --- Operations that do not wait ------------------------------------------------------------------

Result<std::vector<std::string>> ConcurrentRows::End(std::span<const std::string> keys, RowEnding ending) {
  Result<std::vector<std::string>> gone = std::vector<std::string>();
  WithLock([&](Round* round) { gone = state_->End(keys, ending, &round->effects); });
  return gone;
}

std::vector<RowRecord> ConcurrentRows::Get(std::span<const std::string> keys,
                                           std::span<const std::string> columns) {
  std::vector<RowRecord> rows;
  WithLock([&](Round*) { rows = state_->Get(keys, columns); });
  return rows;
}

Result<std::vector<RowRecord>> ConcurrentRows::List(const std::string& where, int64_t limit,
                                                    uint64_t* cursor) {
  std::optional<Where> parsed;
  if (!where.empty()) {
    REVERB_ASSIGN_OR_RETURN(parsed, Where::Parse(where));
  }
  std::vector<RowRecord> rows;
  WithLock([&](Round*) { rows = state_->List(parsed ? &*parsed : nullptr, limit, cursor); });
  return rows;
}

Result<int64_t> ConcurrentRows::Delete(std::span<const std::string> keys) {
  int64_t deleted = 0;
  WithLock([&](Round* round) { deleted = state_->Delete(keys, &round->effects); });
  return deleted;
}

Result<int64_t> ConcurrentRows::DeleteWhere(const std::string& where) {
  REVERB_ASSIGN_OR_RETURN(const Where parsed, Where::Parse(where));
  int64_t deleted = 0;
  WithLock([&](Round* round) { deleted = state_->DeleteWhere(parsed, &round->effects); });
  return deleted;
}

LeaseOutcome ConcurrentRows::Settle(uint64_t lease, std::span<const std::string> keys,
                                    RowSettlement settlement, Duration extension,
                                    const std::optional<std::string>& state) {
  LeaseOutcome outcome;
  std::shared_ptr<const std::string> copy;
  if (state) copy = std::make_shared<const std::string>(*state);
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    if (settlement == RowSettlement::kReturn && ranks_.Return(lease)) {
      outcome.settled = 1;
      return;
    }
    outcome = state_->Settle(lease, keys, settlement, extension, &round->effects);
    // Rows of a lost lease come back: a state that counts them as consumed would skip them.
    if (copy != nullptr && outcome.expired == 0) SetUserState(std::move(copy), round);
  });
  return outcome;
}

Status ConcurrentRows::SetVersion(int64_t version, const std::optional<std::string>& state) {
  Status status;
  std::shared_ptr<const std::string> copy;
  if (state) copy = std::make_shared<const std::string>(*state);
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    status = state_->SetVersion(version, &round->effects);
    if (copy != nullptr && status.ok()) SetUserState(std::move(copy), round);
  });
  return status;
}

void ConcurrentRows::SetState(std::string state) {
  auto shared = std::make_shared<const std::string>(std::move(state));
  WithLock([&](Round* round) {
    mu_.AssertHeld();
    SetUserState(std::move(shared), round);
  });
}

std::string ConcurrentRows::State() {
  std::shared_ptr<const std::string> state;
  {
    MutexLock lock(&mu_);
    state = state_->user_state();
  }
  return state == nullptr ? "" : *state;
}

void ConcurrentRows::SetUserState(std::shared_ptr<const std::string> state, Round* round) {
  round->former_state = state_->SetUserState(std::move(state));
}

bool ConcurrentRows::CancelReservation(uint64_t id) {
  bool was_known = false;
  WithLock([&](Round*) { was_known = state_->CancelReservation(id); });
  return was_known;
}

int64_t ConcurrentRows::size() {
  MutexLock lock(&mu_);
  return state_->size();
}

int64_t ConcurrentRows::version() {
  MutexLock lock(&mu_);
  return state_->version();
}

// --- Checkpoints ----------------------------------------------------------------------------------

ConcurrentRows::Snapshots ConcurrentRows::TakeSnapshots(
    std::span<const std::shared_ptr<ConcurrentRows>> tables, const std::function<void()>& at_cut) {
  // Locks are taken in one global order. No other function takes two.
  std::vector<ConcurrentRows*> order;
  for (const auto& table : tables) order.push_back(table.get());
  std::ranges::sort(order);
  Snapshots snapshots;
  if (order.empty()) {
    if (at_cut) at_cut();
    return snapshots;
  }
  for (const auto& table : tables) {
    snapshots.tables.push_back(std::make_unique<RowTableSnapshot>(table->size()));
    snapshots.tables.back()->ChargeTo(&table->environment_.store->budget());
  }
  // Measured in real time, whatever clock the tables use.
  std::optional<std::chrono::steady_clock::time_point> first_locked;
  for (ConcurrentRows* const table : order) {
    table->mu_.Lock();
    if (!first_locked) first_locked = std::chrono::steady_clock::now();
  }
  for (size_t i = 0; i < tables.size(); ++i) {
    tables[i]->state_->Capture(snapshots.tables[i].get(), &tables[i]->environment_.store->budget());
    snapshots.tables[i]->mutable_table().created_by_client = tables[i]->environment_.created_by_client;
  }
  if (at_cut) at_cut();
  for (ConcurrentRows* const table : order) table->mu_.Unlock();
  snapshots.locks_held = std::chrono::steady_clock::now() - *first_locked;
  // The table may have grown since its snapshot was allocated.
  for (size_t i = 0; i < tables.size(); ++i) {
    snapshots.tables[i]->ChargeTo(&tables[i]->environment_.store->budget());
  }
  return snapshots;
}

Status ConcurrentRows::BeginRestore(SavedRowTable saved) {
  MutexLock lock(&mu_);
  return state_->BeginRestore(std::move(saved));
}

Status ConcurrentRows::RestoreRow(SavedRow row) {
  MutexLock lock(&mu_);
  return state_->RestoreRow(std::move(row));
}

Status ConcurrentRows::FinishRestore() {
  Status status;
  WithLock([&](Round* round) { status = state_->FinishRestore(&round->effects); });
  return status;
}

RowTableInfo ConcurrentRows::Info() {
  RowTableInfo info;
  WithLock([&](Round*) {
    mu_.AssertHeld();
    info = {.settings = options(),
            .counts = state_->Counts(),
            .consumers = state_->CountConsumers(),
            .version = state_->version(),
            .waiting_writes = std::ssize(writes_),
            .waiting_claims = std::ssize(claims_),
            .waiting_reservations = std::ssize(reserves_)};
    const TimePoint now = environment_.clock->Now();
    const auto explain = [&](const Waiting& waiting, std::string* reason) {
      mu_.AssertHeld();
      if (waiting.empty()) return;
      *reason = WaitText(waiting.front().get());
      info.longest_wait_nanos =
          std::max(info.longest_wait_nanos, std::max(now - waiting.front()->queued_at, Duration(0)).count());
    };
    explain(writes_, &info.write_reason);
    explain(claims_, &info.claim_reason);
    explain(reserves_, &info.reservation_reason);
    if (state_->user_state() != nullptr) info.state_bytes = std::ssize(*state_->user_state());
  });
  return info;
}

}  // namespace reverb::internal
