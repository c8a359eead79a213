// writer_session.h — the server's session of one writer, over all its connections.
//
// Items are numbered. Each table has a queue, whose items are inserted in order as limiter and memory allow;
// a table that blocks does not delay the writer's items for other tables. Confirmations are sent in the order
// of the numbers. Numbers received before, on this connection or an earlier one, are skipped. So within one
// life of the server each item is inserted once.
//
// One stream is attached at a time; a newer one replaces the older.
//
// Threads: all methods may be called concurrently. No lock is held while calling a table or a peer.
#ifndef REVERB_SERVICE_WRITER_SESSION_H_
#define REVERB_SERVICE_WRITER_SESSION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/strand.h"
#include "checkpoint/source.h"
#include "core/table.h"
#include "service/client_log.h"
#include "service/service.h"
#include "tensor/distinct_chunks.h"
#include "tensor/item.h"
#include "transport/transport.h"

namespace reverb::internal {

class WriterSession : public std::enable_shared_from_this<WriterSession> {
 public:
  WriterSession(std::shared_ptr<Service> service, const Id128& id) : service_(std::move(service)), id_(id) {}

  // Continues the session of a writer of which the server only has the progress.
  WriterSession(std::shared_ptr<Service> service, const WriterProgress& progress);

  const Id128& id() const { return id_; }

  // Returns the number of a stream to be attached. The calls below carry it: those of a stream that was
  // replaced by a later one do nothing.
  uint64_t NewGeneration() EXCLUDES(mu_);
  // Attaches the stream and sends the welcome, unless a later one was attached.
  void Attach(uint64_t generation, std::string client_name, std::shared_ptr<InsertPeer> peer) EXCLUDES(mu_);
  void OnMessage(uint64_t generation, InsertMessage message) EXCLUDES(mu_);
  void OnWritten(uint64_t generation) EXCLUDES(mu_);
  void OnDone(uint64_t generation) EXCLUDES(mu_);
  // Returns whether the writer is disconnected now: it has no stream and none is expected.
  bool Detach(uint64_t generation) EXCLUDES(mu_);
  void End(uint64_t generation, Status status) EXCLUDES(mu_);

  // A stream will be attached: the writer no longer counts as disconnected. Called under the service's lock.
  void Expect() EXCLUDES(mu_);
  bool is_disconnected() const EXCLUDES(mu_);
  // Adds an entry for each table that blocks this writer. The caller adds the reasons.
  void AddWaits(std::vector<WaiterInfo>* waiters) const EXCLUDES(mu_);
  // Adds the waits of a connected client of another process that are longer than `after`, each once. Returns
  // whether anything of it waits.
  bool TakeLongWaits(Duration after, std::vector<LongWait>* waits) EXCLUDES(mu_);
  // Returns the client of the attached stream, or of the last one.
  ClientIdentity client() const EXCLUDES(mu_);
  // Frees the pending items of a disconnected writer, which will resend them: takes back their numbers. The
  // writer's next stream is welcomed when the tables have cancelled the inserts. Does nothing if the writer is
  // connected.
  void DropPending() EXCLUDES(mu_);
  int64_t pending_bytes() const EXCLUDES(mu_);
  // Returns what remains to be known of this writer if it is disconnected and no item is pending, else absent.
  std::optional<WriterProgress> Progress() const EXCLUDES(mu_);
  // Cancels all pending items for good.
  void Abandon() EXCLUDES(mu_);
  // Returns the progress of this writer in the tables as they are now: called while they are locked. Items
  // cancelled by Abandon() count as never received. Absent if nothing was ever inserted.
  std::optional<SavedWriter> Save() const EXCLUDES(mu_);

