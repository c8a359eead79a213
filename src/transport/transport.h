// transport.h — the seam between clients, servers and whatever carries messages between them.
//
//   client  →  Connection, InsertStream, SampleStream     a transport implements, src/client calls
//   client  ←  InsertEvents, SampleEvents                 src/client implements, a transport calls
//   server  ←  RequestHandler, InsertSession, SampleSession   src/service implements, a transport calls
//   server  →  InsertPeer, SamplePeer                     a transport implements, src/service calls
//
// Both ends speak the values of messages.h. A transport either passes them on as they are, on the
// caller's thread (inproc/), or as the bytes of wire.h (grpc/).
//
// Rules for both sides of the seam:
// - No lock is held while calling across it: a call may come straight back on the same thread.
// - Of each stream, messages in one direction are handed over one at a time and in order; the two
//   directions, and OnSent/OnWritten, may run at the same time on different threads.
// - The objects are shared: a call to an end that is over already does nothing. OnClosed and OnGone are
//   the last call that a stream makes, and come exactly once for a stream that was opened. Afterwards
//   the stream's references to the other side are dropped.
// - Nothing here blocks, except the single calls of a Connection.
#ifndef REVERB_TRANSPORT_TRANSPORT_H_
#define REVERB_TRANSPORT_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

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
  // After a Send() that returned false: the next message may be sent.
  virtual void OnSent() = 0;
  // The stream is over. OK: both sides had said all they had to say.
  virtual void OnClosed(Status status) = 0;
};

class InsertStream {
 public:
  virtual ~InsertStream() = default;
  struct Sent {
    uint64_t bytes = 0;  // what the message counts against the server's insert window
    bool ready = false;  // another one may follow at once; else OnSent() will say when
  };
  // REQUIRES: the stream is ready: not yet used, or the last call said so, or OnSent() came. Of a stream
  // that is over, {0, false}.
  virtual Sent Send(InsertMessage message) = 0;
  // About how many bytes a message will grow by this trajectory; chunks that the server has are free.
  virtual uint64_t NewBytes(const Trajectory& trajectory) const = 0;
  // Nothing more will be sent; the server answers what is under way and ends the stream.
  virtual void Finish() = 0;
  // Gives up at once. OnClosed() comes all the same.
  virtual void Cancel() = 0;
};

class SampleEvents {
 public:
  virtual ~SampleEvents() = default;
  // `bytes` are to be given back by SampleRequest::taken_bytes once the samples were taken.
  virtual void OnReply(SampleReply reply, uint64_t bytes) = 0;
  virtual void OnClosed(Status status) = 0;
};

class SampleStream {
 public:
  virtual ~SampleStream() = default;
  // Requests are small: those that cannot leave yet are kept. The client bounds their number.
  virtual void Send(SampleRequest request) = 0;
  virtual void Finish() = 0;
  virtual void Cancel() = 0;
};

// A way to one server. Threads: all methods may be called concurrently.
class Connection {
 public:
  virtual ~Connection() = default;

  // For people: "localhost:8000", "this process".
  virtual std::string address() const = 0;
  // Calls run on the caller's thread and chunks are shared. Such a server does not come back.
  virtual bool in_process() const = 0;

  // The answer to `hello` comes as the first reply. A stream that cannot be opened is closed by OnClosed(),
  // which may come before these return.
  virtual std::shared_ptr<InsertStream> OpenInsert(const Hello& hello,
                                                   std::shared_ptr<InsertEvents> events) = 0;
  virtual std::shared_ptr<SampleStream> OpenSample(const Hello& hello,
                                                   std::shared_ptr<SampleEvents> events) = 0;

  // Whether Send() of a stream may block in a system call.
  virtual bool send_may_block() const { return false; }

  // Whether the server is connected now, as far as this side knows.
  virtual bool is_connected() const { return true; }

  // Single calls wait for an answer, and for a server that cannot be reached yet, within `wait`.
  // UNAVAILABLE when the connection breaks during the call; the server may have carried it out all the same.
  virtual Result<ServerInfo> Info(const WaitOptions& wait) = 0;
  virtual Status Mutate(const MutateRequest& request, const WaitOptions& wait) = 0;
  virtual Status Reset(std::string_view table, const WaitOptions& wait) = 0;
  virtual Status SetRateLimiter(const SetRateLimiterRequest& request, const WaitOptions& wait) = 0;
  virtual Result<InspectReply> Inspect(const InspectRequest& request, const WaitOptions& wait) = 0;
  // Where it was written.
  virtual Result<std::string> Checkpoint(const WaitOptions& wait) = 0;
};

// --- The server's side ----------------------------------------------------------------------------

class InsertPeer {
 public:
  virtual ~InsertPeer() = default;
  // Lets one message come. A session calls it when it is opened and when it wants another: this is the
  // server's back-pressure. (A client of the same process keeps to its window and is not held back.)
  virtual void ReadNext() = 0;
  // False: OnWritten() says when the next may be sent. REQUIRES: as for InsertStream::Send.
  virtual bool Reply(InsertReply reply) = 0;
  // Ends the stream, after the reply that is under way. OnGone() follows.
  virtual void End(Status status) = 0;
  // Where the client calls from, for people; empty inside one process.
  virtual std::string address() const { return {}; }
};

class InsertSession {
 public:
  virtual ~InsertSession() = default;
  virtual void OnMessage(InsertMessage message) = 0;
  virtual void OnWritten() = 0;
  // The client will send nothing more. The session answers what is under way and calls End().
  virtual void OnDone() = 0;
  virtual void OnGone() = 0;
};

class SamplePeer {
 public:
  virtual ~SamplePeer() = default;
  struct Sent {
    uint64_t bytes = 0;  // what the reply counts against the client's credit
    bool ready = false;  // another one may follow at once; else OnWritten() will say when
  };
  // Samples are handed over by reference: their size does not matter.
  virtual bool shares_memory() const { return false; }
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

// What a server does. Threads: all methods may be called concurrently.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;

  // Drawn when the server started.
  virtual const Id128& life_id() const = 0;
  virtual const WireLimits& wire_limits() const = 0;

  // An error refuses the stream with it; the peer is not used then. Otherwise the session calls the peer
  // from here on, also before these return.
  virtual Result<std::shared_ptr<InsertSession>> OpenInsert(const Hello& hello,
                                                            std::shared_ptr<InsertPeer> peer) = 0;
  virtual Result<std::shared_ptr<SampleSession>> OpenSample(const Hello& hello,
                                                            std::shared_ptr<SamplePeer> peer) = 0;
  // Makes the chunk that a payload from the network is copied into (InsertDecoder::ChunkFactory).
  virtual Result<ChunkRef> AllocateChunk(const ChunkHeader& header, uint8_t** payload) = 0;

  virtual Result<ServerInfo> Info() = 0;
  virtual Status Mutate(const MutateRequest& request) = 0;
  virtual Status Reset(std::string_view table) = 0;
  virtual Status SetRateLimiter(const SetRateLimiterRequest& request) = 0;
  virtual Result<InspectReply> Inspect(const InspectRequest& request) = 0;
  virtual Result<std::string> Checkpoint() = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_TRANSPORT_H_
