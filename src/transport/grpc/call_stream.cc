#include "transport/grpc/call_stream.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "transport/grpc/callback_hold.h"

namespace reverb::internal {

namespace {

// Tags of operations.
char written_tag, read_tag, finished_tag;

// Larger requests are calls of their own, since they are copied into the message of the stream.
constexpr uint64_t kMaxRequestBytes = 64 << 10;
// Bounds the streams without a call that are kept.
constexpr size_t kMaxIdleCallStreams = 4;
// A stream that was used so recently is not checked.
constexpr Duration kTrustedIdleTime = std::chrono::milliseconds(10);
// When a stream is tried again after the server refused one: it may be another server then.
constexpr Duration kRefusalInterval = std::chrono::seconds(60);

// The calls over streams of this process.
std::atomic<int> num_running{0};

class RunningCall {
 public:
  RunningCall() { num_running.fetch_add(1, std::memory_order_relaxed); }
  ~RunningCall() { num_running.fetch_sub(1, std::memory_order_relaxed); }
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;
};

// Returns whether a caller itself receives its answer: else polling would only take the processor from another thread.
bool MayPoll() {
  return CallbackHold::Get().is_holding() && num_running.load(std::memory_order_relaxed) == 1;
}

// Calls that programs make often, that may be repeated and never wait.
bool MayUseStream(Method method) { return method == Method::kMutate || method == Method::kSettleLeases; }

}  // namespace

CallStream::CallStream(std::shared_ptr<GrpcChannel> channel) : channel_(std::move(channel)) {
  // The headers are sent with the first message.
  context_.set_initial_metadata_corked(true);
  channel_->AddToken(&context_);
  call_ = channel_->stub.PrepareCall(&context_, kCallsMethod, &events_);
  call_->StartCall(nullptr);
}

CallStream::~CallStream() {
  context_.TryCancel();
  events_.Shutdown();
  void* tag = nullptr;
  bool is_ok = false;
  while (events_.Next(&tag, &is_ok)) {
  }
}

SingleCallWait::Event CallStream::Next(SingleCallWait* wait, void** tag, bool* is_ok) {
  // The message was written when Write() returned, as a rule.
  const bool is_ready = !is_writing_ && MayPoll() && spin_.Spin(Duration::max(), [&] {
    return events_.AsyncNext(tag, is_ok, gpr_inf_past(GPR_CLOCK_MONOTONIC)) ==
           grpc::CompletionQueue::GOT_EVENT;
  });
  if (is_ready) return SingleCallWait::Event::kCompleted;
  return wait->Next(&events_, /*may_expire=*/true, tag, is_ok);
}

void CallStream::OnEvent(void* tag, bool is_ok) {
  if (tag == &read_tag) is_reading_ = false;
  if (tag == &written_tag) is_writing_ = false;
  if (!is_ok) has_failed_ = true;
}

void CallStream::StartRead() {
  is_reading_ = true;
  call_->Read(received_.buffer(), &read_tag);
}

bool CallStream::IsOpen() {
  // Looking costs a system call. An end within this time is like one during the call.
  if (RealClock()->Now() - last_used_ < kTrustedIdleTime) return true;
  void* tag = nullptr;
  bool is_ok = false;
  while (!has_failed_ && events_.AsyncNext(&tag, &is_ok, gpr_inf_past(GPR_CLOCK_MONOTONIC)) ==
                             grpc::CompletionQueue::GOT_EVENT) {
    OnEvent(tag, is_ok);
    // A message that answers no request.
    if (tag == &read_tag) has_failed_ = true;
  }
  return !has_failed_;
}

Result<CallOutcome> CallStream::Run(const CallMessage& message, SingleCallWait* wait) {
  const RunningCall running;
  WireMessage encoded = EncodeCallRequest(message);
  const bool is_first = num_sent_ == 0;
  encoded.Seal(num_sent_++);
  is_writing_ = true;
  call_->Write(ToByteBuffer(encoded), &written_tag);
  if (!is_reading_) StartRead();
  // Both end when the stream does.
  while (is_reading_ || is_writing_) {
    void* tag = nullptr;
    bool is_ok = false;
    switch (Next(wait, &tag, &is_ok)) {
      case SingleCallWait::Event::kCompleted:
        OnEvent(tag, is_ok);
        break;
      case SingleCallWait::Event::kExpired:
        has_failed_ = true;
        return wait->Expired();
      case SingleCallWait::Event::kGivenUp:
        has_failed_ = true;
        return wait->given_up();
    }
  }
  if (has_failed_) {
    Status status = Finish();
    // A connection that breaks is no refusal, nor is damaged data.
    was_refused_ =
        is_first && status.code() != StatusCode::kUnavailable && status.detail() != Detail::kCorruptData;
    return status;
  }
  Status intact = received_.Unseal(num_received_++);
  Result<CallOutcome> outcome =
      intact.ok() ? DecodeCallReply(received_.Open(), channel_->limits) : Result<CallOutcome>(intact);
  received_.Release();
  if (outcome.ok()) {
    StartRead();
    last_used_ = RealClock()->Now();
  } else {
    has_failed_ = true;
  }
  return outcome;
}

Status CallStream::Finish() {
  grpc::Status status;
  call_->Finish(&status, &finished_tag);
  void* tag = nullptr;
  bool is_ok = false;
  while (events_.Next(&tag, &is_ok) && tag != &finished_tag) {
  }
  // The server ends a stream only for a reason.
  if (status.ok()) return Status::Unavailable("the server at " + channel_->address + " ended the stream");
  return channel_->EndOfCall(status);
}

std::unique_ptr<CallStream> CallStreams::Take() {
  while (true) {
    std::unique_ptr<CallStream> stream;
    {
      MutexLock lock(&mu_);
      if (idle_.empty()) break;
      stream = std::move(idle_.back());
      idle_.pop_back();
    }
    if (stream->IsOpen()) return stream;
  }
  // The first call of a connection is one of its own: it waits for the server.
  if (!channel_->is_connected()) return nullptr;
  {
    MutexLock lock(&mu_);
    if (RealClock()->Now() < refused_until_) return nullptr;
  }
  return std::make_unique<CallStream>(channel_);
}

void CallStreams::Return(std::unique_ptr<CallStream> stream) {
  MutexLock lock(&mu_);
  if (idle_.size() < kMaxIdleCallStreams) idle_.push_back(std::move(stream));
}

std::optional<Result<CallOutcome>> CallStreams::Call(Method method, const WireMessage& request,
                                                     const WaitOptions& wait) {
  if (!MayUseStream(method) || request.total_bytes() > kMaxRequestBytes) return std::nullopt;
  std::unique_ptr<CallStream> stream = Take();
  if (stream == nullptr) return std::nullopt;
  SingleCallWait call_wait(channel_.get(), method, wait);
  Result<CallOutcome> outcome =
      stream->Run({.method = static_cast<uint32_t>(method), .request = request.Flatten()}, &call_wait);
  if (outcome.ok()) {
    Return(std::move(stream));
  } else if (stream->was_refused()) {
    MutexLock lock(&mu_);
    refused_until_ = RealClock()->Now() + kRefusalInterval;
    return std::nullopt;
  }
  return outcome;
}

}  // namespace reverb::internal
