#include "client/insert_pipeline.h"

#include <algorithm>
#include <utility>

#include "base/background.h"
#include "base/duration_text.h"
#include "base/log.h"
#include "base/random.h"
#include "base/wait_loop.h"
#include "transport/stream_poller.h"

namespace reverb::internal {
namespace {

constexpr Duration kHeartbeatInterval = std::chrono::seconds(1);
// A server that has not answered a heartbeat for this long may have stopped.
constexpr Duration kSilentAfter = std::chrono::seconds(1);

Hello MakeHello(const std::string& client_name) {
  Hello hello;
  hello.session_id = RandomId();
  hello.client_name = client_name;
  return hello;
}

class OwnedSink final : public ItemSink {
 public:
  explicit OwnedSink(std::shared_ptr<InsertPipeline> pipeline) : pipeline_(std::move(pipeline)) {}
  ~OwnedSink() override { pipeline_->Close(); }
  Status Add(Item item) override { return pipeline_->Add(std::move(item)); }
  Status AddAll(std::span<Item> items) override { return pipeline_->AddAll(items); }
  void Forget(uint64_t chunk_id) override { pipeline_->Forget(chunk_id); }
  int64_t pending_items() const override { return pipeline_->pending_items(); }
  bool is_full() const override { return pipeline_->is_full(); }
  bool may_wait() const override { return pipeline_->may_wait(); }
  Status WaitForRoom(const WaitOptions& wait) override { return pipeline_->WaitForRoom(wait); }
  uint64_t max_item_bytes() const override { return pipeline_->max_item_bytes(); }
  Status AwaitPending(int64_t at_most, const WaitOptions& wait) override {
    return pipeline_->AwaitPending(at_most, wait);
  }
  PayloadSource* payload_source() const override { return pipeline_->payload_source(); }
  Status status() const override { return pipeline_->status(); }
  void Close() override { pipeline_->Close(); }

 private:
  const std::shared_ptr<InsertPipeline> pipeline_;
};

}  // namespace

// Passes on the events of one stream with the number of its attempt, so that those of a former one are
// ignored.
class InsertPipeline::Events final : public InsertEvents {
 public:
  Events(std::shared_ptr<InsertPipeline> pipeline, uint64_t attempt)
      : pipeline_(std::move(pipeline)), attempt_(attempt) {}
  void OnReply(InsertReply reply) override { pipeline_->OnReply(attempt_, std::move(reply)); }
  void OnSent() override { pipeline_->OnSent(attempt_); }
  void OnClosed(Status status) override { pipeline_->OnClosed(attempt_, std::move(status)); }

