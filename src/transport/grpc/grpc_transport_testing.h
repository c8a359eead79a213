// grpc_transport_testing.h — a fixture for tests of the gRPC transport.
#ifndef REVERB_TRANSPORT_GRPC_GRPC_TRANSPORT_TESTING_H_
#define REVERB_TRANSPORT_GRPC_GRPC_TRANSPORT_TESTING_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "testing/status_matchers.h"
#include "transport/grpc/grpc_connection.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/grpc_server.h"
#include "transport/transport_testing.h"

namespace reverb::internal {

// A stream of raw bytes, for messages that our client never sends.
class RawStream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Receives nothing if not `reads`.
  RawStream(const std::string& address, const std::string& method, bool reads = true) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    grpc::GenericStub stub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    stub.PrepareBidiStreamingCall(&context_, method, {}, this);
    AddHold();
    if (reads) StartRead(&in_);
    StartCall();
  }
  ~RawStream() override {
    context_.TryCancel();
    if (!over_) (void)Wait();
  }

  void Send(WireMessage message) {
    message.Seal(num_sent_++);
    Send(message.Flatten());
  }
  // Sends the bytes and waits until they are written.
  void Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    out_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&out_);
    (void)written_.Take();
  }
  void Close() { StartWritesDone(); }
  std::optional<std::string> Receive() { return received_.Take(); }
  Status Wait() {
    over_ = true;
    RemoveHold();
    return FromGrpcStatus(status_.Take().value_or(grpc::Status(grpc::StatusCode::UNKNOWN, "nothing came")));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    std::vector<grpc::Slice> slices;
    (void)in_.Dump(&slices);
    std::string bytes;
    for (const grpc::Slice& slice : slices) bytes.append(slice.begin(), slice.end());
    received_.Put(std::move(bytes));
    StartRead(&in_);
  }
  void OnWriteDone(bool ok) override { written_.Put(ok); }
  void OnDone(const grpc::Status& status) override { status_.Put(status); }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer in_, out_;
  bool over_ = false;
  uint64_t num_sent_ = 0;  // messages sent with a checksum
  Mailbox<bool> written_;
  Mailbox<std::string> received_;
  Mailbox<grpc::Status> status_;
};

// --- Fixture --------------------------------------------------------------------------------------

class GrpcTransportTest : public TransportTest {
 protected:
  void StartServer(GrpcServer::Options options = {}) {
    if (options.address == GrpcServer::Options().address) options.address = "127.0.0.1:0";
    auto server = GrpcServer::Start(options, handler_);
    ASSERT_OK(server);
    server_ = *std::move(server);
    connection_ = ConnectGrpc(address()).value();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  // Returns an address that no server listens on.
  static std::string DeadAddress() {
    auto server = GrpcServer::Start({.address = "127.0.0.1:0"}, std::make_shared<HandlerFake>()).value();
    return "127.0.0.1:" + std::to_string(server->port());
  }

  std::unique_ptr<GrpcServer> server_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_GRPC_TRANSPORT_TESTING_H_
