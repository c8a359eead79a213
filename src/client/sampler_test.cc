#include "client/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "client/fake_connection_testing.h"
#include "reverb/log.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

const WaitOptions kNow{.timeout = 0ms};

class SamplerTest : public ::testing::Test {
 protected:
  void Create(SamplerImpl::Options options = {}) {
    options.table = "t";
    options.clock = &clock_;
    sampler_ = SamplerImpl::Create([this](size_t) { return connection_; }, options).value();
  }
  ~SamplerTest() override {
    if (sampler_) sampler_->Close();
    for (auto& stream : connection_->samples) stream->events = nullptr;
  }
  FakeSampleStream& stream(size_t index = 0) { return *connection_->samples.at(index); }
  uint64_t TakeKey() {
    auto sample = sampler_->Next(kNow);
    EXPECT_OK(sample);
    return sample.ok() ? sample->key : UINT64_MAX;
  }
  int64_t Asked() {
    int64_t asked = 0;
    for (auto& stream : connection_->samples) {
      for (auto& request : stream->requests) asked += request.count;
    }
    return asked;
  }

  ManualClock clock_;
  std::shared_ptr<FakeConnection> connection_ = std::make_shared<FakeConnection>();
  std::shared_ptr<SamplerImpl> sampler_;
};

TEST_F(SamplerTest, RequestsAheadUpToItsWindow) {
  Create({.max_in_flight = 8});
  ASSERT_EQ(stream().requests.size(), 1u);
  EXPECT_EQ(stream().requests[0].count, 8);
  EXPECT_EQ(stream().requests[0].table, "t");
  EXPECT_TRUE(stream().requests[0].shared_columns);
  stream().Reply(1, 8, 0, Status::Ok());
  EXPECT_EQ(TakeKey(), 0u);
  EXPECT_EQ(Asked(), 8) << "not for every sample";
  EXPECT_EQ(TakeKey(), 1u);
  EXPECT_EQ(Asked(), 10) << "but for a quarter of the window";
}

TEST_F(SamplerTest, RequestsNoMoreThanMaxSamples) {
  Create({.max_samples = 10, .max_in_flight = 8});
  stream().Reply(1, 8, 0, Status::Ok());
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(TakeKey(), i);
  EXPECT_EQ(Asked(), 10);
  stream().Reply(2, 2, 8, Status::Ok());
  TakeKey();
  TakeKey();
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kOutOfRange));
  EXPECT_EQ(Asked(), 10);
  EXPECT_EQ(sampler_->stats().delivered, 10);
}

TEST_F(SamplerTest, AnAdaptiveWindowDoublesWhenTheQueueIsEmpty) {
  Create({.max_in_flight = 4, .grow_window = true});
  EXPECT_EQ(Asked(), 1);
  stream().Reply(1, 1, 0, Status::Ok());
  EXPECT_EQ(TakeKey(), 0u);
  EXPECT_EQ(Asked(), 2) << "one ahead";
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Asked(), 3) << "two on their way";
  stream().Reply(2, 1, 1, Status::Ok());
  stream().Reply(3, 1, 2, Status::Ok());
  EXPECT_EQ(TakeKey(), 1u);
  EXPECT_EQ(TakeKey(), 2u);
  EXPECT_EQ(Asked(), 5) << "the consumer found what it wanted: as many as before";
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Asked(), 7) << "never more than max_in_flight";
}

TEST_F(SamplerTest, WholeWindowsAreRequestedOnceThePreviousOneIsTaken) {
  Create({.max_samples = 19, .max_in_flight = 8, .whole_windows = true});
  EXPECT_EQ(Asked(), 8);
  stream().Reply(1, 8, 0, Status::Ok());
  for (uint64_t i = 0; i < 7; ++i) EXPECT_EQ(TakeKey(), i);
  EXPECT_EQ(Asked(), 8);
  EXPECT_EQ(TakeKey(), 7u);
  EXPECT_EQ(Asked(), 16);
  stream().Reply(2, 8, 8, Status::Ok());
  for (uint64_t i = 8; i < 16; ++i) EXPECT_EQ(TakeKey(), i);
  EXPECT_EQ(Asked(), 19) << "no more than max_samples";
}

TEST_F(SamplerTest, AnExactSamplerRequestsAWholeWindowWhenAConsumerWaits) {
  Create({.max_in_flight = 4, .whole_windows = true, .exact = true});
  EXPECT_TRUE(connection_->samples.empty());
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Asked(), 4);
  stream().Reply(1, 4, 0, Status::Ok());
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(TakeKey(), i);
  EXPECT_EQ(Asked(), 4) << "nothing ahead of the consumer";
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Asked(), 8);
}

ServerInfo ServerWithTooFewItems() {
  ServerInfo info;
  TableInfo& table = info.tables.emplace_back();
  table.name = "t";
  table.max_size = 100;
  table.current_size = 1;
  table.rate_limiter.min_size_to_sample = 10;
  table.counters.inserts = 1;
  table.sample_wait_reason = WaitReason::kMinSize;
  return info;
}

