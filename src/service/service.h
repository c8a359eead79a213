// service.h — implements the requests to a server, for all transports.
//
// A Service serves a set of tables, which clients can change, over one chunk store. Streams become sessions: a WriterSession
// (writer_session.h) outlives the streams of its writer, a SampleStreamSession (sample_stream_session.h) is
// one stream. Tables implement all waiting; no thread waits for a client.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_SERVICE_SERVICE_H_
#define REVERB_SERVICE_SERVICE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "checkpoint/source.h"
#include "core/chunk_store.h"
#include "core/rows/row_table.h"
#include "core/table.h"
#include "reverb/status.h"
#include "service/client_log.h"
#include "service/row_service.h"
#include "transport/transport.h"

namespace reverb::internal {

// Bounds what clients can make a server use.
struct ServiceLimits {
  WireLimits wire;
  // Of one writer: bytes of items that were received and are not in their tables yet, and how many.
  // Beyond either the server stops reading from that writer. The welcome carries the first.
  uint64_t insert_window_bytes = uint64_t{16} << 20;
  size_t max_waiting_items = size_t{1} << 17;
  // The largest item, as MaxSampleBytes() counts it. Larger ones are rejected: samplers could not take them.
  uint64_t max_item_bytes = kDefaultMaxResponseBytes;
  // Per sampler: maximum bytes of replies in flight, whatever the client allows.
  uint64_t sample_window_bytes = uint64_t{64} << 20;
  size_t max_waiting_requests = 1024;
  // Streams at a time, and sessions of writers, those of disconnected ones included.
  size_t max_streams = 10'000;
  size_t max_writers = 100'000;
  // How long the session of a disconnected writer is kept, with its pending items; and how many bytes may be
  // pending for all of these together. Beyond that, the items of those that disconnected last are dropped,
  // which resend them when they reconnect.
  Duration disconnected_session_ttl = std::chrono::minutes(5);
  uint64_t max_disconnected_bytes = uint64_t{256} << 20;
  // After that only the sequence number of a writer is kept, so that nothing is inserted twice: for how long
  // since it disconnected, and of how many writers. Beyond that, those of the longest disconnected are dropped.
  Duration sequence_number_ttl = std::chrono::hours(24);
  size_t max_remembered_writers = 100'000;

  Status Validate() const;
  // Lowers limits on data in transit that the budget has no room for.
  void FitInto(const MemoryBudget& budget);
};

// What a server knows of a writer without a session.
struct WriterProgress {
  SavedWriter saved;
  std::optional<Rejection> first_rejection = {};  // the one that the client reports
};

// The socket of a server for clients on its host, as Info() announces it.
struct LocalEndpoint {
  std::string path;
  std::string boot_id;
  std::optional<int64_t> user_id;  // the only user that may connect; absent = any user
};

class SampleStreamSession;
class WriterSession;

class Service final : public RequestHandler, public std::enable_shared_from_this<Service> {
 public:
  struct Options {
    std::vector<std::shared_ptr<ConcurrentTable>> tables;          // of one store; names are unique
    std::vector<std::shared_ptr<ConcurrentRows>> row_tables = {};  // of the same store; names are unique
    std::shared_ptr<ChunkStore> store;
    std::string server_name = "reverb";
    ServiceLimits limits;
    // Writes a checkpoint and returns its path; absent = checkpoints are not available.
    std::function<Result<std::string>()> checkpoint;
    // The writers saved in the checkpoint that the tables were loaded from.
    std::vector<SavedWriter> writers = {};
    // Where writers of this process allocate payloads; null for private memory. Enabled by the first sampler that
    // reads them in place. Outlives all chunks.
    OnDemandSource* writer_source = nullptr;
    uint32_t shard = 0;  // in the welcome and the information; 0 = none
    Clock* clock = RealClock();
  };

  static Result<std::shared_ptr<Service>> Create(Options options);
  ~Service() override;

  // Ends all streams with UNAVAILABLE, and refuses new ones and calls that change a table; waits for those that
  // have begun, so that a checkpoint has what was confirmed. Other calls are still answered. Cancels the
  // pending items of writers, then calls `before_forgetting`, while SaveWriters() still has the writers.
  // Idempotent.
  void Stop(const std::function<void()>& before_forgetting = {});
  // Returns the progress of the writers for a checkpoint. Called while all tables are locked.
  std::vector<SavedWriter> SaveWriters() const EXCLUDES(mu_);
  // Sets the local endpoint that Info() reports.
  void Announce(LocalEndpoint endpoint) EXCLUDES(mu_);

