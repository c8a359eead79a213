// engine_bench.cc — the engine beside the least a program could do, in one run.
//
// Every row measures a reference and the engine in turn, several rounds, and prints the median
// of each and of their ratio. Machines are noisy: read the ratios. Each measurement also checks
// that the work was done.
//
//   engine_bench [--rounds=N] [--items=N] [--only=substring]
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "benchmarks/reference/binary_sum_tree.h"
#include "benchmarks/reference/flat_table.h"
#include "core/chunk_store.h"
#include "core/table.h"
#include "reverb/selector.h"
#include "tensor/chunk_header.h"
#include "tensor/column.h"

namespace reverb::bench {
namespace {

using internal::ChunkHeader;
using internal::ChunkRef;
using internal::ChunkStore;
using internal::ColumnEncoder;
using internal::ColumnSpec;
using internal::ConcurrentTable;
using internal::Item;
using internal::Random;
using internal::Trajectory;

int g_rounds = 7;
size_t g_items = 1'000'000;
std::string g_only;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "engine_bench: wrong result: %s\n", what);
  std::exit(1);
}

uint64_t KeyOf(uint64_t i) { return i * 0x9E3779B97F4A7C15u; }

void PrintHeader() {
  std::printf("%-58s %12s %12s %8s   %s\n", "1 M items unless said", "reference", "engine", "ratio",
              "must reach");
}

// Runs both in turn; both return nanoseconds per operation.
void CompareRow(const char* name, const char* goal, const std::function<double()>& reference,
                const std::function<double()>& engine, bool faster_is_ratio = false) {
  std::vector<double> refs, ours, ratios;
  for (int round = 0; round < g_rounds; ++round) {
    refs.push_back(reference());
    ours.push_back(engine());
    ratios.push_back(faster_is_ratio ? refs.back() / ours.back() : ours.back() / refs.back());
  }
  std::printf("%-58s %9.1f ns %9.1f ns %7.2fx   %s\n", name, Median(refs), Median(ours), Median(ratios),
              goal);
  std::fflush(stdout);
}

bool Wanted(const char* group) {
  return g_only.empty() || std::string(group).find(g_only) != std::string::npos;
}

// --- Chunks and tables -----------------------------------------------------------------------

// Header of a chunk with one row of `floats` float32; the same for every chunk of that size.
ChunkHeader FloatHeader(uint32_t floats, const std::vector<uint8_t>& raw) {
  ColumnEncoder encoder(DType::kFloat32, {floats}, internal::CodecPolicy::kNone);
  std::vector<uint8_t> payload;
  ChunkHeader header{.episode_id = 1, .first_step = 0, .last_step = 0, .rows = 1};
  header.columns.push_back(encoder.Encode(raw, 1, &payload).value());
  return header;
}

std::shared_ptr<ConcurrentTable> MakeTable(std::shared_ptr<ChunkStore> store, size_t size,
                                           SelectorOptions sampler) {
  return ConcurrentTable::Create(
             {.name = "bench", .sampler = sampler, .max_size = static_cast<int64_t>(size)},
             {.store = std::move(store)})
      .value();
}

struct Engine {
  explicit Engine(SelectorOptions sampler = SelectorOptions::Uniform(1))
      : table(MakeTable(store, g_items, sampler)) {
    raw.assign(400, 7);
    header = FloatHeader(100, raw);
    shared = store->Add(header, raw).value();
  }
  void InsertShared(uint64_t i, double priority = 1) {
    Check(table
              ->Insert({.key = KeyOf(i),
                        .priority = priority,
                        .trajectory = Trajectory::Single(shared, 0, 1).value()})
              .ok(),
          "insert");
  }
  void InsertNewChunk(uint64_t i) {
    uint8_t* payload = nullptr;
    header.first_step = header.last_step = static_cast<int64_t>(i);
    header.episode_id = i / 1000;
    ChunkRef chunk = store->AddUninitialized(header, &payload).value();
    std::memcpy(payload, raw.data(), raw.size());
    Check(table
              ->Insert({.key = KeyOf(i),
                        .priority = 1,
                        .trajectory = Trajectory::Single(std::move(chunk), 0, 1).value()})
              .ok(),
          "insert");
  }

