// Tests streams of samples whose data is in a disk tier.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "core/chunk_store.h"
#include "service/service_testing.h"
#include "tensor/column.h"
#include "testing/fake_file_system.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using test::WaitUntil;

constexpr uint32_t kItemBytes = 1 << 20;
constexpr int64_t kItems = 60;
constexpr int64_t kReadAtATime = 16 << 20;  // SampleStreamSession::kTieredDrawBytes

// Does not accept another reply until the test calls OnWritten(). Replies come on threads of the tier.
class SlowPeer final : public SamplePeer {
 public:
  explicit SlowPeer(bool shares_memory) : shares_memory_(shares_memory) {}

  bool shares_memory() const override { return shares_memory_; }
  void ReadNext() override {}
  Sent Reply(SampleReply reply) override {
    MutexLock lock(&mu_);
    ++replies_;
    for (const Sample& sample : reply.samples) keys_.push_back(sample.key);
    if (reply.end) end_ = *reply.end;
    return {1, false};
  }
  void End(Status status) override {
    MutexLock lock(&mu_);
    closed_ = std::move(status);
  }

  size_t replies() const {
    MutexLock lock(&mu_);
    return replies_;
  }
  size_t samples() const {
    MutexLock lock(&mu_);
    return keys_.size();
  }
  std::vector<uint64_t> keys() const {
    MutexLock lock(&mu_);
    return keys_;
  }
  std::optional<Status> closed() const {
    MutexLock lock(&mu_);
    return closed_;
  }
  std::optional<Status> end() const {
    MutexLock lock(&mu_);
    return end_;
  }

 private:
  const bool shares_memory_;
  mutable Mutex mu_;
  size_t replies_ GUARDED_BY(mu_) = 0;
  std::vector<uint64_t> keys_ GUARDED_BY(mu_);
  std::optional<Status> end_ GUARDED_BY(mu_);
  std::optional<Status> closed_ GUARDED_BY(mu_);
};

class TieredStreamTest : public ServiceTest, public testing::WithParamInterface<bool> {
 protected:
  ~TieredStreamTest() override { Close(); }
  // Closes the tier: its files are in fs_.
  void Close() {
    if (store_ == nullptr) return;
    if (service_ != nullptr) service_->Stop();
    service_.reset();
    for (const auto& table : tables_) table->Close();
    tables_.clear();
    // Callbacks of reads may keep the store longer than this object.
    if (store_->tier() != nullptr) store_->tier()->Shutdown();
    store_.reset();
  }
  // Fills a table with large items that are on disk.
  void Fill(std::shared_ptr<TableExtension> extension = nullptr, std::optional<int64_t> memory_limit = {}) {
    Close();
    Result<ChunkTierPtr> tier = ChunkTier::Open(
        &fs_, {.path = "/tier", .memory_limit = 2 * kItemBytes, .disk_limit = 4 * kItems * kItemBytes});
    ASSERT_OK(tier.status());
    store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = memory_limit}, RealClock(),
                                          *std::move(tier));
    TableOptions table;
    table.name = "t";
    table.sampler = SelectorOptions::Fifo();
    table.max_times_sampled = 1;  // each item is sampled once
    if (extension != nullptr) table.extensions.push_back(std::move(extension));
    Create({table});
    const std::vector<uint8_t> bytes(kItemBytes);
    for (uint64_t key = 1; key <= kItems; ++key) {
      std::vector<uint8_t> payload;
      ColumnEncoder encoder(DType::kUint8, {kItemBytes}, CodecPolicy::kNone);
      ChunkHeader header{.episode_id = key, .rows = 1};
      header.columns.push_back(encoder.Encode(bytes, 1, &payload).value());
      ASSERT_OK(tables_[0]->Insert(
          {.key = key,
           .priority = 1,
           .trajectory = Trajectory::Single(store_->Add(header, payload).value(), 0, 1).value()},
          {}));
    }
    ASSERT_TRUE(WaitUntil([&] { return store_->tier()->stats().memory_bytes <= 2 * kItemBytes; }));
  }
  int64_t ReadBytes() { return store_->tier()->stats().read_bytes; }
  // Takes replies until the request ends. Never is more read than was sent and `most_ahead` bytes.
  void TakeAll(SampleSession* session, SlowPeer* peer, int64_t most_ahead) {
    for (size_t written = 1; !peer->end(); ++written) {
      session->OnWritten();
      ASSERT_TRUE(WaitUntil([&] { return peer->replies() > written; }));
      const int64_t read = ReadBytes();
      EXPECT_LE(read, static_cast<int64_t>(peer->samples()) * kItemBytes + most_ahead);
    }
  }
  static std::vector<uint64_t> AllKeys() {
    std::vector<uint64_t> keys(kItems);
    std::iota(keys.begin(), keys.end(), 1);
    return keys;
  }

  test::FakeFileSystem fs_;
};

INSTANTIATE_TEST_SUITE_P(SharedMemory, TieredStreamTest, testing::Bool());

