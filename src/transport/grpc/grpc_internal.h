// grpc_internal.h — shared by both ends of the gRPC transport: names of methods, buffers, statuses.
//
// Threads: free functions without state; a ReceivedMessage belongs to one thread at a time.
#ifndef REVERB_TRANSPORT_GRPC_GRPC_INTERNAL_H_
#define REVERB_TRANSPORT_GRPC_GRPC_INTERNAL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "reverb/status.h"
#include "transport/wire.h"

namespace reverb::internal {

// The paths of methods; those of single calls are this and MethodName().
inline constexpr std::string_view kServicePrefix = "/reverb.v1.Reverb/";
inline constexpr char kInsertMethod[] = "/reverb.v1.Reverb/Insert";
inline constexpr char kSampleMethod[] = "/reverb.v1.Reverb/Sample";
inline constexpr char kCallsMethod[] = "/reverb.v1.Reverb/Calls";
inline constexpr char kResetMethod[] = "/reverb.v1.Reverb/Reset";
inline constexpr char kInfoMethod[] = "/reverb.v1.Reverb/Info";
// Where a call has the client's token.
inline constexpr char kTokenHeader[] = "authorization";
inline constexpr std::string_view kTokenScheme = "Bearer ";
inline constexpr char kHealthCheckMethod[] = "/grpc.health.v1.Health/Check";
inline constexpr char kHealthWatchMethod[] = "/grpc.health.v1.Health/Watch";

// Passes large parts by reference; they keep their memory alive until they were sent.
grpc::ByteBuffer ToByteBuffer(const WireMessage& message);

// Receives a message, and gives decoders a view of its bytes.
class ReceivedMessage {
 public:
  grpc::ByteBuffer* buffer() { return &buffer_; }
  // Verifies and removes the checksum of message `number` of its stream, or of a single call's only message
  // (wire_seal.h).
  Status Unseal(uint64_t number);
  // Returns the bytes. Valid until Release(), which must be called as soon as the message was decoded: the
  // message holds memory that counts for gRPC's flow control.
  ByteSlices Open();
  // Includes the checksum.
  uint64_t total_bytes() const { return total_bytes_; }
  void Release();
  // Transfers ownership of the bytes of Open() to the result; to be called before decoding.
  Buffer Keep();

 private:
  // Moves the bytes out of buffer_.
  void Load();

  grpc::ByteBuffer buffer_;
  uint64_t total_bytes_ = 0;
  // Reused, to avoid allocations per message.
  std::vector<grpc::Slice> slices_;
  std::vector<ByteSlice> views_;
};

// Converts a Status for gRPC: its code and text, and the whole Status, with our Detail, as binary details
// (`grpc-status-details-bin`). Texts are truncated to the size limit of trailers.
grpc::Status ToGrpcStatus(const Status& status);
// Uses the details if there are any, else code and text.
Status FromGrpcStatus(const grpc::Status& status);
// Returns whether the status comes from the other end and not from gRPC.
bool HasDetails(const grpc::Status& status);

// Returns gRPC's limit for received messages, slightly above that of the decoders, whose error texts are
// better; -1 (unlimited) if it exceeds gRPC's range.
int MaxReceiveBytes(uint64_t max_message_bytes);

// Calls `function` on one of gRPC's callback threads, soon. REQUIRES: InitGrpc() was successful.
void RunOnCallbackThread(std::function<void()> function);

// Initializes gRPC once per process, before the first channel or server: redirects its messages to our log,
// and keeps its threads running. FAILED_PRECONDITION in a child created by fork() whose parent used gRPC: the
// child does not have its threads.
Status InitGrpc();

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_GRPC_INTERNAL_H_