 private:
  const std::shared_ptr<InsertPipeline> pipeline_;
  const uint64_t attempt_;
};

std::shared_ptr<InsertPipeline> InsertPipeline::Create(std::shared_ptr<Connection> connection,
                                                       Options options) {
  std::shared_ptr<InsertPipeline> pipeline(new InsertPipeline(std::move(connection), std::move(options)));
  pipeline->Connect();
  return pipeline;
}

std::unique_ptr<ItemSink> InsertPipeline::Own(std::shared_ptr<InsertPipeline> pipeline) {
  return std::make_unique<OwnedSink>(std::move(pipeline));
}

InsertPipeline::InsertPipeline(std::shared_ptr<Connection> connection, Options options)
    : connection_(std::move(connection)),
      options_(std::move(options)),
      hello_(MakeHello(options_.client_name)),
      reconnection_(EntropySeed()) {}

InsertPipeline::~InsertPipeline() = default;

// --- The writer's side ---

Status InsertPipeline::AddAll(std::span<Item> items) {
  bool is_scheduled = false;
  {
    MutexLock lock(&mu_);
    REVERB_RETURN_IF_ERROR(status_);
    TakeForgets();
    for (Item& item : items) {
      const int64_t bytes = pending_chunks_.Add(item.trajectory);
      unsent_bytes_ += bytes;
      const bool is_urgent = !IsInFlight(item.table);
      item.number = last_number() + 1;
      items_.push_back({std::move(item), bytes});
      if (is_urgent) send_now_through_ = last_number();
    }
    added_ += items.size();
    pending_bytes_.store(pending_chunks_.bytes(), std::memory_order_relaxed);
    const bool is_late = SenderIsLate();
    // The next message contains the items.
    if (!ready_ || strand_.is_running() || (strand_.is_scheduled() && !is_late) || !is_welcomed() || Hold() ||
        LacksRoom()) {
      Pace();
      return Status::Ok();
    }
    is_scheduled = !is_late && connection_->send_may_block() && strand_.Schedule();
  }
  is_scheduled ? PumpInBackground() : Pump();
  return Status::Ok();
}

// Keeps the system call off the thread of an actor: what the kernel does with the bytes (often the receiver's
// part as well) takes ten times as long as the rest of an insert.
void InsertPipeline::PumpInBackground() {
  RunInBackground([weak = weak_from_this()] {
    if (const auto pipeline = weak.lock()) pipeline->Pump();
  });
}

bool InsertPipeline::Hold() {
  if (!MayHold()) return false;
  if (hold_alarm_is_set_ || last_number() == sent_through_) return true;
  hold_alarm_is_set_ = true;
  held_after_ = sent_through_;
  options_.clock->CallAt(options_.clock->Now() + kHoldInterval, [weak = weak_from_this()] {
    if (const auto pipeline = weak.lock()) pipeline->OnHoldAlarm();
  });
  return true;
}

void InsertPipeline::OnHoldAlarm() {
  {
    MutexLock lock(&mu_);
    hold_alarm_is_set_ = false;
    if (!status_.ok() || last_number() == sent_through_) return;
    // Items that were added later get their own alarm.
    if (sent_through_ == held_after_) send_now_through_ = last_number();
    if (!ready_ || !is_welcomed() || Hold() || !strand_.Schedule()) return;
  }
  PumpInBackground();
}

void InsertPipeline::Pace() {
  if (unsent_bytes_ < kPaceBytes || !makes_progress_) return;
  ++waiters_;
  while (unsent_bytes_ > kPaceResume && is_welcomed() && status_.ok()) {
    const uint64_t sent_before = sent_through_;
    if (!changed_.WaitFor(&mu_, kStallTimeout) && sent_through_ == sent_before) {
      makes_progress_ = false;
      break;
    }
  }
  --waiters_;
}

void InsertPipeline::Forget(uint64_t chunk_id) {
  if (connection_->in_process()) return;  // such a server keeps no chunks per stream
  forget_next_.push_back({added_, chunk_id});
  if (forget_next_.size() < kForgetAlone) return;  // goes with the next items
  bool is_scheduled = false;
  {
    MutexLock lock(&mu_);
    TakeForgets();
    if (!MayForgetAlone() || !ready_ || strand_.is_running() || strand_.is_scheduled() || !is_welcomed())
      return;
    is_scheduled = connection_->send_may_block() && strand_.Schedule();
  }
  is_scheduled ? PumpInBackground() : Pump();
}

void InsertPipeline::TakeForgets() {
  forget_.insert(forget_.end(), forget_next_.begin(), forget_next_.end());
  forget_next_.clear();
}

int64_t InsertPipeline::pending_items() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(items_.size());
}

// The next three are called in every step. Without the lock they return a value that may be slightly out of
// date; only the writer itself can make it worse.
bool InsertPipeline::is_full() const {
  const int64_t bytes = pending_bytes_.load(std::memory_order_relaxed);
  return options_.window_bytes && bytes >= *options_.window_bytes;
}

bool InsertPipeline::may_wait() const {
  if (!is_full() && pending_bytes_.load(std::memory_order_relaxed) < kPaceBytes / 2) return false;
  MutexLock lock(&mu_);
  return IsFull() || (makes_progress_ && unsent_bytes_ >= kPaceBytes / 2);
}

Status InsertPipeline::status() const {
  if (!failed_.load(std::memory_order_acquire)) return Status::Ok();
  MutexLock lock(&mu_);
  return status_;
}

InsertPipeline::Stats InsertPipeline::stats() const {
  MutexLock lock(&mu_);
  return stats_;
}

