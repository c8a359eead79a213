// writer_session.h — one writer as the server knows it, over all its connections.
//
// Items come numbered. They are lined up by table and put in, table by table in order, as limiter and
// memory allow; a table that makes one writer wait does not hold up that writer's items for
// other tables. Confirmations go out in the order of the numbers. What was received is never received
// again: a number that came before, on this connection or an earlier one, is skipped. So within one life
// of the server each item goes in once.
//
// One stream is attached at a time; a newer one pushes the older out.
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
#include "checkpoint/source.h"
#include "core/table.h"
#include "service/service.h"
#include "tensor/distinct_chunks.h"
#include "tensor/item.h"
#include "transport/transport.h"

namespace reverb::internal {

class WriterSession : public std::enable_shared_from_this<WriterSession> {
 public:
  WriterSession(std::shared_ptr<Service> service, const Id128& id) : service_(std::move(service)), id_(id) {}

  // A writer that was saved in a checkpoint and may come back.
  WriterSession(std::shared_ptr<Service> service, const SavedWriter& saved);

  const Id128& id() const { return id_; }

  // The name of a stream to come. The calls below carry it: those of a stream that was pushed out by a
  // later one do nothing.
  uint64_t NewGeneration() EXCLUDES(mu_);
  // Attaches and greets the stream, unless a later one has come.
  void Attach(uint64_t generation, std::string client_name, std::shared_ptr<InsertPeer> peer) EXCLUDES(mu_);
  void OnMessage(uint64_t generation, InsertMessage message) EXCLUDES(mu_);
  void OnWritten(uint64_t generation) EXCLUDES(mu_);
  void OnDone(uint64_t generation) EXCLUDES(mu_);
  // Whether the writer is away now: without a stream, and none is expected.
  bool Detach(uint64_t generation) EXCLUDES(mu_);
  void End(uint64_t generation, Status status) EXCLUDES(mu_);

  // A stream will be attached: from here on the writer is not away. Called under the service's lock.
  void Expect() EXCLUDES(mu_);
  bool is_away() const EXCLUDES(mu_);
  // One for each table that makes this writer wait. The reason is left to those who ask the tables.
  void AddWaits(std::vector<WaiterInfo>* waiters) const EXCLUDES(mu_);
  // Gives up what waits, for good.
  void Abandon() EXCLUDES(mu_);
  // How far this writer has come, given the tables as they are now: called while they are locked. After
  // Abandon(), what was given up then counts as never received. Absent when nothing ever went in.
  std::optional<SavedWriter> Save() const EXCLUDES(mu_);

 private:
  struct WaitingItem {
    Item item;           // its number stays when an operation takes the item
    Trajectory counted;  // once its memory is counted as waiting
  };
  // The items of this writer for one table, in order. At most one operation is under way.
  struct Line {
    std::shared_ptr<ConcurrentTable> table;
    std::deque<WaitingItem> waiting;  // those under way are at the front
    // Number of the last item that went in; written under the table's lock.
    std::atomic<uint64_t> applied{0};
    std::vector<uint64_t> given_up;     // numbers that were waiting when the writer was abandoned
    size_t under_way = 0;               // how many the operation has
    uint64_t sequence = 0;              // of the operation
    ConcurrentTable::Handle operation;  // while it waits
    TimePoint blocked_since;
    // What the table was told last, and at which of its resets.
    ItemStructure structure;
    uint64_t structure_resets = 0;
  };

  // Rejections that a client may not have seen, because its connection broke: the first, as that is the one
  // that a client reports. A client that has seen it needs no others.
  static constexpr size_t kRememberedRejections = 256;
  // Of one reply. As many again as this may be waiting to be told before the server stops reading.
  static constexpr size_t kMaxRejections = 1024;
  static constexpr size_t kItemsPerOperation = 256;
  // Asking a table why it waits is not free.
  static constexpr Duration kDescribeEvery = std::chrono::milliseconds(100);

