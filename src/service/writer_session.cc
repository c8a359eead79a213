#include "service/writer_session.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "tensor/limiter_text.h"

namespace reverb::internal {
namespace {

// Queries the table, which may run callbacks on this thread: must be called without locks.
WaitState DescribeWait(ConcurrentTable& table, Duration waited, size_t waiting_items) {
  const TableInfo info = table.Info();
  WaitState state;
  state.table = info.name;
  state.reason = info.insert_wait_reason;
  state.waited = waited;
  state.text = DescribeInsertWait(info) + "; " + std::to_string(waiting_items) + " items of this writer wait";
  return state;
}

// By more than a quarter of the larger one.
bool DiffersNoticeably(uint64_t a, uint64_t b) {
  const auto [less, more] = std::minmax(a, b);
  return more - less > more / 4;
}

}  // namespace

WriterSession::WriterSession(std::shared_ptr<Service> service, const WriterProgress& progress)
    : service_(std::move(service)),
      id_(progress.saved.id),
      received_through_(progress.saved.applied_through),
      restored_(progress.saved.applied),
      reported_through_(progress.saved.applied_through) {
  if (progress.first_rejection) remembered_.push_back(*progress.first_rejection);
}

std::optional<SavedWriter> WriterSession::Save() const {
  MutexLock lock(&mu_);
  SavedWriter saved{.id = id_, .applied_through = received_through_, .applied = restored_};
  for (const auto& line : lines_) {
    const uint64_t applied = line->applied.load(std::memory_order_relaxed);
    // Finds the first item that is not in the table: items are inserted in order.
    if (abandoned_) {
      const auto next = std::ranges::upper_bound(line->given_up, applied);
      if (next != line->given_up.end()) saved.applied_through = std::min(saved.applied_through, *next - 1);
    } else {
      const auto next = std::ranges::find_if(
          line->waiting, [&](const WaitingItem& waiting) { return waiting.item.number > applied; });
      if (next != line->waiting.end()) {
        saved.applied_through = std::min(saved.applied_through, next->item.number - 1);
      }
    }
    if (applied == 0) continue;
    const auto known =
        std::ranges::find(saved.applied, line->table->name(), &std::pair<std::string, uint64_t>::first);
    if (known == saved.applied.end()) {
      saved.applied.emplace_back(line->table->name(), applied);
    } else {
      known->second = applied;
    }
  }
  std::erase_if(saved.applied, [&](const auto& entry) { return entry.second <= saved.applied_through; });
  if (saved.applied_through == 0 && saved.applied.empty()) return std::nullopt;
  return saved;
}

uint64_t WriterSession::NewGeneration() {
  MutexLock lock(&mu_);
  return ++last_generation_;
}

void WriterSession::Attach(uint64_t generation, std::string client_name, std::shared_ptr<InsertPeer> peer) {
  std::shared_ptr<InsertPeer> former;
  std::string address = peer->address();
  {
    MutexLock lock(&mu_);
    if (generation < generation_) {
      former = std::move(peer);
    } else {
      former = std::exchange(peer_, std::move(peer));
      generation_ = generation;
      client_name_ = std::move(client_name);
      address_ = std::move(address);
      is_disconnected_ = false;
      CountDisconnectedBytes();
      greeted_ = heartbeat_ = done_ = ended_ = full_reported_ = false;
      ready_ = read_wanted_ = true;
      memory_full_since_.reset();
      // Resends rejections that the old connection may not have delivered.
      RestoreRejections();
    }
  }
  if (former) former->End(Status(StatusCode::kAborted, "the writer reconnected on another connection"));
  CallPeer();
}

void WriterSession::OnMessage(uint64_t generation, InsertMessage message) {
  {
    std::vector<std::shared_ptr<Line>> dropped;  // destroyed without the lock, perhaps with their tables
    MutexLock lock(&mu_);
    if (!IsAttached(generation)) return;
    heartbeat_ |= message.heartbeat;
    read_wanted_ = true;
    Receive(std::move(message));
    dropped.swap(dropped_);
  }
  Proceed();
}

void WriterSession::Receive(InsertMessage message) {
  if (abandoned_) return;  // the stream is being ended
  Line* line = nullptr;
  for (Item& from : message.items) {
    if (from.number <= received_through_) continue;  // came before, on a connection that broke
    received_through_ = from.number;
    if (line == nullptr || line->table->name() != from.table) {
      Result<Line*> found = FindLine(from.table);
      if (!found.ok()) {
        line = nullptr;  // FindLine() may have dropped it
        Reject(from.number, from.table, std::move(found).status());
        continue;
      }
      line = *found;
    }
    if (from.number <= line->applied.load(std::memory_order_relaxed)) continue;  // inserted before a restart
    Result<Trajectory> trajectory = service_->store().Enter(std::move(from.trajectory));
    if (!trajectory.ok()) {
      Reject(from.number, line->table->name(), std::move(trajectory).status());
      continue;
    }
    WaitingItem to{.item = std::move(from), .counted = {}};
    to.item.trajectory = *std::move(trajectory);
    std::string().swap(to.item.table);  // the line knows the table
    Status status =
        CheckItemSize(to.item.trajectory, service_->limits().max_item_bytes, service_->limits().wire);
    if (status.ok()) status = line->table->CheckItem(to.item);
    if (status.ok()) status = line->table->CheckLayout(to.item, &line->layout);
    if (!status.ok()) {
      Reject(to.item.number, line->table->name(), std::move(status));
      continue;
    }
    ++waiting_items_;
    // Most are inserted at once: then the table accounts for their memory.
    if (line->under_way > 0 || line->waiting.size() >= kItemsPerOperation) CountWaiting(&to);
    line->waiting.push_back(std::move(to));
  }
  CountDisconnectedBytes();
}

void WriterSession::CountWaiting(WaitingItem* item) {
  if (!item->counted.empty()) return;
  item->counted = item->item.trajectory;
  waiting_slices_bytes_ += item->counted.memory_bytes() + static_cast<int64_t>(sizeof(WaitingItem));
  waiting_chunks_.Add(item->counted);
}

void WriterSession::DropWaiting(WaitingItem* item) {
  --waiting_items_;
  if (item->counted.empty()) return;
  waiting_slices_bytes_ -= item->counted.memory_bytes() + static_cast<int64_t>(sizeof(WaitingItem));
  waiting_chunks_.Remove(item->counted);
}

void WriterSession::Reject(uint64_t number, std::string_view table, Status status) {
  // Of an item that was resent after DropPending(): the writer knows, or will know, that it was rejected.
  if (std::ranges::find(remembered_, number, &Rejection::number) != remembered_.end()) return;
  if (IsRefusal(status)) LogRefusedClient(Client(), table, status);
  if (remembered_.size() < kRememberedRejections) remembered_.push_back({number, status});
  unreported_.push_back({number, std::move(status)});
}

void WriterSession::RestoreRejections() {
  // The remembered ones come first, then those that were never sent. Some are both.
  std::erase_if(unreported_, [this](const Rejection& rejection) REQUIRES(mu_) {
    return std::ranges::find(remembered_, rejection.number, &Rejection::number) != remembered_.end();
  });
  unreported_.insert(unreported_.begin(), remembered_.begin(), remembered_.end());
}

Result<WriterSession::Line*> WriterSession::FindLine(const std::string& table) {
  for (const auto& line : lines_) {
    if (line->table->name() == table && !line->table->is_removed()) return line.get();
  }
  DropRemovedLines();
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<ConcurrentTable> found, service_->FindTable(table));
  lines_.push_back(std::make_shared<Line>());
  lines_.back()->table = std::move(found);
  for (const auto& [name, number] : restored_) {
    if (name == table) lines_.back()->applied.store(number, std::memory_order_relaxed);
  }
  return lines_.back().get();
}

