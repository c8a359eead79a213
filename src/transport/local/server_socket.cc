#include "transport/local/server_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/shared_memory.h"
#include "transport/local/endpoint.h"
#include "transport/local/server_calls.h"

namespace reverb::internal {
namespace {

FrameLimits LimitsOf(const RequestHandler& handler) {
  const WireLimits& limits = handler.wire_limits();
  return {.max_inline_bytes = limits.max_message_bytes,
          .max_references = static_cast<uint32_t>(limits.max_chunks),
          .spares_descriptors = true,
          .memory = handler.memory()};
}

// Segments that one client process shares, and all of them together: each takes a mapping and 4 GiB of addresses. A
// writer has one or two.
constexpr size_t kMaxSegmentsOfClient = 64;
constexpr size_t kMaxSegments = 8192;

MessageSocket::Options OptionsOf(LocalServerCore* core, pid_t client) {
  const WireLimits& limits = core->handler()->wire_limits();
  const std::shared_ptr<ClientProcess> process = core->ProcessOf(client);
  return {.frames = LimitsOf(*core->handler()),
          .memory = ProcessSharedMemory(),
          .max_message_bytes = limits.max_message_bytes,
          .pinned_sum = std::shared_ptr<BoundedSum>(process, &process->pinned_bytes),
          .max_segments = kMaxSegmentsOfClient,
          .quota = std::shared_ptr<SegmentQuota>(process, &process->segments),
          .sends_bodies = true};
}

Status StoppingStatus() { return Status::Unavailable("the server is stopping"); }

}  // namespace

// --- What all sockets share -----------------------------------------------------------------------

LocalServerCore::LocalServerCore(LocalServer::Options options, std::shared_ptr<RequestHandler> handler)
    : options_(std::move(options)),
      handler_(std::move(handler)),
      num_segments_(std::make_shared<BoundedSum>(kMaxSegments)) {}

Status LocalServerCore::Admit(const std::shared_ptr<ServerSocket>& socket) {
  MutexLock lock(&mu_);
  if (is_stopping_) return StoppingStatus();
  if (sockets_.size() >= options_.max_streams) {
    return Status::ResourceExhausted("the server has " + std::to_string(sockets_.size()) +
                                     " local sockets open, which is its max_streams; close some clients, or "
                                     "raise the limit");
  }
  sockets_.emplace(socket.get(), socket);
  return Status::Ok();
}

void LocalServerCore::Leave(ServerSocket* socket) {
  MutexLock lock(&mu_);
  sockets_.erase(socket);
  left_.NotifyAll();
}

std::shared_ptr<ClientProcess> LocalServerCore::ProcessOf(pid_t pid) {
  MutexLock lock(&mu_);
  if (const auto found = processes_.find(pid); found != processes_.end()) {
    if (std::shared_ptr<ClientProcess> process = found->second.lock()) return process;
  }
  std::erase_if(processes_, [](const auto& entry) { return entry.second.expired(); });
  auto process = std::make_shared<ClientProcess>(options_.max_pinned_bytes, num_segments_,
                                                 pid != 0 ? kMaxSegmentsOfClient : kMaxSegments);
  processes_[pid] = process;
  return process;
}

std::vector<std::shared_ptr<ServerSocket>> LocalServerCore::sockets() const {
  std::vector<std::shared_ptr<ServerSocket>> sockets;
  MutexLock lock(&mu_);
  sockets.reserve(sockets_.size());
  for (const auto& [key, weak] : sockets_) {
    if (std::shared_ptr<ServerSocket> socket = weak.lock()) sockets.push_back(std::move(socket));
  }
  return sockets;
}

void LocalServerCore::BeginStop() {
  {
    MutexLock lock(&mu_);
    is_stopping_ = true;
  }
  for (const std::shared_ptr<ServerSocket>& socket : sockets()) socket->OnStopping(StoppingStatus());
}

void LocalServerCore::FinishStop(Duration grace) {
  const auto deadline = std::chrono::steady_clock::now() + grace;
  {
    MutexLock lock(&mu_);
    while (!sockets_.empty()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero()) break;
      left_.WaitFor(&mu_, left);
    }
  }
  for (const std::shared_ptr<ServerSocket>& socket : sockets()) socket->Close(StoppingStatus());
  MutexLock lock(&mu_);
  while (!sockets_.empty()) left_.Wait(&mu_);
}

// --- One socket -----------------------------------------------------------------------------------

ServerSocket::Peer ServerSocket::PeerOf(int fd) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return {.pid = peer.pid,
          .user = peer.uid,
          .is_same_user = peer.uid == geteuid(),
          .is_this_process = peer.pid == getpid()};
}