  bool IsAttached(uint64_t generation) const REQUIRES(mu_) {
    return peer_ != nullptr && generation == generation_;
  }
  void Receive(InsertMessage message) REQUIRES(mu_);
  // Memory of items that could not go in at once, each chunk once.
  void CountWaiting(WaitingItem* item) REQUIRES(mu_);
  void DropWaiting(WaitingItem* item) REQUIRES(mu_);
  // Tells the service how many bytes wait here while the writer is away. To be called when either changes.
  void CountAwayBytes() REQUIRES(mu_);
  void Reject(uint64_t number, Status status) REQUIRES(mu_);
  // Makes the remembered rejections the first that are reported to a new stream.
  void RestoreRejections() REQUIRES(mu_);
  Result<Line*> FindLine(const std::string& table) REQUIRES(mu_);
  // Starts operations where there is something to do, then sends what there is to say.
  void Proceed() EXCLUDES(mu_);
  void StartOperation(Line* line) EXCLUDES(mu_);
  void OnInserted(Line* line, Operation& done) EXCLUDES(mu_);
  // Items for the next operation of the line; none when it has one, or has nothing to do.
  std::vector<Item> TakeItems(Line* line) EXCLUDES(mu_);
  // The first `applied` of the items under way are in. An error is final for all the others; otherwise they
  // wait in `items`.
  void Settle(Line* line, size_t applied, const Status& status, std::span<Item> items) EXCLUDES(mu_);
  void PumpReplies() EXCLUDES(mu_);
  std::optional<InsertReply> NextReply() REQUIRES(mu_);
  // Whether this writer has said farewell: every item is accounted for and the client was told.
  bool IsOver() const REQUIRES(mu_);
  const Line* OldestLine() const REQUIRES(mu_);
  uint64_t ConfirmedThrough() const REQUIRES(mu_);
  int64_t WaitingBytes() const REQUIRES(mu_) { return waiting_chunks_.bytes() + waiting_slices_bytes_; }
  bool HasRoom() const REQUIRES(mu_);
  // What is asked of a table to tell why the oldest item waits, when it is time to tell.
  struct Blocked {
    std::shared_ptr<ConcurrentTable> table;
    TimePoint since;
    size_t waiting_items = 0;
  };
  std::optional<Blocked> TakeHeartbeat() REQUIRES(mu_);

  const std::shared_ptr<Service> service_;
  const Id128 id_;

  mutable Mutex mu_;
  std::vector<std::unique_ptr<Line>> lines_ GUARDED_BY(mu_);
  uint64_t received_through_ GUARDED_BY(mu_) = 0;
  // From a checkpoint: what had gone in beyond received_through_, by table.
  std::vector<std::pair<std::string, uint64_t>> restored_ GUARDED_BY(mu_);
  size_t waiting_items_ GUARDED_BY(mu_) = 0;
  DistinctChunks waiting_chunks_ GUARDED_BY(mu_);
  int64_t waiting_slices_bytes_ GUARDED_BY(mu_) = 0;  // and all that items take beside their chunks
  bool abandoned_ GUARDED_BY(mu_) = false;
  bool is_away_ GUARDED_BY(mu_) = true;
  int64_t counted_away_bytes_ GUARDED_BY(mu_) = 0;  // as the service knows them

  // --- The attached stream, or the last one ---
  std::string client_name_ GUARDED_BY(mu_);
  std::string address_ GUARDED_BY(mu_);
  uint64_t last_generation_ GUARDED_BY(mu_) = 0;
  uint64_t generation_ GUARDED_BY(mu_) = 0;
  std::shared_ptr<InsertPeer> peer_ GUARDED_BY(mu_);
  bool greeted_ GUARDED_BY(mu_) = false;
  bool heartbeat_ GUARDED_BY(mu_) = false;  // to be answered
  std::optional<TimePoint> described_at_ GUARDED_BY(mu_);
  bool told_full_ GUARDED_BY(mu_) = false;    // why nothing more is read
  bool read_wanted_ GUARDED_BY(mu_) = false;  // the next message was not asked for yet
  bool done_ GUARDED_BY(mu_) = false;         // the client will send nothing more
  bool ended_ GUARDED_BY(mu_) = false;
  bool ready_ GUARDED_BY(mu_) = false;    // the peer takes another reply
  bool pumping_ GUARDED_BY(mu_) = false;  // some thread is handing replies over
  uint64_t reported_through_ GUARDED_BY(mu_) = 0;
  std::vector<Rejection> unreported_ GUARDED_BY(mu_);
  std::vector<Rejection> remembered_ GUARDED_BY(mu_);  // the first, whether or not they were sent
};

}  // namespace reverb::internal

#endif  // REVERB_SERVICE_WRITER_SESSION_H_
