// checked_rows.h — an operation on a row table whose client has a token or limits.
//
// The end of the token ends the operation's wait. Limits of bytes apply to the data of puts, claims and gets: an
// operation starts when earlier data is paid for and, for a put, when there is room for waiting data. Until then it
// waits for as long as the operation itself may wait.
//
// Ownership: the transport, the table's waiter, and the timers of its wait share it.
// Threads: all methods may be called concurrently.
#ifndef REVERB_ACCESS_CHECKED_ROWS_H_
#define REVERB_ACCESS_CHECKED_ROWS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "access/access_control.h"
#include "access/checked_streams.h"
#include "base/mutex.h"
#include "transport/transport.h"

namespace reverb::internal {

class CheckedRows final : public PendingCall, public std::enable_shared_from_this<CheckedRows> {
 public:
  CheckedRows(std::shared_ptr<AccessControl> control, std::shared_ptr<RequestHandler> handler,
              StreamClient client, RequestHandler::RowsDone done)
      : control_(std::move(control)),
        handler_(std::move(handler)),
        client_(std::move(client)),
        done_(std::move(done)) {}

  // To be called once. `done` may be called before this returns.
  void Start(RowsRequest request);
  void Cancel() override EXCLUDES(mu_);

 private:
  // What has become of the operation.
  enum class State : uint8_t {
    kWaiting,  // for the limits
    kStarted,
    kFinished,
  };

  void WaitForLimits(RowsRequest request) EXCLUDES(mu_);
  // Passes the operation to the handler, unless it has ended meanwhile.
  void StartInner() EXCLUDES(mu_);
  void SetInner(std::shared_ptr<PendingCall> inner) EXCLUDES(mu_);
  bool Finish(Result<RowsReply> reply) EXCLUDES(mu_);
  // Ends an operation that was not started. Returns false if it was.
  bool FinishWaiting(Status why) EXCLUDES(mu_);
  // The same for all reasons but the end of the token, after which it is no longer registered.
  bool Stop(Status why) EXCLUDES(mu_);
  void CancelInner() EXCLUDES(mu_);
  // The token has ended. May be called before Start() returns.
  void EndWith(Status why) EXCLUDES(mu_);

  const std::shared_ptr<AccessControl> control_;
  const std::shared_ptr<RequestHandler> handler_;
  const StreamClient client_;
  const RequestHandler::RowsDone done_;
  uint64_t stream_ = 0;            // set by Start(); 0: not registered
  uint64_t waiting_bytes_ = 0;     // likewise: of a put
  bool has_limited_data_ = false;  // likewise
  std::optional<TimePoint> deadline_ = {};

  Mutex mu_;
  State state_ GUARDED_BY(mu_) = State::kWaiting;
  std::optional<RowsRequest> request_ GUARDED_BY(mu_);  // while kWaiting
  Status why_ GUARDED_BY(mu_);                          // the token has ended
  std::shared_ptr<PendingCall> inner_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_CHECKED_ROWS_H_
