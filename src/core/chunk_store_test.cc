#include "core/chunk_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "tensor/column.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::MakeChunk;
using test::StatusIs;
using testing::ElementsAreArray;
using testing::HasSubstr;

// Returns one uint8 column of `rows` rows, and its payload.
struct Encoded {
  ChunkHeader header;
  std::vector<uint8_t> payload;
};

Encoded Encode(uint32_t rows, std::vector<uint32_t> row_shape = {}) {
  Encoded encoded{
      .header = {.episode_id = 7, .first_step = 10, .last_step = 10 + int64_t{rows} - 1, .rows = rows}};
  std::vector<uint8_t> raw(rows * NumElements(row_shape));
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<uint8_t>(i * 7 + 1);
  ColumnEncoder encoder(DType::kUint8, std::move(row_shape), CodecPolicy::kNone);
  encoded.header.columns.push_back(encoder.Encode(raw, rows, &encoded.payload).value());
  return encoded;
}

// Bytes stored elsewhere; records when they are released.
class TrackedBytes final : public BufferOwner {
 public:
  static Buffer Make(std::vector<uint8_t> bytes, bool* freed) {
    auto* owner = new TrackedBytes(std::move(bytes), freed);
    return Buffer(owner, owner->bytes_.data(), owner->bytes_.size());
  }

 private:
  TrackedBytes(std::vector<uint8_t> bytes, bool* freed) : bytes_(std::move(bytes)), freed_(freed) {}
  ~TrackedBytes() override { *freed_ = true; }
  const std::vector<uint8_t> bytes_;
  bool* const freed_;
};

TEST(ChunkStoreTest, AddCopiesHeaderAndPayload) {
  ChunkStore store({});
  Encoded encoded = Encode(5);
  const std::vector<uint8_t> expected = encoded.payload;
  const auto chunk = store.Add(encoded.header, encoded.payload);
  ASSERT_OK(chunk);
  std::fill(encoded.payload.begin(), encoded.payload.end(), uint8_t{0});
  EXPECT_THAT((*chunk)->payload(), ElementsAreArray(expected));
  EXPECT_THAT((*chunk)->column_payload(0), ElementsAreArray(expected));
  EXPECT_EQ((*chunk)->header().Unpack(), encoded.header);
  EXPECT_GE((*chunk)->bytes(),
            static_cast<int64_t>(sizeof(Chunk) + PackedSize(encoded.header) + expected.size()));
}

TEST(ChunkStoreTest, ColumnsAreConsecutiveInThePayload) {
  ChunkStore store({});
  Encoded a = Encode(4);
  Encoded b = Encode(4, {3});
  a.header.columns.push_back(b.header.columns[0]);
  std::vector<uint8_t> payload = a.payload;
  payload.insert(payload.end(), b.payload.begin(), b.payload.end());
  const auto chunk = store.Add(a.header, payload);
  ASSERT_OK(chunk);
  EXPECT_THAT((*chunk)->column_payload(0), ElementsAreArray(a.payload));
  EXPECT_THAT((*chunk)->column_payload(1), ElementsAreArray(b.payload));
}

TEST(ChunkStoreTest, EmptyRowsProduceAChunkWithoutPayload) {
  ChunkStore store({});
  const Encoded encoded = Encode(3, {0});
  ASSERT_TRUE(encoded.payload.empty());
  const auto chunk = store.Add(encoded.header, encoded.payload);
  ASSERT_OK(chunk);
  EXPECT_TRUE((*chunk)->payload().empty());
  EXPECT_EQ((*chunk)->header().rows(), 3u);
}

TEST(ChunkStoreTest, IdsAreSequentialAndNeverReused) {
  ChunkStore store({});
  const uint64_t first = MakeChunk(&store, 1, 0, 1)->id();
  for (uint64_t i = 1; i <= 10; ++i) EXPECT_EQ(MakeChunk(&store, 1, 0, 1)->id(), first + i);
}