  std::shared_ptr<ChunkStore> store = std::make_shared<ChunkStore>(ChunkStore::Options{});
  std::shared_ptr<ConcurrentTable> table;
  std::vector<uint8_t> raw;
  ChunkHeader header;
  ChunkRef shared;
};

void InsertRows() {
  if (!Wanted("insert")) return;
  constexpr int kOps = 300'000;
  uint64_t ref_key = 0, shared_key = 0, chunk_key = 0;
  FlatTable flat(g_items);
  while (ref_key < g_items) flat.Insert(KeyOf(ref_key++));
  const auto flat_insert = [&] {
    const double start = Now();
    for (int i = 0; i < kOps; ++i) flat.Insert(KeyOf(ref_key++));
    return (Now() - start) / kOps * 1e9;
  };
  {
    Engine engine;
    while (shared_key < g_items) engine.InsertShared(shared_key++);
    CompareRow("insert + evict, one shared chunk", "<= 2 x flat table", flat_insert, [&] {
      const double start = Now();
      for (int i = 0; i < kOps; ++i) engine.InsertShared(shared_key++);
      const double took = (Now() - start) / kOps * 1e9;
      Check(engine.table->size() == static_cast<int64_t>(g_items), "size");
      return took;
    });
  }
  Engine engine;
  while (chunk_key < g_items) engine.InsertNewChunk(chunk_key++);
  std::vector<void*> blocks(g_items, nullptr);  // as cold as a table of chunks would be
  size_t next_block = 0;
  const auto malloc_copy_free = [&] {
    const double start = Now();
    for (int i = 0; i < kOps; ++i) {
      std::free(blocks[next_block]);
      blocks[next_block] = std::malloc(400);
      std::memcpy(blocks[next_block], engine.raw.data(), 400);
      next_block = (next_block + 1) % g_items;
    }
    return (Now() - start) / kOps * 1e9;
  };
  for (void*& block : blocks) {
    block = std::malloc(400);
    std::memset(block, 1, 400);
  }
  CompareRow(
      "insert + evict, one new 400 B chunk per item", "<= 3 x (flat + malloc/memcpy/free)",
      [&] { return flat_insert() + malloc_copy_free(); },
      [&] {
        const double start = Now();
        for (int i = 0; i < kOps; ++i) engine.InsertNewChunk(chunk_key++);
        return (Now() - start) / kOps * 1e9;
      });
  for (void* block : blocks) std::free(block);
}

void SampleRows() {
  if (!Wanted("sample")) return;
  constexpr int kOps = 640'000;
  FlatTable flat(g_items);
  for (uint64_t i = 0; i < g_items; ++i) flat.Insert(KeyOf(i));
  Engine engine;
  for (uint64_t i = 0; i < g_items; ++i) engine.InsertNewChunk(i);
  Random random(3);
  std::vector<FlatChunk*> chunks;
  std::vector<internal::Sample> samples;
  for (const int batch : {64, 1}) {
    const auto flat_sample = [&] {
      uint64_t sum = 0;
      const double start = Now();
      for (int i = 0; i < kOps; i += batch) {
        flat.Sample(batch, random, &chunks);
        for (FlatChunk* chunk : chunks) {
          sum += chunk->key;
          chunk->Unref();
        }
      }
      Check(sum != 0, "sum");
      return (Now() - start) / kOps * 1e9;
    };
    const auto engine_sample = [&] {
      uint64_t sum = 0;
      const double start = Now();
      for (int i = 0; i < kOps; i += batch) {
        Check(engine.table->Sample(batch, false, {}, &samples).ok(), "sample");
        for (const internal::Sample& sample : samples) sum += sample.key;
        samples.clear();
      }
      Check(sum != 0, "sum");
      return (Now() - start) / kOps * 1e9;
    };
    CompareRow(batch == 64 ? "sample, uniform, 64 per call" : "sample, uniform, 1 per call",
               batch == 64 ? "<= 3 x flat table" : "(stated)", flat_sample, engine_sample);
  }
}