Status InsertPipeline::WaitForRoom(const WaitOptions& wait) {
  return Await("for room in the window of unconfirmed data", wait,
               [this]() REQUIRES(mu_) { return !IsFull(); });
}

Status InsertPipeline::AwaitPending(int64_t at_most, const WaitOptions& wait) {
  return Await("for items to be confirmed", wait,
               [this, at_most]() REQUIRES(mu_) { return static_cast<int64_t>(items_.size()) <= at_most; });
}

template <typename Done>
Status InsertPipeline::Await(const char* what, const WaitOptions& wait, Done done) {
  WaitLoop loop(wait);
  StreamPoller<InsertStream> poller;
  mu_.Lock();
  Duration asked{0};
  ++waiters_;
  if (!done() && last_number() > sent_through_) {  // this thread waits anyway
    mu_.Unlock();
    Pump();
    mu_.Lock();
  }
  Status result;
  while (true) {
    if (!status_.ok()) {
      result = status_;
      break;
    }
    if (done()) break;
    const Duration waited = loop.waited();
    if (loop.expired()) {
      result = Status::DeadlineExceeded("Timeout exceeded: waiting " + DescribeWait(what, waited));
      break;
    }
    if (loop.ShouldLogNow()) {
      const std::string text = "still waiting " + DescribeWait(what, waited);
      mu_.Unlock();
      LogWait(what + connection_->address(), text, {{"address", connection_->address()}});
      mu_.Lock();
      continue;
    }
    if (waited - asked > kHeartbeatInterval) {
      asked = waited;
      heartbeat_ = true;  // the reply carries the reason
      if (!asked_at_) asked_at_ = options_.clock->Now();
      mu_.Unlock();
      Pump();
      mu_.Lock();
      continue;
    }
    const std::shared_ptr<InsertStream> stream = stream_;
    result = stream ? loop.Sleep(&changed_, &mu_, [&](Duration most) { return poller.Poll(stream, most); })
                    : loop.Sleep(&changed_, &mu_);
    if (!result.ok()) break;
  }
  if (--waiters_ > 0) changed_.NotifyAll();  // another one may have to read
  mu_.Unlock();
  return result;
}

std::string InsertPipeline::DescribeWait(const char* what, Duration waited) const {
  std::string text = std::string(what) + " by " + connection_->address() + " for " + DurationText(waited) +
                     "; " + std::to_string(items_.size()) +
                     (items_.size() == 1 ? " item with " : " items with ") +
                     std::to_string(pending_chunks_.bytes()) + " bytes not confirmed";
  if (reconnection_.is_lost()) {
    text += "; the server cannot be reached: " + reconnection_.last_failure().ToString();
  } else if (!wait_text_.empty()) {
    text += "; " + wait_text_;
  } else if (asked_at_) {
    const Duration silent = options_.clock->Now() - *asked_at_;
    if (silent > kSilentAfter) text += "; the server has not answered for " + DurationText(silent);
  }
  return text;
}

void InsertPipeline::Close() {
  std::shared_ptr<InsertStream> stream;
  bool all_confirmed = false;
  std::deque<Queued> dropped;  // data is freed outside the lock
  {
    MutexLock lock(&mu_);
    if (strand_.is_closed()) return;
    // A step may be inside Send() still: streams accept Finish() and Cancel() during it, so these need not
    // wait for the step.
    strand_.Close();
    all_confirmed = items_.empty();
    SetStatus(Status::Cancelled("the writer was closed"));
    stream = std::move(stream_);
    stream_ = nullptr;
    dropped.swap(items_);
    pending_chunks_ = {};
    pending_bytes_.store(0, std::memory_order_relaxed);
    changed_.NotifyAll();
  }
  if (stream) all_confirmed ? stream->Finish() : stream->Cancel();
}

// --- Sending ---

namespace {

// How many items ahead of the current one their data is prefetched: another thread has written it.
constexpr size_t kPrefetchAhead = 4;

// Prefetches what sending or releasing an item changes and reads first.
void PrefetchItem(const Item& item) {
  const auto* const object = static_cast<const char*>(Trajectory::counted_object(item.trajectory.handle()));
  __builtin_prefetch(object, /*rw=*/1);
  __builtin_prefetch(object + 64);
}

}  // namespace