TEST(ChunkStoreTest, CountsLiveChunksAndTheirBytes) {
  ChunkStore store({});
  EXPECT_EQ(store.stats().live_chunks, 0);
  EXPECT_EQ(store.stats().live_bytes, 0);
  ChunkRef a = MakeChunk(&store, 1, 0, 1);
  ChunkRef b = MakeChunk(&store, 1, 1, 100);
  EXPECT_GT(b->bytes(), a->bytes());
  EXPECT_EQ(store.stats().live_chunks, 2);
  EXPECT_EQ(store.stats().live_bytes, a->bytes() + b->bytes());
  EXPECT_EQ(store.stats().stored_bytes, 0) << "no item refers to them";
  ChunkRef again = a;
  a = ChunkRef();
  EXPECT_EQ(store.stats().live_chunks, 2) << "a reference is left";
  again = ChunkRef();
  EXPECT_EQ(store.stats().live_chunks, 1);
  EXPECT_EQ(store.stats().live_bytes, b->bytes());
  b = ChunkRef();
  EXPECT_EQ(store.stats().live_chunks, 0);
  EXPECT_EQ(store.stats().live_bytes, 0);
}

TEST(ChunkStoreTest, AStoredChunkCountsOnceHoweverManyItemsShareIt) {
  ChunkStore store({});
  const ChunkRef chunk = MakeChunk(&store, 1, 0, 10);
  EXPECT_FALSE(chunk->is_stored());
  chunk->AddItemRef();
  chunk->AddItemRef();
  chunk->AddItemRef();
  EXPECT_TRUE(chunk->is_stored());
  EXPECT_EQ(store.stored_bytes(), chunk->bytes());
  chunk->DropItemRef();
  chunk->DropItemRef();
  EXPECT_EQ(store.stored_bytes(), chunk->bytes());
  chunk->DropItemRef();
  EXPECT_EQ(store.stored_bytes(), 0);
  EXPECT_FALSE(chunk->is_stored());
  EXPECT_EQ(store.stats().live_chunks, 1);
}

TEST(ChunkStoreTest, ReferencesMoveCopyShareAndAdopt) {
  ChunkStore store({});
  ChunkRef a = MakeChunk(&store, 1, 0, 1);
  Chunk* const chunk = a.get();
  ChunkRef b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: moved from, so empty
  EXPECT_EQ(b.get(), chunk);
  ChunkRef c = b;
  c = *&c;  // self-assignment
  EXPECT_EQ(c.get(), chunk);
  ChunkRef d = ChunkRef::Share(chunk);
  ChunkRef e = ChunkRef::Adopt(d.Release());
  EXPECT_FALSE(d);
  b = ChunkRef();
  c = ChunkRef();
  EXPECT_EQ(store.stats().live_chunks, 1);
  e = ChunkRef();
  EXPECT_EQ(store.stats().live_chunks, 0);
}

TEST(ChunkStoreTest, ExternalBytesAreUsedInPlaceAndReleasedWithTheChunk) {
  ChunkStore store({});
  const Encoded encoded = Encode(100);
  bool freed = false;
  Buffer bytes = TrackedBytes::Make(encoded.payload, &freed);
  const uint8_t* const where = bytes.data();
  auto added = store.AddExternal(encoded.header, std::move(bytes));
  ASSERT_OK(added);
  ChunkRef chunk = *std::move(added);
  EXPECT_EQ(chunk->payload().data(), where);
  EXPECT_THAT(chunk->payload(), ElementsAreArray(encoded.payload));
  EXPECT_THAT(chunk->column_payload(0), ElementsAreArray(encoded.payload));
  EXPECT_EQ(store.stats().live_bytes, chunk->bytes());
  EXPECT_GE(chunk->bytes(), 100) << "external bytes count too";
  ChunkRef other = chunk;
  chunk = ChunkRef();
  EXPECT_FALSE(freed);
  other = ChunkRef();
  EXPECT_TRUE(freed);
  EXPECT_EQ(store.stats().live_bytes, 0);
}

