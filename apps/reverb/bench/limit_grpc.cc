#include "bench/limit_grpc.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "bench/loops_batch.h"
#include "bench/payload.h"

namespace reverb::bench {
namespace {

using grpc::ByteBuffer;
using GrpcSlice = grpc::Slice;

constexpr char kInsertMethod[] = "/reverb.limit/Insert";
constexpr char kSampleMethod[] = "/reverb.limit/Sample";
constexpr char kCallMethod[] = "/reverb.limit/Call";

// Sets what our transport sets too, so that both use the same gRPC (grpc_internal.cc).
void TuneGrpc() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

// --- Messages ---

// The header of each item: about what any protocol needs.
struct ItemHeader {
  uint32_t bytes = 0;
  uint32_t unused = 0;
  uint64_t key = 0;
};

struct SampleRequest {
  int64_t size = 0;
  int64_t items_per_message = 0;
};

// Larger items are sent without a copy.
constexpr int64_t kMaxCopiedBytes = 4096;

template <typename T>
ByteBuffer Pack(const T& value) {
  const GrpcSlice slice(&value, sizeof(value));
  return ByteBuffer(&slice, 1);
}

// Returns the first bytes of a message, padded with zeros.
template <typename T>
T Unpack(const ByteBuffer& buffer) {
  T value{};
  std::vector<GrpcSlice> slices;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return value;
  size_t at = 0;
  for (const GrpcSlice& slice : slices) {
    const size_t n = std::min(slice.size(), sizeof(T) - at);
    std::memcpy(reinterpret_cast<uint8_t*>(&value) + at, slice.begin(), n);
    at += n;
  }
  return value;
}

// Builds messages of random items: their number, then the header and the payload of each.
class ItemSource {
 public:
  ItemSource(int64_t size, int64_t items_per_message, uint64_t seed)
      : size_(size), count_(items_per_message), picker_(size, seed) {}

  int64_t items_per_message() const { return count_; }

  ByteBuffer Next() { return size_ <= kMaxCopiedBytes ? Copied() : Referenced(); }

 private:
  ByteBuffer Copied() {
    GrpcSlice slice(sizeof(count_) + count_ * (sizeof(ItemHeader) + size_));
    uint8_t* at = PutCount(Writable(slice));
    for (int64_t i = 0; i < count_; ++i) {
      at = PutHeader(at);
      std::memcpy(at, picker_(), size_);
      at += size_;
    }
    return ByteBuffer(&slice, 1);
  }

  ByteBuffer Referenced() {
    std::vector<GrpcSlice> slices;
    slices.reserve(count_ + 1);
    slices.emplace_back(sizeof(count_) + count_ * sizeof(ItemHeader));
    uint8_t* at = PutCount(Writable(slices.front()));
    for (int64_t i = 0; i < count_; ++i) {
      at = PutHeader(at);
      // The pool is never freed, so the slice needs no destructor.
      slices.emplace_back(
          const_cast<uint8_t*>(picker_()), static_cast<size_t>(size_), [](void*) {}, nullptr);
    }
    return ByteBuffer(slices.data(), slices.size());
  }

  // A new slice that is not shared yet may be written to.
  static uint8_t* Writable(const GrpcSlice& slice) { return const_cast<uint8_t*>(slice.begin()); }
  uint8_t* PutCount(uint8_t* at) const {
    std::memcpy(at, &count_, sizeof(count_));
    return at + sizeof(count_);
  }
  uint8_t* PutHeader(uint8_t* at) {
    const ItemHeader header{static_cast<uint32_t>(size_), 0, ++key_};
    std::memcpy(at, &header, sizeof(header));
    return at + sizeof(header);
  }

  int64_t size_;
  int64_t count_;
  Picker picker_;
  uint64_t key_ = 0;
};

// The memory that a receiver copies messages to: larger than the caches, unless there are many receivers.
class CopyRing {
 public:
  explicit CopyRing(size_t bytes) : ring_(bytes) {}

