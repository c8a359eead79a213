// grpc_internal.h — what both ends of the gRPC transport share: names of methods, bytes, statuses.
//
// Threads: free functions without state; a ReceivedMessage belongs to one thread at a time.
#ifndef REVERB_TRANSPORT_GRPC_GRPC_INTERNAL_H_
#define REVERB_TRANSPORT_GRPC_GRPC_INTERNAL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "reverb/status.h"
#include "transport/wire.h"

namespace reverb::internal {

inline constexpr std::string_view kServicePrefix = "/reverb.v1.Reverb/";
inline constexpr char kInsertMethod[] = "/reverb.v1.Reverb/Insert";
inline constexpr char kSampleMethod[] = "/reverb.v1.Reverb/Sample";
inline constexpr char kMutateMethod[] = "/reverb.v1.Reverb/MutatePriorities";
inline constexpr char kResetMethod[] = "/reverb.v1.Reverb/Reset";
inline constexpr char kInfoMethod[] = "/reverb.v1.Reverb/Info";
inline constexpr char kInspectMethod[] = "/reverb.v1.Reverb/Inspect";
inline constexpr char kSetRateLimiterMethod[] = "/reverb.v1.Reverb/SetRateLimiter";
inline constexpr char kCheckpointMethod[] = "/reverb.v1.Reverb/Checkpoint";
inline constexpr char kHealthCheckMethod[] = "/grpc.health.v1.Health/Check";
inline constexpr char kHealthWatchMethod[] = "/grpc.health.v1.Health/Watch";

// Large parts are passed on by reference and keep their memory alive until they were sent.
grpc::ByteBuffer ToByteBuffer(const WireMessage& message);

// Where a message arrives, and a view of its bytes for the decoders.
class ReceivedMessage {
 public:
  grpc::ByteBuffer* buffer() { return &buffer_; }
  // Checks the checksum of message `number` of its stream, or of a single call's only message (wire_seal.h).
  // The bytes are without it then.
  Status Unseal(uint64_t number);
  // Valid until Release(), which is to be called as soon as the message was decoded: it holds memory that
  // counts for gRPC's flow control.
  ByteSlices Open();
  // With the checksum.
  uint64_t total_bytes() const { return total_bytes_; }
  void Release();
  // Hands the bytes of Open() over to whoever holds the result; to be called before decoding.
  Buffer Keep();

 private:
  // Takes the bytes out of buffer_.
  void Load();

  grpc::ByteBuffer buffer_;
  uint64_t total_bytes_ = 0;
  // Kept, so that messages do not cost an allocation each.
  std::vector<grpc::Slice> slices_;
  std::vector<ByteSlice> views_;
};

// A Status over gRPC: code and text as gRPC's own, and all of it once more as the binary details
// (`grpc-status-details-bin`), which bring our Detail along. Texts are cut to what trailers may hold.
grpc::Status ToGrpcStatus(const Status& status);
// The details when there are any, else code and text.
Status FromGrpcStatus(const grpc::Status& status);
// True when the far end said it, and not gRPC on the way.
bool HasDetails(const grpc::Status& status);

// What gRPC takes as the largest message to receive, a little above what the decoders refuse themselves:
// their texts are better. -1 when gRPC cannot count so far.
int MaxReceiveBytes(uint64_t max_message_bytes);

// What this process does once, before it makes a channel or a server: gRPC's messages go to our log instead
// of stderr, and gRPC's threads are started for good.
void InitGrpc();

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_GRPC_INTERNAL_H_