  const Id128& life_id() const override { return life_id_; }
  const WireLimits& wire_limits() const override { return options_.limits.wire; }
  PayloadSource* payload_source() const override { return options_.writer_source; }
  MemoryBudget* memory() const override { return &options_.store->budget(); }
  Result<std::shared_ptr<InsertSession>> OpenInsert(const Hello& hello,
                                                    std::shared_ptr<InsertPeer> peer) override;
  Result<std::shared_ptr<SampleSession>> OpenSample(const Hello& hello,
                                                    std::shared_ptr<SamplePeer> peer) override;
  Result<ChunkRef> AllocateChunk(const ChunkHeader& header, uint8_t** payload) override;
  Result<ServerInfo> Info() override;
  Status Mutate(const MutateRequest& request) override;
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request) override;
  Status Reset(std::string_view table) override;
  Status SetRateLimiter(const SetRateLimiterRequest& request) override;
  Status CreateTable(const CreateTableRequest& request) override;
  Status RemoveTable(std::string_view table) override;
  Status ChangeTable(const ChangeTableRequest& request) override;
  Result<InspectReply> Inspect(const InspectRequest& request) override;
  bool inspect_may_block() const override { return options_.store->tier() != nullptr; }
  Result<std::string> Checkpoint() override;
  std::shared_ptr<PendingCall> StartRows(RowsRequest request, const RowsDone& done) override;

  struct Stats {
    size_t streams = 0;
    size_t writers = 0;               // with a session
    size_t remembered_writers = 0;    // of which only the sequence number is known
    int64_t undelivered_samples = 0;  // drawn for clients that disconnected before they were sent
  };
  Stats stats() const EXCLUDES(mu_);

  // An open stream.
  struct StreamInfo {
    std::string client_name;
    std::string address;  // of the client; empty within the server's own process
    bool is_insert = false;
    TimePoint opened;
  };
  std::vector<StreamInfo> streams() const EXCLUDES(mu_);

