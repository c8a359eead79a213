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

TEST_F(SamplerLeaseTest, DropsSamplesWhoseLeaseHasExpired) {
  Request();
  stream().Reply(1, 1, 7, Status::Ok());
  clock_.Advance(10s);
  Request();
  EXPECT_EQ(stream().requests.size(), 2u) << "another one";
  EXPECT_EQ(sampler_->stats().undelivered, 1);
  stream().Reply(2, 1, 8, Status::Ok());
  clock_.Advance(10s - 1ms);
  const Result<Sample> sample = sampler_->Next(kTryOnce);
  ASSERT_OK(sample);
  EXPECT_EQ(sample->key, 8u);
}

TEST_F(SamplerLeaseTest, CloseEndsTheStreamAndReleasesWhatWasNotTaken) {
  Request();
  Request();
  stream().Reply(1, 1, 7, Status::Ok());
  stream().on_end_stream = [this] {
    stream().Reply(2, 1, 8);  // was on its way
    stream().events->OnClosed(Status::Cancelled("ended"));
  };
  sampler_->Close();
  EXPECT_TRUE(stream().requests.back().end_stream);
  std::vector<LeaseGrant> released;
  for (const SettleLeasesRequest& request : connection_->settled) {
    EXPECT_EQ(request.table, "t");
    EXPECT_THAT(request.acks, IsEmpty());
    released.insert(released.end(), request.releases.begin(), request.releases.end());
  }
  EXPECT_THAT(released, ElementsAre(LeaseGrant{7, 1007}, LeaseGrant{8, 1008}));
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
