// random_tables.h — random tables for tests of checkpoints, and their complete state as text.
#ifndef REVERB_TESTS_CRASH_RANDOM_TABLES_H_
#define REVERB_TESTS_CRASH_RANDOM_TABLES_H_

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/load.h"
#include "core/chunk_store.h"
#include "core/table.h"
#include "reverb/table_options.h"
#include "testing/chunks.h"

namespace reverb::test {

using internal::ConcurrentTable;
using internal::LoadedServer;
using internal::Random;
using internal::Snapshot;
using internal::TableSnapshot;

// Returns everything that a checkpoint must keep. Tables with the same text behave the same from then on.
inline std::string Describe(const TableSnapshot& table) {
  const auto number = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%a", value);
    return std::string(text);
  };
  const TableSnapshot::State& state = table.state();
  std::string text = "table " + state.name + " sampler " + state.sampler.ToString() + " remover " +
                     state.remover.ToString() + " max_size " + std::to_string(state.max_size) +
                     " max_times_sampled " + std::to_string(state.max_times_sampled) + " limiter " +
                     state.rate_limiter.ToString() + " counters";
  for (const int64_t count :
       {state.counters.inserts, state.counters.samples, state.counters.deletes,
        state.counts.num_deleted_episodes, state.counts.num_unique_samples, state.counts.evictions,
        state.counts.expirations, state.counts.explicit_deletes, state.counts.updates,
        state.counts.unknown_keys, state.counts.aged_out, state.counters.uncounted_inserts,
        state.max_age_nanos, state.max_bytes, state.size, static_cast<int64_t>(state.sequence),
        static_cast<int64_t>(state.free_head)}) {
    text += " " + std::to_string(count);
  }
  text += "\nsignature " + state.signature + "\n";
  for (const auto* capture : {state.sampler_state.get(), state.remover_state.get()}) {
    std::string bytes;
    if (capture != nullptr) capture->Encode(&bytes);
    text += "selector ";
    for (const char c : bytes) {
      char hex[3];
      std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(c));
      text += hex;
    }
    text += "\n";
  }
  for (const auto& [name, bytes] : state.extension_states) text += "extension " + name + " " + bytes + "\n";
  for (size_t i = 0; i < table.num_slots(); ++i) {
    const internal::SlotRecord& record = table.slot(i);
    if (record.is_free()) {
      text += "slot " + std::to_string(i) + " free, then " + std::to_string(record.key) + "\n";
      continue;
    }
    text += "slot " + std::to_string(i) + " key " + std::to_string(record.key) + " priority " +
            number(record.priority) + " at " + std::to_string(record.inserted_at) + " inserted " +
            std::to_string(record.inserted) + " touched " + std::to_string(record.touched) + " sampled " +
            std::to_string(record.times_sampled) + " data";
    const Trajectory trajectory = Trajectory::Share(record.trajectory);
    for (uint32_t c = 0; c < trajectory.num_columns(); ++c) {
      text += trajectory.squeeze(c) ? " squeezed[" : " [";
      const internal::ColumnView view = trajectory.column_view(c);
      std::vector<uint8_t> bytes(static_cast<size_t>(trajectory.length(c)) * view.row_bytes());
      if (!trajectory.Read(c, bytes).ok()) text += "unreadable";
      for (size_t k = 0; k + 8 <= bytes.size(); k += 8) {
        int64_t value = 0;
        std::memcpy(&value, bytes.data() + k, 8);
        text += std::to_string(value) + " ";
      }
      text += "]";
    }
    text += "\n";
  }
  return text;
}

inline std::string Describe(const std::vector<std::shared_ptr<ConcurrentTable>>& tables) {
  const Snapshot snapshot = ConcurrentTable::TakeSnapshot(tables);
  std::string text;
  for (const auto& table : snapshot.tables) text += Describe(*table);
  return text;
}

// Returns small tables that evict soon, with every kind of selector; items have one or several chunks
// and columns.
inline std::vector<TableOptions> SomeTables() {
  using S = SelectorOptions;
  return {{.name = "uniform", .sampler = S::Uniform(11), .remover = S::Fifo(), .max_size = 300},
          {.name = "per", .sampler = S::Prioritized(0.6, 5), .remover = S::MinHeap(), .max_size = 300},
          {.name = "heap",
           .sampler = S::MaxHeap(),
           .remover = S::Uniform(3),
           .max_size = 40,
           .signature = Signature::Leaf({"mine", DType::kFloat32, Shape::UnknownRank()}).value()},
          {.name = "queue",
           .sampler = S::Fifo(),
           .remover = S::Fifo(),
           .max_size = 50,
           .max_times_sampled = 1,
           .rate_limiter = RateLimiterOptions::Queue(50)},
          {.name = "stack", .sampler = S::Lifo(), .remover = S::Prioritized(1, 9), .max_size = 30}};
}