  // Copies the slices of a message one after the other and returns its number of items.
  int64_t Take(const ByteBuffer& message) {
    slices_.clear();
    if (!message.Valid() || !message.Dump(&slices_).ok()) return 0;
    const size_t bytes = message.Length();
    if (bytes > ring_.size()) ring_.resize(bytes);
    if (next_ + bytes > ring_.size()) next_ = 0;
    const uint8_t* const start = ring_.data() + next_;
    for (const GrpcSlice& slice : slices_) {
      std::memcpy(ring_.data() + next_, slice.begin(), slice.size());
      next_ += slice.size();
    }
    next_ = std::min((next_ + 63) / 64 * 64, ring_.size());
    int64_t count = 0;
    if (bytes >= sizeof(count)) std::memcpy(&count, start, sizeof(count));
    return count;
  }

 private:
  std::vector<uint8_t> ring_;
  size_t next_ = 0;
  std::vector<GrpcSlice> slices_;
};

size_t RingBytes(int streams) {
  constexpr size_t kLeast = size_t{4} << 20;
  return std::max(kLeast, kPoolBytes / static_cast<size_t>(std::max(streams, 1)));
}

// --- Server ---

// Reuses the rings of ended streams, whose memory was touched before.
class RingShelf {
 public:
  explicit RingShelf(size_t ring_bytes) : ring_bytes_(ring_bytes) {}

  std::unique_ptr<CopyRing> Take() {
    const std::lock_guard lock(mu_);
    if (rings_.empty()) return std::make_unique<CopyRing>(ring_bytes_);
    std::unique_ptr<CopyRing> ring = std::move(rings_.back());
    rings_.pop_back();
    return ring;
  }
  void PutBack(std::unique_ptr<CopyRing> ring) {
    const std::lock_guard lock(mu_);
    rings_.push_back(std::move(ring));
  }

 private:
  size_t ring_bytes_;
  std::mutex mu_;
  std::vector<std::unique_ptr<CopyRing>> rings_;
};

class InsertReactor : public grpc::ServerGenericBidiReactor {
 public:
  explicit InsertReactor(RingShelf* shelf) : shelf_(shelf), ring_(shelf->Take()) { StartRead(&message_); }
  ~InsertReactor() override { shelf_->PutBack(std::move(ring_)); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      const std::lock_guard lock(mu_);
      ended_ = true;
      Confirm();
      return;
    }
    const auto bytes = static_cast<int64_t>(message_.Length());
    const int64_t items = ring_->Take(message_);
    {
      const std::lock_guard lock(mu_);
      received_ += items;
      unconfirmed_bytes_ += bytes;
      Confirm();
    }
    StartRead(&message_);
  }
  void OnWriteDone(bool) override {
    const std::lock_guard lock(mu_);
    writing_ = false;
    Confirm();
  }
  void OnDone() override { delete this; }

 private:
  void Confirm() {
    if (writing_ || finished_) return;
    const int64_t unconfirmed = received_ - confirmed_;
    if (unconfirmed >= 64 || unconfirmed_bytes_ >= (1 << 20) || (ended_ && unconfirmed > 0)) {
      writing_ = true;
      confirmed_ = received_;
      unconfirmed_bytes_ = 0;
      reply_ = Pack(confirmed_);
      StartWrite(&reply_);
    } else if (ended_) {
      finished_ = true;
      Finish(grpc::Status::OK);
    }
  }

  RingShelf* shelf_;
  std::unique_ptr<CopyRing> ring_;
  ByteBuffer message_;
  ByteBuffer reply_;
  std::mutex mu_;
  int64_t received_ = 0;
  int64_t confirmed_ = 0;
  int64_t unconfirmed_bytes_ = 0;
  bool writing_ = false;
  bool ended_ = false;
  bool finished_ = false;
};

// Sends until the client half-closes the stream.
class SampleReactor : public grpc::ServerGenericBidiReactor {
 public:
  SampleReactor() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (source_) {
        stop_ = true;  // checked when the current write is done
      } else {
        Finish(grpc::Status::OK);
      }
      return;
    }
    const auto wanted = Unpack<SampleRequest>(request_);
    source_.emplace(wanted.size, wanted.items_per_message, /*seed=*/reinterpret_cast<uintptr_t>(this));
    StartRead(&request_);
    Send();
  }
  void OnWriteDone(bool ok) override {
    if (ok && !stop_) {
      Send();
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Send() {
    message_ = source_->Next();
    StartWrite(&message_);
  }

  ByteBuffer request_;
  ByteBuffer message_;
  std::optional<ItemSource> source_;
  std::atomic<bool> stop_ = false;
};

// The first bytes of the request give the length of the reply; an empty request gets an empty reply.
class CallReactor : public grpc::ServerGenericBidiReactor {
 public:
  CallReactor() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::INTERNAL, "no request"));
    const auto wanted = Unpack<SampleRequest>(request_);
    if (wanted.items_per_message > 0) {
      reply_ = ItemSource(wanted.size, wanted.items_per_message, reinterpret_cast<uintptr_t>(this)).Next();
    } else {
      const GrpcSlice nothing;
      reply_ = ByteBuffer(&nothing, 1);
    }
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  ByteBuffer request_;
  ByteBuffer reply_;
};

