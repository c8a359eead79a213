#include "service/sample_stream_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reverb/log.h"
#include "service/service_testing.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"
#include "transport/wire.h"

namespace reverb::internal {
namespace {

using ::testing::HasSubstr;

class SampleStreamSessionTest : public ServiceTest {};

TEST_F(SampleStreamSessionTest, DrawsOnlyWithinTheCredit) {
  TableOptions table;
  table.name = "t";
  Create({table});
  auto writer = std::make_shared<FakeInsertPeer>();
  auto inserts = service_->OpenInsert(MakeHello(1), writer).value();
  inserts->OnMessage({.items = {MakeItem(1, "t")}});
  auto peer = std::make_shared<FakeSamplePeer>();
  Hello hello = MakeHello(2);
  hello.receive_window_bytes = 1000;
  auto session = service_->OpenSample(hello, peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = 1'000'000});
  const size_t first = peer->samples();
  EXPECT_GE(first, 10u);
  EXPECT_LE(first, 16u + 64u);
  EXPECT_LE(tables_[0]->Info().counters.samples, static_cast<int64_t>(first)) << "nothing is drawn for later";
  session->OnRequest({.taken_bytes = first * 100});
  EXPECT_GT(peer->samples(), first);
  session->OnGone();
  inserts->OnGone();
  EXPECT_EQ(service_->stats().undelivered_samples, 0);
}

TEST_F(SampleStreamSessionTest, RepliesCarryTheMassIfTheRequestWantsIt) {
  TableOptions table;
  table.name = "t";
  table.sampler = SelectorOptions::Uniform();
  Create({table});
  auto writer = std::make_shared<FakeInsertPeer>();
  auto inserts = service_->OpenInsert(MakeHello(1), writer).value();
  inserts->OnMessage({.items = {MakeItem(1, "t"), MakeItem(2, "t")}});
  auto peer = std::make_shared<FakeSamplePeer>();
  auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = 1});
  EXPECT_FALSE(peer->replies.back().mass);
  session->OnRequest({.request_id = 2, .table = "t", .count = 1, .wants_mass = true});
  ASSERT_TRUE(peer->replies.back().mass);
  EXPECT_EQ(peer->replies.back().mass->mass, 2);
  EXPECT_EQ(peer->replies.back().mass->size, 2);
  // Without a sample.
  session->OnRequest({.request_id = 3, .table = "t", .count = 0, .wants_mass = true});
  EXPECT_EQ(peer->replies.back().request_id, 3u);
  EXPECT_TRUE(peer->replies.back().samples.empty());
  EXPECT_TRUE(peer->replies.back().mass && peer->replies.back().mass->is_weighted);
  EXPECT_OK(*peer->replies.back().end);
  EXPECT_EQ(tables_[0]->Info().counters.samples, 2);
  session->OnGone();
  inserts->OnGone();
}

// A server that stops ends its streams and then closes its tables. The error of a closed table must not reach
// the client as the end of its request, which would be final; the end of the stream makes it reconnect.
TEST_F(SampleStreamSessionTest, NothingIsSentAfterTheEndOfTheStream) {
  struct EndingPeer final : SamplePeer {
    std::function<void()> on_read;
    size_t replies = 0;
    std::optional<Status> end;
    void ReadNext() override {
      if (on_read) std::exchange(on_read, {})();
    }
    Sent Reply(SampleReply) override {
      ++replies;
      return {100, true};
    }
    void End(Status status) override { end = std::move(status); }
  };
  TableOptions table;
  table.name = "t";
  Create({table});
  auto peer = std::make_shared<EndingPeer>();
  auto session = service_->OpenSample(MakeHello(2), peer).value();
  ASSERT_EQ(peer->replies, 1u) << "the welcome message";
  peer->on_read = [&] {
    service_->Stop();
    tables_[0]->Close();
  };
  session->OnRequest({.request_id = 1, .table = "t", .count = 3});
  ASSERT_TRUE(peer->end.has_value());
  EXPECT_EQ(peer->end->code(), StatusCode::kUnavailable);
  EXPECT_EQ(peer->replies, 1u);
  session->OnGone();
}

