// insert_pipeline.h — sends items to a server: numbers them, sends them in order, keeps them until confirmed.
//
// The thread that finds the stream ready fills a message with the items added since the last one and sends
// it. If no message is in flight, the writer chooses this thread: its own if Send() does not block or it
// waits anyway, else a background thread. Otherwise it is the transport's thread, when a reply has arrived or
// enough items have been added. So messages grow with the load.
//
// Reconnects with growing pauses when the connection breaks, and resends unconfirmed items under the same
// numbers; the server skips those it has. The life id reveals a server that was restarted; items that it
// confirmed and no longer has are logged and counted.
//
// Ownership: shared between the writer and the open stream. Threads: the ItemSink methods belong to
// one writer; the others may be called from any thread. No lock is held while calling the transport.
#ifndef REVERB_CLIENT_INSERT_PIPELINE_H_
#define REVERB_CLIENT_INSERT_PIPELINE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/strand.h"
#include "client/backoff.h"
#include "client/item_sink.h"
#include "reverb/status.h"
#include "tensor/distinct_chunks.h"
#include "transport/transport.h"

namespace reverb::internal {

class InsertPipeline final : public ItemSink, public std::enable_shared_from_this<InsertPipeline> {
 public:
  struct Options {
    // Maximum bytes of unconfirmed chunks before the writer must wait; absent = unlimited.
    std::optional<int64_t> window_bytes = int64_t{64} << 20;
    std::string client_name = {};
    // How long to try to reconnect before the writer fails; absent = forever.
    Timeout reconnect_timeout = {};
    // How long to wait for the answer of a server before another attempt; absent = as long as the connection
    // waits. For connections that choose another server then.
    Timeout attempt_timeout = {};
    // False, for single inserts: once connected, the writer reconnects only while items are unconfirmed. An idle
    // one fails when its connection is lost.
    bool reconnects = true;
    Clock* clock = RealClock();
    // For connections to servers that can read it (ItemSink::payload_source). Must outlive all chunks.
    PayloadSource* payload_source = nullptr;
  };
  struct Stats {
    int64_t confirmed = 0;
    int64_t connections = 0;
    int64_t lost = 0;  // confirmed by a server that was restarted without them
    int64_t sent_bytes = 0;
    int64_t sent_messages = 0;
  };

  // Starts to connect in the background.
  static std::shared_ptr<InsertPipeline> Create(std::shared_ptr<Connection> connection, Options options);
  // Returns a sink that closes the pipeline when destroyed.
  static std::unique_ptr<ItemSink> Own(std::shared_ptr<InsertPipeline> pipeline);
  ~InsertPipeline() override;

  Status Add(Item item) override EXCLUDES(mu_) { return AddAll({&item, 1}); }
  Status AddAll(std::span<Item> items) override EXCLUDES(mu_);
  void Forget(uint64_t chunk_id) override EXCLUDES(mu_);
  int64_t pending_items() const override EXCLUDES(mu_);
  bool is_full() const override EXCLUDES(mu_);
  bool may_wait() const override EXCLUDES(mu_);
  uint64_t max_item_bytes() const override { return max_item_bytes_.load(std::memory_order_relaxed); }
  Status WaitForRoom(const WaitOptions& wait) override EXCLUDES(mu_);
  Status AwaitPending(int64_t at_most, const WaitOptions& wait) override EXCLUDES(mu_);
  PayloadSource* payload_source() const override { return options_.payload_source; }
  Status status() const override EXCLUDES(mu_);
  void Close() override EXCLUDES(mu_);

  Stats stats() const EXCLUDES(mu_);

 private:
  class Events;
  struct Queued {
    Item item;
    int64_t bytes = 0;  // of chunks that it brought into the window
  };
  struct SentMessage {
    uint64_t last_number = 0;
    uint64_t bytes = 0;
  };