TEST_F(SamplerTest, ATimeoutExplainsTheRateLimiter) {
  Create({.max_in_flight = 1});
  connection_->info = ServerWithTooFewItems();
  EXPECT_THAT(sampler_->Next(kNow),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("has not answered yet")))
      << "one that may not be there is not asked";
  stream().Welcome();
  const Status late = sampler_->Next(kNow).status();
  EXPECT_THAT(late, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
  EXPECT_THAT(std::string(late.message()),
              AllOf(HasSubstr("fake:1"), HasSubstr("table \"t\" holds 1 of 100 items"),
                    HasSubstr("samples wait: too few items to sample"), HasSubstr("min_size_to_sample=10")));
}

TEST_F(SamplerTest, ATimeoutWithoutAnExplanation) {
  Create({.max_in_flight = 1});
  stream().Welcome();
  const Status late = sampler_->Next(kNow).status();
  EXPECT_THAT(late, StatusIs(StatusCode::kDeadlineExceeded, Detail::kNone));
  EXPECT_THAT(late, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("does not say why")));
  connection_->info = Status::DeadlineExceeded("no answer");
  EXPECT_THAT(sampler_->Next(kNow).status(),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("the server has not answered")));
}

TEST_F(SamplerTest, SamplesThatArriveDuringTheExplanationAreReturned) {
  Create({.max_in_flight = 1});
  stream().Welcome();
  connection_->info = ServerWithTooFewItems();
  connection_->on_info = [this] { stream().Reply(1, 1, 7, Status::Ok()); };
  EXPECT_EQ(TakeKey(), 7u);
}

TEST_F(SamplerTest, AnExactSamplerDoesNotPrefetch) {
  Create({.exact = true});
  EXPECT_TRUE(connection_->samples.empty());
  std::vector<Sample> samples;
  EXPECT_THAT(sampler_->Next(3, kNow, &samples), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Asked(), 3);
  stream().Reply(1, 3, 0, Status::Ok());
  EXPECT_OK(sampler_->Next(3, kNow, &samples));
  EXPECT_EQ(Asked(), 3) << "the request of the call that gave up served the next one";
}

TEST_F(SamplerTest, ReturnsCreditAsSamplesAreTaken) {
  Create({.max_in_flight = 4, .receive_window_bytes = 1000});
  stream().Reply(1, 2, 0, {}, 300);
  stream().Reply(1, 2, 2, Status::Ok(), 300);
  TakeKey();
  const auto taken = [&] {
    uint64_t bytes = 0;
    for (auto& request : stream().requests) bytes += request.taken_bytes;
    return bytes;
  };
  EXPECT_EQ(taken(), 0u);
  TakeKey();
  EXPECT_EQ(taken(), 300u);
  TakeKey();
  TakeKey();
  EXPECT_EQ(taken(), 600u);
}

TEST_F(SamplerTest, CreditIsReturnedWithoutARequest) {
  Create({.max_samples = 4, .max_in_flight = 4, .receive_window_bytes = 1000});
  stream().Reply(1, 3, 0, {}, 600);  // the fourth sample has not arrived
  for (int i = 0; i < 3; ++i) TakeKey();
  ASSERT_EQ(stream().requests.size(), 2u);
  EXPECT_EQ(stream().requests[1].taken_bytes, 600u);
  EXPECT_TRUE(stream().requests[1].table.empty());
}

TEST_F(SamplerTest, ReceivedSamplesAreReturnedBeforeAnError) {
  Create({.max_in_flight = 4});
  stream().Reply(1, 2, 0);
  stream().Close(Status::InvalidArgument("bad"));
  TakeKey();
  TakeKey();
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(SamplerTest, ATimeoutDuringWhichNoCallWaitedIsIgnored) {
  Create({.max_in_flight = 4, .rate_limiter_timeout = 5ms});
  const Status timeout = Status::DeadlineExceeded("too slow").WithDetail(Detail::kRateLimited);
  stream().Reply(1, 1, 0, timeout);
  TakeKey();
  EXPECT_EQ(Asked(), 8) << "asked again";
  int calls = 0;
  const WaitOptions while_waiting{.on_wait = [&] {
    if (++calls == 1) stream().Reply(2, 0, 0, timeout);
    return Status::Ok();
  }};
  EXPECT_THAT(sampler_->Next(while_waiting), StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
}

TEST_F(SamplerTest, ReconnectsAfterALostConnection) {
  Create({.max_in_flight = 4});
  stream().Reply(1, 1, 0);
  stream().Close(Status::Unavailable("gone"));
  EXPECT_EQ(TakeKey(), 0u);
  EXPECT_EQ(connection_->samples.size(), 1u);
  clock_.Advance(1s);
  ASSERT_EQ(connection_->samples.size(), 2u);
  EXPECT_TRUE(stream(1).requests.empty()) << "not before the server has answered";
  stream(1).Welcome();
  EXPECT_EQ(stream(1).requests.at(0).count, 4);
  EXPECT_EQ(sampler_->stats().unanswered, 3);
  stream(1).Reply(stream(1).requests[0].request_id, 4, 10, Status::Ok());
  EXPECT_EQ(TakeKey(), 10u);
}

TEST_F(SamplerTest, SamplesThatMayBeLostWithAConnectionAreLogged) {
  std::vector<std::string> lines;
  SetLogSink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  Create({.max_in_flight = 4});
  stream().Welcome();
  stream().Reply(1, 1, 0);
  stream().Close(Status::Unavailable("gone"));
  // Failed attempts lose no samples.
  connection_->refuse = true;
  clock_.Advance(10s);
  EXPECT_TRUE(lines.empty()) << "a server that is gone for good has taken its tables with it";
  connection_->refuse = false;
  clock_.Advance(10s);
  connection_->samples.back()->Welcome();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("the server at fake:1 broke"),
                              HasSubstr("table \"t\" that were requested and not received: 3.")));
  EXPECT_EQ(sampler_->stats().unanswered, 3);
  SetLogSink({});
}