  // --- For the sessions ---
  const ServiceLimits& limits() const { return options_.limits; }
  Clock* clock() const { return options_.clock; }
  ChunkStore& store() { return *options_.store; }
  MemoryBudget& budget() const { return options_.store->budget(); }
  // Returns how many bytes of a writer may wait for their tables, and how many of a sampler may be on their way: less
  // while data in transit takes much of the memory. A stream of which nothing waits can always send a message.
  uint64_t InsertWindowBytes() const { return WindowBytes(options_.limits.insert_window_bytes); }
  uint64_t WindowBytes(uint64_t most) const;
  // Returns whether the chunks of a message, one of the least window, fit into the memory for data in transit.
  bool HasRoomToReceive() const;
  // Describes that this is not so, and logs it from time to time.
  WaitState DescribeMemoryWait(const ClientIdentity& client, Duration waited);
  // Returns NOT_FOUND, with the names of all tables, if there is none of that name.
  Result<std::shared_ptr<ConcurrentTable>> FindTable(std::string_view name) const EXCLUDES(tables_mu_);
  RowService& rows() { return rows_; }
  // Returns the tables that exist now, in the order in which they were created.
  std::vector<std::shared_ptr<ConcurrentTable>> tables() const EXCLUDES(tables_mu_);
  Welcome MakeWelcome(uint64_t applied_through) const;
  // The stream has closed.
  void StreamGone(uint64_t stream_id) EXCLUDES(mu_);
  // The writer has lost its stream: keeps its session for disconnected_session_ttl, then its sequence number
  // for sequence_number_ttl.
  void OnWriterDisconnected(const Id128& id) EXCLUDES(mu_);
  // Changes the number of bytes that are pending for disconnected writers.
  void AddDisconnectedBytes(int64_t bytes) {
    disconnected_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  // A call of a client begins to wait for a table.
  void OnWaitBegins() {
    if (!checks_waits_.load(std::memory_order_relaxed) && IsLogged()) ScheduleWaitCheck();
  }
  // The writer closed cleanly; drops its session.
  void ForgetWriter(const Id128& id) EXCLUDES(mu_);
  // Counts samples of `table` that were drawn for a client that disconnected before they were sent. Logs them
  // if sampling removes items.
  void CountUndelivered(const ConcurrentTable& table, int64_t samples, std::string_view client);

 private:
  explicit Service(Options options);
  Status CheckVersion(const Hello& hello) const;
  Result<std::shared_ptr<InsertSession>> DoOpenInsert(const Hello& hello, std::shared_ptr<InsertPeer> peer);
  Result<std::shared_ptr<SampleSession>> DoOpenSample(const Hello& hello, std::shared_ptr<SamplePeer> peer);
  void LogIfRefused(const Hello& hello, const std::string& address, const Status& status) const;
  // Fails if Info(), with one more table, exceeds what clients accept: they request it first, and could not
  // use any table.
  Status CheckInfoCanBeRead(ConcurrentTable* one_more);
  bool stopped() const EXCLUDES(mu_);
  // Held by a call that changes a table.
  class Change;
  // Returns a number for a new stream.
  Result<uint64_t> EnterStream() REQUIRES(mu_);
  struct Writer;
  struct Disconnected {
    Id128 id;
    TimePoint since;
  };
  // Puts a writer at the end of disconnected_, or removes it.
  void SetDisconnected(const Id128& id, Writer* writer, bool is_disconnected) REQUIRES(mu_);
  struct Sessions {
    std::vector<std::shared_ptr<WriterSession>> writers;
    std::vector<std::shared_ptr<SampleStreamSession>> samplers;
  };
  Sessions AllSessions() const EXCLUDES(mu_);
  // Calls CheckWaits() soon, unless that is scheduled.
  void ScheduleWaitCheck();
  // Logs calls that have waited for long, each once, and schedules the next check while any waits.
  void CheckWaits() EXCLUDES(mu_);
  // Lists what waits, longest first, with the reasons from `tables`.
  std::vector<WaiterInfo> Waiters(const std::vector<TableInfo>& tables) const EXCLUDES(mu_);
  // Drops pending items, sessions and sequence numbers of disconnected writers, as the limits require.
  void DropWriters() EXCLUDES(mu_);
  // Removes the session and remembers the sequence number, unless the writer has returned, or the tables have
  // not cancelled its items yet. Returns the session, to be destroyed without the lock.
  std::shared_ptr<WriterSession> EndSession(const Disconnected& writer) REQUIRES(mu_);
  void Remember(WriterProgress progress, TimePoint since) REQUIRES(mu_);
  void ForgetRemembered() REQUIRES(mu_);
  // Calls DropWriters() when the next session or sequence number expires.
  void ScheduleSweep() EXCLUDES(mu_);

  const Options options_;
  const Id128 life_id_;
  const int64_t started_nanos_;  // since the Unix epoch

  // Held by CreateTable(), which adds a table after several steps.
  Mutex creating_mu_;
  // No other lock is taken while this one is held.
  mutable Mutex tables_mu_;
  std::vector<std::shared_ptr<ConcurrentTable>> tables_ GUARDED_BY(tables_mu_);  // in order of creation
  std::map<std::string, std::shared_ptr<ConcurrentTable>, std::less<>> by_name_ GUARDED_BY(tables_mu_);

  RowService rows_;

  std::atomic<int64_t> undelivered_{0};
  LogEvery undelivered_log_;
  LogEvery disconnected_log_;
  LogEvery wait_log_;
  LogEvery memory_log_;
  std::atomic<bool> checks_waits_{false};  // CheckWaits() is scheduled
  // Changes that have begun and not ended. After `refuses_changes_` was set, none begins.
  std::atomic<int64_t> changes_{0};
  std::atomic<bool> refuses_changes_{false};
  mutable Mutex mu_;
  CondVar change_ended_;
  bool stopped_ GUARDED_BY(mu_) = false;
  LocalEndpoint local_ GUARDED_BY(mu_);
  uint64_t last_stream_id_ GUARDED_BY(mu_) = 0;
  struct Stream {
    std::function<void(Status)> end;
    std::shared_ptr<SampleStreamSession> sampler;  // null for those of writers
    StreamInfo info = {};
  };
  absl::flat_hash_map<uint64_t, Stream> streams_ GUARDED_BY(mu_);
  // Writers without a stream, the longest disconnected first.
  using DisconnectedList = std::list<Disconnected>;
  DisconnectedList disconnected_ GUARDED_BY(mu_);
  struct Writer {
    std::shared_ptr<WriterSession> session;
    std::optional<DisconnectedList::iterator> position = {};  // in disconnected_
  };
  absl::flat_hash_map<Id128, Writer> writers_ GUARDED_BY(mu_);
  // Writers without a session, in the order in which their sessions ended.
  struct RememberedWriter {
    WriterProgress progress;
    TimePoint since;  // disconnected
  };
  using RememberedList = std::list<RememberedWriter>;
  RememberedList remembered_ GUARDED_BY(mu_);
  absl::flat_hash_map<Id128, RememberedList::iterator> remembered_by_id_ GUARDED_BY(mu_);
  // Pending for all disconnected writers; the sessions count them.
  std::atomic<int64_t> disconnected_bytes_{0};
  // Abandoned by Stop(), until it returns.
  std::vector<std::shared_ptr<WriterSession>> stopped_writers_ GUARDED_BY(mu_);
  std::optional<TimePoint> next_sweep_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_SERVICE_SERVICE_H_
