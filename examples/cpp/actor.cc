// actor.cc — an actor in C++ for a learner in Python.
//
//   reverb_actor HOST:PORT [STEPS]
//
// examples/python/cpp_actor.py serves the tables, starts this program and learns from its data; run that. Use
// this approach if the environment is a separate program: a simulator, a game, a robot. The two sides share
// only the signature of a table: columns have names in Python and numbers here, in the order of the sorted
// names.
//
// The actor walks in a corridor, guided by the latest Q values of the learner, and writes transitions. If the
// learner falls behind, the table's rate limiter makes CreateItem() and Flush() wait.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "reverb/client.h"

namespace {

constexpr int64_t kCells = 8;  // the reward is at the right end
constexpr float kDiscount = 0.9F;
constexpr int kMaxEpisode = 100;

// The columns of an item of the table "replay", sorted by name.
enum ReplayColumn : uint32_t { kAction, kDiscountLeft, kNextState, kReward, kState, kNumColumns };

void Expect(const reverb::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "actor: %s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Expect(reverb::Result<T> result) {
  if (!result.ok()) Expect(result.status());
  return *std::move(result);
}

// Returns the latest Q values, float32 [kCells, 2]; waits until the learner has published some.
std::array<float, kCells * 2> Parameters(const reverb::Client& client) {
  const auto samples = Expect(client.Sample("parameters", 1, {.timeout = std::chrono::seconds(30)}));
  const reverb::Tensor tensor = Expect(samples[0].column(0));
  std::array<float, kCells * 2> values;
  if (tensor.dtype() != reverb::DType::kFloat32 || tensor.num_bytes() != sizeof values) {
    std::fprintf(stderr, "actor: the parameters are not float32 [%d, 2]\n", static_cast<int>(kCells));
    std::exit(1);
  }
  std::memcpy(values.data(), tensor.data(), sizeof values);
  return values;
}

// Returns a scalar as the value of a column.
template <typename T>
reverb::ColumnValue Scalar(uint32_t column, reverb::DType dtype, const T& value) {
  return {column, {dtype, {}, &value}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: %s HOST:PORT [STEPS]\n", argv[0]);
    return 2;
  }
  const int64_t steps = argc > 2 ? std::atoll(argv[2]) : 3000;
  if (steps <= 0) {
    std::fprintf(stderr, "actor: STEPS is \"%s\", which is not a positive number\n", argv[2]);
    return 2;
  }
  const reverb::Client client = Expect(reverb::Client::Connect(
      argv[1], {.reconnect_timeout = std::chrono::seconds(30), .name = "actor in C++"}));
  // With the signatures of the server's tables, mismatches are rejected here, with the name of the column.
  auto writer = Expect(client.NewTrajectoryWriter(
      {.signatures = Expect(client.Signatures({.timeout = std::chrono::seconds(30)}))}));

  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  int64_t episodes = 0, state = 0;
  int in_episode = 0;
  auto q = Parameters(client);
  for (int64_t step = 0; step < steps; ++step) {
    const float left = q[static_cast<size_t>(state * 2)], right = q[static_cast<size_t>(state * 2 + 1)];
    const bool explore = uniform(random) < 0.3F || left == right;
    const int64_t action = explore ? (uniform(random) < 0.5F ? 0 : 1) : (right > left ? 1 : 0);
    const int64_t next = std::clamp<int64_t>(state + (action == 1 ? 1 : -1), 0, kCells - 1);
    const bool done = next == kCells - 1;
    const float reward = done ? 1.0F : -0.01F, discount = done ? 0.0F : kDiscount;

    // A step with all values of the transition; the item is this one step, without a time dimension.
    Expect(writer.Append(std::array{
        Scalar(kAction, reverb::DType::kInt64, action),
        Scalar(kDiscountLeft, reverb::DType::kFloat32, discount),
        Scalar(kNextState, reverb::DType::kInt64, next),
        Scalar(kReward, reverb::DType::kFloat32, reward),
        Scalar(kState, reverb::DType::kInt64, state),
    }));
    std::array<reverb::CellRange, kNumColumns> cells;
    std::array<reverb::ItemColumn, kNumColumns> columns;
    for (uint32_t column = 0; column < kNumColumns; ++column) {
      cells[column] = reverb::CellRange::One(column, writer.position() - 1);
      columns[column] = {{&cells[column], 1}, /*squeeze=*/true};
    }
    Expect(writer.CreateItem("replay", /*priority=*/1.0, columns));

    state = next;
    if (done || ++in_episode == kMaxEpisode) {
      Expect(
          writer.EndEpisode());  // waits until all items are in the table, so for the limiter and the learner
      q = Parameters(client);
      state = 0;
      in_episode = 0;
      ++episodes;
    }
  }
  Expect(writer.Flush());
  std::printf("the actor in C++ wrote %lld transitions of %lld episodes\n", static_cast<long long>(steps),
              static_cast<long long>(episodes));
  return 0;
}