ServerSocket::ServerSocket(std::shared_ptr<LocalServerCore> core, EventLoop* loop, Descriptor fd, Peer peer)
    : MessageSocket(loop, std::move(fd), OptionsOf(core.get(), peer.pid)),
      traffic_(core->options().traffic),
      core_(std::move(core)),
      peer_(peer) {
  // Messages are decoded and returned at once.
  set_max_received_pinned_bytes(UINT64_MAX);
}

void ServerSocket::End(const Status& status) {
  Send(MakeFrame(FrameKind::kStatus, EncodeStatus(status)), /*notify=*/false);
  if (sent_pinned_bytes() == 0) return CloseAfterSending(status);
  // The client makes the memory that it still refers to its own, and closes the socket.
  loop()->Post([self = std::static_pointer_cast<ServerSocket>(shared_from_this()), status] {
    self->stage_ = Stage::kEnded;
    self->end_status_ = status;
    if (self->sent_pinned_bytes() == 0) self->CloseAfterSending(status);
  });
}

void ServerSocket::CloseIfStalled(TimePoint now, Duration timeout) {
  const Status progress = CheckProgress(now, timeout);
  if (progress.ok()) return;
  loop()->Post([self = std::static_pointer_cast<ServerSocket>(shared_from_this()), progress] {
    self->Disconnect(std::string(progress.message()));
  });
}

void ServerSocket::Disconnect(const std::string& why) {
  if (IsClosing()) return;
  const std::string address = client_.empty() ? "pid " + std::to_string(peer_.pid) : client_;
  LogFields fields = {{"event", kEventDisconnect}};
  if (!client_name_.empty()) fields.push_back({"client", client_name_});
  fields.push_back({"address", address});
  Log(LogLevel::kWarning,
      "disconnected the client " + (client_name_.empty() ? "" : client_name_ + " at ") + address +
          (peer_.user ? " of user " + std::to_string(*peer_.user) : "") + ": " + why,
      fields);
  // Lost if the socket is full. The client may connect again.
  const Status reason = Status::Unavailable("the server has disconnected this client: " + why);
  Send(MakeFrame(FrameKind::kStatus, EncodeStatus(reason)), /*notify=*/false);
  Close(reason);
}

void ServerSocket::OnStopping(const Status& why) {
  loop()->Post([self = std::static_pointer_cast<ServerSocket>(shared_from_this()), why] {
    self->closes_when_idle_ = true;  // first: a row operation that is done from now on sees it
    if (self->calls_ != nullptr) self->calls_->CancelAll();
    if (self->stage_ != Stage::kAnswering) return self->End(why);
    // The client learns of the cancelled operation, and then that the socket is closed.
    if (const std::shared_ptr<PendingCall> pending = self->pending_) pending->Cancel();
  });
}

void ServerSocket::HandleFrame(IncomingFrame* frame) {
  Status status;
  if (stage_ == Stage::kEnded) {
    // What the client has sent before it learned of the end.
    if (frame->header.kind == FrameKind::kReturn) (void)HandleMemoryFrame(frame);
    if (sent_pinned_bytes() == 0) CloseAfterSending(end_status_);
    return;
  }
  if (frame->header.num_references > 0 && !AcceptsReferences(frame->header)) {
    return End(Status::InvalidArgument("only items and rows may be in shared memory"));
  }
  switch (frame->header.kind) {
    case FrameKind::kGreeting:
      status = stage_ == Stage::kGreeting ? Greet(*frame)
                                          : Status::InvalidArgument("the client has greeted twice");
      break;
    case FrameKind::kRequest:
      status = stage_ == Stage::kIdle
                   ? BeginRequest(frame)
                   : Status::InvalidArgument("a request came before the greeting or before the last reply");
      break;
    case FrameKind::kPart:
      status = stage_ == Stage::kIdle
                   ? StageRows(frame)
                   : Status::InvalidArgument("a part came before the greeting or before the last reply");
      break;
    case FrameKind::kCall:
      status = stage_ == Stage::kIdle || stage_ == Stage::kCalls
                   ? BeginCall(*frame)
                   : Status::InvalidArgument("a call came before the greeting or within a stream");
      break;
    case FrameKind::kMessage:
      status = stage_ == Stage::kStream ? HandleStreamMessage(frame)
                                        : Status::InvalidArgument("a message came outside of a stream");
      break;
    case FrameKind::kDone:
      if (stage_ == Stage::kStream) {
        stream_->HandleDone();
      } else {
        status = Status::InvalidArgument("the stream ended before its greeting");
      }
      break;
    case FrameKind::kLease:
      status = Status::InvalidArgument("a client grants no lease");
      break;
    default:
      status = HandleMemoryFrame(frame);
  }
  if (!status.ok()) End(status);
}