TEST_F(SampleStreamSessionTest, SamplesOfAQueueThatCannotBeSentAreCountedAndLogged) {
  std::vector<std::string> lines;
  SetLogSink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  TableOptions replay;
  replay.name = "replay";
  Create({TableOptions::Queue("q", 10), replay});
  auto inserts = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage(MakeMessage(1, 5));
  inserts->OnMessage({.items = {MakeItem(6, "replay")}});
  for (const char* table : {"q", "replay"}) {
    auto peer = std::make_shared<FakeSamplePeer>();
    peer->ready = false;  // the welcome message is still being written
    Hello hello = MakeHello(2);
    hello.client_name = "learner";
    auto session = service_->OpenSample(hello, peer).value();
    session->OnRequest({.request_id = 1, .table = table, .count = 3});
    session->OnGone();
    EXPECT_EQ(peer->samples(), 0u);
  }
  EXPECT_EQ(tables_[0]->size(), 2) << "three were drawn";
  EXPECT_EQ(service_->stats().undelivered_samples, 6);
  ASSERT_EQ(lines.size(), 1u) << "the items of the other table are still there";
  EXPECT_THAT(lines[0], HasSubstr("table \"q\": the client learner disconnected"));
  EXPECT_THAT(lines[0], HasSubstr("drawn and not sent: 3"));
  SetLogSink({});
  inserts->OnGone();
}

TEST_F(SampleStreamSessionTest, LeasedSamplesThatCannotBeSentGoBack) {
  Create({TableOptions::Queue("q", 10)});
  auto inserts = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage(MakeMessage(1, 5));
  auto peer = std::make_shared<FakeSamplePeer>();
  peer->ready = false;  // the welcome message is still being written
  auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "q", .count = 3, .lease = std::chrono::hours(1)});
  EXPECT_EQ(tables_[0]->Info().leases.leased, 3);
  session->OnGone();
  EXPECT_EQ(tables_[0]->Info().leases.leased, 0);
  EXPECT_EQ(tables_[0]->Info().leases.expired, 0);
  EXPECT_EQ(tables_[0]->size(), 5);
  EXPECT_EQ(service_->stats().undelivered_samples, 0) << "nothing is lost";
  inserts->OnGone();
}

TEST_F(SampleStreamSessionTest, LeasesAreSettledByASingleCall) {
  Create({TableOptions::Queue("q", 10)});
  auto inserts = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage(MakeMessage(1, 5));
  std::vector<Sample> samples;
  ASSERT_OK(tables_[0]->Sample(3, false, {}, &samples, {.lease = std::chrono::hours(1)}));
  const auto grant = [&](size_t i) { return LeaseGrant{samples[i].key, samples[i].lease_id}; };
  EXPECT_EQ(service_
                ->SettleLeases({.table = "q",
                                .acks = {grant(0), {samples[0].key, samples[0].lease_id + 9}},
                                .releases = {grant(1)},
                                .extends = {grant(2)},
                                .extension = std::chrono::hours(2)})
                .value(),
            (LeaseOutcome{.settled = 3, .expired = 1}));
  EXPECT_EQ(tables_[0]->size(), 4);
  EXPECT_EQ(tables_[0]->Info().leases.leased, 1);
  EXPECT_THAT(service_->SettleLeases({.table = "q", .extends = {grant(2)}}),
              test::StatusIs(StatusCode::kInvalidArgument, HasSubstr("extended by 0 ns")));
  EXPECT_THAT(service_->SettleLeases({.table = "other"}), test::StatusIs(StatusCode::kNotFound));
  inserts->OnGone();
}

TEST_F(SampleStreamSessionTest, AWaitingRequestEndsWithItsClient) {
  TableOptions table;
  table.name = "t";
  Create({table});
  auto peer = std::make_shared<FakeSamplePeer>();
  auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = 5});
  EXPECT_EQ(tables_[0]->Info().waiting_samples, 1);
  session->OnGone();
  EXPECT_EQ(tables_[0]->Info().waiting_samples, 0);
  EXPECT_EQ(service_->stats().streams, 0u);
}

TEST_F(SampleStreamSessionTest, RepliesAreBoundedForAnyRequest) {
  TableOptions table;
  table.name = "t";
  Create({table});
  auto inserts = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage({.items = {MakeItem(1, "t")}});
  auto peer = std::make_shared<FakeSamplePeer>();
  Hello hello = MakeHello(2);
  hello.receive_window_bytes = 1;  // credit for one reply
  auto session = service_->OpenSample(hello, peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = std::numeric_limits<int64_t>::max()});
  EXPECT_GT(peer->samples(), 0u);
  EXPECT_LE(peer->samples(), 512u);
  EXPECT_LE(tables_[0]->Info().counters.samples, 512);
  session->OnGone();
  inserts->OnGone();
}

