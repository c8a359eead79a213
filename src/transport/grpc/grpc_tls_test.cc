// TLS on gRPC's port: who is accepted, what errors say, and clients that never finish a handshake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "access/tls_files.h"
#include "testing/certificates.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"
#include "transport/grpc/grpc_transport_testing.h"

namespace reverb::internal {
namespace {

using ::reverb::test::Authority;
using ::reverb::test::IsOk;
using ::reverb::test::StatusIs;
using ::testing::HasSubstr;

constexpr char kHere[] = "DNS:localhost,IP:127.0.0.1";

class GrpcTlsTest : public GrpcTransportTest {
 protected:
  static std::filesystem::path Folder(const std::string& suffix) {
    return std::filesystem::path(testing::TempDir()) /
           ("tls_" + std::to_string(getpid()) + "_" +
            std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + suffix);
  }

  void StartTls(const std::string& name = "server", bool requires_certificate = false,
                Duration handshake = kLong) {
    auto files = TlsFiles::Load({.certificate = authority_.path(name + ".crt"),
                                 .key = authority_.path(name + ".key"),
                                 .client_ca = requires_certificate ? authority_.ca() : ""});
    ASSERT_OK(files);
    files_ = *files;
    StartServer({.handshake_timeout = handshake, .tls = files_});
  }
  std::shared_ptr<Connection> Connect(const ClientTls& tls, const std::string& host = "127.0.0.1") {
    return ConnectGrpc(host + ":" + std::to_string(server_->port()), {.tls = ReadClientTls(tls).value()})
        .value();
  }
  // A single call waits for a server without end, and so do streams of writers; neither waits here.
  static void ExpectError(Connection& connection, const std::string& text) {
    EXPECT_THAT(connection.Info({}), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(text)));
    EXPECT_THAT(connection.Info({.timeout = Duration(0)}),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr(text)));
    auto events = std::make_shared<InsertEventsFake>();
    auto stream = connection.OpenInsert(test::ExampleHello(), events);
    TAKE_OR_FAIL(closed, events->closed);
    EXPECT_THAT(closed, StatusIs(StatusCode::kFailedPrecondition, HasSubstr(text)));
    // Calls that no thread waits for, two of them: one attempt ends both.
    Mailbox<Status> ended;
    const auto done = [&ended](Result<RowsReply> reply, bool /*was_sent*/) { ended.Put(reply.status()); };
    RowsRequest request;
    request.call.verb = RowsVerb::kInfo;
    const auto one = connection.StartRows(request, done);
    const auto two = connection.StartRows(request, done);
    for (int i = 0; i < 2; ++i) {
      TAKE_OR_FAIL(status, ended);
      EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, HasSubstr(text)));
    }
  }

  const Authority authority_{Folder("")};
  std::shared_ptr<TlsFiles> files_;
};

TEST_F(GrpcTlsTest, CarriesCallsAndStreams) {
  authority_.Sign("server", kHere);
  StartTls();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    connection_ = Connect({.ca = authority_.ca()}, host);
    EXPECT_THAT(connection_->Info({}), IsOk());
    Insert insert = OpenInsert();
    TAKE_OR_FAIL(reply, insert.events->replies);
    EXPECT_TRUE(reply.welcome.has_value());
    insert.stream->Finish();
    TAKE_OR_FAIL(closed, insert.events->closed);
    EXPECT_THAT(closed, IsOk());
  }
}

TEST_F(GrpcTlsTest, ExpiredCertificate) {
  authority_.Sign("server", kHere, -1);
  StartTls();
  ExpectError(*Connect({.ca = authority_.ca()}), "has expired");
}

TEST_F(GrpcTlsTest, CertificateOfAnotherAuthority) {
  const Authority other(Folder("_other"));
  authority_.Sign("server", kHere);
  StartTls();
  ExpectError(*Connect({.ca = other.ca()}), "not signed by an authority that this client trusts");
}

TEST_F(GrpcTlsTest, CertificateForAnotherName) {
  authority_.Sign("server", "DNS:replay.example");
  StartTls();
  ExpectError(*Connect({.ca = authority_.ca()}, "localhost"), "is not for \"localhost\"");
  EXPECT_THAT(Connect({.ca = authority_.ca(), .server_name = "replay.example"})->Info({}), IsOk());
}

TEST_F(GrpcTlsTest, PlaintextClientOfATlsServer) {
  authority_.Sign("server", kHere);
  StartTls();
  ExpectError(*ConnectGrpc(address()).value(), "speaks TLS, and this client plaintext");
}

TEST_F(GrpcTlsTest, TlsClientOfAPlaintextServer) {
  StartServer();
  ExpectError(*Connect({.ca = authority_.ca()}), "the server speaks plaintext");
}

TEST_F(GrpcTlsTest, RequiresCertificatesOfClients) {
  const Authority other(Folder("_other"));
  authority_.Sign("server", kHere);
  authority_.Sign("client", "DNS:client");
  authority_.Sign("old", "DNS:old", -1);
  other.Sign("stranger", "DNS:stranger");
  StartTls("server", /*requires_certificate=*/true);
  const auto with = [&](const Authority& from, const std::string& name) {
    return Connect(
        {.ca = authority_.ca(), .certificate = from.path(name + ".crt"), .key = from.path(name + ".key")});
  };
  EXPECT_THAT(with(authority_, "client")->Info({}), IsOk());
  ExpectError(*Connect({.ca = authority_.ca()}), "requires a client certificate");
  ExpectError(*with(other, "stranger"), "client");
  ExpectError(*with(authority_, "old"), "certificate");
}

