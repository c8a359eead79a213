// consumer.cc — a program of a user: works, or makes one of the usual mistakes and prints the error.
//
//   consumer [taken-port | missing-table | bad-address | no-server]
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "reverb/client.h"
#include "reverb/selector.h"
#include "reverb/server.h"

namespace {

const reverb::WaitOptions kShortWait = {.timeout = std::chrono::milliseconds(10)};

// Prints the error and returns 1; an OK status is a mistake of the test.
int PrintError(const reverb::Status& status) {
  std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 2 : 1;
}

// Inserts over a socket and samples.
reverb::Status Work(const reverb::Server& server) {
  REVERB_ASSIGN_OR_RETURN(
      const reverb::Client client,
      reverb::Client::Connect("127.0.0.1:" + std::to_string(server.port()), {.in_process = false}));
  const float value = 7;
  const std::array step{reverb::TensorView{reverb::DType::kFloat32, {}, &value}};
  const std::array where{reverb::Client::TablePriority{"replay", 1.0}};
  REVERB_RETURN_IF_ERROR(client.Insert(step, where));
  REVERB_ASSIGN_OR_RETURN(const auto samples, client.Sample("replay", 1));
  REVERB_ASSIGN_OR_RETURN(const reverb::Tensor column, samples[0].column(0));
  std::printf("sampled %g\n", static_cast<double>(*reinterpret_cast<const float*>(column.data())));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mistake = argc > 1 ? argv[1] : "";
  auto server = reverb::Server::Start({.tables = {{.name = "replay"}}, .host = "127.0.0.1"}).value();
  if (mistake == "taken-port") {
    // Aborts, although NDEBUG is defined.
    reverb::Server::Start({.host = "127.0.0.1", .port = server.port()}).value();
    return 2;
  }
  if (mistake == "missing-table") {
    return PrintError(server.in_process_client().Sample("reply", 1, kShortWait).status());
  }
  if (mistake == "bad-address") return PrintError(reverb::Client::Connect("localhost").status());
  if (mistake == "no-server") {
    const std::string address = "127.0.0.1:" + std::to_string(server.port());
    server.Stop();
    return PrintError(reverb::Client::Connect(address).value().Info(kShortWait).status());
  }
  const reverb::Status status = Work(server);
  return status.ok() ? 0 : PrintError(status);
}