void PrioritizedRows() {
  if (!Wanted("prioritized")) return;
  constexpr int kOps = 640'000;
  constexpr size_t kBatch = 32;
  BinarySumTree tree(g_items);
  for (const double exponent : {1.0, 0.6}) {
    std::unique_ptr<Selector> selector = MakeSelector(SelectorOptions::Prioritized(exponent, 5)).value();
    Random random(11);
    for (size_t i = 0; i < g_items; ++i) {
      const double priority = random.Unit() * 2;
      tree.Update(i, priority);
      selector->Insert(
          {.slot = static_cast<Slot>(i), .priority = priority, .inserted = i + 1, .touched = i + 1});
    }
    const std::string suffix = exponent == 1.0 ? ", exponent 1" : ", exponent 0.6";
    std::vector<Selection> picks(kBatch);
    const auto engine_sample = [&] {
      uint64_t sum = 0;
      const double start = Now();
      for (int i = 0; i < kOps; i += kBatch) {
        selector->Sample(picks);
        sum += picks[3].slot;
      }
      Check(sum != 0, "sum");
      return (Now() - start) / kOps * 1e9;
    };
    CompareRow(("prioritized sample, 32 a batch, vs tree one by one" + suffix).c_str(), ">= 2 x faster",
               [&] {
                 uint64_t sum = 0;
                 const double start = Now();
                 for (int i = 0; i < kOps; ++i) sum += tree.Sample(random.Unit() * tree.total());
                 Check(sum != 0, "sum");
                 return (Now() - start) / kOps * 1e9;
               },
               engine_sample, true);
    CompareRow(("  the same vs tree 32 interleaved" + suffix).c_str(), "(stated)",
               [&] {
                 uint64_t sum = 0;
                 double targets[kBatch];
                 size_t out[kBatch];
                 const double start = Now();
                 for (int i = 0; i < kOps; i += kBatch) {
                   for (double& target : targets) target = random.Unit() * tree.total();
                   tree.SampleInterleaved(targets, kBatch, out);
                   sum += out[3];
                 }
                 Check(sum != 0, "sum");
                 return (Now() - start) / kOps * 1e9;
               },
               engine_sample, true);
    std::vector<SelectorItem> updates(kBatch);
    CompareRow(("prioritized update, 32 a batch" + suffix).c_str(), ">= 2 x faster",
               [&] {
                 const double start = Now();
                 for (int i = 0; i < kOps; ++i) tree.Update(random.Below(g_items), random.Unit() * 2);
                 return (Now() - start) / kOps * 1e9;
               },
               [&] {
                 const double start = Now();
                 for (int i = 0; i < kOps; i += kBatch) {
                   for (SelectorItem& update : updates) {
                     update.slot = static_cast<Slot>(random.Below(g_items));
                     update.priority = random.Unit() * 2;
                   }
                   selector->Update(updates);
                 }
                 return (Now() - start) / kOps * 1e9;
               },
               true);
  }
  // What a caller of a whole table sees: keys looked up, slots and statistics kept.
  Engine engine(SelectorOptions::Prioritized(1.0, 5));
  for (uint64_t i = 0; i < g_items; ++i) engine.InsertShared(i, 1 + static_cast<double>(i % 7));
  Random random(13);
  std::vector<internal::Sample> samples;
  std::vector<double> sample_ns, update_ns;
  for (int round = 0; round < g_rounds; ++round) {
    double start = Now();
    for (int i = 0; i < kOps; i += kBatch) {
      Check(engine.table->Sample(kBatch, false, {}, &samples).ok(), "sample");
      samples.clear();
    }
    sample_ns.push_back((Now() - start) / kOps * 1e9);
    std::vector<KeyPriority> updates(kBatch);
    start = Now();
    for (int i = 0; i < kOps; i += kBatch) {
      for (KeyPriority& update : updates) update = {KeyOf(random.Below(g_items)), random.Unit() * 2};
      Check(engine.table->Mutate(updates, {}).ok(), "update");
    }
    update_ns.push_back((Now() - start) / kOps * 1e9);
  }
  std::printf("%-58s %12s %9.1f ns\n", "  whole table, prioritized: sample, 32 a call", "",
              Median(sample_ns));
  std::printf("%-58s %12s %9.1f ns\n", "  whole table, prioritized: update by key, 32 a call", "",
              Median(update_ns));
}