class LimitService : public grpc::CallbackGenericService {
 public:
  explicit LimitService(size_t ring_bytes) : shelf_(ring_bytes) {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    if (context->method() == kInsertMethod) return new InsertReactor(&shelf_);
    if (context->method() == kSampleMethod) return new SampleReactor();
    return new CallReactor();
  }

  RingShelf shelf_;
};

// --- Clients ---

// A flag to wait for.
class Done {
 public:
  void Set() {
    const std::lock_guard lock(mu_);
    is_set_ = true;
    changed_.notify_one();
  }
  void Wait() {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return is_set_; });
    is_set_ = false;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  TuneGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  // Without this, the channels of a process share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return Status::Ok();
  return Status::Internal("limit: " + status.error_message());
}

class InsertCall : public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  InsertCall(ItemSource* source, double end) : source_(source), end_(end) {}

  void Go() {
    StartRead(&reply_);
    Send();
    StartCall();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return;
    if (NowSeconds() < end_) {
      Send();
    } else {
      StartWritesDone();
    }
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    confirmed_ = Unpack<int64_t>(reply_);
    StartRead(&reply_);
  }
  void OnDone(const grpc::Status& status) override {
    status_ = ToStatus(status);
    done_.Set();
  }
  Status Wait(Tally* tally) {
    done_.Wait();
    REVERB_RETURN_IF_ERROR(status_);
    if (confirmed_ != sent_) return Status::Internal("limit: not all items were confirmed");
    tally->items = static_cast<double>(confirmed_);
    return Status::Ok();
  }

 private:
  void Send() {
    message_ = source_->Next();
    sent_ += source_->items_per_message();
    StartWrite(&message_);
  }

  ItemSource* source_;
  double end_;
  ByteBuffer message_;
  ByteBuffer reply_;
  int64_t sent_ = 0;
  int64_t confirmed_ = 0;
  Status status_;
  Done done_;
};

class SampleCall : public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  SampleCall(const SampleRequest& wanted, CopyRing* ring, double end)
      : ring_(ring), end_(end), request_(Pack(wanted)) {}

  void Go() {
    StartWrite(&request_);
    StartRead(&message_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    received_ += ring_->Take(message_);
    if (!stopped_ && NowSeconds() >= end_) {
      stopped_ = true;
      StartWritesDone();
    }
    StartRead(&message_);
  }
  void OnDone(const grpc::Status& status) override {
    status_ = ToStatus(status);
    done_.Set();
  }
  Status Wait(Tally* tally) {
    done_.Wait();
    tally->items = static_cast<double>(received_);
    tally->samples = tally->items;
    return status_;
  }

 private:
  CopyRing* ring_;
  double end_;
  ByteBuffer request_;
  ByteBuffer message_;
  int64_t received_ = 0;
  bool stopped_ = false;
  Status status_;
  Done done_;
};

class LimitInsertLoop : public Loop {
 public:
  LimitInsertLoop(const Job& job, uint64_t seed)
      : size_(job.size), stub_(Connect(job.address)), source_(job.size, ItemsPerMessage(job.size), seed) {}

  Status Run(double end, Tally* tally) override {
    grpc::ClientContext context;
    InsertCall call(&source_, end);
    stub_.PrepareBidiStreamingCall(&context, kInsertMethod, {}, &call);
    call.Go();
    REVERB_RETURN_IF_ERROR(call.Wait(tally));
    tally->bytes = tally->items * static_cast<double>(size_);
    return Status::Ok();
  }

 private:
  int64_t size_;
  grpc::GenericStub stub_;
  ItemSource source_;
};

class LimitSampleLoop : public Loop {
 public:
  explicit LimitSampleLoop(const Job& job)
      : size_(job.size), stub_(Connect(job.address)), ring_(RingBytes(job.samplers)) {}