// The client refuses a reply whose samples are larger, when it decodes them, and those that it leased would be lost to it.
TEST_F(SampleStreamSessionTest, RepliesOfCompressedDataAreBoundedByItsDecodedSize) {
  constexpr uint32_t kItemBytes = 64 << 20;
  constexpr uint64_t kItems = 10;
  static_assert(kItems * kItemBytes > 2 * kDecodedBytesPerReply);
  TableOptions table;
  table.name = "t";
  table.sampler = SelectorOptions::Fifo();
  Create({table});
  const ChunkRef chunk = test::MakeCompressedChunk(store_.get(), kItemBytes);
  ASSERT_LT(kItems * chunk->payload_size(), uint64_t{256} << 10) << "fits into one reply as it is stored";
  for (uint64_t key = 1; key <= kItems; ++key)
    ASSERT_OK(tables_[0]->Insert(test::MakeItem(key, 1, chunk), {}));
  const WireLimits limits{.max_decoded_item_bytes = kDecodedBytesPerReply,
                          .max_decoded_reply_bytes = kDecodedBytesPerReply};
  for (const bool is_whole : {false, true}) {
    for (const Duration lease : {Duration(0), Duration(std::chrono::hours(1))}) {
      const auto peer = std::make_shared<FakeSamplePeer>();
      const auto session = service_->OpenSample(MakeHello(2), peer).value();
      session->OnRequest({.request_id = 1,
                          .table = "t",
                          .count = kItems,
                          .rules = {.all_or_nothing = is_whole},
                          .lease = lease});
      EXPECT_EQ(peer->samples(), kItems);
      EXPECT_GE(peer->replies.size(), 3u);
      for (const SampleReply& reply : peer->replies) {
        const std::string message = EncodeSampleReply(reply).Flatten();
        const ByteSlice slice(reinterpret_cast<const uint8_t*>(message.data()), message.size());
        EXPECT_OK(DecodeSampleReply({&slice, 1}, limits).status());
      }
      ASSERT_TRUE(peer->replies.back().end);
      EXPECT_OK(*peer->replies.back().end);
      for (const SampleReply& reply : peer->replies) {
        for (const Sample& sample : reply.samples) {
          if (sample.lease_id != 0)
            tables_[0]->Release(std::vector<LeaseGrant>{{sample.key, sample.lease_id}});
        }
      }
      session->OnGone();
    }
  }
}

TEST_F(SampleStreamSessionTest, WholeBatchesAreBounded) {
  TableOptions table;
  table.name = "t";
  Create({table});
  constexpr int64_t kMost = int64_t{1} << 20;
  for (const int64_t count : {kMost + 1, std::numeric_limits<int64_t>::max()}) {
    auto peer = std::make_shared<FakeSamplePeer>();
    auto session = service_->OpenSample(MakeHello(2), peer).value();
    session->OnRequest({.request_id = 1, .table = "t", .count = count, .rules = {.all_or_nothing = true}});
    ASSERT_TRUE(peer->replies.back().end);
    EXPECT_THAT(*peer->replies.back().end,
                test::StatusIs(StatusCode::kInvalidArgument, HasSubstr("request at most 1048576")));
    session->OnGone();
  }
  auto peer = std::make_shared<FakeSamplePeer>();
  auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = kMost, .rules = {.all_or_nothing = true}});
  EXPECT_FALSE(peer->replies.back().end);
  EXPECT_EQ(tables_[0]->Info().waiting_samples, 1);
  session->OnGone();
}

TEST_F(SampleStreamSessionTest, RepliesAreWrittenAsTheRequestAllows) {
  TableOptions table;
  table.name = "t";
  Create({table});
  auto inserts = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage({.items = {MakeItem(1, "t")}});
  auto peer = std::make_shared<FakeSamplePeer>();
  auto session = service_->OpenSample(MakeHello(2), peer).value();
  for (const bool even : {true, false}) {
    const size_t before = peer->samples();
    session->OnRequest({.request_id = 1, .table = "t", .count = 5, .shared_columns = even});
    EXPECT_EQ(peer->samples(), before + 5);
    EXPECT_EQ(peer->replies.back().shared_columns, even);
  }
  session->OnGone();
  inserts->OnGone();
}

TEST_F(SampleStreamSessionTest, CreditMayArriveBeforeTheReplyIsCounted) {
  // A client so fast that its credit arrives before Reply() returns.
  struct QuickPeer final : SamplePeer {
    std::weak_ptr<SampleSession> session;
    size_t samples = 0;
    void ReadNext() override {}
    Sent Reply(SampleReply reply) override {
      samples += reply.samples.size();
      if (auto self = session.lock()) self->OnRequest({.taken_bytes = 1000});
      return {1000, true};
    }
    void End(Status) override {}
  };
  TableOptions table;
  table.name = "t";
  Create({table});
  auto inserts = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage({.items = {MakeItem(1, "t")}});
  auto peer = std::make_shared<QuickPeer>();
  Hello hello = MakeHello(2);
  hello.receive_window_bytes = 1000;
  auto session = service_->OpenSample(hello, peer).value();
  peer->session = session;
  session->OnRequest({.taken_bytes = 1000});  // for the welcome message
  session->OnRequest({.request_id = 1, .table = "t", .count = 10'000});
  EXPECT_EQ(peer->samples, 10'000u);
  session->OnGone();
  inserts->OnGone();
}

}  // namespace
}  // namespace reverb::internal
