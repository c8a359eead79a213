// server_socket.h — a client's socket as the server sees it, and what all sockets of a server share.
//
// A socket starts with the client's greeting. Then it carries single calls, one after the other, or one stream.
//
// Ownership: the event loop keeps a ServerSocket alive until it is closed. Sessions may hold their peer, and with
// it the closed socket, for longer.
// Threads: see StreamSocket. All methods of LocalServerCore may be called concurrently.
#ifndef REVERB_TRANSPORT_LOCAL_SERVER_SOCKET_H_
#define REVERB_TRANSPORT_LOCAL_SERVER_SOCKET_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/status.h"
#include "transport/local/local_server.h"
#include "transport/local/message_socket.h"
#include "transport/local/staged_rows.h"
#include "transport/single_calls.h"
#include "transport/task_threads.h"
#include "transport/transport.h"

namespace reverb::internal {

class ServerCalls;
class ServerSocket;

// What the sockets of one client process use together.
struct ClientProcess {
  ClientProcess(uint64_t max_pinned_bytes, std::shared_ptr<BoundedSum> all_segments, uint64_t max_segments)
      : pinned_bytes(max_pinned_bytes), segments(std::move(all_segments), max_segments) {}

  BoundedSum pinned_bytes;  // of this process's memory that the client refers to
  SegmentQuota segments;    // of the client's memory that this process maps
};

// The state that all sockets of a server share.
class LocalServerCore {
 public:
  LocalServerCore(LocalServer::Options options, std::shared_ptr<RequestHandler> handler);

  const LocalServer::Options& options() const { return options_; }
  RequestHandler* handler() const { return handler_.get(); }
  const std::shared_ptr<RequestHandler>& shared_handler() const { return handler_; }
  TaskThreads* tasks() { return &tasks_; }

  // Registers a socket. An error refuses it.
  Status Admit(const std::shared_ptr<ServerSocket>& socket) EXCLUDES(mu_);
  void Leave(ServerSocket* socket) EXCLUDES(mu_);
  // Returns what the sockets of a process share. Processes whose ID the system hides (0: they are in another PID
  // namespace) share one.
  std::shared_ptr<ClientProcess> ProcessOf(pid_t pid) EXCLUDES(mu_);
  bool is_stopping() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return is_stopping_;
  }
  // Refuses new sockets and calls from now on and ends all streams.
  void BeginStop() EXCLUDES(mu_);
  // Closes all sockets after `grace`, and returns when they are closed.
  void FinishStop(Duration grace) EXCLUDES(mu_);
  std::vector<std::shared_ptr<ServerSocket>> sockets() const EXCLUDES(mu_);

 private:
  const LocalServer::Options options_;
  const std::shared_ptr<RequestHandler> handler_;
  TaskThreads tasks_;
  const std::shared_ptr<BoundedSum> num_segments_;  // of all clients

  mutable Mutex mu_;
  CondVar left_;
  bool is_stopping_ GUARDED_BY(mu_) = false;
  std::unordered_map<ServerSocket*, std::weak_ptr<ServerSocket>> sockets_ GUARDED_BY(mu_);
  std::unordered_map<pid_t, std::weak_ptr<ClientProcess>> processes_ GUARDED_BY(mu_);
};

// A session's side of a stream: decodes its messages. Called on the socket's loop.
class ServerStream {
 public:
  virtual ~ServerStream() = default;
  // The first message, with the client's hello.
  virtual Status Open(ByteSlices message) = 0;
  // Returns whether messages may refer to the client's memory. Only payloads of chunks do.
  virtual bool accepts_references() const { return false; }
  // Decodes a message. Nothing refers to it any more when this returns.
  virtual Status Decode(ByteSlices message) = 0;
  // Passes the decoded message to the session.
  virtual void HandleMessage() = 0;
  virtual void HandleWritten() = 0;
  virtual void HandleDone() = 0;
  virtual void HandleGone() = 0;
};

class ServerSocket final : public MessageSocket {
 public:
  // What the system knows of a client.
  struct Peer {
    pid_t pid = 0;  // 0: unknown
    std::optional<uid_t> user = {};
    bool is_same_user = false;
    bool is_this_process = false;
  };
  static Peer PeerOf(int fd);

  ServerSocket(std::shared_ptr<LocalServerCore> core, EventLoop* loop, Descriptor fd, Peer peer);