// The size of items is unknown before the first draw, and a leased batch is drawn as a whole. Neither may fill the
// memory with data that the client has not taken.
TEST_P(TieredStreamTest, DataIsReadInPartsAsTheClientTakesIt) {
  for (const bool is_leased : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(Fill());
    const auto peer = std::make_shared<SlowPeer>(GetParam());
    const auto session = service_->OpenSample(MakeHello(2), peer).value();
    ASSERT_EQ(peer->replies(), 1u) << "the welcome message";
    SampleRequest request{.request_id = 1, .table = "t", .count = kItems};
    if (is_leased) request.lease = std::chrono::hours(1);
    session->OnRequest(std::move(request));
    // What waits to be sent, and what is read meanwhile.
    ASSERT_NO_FATAL_FAILURE(TakeAll(session.get(), peer.get(), 2 * (kReadAtATime + kItemBytes)));
    EXPECT_OK(*peer->end());
    EXPECT_EQ(peer->keys(), AllKeys()) << "in the order of the table";
    EXPECT_GE(ReadBytes(), (kItems - 2) * int64_t{kItemBytes});
    session->OnGone();
  }
}

// While a part is being sent, the disk would be idle.
TEST_P(TieredStreamTest, TheNextPartIsReadWhileTheLastOneIsSent) {
  for (const bool is_leased : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(Fill());
    const auto peer = std::make_shared<SlowPeer>(GetParam());
    const auto session = service_->OpenSample(MakeHello(2), peer).value();
    SampleRequest request{.request_id = 1, .table = "t", .count = kItems};
    if (is_leased) request.lease = std::chrono::hours(1);
    session->OnRequest(std::move(request));
    session->OnWritten();  // of the welcome
    ASSERT_TRUE(WaitUntil([&] { return ReadBytes() >= 2 * kReadAtATime - 2 * int64_t{kItemBytes}; }))
        << "some items are in memory";
    EXPECT_EQ(peer->replies(), 2u) << "the client has taken none";
    session->OnGone();
    if (is_leased) {
      EXPECT_TRUE(WaitUntil(
          [&] { return tables_[0]->Info().leases.leased == static_cast<int64_t>(peer->samples()); }));
    } else {
      EXPECT_TRUE(WaitUntil([&] {
        return service_->stats().undelivered_samples + static_cast<int64_t>(peer->samples()) ==
               tables_[0]->Info().counters.samples;
      }));
    }
  }
}

TEST_P(TieredStreamTest, PartsShrinkWithTheMemoryForDataInTransit) {
  // An eighth is for data in transit, and a sixteenth of that for a part.
  constexpr int64_t kPart = 2 << 20;
  ASSERT_NO_FATAL_FAILURE(Fill(nullptr, 128 * kPart));
  const auto peer = std::make_shared<SlowPeer>(GetParam());
  const auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = kItems, .lease = std::chrono::hours(1)});
  ASSERT_NO_FATAL_FAILURE(TakeAll(session.get(), peer.get(), 2 * (kPart + kItemBytes)));
  EXPECT_EQ(peer->keys(), AllKeys());
  session->OnGone();
}

TEST_P(TieredStreamTest, NothingIsReadAheadWhileMemoryIsTight) {
  ASSERT_NO_FATAL_FAILURE(Fill(nullptr, int64_t{256} << 20));
  const MemoryCharge other(&store_->budget(), MemoryPart::kReplies, int64_t{20} << 20);
  ASSERT_EQ(store_->budget().TransitLevel(), MemoryLevel::kTight);
  const auto peer = std::make_shared<SlowPeer>(GetParam());
  const auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = kItems, .lease = std::chrono::hours(1)});
  // An item at a time.
  ASSERT_NO_FATAL_FAILURE(TakeAll(session.get(), peer.get(), kItemBytes));
  EXPECT_EQ(peer->keys(), AllKeys());
  session->OnGone();
}

// As without a disk tier: the table is asked for more than it has only when all that it had was sent.
TEST_P(TieredStreamTest, ADrawAheadDoesNotWaitForTheTable) {
  for (const bool may_wait : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(Fill());
    const auto peer = std::make_shared<SlowPeer>(GetParam());
    const auto session = service_->OpenSample(MakeHello(2), peer).value();
    SampleRequest request{.request_id = 1, .table = "t", .count = 2 * kItems};
    if (!may_wait) request.timeout = Duration(0);
    session->OnRequest(std::move(request));
    for (size_t written = 1; peer->samples() < static_cast<size_t>(kItems); ++written) {
      EXPECT_FALSE(peer->end());
      EXPECT_EQ(tables_[0]->Info().waiting_samples, 0);
      session->OnWritten();
      ASSERT_TRUE(WaitUntil([&] { return peer->replies() > written; }));
    }
    EXPECT_EQ(peer->keys(), AllKeys());
    session->OnWritten();
    if (may_wait) {
      EXPECT_TRUE(WaitUntil([&] { return tables_[0]->Info().waiting_samples == 1; }));
    } else {
      ASSERT_TRUE(WaitUntil([&] { return peer->end().has_value(); }));
      EXPECT_EQ(peer->end()->code(), StatusCode::kDeadlineExceeded);
    }
    session->OnGone();
    EXPECT_EQ(tables_[0]->Info().waiting_samples, 0);
  }
}

