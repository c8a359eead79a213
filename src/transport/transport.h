// transport.h — the interfaces between clients, servers and the transports that carry their messages.
//
//   client  →  Connection, InsertStream, SampleStream     a transport implements, src/client calls
//   client  ←  InsertEvents, SampleEvents                 src/client implements, a transport calls
//   server  ←  RequestHandler, InsertSession, SampleSession   src/service implements, a transport calls
//   server  →  InsertPeer, SamplePeer                     a transport implements, src/service calls
//
// Both ends exchange the values of messages.h. A transport either passes them unchanged, on the caller's
// thread (inproc/), or encodes them (wire.h, grpc/).
//
// Rules for both sides of these interfaces:
// - Callers hold no lock: a call may call back on the same thread.
// - The messages of a stream are delivered one at a time and in order in each direction. The two directions,
//   and OnSent/OnWritten, may run concurrently.
// - The objects are shared: calls to an end that has already closed have no effect. OnClosed and OnGone are
//   the last calls of a stream, made exactly once for a stream that was opened. Afterwards the stream drops
//   its references to the other side.
// - Nothing here blocks, except the single calls of a Connection.
#ifndef REVERB_TRANSPORT_TRANSPORT_H_
#define REVERB_TRANSPORT_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/memory_budget.h"
#include "base/payload_source.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "tensor/chunk.h"
#include "tensor/chunk_header.h"
#include "tensor/trajectory.h"
#include "transport/messages.h"
#include "transport/wire.h"

namespace reverb::internal {

// --- The client's side ----------------------------------------------------------------------------

class InsertEvents {
 public:
  virtual ~InsertEvents() = default;
  virtual void OnReply(InsertReply reply) = 0;
  // Called after a Send() that returned false: the next message may be sent.
  virtual void OnSent() = 0;
  // The stream has closed. OK: both sides had sent all their messages.
  virtual void OnClosed(Status status) = 0;
};

class InsertStream {
 public:
  virtual ~InsertStream() = default;
  struct Sent {
    uint64_t bytes = 0;  // that count against the server's insert window
    bool ready = false;  // another message may be sent now; otherwise wait for OnSent()
  };
  // REQUIRES: the stream is ready: it is new, the last call returned `ready`, or OnSent() was called. Returns
  // {0, false} if the stream has closed.
  virtual Sent Send(InsertMessage message) = 0;
  // Estimates the bytes that this trajectory adds to a message; chunks that the server has add nothing. Not to be called
  // during Send().
  virtual uint64_t NewBytes(const Trajectory& trajectory) const = 0;
  // Waits for the next events, for `most` at most, and handles them on this thread, which saves waking it. Returns
  // false at once if another thread does that now, or always does it.
  virtual bool Poll(Duration /*most*/) { return false; }
  // A thread that calls Poll() again and again does so between these; see StreamPoller. The transport need not find out
  // meanwhile whether one still does.
  virtual void BeginPolling() {}
  virtual void EndPolling() {}
  // Half-closes the stream: the server answers the pending messages and ends the stream.
  virtual void Finish() = 0;
  // Cancels the stream. OnClosed() is still called.
  virtual void Cancel() = 0;
};

class SampleEvents {
 public:
  virtual ~SampleEvents() = default;
  // The client returns `bytes` as credit (SampleRequest::taken_bytes) once the samples are consumed.
  virtual void OnReply(SampleReply reply, uint64_t bytes) = 0;
  virtual void OnClosed(Status status) = 0;
};

class SampleStream {
 public:
  virtual ~SampleStream() = default;
  // Requests are small: those that cannot be sent yet are queued. The client bounds their number.
  virtual void Send(SampleRequest request) = 0;
  // See InsertStream.
  virtual bool Poll(Duration /*most*/) { return false; }
  virtual void BeginPolling() {}
  virtual void EndPolling() {}
  virtual void Finish() = 0;
  virtual void Cancel() = 0;
};

// An operation that may be waiting.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  // Ends it with CANCELLED, unless it has ended.
  virtual void Cancel() = 0;
};