Status ServerSocket::Greet(const IncomingFrame& frame) {
  REVERB_ASSIGN_OR_RETURN(const LocalHello hello, DecodeLocalHello(frame.inline_bytes));
  const LocalServer::Options& options = core_->options();
  if (hello.version != kLocalVersion) {
    return Status::FailedPrecondition("the server speaks version " + std::to_string(kLocalVersion) +
                                      " of the local transport and the client version " +
                                      std::to_string(hello.version) + "; use gRPC, or update one of them");
  }
  const LocalIdentity own = OwnIdentity();
  if (hello.identity.boot_id != own.boot_id) {
    return Status::FailedPrecondition("the client runs on another host");
  }
  if (!ServesAddress(options.tcp_address, hello.wanted_address)) {
    return Status::FailedPrecondition("the server is reachable at " + options.tcp_address +
                                      ", but the client wants " + hello.wanted_address);
  }
  client_ = "pid " + std::to_string(hello.identity.process_id);
  REVERB_ASSIGN_OR_RETURN(handler_, HandlerFor(hello));
  stage_ = Stage::kIdle;
  const LocalWelcome welcome{
      .identity = own, .life_id = core_->handler()->life_id(), .max_pinned_bytes = options.max_pinned_bytes};
  Send(MakeFrame(FrameKind::kGreeting, EncodeLocalWelcome(welcome)), /*notify=*/false);
  return Status::Ok();
}

Result<std::shared_ptr<RequestHandler>> ServerSocket::HandlerFor(const LocalHello& hello) const {
  const std::shared_ptr<AccessGate>& gate = core_->options().gate;
  if (gate == nullptr) return core_->shared_handler();
  return gate->Admit({.token = hello.token,
                      .address = client_,
                      .is_same_user = peer_.is_same_user,
                      .is_this_process = peer_.is_this_process});
}

Status ServerSocket::BeginRequest(IncomingFrame* frame) {
  const auto method = static_cast<Method>(frame->header.method);
  const ByteSlice slice = frame->inline_bytes;
  if (method != Method::kRows) CountIn(slice.size());
  const ByteSlices message(&slice, 1);
  if (core_->is_stopping()) return StoppingStatus();
  if (!staged_.empty() && method != Method::kRows) {
    return Status::InvalidArgument("the rest of a request for a row table did not come");
  }
  if (method == Method::kInsert || method == Method::kSample) return BeginStream(method, message);
  if (!IsSingleCall(method)) {
    return Status::Unimplemented("this server has no method with the number " +
                                 std::to_string(frame->header.method));
  }
  if (method == Method::kRows) return BeginRows(frame);
  if (!MayBlock(method, *handler_)) {
    Send(MakeReply(method, message, handler_.get()), /*notify=*/false);
    return Status::Ok();
  }
  // On a thread of its own: the loop must not block.
  stage_ = Stage::kAnswering;
  const auto self = std::static_pointer_cast<ServerSocket>(shared_from_this());
  const Buffer request = Buffer::CopyOf(slice);
  const bool started = core_->tasks()->Start([self, handler = handler_, request, method] {
    const ByteSlice bytes = request.span();
    // The next request may come as soon as the reply is sent.
    self->loop()->Post([self, reply = self->MakeReply(method, ByteSlices(&bytes, 1), handler.get())] {
      if (self->stage_ == Stage::kAnswering) self->stage_ = Stage::kIdle;
      self->Send(reply, /*notify=*/false);
      if (self->core_ != nullptr && self->core_->is_stopping()) self->CloseAfterSending(StoppingStatus());
    });
  });
  if (started) return Status::Ok();
  return Status::Unavailable("too many calls that wait for a disk, or the server is stopping");
}

Status ServerSocket::BeginCall(const IncomingFrame& frame) {
  if (core_->is_stopping()) return StoppingStatus();
  if (!staged_.empty()) return Status::InvalidArgument("the rest of a request for a row table did not come");
  CountIn(frame.inline_bytes.size());
  if (calls_ == nullptr) calls_ = std::make_shared<ServerCalls>(weak_from_this(), traffic_);
  stage_ = Stage::kCalls;
  const ByteSlice slice = frame.inline_bytes;
  return calls_->Begin(frame.header.number, static_cast<Method>(frame.header.method), ByteSlices(&slice, 1),
                       handler_.get());
}

