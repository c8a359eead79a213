// tiered_store_testing.h — a store with a disk tier in a fake file system, for tests.
#ifndef REVERB_CORE_TIERED_STORE_TESTING_H_
#define REVERB_CORE_TIERED_STORE_TESTING_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "core/chunk_store.h"
#include "core/fetch_samples.h"
#include "core/table.h"
#include "tensor/column.h"
#include "testing/fake_file_system.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {

inline constexpr uint32_t kTieredPayload = 4000;

inline std::vector<uint8_t> TieredBytes(uint64_t key, uint32_t size = kTieredPayload) {
  std::vector<uint8_t> bytes(size);
  Random random(key + 1);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Below(256));
  return bytes;
}

class TieredStoreTest : public testing::Test {
 protected:
  ChunkTier::Options TierOptions() {
    return {.path = "/tier",
            .memory_limit = 10 * kTieredPayload,
            .disk_limit = 1 << 20,
            .min_payload_bytes = 1024,
            .segment_bytes = 16384,
            .write_bytes = 8192,
            .retry_interval = std::chrono::milliseconds(1)};
  }
  void Open(const ChunkTier::Options& options, ChunkStore::Options store = {}) {
    OpenIn(&fs_, options, store);
  }
  void OpenIn(test::FakeFileSystem* fs, const ChunkTier::Options& options, ChunkStore::Options store = {}) {
    Result<ChunkTierPtr> tier = ChunkTier::Open(fs, options, store.payload_source);
    ASSERT_OK(tier.status());
    store_ = std::make_shared<ChunkStore>(store, RealClock(), *std::move(tier));
  }
  std::shared_ptr<ConcurrentTable> MakeTable(TableOptions options = {}) {
    options.name = options.name.empty() ? "t" : options.name;
    if (options.max_size == TableOptions().max_size) options.max_size = 1'000'000;
    return ConcurrentTable::Create(std::move(options), {.store = store_}).value();
  }
  static Result<ChunkRef> Encode(uint64_t key, uint32_t size, auto&& add) {
    std::vector<uint8_t> payload;
    ColumnEncoder encoder(DType::kUint8, {size}, CodecPolicy::kNone);
    ChunkHeader header{.episode_id = key, .rows = 1};
    header.columns.push_back(encoder.Encode(TieredBytes(key, size), 1, &payload).value());
    return add(header, payload);
  }
  ChunkRef MakeChunk(uint64_t key, uint32_t size = kTieredPayload) {
    return Encode(key, size,
                  [&](const ChunkHeader& header, std::span<const uint8_t> payload) {
                    return store_->Add(header, payload);
                  })
        .value();
  }
  // Returns what a chunk of kTieredPayload counts.
  static int64_t ChunkBytes() {
    return Encode(1, kTieredPayload,
                  [](const ChunkHeader& header, std::span<const uint8_t> payload) {
                    return Chunk::Copy(NextChunkId(), header, payload);
                  })
        .value()
        ->bytes();
  }
  Item MakeItem(uint64_t key, uint32_t size = kTieredPayload) {
    return {.key = key, .priority = 1, .trajectory = Trajectory::Single(MakeChunk(key, size), 0, 1).value()};
  }
  Status Insert(ConcurrentTable& table, uint64_t key,
                std::optional<Duration> timeout = std::chrono::seconds(60)) {
    return table.Insert(MakeItem(key), {.timeout = timeout});
  }
  // Returns whether the sample has the data of its key.
  static testing::AssertionResult HasItsData(const Sample& sample) {
    std::vector<uint8_t> read(sample.trajectory.slice(0, 0).chunk->payload_size());
    if (const Status status = sample.trajectory.Read(0, read); !status.ok()) {
      return testing::AssertionFailure() << status.ToString();
    }
    if (read != TieredBytes(sample.key, static_cast<uint32_t>(read.size()))) {
      return testing::AssertionFailure() << "wrong bytes of item " << sample.key;
    }
    return testing::AssertionSuccess();
  }
  FetchedSamples Draw(const std::shared_ptr<ConcurrentTable>& table, int64_t count) {
    std::vector<Sample> samples;
    EXPECT_OK(table->Sample(count, false, {.timeout = std::chrono::seconds(60)}, &samples));
    return FetchSamplesAndWait(store_->tier(), table, std::move(samples));
  }
  FetchedSamples FetchOne(const std::shared_ptr<ConcurrentTable>& table, uint64_t key) {
    std::vector<Sample> items;
    items.push_back(table->Find(key).value());
    return FetchSamplesAndWait(store_->tier(), table, std::move(items));
  }
  void ExpectAllReadable(const std::shared_ptr<ConcurrentTable>& table, int64_t size) {
    uint64_t cursor = 0;
    FetchedSamples all = FetchSamplesAndWait(store_->tier(), table, table->Peek(size + 1, &cursor));
    ASSERT_OK(all.status);
    EXPECT_EQ(std::ssize(all.samples), size);
    for (const Sample& sample : all.samples) EXPECT_TRUE(HasItsData(sample));
  }
  size_t NumFiles() { return NumFiles(fs_); }
  static size_t NumFiles(test::FakeFileSystem& fs) {
    if (!fs.FileExists("/tier").value()) return 0;
    std::vector<std::string> names = fs.ListDir("/tier").value();
    std::erase(names, "LOCK");
    return names.size();
  }

  void TearDown() override {
    // A wake-up of a waiting insert may hold a table for a moment. The files must outlive it.
    if (store_ != nullptr) {
      EXPECT_TRUE(test::WaitUntil([&] { return store_.use_count() == 1; }));
    }
    store_.reset();
  }

  test::FakeFileSystem fs_;
  std::shared_ptr<ChunkStore> store_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_TIERED_STORE_TESTING_H_
