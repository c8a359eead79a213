// Compares tables whose data is mostly on disk with the same tables in memory, under random operations: everything they
// return must be the same, and all data must be readable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "core/chunk_store.h"
#include "core/fetch_samples.h"
#include "core/table.h"
#include "tensor/column.h"
#include "testing/effort.h"
#include "testing/fake_file_system.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;
using test::FakeFileSystem;

std::vector<uint8_t> DataOf(uint64_t number, uint32_t size) {
  std::vector<uint8_t> bytes(size);
  Random random(number + 1);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Below(256));
  return bytes;
}

// The chunks of one step of the test, in each of the two stores.
struct TwinChunk {
  uint64_t number = 0;
  ChunkRef tiered;
  ChunkRef plain;
};

class TieredModelTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    random_.emplace(test::Seed() * 1000 + static_cast<uint64_t>(GetParam()));
    // So little that nearly every operation touches the disk: that of the tier, or that of the server.
    // The latter counts pages of slots too, so its data is larger.
    if (GetParam() % 2 == 1) memory_limit_ = static_cast<int64_t>((384 + random_->Below(128)) << 10);
    ChunkTier::Options options{
        .path = "/tier",
        .memory_limit = memory_limit_ ? int64_t{1} << 30 : static_cast<int64_t>(1 + random_->Below(20'000)),
        .disk_limit = 16 << 20,
        .min_payload_bytes = 1 + static_cast<uint32_t>(random_->Below(400)),
        .segment_bytes = 4096 * (1 + random_->Below(8)),
        .write_bytes = 4096 * (1 + random_->Below(4)),
        .retry_interval = 1ms};
    tiered_ = std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = memory_limit_}, RealClock(),
                                           ChunkTier::Open(&fs_, options).value());
    plain_ = std::make_shared<ChunkStore>(ChunkStore::Options{});
    const SelectorOptions selectors[] = {SelectorOptions::Uniform(3), SelectorOptions::Fifo(),
                                         SelectorOptions::Prioritized(0.7, 5), SelectorOptions::Lifo()};
    for (int i = 0; i < 2; ++i) {
      TableOptions table{.name = "t" + std::to_string(i),
                         .sampler = selectors[random_->Below(4)],
                         .remover = selectors[random_->Below(4)],
                         .max_size = static_cast<int64_t>(5 + random_->Below(60)),
                         .max_times_sampled = static_cast<int32_t>(random_->Below(2) * random_->Below(5))};
      with_tier_.push_back(ConcurrentTable::Create(table, {.store = tiered_}).value());
      without_.push_back(ConcurrentTable::Create(table, {.store = plain_}).value());
    }
  }

  TwinChunk MakeChunk() {
    const uint64_t unit = memory_limit_ ? 8 : 1;
    const auto size =
        static_cast<uint32_t>(1 + random_->Below(unit * (random_->Below(4) == 0 ? 12'000 : 1'500)));
    TwinChunk chunk{.number = next_number_++};
    std::vector<uint8_t> payload;
    ColumnEncoder encoder(DType::kUint8, {size}, CodecPolicy::kNone);
    ChunkHeader header{.episode_id = chunk.number, .rows = 1};
    header.columns.push_back(encoder.Encode(DataOf(chunk.number, size), 1, &payload).value());
    chunk.tiered = tiered_->Add(header, payload).value();
    chunk.plain = plain_->Add(header, payload).value();
    return chunk;
  }

  void Insert() {
    // Like a writer, which refers to its latest chunks.
    while (window_.size() < 4 || random_->Below(2) == 0) window_.push_back(MakeChunk());
    while (window_.size() > 6) window_.erase(window_.begin());
    const size_t columns = 1 + random_->Below(3);
    std::vector<ColumnSpec> tiered, plain;
    for (size_t c = 0; c < columns; ++c) {
      const TwinChunk& chunk = window_[random_->Below(window_.size())];
      tiered.push_back({.slices = {{.chunk = chunk.tiered, .length = 1}}});
      plain.push_back({.slices = {{.chunk = chunk.plain, .length = 1}}});
    }
    const size_t table = random_->Below(2);
    const uint64_t key = next_number_++;
    const auto priority = static_cast<double>(random_->Below(10));
    ASSERT_OK(with_tier_[table]->Insert(
        Item{.key = key, .priority = priority, .trajectory = Trajectory::Create(tiered).value()},
        {.timeout = 60s}));
    ASSERT_OK(without_[table]->Insert(
        Item{.key = key, .priority = priority, .trajectory = Trajectory::Create(plain).value()}));
    keys_.push_back(key);
  }

  // Compares what the two tables returned. The samples of the tiered one are fetched first.
  void Compare(const std::shared_ptr<ConcurrentTable>& table, std::vector<Sample> tiered,
               const std::vector<Sample>& plain) {
    const FetchedSamples fetched = FetchSamplesAndWait(tiered_->tier(), table, std::move(tiered));
    ASSERT_OK(fetched.status);
    ASSERT_EQ(fetched.lost, 0);
    ASSERT_EQ(fetched.samples.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      const Sample& a = fetched.samples[i];
      const Sample& b = plain[i];
      ASSERT_EQ(a.key, b.key);
      ASSERT_EQ(a.probability, b.probability);
      ASSERT_EQ(a.times_sampled, b.times_sampled);
      ASSERT_EQ(a.trajectory.num_columns(), b.trajectory.num_columns());
      for (uint32_t c = 0; c < b.trajectory.num_columns(); ++c) {
        const Chunk* const chunk = a.trajectory.slice(c, 0).chunk;
        ASSERT_FALSE(chunk->is_tiered());
        ASSERT_TRUE(std::ranges::equal(chunk->payload(), b.trajectory.slice(c, 0).chunk->payload()));
      }
    }
    if (random_->Below(4) == 0) held_.push_back(fetched);
    if (held_.size() > 3) held_.erase(held_.begin());
  }

  void Draw() {
    const size_t table = random_->Below(2);
    const auto count = static_cast<int64_t>(1 + random_->Below(40));
    std::vector<Sample> tiered, plain;
    const ConcurrentTable::Attempt a = with_tier_[table]->TrySample(count, &tiered);
    const ConcurrentTable::Attempt b = without_[table]->TrySample(count, &plain);
    ASSERT_EQ(a.progress, b.progress);
    Compare(with_tier_[table], std::move(tiered), plain);
  }

  void LookAtAll() {
    for (size_t table = 0; table < 2; ++table) {
      uint64_t a = 0, b = 0;
      Compare(with_tier_[table], with_tier_[table]->Peek(1000, &a), without_[table]->Peek(1000, &b));
    }
  }

  void Change() {
    const size_t table = random_->Below(2);
    if (keys_.empty()) return;
    const uint64_t key = keys_[random_->Below(keys_.size())];
    std::vector<KeyPriority> updates;
    std::vector<uint64_t> deletes;
    if (random_->Below(2) == 0) {
      deletes.push_back(key);
    } else {
      updates.push_back({key, static_cast<double>(random_->Below(10))});
    }
    ASSERT_OK(with_tier_[table]->Mutate(updates, deletes));
    ASSERT_OK(without_[table]->Mutate(updates, deletes));
  }

  // A snapshot keeps what it shows, on disk or in memory.
  void TakeOrReadSnapshot() {
    if (snapshot_ == nullptr) {
      snapshot_ = std::make_unique<Snapshot>(ConcurrentTable::TakeSnapshot(with_tier_));
      plain_snapshot_ = std::make_unique<Snapshot>(ConcurrentTable::TakeSnapshot(without_));
      return;
    }
    for (size_t table = 0; table < 2; ++table) {
      std::vector<Sample> a, b;
      const TableSnapshot& tiered = *snapshot_->tables[table];
      const TableSnapshot& plain = *plain_snapshot_->tables[table];
      ASSERT_EQ(tiered.num_slots(), plain.num_slots());
      for (size_t i = 0; i < plain.num_slots(); ++i) {
        ASSERT_EQ(tiered.slot(i).is_free(), plain.slot(i).is_free());
        if (plain.slot(i).is_free()) continue;
        a.push_back(tiered.item(i));
        b.push_back(plain.item(i));
      }
      Compare(nullptr, std::move(a), b);
    }
    snapshot_.reset();
    plain_snapshot_.reset();
  }

  FakeFileSystem fs_;
  std::optional<int64_t> memory_limit_;
  std::optional<Random> random_;
  std::shared_ptr<ChunkStore> tiered_;
  std::shared_ptr<ChunkStore> plain_;
  std::vector<std::shared_ptr<ConcurrentTable>> with_tier_;
  std::vector<std::shared_ptr<ConcurrentTable>> without_;
  std::vector<TwinChunk> window_;
  std::vector<uint64_t> keys_;
  std::vector<FetchedSamples> held_;
  std::unique_ptr<Snapshot> snapshot_;
  std::unique_ptr<Snapshot> plain_snapshot_;
  uint64_t next_number_ = 1;
};