TEST(ChunkStoreTest, ASliceOfABufferKeepsTheWholeBufferAlive) {
  ChunkStore store({});
  const Encoded encoded = Encode(10);
  std::vector<uint8_t> file(encoded.payload.size() + 5, 0xee);
  std::copy(encoded.payload.begin(), encoded.payload.end(), file.begin() + 5);
  bool freed = false;
  Buffer whole = TrackedBytes::Make(file, &freed);
  auto chunk = store.AddExternal(encoded.header, whole.Slice(5, encoded.payload.size()));
  whole = Buffer();
  ASSERT_OK(chunk);
  EXPECT_FALSE(freed);
  EXPECT_THAT((*chunk)->payload(), ElementsAreArray(encoded.payload));
  *chunk = ChunkRef();
  EXPECT_TRUE(freed);
}

TEST(ChunkStoreTest, ThePayloadMayBeWrittenLater) {
  ChunkStore store({});
  const Encoded encoded = Encode(50);
  uint8_t* payload = nullptr;
  const auto chunk = store.AddUninitialized(encoded.header, &payload);
  ASSERT_OK(chunk);
  ASSERT_NE(payload, nullptr);
  std::memcpy(payload, encoded.payload.data(), encoded.payload.size());
  EXPECT_THAT((*chunk)->payload(), ElementsAreArray(encoded.payload));
  EXPECT_EQ((*chunk)->payload().data(), payload);
  EXPECT_EQ(store.stats().live_bytes, (*chunk)->bytes());
}

// Heap memory that counts its blocks.
class CountingSource final : public PayloadSource {
 public:
  uint8_t* Allocate(size_t bytes) override {
    if (is_empty) return nullptr;
    live_bytes += bytes;
    return static_cast<uint8_t*>(::operator new(bytes));
  }
  void Free(uint8_t* block, size_t bytes) override {
    live_bytes -= bytes;
    ::operator delete(block);
  }
  size_t live_bytes = 0;
  bool is_empty = false;
};

TEST(ChunkStoreTest, PayloadsAreInMemoryOfTheSource) {
  CountingSource source;
  ChunkStore store({.payload_source = &source});
  const Encoded encoded = Encode(500);
  uint8_t* payload = nullptr;
  auto later = store.AddUninitialized(encoded.header, &payload);
  ASSERT_OK(later);
  EXPECT_EQ(source.live_bytes, 500u);
  std::memcpy(payload, encoded.payload.data(), encoded.payload.size());
  const auto copy = store.Add(encoded.header, encoded.payload);
  ASSERT_OK(copy);
  EXPECT_EQ(source.live_bytes, 1000u);
  for (const ChunkRef& chunk : {*later, *copy}) {
    EXPECT_THAT(chunk->payload(), ElementsAreArray(encoded.payload));
    EXPECT_THAT(chunk->column_payload(0), ElementsAreArray(encoded.payload));
    std::vector<uint8_t> rows(3);
    EXPECT_OK(chunk->CopyPayload(rows.data(), 497, 3));
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), encoded.payload.begin() + 497));
    EXPECT_EQ(chunk->header().Unpack(), encoded.header);
    EXPECT_GE(chunk->bytes(), 500);
  }
  EXPECT_EQ((*later)->payload().data(), payload);
  EXPECT_EQ(store.stats().live_bytes, 2 * (*copy)->bytes());
  *later = ChunkRef();
  EXPECT_EQ(source.live_bytes, 500u);
  EXPECT_EQ(store.stats().live_bytes, (*copy)->bytes());
}

TEST(ChunkStoreTest, SmallPayloadsAndThoseWithoutMemoryOfTheSourceArePrivate) {
  CountingSource source;
  ChunkStore store({.payload_source = &source});
  const Encoded small = Encode(Chunk::kMinSourcedBytes - 1);
  const auto inline_chunk = store.Add(small.header, small.payload);
  ASSERT_OK(inline_chunk);
  EXPECT_THAT((*inline_chunk)->payload(), ElementsAreArray(small.payload));
  source.is_empty = true;
  const Encoded large = Encode(5000);
  const auto private_chunk = store.Add(large.header, large.payload);
  ASSERT_OK(private_chunk);
  EXPECT_THAT((*private_chunk)->payload(), ElementsAreArray(large.payload));
  EXPECT_EQ(source.live_bytes, 0u);
}

