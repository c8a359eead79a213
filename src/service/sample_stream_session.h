// sample_stream_session.h — the server's end of a stream of samples.
//
// Requests are served one after the other. For each, samples are drawn in small draws, as the limiter allows,
// and sent in replies of about kReplyBytes; the next draw is made when the last reply has left and the
// client still has credit. So no more is drawn than was asked for, and a client that does not keep up
// stops the drawing, not the server.
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
#include "core/table.h"
#include "service/service.h"
#include "transport/transport.h"

namespace reverb::internal {

// What a sampled trajectory adds to a reply: bytes, its headers left out and never too few, and slices.
struct SampleSize {
  uint64_t bytes = 0;
  size_t slices = 0;
};
SampleSize EstimateBytes(const Trajectory& trajectory);

class SampleStreamSession final : public SampleSession,
                                  public std::enable_shared_from_this<SampleStreamSession> {
 public:
  SampleStreamSession(std::shared_ptr<Service> service, std::shared_ptr<SamplePeer> peer, uint64_t stream_id,
                      uint64_t window_bytes, const Hello& hello);

  // Greets the client.
  void Begin() EXCLUDES(mu_) { Proceed(); }
  void End(Status status) EXCLUDES(mu_);
  // One if a table makes this stream wait. The reason is left to those who ask the tables.
  void AddWait(std::vector<WaiterInfo>* waiters) const EXCLUDES(mu_);

  void OnRequest(SampleRequest request) override EXCLUDES(mu_);
  void OnWritten() override EXCLUDES(mu_);
  void OnDone() override EXCLUDES(mu_);
  void OnGone() override EXCLUDES(mu_);

 private:
  // A reply aims at so many bytes and at most so many samples: smaller ones waste messages, larger
  // ones make the client wait for the first of them.
  static constexpr uint64_t kReplyBytes = 256 << 10;
  static constexpr size_t kReplySamples = 512;
  static constexpr int64_t kFirstDraw = 16;
  // Slices of a reply of several samples.
  static constexpr size_t kReplySlices = 1 << 16;
  // Drawn at once for a client of this process, which takes them by reference.
  static constexpr int64_t kMaxDraw = 1 << 14;

  // Does what can be done: sends what was drawn, draws, takes the next request.
  void Proceed() EXCLUDES(mu_);
  bool BeginNextRequest() REQUIRES(mu_);
  std::optional<SampleReply> NextReply() REQUIRES(mu_);
  // How many to draw now; 0 = none.
  int64_t NextDraw() const REQUIRES(mu_);
  // Whether what was drawn makes a reply.
  bool HasEnough() const REQUIRES(mu_);
  // Bytes of a reply of several samples.
  uint64_t MaxReplyBytes() const;
  // RESOURCE_EXHAUSTED for an item that is too large for this client.
  Status CheckDrawn(const ConcurrentTable& table, const Sample& item, const SampleSize& size) const;
  SampleReply TakeReply() REQUIRES(mu_);
  void Draw(const std::shared_ptr<ConcurrentTable>& table, int64_t count, std::optional<Duration> timeout)
      EXCLUDES(mu_);
  void OnDrawn(const ConcurrentTable& table, Operation& done) EXCLUDES(mu_);
  void TakeDrawn(const ConcurrentTable& table, std::vector<Sample> items, Status status) EXCLUDES(mu_);
  // Samples of `table` were drawn and cannot be sent.
  void CountUndelivered(const ConcurrentTable* table, size_t samples) const;

  const std::shared_ptr<Service> service_;
  const uint64_t stream_id_;
  const uint64_t window_bytes_;
  const uint64_t max_response_bytes_;  // that the client accepts
  const bool shares_memory_;
  const std::string client_name_;
  const std::string address_;

  mutable Mutex mu_;
  std::shared_ptr<SamplePeer> peer_ GUARDED_BY(mu_);
  bool busy_ GUARDED_BY(mu_) = false;   // some thread is in Proceed()
  bool again_ GUARDED_BY(mu_) = false;  // it shall look once more
  bool ready_ GUARDED_BY(mu_) = true;   // the peer takes another reply
  bool greeted_ GUARDED_BY(mu_) = false;
  bool read_wanted_ GUARDED_BY(mu_) = true;
  bool done_ GUARDED_BY(mu_) = false;
  bool ended_ GUARDED_BY(mu_) = false;
  uint64_t unclaimed_bytes_ GUARDED_BY(mu_) = 0;  // of replies that the client has not taken yet
  // Given back for the reply that is being handed over: its bytes are counted only when that is done.
  uint64_t early_credit_ GUARDED_BY(mu_) = 0;

  std::deque<SampleRequest> requests_ GUARDED_BY(mu_);  // the first is being served once table_ is set
  std::shared_ptr<ConcurrentTable> table_ GUARDED_BY(mu_);
  int64_t to_draw_ GUARDED_BY(mu_) = 0;
  std::optional<Status> end_ GUARDED_BY(mu_);  // of the request, once nothing more will be drawn
  struct Drawn {
    Sample item;
    SampleSize size;
  };
  std::deque<Drawn> drawn_ GUARDED_BY(mu_);
  uint64_t drawn_bytes_ GUARDED_BY(mu_) = 0;     // estimated
  double bytes_per_sample_ GUARDED_BY(mu_) = 0;  // of late
  bool drawing_ GUARDED_BY(mu_) = false;
  uint64_t draw_sequence_ GUARDED_BY(mu_) = 0;
  ConcurrentTable::Handle operation_ GUARDED_BY(mu_);  // while it waits
  TimePoint blocked_since_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_SERVICE_SAMPLE_STREAM_SESSION_H_