  // Maximum size of a message. More is no faster, less is slower.
  static constexpr size_t kMessageItems = 512;
  static constexpr uint64_t kMessageBytes = 256 << 10;
  // Slows down a writer that is this far ahead of a stream that makes progress, so that data is still in the
  // caches when it is sent. Not a bound: without progress the writer does not wait.
  static constexpr int64_t kPaceBytes = 4 << 20;
  static constexpr int64_t kPaceResume = kPaceBytes - (128 << 10);  // soon: many short waits, none long
  static constexpr Duration kStallTimeout = std::chrono::milliseconds(5);
  // While items of a table are unconfirmed, further items of that table are held until the reply arrives,
  // this many have been added, or the time is up. A writer that is faster than the network then sends few
  // messages and loses no time, since the items of one table are inserted one after the other. Items of other
  // tables are not held: the reply may be waiting for a table that is full.
  static constexpr size_t kHoldItems = 128;
  static constexpr int64_t kHoldBytes = 64 << 10;
  // How often held items are checked: one that was held the last time too is sent.
  static constexpr Duration kHoldInterval = std::chrono::milliseconds(2);
  // When this much was added since a background thread was scheduled to send, the machine is busy, and the
  // writer sends itself.
  static constexpr size_t kLateItems = 2 * kHoldItems;
  static constexpr int64_t kLateBytes = kMessageBytes;
  // Number of chunks to forget that justifies a separate message.
  static constexpr size_t kForgetAlone = 64;

  InsertPipeline(std::shared_ptr<Connection> connection, Options options);

  void Connect() EXCLUDES(mu_);
  // Sends what is due.
  void Pump() EXCLUDES(mu_);
  Strand::Next Step() REQUIRES(mu_);
  // Calls Pump() on another thread. REQUIRES: strand_.Schedule() returned true.
  void PumpInBackground() EXCLUDES(mu_);
  std::optional<InsertMessage> NextMessage() REQUIRES(mu_);
  void OnReply(uint64_t attempt, InsertReply reply) EXCLUDES(mu_);
  void OnWelcome(const Welcome& welcome, std::vector<Trajectory>* done) REQUIRES(mu_);
  // Logs that unconfirmed items are sent to another server than before.
  void LogMove() REQUIRES(mu_);
  // Logs and counts confirmed items that the restarted server lacks.
  void LogLostItems(const Welcome& welcome) REQUIRES(mu_);
  void OnRejections(const std::vector<Rejection>& rejections) REQUIRES(mu_);
  void Fail(Status status) REQUIRES(mu_);
  // Keeps the first error.
  void SetStatus(Status status) REQUIRES(mu_);
  void OnSent(uint64_t attempt) EXCLUDES(mu_);
  void OnAttemptTimeout(uint64_t attempt) EXCLUDES(mu_);
  void OnClosed(uint64_t attempt, Status status) EXCLUDES(mu_);
  // Drops confirmed items. The caller destroys `*done`, with their chunks, without the lock: freeing memory
  // takes long, and the writer may be waiting for the lock.
  void Confirm(uint64_t through, std::vector<Trajectory>* done) REQUIRES(mu_);

  void Pace() REQUIRES(mu_);
  void TakeForgets() REQUIRES(mu_);
  template <typename Done>
  Status Await(const char* what, const WaitOptions& wait, Done done) EXCLUDES(mu_);
  std::string DescribeWait(const char* what, Duration waited) const REQUIRES(mu_);
  bool IsFull() const REQUIRES(mu_) {
    return options_.window_bytes && pending_chunks_.bytes() >= *options_.window_bytes;
  }
  // Returns whether the unsent items may wait for a reply.
  bool MayHold() const REQUIRES(mu_) {
    return connection_->send_may_block() && waiters_ == 0 && sent_through_ > confirmed_through_ &&
           sent_through_ >= send_now_through_ && last_number() - sent_through_ < kHoldItems &&
           unsent_bytes_ < kHoldBytes;
  }
  // Returns MayHold(), and if so sets the alarm that bounds the time.
  bool Hold() REQUIRES(mu_);
  void OnHoldAlarm() EXCLUDES(mu_);
  // Returns whether this table may have unconfirmed items on the stream.
  bool IsInFlight(const std::string& table) const REQUIRES(mu_) {
    const auto found = sent_by_table_.find(table);
    return found != sent_by_table_.end() && found->second > confirmed_through_;
  }
  // Returns whether the server's window is nearly full. Using all space as soon as it is confirmed would take
  // many small messages, so sending resumes when a quarter of the window is free.
  bool LacksRoom() const REQUIRES(mu_) {
    return !sent_.empty() &&
           unconfirmed_bytes_ > limits_.insert_window_bytes - limits_.insert_window_bytes / 4;
  }
  bool is_welcomed() const REQUIRES(mu_) { return reconnection_.is_welcomed(); }
  // Returns whether to ignore a callback of this attempt.
  bool IsStale(uint64_t attempt) const REQUIRES(mu_) {
    return strand_.is_closed() || !reconnection_.IsCurrent(attempt) || reconnection_.is_over();
  }
  // Returns whether the background thread is overdue.
  bool SenderIsLate() const REQUIRES(mu_) {
    return strand_.is_scheduled() &&
           (last_number() - sent_through_ >= kLateItems || unsent_bytes_ >= kLateBytes);
  }
  // Returns whether to send forgotten chunks without items; false while there are items to send them with.
  bool MayForgetAlone() const REQUIRES(mu_) {
    return last_number() == sent_through_ && forget_.size() - forgets_sent_ >= kForgetAlone;
  }
  uint64_t last_number() const REQUIRES(mu_) { return confirmed_through_ + items_.size(); }

