// sample_stream_session.h — the server's end of a stream of samples.
//
// Serves requests one after the other. Samples are drawn in small draws, as the limiter allows, and sent in
// replies of about kReplyBytes. The next draw follows once the last reply was sent and the client still has
// credit. So no more is drawn than was requested, and a slow client stops only its own draws.
//
// With a disk tier, samples are drawn and read in larger parts. While one part is being sent the next one is read, unless
// memory is tight; at most one is ahead. Drawing ahead never waits for the table.
//
// Threads: all methods may be called concurrently. No lock is held while calling a table or the peer.
#ifndef REVERB_SERVICE_SAMPLE_STREAM_SESSION_H_
#define REVERB_SERVICE_SAMPLE_STREAM_SESSION_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/strand.h"
#include "core/table.h"
#include "service/client_log.h"
#include "service/service.h"
#include "transport/transport.h"

namespace reverb::internal {

// The cost of a sampled trajectory in a reply: an upper bound of its bytes, without headers; its bytes when it is
// decoded, exact up to kDecodedBytesPerReply; and its slices.
struct SampleSize {
  uint64_t bytes = 0;
  uint64_t decoded_bytes = 0;
  size_t slices = 0;
};
SampleSize EstimateBytes(const Trajectory& trajectory);

class SampleStreamSession final : public SampleSession,
                                  public std::enable_shared_from_this<SampleStreamSession> {
 public:
  SampleStreamSession(std::shared_ptr<Service> service, std::shared_ptr<SamplePeer> peer, uint64_t stream_id,
                      uint64_t window_bytes, const Hello& hello);

  // Sends the welcome.
  void Begin() EXCLUDES(mu_) { Proceed(); }
  void End(Status status) EXCLUDES(mu_);
  // Adds an entry if a table blocks this stream. The caller adds the reason.
  void AddWait(std::vector<WaiterInfo>* waiters) const EXCLUDES(mu_);

  // Adds the wait of a client of another process that is longer than `after`, once. Returns whether it waits.
  bool TakeLongWait(Duration after, std::vector<LongWait>* waits) EXCLUDES(mu_);

  void OnRequest(SampleRequest request) override EXCLUDES(mu_);
  void OnWritten() override EXCLUDES(mu_);
  void OnDone() override EXCLUDES(mu_);
  void OnGone() override EXCLUDES(mu_);

 private:
  // Target size and maximum number of samples of a reply. Smaller replies cost more messages; larger ones
  // delay the first sample.
  static constexpr uint64_t kReplyBytes = 256 << 10;
  static constexpr size_t kReplySamples = 512;
  static constexpr int64_t kFirstDraw = 16;
  // Bounds the slices of a reply of several samples.
  static constexpr size_t kReplySlices = 1 << 16;
  // Bounds a draw for a client of this process, which takes samples by reference.
  static constexpr int64_t kMaxDraw = 1 << 14;
  static constexpr int64_t kMaxWholeBatch = 1 << 20;
  // With a disk tier, whose reads are faster together: the target size and the maximum number of samples of a draw. What
  // is drawn is read in parts of that size, since the size of samples is known only after they were drawn. Less if the
  // memory for data in transit is little: see TieredDrawBytes().
  static constexpr uint64_t kTieredDrawBytes = 16 << 20;
  static constexpr uint64_t kMinTieredDrawBytes = 1 << 20;
  static constexpr int64_t kMaxTieredDraw = 1 << 12;

  // Performs the steps that are due: reads the next request, draws samples, sends them.
  void Proceed() EXCLUDES(mu_);
  Strand::Next Step() REQUIRES(mu_);
  // Each returns whether it did something; they release the lock meanwhile.
  bool ReadNext(SamplePeer* peer) REQUIRES(mu_);
  bool DrawNext() REQUIRES(mu_);
  bool SendNext(SamplePeer* peer) REQUIRES(mu_);
  bool CanSend() const REQUIRES(mu_) { return ready_ && (unclaimed_bytes_ < window_bytes_ || !greeted_); }
  bool BeginNextRequest() REQUIRES(mu_);
  std::optional<SampleReply> NextReply() REQUIRES(mu_);
  // Returns how many samples to draw now; 0 = none.
  int64_t NextDraw() const REQUIRES(mu_);
  // Returns whether the drawn samples fill a reply.
  bool HasEnough() const REQUIRES(mu_);
  // Returns the maximum size of a reply of several samples.
  uint64_t MaxReplyBytes() const;
  // RESOURCE_EXHAUSTED for an item that is too large for this client.
  Status CheckDrawn(const ConcurrentTable& table, const Sample& item, const SampleSize& size) const;
  // Returns how many of the drawn samples the next reply contains.
  size_t NumInReply() const REQUIRES(mu_);
  SampleReply TakeReply() REQUIRES(mu_);
  void Draw(const std::shared_ptr<ConcurrentTable>& table, int64_t count, std::optional<Duration> timeout,
            const BatchOrder& order) EXCLUDES(mu_);
  void OnDrawn(const std::shared_ptr<ConcurrentTable>& table, Operation& done) EXCLUDES(mu_);
  // Passes the samples on to TakeDrawn(), once their data is in memory. Returns whether that was done at once; otherwise
  // a thread of the disk tier does it and proceeds.
  bool FetchDrawn(const std::shared_ptr<ConcurrentTable>& table, std::vector<Sample> items, Status status)
      EXCLUDES(mu_);
  // Does so for the next part of unread_.
  bool FetchNextPart(const std::shared_ptr<ConcurrentTable>& table) EXCLUDES(mu_);
  uint64_t TieredDrawBytes() const;
  // Returns whether the window of the client and the drawn samples leave room for more data from the disk tier.
  bool MayFetch() const REQUIRES(mu_);
  // Draws what the table gives without waiting.
  void DrawAhead(const std::shared_ptr<ConcurrentTable>& table, int64_t count, const BatchOrder& order)
      EXCLUDES(mu_);
  // `read_error`: why others of the draw could not be read.
  void TakeDrawn(ConcurrentTable& table, std::vector<Sample> items, Status status, Status read_error = {})
      EXCLUDES(mu_);
  // Releases the leases of drawn samples that cannot be sent, or counts the samples.
  void DropUndelivered(ConcurrentTable* table, std::span<const Sample> samples) const;
  // Makes the samples that were read ahead the next to be sent.
  void TakeAhead() REQUIRES(mu_);
  // Empties unread_. The caller drops what it contained, without the lock.
  std::vector<Sample> TakeUnread() REQUIRES(mu_);
  ClientIdentity Client() const {
    return {.name = client_name_, .address = address_, .session = std::to_string(stream_id_)};
  }
  // Counts samples of `table` that were drawn and cannot be sent.
  void CountUndelivered(const ConcurrentTable* table, size_t samples) const;

  const std::shared_ptr<Service> service_;
  const uint64_t stream_id_;
  const uint64_t window_bytes_;
  const uint64_t max_response_bytes_;  // that the client accepts
  const bool shares_memory_;
  const bool sends_references_;
  const std::string client_name_;
  const std::string address_;

  mutable Mutex mu_;
  std::shared_ptr<SamplePeer> peer_ GUARDED_BY(mu_);
  Strand strand_ GUARDED_BY(mu_);         // calls the peer; its final call is SamplePeer::End()
  Status stream_status_ GUARDED_BY(mu_);  // that the stream ends with
  bool ready_ GUARDED_BY(mu_) = true;     // the peer accepts another reply
  bool greeted_ GUARDED_BY(mu_) = false;
  bool read_wanted_ GUARDED_BY(mu_) = true;
  bool done_ GUARDED_BY(mu_) = false;             // the client will send nothing more
  bool has_ended_ GUARDED_BY(mu_) = false;        // either side has ended the stream
  uint64_t unclaimed_bytes_ GUARDED_BY(mu_) = 0;  // of replies that the client has not taken yet
  // Credit that came back for the reply being sent, whose bytes are counted only after Reply() returns.
  uint64_t early_credit_ GUARDED_BY(mu_) = 0;
  MemoryCharge reply_charge_ GUARDED_BY(mu_) = {service_->memory(), MemoryPart::kReplies};  // being sent

  std::deque<SampleRequest> requests_ GUARDED_BY(mu_);  // the first is being served once table_ is set
  std::shared_ptr<ConcurrentTable> table_ GUARDED_BY(mu_);
  int64_t to_draw_ GUARDED_BY(mu_) = 0;
  Trajectory first_ GUARDED_BY(mu_);           // of the request, if its rules compare samples
  std::optional<Status> end_ GUARDED_BY(mu_);  // of the request, once nothing more will be drawn
  // The draw that is being sent; empty once all of it was sent. drawn_sizes_ is not used if the client shares the memory.
  std::vector<Sample> drawn_ GUARDED_BY(mu_);
  std::vector<SampleSize> drawn_sizes_ GUARDED_BY(mu_);
  size_t num_sent_ GUARDED_BY(mu_) = 0;  // of drawn_
  // With a disk tier: those that follow drawn_, with their data.
  std::vector<Sample> ahead_ GUARDED_BY(mu_);
  std::vector<SampleSize> ahead_sizes_ GUARDED_BY(mu_);
  bool ahead_would_wait_ GUARDED_BY(mu_) = false;  // the table had none while drawn_ was being sent
  // With a disk tier: drawn samples whose data has not been read, and the status of their draw.
  std::deque<Sample> unread_ GUARDED_BY(mu_);
  Status unread_status_ GUARDED_BY(mu_);
  std::optional<Status> read_error_ GUARDED_BY(mu_);  // ends the stream once drawn_ was sent
  double bytes_per_sample_ GUARDED_BY(mu_) = 0;       // of late
  bool drawing_ GUARDED_BY(mu_) = false;
  uint64_t draw_sequence_ GUARDED_BY(mu_) = 0;
  uint64_t logged_draw_ GUARDED_BY(mu_) = 0;           // the last draw whose wait was logged
  ConcurrentTable::Handle operation_ GUARDED_BY(mu_);  // while a draw waits
  TimePoint blocked_since_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_SERVICE_SAMPLE_STREAM_SESSION_H_