void WriterSession::DropRemovedLines() {
  const auto is_over = [](const std::shared_ptr<Line>& line) {
    return line->table->is_removed() && line->waiting.empty() && !line->operation;
  };
  if (std::ranges::none_of(lines_, is_over)) return;
  for (const auto& line : lines_) {
    const uint64_t applied = line->applied.load(std::memory_order_relaxed);
    if (!is_over(line) || applied == 0) continue;
    const std::string& name = line->table->name();
    std::erase_if(restored_, [&](const auto& entry) { return entry.first == name; });
    restored_.emplace_back(name, applied);
  }
  // Not std::ranges::stable_partition: clang 14 cannot compile the subrange that it returns.
  const auto over = std::stable_partition(lines_.begin(), lines_.end(), std::not_fn(is_over));
  dropped_.insert(dropped_.end(), over, lines_.end());
  lines_.erase(over, lines_.end());
  // Numbers up to here are never sent again.
  const uint64_t confirmed = ConfirmedThrough();
  std::erase_if(restored_, [&](const auto& entry) { return entry.second <= confirmed; });
}

void WriterSession::Proceed() {
  // Lines that move because another thread drops some are visited by that thread.
  for (size_t i = 0;; ++i) {
    std::shared_ptr<Line> line;
    {
      MutexLock lock(&mu_);
      if (i >= lines_.size()) break;
      line = lines_[i];
    }
    StartOperation(line);
  }
  CallPeer();
}

