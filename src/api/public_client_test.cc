// Tests the Client and Server handles: options, addresses, and calls to several servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reverb/client.h"
#include "reverb/server.h"
#include "testing/status_matchers.h"

namespace reverb {
namespace {

using namespace std::chrono_literals;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Client::TablePriority> kIntoT = {{"t", 1.0}};
// An address that no server listens on.
constexpr char kNoServer[] = "unix:/no-such-folder/reverb";

Server StartServer(std::optional<int> port = std::nullopt) {
  return Server::Start({.tables = {{.name = "t", .sampler = SelectorOptions::Fifo()}},
                        .host = "127.0.0.1",
                        .port = port})
      .value();
}

Status InsertValue(const Client& client, float value) {
  const TensorView step{.dtype = DType::kFloat32, .dims = {}, .data = &value};
  return client.Insert({&step, 1}, kIntoT);
}

// --- Options and arguments ---

TEST(ClientOptionsTest, ValidateNamesTheOptionAndItsValue) {
  EXPECT_OK(ClientOptions().Validate());
  EXPECT_OK(ClientOptions{.write_window_bytes = std::nullopt}.Validate());
  EXPECT_THAT(ClientOptions{.write_window_bytes = 0}.Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("write_window_bytes (0)")));
  EXPECT_THAT(ClientOptions{.max_response_bytes = 1000}.Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_response_bytes (1000)")));
  const ClientOptions modest{.max_decoded_item_bytes = 1, .max_decoded_reply_bytes = (256 << 20) - 1};
  EXPECT_THAT(modest.Validate(),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("max_decoded_reply_bytes (268435455) must be at least 268435456")));
  EXPECT_THAT(ClientOptions{.name = std::string(1025, 'x')}.Validate(),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("1024"), HasSubstr("1025"))));
}

TEST(PublicClientTest, ConnectChecksOptionsAndAddressesWithoutAServer) {
  EXPECT_THAT(Client::Connect("localhost:1", {.write_window_bytes = -1}).status(),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Client::Connect("").status(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Client::Connect("localhost:1,").status(), StatusIs(StatusCode::kInvalidArgument));
  const Client client = Client::Connect("localhost:1, localhost:2").value();
  EXPECT_EQ(client.num_servers(), 2);
  EXPECT_EQ(client.address(), "localhost:1, localhost:2");
}

TEST(PublicClientTest, RejectsCallsWithoutTablesOrItems) {
  const Server server = StartServer();
  const Client client = server.in_process_client();
  const float value = 1;
  const TensorView step{.dtype = DType::kFloat32, .dims = {}, .data = &value};
  EXPECT_THAT(client.Insert({&step, 1}, {}), StatusIs(StatusCode::kInvalidArgument));
  uint64_t cursor = 0;
  EXPECT_THAT(client.Inspect("t", 0, &cursor).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("0")));
  EXPECT_THAT(client.NewVectorWriter({.num_environments = 0}).status(),
              StatusIs(StatusCode::kInvalidArgument));
}

// --- Single operations ---

TEST(PublicClientTest, InsertsSamplesAndInspectsWithoutASocket) {
  const Server server = StartServer();
  const Client client = server.in_process_client();
  EXPECT_EQ(server.port(), 0);
  EXPECT_EQ(client.address(), "this process");
  EXPECT_TRUE(client.is_in_process().value());
  for (const float value : {1.0f, 2.0f, 3.0f}) ASSERT_OK(InsertValue(client, value));

  std::vector<float> inspected;
  uint64_t cursor = 0;
  int pages = 0;
  do {
    const std::vector<SampledTrajectory> page = client.Inspect("t", 2, &cursor).value();
    for (const SampledTrajectory& item : page) {
      inspected.push_back(*reinterpret_cast<const float*>(item.column(0).value().data()));
      EXPECT_EQ(item.probability(), 0) << "inspecting is not sampling";
    }
  } while (cursor != 0 && ++pages < 5);
  EXPECT_THAT(inspected, ElementsAre(1, 2, 3));
  EXPECT_EQ(server.table("t").value().Info().counters.samples, 0);

  const std::vector<SampledTrajectory> samples = client.Sample("t", 1).value();
  ASSERT_EQ(samples.size(), 1u);
  const uint64_t key = samples[0].key();
  ASSERT_OK(client.Delete("t", {&key, 1}));
  EXPECT_EQ(server.table("t").value().size(), 2);
  EXPECT_THAT(client.Reset("other"), StatusIs(StatusCode::kNotFound));
}

