#include "access/checked_rows.h"

#include <algorithm>
#include <string>

#include "base/duration_text.h"

namespace reverb::internal {
namespace {

uint64_t DataBytes(const RowsRequest& request) {
  uint64_t bytes = 0;
  for (const RowWrite& row : request.rows)
    bytes += !row.chunk ? 0 : static_cast<uint64_t>(row.chunk->bytes());
  return bytes;
}

uint64_t DataBytes(const RowsReply& reply) {
  uint64_t bytes = 0;
  for (const RowRecord& row : reply.rows) {
    for (const RowSegment& segment : row.segments) {
      const ColumnView column = segment.column();
      // Strings have no size of their own; that of the chunk is an upper bound.
      bytes +=
          column.dtype == DType::kString ? static_cast<uint64_t>(segment.chunk->bytes()) : column.row_bytes();
    }
  }
  return bytes;
}

bool MovesData(RowsVerb verb) {
  return verb == RowsVerb::kPut || verb == RowsVerb::kClaim || verb == RowsVerb::kGet;
}

}  // namespace

void CheckedRows::Start(RowsRequest request) {
  if (client_.token != nullptr) {
    const Result<uint64_t> stream = control_->AddStream(client_.token, [weak = weak_from_this()](Status why) {
      if (const auto self = weak.lock()) self->EndWith(std::move(why));
    });
    if (!stream.ok()) return (void)FinishWaiting(stream.status());
    stream_ = *stream;
  }
  has_limited_data_ = MovesData(request.call.verb) && client_.usage.limits_bytes();
  if (has_limited_data_) return WaitForLimits(std::move(request));
  {
    MutexLock lock(&mu_);
    if (state_ == State::kWaiting) request_ = std::move(request);
  }
  StartInner();
}

void CheckedRows::WaitForLimits(RowsRequest request) {
  const TimePoint now = RealClock()->Now();
  waiting_bytes_ = DataBytes(request);
  const Duration pause = client_.usage.Reserve(waiting_bytes_, now);
  const std::optional<Duration> timeout = request.call.timeout;
  // Longer ones count as none, so that the sum does not overflow.
  constexpr Duration kMaxTimeout = std::chrono::hours(24 * 365);
  if (timeout && *timeout < kMaxTimeout) deadline_ = now + *timeout;
  {
    MutexLock lock(&mu_);
    if (state_ == State::kWaiting) request_ = std::move(request);
  }
  const auto start = [self = shared_from_this()] {
    self->client_.usage.WhenRoom([weak = std::weak_ptr(self)] {
      if (const auto waiting = weak.lock()) waiting->StartInner();
    });
  };
  CallAfter(pause, start);
  if (!deadline_) return;
  const auto expire = [weak = weak_from_this(), given = *timeout] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    (void)self->Stop(Status::DeadlineExceeded(
        self->client_.usage.Owners() +
        " has transferred more than its limits permit (max_bytes_per_second, " +
        "max_waiting_bytes), and the operation was not started within its timeout of " + DurationText(given) +
        "; send less, wait longer or raise the limits"));
  };
  bool is_waiting = false;
  {
    MutexLock lock(&mu_);
    is_waiting = state_ == State::kWaiting;
  }
  if (is_waiting) CallAfter(*timeout, expire);
}

void CheckedRows::StartInner() {
  RowsRequest request;
  {
    MutexLock lock(&mu_);
    if (state_ != State::kWaiting) return;
    state_ = State::kStarted;
    request = *std::exchange(request_, std::nullopt);
  }
  // An operation that did not wait keeps its timeout, which its errors name.
  constexpr Duration kAtOnce = std::chrono::milliseconds(1);
  if (deadline_) {
    const Duration left = std::max(*deadline_ - RealClock()->Now(), Duration(0));
    if (*request.call.timeout - left > kAtOnce) request.call.timeout = left;
  }
  if (has_limited_data_) client_.usage.AddWaiting(static_cast<int64_t>(waiting_bytes_));
  SetInner(handler_->StartRows(std::move(request), [self = shared_from_this()](Result<RowsReply> reply) {
    return self->Finish(std::move(reply));
  }));
}

void CheckedRows::SetInner(std::shared_ptr<PendingCall> inner) {
  bool is_ended = false;
  {
    MutexLock lock(&mu_);
    if (state_ == State::kFinished) return;
    inner_ = inner;
    is_ended = !why_.ok();
  }
  if (is_ended && inner != nullptr) inner->Cancel();
}

bool CheckedRows::Finish(Result<RowsReply> reply) {
  if (stream_ != 0) control_->RemoveStream(stream_);
  if (has_limited_data_) {
    client_.usage.AddWaiting(-static_cast<int64_t>(waiting_bytes_));
    if (reply.ok()) (void)client_.usage.Charge(DataBytes(*reply), RealClock()->Now());
  }
  Status why;
  std::shared_ptr<PendingCall> inner;  // freed without the lock; it refers to this object
  {
    MutexLock lock(&mu_);
    why = why_;
    state_ = State::kFinished;
    inner.swap(inner_);
  }
  return done_(why.ok() || reply.ok() ? std::move(reply) : Result<RowsReply>(why));
}

bool CheckedRows::FinishWaiting(Status why) {
  std::optional<RowsRequest> request;  // freed without the lock
  {
    MutexLock lock(&mu_);
    if (state_ != State::kWaiting) return false;
    state_ = State::kFinished;
    request.swap(request_);
  }
  (void)done_(std::move(why));
  return true;
}

bool CheckedRows::Stop(Status why) {
  if (!FinishWaiting(std::move(why))) return false;
  if (stream_ != 0) control_->RemoveStream(stream_);
  return true;
}

void CheckedRows::Cancel() {
  if (!Stop(Status::Cancelled("the operation was cancelled"))) CancelInner();
}

void CheckedRows::CancelInner() {
  std::shared_ptr<PendingCall> inner;
  {
    MutexLock lock(&mu_);
    inner = inner_;
  }
  if (inner != nullptr) inner->Cancel();
}

void CheckedRows::EndWith(Status why) {
  if (FinishWaiting(why)) return;
  {
    MutexLock lock(&mu_);
    why_ = std::move(why);
  }
  CancelInner();
}

}  // namespace reverb::internal
