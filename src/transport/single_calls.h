// single_calls.h — the methods of a server, and what both ends of a single call do, for transports that send
// bytes.
//
// Threads: free functions without state; WireConnection like any Connection.
#ifndef REVERB_TRANSPORT_SINGLE_CALLS_H_
#define REVERB_TRANSPORT_SINGLE_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "reverb/status.h"
#include "reverb/wait.h"
#include "transport/messages.h"
#include "transport/transport.h"
#include "transport/wire.h"

namespace reverb::internal {

// The numbers are sent by the local transport: they never change.
enum class Method : uint8_t {
  kInsert = 1,  // a stream
  kSample = 2,  // a stream
  kMutate = 3,
  kReset = 4,
  kInfo = 5,
  kInspect = 6,
  kSetRateLimiter = 7,
  kCreateTable = 8,
  kRemoveTable = 9,
  kChangeTable = 10,
  kCheckpoint = 11,
  kSettleLeases = 12,
  kRows = 13,
};
inline constexpr Method kLastMethod = Method::kRows;

// Returns the name in proto/reverb/v1/reverb.proto; empty for an unknown number.
std::string_view MethodName(Method method);
inline bool IsSingleCall(Method method) { return method >= Method::kMutate && method <= kLastMethod; }

// Returns whether a single call must not be served on a thread that serves others.
inline bool MayBlock(Method method, const RequestHandler& handler) {
  return method == Method::kCheckpoint || (method == Method::kInspect && handler.inspect_may_block());
}

// Decodes a request of a single call, executes it, and encodes the reply.
Result<WireMessage> Serve(Method method, ByteSlices request, RequestHandler* handler);

// Decodes a request of kRows. Nothing of it refers to the message.
Result<RowsRequest> DecodeRows(ByteSlices request, RequestHandler* handler);
// The same for kRows, which may have to wait; see RequestHandler::StartRows. The request is not used after the return.
std::shared_ptr<PendingCall> ServeRows(ByteSlices request, RequestHandler* handler,
                                       std::function<bool(Result<WireMessage>)> done);

// Starts an operation on rows that was decoded. Logs refusals.
std::shared_ptr<PendingCall> StartRows(Result<RowsRequest> request, RequestHandler* handler,
                                       std::function<bool(Result<RowsReply>)> done);

// The single calls of a Connection over a transport that sends bytes.
class WireConnection : public Connection, public std::enable_shared_from_this<WireConnection> {
 public:
  Result<ServerInfo> Info(const WaitOptions& wait) final;
  Status Mutate(const MutateRequest& request, const WaitOptions& wait) final;
  Status Reset(std::string_view table, const WaitOptions& wait) final;
  Status SetRateLimiter(const SetRateLimiterRequest& request, const WaitOptions& wait) final;
  Status CreateTable(const CreateTableRequest& request, const WaitOptions& wait) final;
  Status RemoveTable(std::string_view table, const WaitOptions& wait) final;
  Status ChangeTable(const ChangeTableRequest& request, const WaitOptions& wait) final;
  Result<InspectReply> Inspect(const InspectRequest& request, const WaitOptions& wait) final;
  Result<std::string> Checkpoint(const WaitOptions& wait) final;
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request, const WaitOptions& wait) final;
  Result<RowsReply> Rows(const RowsRequest& request, const WaitOptions& wait) override;
  std::shared_ptr<PendingCall> StartRows(RowsRequest request, RowsReplied done) final;

 protected:
  using DecodeReply = std::function<Status(ByteSlices reply)>;

  virtual const WireLimits& limits() const = 0;
  // Executes a single call, and returns the result of `decode` for the reply. All calls may be repeated.
  virtual Status Call(Method method, WireMessage request, const WaitOptions& wait,
                      const DecodeReply& decode) = 0;
  // Receives the reply of a call that was started, or an error, once; the reply is valid during the call. `was_sent`:
  // see RowsReplied.
  using Replied = std::function<void(const Status& status, ByteSlices reply, bool was_sent)>;
  // Starts a single call. Cancel() of the result ends it on this side. Null if `done` was called.
  virtual std::shared_ptr<PendingCall> StartCall(Method method, WireMessage request, Replied done) = 0;
  // Returns whether a call that is started now reaches the server after those that were started before; otherwise they
  // have not been sent, or are over.
  virtual bool CanCancelByNumber() const { return is_connected(); }

 private:
  class RowsCancellation;
  Status CallForNothing(Method method, WireMessage request, const WaitOptions& wait);
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_SINGLE_CALLS_H_