// Applies random operations to tables: the same ones for the same seed and the same tables.
class RandomOperations {
 public:
  RandomOperations(uint64_t seed, std::shared_ptr<ChunkStore> store)
      : random_(seed), store_(std::move(store)) {}

  // Applies an operation and returns its result as text, so that two runs can be compared.
  std::string Do(const std::vector<std::shared_ptr<ConcurrentTable>>& tables) {
    ConcurrentTable& table = *tables[random_.Below(tables.size())];
    const uint64_t what = random_.Below(100);
    const internal::Wait at_once{.timeout = internal::Duration(0)};
    if (what < 55) {
      std::string text;
      Item item = NewItem();
      // Mostly into one table, sometimes the same data into two.
      const size_t copies = random_.Below(10) == 0 ? 2 : 1;
      for (size_t i = 0; i < copies; ++i) {
        Item copy = item;
        ConcurrentTable& to = i == 0 ? table : *tables[random_.Below(tables.size())];
        text += to.Insert(std::move(copy), at_once).ToString() + " ";
      }
      return text;
    }
    if (what < 80) {
      std::vector<internal::Sample> items;
      const Status status = table.Sample(1 + static_cast<int64_t>(random_.Below(4)), true, at_once, &items);
      std::string text = status.ToString();
      for (const auto& item : items) {
        text += " " + std::to_string(item.key) + "/" + std::to_string(item.probability) + "/" +
                std::to_string(item.times_sampled);
      }
      return text;
    }
    if (what < 95) {
      const KeyPriority update{SomeKey(), Priority()};
      return table.Mutate({&update, 1}, {}).ToString();
    }
    if (what < 99 || random_.Below(20) != 0) {
      const uint64_t key = SomeKey();
      return table.Mutate({}, {&key, 1}).ToString();
    }
    table.Reset();
    return "reset";
  }

  // Returns an object that continues with the same operations.
  RandomOperations CopyWith(std::shared_ptr<ChunkStore> store) const {
    RandomOperations copy = *this;
    copy.store_ = std::move(store);
    copy.chunks_.clear();
    return copy;
  }
  // Drops the chunks held, so that a copy over another store behaves the same.
  void ForgetChunks() { chunks_.clear(); }

 private:
  double Priority() { return static_cast<double>(random_.Below(6)) / 2; }
  uint64_t SomeKey() { return 1 + random_.Below(next_key_ + 3); }
  ChunkRef NewChunk() {
    const auto rows = static_cast<uint32_t>(1 + random_.Below(5));
    return MakeChunk(store_.get(), 1 + next_key_ / 7, static_cast<int64_t>(next_key_), rows,
                     static_cast<int64_t>(next_key_ * 1000));
  }
  Item NewItem() {
    if (chunks_.empty() || random_.Below(2) == 0) chunks_.push_back(NewChunk());
    if (chunks_.size() > 8) chunks_.erase(chunks_.begin());
    Item item{.key = next_key_++, .priority = Priority()};
    if (random_.Below(10) == 0) item.key = SomeKey();
    const auto any_chunk = [&] { return chunks_[random_.Below(chunks_.size())]; };
    if (random_.Below(3) != 0) {
      item.trajectory = Trajectory::Single(chunks_.back(), 0, 1, random_.Below(4) == 0).value();
      return item;
    }
    std::vector<internal::ColumnSpec> columns(1 + random_.Below(3));
    for (internal::ColumnSpec& column : columns) {
      const size_t slices = 1 + random_.Below(3);
      for (size_t i = 0; i < slices; ++i) {
        ChunkRef chunk = any_chunk();
        const uint32_t rows = chunk->header().rows();
        const auto offset = static_cast<uint32_t>(random_.Below(rows));
        const auto length = static_cast<uint32_t>(1 + random_.Below(rows - offset));
        column.slices.push_back({std::move(chunk), 0, offset, length});
      }
      column.squeeze = slices == 1 && column.slices[0].length == 1 && random_.Below(2) == 0;
    }
    item.trajectory = Trajectory::Create(columns).value();
    return item;
  }

  Random random_;
  std::shared_ptr<ChunkStore> store_;
  std::vector<ChunkRef> chunks_;
  uint64_t next_key_ = 1;
};

// The tables of a server, without the server.
struct World {
  std::shared_ptr<ChunkStore> store = std::make_shared<ChunkStore>(ChunkStore::Options());
  std::shared_ptr<internal::ManualClock> clock = std::make_shared<internal::ManualClock>();
  std::vector<std::shared_ptr<ConcurrentTable>> tables;

  ConcurrentTable::Environment environment() const { return {.store = store, .clock = clock.get()}; }
  static World Make(const std::vector<TableOptions>& options = SomeTables()) {
    World world;
    world.tables = internal::MakeTables(options, world.environment()).value();
    return world;
  }
  std::string Text() const { return Describe(tables); }
};

}  // namespace reverb::test

#endif  // REVERB_TESTS_CRASH_RANDOM_TABLES_H_
