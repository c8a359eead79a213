// A server that only inserts and saves, to be killed at any moment.
//
//   kill_server PATH
//
// Prints lines: "loaded N" (N items were inserted in the lifetime of the table), then repeatedly "saving N"
// before and "saved N" after a checkpoint. The data of an item is a function of its position in the order of
// inserts, so that a test can check that it is complete.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "reverb/server.h"

namespace {

using reverb::TensorView;

int Fail(const std::string& what) {
  std::fprintf(stderr, "kill_server: %s\n", what.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return Fail("usage: kill_server PATH");
  auto server =
      reverb::Server::Start({.tables = {{.name = "t",
                                         .sampler = reverb::SelectorOptions::Uniform(1),
                                         .remover = reverb::SelectorOptions::Fifo(),
                                         .max_size = 2'000}},
                             .port = std::nullopt,
                             .checkpoint = reverb::CheckpointOptions{.path = argv[1], .keep_latest = 2}});
  if (!server.ok()) return Fail(server.status().ToString());
  auto table = server->table("t");
  if (!table.ok()) return Fail(table.status().ToString());
  const reverb::Client client = server->in_process_client();
  int64_t inserted = table->Info().counters.inserts;
  std::printf("loaded %lld\n", static_cast<long long>(inserted));
  std::fflush(stdout);

  // Samples run concurrently.
  std::atomic<bool> over{false};
  std::thread sampler([&] {
    while (!over) {
      (void)table->Sample(10, std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // leaves the processor to the inserts
    }
  });
  const std::vector<std::pair<std::string, double>> to = {{"t", 1.0}};
  while (true) {
    for (int i = 0; i < 37; ++i) {
      ++inserted;
      std::vector<int64_t> row(1 + static_cast<size_t>(inserted % 50), inserted);
      const int64_t shape[] = {static_cast<int64_t>(row.size())};
      const TensorView view{.dtype = reverb::DType::kInt64, .dims = shape, .data = row.data()};
      if (reverb::Status status = client.Insert({&view, 1}, to); !status.ok()) return Fail(status.ToString());
    }
    std::printf("saving %lld\n", static_cast<long long>(inserted));
    std::fflush(stdout);
    if (auto path = client.Checkpoint(); !path.ok()) return Fail(path.status().ToString());
    std::printf("saved %lld\n", static_cast<long long>(inserted));
    std::fflush(stdout);
  }
}
