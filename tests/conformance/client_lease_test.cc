// Tests leases of the C++ API over every transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "conformance/client_fixture.h"
#include "conformance/transports.h"
#include "reverb/client.h"
#include "reverb/server.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""ns;
using test::kPatience;
using test::MakeQueue;
using test::MakeTable;
using test::StatusIs;
using test::ToVector;
using test::Transport;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClientLeaseTest : public test::ClientFixture {
 protected:
  // Fills a queue with the values 0, 1, 2, ….
  void StartQueue(int n) {
    Start({MakeQueue("q", 100)});
    client_ = Connect();
    auto writer = NewWriter(*client_);
    for (int i = 0; i < n; ++i) ASSERT_OK(Write(writer, "q", static_cast<float>(i)));
    ASSERT_OK(writer.Flush(0, kPatience));
  }
  Sampler NewSampler(SamplerOptions options) {
    options.table = "q";
    if (options.lease == 0ns) options.lease = 1h;
    return client_->NewSampler(std::move(options)).value();
  }
  static float ValueOf(const SampledTrajectory& sample) { return ToVector(sample.column(0).value()).front(); }
  TableInfo Info() { return table("q").Info(); }

  std::optional<Client> client_;
};
INSTANTIATE_TEST_SUITE_P(Transports, ClientLeaseTest, REVERB_ALL_TRANSPORTS, test::TransportName);

TEST_P(ClientLeaseTest, TheNextCallAcknowledgesAndCloseReleases) {
  StartQueue(3);
  Sampler sampler = NewSampler({});
  EXPECT_EQ(ValueOf(sampler.Next(kPatience).value()), 0);
  EXPECT_EQ(Info().current_size, 3);
  EXPECT_EQ(Info().leases.leased, 1) << "nothing is prefetched";
  EXPECT_EQ(ValueOf(sampler.Next(kPatience).value()), 1);
  EXPECT_EQ(Info().current_size, 2) << "the first one was acknowledged";
  EXPECT_EQ(Info().counters.samples, 1);
  sampler.Close();
  EXPECT_EQ(Info().leases.leased, 0);
  EXPECT_EQ(Info().current_size, 2);
  Sampler other = NewSampler({.max_samples = 2});
  EXPECT_EQ(ValueOf(other.Next(kPatience).value()), 1) << "released, at its place";
  EXPECT_EQ(ValueOf(other.Next(kPatience).value()), 2);
  EXPECT_THAT(other.Next(kPatience), StatusIs(StatusCode::kOutOfRange));
  EXPECT_EQ(Info().current_size, 0) << "also the call that ends the samples acknowledges";
}