// --- Memory ----------------------------------------------------------------------------------

int64_t ResidentBytes() {
  long pages = 0, total = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld %ld", &total, &pages) != 2) return 0;
  std::fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

// Runs `fill` in a child of its own, so that nobody else's memory is counted; prints RSS growth per item.
void MemoryRow(const char* name, const char* goal, double payload_per_item,
               const std::function<void()>& fill) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int64_t before = ResidentBytes();
    fill();
    const double per_item = static_cast<double>(ResidentBytes() - before) / static_cast<double>(g_items);
    std::printf("%-58s %8.0f B payload %5.0f B beyond it per item   %s\n", name, payload_per_item,
                per_item - payload_per_item, goal);
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Check(status == 0, "memory child");
}

void MemoryRows() {
  if (!Wanted("memory")) return;
  static std::unique_ptr<Engine> engine;  // kept until the child has measured
  for (const bool prioritized : {false, true}) {
    MemoryRow(prioritized ? "memory, one column, one 400 B chunk per item, prioritized"
                          : "memory, one column, one 400 B chunk per item, uniform",
              "<= 256 B (aim at 200)", 400, [&] {
                engine = std::make_unique<Engine>(prioritized ? SelectorOptions::Prioritized(0.6, 1)
                                                              : SelectorOptions::Uniform(1));
                for (uint64_t i = 0; i < g_items; ++i) engine->InsertNewChunk(i);
              });
  }
  // obs f32[100], action f32[6], reward and discount f32, next obs = the neighbour's obs: 832 B in four
  // columns (action; reward and discount; obs; next obs), 432 B of them stored per item.
  for (const uint32_t rows : {1u, 40u}) {
    const std::string name =
        "memory, 832 B transition sharing its obs, " + std::to_string(rows) + "-row chunks";
    MemoryRow(name.c_str(), "(stated)", 432, [&] {
      engine = std::make_unique<Engine>();
      ColumnEncoder obs(DType::kFloat32, {100}, internal::CodecPolicy::kNone);
      ColumnEncoder action(DType::kFloat32, {6}, internal::CodecPolicy::kNone);
      ColumnEncoder reward(DType::kFloat32, {2}, internal::CodecPolicy::kNone);
      const std::vector<uint8_t> bytes(400 * rows, 3);
      const auto make = [&](uint64_t first, std::vector<std::pair<ColumnEncoder*, size_t>> columns) {
        ChunkHeader header{.episode_id = first / 1000,
                           .first_step = static_cast<int64_t>(first),
                           .last_step = static_cast<int64_t>(first + rows - 1),
                           .rows = rows};
        std::vector<uint8_t> payload;
        for (auto& [encoder, row_bytes] : columns) {
          header.columns.push_back(
              encoder->Encode(std::span(bytes).first(row_bytes * rows), rows, &payload).value());
        }
        return engine->store->Add(header, payload).value();
      };
      ChunkRef obs_chunk = make(0, {{&obs, 400}}), next_chunk;
      ChunkRef small_chunk = make(0, {{&action, 24}, {&reward, 8}});
      for (uint64_t i = 0; i < g_items; ++i) {
        const auto row = static_cast<uint32_t>(i % rows);
        const uint32_t next_row = (row + 1) % rows;
        next_chunk = next_row == 0 ? make(i + 1, {{&obs, 400}}) : obs_chunk;
        const ColumnSpec columns[] = {{.slices = {{obs_chunk, 0, row, 1}}, .squeeze = true},
                                      {.slices = {{small_chunk, 0, row, 1}}, .squeeze = true},
                                      {.slices = {{small_chunk, 1, row, 1}}, .squeeze = true},
                                      {.slices = {{next_chunk, 0, next_row, 1}}, .squeeze = true}};
        Check(
            engine->table
                ->Insert({.key = KeyOf(i), .priority = 1, .trajectory = Trajectory::Create(columns).value()})
                .ok(),
            "insert");
        if (next_row == 0) small_chunk = make(i + 1, {{&action, 24}, {&reward, 8}});
        obs_chunk = next_chunk;
      }
    });
  }
}