 private:
  struct WaitingItem {
    Item item;           // its number is kept when an operation takes the item
    Trajectory counted;  // set once its memory counts as pending
  };
  // The items of this writer for one table, in order. At most one operation is in progress.
  struct Line {
    std::shared_ptr<ConcurrentTable> table;
    std::deque<WaitingItem> waiting;  // those of the operation are at the front
    // Number of the last item that was inserted; written under the table's lock.
    std::atomic<uint64_t> applied{0};
    std::vector<uint64_t> given_up;     // numbers that were waiting when the writer was abandoned
    size_t under_way = 0;               // items of the operation
    uint64_t sequence = 0;              // of the operation
    uint64_t logged_sequence = 0;       // of the last operation whose wait was logged
    ConcurrentTable::Handle operation;  // while it waits
    TimePoint blocked_since;
    TableLayout::Checked layout;
  };

  // Maximum number of rejections kept for a client whose connection broke before it received them: the first
  // ones, since a client reports the first.
  static constexpr size_t kRememberedRejections = 256;
  // Maximum number of rejections in a reply. The server stops reading when as many more are pending.
  static constexpr size_t kMaxRejections = 1024;
  static constexpr size_t kItemsPerOperation = 256;
  // Minimum time between two queries for the reason of a wait, which are not free.
  static constexpr Duration kMinDescribeInterval = std::chrono::milliseconds(100);
  // While memory for data in transit is full: how often a stream checks whether it may read, and after what time it reads
  // anyway. The message may then be refused, which ends the stream and frees the chunks that it keeps for later items:
  // otherwise such streams could wait for each other.
  static constexpr Duration kMemoryCheckInterval = std::chrono::milliseconds(20);
  static constexpr Duration kMaxMemoryWait = std::chrono::seconds(1);

  bool IsAttached(uint64_t generation) const REQUIRES(mu_) {
    return peer_ != nullptr && generation == generation_;
  }
  void Receive(InsertMessage message) REQUIRES(mu_);
  // Count the memory of items that could not be inserted at once, each chunk once.
  void CountWaiting(WaitingItem* item) REQUIRES(mu_);
  void DropWaiting(WaitingItem* item) REQUIRES(mu_);
  // Charges the pending bytes, and reports them to the service while the writer is disconnected. Called when either
  // changes.
  void CountDisconnectedBytes() REQUIRES(mu_);
  // Completes DropPending() if no operation is in progress. The caller destroys the result without the lock.
  std::vector<std::deque<WaitingItem>> FinishDropping() REQUIRES(mu_);
  void Reject(uint64_t number, std::string_view table, Status status) REQUIRES(mu_);
  ClientIdentity Client() const REQUIRES(mu_) {
    return {.name = client_name_, .address = address_, .session = SessionText(id_)};
  }
  // Makes the remembered rejections the first that are reported to a new stream.
  void RestoreRejections() REQUIRES(mu_);
  Result<Line*> FindLine(const std::string& table) REQUIRES(mu_);
  // Drops the lines of removed tables that have nothing left to do.
  void DropRemovedLines() REQUIRES(mu_);
  // Starts the operations that are due, then calls the peer.
  void Proceed() EXCLUDES(mu_);
  void StartOperation(const std::shared_ptr<Line>& line) EXCLUDES(mu_);
  void OnInserted(const std::shared_ptr<Line>& line, Operation& done) EXCLUDES(mu_);
  // Returns the items for the next operation of the line; none if one is in progress or nothing is queued.
  std::vector<Item> TakeItems(Line* line) EXCLUDES(mu_);
  // The operation has inserted its first `applied` items. An error rejects the others; otherwise they return
  // to the queue from `items`.
  void Settle(Line* line, size_t applied, const Status& status, std::span<Item> items) EXCLUDES(mu_);
  // Calls the peer as long as something is due: sends replies, ends the stream, reads the next message.
  void CallPeer() EXCLUDES(mu_);
  Strand::Next Step() REQUIRES(mu_);
  // Each releases the lock while it calls the peer.
  void SendReply(InsertReply reply) REQUIRES(mu_);
  void EndStream() REQUIRES(mu_);
  Strand::Next ReadNext() REQUIRES(mu_);
  std::optional<InsertReply> NextReply() REQUIRES(mu_);
  // Returns whether the writer closed cleanly: all items are settled and reported to the client.
  bool IsOver() const REQUIRES(mu_);
  const Line* OldestLine() const REQUIRES(mu_);
  uint64_t ConfirmedThrough() const REQUIRES(mu_);
  int64_t WaitingBytes() const REQUIRES(mu_) { return waiting_chunks_.bytes() + waiting_slices_bytes_; }
  bool HasRoom() const REQUIRES(mu_);
  // Returns whether to wait until memory for data in transit is free, and if so sets an alarm.
  bool WaitsForMemory() REQUIRES(mu_);
  // The table to query for the reason why the oldest item waits.
  struct Blocked {
    std::shared_ptr<ConcurrentTable> table;
    TimePoint since;
    size_t waiting_items = 0;
  };
  std::optional<Blocked> TakeHeartbeat() REQUIRES(mu_);