std::vector<Item> WriterSession::TakeItems(Line* line) {
  std::vector<Item> items;
  MutexLock lock(&mu_);
  if (abandoned_ || dropping_ || line->under_way > 0 || line->waiting.empty()) return items;
  line->under_way = std::min(line->waiting.size(), kItemsPerOperation);
  items.reserve(line->under_way);
  for (size_t i = 0; i < line->under_way; ++i) items.push_back(std::move(line->waiting[i].item));
  return items;
}

void WriterSession::StartOperation(const std::shared_ptr<Line>& line) {
  // Tries without waiting first, which mostly succeeds: callbacks of a table run one at a time.
  while (true) {
    std::vector<Item> items = TakeItems(line.get());
    if (items.empty()) return;
    const ConcurrentTable::Attempt attempt = line->table->TryInsert(items, &line->applied);
    Settle(line.get(), static_cast<size_t>(attempt.progress), attempt.status, items);
    if (attempt.reason != WaitReason::kNone) break;
  }
  std::vector<Item> items = TakeItems(line.get());
  if (items.empty()) return;
  uint64_t sequence = 0;
  {
    MutexLock lock(&mu_);
    sequence = ++line->sequence;
    line->blocked_since = service_->clock()->Now();
  }
  service_->OnWaitBegins();
  ConcurrentTable::Handle operation = line->table->InsertAsync(
      std::move(items), /*timeout=*/{},
      [self = shared_from_this(), line](Operation& done) { self->OnInserted(line, done); },
      /*allow_partial=*/true, &line->applied);
  bool cancel = false;
  {
    MutexLock lock(&mu_);
    // It may be complete already, and the next one in progress.
    if (line->under_way > 0 && line->sequence == sequence) line->operation = operation;
    cancel = abandoned_ || dropping_;
  }
  if (cancel) line->table->Cancel(operation);
}

void WriterSession::OnInserted(const std::shared_ptr<Line>& line, Operation& done) {
  Settle(line.get(), static_cast<size_t>(done.progress), done.status, done.own_items);
  StartOperation(line);
  CallPeer();
}

void WriterSession::Settle(Line* line, size_t applied, const Status& status, std::span<Item> items) {
  std::vector<std::deque<WaitingItem>> dropped;  // destroyed without the lock
  MutexLock lock(&mu_);
  line->operation.reset();
  // An error means that the table was closed, the writer abandoned, or its pending items dropped.
  const size_t finished = status.ok() || dropping_ ? applied : line->under_way;
  for (size_t i = 0; i < finished; ++i) {
    WaitingItem& item = line->waiting[i];
    if (i >= applied) Reject(item.item.number, line->table->name(), status);
    DropWaiting(&item);
  }
  // Those to be dropped only need their numbers.
  for (size_t i = finished; i < line->under_way && !dropping_; ++i) {
    line->waiting[i].item = std::move(items[i]);
    CountWaiting(&line->waiting[i]);
  }
  line->waiting.erase(line->waiting.begin(), line->waiting.begin() + static_cast<ptrdiff_t>(finished));
  line->under_way = 0;
  if (dropping_) dropped = FinishDropping();
  CountDisconnectedBytes();
}