TEST_P(ClientLeaseTest, EachSampleIsSettledOnce) {
  StartQueue(3);
  Sampler sampler = NewSampler({.auto_ack = false});
  const SampledTrajectory first = sampler.Next(kPatience).value();
  const SampledTrajectory second = sampler.Next(kPatience).value();
  EXPECT_EQ(Info().leases.leased, 2);
  EXPECT_TRUE(first.lease().is_held());
  EXPECT_EQ(first.lease().Extend(2h, kPatience).value(), (LeaseOutcome{.settled = 1}));
  EXPECT_EQ(first.lease().Ack(kPatience).value(), (LeaseOutcome{.settled = 1}));
  EXPECT_FALSE(first.lease().is_held());
  EXPECT_EQ(first.lease().Ack(kPatience).value(), LeaseOutcome());
  EXPECT_EQ(first.lease().Release(kPatience).value(), LeaseOutcome());
  EXPECT_THAT(first.lease().Extend(1h), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(second.lease().Extend(0ns), StatusIs(StatusCode::kInvalidArgument, HasSubstr("0 ns")));
  sampler.Close();
  EXPECT_EQ(second.lease().Release(kPatience).value(), (LeaseOutcome{.settled = 1}))
      << "leases belong to the table, not to the stream";
  EXPECT_EQ(Info().current_size, 2);
  EXPECT_EQ(Info().leases.leased, 0);
}

TEST_P(ClientLeaseTest, BatchesHaveDistinctItemsAndOneLease) {
  StartQueue(6);
  Sampler sampler = NewSampler({.auto_ack = false});
  Batch batch;
  ASSERT_OK(sampler.NextBatch(4, &batch, kPatience));
  EXPECT_THAT(ToVector(batch.columns[0]), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(batch.info.lease.size(), 4);
  EXPECT_EQ(Info().leases.leased, 4);
  const SampleLease first = batch.info.lease;
  ASSERT_OK(sampler.NextBatch(2, &batch, kPatience));
  EXPECT_THAT(ToVector(batch.columns[0]), ElementsAre(4, 5));
  EXPECT_EQ(batch.info.lease.Release(kPatience).value(), (LeaseOutcome{.settled = 2}));
  EXPECT_EQ(first.Ack(kPatience).value(), (LeaseOutcome{.settled = 4}));
  EXPECT_EQ(Info().current_size, 2);
}

TEST_P(ClientLeaseTest, AnExpiredItemGoesToAnotherConsumer) {
  StartQueue(1);
  Sampler slow = NewSampler({.lease = 500ms, .auto_ack = false});  // time for the sample to arrive
  const SampledTrajectory sample = slow.Next(kPatience).value();
  Sampler other = NewSampler({.auto_ack = false});
  const SampledTrajectory again = other.Next(kPatience).value();  // waits until the lease has expired
  EXPECT_EQ(again.key(), sample.key());
  EXPECT_EQ(sample.lease().Ack(kPatience).value(), (LeaseOutcome{.expired = 1}));
  EXPECT_EQ(Info().current_size, 1);
  EXPECT_EQ(again.lease().Ack(kPatience).value(), (LeaseOutcome{.settled = 1}));
  EXPECT_EQ(Info().current_size, 0);
  EXPECT_GE(Info().leases.expired, 1);  // more if the first sample arrived too late, and came again
  EXPECT_EQ(Info().leases.late, 1);
}

TEST_P(ClientLeaseTest, ABatchIsLeasedTogetherAndCloseReleasesIt) {
  StartQueue(2);
  Sampler sampler = NewSampler({});
  Batch batch;
  EXPECT_THAT(sampler.NextBatch(3, &batch, {.timeout = 50ms}), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Info().leases.leased, 0);
  auto writer = NewWriter(*client_);
  ASSERT_OK(Write(writer, "q", 2));
  ASSERT_OK(writer.Flush(0, kPatience));
  ASSERT_OK(sampler.NextBatch(3, &batch, kPatience));
  EXPECT_THAT(ToVector(batch.columns[0]), ElementsAre(0, 1, 2));
  EXPECT_OK(batch.info.lease.Release(kPatience));
  EXPECT_EQ(Info().leases.leased, 0);
  ASSERT_OK(sampler.NextBatch(3, &batch, kPatience));
  sampler.Close();
  EXPECT_TRUE(test::WaitUntil([&] { return Info().leases.leased == 0; }));
  EXPECT_EQ(Info().current_size, 3);
  EXPECT_EQ(Info().leases.expired, 0);
}

TEST_P(ClientLeaseTest, ARequestThatItsConsumerGaveUpBlocksNeitherItNorOthers) {
  StartQueue(5);
  Sampler sampler = NewSampler({.auto_ack = false});
  Batch batch;
  EXPECT_THAT(sampler.NextBatch(8, &batch, {.timeout = 50ms}), StatusIs(StatusCode::kDeadlineExceeded));
  ASSERT_OK(sampler.NextBatch(3, &batch, kPatience));
  EXPECT_THAT(ToVector(batch.columns[0]), ElementsAre(0, 1, 2));
  EXPECT_THAT(sampler.NextBatch(8, &batch, {.timeout = 50ms}), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(ValueOf(NewSampler({}).Next(kPatience).value()), 3) << "another consumer";
}

TEST_P(ClientLeaseTest, ALimiterTimeoutEndsTheSamplesAndAnEarlierWaitDoesNot) {
  StartQueue(1);
  Sampler sampler = NewSampler({.auto_ack = false, .rate_limiter_timeout = 300ms});
  Batch batch;
  EXPECT_THAT(sampler.NextBatch(2, &batch, {.timeout = 10ms}), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(ValueOf(sampler.Next(kPatience).value()), 0) << "sampling has not ended";
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("leased")));
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kDeadlineExceeded)) << "for good";
}

TEST_P(ClientLeaseTest, CloseReleasesWhatArrivedAndWasNotTaken) {
  StartQueue(8);
  // The server draws all of them together.
  NewSampler({.batch_size = 8, .all_or_nothing = true}).Next(kPatience).value();
  EXPECT_TRUE(test::WaitUntil([&] { return Info().leases.leased == 0; }));
  EXPECT_EQ(Info().current_size, 8);
  EXPECT_EQ(Info().leases.expired, 0);
}

TEST_P(ClientLeaseTest, AWaitingConsumerLearnsThatItemsAreLeased) {
  StartQueue(1);
  Sampler first = NewSampler({});
  ASSERT_OK(first.Next(kPatience));
  Sampler second = NewSampler({});
  Status late;
  do {  // the server may not have answered yet
    late = second.Next({.timeout = 50ms}).status();
    ASSERT_THAT(late, StatusIs(StatusCode::kDeadlineExceeded));
  } while (late.detail() == Detail::kNone);
  EXPECT_THAT(std::string(late.message()), HasSubstr("1 item is leased"));
}

TEST_P(ClientLeaseTest, WrongLeasesAreRefused) {
  StartQueue(0);
  EXPECT_THAT(client_->NewSampler({.table = "q", .lease = -1ns}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("lease (-1)")));
}

TEST_P(ClientLeaseTest, ATableThatKeepsItemsCountsAcknowledgedSamples) {
  Start({MakeTable("q")});
  client_ = Connect();
  auto writer = NewWriter(*client_);
  for (int i = 0; i < 4; ++i) ASSERT_OK(Write(writer, "q", static_cast<float>(i)));
  ASSERT_OK(writer.Flush(0, kPatience));
  Sampler sampler = NewSampler({});
  Batch batch;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(sampler.NextBatch(4, &batch, kPatience));
    EXPECT_THAT(ToVector(batch.columns[0]), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(batch.info.times_sampled, ElementsAre(i + 1, i + 1, i + 1, i + 1));
  }
  ASSERT_OK(sampler.AckPrevious(kPatience));
  EXPECT_EQ(Info().counters.samples, 12);
  EXPECT_EQ(Info().leases.acknowledged, 12);
}

}  // namespace
}  // namespace reverb
