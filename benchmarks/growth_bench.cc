// Measures the longest pauses of a table while it grows: each insert of many items, one at a time.
//
//   growth_bench [ITEMS [SAMPLER]]      64,000,000 items by default; fifo, uniform, prioritized or min_heap
//
// All items refer to one chunk, so that the memory is that of the table alone: slots, keys, episodes and selectors. Prints
// the longest inserts by the time that the thread used, in the program and in the system, with the number of items then.
// The time on the clock would include pauses in which other programs ran.
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/chunk_store.h"
#include "core/table_state.h"
#include "tensor/column.h"

namespace {

using namespace reverb;
using namespace reverb::internal;

struct Pause {
  int64_t nanos = 0;
  int64_t items = 0;
};

int64_t ThreadNanos() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

ChunkRef MakeChunk(ChunkStore* store) {
  ColumnEncoder encoder(DType::kInt64, {}, CodecPolicy::kNone);
  std::vector<uint8_t> payload;
  ChunkHeader header{.rows = 1};
  header.columns.push_back(encoder.Encode(std::vector<uint8_t>(8), 1, &payload).value());
  return store->Add(header, payload).value();
}

SelectorOptions ParseSampler(const std::string& name) {
  if (name == "fifo") return SelectorOptions::Fifo();
  if (name == "prioritized") return SelectorOptions::Prioritized(0.6, 1);
  if (name == "min_heap") return SelectorOptions::MinHeap();
  return SelectorOptions::Uniform(1);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t items = argc > 1 ? std::atoll(argv[1]) : 64'000'000;
  const std::string sampler = argc > 2 ? argv[2] : "uniform";
  ChunkStore store({});
  const ChunkRef chunk = MakeChunk(&store);
  TableOptions options;
  options.name = "growth";
  options.sampler = ParseSampler(sampler);
  options.remover = SelectorOptions::Fifo();
  options.max_size = items + 1;
  auto state = TableState::Create(std::move(options)).value();
  constexpr size_t kShown = 8;
  std::vector<Pause> pauses;  // the longest, shortest first
  const int64_t started = ThreadNanos();
  int64_t last = started;
  Effects effects;
  for (int64_t i = 0; i < items; ++i) {
    Item item{.key = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u,
              .priority = static_cast<double>(i % 1000),
              .trajectory = Trajectory::Single(chunk, 0, 1).value()};
    state->InsertOrAssign(std::move(item), i, &effects);
    const int64_t now = ThreadNanos();
    const int64_t nanos = now - std::exchange(last, now);
    if (pauses.size() == kShown && nanos <= pauses.front().nanos) [[likely]]
      continue;
    pauses.push_back({nanos, i + 1});
    std::ranges::sort(pauses, {}, &Pause::nanos);
    if (pauses.size() > kShown) pauses.erase(pauses.begin());
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%lld items, %s: %.0f ns per insert with its measurement, index %.1f GB, RSS %.1f GB\n",
              static_cast<long long>(items), sampler.c_str(),
              static_cast<double>(last - started) / static_cast<double>(items),
              static_cast<double>(state->index_bytes()) / 1e9, static_cast<double>(usage.ru_maxrss) / 1e6);
  for (auto pause = pauses.rbegin(); pause != pauses.rend(); ++pause) {
    std::printf("  %7.3f ms at %lld items\n", static_cast<double>(pause->nanos) / 1e6,
                static_cast<long long>(pause->items));
  }
  return 0;
}