void InsertPipeline::Pump() {
  MutexLock lock(&mu_);
  strand_.Run([this]() REQUIRES(mu_) { return Step(); });
}

Strand::Next InsertPipeline::Step() {
  if (stream_ == nullptr || !is_welcomed() || !ready_) return Strand::Next::kWait;
  std::optional<InsertMessage> message = NextMessage();
  if (!message) return Strand::Next::kWait;
  const std::shared_ptr<InsertStream> stream = stream_;
  const uint64_t attempt = reconnection_.attempt();
  const uint64_t last_number = message->items.empty() ? 0 : sent_through_;
  ready_ = false;
  mu_.Unlock();
  const InsertStream::Sent sent = stream->Send(*std::move(message));
  mu_.Lock();
  stats_.sent_bytes += static_cast<int64_t>(sent.bytes);
  ++stats_.sent_messages;
  if (!reconnection_.IsCurrent(attempt)) return Strand::Next::kAgain;
  ready_ |= sent.ready;
  if (last_number > confirmed_through_ && sent.bytes > 0) {
    sent_.push_back({last_number, sent.bytes});
    unconfirmed_bytes_ += sent.bytes;
  }
  return Strand::Next::kAgain;
}

std::optional<InsertMessage> InsertPipeline::NextMessage() {
  InsertMessage message;
  message.heartbeat = heartbeat_;
  const uint64_t room =
      limits_.insert_window_bytes - std::min(limits_.insert_window_bytes, unconfirmed_bytes_);
  const uint64_t most = std::min(kMessageBytes, limits_.max_message_bytes / 2);
  uint64_t bytes = 0;
  const size_t first = sent_through_ - confirmed_through_;
  const size_t end = Hold() || LacksRoom() ? first : std::min(items_.size(), first + kMessageItems);
  uint64_t* last_of_table = nullptr;  // in sent_by_table_
  const std::string* table = nullptr;
  message.items.reserve(std::min(end - first, kHoldItems));
  for (size_t i = first; i < std::min(end, first + kPrefetchAhead); ++i) PrefetchItem(items_[i].item);
  for (size_t i = first; i < end; ++i) {
    if (i + kPrefetchAhead < end) PrefetchItem(items_[i + kPrefetchAhead].item);
    const Item& item = items_[i].item;
    bytes += stream_->NewBytes(item.trajectory);
    // An item larger than the window is sent when no message is unconfirmed.
    if (bytes > room && !(message.items.empty() && sent_.empty())) break;
    if (bytes > most && !message.items.empty()) break;
    if (bytes > limits_.max_message_bytes) {
      Fail(Status::ResourceExhausted(
          "item " + std::to_string(item.key) + " for table \"" + item.table + "\" takes about " +
          std::to_string(bytes) + " bytes, more than the " + std::to_string(limits_.max_message_bytes) +
          " that " + connection_->address() +
          " accepts in a message; write shorter chunks, or raise max_message_bytes there"));
      return std::nullopt;
    }
    unsent_bytes_ -= items_[i].bytes;
    if (table == nullptr || *table != item.table) {
      table = &item.table;
      last_of_table = &sent_by_table_[item.table];
    }
    *last_of_table = item.number;
    message.items.push_back(item);
    message.items.back().key = WithShard(item.key, shard_);
  }
  sent_through_ += message.items.size();
  makes_progress_ |= !message.items.empty();
  if (waiters_ > 0 && unsent_bytes_ <= kPaceResume) changed_.NotifyAll();
  if (message.items.empty() && !heartbeat_ && !MayForgetAlone()) return std::nullopt;
  heartbeat_ = false;
  while (forgets_sent_ < forget_.size() && forget_[forgets_sent_].after <= sent_through_) {
    message.forget_chunks.push_back(forget_[forgets_sent_++].chunk_id);
  }
  if (message.items.empty() && !message.heartbeat && message.forget_chunks.empty()) return std::nullopt;
  return message;
}

