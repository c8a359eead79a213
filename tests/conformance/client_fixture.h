// client_fixture.h — a fixture for the conformance tests of the C++ API.
#ifndef REVERB_TESTS_CONFORMANCE_CLIENT_FIXTURE_H_
#define REVERB_TESTS_CONFORMANCE_CLIENT_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/transports.h"
#include "reverb/access.h"
#include "reverb/client.h"
#include "reverb/server.h"

namespace reverb::test {

// Long enough for a slow machine; a test that waits this long has failed.
inline const WaitOptions kPatience{.timeout = std::chrono::seconds(60)};

// A float32 tensor.
struct Floats {
  Floats(std::vector<int64_t> dims_in, std::vector<float> values_in)
      : dims(std::move(dims_in)), values(std::move(values_in)) {}
  explicit Floats(float scalar) : values({scalar}) {}
  TensorView view() const { return {DType::kFloat32, dims, values.data()}; }
  std::vector<int64_t> dims;
  std::vector<float> values;
};

inline std::vector<float> ToVector(const Tensor& tensor) {
  const auto* data = reinterpret_cast<const float*>(tensor.data());
  return {data, data + tensor.num_elements()};
}

inline TableOptions MakeTable(std::string name, RateLimiterOptions limiter = RateLimiterOptions::MinSize(1)) {
  TableOptions options;
  options.name = std::move(name);
  options.sampler = SelectorOptions::Fifo();
  options.rate_limiter = limiter;
  return options;
}
inline TableOptions MakeQueue(std::string name, int64_t size) {
  return TableOptions::Queue(std::move(name), size);
}

// Starts a server and connects clients over the transport that the test parameter names.
class ClientFixture : public ::testing::TestWithParam<Transport> {
 protected:
  bool over_grpc() const { return GetParam() == Transport::kGrpc; }
  bool in_process() const { return GetParam() == Transport::kInproc; }
  // Sets where the server is reachable: by gRPC, by a local socket, or in this process only.
  void SetEndpoint(ServerOptions* options) {
    UseToken(options);
    options->host = "127.0.0.1";
    options->local = LocalAccess::kOff;
    if (over_grpc()) return;
    options->port = std::nullopt;
    if (in_process()) return;
    options->local = LocalAccess::kSameUser;
    options->local_path = path_;
  }
  void Start(std::vector<TableOptions> tables, ServerLimits limits = {}) {
    ServerOptions options;
    options.tables = std::move(tables);
    options.limits = limits;
    SetEndpoint(&options);
    server_.emplace(Server::Start(std::move(options)).value());
  }
  // With REVERB_TEST_TOKENS=1, all tests run with a token that has all rights.
  void UseToken(ServerOptions* options) {
    if (std::getenv("REVERB_TEST_TOKENS") == nullptr) return;
    if (token_.empty()) {
      (void)std::remove(tokens_path_.c_str());
      token_ = AddToken(tokens_path_, {.name = "test", .read = true, .write = true, .admin = true}).value();
      (void)setenv("REVERB_TOKEN", token_.c_str(), 1);
    }
    options->auth = AuthOptions{.tokens_file = tokens_path_};
  }
  Client Connect(ClientOptions options = {}) {
    if (in_process()) return server_->in_process_client(options);
    options.in_process = false;
    return Client::Connect(over_grpc() ? "127.0.0.1:" + std::to_string(server_->port()) : "unix:" + path_,
                           options)
        .value();
  }
  Table table(const std::string& name) { return server_->table(name).value(); }

  // Writes an item of one row with the given value.
  static Status Write(TrajectoryWriter& writer, const std::string& table, float value,
                      double priority = 1.0) {
    const Floats tensor(value);
    REVERB_RETURN_IF_ERROR(writer.Append(std::array{ColumnValue{0, tensor.view()}}));
    const CellRange newest = CellRange::One(0, writer.position() - 1);
    return writer.CreateItem(table, priority, std::array{ItemColumn{{&newest, 1}}});
  }
  static TrajectoryWriter NewWriter(const Client& client, int64_t keep_alive = 1,
                                    std::optional<int64_t> chunk = 1) {
    return client
        .NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = keep_alive, .max_chunk_length = chunk}})
        .value();
  }

  const std::string tokens_path_ = ::testing::TempDir() + "reverb-tokens-" + std::to_string(getpid());
  std::string token_;
  const std::string path_ = ::testing::TempDir() + "reverb-client-" + std::to_string(getpid()) + ".sock";
  std::optional<Server> server_;
};

}  // namespace reverb::test

#endif  // REVERB_TESTS_CONFORMANCE_CLIENT_FIXTURE_H_