// A connection to one server. Threads: all methods may be called concurrently.
class Connection {
 public:
  virtual ~Connection() = default;

  // For messages: "localhost:8000", "this process".
  virtual std::string address() const = 0;
  // Returns whether the server is in this process: calls run on the caller's thread, chunks are shared, and a
  // server that has stopped cannot be reconnected to.
  virtual bool in_process() const = 0;

  // The first reply answers `hello`. If a stream cannot be opened, OnClosed() is called, possibly before
  // these return.
  virtual std::shared_ptr<InsertStream> OpenInsert(const Hello& hello,
                                                   std::shared_ptr<InsertEvents> events) = 0;
  virtual std::shared_ptr<SampleStream> OpenSample(const Hello& hello,
                                                   std::shared_ptr<SampleEvents> events) = 0;

  // Returns where writers should allocate payloads, so that the server, and processes that it shares its memory
  // with, read them in place; null for private memory.
  virtual PayloadSource* payload_source() { return nullptr; }

  // Returns whether Send() of a stream may block in a system call.
  virtual bool send_may_block() const { return false; }

  // Returns whether the server is connected, as far as this side knows.
  virtual bool is_connected() const { return true; }

  // Single calls wait for the response, and for a server that is not reachable yet, within `wait`.
  // UNAVAILABLE when the connection breaks during the call; the server may still have executed it.
  virtual Result<ServerInfo> Info(const WaitOptions& wait) = 0;
  virtual Status Mutate(const MutateRequest& request, const WaitOptions& wait) = 0;
  virtual Status Reset(std::string_view table, const WaitOptions& wait) = 0;
  virtual Status SetRateLimiter(const SetRateLimiterRequest& request, const WaitOptions& wait) = 0;
  virtual Status CreateTable(const CreateTableRequest& request, const WaitOptions& wait) = 0;
  virtual Status RemoveTable(std::string_view table, const WaitOptions& wait) = 0;
  virtual Status ChangeTable(const ChangeTableRequest& request, const WaitOptions& wait) = 0;
  virtual Result<InspectReply> Inspect(const InspectRequest& request, const WaitOptions& wait) = 0;
  // Returns the path of the checkpoint.
  virtual Result<std::string> Checkpoint(const WaitOptions& wait) = 0;
  virtual Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request, const WaitOptions& wait) = 0;
  // An operation on a row table. It may have to wait, for as long as the request says; ending the wait of the call
  // cancels it at the server.
  virtual Result<RowsReply> Rows(const RowsRequest& /*request*/, const WaitOptions& /*wait*/) {
    return Status::Unimplemented("this connection has no row tables");
  }
  // Receives the reply to StartRows(), once, on any thread, possibly before that returns. `was_sent`: false if the
  // server has certainly not got the request.
  using RowsReplied = std::function<void(Result<RowsReply> reply, bool was_sent)>;
  // The same without a thread that waits: does not block, and a server that is not reachable now may be UNAVAILABLE.
  // Cancel() ends the wait at the server; an operation that was done before that is replied to as usual. The result
  // may be null if the operation is done.
  virtual std::shared_ptr<PendingCall> StartRows(RowsRequest /*request*/, RowsReplied done) {
    done(Status::Unimplemented("this connection has no row tables"), /*was_sent=*/false);
    return nullptr;
  }
};

// --- The server's side ----------------------------------------------------------------------------

class InsertPeer {
 public:
  virtual ~InsertPeer() = default;
  // Requests one message. A session calls it when it is opened and when it can take another message: this is
  // the server's backpressure. (It does not delay a client in the same process, which observes its window.)
  virtual void ReadNext() = 0;
  // Returns false if the next reply must wait for OnWritten(). REQUIRES: as for InsertStream::Send.
  virtual bool Reply(InsertReply reply) = 0;
  // Ends the stream after the reply in progress. OnGone() follows.
  virtual void End(Status status) = 0;
  // Returns the client's address, for messages; empty within one process.
  virtual std::string address() const { return {}; }
};