// --- Threads ---------------------------------------------------------------------------------

// Operations per second of `threads` threads, each doing `ops` operations.
double Throughput(int threads, int ops, const std::function<void(int thread, int ops)>& work) {
  std::vector<std::thread> pool;
  const double start = Now();
  for (int t = 0; t < threads; ++t) pool.emplace_back([&, t] { work(t, ops); });
  for (std::thread& thread : pool) thread.join();
  return threads * static_cast<double>(ops) / (Now() - start);
}

void ThreadRow(const char* name, const char* goal, int ops, const std::function<void(int, int)>& work) {
  std::vector<double> one, eight, ratios;
  for (int round = 0; round < g_rounds; ++round) {
    one.push_back(Throughput(1, ops, work));
    eight.push_back(Throughput(8, ops / 4, work));
    ratios.push_back(eight.back() / one.back());
  }
  std::printf("%-58s %8.2f M/s %8.2f M/s %7.2fx   %s\n", name, Median(one) / 1e6, Median(eight) / 1e6,
              Median(ratios), goal);
  std::fflush(stdout);
}

void ThreadRows() {
  if (!Wanted("threads")) return;
  std::printf("%-58s %12s %12s %8s\n", "threads on one table", "one", "eight", "ratio");
  // Every item has a chunk of its own, and every thread writes one of its own: counts on one shared chunk
  // would be what is measured.
  Engine engine;
  for (uint64_t i = 0; i < g_items; ++i) engine.InsertNewChunk(i);
  std::atomic<uint64_t> next_key{g_items};

  ThreadRow("batches of 64: insert 64, sample 64", ">= 0.8", 640'000, [&](int, int ops) {
    std::vector<internal::Sample> samples;
    std::vector<Item> items(64);
    const ChunkRef mine = engine.store->Add(engine.header, engine.raw).value();
    for (int i = 0; i < ops; i += 128) {
      for (Item& item : items) {
        item = {.key = KeyOf(next_key.fetch_add(1, std::memory_order_relaxed)),
                .priority = 1,
                .trajectory = Trajectory::Single(mine, 0, 1).value()};
      }
      Check(engine.table->Insert(items).ok(), "insert");
      Check(engine.table->Sample(64, false, {}, &samples).ok(), "sample");
      samples.clear();
    }
  });
  ThreadRow("batches of 64: sample", ">= 0.8", 640'000, [&](int, int ops) {
    std::vector<internal::Sample> samples;
    for (int i = 0; i < ops; i += 64) {
      Check(engine.table->Sample(64, false, {}, &samples).ok(), "sample");
      samples.clear();
    }
  });
  ThreadRow(
      "single operations: insert, sample, update in turn", ">= 0.6 (one mutex: 0.5)", 400'000,
      [&](int, int ops) {
        std::vector<internal::Sample> samples;
        const ChunkRef mine = engine.store->Add(engine.header, engine.raw).value();
        for (int i = 0; i < ops; i += 3) {
          const uint64_t key = KeyOf(next_key.fetch_add(1, std::memory_order_relaxed));
          Check(
              engine.table
                  ->Insert({.key = key, .priority = 1, .trajectory = Trajectory::Single(mine, 0, 1).value()})
                  .ok(),
              "insert");
          Check(engine.table->Sample(1, false, {}, &samples).ok(), "sample");
          const KeyPriority update{samples[0].key, 2.0};
          Check(engine.table->Mutate({&update, 1}, {}).ok(), "update");
          samples.clear();
        }
      });
  ThreadRow("single operations: sample", ">= 0.6", 400'000, [&](int, int ops) {
    std::vector<internal::Sample> samples;
    for (int i = 0; i < ops; ++i) {
      Check(engine.table->Sample(1, false, {}, &samples).ok(), "sample");
      samples.clear();
    }
  });
  FlatTable flat(g_items);
  for (uint64_t i = 0; i < g_items; ++i) flat.Insert(KeyOf(i));
  ThreadRow("for comparison, flat table and std::mutex: sample 1", "", 400'000, [&](int t, int ops) {
    std::vector<FlatChunk*> chunks;
    Random random(100 + t);
    for (int i = 0; i < ops; ++i) {
      flat.Sample(1, random, &chunks);
      chunks[0]->Unref();
    }
  });
}