TEST_F(SamplerTest, GivesUpOnAServerThatNeverAnswers) {
  Create({.reconnect_timeout = 3s});
  stream().answers_cancel = true;
  clock_.Advance(2999ms);
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kDeadlineExceeded));
  clock_.Advance(1ms);
  EXPECT_THAT(
      sampler_->Next(kNow),
      StatusIs(StatusCode::kUnavailable, HasSubstr("the server at fake:1 could not be reached for 3.0 s;")));
}

TEST_F(SamplerTest, AServerThatAnswersInTimeIsKept) {
  Create({.reconnect_timeout = 3s});
  stream().Welcome();
  EXPECT_EQ(clock_.pending(), 0);
}

TEST_F(SamplerTest, ReconnectsAfterDamagedRepliesUpToALimit) {
  const Status damaged = Status::DataLoss("damaged on the way").WithDetail(Detail::kCorruptData);
  Create({.max_in_flight = 4});
  for (uint64_t i = 0; i < 20; ++i) {  // each stream makes progress
    stream(i).Welcome();
    stream(i).Reply(stream(i).requests[0].request_id, 1, i);
    stream(i).Close(damaged);
    EXPECT_EQ(TakeKey(), i);
    clock_.Advance(1s);
    ASSERT_EQ(connection_->samples.size(), i + 2);
  }
  EXPECT_EQ(sampler_->stats().unanswered, 60);
  for (int i = 0; i < 100 && connection_->samples.back()->events; ++i) {
    connection_->samples.back()->Close(damaged);
    clock_.Advance(1s);
  }
  EXPECT_EQ(connection_->samples.size(), 21u + Reconnection::kMaxDamaged - 1);
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData));
}

TEST_F(SamplerTest, CountsDroppedSamples) {
  Create({.max_in_flight = 10});
  stream().Reply(1, 6, 0);
  TakeKey();
  std::shared_ptr<SampleEvents> events = stream().events;
  sampler_->Close();
  EXPECT_TRUE(stream().cancelled);
  stream().Reply(1, 2, 6);  // was in flight
  EXPECT_EQ(sampler_->stats().delivered, 1);
  EXPECT_EQ(sampler_->stats().undelivered, 7);
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kCancelled));
}

TEST_F(SamplerTest, SeveralStreamsShareTheWork) {
  Create({.max_in_flight = 4, .num_streams = 3});
  EXPECT_EQ(connection_->samples.size(), 3u);
  EXPECT_EQ(Asked(), 12);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(stream(i).requests.at(0).count, 4);
}

TEST_F(SamplerTest, InvalidOptionsAreRejected) {
  const auto connect = [this](size_t) { return connection_; };
  EXPECT_THAT(SamplerImpl::Create(connect, {.table = "t", .max_samples = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_samples (0) must be -1 or >= 1")));
  EXPECT_THAT(SamplerImpl::Create(connect, {.table = "t", .max_in_flight = 0}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(SamplerImpl::Create(connect, {.table = "t", .num_streams = 0}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(SamplerImpl::Create(connect, {}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no name")));
}

TEST_F(SamplerTest, CreditIsReturnedBeforeTheSamplerStarves) {
  // The server's window may be smaller than the client's; the server waits for credit before it sends more.
  Create({.max_in_flight = 100, .receive_window_bytes = 1 << 30});
  stream().Reply(1, 1, 0, {}, 1000);
  TakeKey();
  uint64_t taken = 0;
  for (auto& request : stream().requests) taken += request.taken_bytes;
  EXPECT_EQ(taken, 1000u);
}

TEST_F(SamplerTest, ManyBytesAreReturnedEvenFromAFullQueue) {
  Create({.max_in_flight = 1000, .receive_window_bytes = 1 << 30});
  stream().Reply(1, 1, 0, {}, 2 << 20);
  stream().Reply(1, 1, 1, {}, 2 << 20);
  TakeKey();
  uint64_t taken = 0;
  for (auto& request : stream().requests) taken += request.taken_bytes;
  EXPECT_EQ(taken, uint64_t{2} << 20);
}

}  // namespace
}  // namespace reverb::internal
