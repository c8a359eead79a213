// call_stream.h — single calls over a long-lived stream (`Calls` in docs/protocol.md).
//
// A gRPC call of its own costs both sides its headers, trailers and set-up: twice the time of a message of an open
// stream. A CallStream carries one call at a time. CallStreams keeps as many of them as threads call at the same time.
//
// Threads: a CallStream belongs to one thread at a time. All methods of CallStreams may be called concurrently.
#ifndef REVERB_TRANSPORT_GRPC_CALL_STREAM_H_
#define REVERB_TRANSPORT_GRPC_CALL_STREAM_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "transport/adaptive_spin.h"
#include "transport/grpc/grpc_channel.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/single_client_call.h"
#include "transport/single_calls.h"
#include "transport/wire.h"
#include "transport/wire_calls.h"

namespace reverb::internal {

// A stream that carries one call at a time. A read is in progress between calls, so that its end is noticed then.
class CallStream {
 public:
  explicit CallStream(std::shared_ptr<GrpcChannel> channel);
  ~CallStream();  // cancels it
  CallStream(const CallStream&) = delete;
  CallStream& operator=(const CallStream&) = delete;

  // Returns whether the stream can carry a call, as far as this side knows. Does not block.
  bool IsOpen();
  // Executes a call. An error ends the stream: it is not one of the call, whose status is in the outcome.
  Result<CallOutcome> Run(const CallMessage& message, SingleCallWait* wait);
  // After an error of Run(): returns whether the server, or a proxy, refuses such streams.
  bool was_refused() const { return was_refused_; }

 private:
  // Waits for the next event, at first without sleeping.
  SingleCallWait::Event Next(SingleCallWait* wait, void** tag, bool* is_ok);
  // Handles the event of an operation.
  void OnEvent(void* tag, bool is_ok);
  void StartRead();
  // Returns why the stream has ended, after the last read has failed.
  Status Finish();

  const std::shared_ptr<GrpcChannel> channel_;
  grpc::CompletionQueue events_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  ReceivedMessage received_;
  uint64_t num_sent_ = 0;
  uint64_t num_received_ = 0;
  TimePoint last_used_;  // set by the first call
  bool is_reading_ = false;
  bool is_writing_ = false;
  bool has_failed_ = false;  // an operation has failed, or this side has given up
  bool was_refused_ = false;
  AdaptiveSpin spin_{DefaultSpin(), /*miss_weight=*/3};  // a poll is a system call
};

class CallStreams {
 public:
  explicit CallStreams(std::shared_ptr<GrpcChannel> channel) : channel_(std::move(channel)) {}

  // Executes a call over a stream. Returns nothing if that is not possible now: then the call was not executed, and
  // needs a gRPC call of its own.
  std::optional<Result<CallOutcome>> Call(Method method, const WireMessage& request, const WaitOptions& wait)
      EXCLUDES(mu_);

 private:
  // Returns null if no stream can be had.
  std::unique_ptr<CallStream> Take() EXCLUDES(mu_);
  void Return(std::unique_ptr<CallStream> stream) EXCLUDES(mu_);

  const std::shared_ptr<GrpcChannel> channel_;
  Mutex mu_;
  std::vector<std::unique_ptr<CallStream>> idle_ GUARDED_BY(mu_);
  TimePoint refused_until_ GUARDED_BY(mu_) = TimePoint::min();
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_CALL_STREAM_H_