void WriterSession::DropPending() {
  std::vector<std::pair<std::shared_ptr<ConcurrentTable>, ConcurrentTable::Handle>> operations;
  {
    std::vector<std::deque<WaitingItem>> dropped;  // destroyed without the lock
    MutexLock lock(&mu_);
    if (!is_disconnected_ || abandoned_ || dropping_ || waiting_items_ == 0) return;
    dropping_ = true;
    for (const auto& line : lines_) {
      if (line->operation) operations.emplace_back(line->table, line->operation);
    }
    dropped = FinishDropping();
    CountDisconnectedBytes();
  }
  for (auto& [table, operation] : operations) table->Cancel(operation);
  CallPeer();
}

std::vector<std::deque<WriterSession::WaitingItem>> WriterSession::FinishDropping() {
  std::vector<std::deque<WaitingItem>> dropped;
  // Items of an operation may still be inserted.
  if (std::ranges::any_of(lines_, [](const auto& line) { return line->under_way > 0; })) return dropped;
  // Of the items that follow, those that were inserted into other tables are known from Line::applied.
  received_through_ = ConfirmedThrough();
  for (const auto& line : lines_) dropped.push_back(std::exchange(line->waiting, {}));
  waiting_items_ = 0;
  waiting_chunks_ = {};
  waiting_slices_bytes_ = 0;
  dropping_ = false;
  return dropped;
}

int64_t WriterSession::pending_bytes() const {
  MutexLock lock(&mu_);
  return WaitingBytes();
}

std::optional<WriterProgress> WriterSession::Progress() const {
  WriterProgress progress{.saved = {.id = id_}};
  {
    MutexLock lock(&mu_);
    if (!is_disconnected_ || dropping_ || waiting_items_ > 0) return std::nullopt;
    if (!remembered_.empty()) progress.first_rejection = remembered_.front();
  }
  // Nothing is in progress, so nothing changes in between.
  if (std::optional<SavedWriter> saved = Save()) progress.saved = *std::move(saved);
  return progress;
}

void WriterSession::CountDisconnectedBytes() {
  waiting_charge_.Set(waiting_chunks_.bytes());
  slices_charge_.Set(waiting_slices_bytes_);
  const int64_t bytes = is_disconnected_ ? WaitingBytes() : 0;
  if (bytes == counted_disconnected_bytes_) return;
  service_->AddDisconnectedBytes(bytes - counted_disconnected_bytes_);
  counted_disconnected_bytes_ = bytes;
}

void WriterSession::CallPeer() {
  MutexLock lock(&mu_);
  strand_.Run([this]() REQUIRES(mu_) { return Step(); });
}

Strand::Next WriterSession::Step() {
  if (peer_ == nullptr || dropping_) return Strand::Next::kWait;
  if (ready_) {
    if (std::optional<InsertReply> reply = NextReply()) {
      SendReply(*std::move(reply));
      return Strand::Next::kAgain;
    }
    if (!ended_ && IsOver()) {
      EndStream();
      return Strand::Next::kAgain;
    }
  }
  return read_wanted_ && greeted_ && !done_ && !ended_ ? ReadNext() : Strand::Next::kWait;
}

void WriterSession::SendReply(InsertReply reply) {
  const std::shared_ptr<InsertPeer> peer = peer_;
  const uint64_t generation = generation_;
  ready_ = false;
  const bool is_asked = heartbeat_;
  const std::optional<Blocked> blocked = TakeHeartbeat();
  const std::optional<TimePoint> memory_full_since = is_asked ? memory_full_since_ : std::nullopt;
  const ClientIdentity client = memory_full_since ? Client() : ClientIdentity();
  mu_.Unlock();
  if (memory_full_since) [[unlikely]] {
    reply.waiting = service_->DescribeMemoryWait(client, service_->clock()->Now() - *memory_full_since);
  } else if (blocked) {
    reply.waiting =
        DescribeWait(*blocked->table, service_->clock()->Now() - blocked->since, blocked->waiting_items);
  }
  const bool is_ready = peer->Reply(std::move(reply));
  mu_.Lock();
  if (generation == generation_ && is_ready) ready_ = true;
}

