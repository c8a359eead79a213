// fake_connection_testing.h — a fake connection, whose server side a test controls.
#ifndef REVERB_CLIENT_FAKE_CONNECTION_TESTING_H_
#define REVERB_CLIENT_FAKE_CONNECTION_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/chunk.h"
#include "tensor/column.h"
#include "transport/transport.h"

namespace reverb::internal {

// Records what the client sends on a stream, and lets the test answer. Single-threaded.
template <typename Stream, typename Events>
struct FakeStream : Stream {
  Hello hello;
  std::shared_ptr<Events> events;
  bool cancelled = false;
  bool answers_cancel = false;

  void Cancel() override {
    cancelled = true;
    if (answers_cancel) Close(Status::Cancelled("cancelled on this side"));
  }
  void Close(Status status) { std::exchange(events, nullptr)->OnClosed(std::move(status)); }
};

struct FakeInsertStream final : FakeStream<InsertStream, InsertEvents> {
  std::vector<InsertMessage> messages;
  bool is_ready = true;           // the result of Send()
  uint64_t bytes_per_item = 100;  // the size of an item
  bool finished = false;
  std::thread::id last_sender;

  Sent Send(InsertMessage message) override {
    last_sender = std::this_thread::get_id();
    const uint64_t bytes = message.items.size() * bytes_per_item;
    messages.push_back(std::move(message));
    return {bytes, is_ready};
  }
  uint64_t NewBytes(const Trajectory&) const override { return bytes_per_item; }
  void Finish() override { finished = true; }

  void Welcome(uint64_t applied_through = 0, uint8_t life = 1, uint64_t window = 1 << 20) {
    InsertReply reply;
    reply.welcome.emplace();
    reply.welcome->server_life_id.fill(life);
    reply.welcome->applied_through = applied_through;
    reply.welcome->limits.insert_window_bytes = window;
    reply.confirmed_through = applied_through;
    events->OnReply(std::move(reply));
  }
  void Confirm(uint64_t through) { events->OnReply({.confirmed_through = through}); }
  // Returns the numbers of all items sent, in order.
  std::vector<uint64_t> numbers() const {
    std::vector<uint64_t> numbers;
    for (const InsertMessage& message : messages) {
      for (const Item& item : message.items) numbers.push_back(item.number);
    }
    return numbers;
  }
};

struct FakeSampleStream final : FakeStream<SampleStream, SampleEvents> {
  std::vector<SampleRequest> requests;
  bool grants_leases = true;            // sample of key k has the lease 1000 + k, if it is requested
  std::function<void()> on_end_stream;  // called for SampleRequest::end_stream

  void Send(SampleRequest request) override {
    requests.push_back(std::move(request));
    if (requests.back().end_stream && on_end_stream) on_end_stream();
  }
  void Finish() override {}

  // Sends `count` samples with consecutive keys from first_key on.
  void Reply(uint64_t request_id, int64_t count, uint64_t first_key = 0, std::optional<Status> end = {},
             uint64_t bytes = 10) {
    SampleReply reply;
    reply.request_id = request_id;
    for (int64_t i = 0; i < count; ++i) {
      reply.samples.emplace_back();
      reply.samples.back().key = first_key + static_cast<uint64_t>(i);
      const bool is_leased = grants_leases && !requests.empty() && requests.front().lease > Duration(0);
      if (is_leased) reply.samples.back().lease_id = 1000 + reply.samples.back().key;
    }
    reply.end = std::move(end);
    events->OnReply(std::move(reply), bytes);
  }
  void Welcome() {
    SampleReply reply;
    reply.welcome.emplace();
    events->OnReply(std::move(reply), 0);
  }
};

struct FakeConnection final : Connection {
  bool is_in_process = false;
  bool may_block = false;
  bool connected = true;
  bool refuse = false;  // new streams end immediately
  Result<ServerInfo> info = Unused();
  std::function<void()> on_info;
  std::function<Status(const WaitOptions&)> on_call;  // the result of single calls other than Info()
  std::vector<std::shared_ptr<FakeInsertStream>> inserts;
  std::vector<std::shared_ptr<FakeSampleStream>> samples;

  std::string address() const override { return "fake:1"; }
  bool in_process() const override { return is_in_process; }
  bool send_may_block() const override { return may_block; }
  bool is_connected() const override { return connected; }
  std::shared_ptr<InsertStream> OpenInsert(const Hello& hello,
                                           std::shared_ptr<InsertEvents> events) override {
    inserts.push_back(Opened<FakeInsertStream>(hello, std::move(events)));
    return inserts.back();
  }
  std::shared_ptr<SampleStream> OpenSample(const Hello& hello,
                                           std::shared_ptr<SampleEvents> events) override {
    samples.push_back(Opened<FakeSampleStream>(hello, std::move(events)));
    return samples.back();
  }
  Result<ServerInfo> Info(const WaitOptions&) override {
    if (on_info) on_info();
    return info;
  }
  Status Mutate(const MutateRequest&, const WaitOptions& wait) override { return Answer(wait); }
  Status Reset(std::string_view, const WaitOptions& wait) override { return Answer(wait); }
  Status SetRateLimiter(const SetRateLimiterRequest&, const WaitOptions& wait) override {
    return Answer(wait);
  }
  Status CreateTable(const CreateTableRequest&, const WaitOptions& wait) override { return Answer(wait); }
  Status RemoveTable(std::string_view, const WaitOptions& wait) override { return Answer(wait); }
  Status ChangeTable(const ChangeTableRequest&, const WaitOptions& wait) override { return Answer(wait); }
  Result<InspectReply> Inspect(const InspectRequest&, const WaitOptions& wait) override {
    REVERB_RETURN_IF_ERROR(Answer(wait));
    return InspectReply();
  }
  std::vector<SettleLeasesRequest> settled;
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request, const WaitOptions& wait) override {
    REVERB_RETURN_IF_ERROR(Answer(wait));
    settled.push_back(request);
    return LeaseOutcome{.settled = static_cast<int64_t>(request.acks.size() + request.releases.size())};
  }
  Result<std::string> Checkpoint(const WaitOptions& wait) override {
    REVERB_RETURN_IF_ERROR(Answer(wait));
    return std::string("path");
  }

 private:
  static Status Unused() { return Status::Unimplemented("a test has no use for this"); }
  Status Answer(const WaitOptions& wait) const { return on_call ? on_call(wait) : Unused(); }
  template <typename Stream, typename Events>
  std::shared_ptr<Stream> Opened(const Hello& hello, std::shared_ptr<Events> events) {
    auto stream = std::make_shared<Stream>();
    stream->hello = hello;
    stream->events = std::move(events);
    if (refuse) stream->Close(Status::Unavailable("nobody is there"));
    return stream;
  }
};

// Returns a trajectory of one row of `bytes` bytes, in a chunk of its own.
inline Trajectory MakeRow(size_t bytes = 8) {
  std::vector<uint8_t> raw(bytes), payload;
  ColumnEncoder encoder(DType::kUint8, {static_cast<uint32_t>(bytes)}, CodecPolicy::kNone);
  ChunkHeader header{.rows = 1};
  header.columns.push_back(encoder.Encode(raw, 1, &payload).value());
  return Trajectory::Single(Chunk::Copy(NextChunkId(), header, payload).value(), 0, 1).value();
}

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_FAKE_CONNECTION_TESTING_H_