// --- Events of the stream ---

void InsertPipeline::OnReply(uint64_t attempt, InsertReply reply) {
  std::vector<Trajectory> done;
  {
    MutexLock lock(&mu_);
    if (IsStale(attempt)) return;
    asked_at_.reset();
    OnRejections(reply.rejections);
    if (reply.welcome) OnWelcome(*reply.welcome, &done);
    if (reply.waiting) wait_text_ = std::move(reply.waiting->text);
    if (reply.insert_window_bytes != 0) limits_.insert_window_bytes = reply.insert_window_bytes;
    Confirm(reply.confirmed_through, &done);
    if (waiters_ > 0) changed_.NotifyAll();
  }
  Pump();
  done.clear();
}

void InsertPipeline::OnWelcome(const Welcome& welcome, std::vector<Trajectory>* done) {
  const std::string server = connection_->address();
  if (life_id_ && server != server_) {
    LogMove();
  } else if (life_id_ && confirmed_through_ > welcome.applied_through) {
    LogLostItems(welcome);
  }
  server_ = server;
  life_id_ = welcome.server_life_id;
  limits_ = welcome.limits;
  shard_ = welcome.shard;
  // 0 = unlimited.
  if (limits_.insert_window_bytes == 0) limits_.insert_window_bytes = UINT64_MAX;
  if (limits_.max_message_bytes == 0) limits_.max_message_bytes = UINT64_MAX;
  max_item_bytes_.store(limits_.max_item_bytes == 0 ? UINT64_MAX : limits_.max_item_bytes,
                        std::memory_order_relaxed);
  ++stats_.connections;
  reconnection_.Welcomed();
  Confirm(welcome.applied_through, done);
  sent_through_ = confirmed_through_;
  unsent_bytes_ = 0;
  for (const Queued& queued : items_) unsent_bytes_ += queued.bytes;
}

void InsertPipeline::LogMove() {
  Log(LogLevel::kWarning,
      "the server at " + server_ + " is lost: its writer continues with the server at " +
          connection_->address() + ", and sends " + std::to_string(items_.size()) +
          " unconfirmed items there; those that the lost server had inserted are doubled when it returns");
}

void InsertPipeline::LogLostItems(const Welcome& welcome) {
  const std::string server = "the server at " + connection_->address();
  if (*life_id_ == welcome.server_life_id) {
    return Log(
        LogLevel::kWarning,
        server +
            " has dropped the session of this writer, which was disconnected for too long: items that were "
            "in flight then may be inserted twice");
  }
  const uint64_t lost = confirmed_through_ - welcome.applied_through;
  stats_.lost += static_cast<int64_t>(lost);
  Log(LogLevel::kWarning, server + " was restarted: of the items that it had confirmed, " +
                              std::to_string(lost) + " are not in what it restored");
}

void InsertPipeline::OnRejections(const std::vector<Rejection>& rejections) {
  for (const Rejection& rejection : rejections) {
    if (rejection.number <= confirmed_through_ || rejection.number > last_number() || !status_.ok()) continue;
    const Item& item = items_[rejection.number - confirmed_through_ - 1].item;
    std::string text = "item " + std::to_string(item.key) + " for table \"" + item.table +
                       "\" was rejected: " + std::string(rejection.status.message());
    // A single insert does not expose its writer to the caller.
    if (options_.reconnects) {
      text +=
          "; it was item " + std::to_string(rejection.number) +
          " of this writer, which takes no more: make a new one. Items that were created after it may not "
          "have been inserted";
    }
    SetStatus(Status(rejection.status.code(), std::move(text), rejection.status.detail()));
  }
}

