// actor_learner.cc — a server, an actor and a learner, connected through a socket.
//
//   reverb_actor_learner                    all three in this process
//   reverb_actor_learner serve 8000         a server alone
//   reverb_actor_learner act HOST:8000      an actor
//   reverb_actor_learner learn HOST:8000    a learner
//
// The actor writes overlapping sequences of observations and actions; the learner samples batches, computes
// an error and sends it back as the new priority. A rate limiter maintains four samples per insert.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "reverb/client.h"
#include "reverb/log.h"
#include "reverb/server.h"

namespace {

constexpr int64_t kSequence = 5;
constexpr int64_t kObservation = 16;
constexpr int kSteps = 2'000;
constexpr int64_t kBatch = 32;
constexpr double kSamplesPerInsert = 4.0;

void Expect(const reverb::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "actor_learner: %s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Expect(reverb::Result<T> result) {
  if (!result.ok()) Expect(result.status());
  return *std::move(result);
}

// Writes the library's messages to stderr: among others, what a call waits for.
void ShowMessages() {
  reverb::SetLogSink([](reverb::LogLevel level, std::string_view text) {
    if (level < reverb::LogLevel::kInfo) return;
    std::fprintf(stderr, "actor_learner: %.*s\n", static_cast<int>(text.size()), text.data());
  });
}

// Returns -1 if the text is not a number.
int ParsePort(std::string_view text) {
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() ? port : -1;
}

reverb::Server Serve(int port) {
  reverb::TableOptions table;
  table.name = "replay";
  table.sampler = reverb::SelectorOptions::Prioritized(0.8);
  table.max_size = 10'000;
  table.rate_limiter = Expect(reverb::RateLimiterOptions::SampleToInsertRatio(kSamplesPerInsert, 100, 400));
  return Expect(reverb::Server::Start({.tables = {table}, .host = "127.0.0.1", .port = port}));
}

void Act(const reverb::Client& client) {
  auto writer = Expect(client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = kSequence}}));
  for (int step = 0; step < kSteps; ++step) {
    std::array<float, kObservation> observation;
    for (size_t i = 0; i < observation.size(); ++i) {
      observation[i] = static_cast<float>(std::sin(0.01 * step + static_cast<double>(i)));
    }
    const int32_t action = step % 4;
    const std::array<int64_t, 1> dims{kObservation};
    Expect(writer.Append(std::array{
        reverb::ColumnValue{0, {reverb::DType::kFloat32, dims, observation.data()}},
        reverb::ColumnValue{1, {reverb::DType::kInt32, {}, &action}},
    }));
    if (writer.history_length() < kSequence) continue;
    const int64_t end = writer.position();
    const reverb::CellRange observations{0, end - kSequence, end}, actions{1, end - kSequence, end};
    Expect(writer.CreateItem(
        "replay", 1.0,
        std::array{reverb::ItemColumn{{&observations, 1}}, reverb::ItemColumn{{&actions, 1}}}));
  }
  Expect(writer.EndEpisode());  // waits until all items are in the table
  std::printf("actor:   wrote %d steps as overlapping sequences of %d steps\n", kSteps,
              static_cast<int>(kSequence));
}

void Learn(const reverb::Client& client) {
  auto sampler = Expect(client.NewSampler({.table = "replay",
                                           .rate_limiter_timeout = std::chrono::seconds(1),
                                           .reconnect_timeout = std::chrono::seconds(10)}));
  reverb::Batch batch;
  int batches = 0;
  double loss = 0;
  while (true) {
    const reverb::Status status = sampler.NextBatch(kBatch, &batch);
    if (status.code() == reverb::StatusCode::kDeadlineExceeded) break;  // the actor has stopped
    Expect(status);
    const auto* observations = reinterpret_cast<const float*>(batch.columns[0].data());
    std::vector<reverb::KeyPriority> updates;
    for (size_t i = 0; i < batch.info.keys.size(); ++i) {
      // A placeholder for a real error: how much the sequence moves.
      const float* first = observations + i * kSequence * kObservation;
      const double error = std::abs(first[(kSequence - 1) * kObservation] - first[0]);
      loss += error;
      updates.push_back({batch.info.keys[i], error + 0.01});
    }
    Expect(client.UpdatePriorities("replay", updates));
    ++batches;
  }
  std::printf(
      "learner: sampled %d batches of %ld sequences, mean error %.4f, and sent each error as a priority\n",
      batches, static_cast<long>(kBatch), loss / std::max(1, batches) / kBatch);
}

void Report(const reverb::Client& client) {
  const reverb::ServerInfo info = Expect(client.Info());
  for (const reverb::TableInfo& table : info.tables) {
    const auto inserts = static_cast<double>(std::max<int64_t>(1, table.counters.inserts));
    std::printf("server:  table \"%s\" has %ld items; %ld inserts, %ld samples (%.2f per insert, limit %g)\n",
                table.name.c_str(), static_cast<long>(table.current_size),
                static_cast<long>(table.counters.inserts), static_cast<long>(table.counters.samples),
                static_cast<double>(table.counters.samples) / inserts, kSamplesPerInsert);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  const std::string where = argc > 2 ? argv[2] : "";
  const int port = ParsePort(where);
  const bool is_valid =
      role.empty() ? argc == 1
                   : argc == 3 && ((role == "serve" && port >= 0) || role == "act" || role == "learn");
  if (!is_valid) {
    std::fprintf(stderr, "usage: %s [serve PORT | act HOST:PORT | learn HOST:PORT]\n", argv[0]);
    return 2;
  }
  ShowMessages();
  // Gives up if the server cannot be reached for 10 seconds; by default, a client waits for it.
  const reverb::ClientOptions options = {.reconnect_timeout = std::chrono::seconds(10)};
  if (role == "serve") {
    const reverb::Server server = Serve(port);
    std::printf("serving on port %d; Enter stops\n", server.port());
    std::getchar();
  } else if (role == "act") {
    Act(Expect(reverb::Client::Connect(where, options)));
  } else if (role == "learn") {
    const reverb::Client client = Expect(reverb::Client::Connect(where, options));
    Learn(client);
    Report(client);
  } else {
    const reverb::Server server = Serve(0);
    const std::string address = "127.0.0.1:" + std::to_string(server.port());
    std::printf("actor_learner: a server at %s, an actor and a learner, connected through a socket\n",
                address.c_str());
    // A server in the same process would be used without a socket; this example is about the socket.
    const reverb::Client client = Expect(reverb::Client::Connect(address, {.in_process = false}));
    std::thread actor([&] { Act(client); });
    Learn(client);
    actor.join();
    Report(client);
  }
  return 0;
}
