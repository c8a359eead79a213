// Tests of a sampler whose samples are leased.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "client/fake_connection_testing.h"
#include "client/sampler.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const WaitOptions kTryOnce{.timeout = 0ms};

class SamplerLeaseTest : public ::testing::Test {
 protected:
  SamplerLeaseTest() {
    connection_->on_call = [](const WaitOptions&) { return Status::Ok(); };
    sampler_ = SamplerImpl::Create([this](size_t) { return connection_; },
                                   {.table = "t", .whole_windows = true, .lease = 10s, .clock = &clock_})
                   .value();
  }
  ~SamplerLeaseTest() override {
    // Close() waits for the end of the stream.
    for (auto& stream : connection_->samples) {
      if (!stream->on_end_stream) stream->on_end_stream = [&] { stream->Close(Status::Ok()); };
    }
    sampler_->Close();
    for (auto& stream : connection_->samples) stream->events = nullptr;
  }
  FakeSampleStream& stream() { return *connection_->samples.at(0); }
  // Requests one sample, which does not arrive in time.
  void Request() { EXPECT_THAT(sampler_->Next(kTryOnce), StatusIs(StatusCode::kDeadlineExceeded)); }

  ManualClock clock_;
  std::shared_ptr<FakeConnection> connection_ = std::make_shared<FakeConnection>();
  std::shared_ptr<SamplerImpl> sampler_;
};

TEST_F(SamplerLeaseTest, RequestsNothingAhead) {
  EXPECT_THAT(connection_->samples, IsEmpty());
  Request();
  ASSERT_EQ(stream().requests.size(), 1u);
  EXPECT_EQ(stream().requests[0].count, 1);
  EXPECT_EQ(stream().requests[0].lease, 10s);
  stream().Reply(1, 1, 7, Status::Ok());
  const Result<Sample> sample = sampler_->Next(kTryOnce);
  ASSERT_OK(sample);
  EXPECT_EQ(sample->lease_id, 1007u);
  EXPECT_EQ(stream().requests.size(), 1u);
}

TEST_F(SamplerLeaseTest, ReleasesSamplesThatHaveLittleOfTheirLeaseLeft) {
  Request();
  stream().Reply(1, 1, 7, Status::Ok());
  clock_.Advance(5s);
  Request();
  EXPECT_EQ(stream().requests.size(), 2u) << "another one";
  EXPECT_EQ(sampler_->stats().undelivered, 1);
  ASSERT_EQ(connection_->settled.size(), 1u);
  EXPECT_THAT(connection_->settled[0].releases, ElementsAre(LeaseGrant{7, 1007}));
  stream().Reply(2, 1, 8, Status::Ok());
  clock_.Advance(5s - 1ms);
  const Result<Sample> sample = sampler_->Next(kTryOnce);
  ASSERT_OK(sample);
  EXPECT_EQ(sample->key, 8u);
}

TEST_F(SamplerLeaseTest, CreditIsReturnedBeforeTheBatchIsComplete) {
  std::vector<Sample> samples;
  const auto take = [&] { return sampler_->Next(4, kTryOnce, &samples); };
  EXPECT_THAT(take(), StatusIs(StatusCode::kDeadlineExceeded));
  ASSERT_EQ(stream().requests.size(), 1u);
  stream().Reply(1, 3, 7, {}, /*bytes=*/1000);
  EXPECT_THAT(take(), StatusIs(StatusCode::kDeadlineExceeded));
  // The server may have filled its window with these three.
  ASSERT_EQ(stream().requests.size(), 2u);
  EXPECT_EQ(stream().requests[1].taken_bytes, 1000u);
  EXPECT_EQ(stream().requests[1].count, 0);
  stream().Reply(1, 1, 10, Status::Ok(), /*bytes=*/10);
  EXPECT_OK(take());
  EXPECT_EQ(samples.size(), 4u);
}