TEST_P(TieredModelTest, BehavesLikeATableInMemory) {
  const int64_t steps = test::Effort(600, 150);
  int64_t most_stored = 0;
  for (int64_t step = 0; step < steps && !HasFatalFailure(); ++step) {
    const uint64_t kind = random_->Below(100);
    if (kind < 55) {
      Insert();
    } else if (kind < 80) {
      Draw();
    } else if (kind < 90) {
      Change();
    } else if (kind < 96) {
      TakeOrReadSnapshot();
    } else if (kind < 99) {
      LookAtAll();
    } else {
      const size_t table = random_->Below(2);
      with_tier_[table]->Reset();
      without_[table]->Reset();
    }
    // Inserts do not wait for the room that the index needs, and what snapshots copy of it.
    constexpr int64_t kIndex = 128 << 10;
    ASSERT_LE(tiered_->budget().usage().kept(), tiered_->budget().shares().kept + kIndex);
    most_stored = std::max(most_stored, plain_->stats().stored_bytes);
  }
  LookAtAll();
  const ChunkTier::Stats stats = tiered_->tier()->stats();
  // Some runs store less than the server's limit.
  const bool needs_disk = !memory_limit_ || most_stored > tiered_->budget().shares().kept;
  if (needs_disk) {
    EXPECT_GT(stats.written_bytes, 0);
  }
  EXPECT_EQ(stats.lost_chunks, 0);
  // Nothing is left behind.
  snapshot_.reset();
  plain_snapshot_.reset();
  held_.clear();
  window_.clear();
  for (const auto& table : with_tier_) table->Reset();
  EXPECT_EQ(tiered_->stats().stored_bytes, 0);
  // The thread that moves data may hold some of it for a moment.
  EXPECT_TRUE(test::WaitUntil([&] { return tiered_->stats().live_chunks == 0; }));
  EXPECT_EQ(tiered_->tier()->stats().memory_bytes, 0);
  EXPECT_EQ(tiered_->tier()->stats().disk_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Runs, TieredModelTest, testing::Range(0, 12));

}  // namespace
}  // namespace reverb::internal