TEST_P(TieredStreamTest, LeasesOfDataThatWasNotReadAreReleasedWithTheStream) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  const auto peer = std::make_shared<SlowPeer>(GetParam());
  const auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = kItems, .lease = std::chrono::hours(1)});
  EXPECT_EQ(tables_[0]->Info().leases.leased, kItems);
  session->OnGone();
  ASSERT_TRUE(WaitUntil([&] { return tables_[0]->Info().leases.leased == 0; }));
  EXPECT_EQ(tables_[0]->Info().leases.expired, 0);
  EXPECT_EQ(service_->stats().undelivered_samples, 0);
}

// What was read before is sent first. The rest goes to the next stream of the client.
TEST_P(TieredStreamTest, AnErrorOfReadingEndsTheStreamAfterWhatWasRead) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  const auto take_until = [](SampleSession* session, SlowPeer* peer, const auto& is_done) {
    size_t written = 0;
    return WaitUntil([&] {
      if (written < peer->replies()) {
        ++written;
        session->OnWritten();
      }
      return is_done();
    });
  };
  const auto peer = std::make_shared<SlowPeer>(GetParam());
  const auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = kItems, .lease = std::chrono::hours(1)});
  ASSERT_TRUE(take_until(session.get(), peer.get(), [&] { return peer->samples() > 0; }));
  fs_.Inject({.kind = test::FakeFileSystem::Kind::kRead, .for_ever = true, .error = ENOMEM});
  ASSERT_TRUE(WaitUntil([&] {
    session->OnWritten();
    return peer->closed().has_value();
  }));
  EXPECT_EQ(peer->closed()->code(), StatusCode::kUnavailable);
  EXPECT_FALSE(peer->end());
  session->OnGone();
  const auto left = kItems - static_cast<int64_t>(peer->samples());
  EXPECT_GT(left, 0);
  fs_.ClearFault();

  const auto next_peer = std::make_shared<SlowPeer>(GetParam());
  const auto next = service_->OpenSample(MakeHello(3), next_peer).value();
  next->OnRequest({.request_id = 1, .table = "t", .count = left, .lease = std::chrono::hours(1)});
  ASSERT_TRUE(take_until(next.get(), next_peer.get(), [&] { return next_peer->end().has_value(); }));
  EXPECT_EQ(static_cast<int64_t>(next_peer->samples()), left);
  next->OnGone();
}

TEST_P(TieredStreamTest, LeasesOfDataThatCannotBeReadAreReleased) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  fs_.Inject({.kind = test::FakeFileSystem::Kind::kRead, .for_ever = true, .error = ENOMEM});
  const auto peer = std::make_shared<SlowPeer>(GetParam());
  const auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = kItems, .lease = std::chrono::hours(1)});
  session->OnWritten();
  // The stream, not the request: the client connects again and goes on when the error has passed.
  ASSERT_TRUE(WaitUntil([&] { return peer->closed().has_value(); }));
  EXPECT_EQ(peer->closed()->code(), StatusCode::kUnavailable);
  EXPECT_FALSE(peer->end());
  session->OnGone();
  EXPECT_TRUE(WaitUntil([&] {
    return tables_[0]->Info().leases.leased == static_cast<int64_t>(peer->samples());
  })) << "only those that were sent";
  EXPECT_EQ(tables_[0]->size(), kItems);
}

// Calls a function with each sample, under the lock of the table.
class SampleHook final : public TableExtension {
 public:
  std::string name() const override { return "sample hook"; }
  void OnSample(const ItemView&, Context&) override {
    if (on_sample) std::exchange(on_sample, {})();
  }
  std::function<void()> on_sample;
};

TEST_P(TieredStreamTest, AClientMayDisconnectDuringADraw) {
  const auto hook = std::make_shared<SampleHook>();
  ASSERT_NO_FATAL_FAILURE(Fill(hook));
  const auto peer = std::make_shared<SlowPeer>(GetParam());
  const auto session = service_->OpenSample(MakeHello(2), peer).value();
  hook->on_sample = [&] { session->OnGone(); };
  session->OnRequest({.request_id = 1, .table = "t", .count = kItems});
  EXPECT_EQ(peer->samples(), 0u);
  EXPECT_GT(service_->stats().undelivered_samples, 0);
  EXPECT_EQ(service_->stats().undelivered_samples, tables_[0]->Info().counters.samples);
  EXPECT_EQ(ReadBytes(), 0);
}

TEST_P(TieredStreamTest, SamplesWhoseDataWasNotReadAreCountedWhenTheClientIsGone) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  const auto peer = std::make_shared<SlowPeer>(GetParam());
  const auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = kItems});
  ASSERT_TRUE(WaitUntil([&] { return tables_[0]->Info().counters.samples > 0; }));
  session->OnGone();
  EXPECT_TRUE(WaitUntil(
      [&] { return service_->stats().undelivered_samples == tables_[0]->Info().counters.samples; }));
}

}  // namespace
}  // namespace reverb::internal
