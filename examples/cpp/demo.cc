// demo.cc — an actor and a learner over one prioritized table, in one process.
//
// The actor walks through a synthetic world of frames and writes overlapping three-step trajectories; the
// learner samples them by priority and sends back new priorities. A rate limiter maintains two samples per
// insert, so each waits for the other. Uses only the public headers.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "reverb/extensions.h"
#include "reverb/table.h"

namespace {

constexpr int kSide = 84;
constexpr int kChunkSteps = 40;
constexpr int kSteps = 4'000;
constexpr double kSamplesPerInsert = 2.0;

// Returns the value, or ends the demo with the error, which would be a bug here.
template <typename T>
T Expect(reverb::Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "demo: %s\n", result.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(result);
}
void Expect(const reverb::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "demo: %s\n", status.ToString().c_str());
  std::exit(1);
}

// A ball that bounces over a fixed background.
std::vector<uint8_t> Frame(int step) {
  std::vector<uint8_t> pixels(kSide * kSide);
  for (int y = 0; y < 10; ++y) {
    for (int x = 0; x < kSide; ++x) pixels[y * kSide + x] = static_cast<uint8_t>(60 + 20 * (x / 6 % 2));
  }
  const int ball_x = step % (2 * (kSide - 4)), ball_y = 12 + step / 3 % (kSide - 20);
  const int left = ball_x < kSide - 4 ? ball_x : 2 * (kSide - 4) - ball_x;
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 4; ++x) pixels[(ball_y + y) * kSide + left + x] = 200;
  }
  return pixels;
}

void Act(reverb::Store store, reverb::Table table) {
  uint64_t next_key = 1;
  for (int first = 0; first < kSteps; first += kChunkSteps) {
    // One sequence of steps, encoded once: frames and rewards, time first.
    std::vector<uint8_t> frames;
    std::vector<float> rewards;
    for (int step = first; step < first + kChunkSteps; ++step) {
      const std::vector<uint8_t> frame = Frame(step);
      frames.insert(frames.end(), frame.begin(), frame.end());
      rewards.push_back(step % 100 == 0 ? 1.0f : 0.0f);
    }
    const int64_t frame_dims[] = {kChunkSteps, kSide, kSide}, reward_dims[] = {kChunkSteps};
    const reverb::TensorView columns[] = {{reverb::DType::kUint8, frame_dims, frames.data()},
                                          {reverb::DType::kFloat32, reward_dims, rewards.data()}};
    const reverb::ChunkHandle chunk = Expect(
        store.AddChunk({.episode_id = 1 + static_cast<uint64_t>(first) / 400, .first_step = first}, columns));
    // Many items share it: each has three frames and the last reward.
    for (uint32_t row = 0; row + 3 <= kChunkSteps; ++row) {
      Expect(table.Insert({.key = next_key++,
                           .priority = 1.0,
                           .columns = {{.slices = {{chunk, 0, row, 3}}},
                                       {.slices = {{chunk, 1, row + 2, 1}}, .squeeze = true}}}));
    }
  }
}

// Samples until the table is closed; returns how often each priority was seen.
std::map<double, int64_t> Learn(reverb::Table table) {
  std::map<double, int64_t> seen;
  for (;;) {
    const auto samples = table.Sample(8);
    if (!samples.ok()) return seen;  // closed: the actor has finished
    std::vector<reverb::KeyPriority> updates;
    for (const reverb::SampledTrajectory& sample : *samples) {
      ++seen[sample.priority()];
      const reverb::Tensor reward = Expect(sample.column(1));
      // Makes rewarding steps ten times as likely.
      updates.push_back({sample.key(), *reinterpret_cast<const float*>(reward.data()) > 0 ? 10.0 : 1.0});
    }
    Expect(table.UpdatePriorities(updates));
  }
}

}  // namespace

int main() {
  reverb::Store store;
  auto statistics = reverb::MakeStatistics();
  reverb::TableOptions options{
      .name = "replay",
      .sampler = reverb::SelectorOptions::Prioritized(0.8, /*seed=*/1),
      .max_size = 2'000,
      .rate_limiter = Expect(reverb::RateLimiterOptions::SampleToInsertRatio(kSamplesPerInsert, 100, 200.0)),
      .extensions = {statistics}};
  reverb::Table table = Expect(reverb::Table::Create(std::move(options), store));
  std::printf(
      "demo: a table inside this process, without a server. An actor writes %d steps of a game as "
      "trajectories "
      "of three frames; a learner samples them by priority.\n",
      kSteps);

  std::map<double, int64_t> seen;
  std::thread learner([&] { seen = Learn(table); });
  std::thread actor([&] { Act(store, table); });
  actor.join();
  table.Close();
  learner.join();

  const reverb::TableInfo info = table.Info();
  const reverb::Store::Stats stats = store.stats();
  const double raw = static_cast<double>(info.current_size) * (3 * kSide * kSide + 4);
  std::printf("  written:    %lld items; the table holds the newest %lld and has removed %lld\n",
              static_cast<long long>(info.counters.inserts), static_cast<long long>(info.current_size),
              static_cast<long long>(info.evictions));
  std::printf("  sampled:    %lld items, %.2f for each item written; the rate limiter asks for %g\n",
              static_cast<long long>(info.counters.samples),
              static_cast<double>(info.counters.samples) / static_cast<double>(info.counters.inserts),
              kSamplesPerInsert);
  for (int reason = 1; reason < reverb::kNumWaitReasons; ++reason) {
    const reverb::WaitStats& waits = info.waits[reason];
    if (waits.count == 0) continue;
    std::printf("  waited:     %lld times, %.1f ms in total, because of %s\n",
                static_cast<long long>(waits.count), static_cast<double>(waits.total_nanos) / 1e6,
                std::string(reverb::WaitReasonName(static_cast<reverb::WaitReason>(reason))).c_str());
  }
  std::printf(
      "  priorities: the learner sent %lld updates, and raised steps with a reward from 1 to 10; %.1f %% of "
      "the samples had priority 10\n",
      static_cast<long long>(statistics->Get().updated.items),
      100.0 * static_cast<double>(seen[10.0]) / static_cast<double>(info.counters.samples));
  std::printf(
      "  memory:     the items hold %.1f MB of frames; stored once and compressed they take %.2f MB, %.0f "
      "times less\n",
      raw / 1e6, static_cast<double>(stats.stored_bytes) / 1e6,
      raw / static_cast<double>(stats.stored_bytes));

  // Without further inserts, a sample would wait forever; the timeout explains why.
  reverb::Table queue = Expect(reverb::Table::Create(reverb::TableOptions::Queue("queue", 10), store));
  std::printf("  timeouts:   sampling from an empty queue for 50 ms returns the error\n              %s\n",
              queue.Sample(1, std::chrono::milliseconds(50)).status().ToString().c_str());
  return 0;
}