  const std::shared_ptr<Service> service_;
  const Id128 id_;

  mutable Mutex mu_;
  std::vector<std::shared_ptr<Line>> lines_ GUARDED_BY(mu_);    // operations share their line
  std::vector<std::shared_ptr<Line>> dropped_ GUARDED_BY(mu_);  // to be destroyed without the lock
  uint64_t received_through_ GUARDED_BY(mu_) = 0;
  // By table, of a checkpoint or of a table that was removed: the last number that was inserted.
  std::vector<std::pair<std::string, uint64_t>> restored_ GUARDED_BY(mu_);
  size_t waiting_items_ GUARDED_BY(mu_) = 0;
  DistinctChunks waiting_chunks_ GUARDED_BY(mu_);
  int64_t waiting_slices_bytes_ GUARDED_BY(mu_) = 0;  // of items, without their chunks
  bool abandoned_ GUARDED_BY(mu_) = false;
  bool dropping_ GUARDED_BY(mu_) = false;  // DropPending() is not complete
  bool is_disconnected_ GUARDED_BY(mu_) = true;
  int64_t counted_disconnected_bytes_ GUARDED_BY(mu_) = 0;  // as reported to the service
  MemoryCharge waiting_charge_ GUARDED_BY(mu_) = {service_->memory(), MemoryPart::kWaiting};  // chunks
  MemoryCharge slices_charge_ GUARDED_BY(mu_) = {service_->memory(), MemoryPart::kSessions};

  // --- The attached stream, or the last one ---
  std::string client_name_ GUARDED_BY(mu_);
  std::string address_ GUARDED_BY(mu_);
  uint64_t last_generation_ GUARDED_BY(mu_) = 0;
  uint64_t generation_ GUARDED_BY(mu_) = 0;
  std::shared_ptr<InsertPeer> peer_ GUARDED_BY(mu_);
  bool greeted_ GUARDED_BY(mu_) = false;
  bool heartbeat_ GUARDED_BY(mu_) = false;  // the client expects a reply
  std::optional<TimePoint> described_at_ GUARDED_BY(mu_);
  bool full_reported_ GUARDED_BY(mu_) = false;                  // the client knows why nothing more is read
  std::optional<TimePoint> memory_full_since_ GUARDED_BY(mu_);  // nothing is read because of it
  bool memory_alarm_is_set_ GUARDED_BY(mu_) = false;
  bool read_wanted_ GUARDED_BY(mu_) = false;  // the next message was not requested yet
  bool done_ GUARDED_BY(mu_) = false;         // the client will send nothing more
  bool ended_ GUARDED_BY(mu_) = false;
  bool ready_ GUARDED_BY(mu_) = false;  // the peer accepts another reply
  Strand strand_ GUARDED_BY(mu_);       // calls the peers of all streams, never closed
  uint64_t reported_through_ GUARDED_BY(mu_) = 0;
  uint64_t reported_window_bytes_ GUARDED_BY(mu_) = 0;
  std::vector<Rejection> unreported_ GUARDED_BY(mu_);
  std::vector<Rejection> remembered_ GUARDED_BY(mu_);  // the first ones, whether or not they were sent
};

}  // namespace reverb::internal

#endif  // REVERB_SERVICE_WRITER_SESSION_H_
