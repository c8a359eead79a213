#include "transport/grpc/single_client_call.h"

#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/duration_text.h"
#include "base/log.h"

namespace reverb::internal {

namespace {

// How often a waiting call checks for cancellation.
constexpr Duration kWaitStep = std::chrono::milliseconds(50);
// How often a waiting call finds out why there is no connection.
constexpr Duration kProbeInterval = std::chrono::seconds(1);
// The timeout of a call that tries once.
constexpr Duration kOneTry = std::chrono::seconds(1);
// A longer timeout counts as none, since it would overflow in gRPC.
constexpr Duration kMaxTimeout = std::chrono::hours(24 * 365 * 10);

gpr_timespec FromNow(Duration duration) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(duration.count(), GPR_TIMESPAN));
}

}  // namespace

SingleCallWait::SingleCallWait(const GrpcChannel* channel, Method method, const WaitOptions& wait)
    : channel_(channel), method_(method), wait_(wait) {
  if (wait.timeout) limit_ = tries_once() ? kOneTry : *wait.timeout;
  if (limit_ && *limit_ < kMaxTimeout) deadline_ = FromNow(*limit_);
}

SingleCallWait::Event SingleCallWait::Next(grpc::CompletionQueue* queue, bool may_expire, void** tag,
                                           bool* is_ok) {
  while (queue->AsyncNext(tag, is_ok, NextStep(may_expire)) != grpc::CompletionQueue::GOT_EVENT) {
    if (may_expire && deadline_ && gpr_time_cmp(*deadline_, gpr_now(GPR_CLOCK_MONOTONIC)) <= 0) {
      return Event::kExpired;
    }
    const Duration before = std::exchange(waited_, waited_ + kWaitStep);
    // Operations on rows wait for the table: their caller logs the reason.
    if (before <= WaitLogAfter() && waited_ > WaitLogAfter() &&
        (method_ != Method::kRows || !channel_->is_connected())) {
      LogWait("call " + channel_->address, "still waiting for the server at " + channel_->address +
                                               " to answer " + std::string(MethodName(method_)) + " for " +
                                               DurationText(waited_) + Reachability());
    }
    given_up_ = WhyStillNotConnected();
    if (given_up_.ok() && wait_.on_wait) given_up_ = wait_.on_wait();
    if (!given_up_.ok()) return Event::kGivenUp;
  }
  return Event::kCompleted;
}

Status SingleCallWait::WhyStillNotConnected() {
  if (waited_ < next_probe_ ||
      channel_->channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE) {
    return Status::Ok();
  }
  next_probe_ = waited_ + kProbeInterval;
  return channel_->WhyNoHandshake();
}

gpr_timespec SingleCallWait::NextStep(bool may_expire) const {
  const gpr_timespec step = FromNow(kWaitStep);
  return may_expire && deadline_ ? gpr_time_min(step, *deadline_) : step;
}

Status SingleCallWait::Expired() const {
  std::string text = std::string(MethodName(method_)) + ": no answer from the server at " +
                     channel_->address + " within " + DurationText(limit_.value_or(Duration(0))) +
                     Reachability();
  return Status::DeadlineExceeded(std::move(text));
}

SingleClientCall::SingleClientCall(GrpcChannel* channel, Method method, const WaitOptions& wait)
    : channel_(channel), method_(method), wait_(channel, method, wait) {
  context_.set_wait_for_ready(!wait_.tries_once());
  if (wait_.deadline()) context_.set_deadline(*wait_.deadline());
}

SingleClientCall::~SingleClientCall() {
  void* tag = nullptr;
  bool is_event_ok = false;
  events_.Shutdown();
  while (events_.Next(&tag, &is_event_ok)) {
  }
}

Status SingleClientCall::Run(WireMessage request, ReceivedMessage* reply) {
  request.Seal(0);
  channel_->AddToken(&context_);
  const std::unique_ptr<grpc::GenericClientAsyncResponseReader> call = channel_->stub.PrepareUnaryCall(
      &context_, std::string(kServicePrefix).append(MethodName(method_)), ToByteBuffer(request), &events_);
  call->StartCall();
  call->Finish(reply->buffer(), &status_, /*tag=*/this);
  void* tag = nullptr;
  bool is_event_ok = false;
  if (wait_.Next(&events_, /*may_expire=*/false, &tag, &is_event_ok) == SingleCallWait::Event::kGivenUp) {
    context_.TryCancel();
    events_.Next(&tag, &is_event_ok);
    return wait_.given_up();
  }
  if (status_.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && !HasDetails(status_)) {
    return wait_.Expired();
  }
  Status outcome = channel_->EndOfCall(status_);
  return outcome.ok() ? reply->Unseal(0) : outcome;
}

}  // namespace reverb::internal