TEST(PublicClientTest, SignaturesListEveryTable) {
  const Server server =
      Server::Start({.tables = {{.name = "any"},
                                {.name = "typed",
                                 .signature = Signature::Leaf({"x", DType::kInt32, Shape({2})}).value()}},
                     .port = std::nullopt})
          .value();
  const auto signatures = server.in_process_client().Signatures().value()->current();
  ASSERT_EQ(signatures->size(), 2u);
  EXPECT_FALSE(signatures->at("any"));
  ASSERT_TRUE(signatures->at("typed"));
  EXPECT_THAT(*signatures->at("typed"), ElementsAre(TensorSpec{"x", DType::kInt32, Shape({2})}));
}

// --- Several servers ---

TEST(PublicClientTest, AnErrorNamesEveryServerThatFailed) {
  const std::string other = std::string(kNoServer) + "2";
  const Client client = Client::Connect(std::string(kNoServer) + "," + other).value();
  EXPECT_THAT(client.Reset("t", {.timeout = 50ms}).message(),
              AllOf(HasSubstr("2 of the 2 servers that were called failed"),
                    HasSubstr(std::string(kNoServer) + ":"), HasSubstr(other + ":")));
}

TEST(PublicClientTest, ReachableServersExecuteACallThatFailsOnOthers) {
  const Server server = StartServer(/*port=*/0);
  const std::string address = "127.0.0.1:" + std::to_string(server.port());
  ASSERT_OK(InsertValue(server.in_process_client(), 1));
  const Client client = Client::Connect(std::string(kNoServer) + "," + address).value();
  const Status status = client.Reset("t", {.timeout = 2s});
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), AllOf(HasSubstr("1 of the 2 servers that were called failed"),
                                      HasSubstr("the others have done it"), HasSubstr(kNoServer)));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the others have done it (" + address + ")"));
  EXPECT_EQ(server.table("t").value().size(), 0);
}

TEST(PublicClientTest, CancellationEndsTheCallsToAllServers) {
  const Client client = Client::Connect(std::string(kNoServer) + "," + kNoServer).value();
  EXPECT_THAT(client.Reset("t", {.on_wait = [] { return Status::Cancelled("a signal"); }}),
              StatusIs(StatusCode::kCancelled, HasSubstr("a signal")));
}

// --- Server ---

TEST(PublicServerTest, RejectsPortsThatDoNotExist) {
  for (const int port : {-1, 65536}) {
    EXPECT_THAT(Server::Start({.tables = {{.name = "t"}}, .port = port}).status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("port " + std::to_string(port))));
  }
}

TEST(PublicServerTest, ListensOnAFreePortAndStopsOnce) {
  Server server = StartServer(/*port=*/0);
  EXPECT_GT(server.port(), 0);
  EXPECT_EQ(server.loaded_checkpoint(), std::nullopt);
  EXPECT_THAT(server.table("other").status(), StatusIs(StatusCode::kNotFound));
  ASSERT_OK(InsertValue(server.in_process_client(), 1));
  server.Stop();
  server.Stop();
  EXPECT_FALSE(InsertValue(server.in_process_client(), 2).ok());
  EXPECT_EQ(server.table("t").value().size(), 1) << "tables can be inspected after Stop()";
}

TEST(PublicServerTest, AMovedServerContinuesToServe) {
  Server first = StartServer();
  const Client client = first.in_process_client();
  const Server second = std::move(first);
  EXPECT_OK(InsertValue(client, 1));
  EXPECT_EQ(second.table("t").value().size(), 1);
}

}  // namespace
}  // namespace reverb