  Status Run(double end, Tally* tally) override {
    grpc::ClientContext context;
    SampleCall call({size_, ItemsPerMessage(size_)}, &ring_, end);
    stub_.PrepareBidiStreamingCall(&context, kSampleMethod, {}, &call);
    call.Go();
    REVERB_RETURN_IF_ERROR(call.Wait(tally));
    tally->bytes = tally->items * static_cast<double>(size_);
    return Status::Ok();
  }

 private:
  int64_t size_;
  grpc::GenericStub stub_;
  CopyRing ring_;
};

// Makes calls one after the other, each with one reply.
class CallLoop : public Loop {
 public:
  explicit CallLoop(const Job& job) : job_(job), stub_(Connect(job.address)), ring_(kPoolBytes) {}

  Status Run(double end, Tally* tally) override {
    return job_.kind == Kind::kLimitPer ? RunPer(end, tally) : RunEmpty(end, tally);
  }

 private:
  Status RunEmpty(double end, Tally* tally) {
    const GrpcSlice nothing;
    const ByteBuffer request(&nothing, 1);
    while (NowSeconds() < end) {
      Tally::Timer timer(tally);
      REVERB_RETURN_IF_ERROR(Call(request));
      timer.Stop();
      tally->items += 1;
    }
    return Status::Ok();
  }

  // Transfers the bytes of a batch in one direction and those of its new priorities in the other.
  Status RunPer(double end, Tally* tally) {
    const ByteBuffer request = Pack(SampleRequest{job_.size, kLearnerBatch});
    const std::vector<KeyPriority> zeros(kLearnerBatch);
    while (NowSeconds() < end) {
      Tally::Timer timer(tally);
      REVERB_RETURN_IF_ERROR(Call(request));
      if (ring_.Take(reply_) != kLearnerBatch) return Status::Internal("limit: a short batch");
      const GrpcSlice priorities(zeros.data(), zeros.size() * sizeof(KeyPriority));
      REVERB_RETURN_IF_ERROR(Call(ByteBuffer(&priorities, 1)));
      timer.Stop();
      tally->items += kLearnerBatch;
    }
    tally->bytes = tally->items * static_cast<double>(job_.size + static_cast<int64_t>(sizeof(KeyPriority)));
    return Status::Ok();
  }

  Status Call(const ByteBuffer& request) {
    grpc::ClientContext context;
    Done done;
    Status result;
    stub_.UnaryCall(&context, kCallMethod, {}, &request, &reply_, [&](const grpc::Status& status) {
      result = ToStatus(status);
      done.Set();
    });
    done.Wait();
    return result;
  }

  Job job_;
  grpc::GenericStub stub_;
  CopyRing ring_;
  ByteBuffer reply_;
};

}  // namespace

struct GrpcLimitServer::Rep {
  explicit Rep(size_t ring_bytes) : service(ring_bytes) {}
  LimitService service;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

Result<std::unique_ptr<GrpcLimitServer>> GrpcLimitServer::Start(int streams) {
  TuneGrpc();
  Pool();  // created before the first call
  auto rep = std::make_unique<Rep>(RingBytes(streams));
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &rep->port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterCallbackGenericService(&rep->service);
  rep->server = builder.BuildAndStart();
  if (!rep->server) return Status::Internal("limit: the server did not start");
  return std::unique_ptr<GrpcLimitServer>(new GrpcLimitServer(std::move(rep)));
}

GrpcLimitServer::GrpcLimitServer(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
GrpcLimitServer::~GrpcLimitServer() = default;
int GrpcLimitServer::port() const { return rep_->port; }

Result<std::vector<std::unique_ptr<Loop>>> MakeGrpcLimitLoops(const Job& job) {
  std::vector<std::unique_ptr<Loop>> loops;
  if (job.kind != Kind::kLimitStreams) {
    loops.push_back(std::make_unique<CallLoop>(job));
    return loops;
  }
  uint64_t seed = job.seed * 1000;
  for (int i = 0; i < job.writers; ++i) loops.push_back(std::make_unique<LimitInsertLoop>(job, ++seed));
  for (int i = 0; i < job.samplers; ++i) loops.push_back(std::make_unique<LimitSampleLoop>(job));
  return loops;
}

}  // namespace reverb::bench