class InsertSession {
 public:
  virtual ~InsertSession() = default;
  virtual void OnMessage(InsertMessage message) = 0;
  virtual void OnWritten() = 0;
  // The client has half-closed the stream. The session answers the pending messages and calls End().
  virtual void OnDone() = 0;
  virtual void OnGone() = 0;
};

class SamplePeer {
 public:
  virtual ~SamplePeer() = default;
  struct Sent {
    uint64_t bytes = 0;  // that count against the client's credit
    bool ready = false;  // another reply may be sent now; otherwise wait for OnWritten()
  };
  // Samples are passed by reference: their size does not matter.
  virtual bool shares_memory() const { return false; }
  // Most payloads are sent by reference: the server does not read them.
  virtual bool sends_references() const { return false; }
  virtual void ReadNext() = 0;
  virtual Sent Reply(SampleReply reply) = 0;
  virtual void End(Status status) = 0;
  virtual std::string address() const { return {}; }
};

class SampleSession {
 public:
  virtual ~SampleSession() = default;
  virtual void OnRequest(SampleRequest request) = 0;
  virtual void OnWritten() = 0;
  virtual void OnDone() = 0;
  virtual void OnGone() = 0;
};

// Handles the requests to a server. Threads: all methods may be called concurrently.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;

  // Returns a random ID, generated when the server started.
  virtual const Id128& life_id() const = 0;
  virtual const WireLimits& wire_limits() const = 0;
  // Returns where writers of this process should allocate payloads; null for private memory.
  virtual PayloadSource* payload_source() const { return nullptr; }
  // Returns what messages are charged to, while they are received and decoded and until they are sent; null: nothing.
  virtual MemoryBudget* memory() const { return nullptr; }

  // An error refuses the stream; the peer is then not used. Otherwise the session may call the peer from now
  // on, even before these return.
  virtual Result<std::shared_ptr<InsertSession>> OpenInsert(const Hello& hello,
                                                            std::shared_ptr<InsertPeer> peer) = 0;
  virtual Result<std::shared_ptr<SampleSession>> OpenSample(const Hello& hello,
                                                            std::shared_ptr<SamplePeer> peer) = 0;
  // Creates the chunk that a received payload is copied into (InsertDecoder::ChunkFactory).
  virtual Result<ChunkRef> AllocateChunk(const ChunkHeader& header, uint8_t** payload) = 0;

  virtual Result<ServerInfo> Info() = 0;
  virtual Status Mutate(const MutateRequest& request) = 0;
  virtual Status Reset(std::string_view table) = 0;
  virtual Status SetRateLimiter(const SetRateLimiterRequest& request) = 0;
  virtual Status CreateTable(const CreateTableRequest& request) = 0;
  virtual Status RemoveTable(std::string_view table) = 0;
  virtual Status ChangeTable(const ChangeTableRequest& request) = 0;
  virtual Result<InspectReply> Inspect(const InspectRequest& request) = 0;
  // Returns whether Inspect() may have to wait for a disk: it is then called on a thread of its own.
  virtual bool inspect_may_block() const { return false; }
  virtual Result<std::string> Checkpoint() = 0;
  virtual Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request) = 0;

  // Receives the outcome of StartRows(), once, on any thread, possibly before that returns. Returns false if the
  // client is gone: what it would have got is given back.
  using RowsDone = std::function<bool(Result<RowsReply>)>;
  // Does not block. The result may be null if the operation is done.
  virtual std::shared_ptr<PendingCall> StartRows(RowsRequest /*request*/, const RowsDone& done) {
    (void)done(Status::Unimplemented("this server has no row tables"));
    return nullptr;
  }
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_TRANSPORT_H_