TEST(ChunkStoreTest, ARejectedChunkTakesNoMemoryOfTheSource) {
  CountingSource source;
  ChunkStore store({.payload_source = &source});
  Encoded encoded = Encode(500);
  encoded.payload.push_back(1);
  EXPECT_THAT(store.Add(encoded.header, encoded.payload), StatusIs(StatusCode::kDataLoss));
  encoded.header.columns[0].blocks[0].raw_size = 1;
  uint8_t* payload = nullptr;
  EXPECT_THAT(store.AddUninitialized(encoded.header, &payload), StatusIs(StatusCode::kDataLoss));
  EXPECT_EQ(source.live_bytes, 0u);
}

TEST(ChunkStoreTest, RejectsAPayloadThatDoesNotMatchTheHeader) {
  ChunkStore store({});
  const Encoded encoded = Encode(10);
  std::vector<uint8_t> payload = encoded.payload;
  payload.pop_back();
  EXPECT_THAT(store.Add(encoded.header, payload),
              StatusIs(StatusCode::kDataLoss, HasSubstr("10 payload bytes")));
  payload.resize(11);
  EXPECT_THAT(store.Add(encoded.header, payload), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(store.Add(encoded.header, {}), StatusIs(StatusCode::kDataLoss));
  bool freed = false;
  EXPECT_THAT(store.AddExternal(encoded.header, TrackedBytes::Make(payload, &freed)),
              StatusIs(StatusCode::kDataLoss));
  EXPECT_TRUE(freed);
  EXPECT_EQ(store.stats().live_chunks, 0);
  EXPECT_EQ(store.stats().live_bytes, 0);
}

TEST(ChunkStoreTest, RejectsAnInvalidHeader) {
  ChunkStore store({});
  const auto refused = [&](auto&& spoil) {
    Encoded encoded = Encode(10);
    spoil(&encoded.header);
    uint8_t* payload = nullptr;
    EXPECT_THAT(store.AddUninitialized(encoded.header, &payload), StatusIs(StatusCode::kDataLoss));
    return store.Add(encoded.header, encoded.payload).status();
  };
  EXPECT_THAT(refused([](ChunkHeader* h) { h->columns.clear(); }), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(refused([](ChunkHeader* h) { h->rows = 0; }), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(refused([](ChunkHeader* h) { h->last_step = h->first_step - 1; }),
              StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(refused([](ChunkHeader* h) { h->rows = 11; }), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(refused([](ChunkHeader* h) { h->columns[0].blocks.clear(); }), StatusIs(StatusCode::kDataLoss));
  EXPECT_EQ(store.stats().live_chunks, 0);
}

TEST(ChunkStoreTest, RejectsChunksBeyondItsLimits) {
  ChunkStore::Options options;
  options.limits.max_chunk_raw_bytes = 100;
  ChunkStore store(options);
  const Encoded small = Encode(100), large = Encode(101);
  EXPECT_OK(store.Add(small.header, small.payload));
  EXPECT_FALSE(store.Add(large.header, large.payload).ok());
  EXPECT_EQ(store.options().limits.max_chunk_raw_bytes, 100u);
}

TEST(ChunkStoreTest, AChunkMayOutliveItsStore) {
  const Encoded encoded = Encode(10);
  ChunkRef chunk;
  {
    ChunkStore store({});
    chunk = store.Add(encoded.header, encoded.payload).value();
    chunk->AddItemRef();
  }
  ChunkStore next({});
  EXPECT_EQ(next.stats().live_chunks, 0) << "another store's chunk";
  EXPECT_EQ(next.stored_bytes(), 0);
  EXPECT_THAT(chunk->payload(), ElementsAreArray(encoded.payload));
  ChunkRef own = next.Add(encoded.header, encoded.payload).value();
  chunk->DropItemRef();
  EXPECT_EQ(next.stored_bytes(), 0);
  chunk = ChunkRef();
  EXPECT_EQ(next.stats().live_chunks, 1);
}

TEST(ChunkStoreTest, ReusedAccountsStartAtZero) {
  for (int i = 0; i < 20; ++i) {
    ChunkStore store({});
    EXPECT_EQ(store.stats().live_chunks, 0);
    EXPECT_EQ(store.stats().live_bytes, 0);
    EXPECT_EQ(store.stored_bytes(), 0);
    const ChunkRef chunk = MakeChunk(&store, 1, 0, 3);
    chunk->AddItemRef();
    EXPECT_EQ(store.stats().live_chunks, 1);
    chunk->DropItemRef();
  }
}

TEST(ChunkStoreTest, CountingFromManyThreadsAddsUp) {
  ChunkStore store({});
  const ChunkRef shared = MakeChunk(&store, 1, 0, 8);
  std::vector<std::thread> threads;
  std::vector<ChunkRef> handed_over(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        ChunkRef mine = MakeChunk(&store, 1, i, 2);
        mine->AddItemRef();
        shared->AddItemRef();
        const ChunkRef copy = shared;
        mine->DropItemRef();
        shared->DropItemRef();
        if (i == 0) handed_over[t] = std::move(mine);  // freed by another thread
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.stats().live_chunks, 5);
  EXPECT_EQ(store.stored_bytes(), 0);
  handed_over.clear();
  EXPECT_EQ(store.stats().live_chunks, 1);
  EXPECT_EQ(store.stats().live_bytes, shared->bytes());
}

// --- The bound on stored bytes ---

TEST(ChunkStoreRoomTest, UnboundedStoresAlwaysHaveSpace) {
  ChunkStore store({});
  EXPECT_TRUE(store.HasRoomFor(int64_t{1} << 60));
}

TEST(ChunkStoreRoomTest, OnlyStoredChunksCountTowardsTheBound) {
  ChunkStore probe({});
  const int64_t size = MakeChunk(&probe, 1, 0, 10)->bytes();
  ChunkStore store({.max_bytes = 2 * size});
  const ChunkRef a = MakeChunk(&store, 1, 0, 10), b = MakeChunk(&store, 1, 0, 10),
                 c = MakeChunk(&store, 1, 0, 10);
  EXPECT_TRUE(store.HasRoomFor(2 * size)) << "no item refers to them yet";
  EXPECT_FALSE(store.HasRoomFor(2 * size + 1));
  a->AddItemRef();
  EXPECT_TRUE(store.HasRoomFor(size));
  b->AddItemRef();
  EXPECT_FALSE(store.HasRoomFor(1));
  EXPECT_TRUE(store.HasRoomFor(0));
  a->DropItemRef();
  EXPECT_TRUE(store.HasRoomFor(size));
  b->DropItemRef();
}

class ChunkStoreWaitTest : public testing::Test {
 protected:
  ManualClock clock_;
  ChunkStore store_{{.max_bytes = 1'000}, &clock_};
  ChunkRef chunk_ = MakeChunk(&store_, 1, 0, 10);
  int wakes_ = 0;
};

TEST_F(ChunkStoreWaitTest, WakesOnceAfterStoredBytesDecrease) {
  chunk_->AddItemRef();
  chunk_->AddItemRef();
  EXPECT_NE(store_.WaitForRoom([&] { ++wakes_; }), 0u);
  clock_.Advance(std::chrono::hours(1));
  EXPECT_EQ(wakes_, 0);
  chunk_->DropItemRef();
  clock_.Advance(Duration(0));
  EXPECT_EQ(wakes_, 0) << "another item holds the chunk";
  chunk_->DropItemRef();
  EXPECT_EQ(wakes_, 0) << "not on this thread: it may hold a table's lock";
  clock_.Advance(Duration(0));
  EXPECT_EQ(wakes_, 1);
  // Only once.
  chunk_->AddItemRef();
  chunk_->DropItemRef();
  clock_.Advance(std::chrono::hours(1));
  EXPECT_EQ(wakes_, 1);
  EXPECT_EQ(clock_.pending(), 0);
}

TEST_F(ChunkStoreWaitTest, FreeingAChunkThatWasNotStoredWakesNoWaiter) {
  store_.WaitForRoom([&] { ++wakes_; });
  chunk_ = ChunkRef();
  clock_.Advance(std::chrono::hours(1));
  EXPECT_EQ(wakes_, 0);
}

TEST_F(ChunkStoreWaitTest, WakesEveryWaiter) {
  chunk_->AddItemRef();
  int others = 0;
  const uint64_t first = store_.WaitForRoom([&] { ++wakes_; });
  const uint64_t second = store_.WaitForRoom([&] { ++others; });
  EXPECT_NE(first, second);
  chunk_->DropItemRef();
  clock_.Advance(Duration(0));
  EXPECT_EQ(wakes_, 1);
  EXPECT_EQ(others, 1);
}

TEST_F(ChunkStoreWaitTest, AWaiterThatStoppedIsNotWoken) {
  chunk_->AddItemRef();
  int others = 0;
  const uint64_t ticket = store_.WaitForRoom([&] { ++wakes_; });
  store_.WaitForRoom([&] { ++others; });
  store_.StopWaiting(ticket);
  store_.StopWaiting(ticket);      // repeated
  store_.StopWaiting(ticket + 9);  // unknown
  chunk_->DropItemRef();
  clock_.Advance(Duration(0));
  EXPECT_EQ(wakes_, 0);
  EXPECT_EQ(others, 1);
}

TEST_F(ChunkStoreWaitTest, AWakeUpMayWaitAgain) {
  chunk_->AddItemRef();
  store_.WaitForRoom([&] {
    ++wakes_;
    store_.WaitForRoom([&] { ++wakes_; });
  });
  chunk_->DropItemRef();
  clock_.Advance(Duration(0));
  EXPECT_EQ(wakes_, 1);
  chunk_->AddItemRef();
  chunk_->DropItemRef();
  clock_.Advance(Duration(0));
  EXPECT_EQ(wakes_, 2);
}

TEST(ChunkStoreWaitForDeadStoreTest, ChunksOfADestroyedStoreWakeNoWaiter) {
  ManualClock clock;
  int wakes = 0;
  auto store = std::make_unique<ChunkStore>(ChunkStore::Options{.max_bytes = 1'000}, &clock);
  ChunkRef chunk = MakeChunk(store.get(), 1, 0, 10);
  chunk->AddItemRef();
  store->WaitForRoom([&] { ++wakes; });
  store.reset();
  chunk->DropItemRef();
  clock.Advance(std::chrono::hours(1));
  EXPECT_EQ(wakes, 0);
  EXPECT_EQ(clock.pending(), 0);
}

TEST(ChunkStoreTest, ChunksWithoutAStoreAreEnteredUnchanged) {
  ChunkStore store({});
  const Encoded encoded = Encode(4);
  const ChunkRef loose = Chunk::Copy(NextChunkId(), encoded.header, encoded.payload).value();
  EXPECT_FALSE(store.Holds(*loose));
  EXPECT_EQ(store.Enter(loose)->get(), loose.get());
  EXPECT_TRUE(store.Holds(*loose));
  EXPECT_EQ(store.Enter(loose)->get(), loose.get()) << "entering is idempotent";
  EXPECT_EQ(store.stats().live_chunks, 1);
}

TEST(ChunkStoreTest, ChunksOfAnotherStoreShareTheirBytes) {
  ChunkStore here({}), there({});
  const ChunkRef a = MakeChunk(&there, 1, 0, 4, 10), b = MakeChunk(&there, 1, 4, 4, 14);
  const Trajectory theirs =
      Trajectory::Create(std::vector<ColumnSpec>{{.slices = {{a, 0, 1, 3}, {b, 0, 0, 2}, {a, 0, 0, 1}}},
                                                 {.slices = {{b, 0, 3, 1}}, .squeeze = true}})
          .value();
  const Trajectory ours = here.Enter(theirs).value();
  EXPECT_EQ(here.stats().live_chunks, 2);
  EXPECT_EQ(there.stats().live_chunks, 2);
  ours.ForEachChunk([&](const Chunk* chunk) { EXPECT_TRUE(here.Holds(*chunk)); });
  EXPECT_EQ(ours.slice(0, 0).chunk->payload().data(), a->payload().data());
  std::vector<int64_t> values(6);
  ASSERT_OK(ours.Read(0, {reinterpret_cast<uint8_t*>(values.data()), 48}));
  EXPECT_THAT(values, ElementsAreArray({11, 12, 13, 14, 15, 10}));
  EXPECT_TRUE(ours.squeeze(1));
}

}  // namespace
}  // namespace reverb::internal