  const std::shared_ptr<Connection> connection_;
  const Options options_;
  const Hello hello_;

  mutable Mutex mu_;
  CondVar changed_;
  int waiters_ GUARDED_BY(mu_) = 0;
  Status status_ GUARDED_BY(mu_);
  std::atomic<bool> failed_{false};  // status_ is not OK; read without the lock
  Stats stats_ GUARDED_BY(mu_);

  // --- Items, by number ---
  std::deque<Queued> items_ GUARDED_BY(mu_);  // the first has number confirmed_through_ + 1
  uint64_t confirmed_through_ GUARDED_BY(mu_) = 0;
  uint64_t sent_through_ GUARDED_BY(mu_) = 0;      // on this stream
  DistinctChunks pending_chunks_ GUARDED_BY(mu_);  // of unconfirmed items
  std::atomic<uint64_t> max_item_bytes_{UINT64_MAX};
  std::atomic<int64_t> pending_bytes_{0};  // of pending_chunks_; read without the lock
  int64_t unsent_bytes_ GUARDED_BY(mu_) = 0;
  // The last item of each table that was sent on this stream.
  std::map<std::string, uint64_t, std::less<>> sent_by_table_ GUARDED_BY(mu_);
  uint64_t send_now_through_ GUARDED_BY(mu_) = 0;  // items up to this one are not held
  bool hold_alarm_is_set_ GUARDED_BY(mu_) = false;
  uint64_t held_after_ GUARDED_BY(mu_) = 0;  // sent_through_ when the alarm was set
  bool makes_progress_ GUARDED_BY(mu_) = false;

  // --- The stream ---
  Reconnection reconnection_ GUARDED_BY(mu_);
  std::shared_ptr<InsertStream> stream_ GUARDED_BY(mu_);
  bool ready_ GUARDED_BY(mu_) = false;  // the stream accepts another message
  Strand strand_ GUARDED_BY(mu_);       // calls Send() of all streams; closed with the pipeline
  bool heartbeat_ GUARDED_BY(mu_) = false;
  Limits limits_ GUARDED_BY(mu_);
  std::optional<Id128> life_id_ GUARDED_BY(mu_);
  uint32_t shard_ GUARDED_BY(mu_) = 0;  // of the server, which becomes part of the keys
  std::string server_ GUARDED_BY(mu_);  // the address that answered last
  std::deque<SentMessage> sent_ GUARDED_BY(mu_);
  uint64_t unconfirmed_bytes_ GUARDED_BY(mu_) = 0;  // of the messages in sent_
  // Chunks to forget, each with the last item that may refer to it. Kept after they were sent until that item
  // is confirmed: a new stream may send the chunk again.
  struct Forgotten {
    uint64_t after = 0;
    uint64_t chunk_id = 0;
  };
  std::deque<Forgotten> forget_ GUARDED_BY(mu_);
  size_t forgets_sent_ GUARDED_BY(mu_) = 0;  // from the front, on this stream
  // Used only by the writer, which adds them to forget_ with its next item.
  std::vector<Forgotten> forget_next_;
  uint64_t added_ = 0;  // items

  std::string wait_text_ GUARDED_BY(mu_);              // the last reason that the server gave for waiting
  std::optional<TimePoint> asked_at_ GUARDED_BY(mu_);  // since when a heartbeat is unanswered
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_INSERT_PIPELINE_H_