Status ServerSocket::ReceiveRows(IncomingFrame* frame, Result<RowsRequest>* request) {
  LocalMessage message;
  Buffer keeper;
  ByteSlices slices;
  REVERB_RETURN_IF_ERROR(Receive(frame, &message, &keeper, &slices));
  CountIn(frame->inline_bytes.size() + message.referenced_bytes);
  REVERB_RETURN_IF_ERROR(CheckReferencesAreInPayloads(*frame, slices));
  *request = DecodeRows(slices, handler_.get());
  // The message is returned here, with the reply if that comes at once.
  return Status::Ok();
}

Status ServerSocket::StageRows(IncomingFrame* frame) {
  if (static_cast<Method>(frame->header.method) != Method::kRows) {
    return Status::InvalidArgument("only requests for row tables come in parts");
  }
  if (core_->is_stopping()) return StoppingStatus();
  Result<RowsRequest> part = RowsRequest();
  REVERB_RETURN_IF_ERROR(ReceiveRows(frame, &part));
  staged_.Add(std::move(part), handler_->wire_limits());
  return Status::Ok();
}

Status ServerSocket::BeginRows(IncomingFrame* frame) {
  GrantLease();
  Result<RowsRequest> request = RowsRequest();
  REVERB_RETURN_IF_ERROR(ReceiveRows(frame, &request));
  request = staged_.Join(std::move(request), handler_->wire_limits());
  stage_ = Stage::kAnswering;
  pending_ = nullptr;
  const std::weak_ptr<ServerSocket> weak = std::static_pointer_cast<ServerSocket>(shared_from_this());
  std::shared_ptr<PendingCall> pending =
      StartRows(std::move(request), handler_.get(), [weak](Result<RowsReply> reply) {
        const std::shared_ptr<ServerSocket> self = weak.lock();
        return self != nullptr && self->AnswerRows(std::move(reply));
      });
  if (stage_ == Stage::kAnswering) pending_ = std::move(pending);
  return Status::Ok();
}

bool ServerSocket::AnswerRows(Result<RowsReply> reply) {
  // Before the reply: the next request may come as soon as it is sent.
  Stage answering = Stage::kAnswering;
  if (!stage_.compare_exchange_strong(answering, Stage::kIdle)) return false;
  Sent sent = Sent::kNow;
  if (reply.ok()) {
    const auto kept = std::make_shared<const RowsReply>(*std::move(reply));
    sent = SendMessage(EncodeRowsReply(*kept, WireEncoding::ForSharedMemory(ProcessSharedMemory())), kept);
  } else {
    sent = Send(MakeFrame(FrameKind::kStatus, EncodeStatus(reply.status())), /*notify=*/false);
  }
  if (closes_when_idle_) CloseAfterSending(StoppingStatus());
  return sent != Sent::kClosed;
}

OutgoingFrame ServerSocket::MakeReply(Method method, ByteSlices request, RequestHandler* handler) const {
  const Result<WireMessage> reply = Serve(method, request, handler);
  if (traffic_ != nullptr) traffic_->CountOut(reply.ok() ? reply->total_bytes() : 0);
  return reply.ok() ? MakeFrame(FrameKind::kMessage, *reply)
                    : MakeFrame(FrameKind::kStatus, EncodeStatus(reply.status()));
}

Status ServerSocket::BeginStream(Method method, ByteSlices message) {
  stage_ = Stage::kStream;
  if (method == Method::kSample) GrantLease();
  stream_ = MakeServerStream(method, std::static_pointer_cast<ServerSocket>(shared_from_this()));
  return stream_->Open(message);
}

Status ServerSocket::HandleStreamMessage(IncomingFrame* frame) {
  {
    LocalMessage message;
    Buffer keeper;
    ByteSlices slices;
    REVERB_RETURN_IF_ERROR(Receive(frame, &message, &keeper, &slices));
    CountIn(frame->inline_bytes.size() + message.referenced_bytes);
    REVERB_RETURN_IF_ERROR(CheckReferencesAreInPayloads(*frame, slices));
    REVERB_RETURN_IF_ERROR(stream_->Decode(slices));
    // The message is returned here, with the session's reply if that comes at once.
  }
  stream_->HandleMessage();
  return Status::Ok();
}

void ServerSocket::HandleWritten() {
  if (stream_ != nullptr) stream_->HandleWritten();
}

void ServerSocket::HandleClosed(Status /*why*/) {
  stage_ = Stage::kEnded;  // a row operation that is done from now on gives back what it got
  if (const std::shared_ptr<PendingCall> pending = std::move(pending_)) pending->Cancel();
  if (const std::shared_ptr<ServerCalls> calls = std::move(calls_)) calls->CancelAll();
  if (const std::shared_ptr<ServerStream> stream = std::move(stream_)) stream->HandleGone();
  staged_ = {};
  core_->Leave(this);
  core_.reset();
  handler_.reset();
}

}  // namespace reverb::internal
