// single_client_call.h — a single call of the client, as a gRPC call of its own; and how a thread waits for one.
//
// The thread that waits polls the completion queue of its call, and thereby the socket: the thread of a callback
// would have to wake it.
//
// Threads: an object belongs to the calling thread.
#ifndef REVERB_TRANSPORT_GRPC_SINGLE_CLIENT_CALL_H_
#define REVERB_TRANSPORT_GRPC_SINGLE_CLIENT_CALL_H_

#include <grpcpp/grpcpp.h>

#include <optional>

#include "base/clock.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "transport/grpc/grpc_channel.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/single_calls.h"
#include "transport/wire.h"

namespace reverb::internal {

// One wait for the answer to a single call. `channel` and `wait` must outlive it.
class SingleCallWait {
 public:
  SingleCallWait(const GrpcChannel* channel, Method method, const WaitOptions& wait);

  // The call does not wait for a server that cannot be reached.
  bool tries_once() const { return wait_.timeout && *wait_.timeout <= Duration(0); }
  // Returns when the wait ends; absent = never.
  std::optional<gpr_timespec> deadline() const { return deadline_; }

  enum class Event : uint8_t {
    kCompleted,  // of an operation: `tag` and `is_ok` are set
    kExpired,    // the deadline has passed
    kGivenUp,    // on_wait returned an error, given_up()
  };
  // Waits for the next event of `queue`. Calls on_wait, and logs a long wait. Does not expire without
  // `may_expire`: gRPC ends a call that has a deadline.
  Event Next(grpc::CompletionQueue* queue, bool may_expire, void** tag, bool* is_ok);
  const Status& given_up() const { return given_up_; }

  // Returns the error of a call that was not answered in time.
  Status Expired() const;

 private:
  gpr_timespec NextStep(bool may_expire) const;
  const char* Reachability() const { return channel_->is_connected() ? "" : "; it could not be reached"; }

  const GrpcChannel* const channel_;
  const Method method_;
  const WaitOptions& wait_;
  std::optional<Duration> limit_;
  std::optional<gpr_timespec> deadline_;
  // A call waits for a server that cannot be reached, but not for a handshake that will never succeed.
  Status WhyStillNotConnected();

  Duration waited_{0};  // in whole steps
  Duration next_probe_{0};
  Status given_up_;
};

class SingleClientCall {
 public:
  SingleClientCall(GrpcChannel* channel, Method method, const WaitOptions& wait);
  ~SingleClientCall();
  SingleClientCall(const SingleClientCall&) = delete;
  SingleClientCall& operator=(const SingleClientCall&) = delete;

  // To be called once.
  Status Run(WireMessage request, ReceivedMessage* reply);

 private:
  GrpcChannel* const channel_;
  const Method method_;
  SingleCallWait wait_;
  grpc::ClientContext context_;
  grpc::Status status_;  // set by the event of Finish()
  grpc::CompletionQueue events_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_SINGLE_CLIENT_CALL_H_