  // Sends the reason and closes the socket. Used instead of serving it.
  void Refuse(const Status& why) { End(why); }
  // Ends the stream.
  void End(const Status& status);
  // Disconnects a client that has neither taken what was sent to it nor returned memory that it was shown for
  // `timeout`, with a log record and, if its socket can take that, the reason. To be called four times in that time.
  void CloseIfStalled(TimePoint now, Duration timeout);
  // The server stops. Streams end with `why`, idle sockets are closed; a single call continues.
  void OnStopping(const Status& why);

  // "pid 4711", for messages.
  const std::string& client() const { return client_; }
  // The name that the client of a stream has given itself. Used on the loop's thread.
  void set_client_name(std::string name) { client_name_ = std::move(name); }
  LocalServerCore* core() const { return core_.get(); }
  // The handler for this client; set by the greeting. Used on the loop's thread.
  const std::shared_ptr<RequestHandler>& handler() const { return handler_; }

  // Counts and sends a message.
  Sent SendMessage(const WireMessage& message, std::shared_ptr<const void> keeper = nullptr) {
    if (traffic_ != nullptr) traffic_->CountOut(message.total_bytes());
    return MessageSocket::SendMessage(message, std::move(keeper));
  }
  TrafficCounters* traffic() const { return traffic_.get(); }

 protected:
  void HandleFrame(IncomingFrame* frame) override;
  void HandleWritten() override;
  void HandleClosed(Status why) override;
  void HandleBadFrame(Status why) override { End(why); }
  bool limits_messages() const override { return stage_ == Stage::kStream; }
  // A client that does not take its replies gets no more of them.
  uint64_t max_waiting_bytes() const override { return uint64_t{4} << 20; }
  // Sessions charge their replies themselves.
  bool charges_waiting_bytes() const override { return stage_ != Stage::kStream; }

 private:
  enum class Stage : uint8_t {
    kGreeting,   // waits for the client's
    kIdle,       // waits for a request
    kAnswering,  // a single call runs on another thread, or waits
    kStream,
    kCalls,  // many single calls at a time
    kEnded,  // waits for the client to close the socket
  };
  Status Greet(const IncomingFrame& frame);
  void Disconnect(const std::string& why);
  // Returns the handler for this client's requests, by its token and what the system knows of it.
  Result<std::shared_ptr<RequestHandler>> HandlerFor(const LocalHello& hello) const;
  Status BeginRequest(IncomingFrame* frame);
  Status BeginCall(const IncomingFrame& frame);
  Status BeginStream(Method method, ByteSlices message);
  Status BeginRows(IncomingFrame* frame);
  // Takes rows of a request whose rest follows.
  Status StageRows(IncomingFrame* frame);
  // Copies and verifies the rows of a request. An error of the frame ends the socket, one of the request is its outcome.
  Status ReceiveRows(IncomingFrame* frame, Result<RowsRequest>* request);
  // Sends the outcome of a row operation. Returns false if the client is gone. On any thread.
  bool AnswerRows(Result<RowsReply> reply);
  // Returns whether this frame may refer to memory of the client.
  bool AcceptsReferences(const FrameHeader& header) const {
    if (header.kind == FrameKind::kRequest || header.kind == FrameKind::kPart) {
      return header.method == static_cast<uint8_t>(Method::kRows);
    }
    return stream_ != nullptr && stream_->accepts_references();
  }
  Status HandleStreamMessage(IncomingFrame* frame);
  // Executes a single call.
  OutgoingFrame MakeReply(Method method, ByteSlices request, RequestHandler* handler) const;
  void CountIn(uint64_t bytes) const {
    if (traffic_ != nullptr) traffic_->CountIn(bytes);
  }

  const std::shared_ptr<TrafficCounters> traffic_;  // null: messages are not counted
  // Reset when the socket is closed: a session that outlives it must not keep the handler alive.
  std::shared_ptr<LocalServerCore> core_;
  // Changed on the loop's thread, except from kAnswering to kIdle.
  std::atomic<Stage> stage_ = Stage::kGreeting;
  std::atomic<bool> closes_when_idle_ = false;  // the server stops
  const Peer peer_;
  // Used on the loop's thread.
  std::shared_ptr<RequestHandler> handler_;
  std::shared_ptr<PendingCall> pending_;  // an operation on a row table
  std::shared_ptr<ServerCalls> calls_;    // of kCalls
  StagedRows staged_;                     // rows of the next request
  std::string client_;
  std::string client_name_;
  std::shared_ptr<ServerStream> stream_;
  Status end_status_;  // of kEnded
};

// Creates the stream of this method.
std::shared_ptr<ServerStream> MakeServerStream(Method method, std::shared_ptr<ServerSocket> socket);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_SERVER_SOCKET_H_