void WriterSession::EndStream() {
  const std::shared_ptr<InsertPeer> peer = peer_;
  ended_ = true;
  mu_.Unlock();
  service_->ForgetWriter(id_);
  peer->End(Status::Ok());
  mu_.Lock();
}

Strand::Next WriterSession::ReadNext() {
  if (!HasRoom() || WaitsForMemory()) {
    // No heartbeat can arrive from here on, so the reason is sent once without one.
    if (std::exchange(full_reported_, true)) return Strand::Next::kWait;
    heartbeat_ = true;
    described_at_.reset();
    return ready_ ? Strand::Next::kAgain : Strand::Next::kWait;
  }
  const std::shared_ptr<InsertPeer> peer = peer_;
  full_reported_ = false;
  memory_full_since_.reset();
  read_wanted_ = false;
  mu_.Unlock();
  peer->ReadNext();
  mu_.Lock();
  return Strand::Next::kAgain;
}

std::optional<InsertReply> WriterSession::NextReply() {
  uint64_t confirmed = ConfirmedThrough();
  if (greeted_ && !heartbeat_ && unreported_.empty() && confirmed == reported_through_) return std::nullopt;
  InsertReply reply;
  if (unreported_.size() <= kMaxRejections) {
    reply.rejections = std::exchange(unreported_, {});
  } else {
    const auto end = unreported_.begin() + kMaxRejections;
    reply.rejections.assign(std::move_iterator(unreported_.begin()), std::move_iterator(end));
    unreported_.erase(unreported_.begin(), end);
    // A number is confirmed only after its rejection was sent.
    for (const Rejection& rejection : unreported_) confirmed = std::min(confirmed, rejection.number - 1);
    confirmed = std::max(confirmed, reported_through_);
  }
  if (!greeted_) {
    reply.welcome = service_->MakeWelcome(confirmed);
    reported_window_bytes_ = reply.welcome->limits.insert_window_bytes;
  } else if (const uint64_t window = service_->InsertWindowBytes();
             DiffersNoticeably(window, reported_window_bytes_)) {
    reply.insert_window_bytes = reported_window_bytes_ = window;
  }
  reply.confirmed_through = reported_through_ = confirmed;
  greeted_ = true;
  return reply;
}

std::optional<WriterSession::Blocked> WriterSession::TakeHeartbeat() {
  if (!std::exchange(heartbeat_, false)) return std::nullopt;
  const TimePoint now = service_->clock()->Now();
  if (described_at_ && now - *described_at_ < kMinDescribeInterval) return std::nullopt;
  const Line* const line = OldestLine();
  if (line == nullptr) return std::nullopt;
  described_at_ = now;
  return Blocked{line->table, line->blocked_since, waiting_items_};
}

void WriterSession::AddWaits(std::vector<WaiterInfo>* waiters) const {
  const TimePoint now = service_->clock()->Now();
  MutexLock lock(&mu_);
  for (const auto& line : lines_) {
    if (!line->operation) continue;
    waiters->push_back({.table = line->table->name(),
                        .is_insert = true,
                        .waited_nanos = (now - line->blocked_since).count(),
                        .count = static_cast<int64_t>(line->waiting.size()),
                        .client_name = client_name_,
                        .address = address_});
  }
}

bool WriterSession::TakeLongWaits(Duration after, std::vector<LongWait>* waits) {
  const TimePoint now = service_->clock()->Now();
  bool any_waits = false;
  MutexLock lock(&mu_);
  if (peer_ == nullptr || address_.empty()) return false;
  for (const auto& line : lines_) {
    if (!line->operation) continue;
    any_waits = true;
    const Duration waited = now - line->blocked_since;
    if (waited < after || line->logged_sequence == line->sequence) continue;
    line->logged_sequence = line->sequence;
    waits->push_back({.waiter = {.table = line->table->name(),
                                 .is_insert = true,
                                 .waited_nanos = waited.count(),
                                 .count = static_cast<int64_t>(line->waiting.size()),
                                 .client_name = client_name_,
                                 .address = address_},
                      .session = SessionText(id_)});
  }
  return any_waits;
}