void InsertPipeline::Confirm(uint64_t through, std::vector<Trajectory>* done) {
  through = std::min(through, last_number());
  if (confirmed_through_ < through) {
    reconnection_.Progressed();
    wait_text_.clear();
    done->reserve(done->size() + through - confirmed_through_);
  }
  while (confirmed_through_ < through) {
    if (kPrefetchAhead < items_.size()) PrefetchItem(items_[kPrefetchAhead].item);
    Trajectory& trajectory = items_.front().item.trajectory;
    pending_chunks_.Remove(trajectory);
    done->push_back(std::move(trajectory));
    items_.pop_front();
    ++confirmed_through_;
    ++stats_.confirmed;
  }
  pending_bytes_.store(pending_chunks_.bytes(), std::memory_order_relaxed);
  sent_through_ = std::max(sent_through_, confirmed_through_);
  while (!sent_.empty() && sent_.front().last_number <= confirmed_through_) {
    unconfirmed_bytes_ -= sent_.front().bytes;
    sent_.pop_front();
  }
  for (; forgets_sent_ > 0 && forget_.front().after <= confirmed_through_; --forgets_sent_)
    forget_.pop_front();
}

void InsertPipeline::Fail(Status status) {
  SetStatus(std::move(status));
  changed_.NotifyAll();
}

void InsertPipeline::SetStatus(Status status) {
  if (!status_.ok()) return;
  status_ = std::move(status);
  failed_.store(true, std::memory_order_release);
}

void InsertPipeline::OnSent(uint64_t attempt) {
  {
    MutexLock lock(&mu_);
    if (!reconnection_.IsCurrent(attempt)) return;
    ready_ = true;
  }
  Pump();
}

// --- Connecting ---

void InsertPipeline::Connect() {
  uint64_t attempt = 0;
  {
    MutexLock lock(&mu_);
    if (strand_.is_closed()) return;
    attempt = reconnection_.Opening(options_.clock->Now());
    ready_ = false;
    sent_.clear();
    sent_by_table_.clear();
    unconfirmed_bytes_ = 0;
    // A new stream sends the chunks of unconfirmed items again, and no others.
    while (!forget_.empty() && forget_.front().after <= confirmed_through_) forget_.pop_front();
    forgets_sent_ = 0;
    sent_through_ = confirmed_through_;
    const Timeout bound = options_.attempt_timeout ? options_.attempt_timeout : options_.reconnect_timeout;
    if (bound && !connection_->in_process()) {
      reconnection_.BoundAttempt(options_.clock, *bound, [weak = weak_from_this(), attempt] {
        if (const auto pipeline = weak.lock()) pipeline->OnAttemptTimeout(attempt);
      });
    }
  }
  std::shared_ptr<InsertStream> stream =
      connection_->OpenInsert(hello_, std::make_shared<Events>(shared_from_this(), attempt));
  bool unwanted = false;
  {
    MutexLock lock(&mu_);
    unwanted = IsStale(attempt);
    if (!unwanted) {
      stream_ = stream;
      ready_ = true;
    }
  }
  if (unwanted) return stream->Cancel();
  Pump();
}

void InsertPipeline::OnAttemptTimeout(uint64_t attempt) {
  std::shared_ptr<InsertStream> stream;
  {
    MutexLock lock(&mu_);
    if (!strand_.is_closed() && reconnection_.TimeOut(attempt)) stream = stream_;
  }
  if (stream) stream->Cancel();  // OnClosed() follows
}

void InsertPipeline::OnClosed(uint64_t attempt, Status status) {
  std::shared_ptr<InsertStream> former;
  MutexLock lock(&mu_);
  if (!reconnection_.IsCurrent(attempt)) return;
  const bool was_welcomed = reconnection_.Over();
  ready_ = false;
  former = std::move(stream_);
  stream_ = nullptr;
  if (strand_.is_closed()) return;
  const TimePoint now = options_.clock->Now();
  const std::optional<Duration> pause =
      reconnection_.Lost(std::move(status), now, *connection_, options_.reconnect_timeout);
  // Resending unconfirmed items under their numbers does not insert them twice.
  const bool may_return =
      options_.reconnects || !was_welcomed || !items_.empty() || reconnection_.failed_by_damage();
  if (!pause || !may_return) return Fail(reconnection_.last_failure());
  options_.clock->CallAt(now + *pause, [weak = weak_from_this()] {
    if (const auto pipeline = weak.lock()) pipeline->Connect();
  });
}

}  // namespace reverb::internal