// --- Snapshots -------------------------------------------------------------------------------

void SnapshotRows() {
  if (!Wanted("snapshot")) return;
  for (const size_t items : {size_t{200'000}, size_t{2'000'000}}) {
    auto store = std::make_shared<ChunkStore>(ChunkStore::Options{});
    std::vector<std::shared_ptr<ConcurrentTable>> tables = {
        MakeTable(store, items, SelectorOptions::Uniform(1))};
    const std::vector<uint8_t> raw(40, 1);
    ChunkRef chunk = store->Add(FloatHeader(10, raw), raw).value();
    for (uint64_t i = 0; i < items; ++i) {
      Check(tables[0]
                ->Insert(
                    {.key = KeyOf(i), .priority = 1, .trajectory = Trajectory::Single(chunk, 0, 1).value()})
                .ok(),
            "insert");
    }
    std::vector<double> held;
    std::vector<internal::Sample> samples;
    for (int round = 0; round < g_rounds; ++round) {
      internal::Snapshot snapshot = ConcurrentTable::TakeSnapshot(tables);
      Check(snapshot.tables[0]->size() == static_cast<int64_t>(items), "snapshot size");
      held.push_back(std::chrono::duration<double, std::milli>(snapshot.locks_held).count());
      for (int i = 0; i < 1000; ++i) Check(tables[0]->Sample(64, false, {}, &samples).ok(), "sample");
      samples.clear();
    }
    std::printf("snapshot of %7zu items: locks held %.2f ms median, %.2f ms at most   %s\n", items,
                Median(held), *std::ranges::max_element(held), items == 200'000 ? "<= 5 ms" : "<= 10 ms");
  }
}

}  // namespace
}  // namespace reverb::bench

int main(int argc, char** argv) {
  using namespace reverb::bench;
  for (int i = 1; i < argc; ++i) {
    if (std::sscanf(argv[i], "--rounds=%d", &g_rounds) == 1 && g_rounds > 0) continue;
    if (std::sscanf(argv[i], "--items=%zu", &g_items) == 1 && g_items > 0) continue;
    if (std::strncmp(argv[i], "--only=", 7) == 0) {
      g_only = argv[i] + 7;
      continue;
    }
    std::fprintf(stderr,
                 "usage: engine_bench [--rounds=N] [--items=N] "
                 "[--only=insert|sample|prioritized|memory|threads|snapshot]\n");
    return 2;
  }
  MemoryRows();  // first: it forks, and the children must be small
  PrintHeader();
  InsertRows();
  SampleRows();
  PrioritizedRows();
  ThreadRows();
  SnapshotRows();
}
