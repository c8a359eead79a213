// Single inserts whose connection breaks, over every transport that can break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "api/routed_connection.h"
#include "api/server_link.h"
#include "conformance/client_fixture.h"
#include "testing/cut_connection.h"
#include "testing/status_matchers.h"

namespace reverb::test {
namespace {

class SingleInsertTest : public ClientFixture {
 protected:
  void StartAndConnect() {
    Start({MakeQueue("q", 100)});
    const std::string address =
        over_grpc() ? "127.0.0.1:" + std::to_string(server_->port()) : "unix:" + path_;
    ClientOptions options{.in_process = false};
    options.token = token_;
    connection_ = std::make_shared<CutConnection>(internal::ConnectRouted(address, options).value());
    link_ = std::make_unique<internal::ServerLink>(connection_, options);
  }
  Status Insert(float value) {
    const Floats tensor(value);
    const TensorView view = tensor.view();
    const std::array<Client::TablePriority, 1> tables = {{{"q", 1.0}}};
    return link_->Insert({&view, 1}, tables, kPatience, {});
  }
  int64_t inserts() { return table("q").Info().counters.inserts; }

  std::shared_ptr<CutConnection> connection_;
  std::unique_ptr<internal::ServerLink> link_;
};

TEST_P(SingleInsertTest, AnInsertWhoseConfirmationIsLostIsInsertedOnce) {
  StartAndConnect();
  for (int i = 0; i < 3; ++i) {  // with a new stream, and with one that was kept
    connection_->CutNextConfirmation();
    ASSERT_OK(Insert(static_cast<float>(i)));
    EXPECT_EQ(connection_->num_cuts(), i + 1);
    EXPECT_EQ(inserts(), i + 1);
  }
  EXPECT_EQ(connection_->num_insert_streams(), 4) << "one session, and a stream after each cut";
  ASSERT_OK(Insert(3));
  EXPECT_EQ(inserts(), 4);
}

#ifdef REVERB_TEST_NO_GRPC
INSTANTIATE_TEST_SUITE_P(Transports, SingleInsertTest, ::testing::Values(Transport::kLocal), TransportName);
#else
INSTANTIATE_TEST_SUITE_P(Transports, SingleInsertTest, ::testing::Values(Transport::kLocal, Transport::kGrpc),
                         TransportName);
#endif

}  // namespace
}  // namespace reverb::test