TEST_F(SamplerLeaseTest, APartOfABatchStaysInTheQueue) {
  std::vector<Sample> samples;
  const auto take = [&](int64_t count) { return sampler_->Next(count, kTryOnce, &samples); };
  EXPECT_THAT(take(2), StatusIs(StatusCode::kDeadlineExceeded));
  stream().Reply(1, 2, 7, Status::Ok());
  EXPECT_THAT(take(4), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(stream().requests.back().count, 2);
  EXPECT_THAT(samples, IsEmpty());
  clock_.Advance(3s);
  stream().Reply(2, 1, 9);
  clock_.Advance(3s);  // the first two expire
  EXPECT_THAT(take(4), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(samples, IsEmpty());
  stream().Reply(2, 1, 10, Status::Ok());
  ASSERT_OK(take(2));
  EXPECT_EQ(samples[0].key, 9u);
  EXPECT_EQ(samples[1].key, 10u);
}

TEST_F(SamplerLeaseTest, ARequestEndsWithTheWaitOfItsConsumer) {
  std::vector<Sample> samples;
  EXPECT_THAT(sampler_->Next(8, kTryOnce, &samples), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(stream().requests.at(0).timeout, 0ms);
  stream().Reply(1, 0, 0, Status::DeadlineExceeded("not enough").WithDetail(Detail::kRateLimited));
  EXPECT_THAT(sampler_->Next(3, kTryOnce, &samples), StatusIs(StatusCode::kDeadlineExceeded));
  ASSERT_EQ(stream().requests.size(), 2u);
  EXPECT_EQ(stream().requests[1].count, 3);
  // The end of one wait does not end the sampler while another consumer waits.
  const WaitOptions wait{.timeout = 60s, .on_wait = [this] {
                           if (stream().requests.size() == 2) {
                             stream().Reply(2, 0, 0, Status::DeadlineExceeded("not enough"));
                           } else {
                             stream().Reply(3, 3, 7, Status::Ok());
                           }
                           return Status::Ok();
                         }};
  EXPECT_OK(sampler_->Next(3, wait, &samples));
  EXPECT_EQ(samples.size(), 3u);
}

TEST_F(SamplerLeaseTest, MoreThanTheRestOfMaxSamplesTakesNothing) {
  sampler_->Close();
  connection_->samples.clear();
  sampler_ = SamplerImpl::Create([this](size_t) { return connection_; },
                                 {.table = "t", .max_samples = 2, .lease = 10s, .clock = &clock_})
                 .value();
  Request();
  stream().Reply(1, 1, 7, Status::Ok());
  std::vector<Sample> samples;
  EXPECT_THAT(sampler_->Next(3, kTryOnce, &samples),
              StatusIs(StatusCode::kOutOfRange, HasSubstr("0 of 2 were returned")));
  EXPECT_THAT(samples, IsEmpty());
  ASSERT_OK(sampler_->Next(kTryOnce));
  Request();
  stream().Reply(2, 1, 8, Status::Ok());
  ASSERT_OK(sampler_->Next(kTryOnce));
  EXPECT_THAT(sampler_->Next(kTryOnce), StatusIs(StatusCode::kOutOfRange, HasSubstr("all 2 samples")));
}

TEST_F(SamplerLeaseTest, CloseEndsTheStreamAndReleasesWhatWasNotTaken) {
  std::vector<Sample> samples;
  EXPECT_THAT(sampler_->Next(3, kTryOnce, &samples), StatusIs(StatusCode::kDeadlineExceeded));
  stream().Reply(1, 1, 7);
  stream().Reply(1, 1, 9, Status::Ok());
  stream().on_end_stream = [this] {
    stream().Reply(2, 1, 8);  // was on its way
    stream().events->OnClosed(Status::Cancelled("ended"));
  };
  sampler_->Close();
  EXPECT_TRUE(stream().requests.back().end_stream);
  ASSERT_EQ(connection_->settled.size(), 1u) << "one request";
  EXPECT_EQ(connection_->settled[0].table, "t");
  EXPECT_THAT(connection_->settled[0].acks, IsEmpty());
  EXPECT_THAT(connection_->settled[0].releases,
              ElementsAre(LeaseGrant{7, 1007}, LeaseGrant{9, 1009}, LeaseGrant{8, 1008}));
}

TEST_F(SamplerLeaseTest, AServerThatKnowsNoLeasesIsAnError) {
  Request();
  stream().grants_leases = false;
  stream().Reply(1, 1, 7, Status::Ok());
  EXPECT_THAT(sampler_->Next(kTryOnce),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("does not support leases")));
}

}  // namespace
}  // namespace reverb::internal