// A server that is not there yet is waited for, with TLS as without.
TEST_F(GrpcTlsTest, WaitsForAServerThatIsNotThere) {
  authority_.Sign("server", kHere);
  const std::shared_ptr<Connection> connection =
      ConnectGrpc(DeadAddress(), {.tls = ReadClientTls({.ca = authority_.ca()}).value()}).value();
  EXPECT_THAT(connection->Info({.timeout = std::chrono::seconds(3)}),
              StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(connection->Info({.timeout = Duration(0)}), StatusIs(StatusCode::kUnavailable));
}

TEST_F(GrpcTlsTest, ReadsTheFilesAgain) {
  const Authority other(Folder("_other"));
  authority_.Sign("server", kHere);
  StartTls();
  EXPECT_THAT(Connect({.ca = authority_.ca()})->Info({}), IsOk());
  // A certificate without its key: the old one stays in use.
  other.Sign("server", kHere);
  std::filesystem::copy_file(other.path("server.crt"), authority_.path("server.crt"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(files_->Reload(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not that of the certificate")));
  EXPECT_THAT(Connect({.ca = authority_.ca()})->Info({}), IsOk());
  std::filesystem::copy_file(other.path("server.key"), authority_.path("server.key"),
                             std::filesystem::copy_options::overwrite_existing);
  // Nobody calls Reload().
  EXPECT_TRUE(test::WaitUntil([&] {
    const auto connection = Connect({.ca = other.ca()});
    return connection->Info({.timeout = std::chrono::seconds(5)}).ok();
  }));
}

TEST_F(GrpcTlsTest, FilesThatAreNoCertificates) {
  authority_.Sign("server", kHere);
  const std::string certificate = authority_.path("server.crt");
  const std::string key = authority_.path("server.key");
  EXPECT_THAT(TlsFiles::Load({.certificate = certificate}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no key")));
  EXPECT_THAT(TlsFiles::Load({.certificate = key, .key = key}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no certificate in PEM")));
  EXPECT_THAT(TlsFiles::Load({.certificate = certificate, .key = certificate}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no private key in PEM")));
  EXPECT_THAT(TlsFiles::Load({.certificate = authority_.path("none"), .key = key}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("cannot be read")));
  EXPECT_THAT(ReadClientTls({.ca = authority_.ca(), .certificate = certificate}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("certificate and no key")));
}

// --- Handshakes that never end ---

// A TCP connection to the server.
class HalfOpen {
 public:
  explicit HalfOpen(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  ~HalfOpen() { close(fd_); }
  HalfOpen(const HalfOpen&) = delete;
  HalfOpen& operator=(const HalfOpen&) = delete;

  bool Send(std::string_view bytes) const {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Reads what the server sends; returns true when it has closed the connection.
  bool IsClosed() const {
    char buffer[4096];
    const ssize_t size = recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
    return size == 0 || (size < 0 && errno != EAGAIN);
  }

 private:
  const int fd_;
};

// The first bytes of a TLS handshake that announce 512 bytes.
constexpr std::string_view kTlsStart("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
constexpr std::string_view kHttp2Start("PRI * HTTP/2.0\r\n");

void ExpectOthersGoOn(GrpcServer& server, const std::function<std::shared_ptr<Connection>()>& connect,
                      bool is_tls) {
  std::vector<std::unique_ptr<HalfOpen>> silent;
  std::vector<std::unique_ptr<HalfOpen>> partial;
  for (int i = 0; i < 50; ++i) {
    silent.push_back(std::make_unique<HalfOpen>(server.port()));
    partial.push_back(std::make_unique<HalfOpen>(server.port()));
    EXPECT_TRUE(partial.back()->Send(is_tls ? kTlsStart : kHttp2Start));
  }
  // One sends a byte at a time, which does not give it more time.
  const HalfOpen slow(server.port());
  std::atomic<bool> is_done{false};
  std::thread trickle([&] {
    size_t next = 0;
    const std::string_view start = is_tls ? kTlsStart : kHttp2Start;
    while (!is_done && slow.Send(next < start.size() ? start.substr(next, 1) : std::string_view("x"))) {
      next += next < start.size() ? 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // sets the rate of a slow client
    }
  });
  EXPECT_THAT(connect()->Info({}), IsOk());
  for (const auto& each : silent) EXPECT_TRUE(test::WaitUntil([&] { return each->IsClosed(); }));
  for (const auto& each : partial) EXPECT_TRUE(test::WaitUntil([&] { return each->IsClosed(); }));
  EXPECT_TRUE(test::WaitUntil([&] { return slow.IsClosed(); }));
  is_done = true;
  trickle.join();
  EXPECT_THAT(connect()->Info({}), IsOk());
}

TEST_F(GrpcTlsTest, UnfinishedTlsHandshakesAreClosed) {
  authority_.Sign("server", kHere);
  StartTls("server", false, std::chrono::seconds(2));
  ExpectOthersGoOn(
      *server_, [&] { return Connect({.ca = authority_.ca()}); }, /*is_tls=*/true);
}

TEST_F(GrpcTlsTest, UnfinishedPlaintextHandshakesAreClosed) {
  StartServer({.handshake_timeout = std::chrono::seconds(2)});
  ExpectOthersGoOn(
      *server_, [&] { return ConnectGrpc(address()).value(); }, /*is_tls=*/false);
}

}  // namespace
}  // namespace reverb::internal
