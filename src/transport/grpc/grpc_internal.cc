#include "transport/grpc/grpc_internal.h"

#include <grpc/support/log.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/buffer.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/parker.h"
#include "base/utf8.h"
#include "transport/wire_seal.h"

namespace reverb::internal {

namespace {

// A receiver accepts 8 KiB of trailers by default. In them the text appears twice, once with up to three
// bytes per byte and once in base 64.
constexpr size_t kMaxStatusText = 1500;

grpc::Slice ToSlice(const Buffer& part) {
  if (part.size() < kShareBytes) return grpc::Slice(part.data(), part.size());
  return grpc::Slice(
      const_cast<uint8_t*>(part.data()), part.size(),  // gRPC only reads it
      [](void* buffer) { delete static_cast<Buffer*>(buffer); }, new Buffer(part));
}

void LogFromGrpc(gpr_log_func_args* args) {
  // gRPC is about to abort the process, and this is the only explanation.
  if (std::string_view(args->message).starts_with("assertion failed")) {
    std::fprintf(stderr, "gRPC, %s:%d: %s\n", args->file, args->line, args->message);
  }
  if (!IsLogged()) return;
  // Errors are returned as a Status; these lines help to find their cause.
  Log(LogLevel::kDebug, std::string("gRPC: ") + args->message);
}

// Calls `function` on a callback thread: makes a call that fails at once.
void CallBack(std::function<void()> function) {
  static auto* const unreachable = new grpc::GenericStub(grpc::CreateChannel("unreachable", nullptr));
  struct FailingCall {
    grpc::ClientContext context;
    grpc::ByteBuffer request = ToByteBuffer(EncodeEmpty());
    grpc::ByteBuffer reply;
    std::function<void()> function;
  };
  auto call = std::make_shared<FailingCall>();
  call->function = std::move(function);
  unreachable->UnaryCall(&call->context, "/none", grpc::StubOptions(), &call->request, &call->reply,
                         [call](const grpc::Status& /*fails*/) { call->function(); });
}

// gRPC 1.51 stops and joins its callback threads when the last channel or server is destroyed. If that
// happens on a callback thread, which a closing stream may cause, the thread joins itself and continues with
// a destroyed queue. So this keeps one unused channel open forever. gRPC counts it after its first call.
void KeepCallbackThreads() {
  Parker done;
  CallBack([&done] { done.Unpark(); });
  done.Park();
}

constexpr uint64_t kNoProcess = std::numeric_limits<uint64_t>::max();

}  // namespace

grpc::ByteBuffer ToByteBuffer(const WireMessage& message) {
  std::vector<grpc::Slice> slices;
  slices.reserve(message.parts().size());
  for (const Buffer& part : message.parts()) slices.push_back(ToSlice(part));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void ReceivedMessage::Load() {
  Release();
  if (!buffer_.Valid() || !buffer_.Dump(&slices_).ok()) slices_.clear();
  buffer_.Clear();
  total_bytes_ = 0;
  for (const grpc::Slice& slice : slices_) {
    views_.emplace_back(slice.begin(), slice.size());
    total_bytes_ += slice.size();
  }
}

Status ReceivedMessage::Unseal(uint64_t number) {
  Load();
  return internal::Unseal(number, &views_);
}

ByteSlices ReceivedMessage::Open() {
  if (buffer_.Valid()) Load();
  return views_;
}

void ReceivedMessage::Release() {
  views_.clear();
  slices_.clear();
}

Buffer ReceivedMessage::Keep() {
  struct Keeper final : BufferOwner {
    explicit Keeper(std::vector<grpc::Slice> received) : slices(std::move(received)) {}
    const std::vector<grpc::Slice> slices;
  };
  // Moving the vector does not move its elements: small slices contain their bytes.
  return Buffer(new Keeper(std::move(slices_)), nullptr, 0);
}

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const Status cut(status.code(), std::string(Utf8Prefix(status.message(), kMaxStatusText)), status.detail());
  return grpc::Status(static_cast<grpc::StatusCode>(cut.code()), std::string(cut.message()),
                      EncodeStatus(cut).Flatten());
}

Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return Status::Ok();
  if (HasDetails(status)) {
    const std::string bytes = status.error_details();
    const ByteSlice slice(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    Status decoded;
    // Another service may use the details differently; ours repeat the code.
    if (DecodeStatus(ByteSlices(&slice, 1), &decoded).ok() &&
        static_cast<int>(decoded.code()) == static_cast<int>(status.error_code())) {
      return decoded;
    }
  }
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
  return Status(known ? static_cast<StatusCode>(code) : StatusCode::kUnknown, status.error_message());
}

bool HasDetails(const grpc::Status& status) { return !status.error_details().empty(); }

int MaxReceiveBytes(uint64_t max_message_bytes) {
  constexpr uint64_t kSlack = 64 << 10;
  constexpr auto kMaxInt = static_cast<uint64_t>(std::numeric_limits<int>::max());
  if (max_message_bytes >= kMaxInt - kSlack) return -1;
  return static_cast<int>(max_message_bytes + kSlack);
}

void RunOnCallbackThread(std::function<void()> function) { CallBack(std::move(function)); }

Status InitGrpc() {
  // Set before the initialization: a thread may fork() during it.
  static std::atomic<uint64_t> owner{kNoProcess};
  uint64_t expected = kNoProcess;
  const uint64_t mine = ForkGeneration();
  if (!owner.compare_exchange_strong(expected, mine) && expected != mine) {
    return Status::FailedPrecondition(
        "gRPC was in use when this process was created by fork(), which does not copy its threads and "
        "connections. A server on the same host can be used nevertheless, through its local endpoint (see "
        "`local` of server and client). Otherwise start processes with multiprocessing's \"spawn\" or "
        "\"forkserver\" method instead, or fork before the first Server is created and before the first "
        "Client connects");
  }
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function(&LogFromGrpc);
    // Distributions build Abseil with its search for deadlocks, for which every lock of gRPC acquires one lock of the process
    // and updates a graph: threads on many processors then wait for each other.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    KeepCallbackThreads();
  });
  return Status::Ok();
}

}  // namespace reverb::internal