ClientIdentity WriterSession::client() const {
  MutexLock lock(&mu_);
  return Client();
}

bool WriterSession::IsOver() const {
  return done_ && waiting_items_ == 0 && unreported_.empty() && reported_through_ == received_through_;
}

const WriterSession::Line* WriterSession::OldestLine() const {
  const Line* oldest = nullptr;
  for (const auto& line : lines_) {
    if (line->waiting.empty()) continue;
    if (oldest == nullptr || line->waiting.front().item.number < oldest->waiting.front().item.number)
      oldest = line.get();
  }
  return oldest;
}

uint64_t WriterSession::ConfirmedThrough() const {
  uint64_t confirmed = received_through_;
  for (const auto& line : lines_) {
    if (!line->waiting.empty()) confirmed = std::min(confirmed, line->waiting.front().item.number - 1);
  }
  return confirmed;
}

bool WriterSession::HasRoom() const {
  return waiting_items_ < service_->limits().max_waiting_items &&
         static_cast<uint64_t>(WaitingBytes()) < service_->InsertWindowBytes() &&
         unreported_.size() < kMaxRejections;
}

bool WriterSession::WaitsForMemory() {
  if (service_->HasRoomToReceive()) [[likely]]
    return false;
  const TimePoint now = service_->clock()->Now();
  if (!memory_full_since_) memory_full_since_ = now;
  if (now - *memory_full_since_ >= kMaxMemoryWait) return false;
  // What frees the memory, perhaps another client, does not tell.
  if (std::exchange(memory_alarm_is_set_, true)) return true;
  service_->clock()->CallAt(now + kMemoryCheckInterval, [weak = weak_from_this()] {
    const std::shared_ptr<WriterSession> self = weak.lock();
    if (self == nullptr) return;
    {
      MutexLock lock(&self->mu_);
      self->memory_alarm_is_set_ = false;
    }
    self->CallPeer();
  });
  return true;
}

void WriterSession::OnWritten(uint64_t generation) {
  {
    MutexLock lock(&mu_);
    if (!IsAttached(generation)) return;
    ready_ = true;
  }
  CallPeer();
}

void WriterSession::OnDone(uint64_t generation) {
  {
    MutexLock lock(&mu_);
    if (!IsAttached(generation)) return;
    done_ = true;
  }
  CallPeer();
}

bool WriterSession::Detach(uint64_t generation) {
  std::shared_ptr<InsertPeer> former;
  MutexLock lock(&mu_);
  if (!IsAttached(generation)) return false;
  former = std::move(peer_);
  peer_ = nullptr;
  if (generation != last_generation_) return false;  // the next one is about to be attached
  is_disconnected_ = true;
  CountDisconnectedBytes();
  return true;
}

void WriterSession::End(uint64_t generation, Status status) {
  std::shared_ptr<InsertPeer> peer;
  {
    MutexLock lock(&mu_);
    if (!IsAttached(generation)) return;
    peer = peer_;
  }
  peer->End(std::move(status));
}

void WriterSession::Expect() {
  MutexLock lock(&mu_);
  is_disconnected_ = false;
  CountDisconnectedBytes();
}

bool WriterSession::is_disconnected() const {
  MutexLock lock(&mu_);
  return is_disconnected_;
}

void WriterSession::Abandon() {
  std::vector<std::pair<std::shared_ptr<ConcurrentTable>, ConcurrentTable::Handle>> operations;
  {
    MutexLock lock(&mu_);
    if (std::exchange(abandoned_, true)) return;
    for (const auto& line : lines_) {
      for (const WaitingItem& waiting : line->waiting) line->given_up.push_back(waiting.item.number);
      if (line->operation) operations.emplace_back(line->table, line->operation);
    }
  }
  for (auto& [table, operation] : operations) table->Cancel(operation);
}

}  // namespace reverb::internal
