#include "client/set_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <numeric>

#include "client/fake_connection_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::StatusIs;
using ::testing::HasSubstr;

const WaitOptions kNow{.timeout = 0ms};

// A server that answers on the caller's thread: the keys of its items are (shard << 48) + position.
class FakeShard final : public Connection {
 public:
  FakeShard(uint64_t shard, std::vector<double> w) : weights(std::move(w)), shard_(shard) {}

  std::vector<double> weights;
  bool is_weighted = true;
  bool is_blocked = false;  // by its rate limiter
  bool is_silent = false;   // keeps requests
  bool is_down = false;
  Status refusal;                 // ends all requests, unless it is OK
  int64_t max_count = INT64_MAX;  // of a request that can be drawn together
  bool answers_cancel = false;    // ends a cancelled stream on the caller's thread
  int64_t requested = 0;
  std::vector<std::shared_ptr<SampleEvents>> streams;

  std::string address() const override { return "shard:" + std::to_string(shard_); }
  bool in_process() const override { return false; }
  bool is_connected() const override { return !is_down; }
  std::shared_ptr<InsertStream> OpenInsert(const Hello&, std::shared_ptr<InsertEvents>) override {
    return nullptr;
  }
  std::shared_ptr<SampleStream> OpenSample(const Hello&, std::shared_ptr<SampleEvents> events) override {
    auto stream = std::make_shared<Stream>(this, events);
    if (is_down) {
      events->OnClosed(Status::Unavailable("down"));
      return stream;
    }
    streams.push_back(events);
    SampleReply reply;
    reply.welcome.emplace();
    reply.welcome->shard = static_cast<uint32_t>(shard_);
    events->OnReply(std::move(reply), 0);
    return stream;
  }
  void Break() {
    is_down = true;
    for (auto& events : std::exchange(streams, {})) events->OnClosed(Status::Unavailable("gone"));
    kept_.clear();
  }
  // Answers the requests that were kept.
  void Speak() {
    is_silent = false;
    for (auto& [request, events] : std::exchange(kept_, {})) Answer(request, events);
  }

  Result<ServerInfo> Info(const WaitOptions&) override { return Status::Unimplemented("unused"); }
  Status Mutate(const MutateRequest&, const WaitOptions&) override { return Status::Ok(); }
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest&, const WaitOptions&) override {
    return LeaseOutcome{};
  }
  Status Reset(std::string_view, const WaitOptions&) override { return Status::Ok(); }
  Status SetRateLimiter(const SetRateLimiterRequest&, const WaitOptions&) override { return Status::Ok(); }
  Status CreateTable(const CreateTableRequest&, const WaitOptions&) override { return Status::Ok(); }
  Status RemoveTable(std::string_view, const WaitOptions&) override { return Status::Ok(); }
  Status ChangeTable(const ChangeTableRequest&, const WaitOptions&) override { return Status::Ok(); }
  Result<InspectReply> Inspect(const InspectRequest&, const WaitOptions&) override { return InspectReply(); }
  Result<std::string> Checkpoint(const WaitOptions&) override { return std::string(); }

 private:
  class Stream final : public SampleStream {
   public:
    Stream(FakeShard* shard, std::shared_ptr<SampleEvents> events)
        : shard_(shard), events_(std::move(events)) {}
    void Send(SampleRequest request) override {
      if (request.end_stream && events_) return End();
      if (request.table.empty()) return;
      shard_->requested += request.count;
      if (shard_->is_silent) {
        shard_->kept_.emplace_back(std::move(request), events_);
      } else {
        shard_->Answer(request, events_);
      }
    }
    void Finish() override {}
    void Cancel() override {
      const std::shared_ptr<SampleEvents> events = Detach();
      if (events && shard_->answers_cancel) events->OnClosed(Status::Cancelled("by the client"));
    }

   private:
    void End() { Detach()->OnClosed(Status::Cancelled("ended")); }
    // Forgets the stream with its requests, which refer to its sampler.
    std::shared_ptr<SampleEvents> Detach() {
      std::erase(shard_->streams, events_);
      std::erase_if(shard_->kept_, [this](const auto& kept) { return kept.second == events_; });
      return std::exchange(events_, nullptr);
    }

    FakeShard* const shard_;
    std::shared_ptr<SampleEvents> events_;
  };

  void Answer(const SampleRequest& request, const std::shared_ptr<SampleEvents>& events) {
    if (!events) return;
    SampleReply reply;
    reply.request_id = request.request_id;
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (!refusal.ok()) {
      reply.end = refusal;
    } else if (request.count > max_count) {
      reply.end = Status::InvalidArgument("samples that can never be drawn together: " +
                                          std::to_string(request.count));
    } else if (request.count > 0 && (is_blocked || weights.empty())) {
      reply.end = Status::DeadlineExceeded("the limiter of shard " + std::to_string(shard_) + " blocks")
                      .WithDetail(Detail::kRateLimited);
    } else {
      for (int64_t i = 0; i < request.count; ++i) {
        double point = random_.Unit() * total;
        size_t item = 0;
        while (item + 1 < weights.size() && (point -= weights[item]) >= 0) ++item;
        Sample& sample = reply.samples.emplace_back();
        sample.key = shard_ << kShardBit | item;
        sample.probability = is_weighted ? weights[item] / total : 1;
        sample.table_size = static_cast<int64_t>(weights.size());
        if (request.lease > Duration(0)) sample.lease_id = ++last_lease_;
      }
      reply.end = Status::Ok();
    }
    if (request.wants_mass) {
      reply.mass = {.is_weighted = is_weighted,
                    .mass = is_weighted ? total : 0,
                    .size = static_cast<int64_t>(weights.size())};
    }
    events->OnReply(std::move(reply), 10);
  }

  const uint64_t shard_;
  Random random_{77};
  uint64_t last_lease_ = 0;
  std::vector<std::pair<SampleRequest, std::shared_ptr<SampleEvents>>> kept_;
};

class SetSamplerTest : public ::testing::Test {
 protected:
  ~SetSamplerTest() override {
    if (sampler_) sampler_->Close();
  }
  FakeShard& Add(std::vector<double> weights) {
    shards_.push_back(std::make_shared<FakeShard>(shards_.size() + 1, std::move(weights)));
    return *shards_.back();
  }
  std::vector<SetSampler::Server> Servers() {
    std::vector<SetSampler::Server> servers;
    for (const auto& shard : shards_) {
      servers.push_back({.id = reinterpret_cast<uintptr_t>(shard.get()),
                         .address = shard->address(),
                         .create = [shard](SamplerImpl::Options options) {
                           return SamplerImpl::Create([shard](size_t) { return shard; }, std::move(options));
                         }});
    }
    return servers;
  }
  void Create(SamplerImpl::Options options = {}) {
    options.table = "t";
    options.clock = &clock_;
    sampler_ = SetSampler::Create(Servers(), {.sampler = std::move(options), .seed = 5}).value();
  }
  std::vector<Sample> TakeSamples(int64_t count) {
    std::vector<Sample> samples;
    EXPECT_OK(sampler_->Next(count,
                             {.timeout = 60s,
                              .on_wait =
                                  [this] {
                                    clock_.Advance(50ms);  // as time passes
                                    return Status::Ok();
                                  }},
                             &samples));
    return samples;
  }
  std::map<uint32_t, int> CountByShard(int64_t count) {
    std::map<uint32_t, int> counts;
    for (const Sample& sample : TakeSamples(count)) ++counts[ShardOf(sample.key)];
    return counts;
  }
  // Compares the samples of all shards that are up with those of one table.
  void ExpectOneTable(int64_t count) {
    double total = 0;
    int64_t size = 0;
    std::map<uint64_t, double> expected;
    for (const auto& shard : shards_) {
      if (shard->is_down) continue;
      total += std::accumulate(shard->weights.begin(), shard->weights.end(), 0.0);
      size += static_cast<int64_t>(shard->weights.size());
    }
    for (size_t s = 0; s < shards_.size(); ++s) {
      if (shards_[s]->is_down) continue;
      for (size_t i = 0; i < shards_[s]->weights.size(); ++i) {
        expected[(s + 1) << kShardBit | i] = shards_[s]->weights[i] / total;
      }
    }
    std::map<uint64_t, int> counts;
    for (const Sample& sample : TakeSamples(count)) {
      ++counts[sample.key];
      ASSERT_TRUE(expected.contains(sample.key));
      ASSERT_NEAR(sample.probability, expected[sample.key], 1e-12);
      ASSERT_EQ(sample.table_size, size);
    }
    double statistic = 0;
    for (const auto& [key, probability] : expected) {
      const double mean = probability * static_cast<double>(count);
      statistic += (counts[key] - mean) * (counts[key] - mean) / mean;
    }
    const auto freedom = static_cast<double>(std::max<size_t>(1, expected.size() - 1));
    EXPECT_LT((statistic - freedom) / std::sqrt(2 * freedom), 5) << shards_.size() << " shards";
  }

  ManualClock clock_;
  std::vector<std::shared_ptr<FakeShard>> shards_;
  std::shared_ptr<SetSampler> sampler_;
};

std::vector<double> RandomWeights(size_t size) {
  Random random(size);
  std::vector<double> weights(size);
  for (double& weight : weights) weight = 0.1 + random.Unit();
  return weights;
}

TEST_F(SetSamplerTest, SamplesAreThoseOfOneTable) {
  for (const bool exact : {false, true}) {
    for (const std::vector<size_t>& sizes : {std::vector<size_t>{50}, {10, 90}, {1, 70, 30, 150, 19}}) {
      for (const bool uniform : {true, false}) {
        shards_.clear();
        for (const size_t size : sizes) Add(uniform ? std::vector<double>(size, 1.0) : RandomWeights(size));
        Create({.exact = exact});
        ExpectOneTable(30'000);
        sampler_->Close();
      }
    }
  }
}

TEST_F(SetSamplerTest, AShardThatIsLostAndReturns) {
  Add(RandomWeights(20));
  Add(RandomWeights(60));
  Add(RandomWeights(40));
  Create();
  ExpectOneTable(20'000);
  shards_[1]->Break();
  (void)TakeSamples(1000);  // those of the lost one that had arrived
  ExpectOneTable(20'000);
  shards_[1]->is_down = false;
  clock_.Advance(5s);
  (void)TakeSamples(1000);  // those that were chosen before it returned
  ExpectOneTable(20'000);
}

TEST_F(SetSamplerTest, BatchesMixTheShards) {
  Add(std::vector<double>(100, 1.0));
  Add(std::vector<double>(900, 1.0));
  Create({.max_in_flight = 400, .batch_size = 100});
  int total = 0;
  for (int i = 0; i < 50; ++i) {
    const int small = CountByShard(100)[1];
    EXPECT_LT(small, 30);
    total += small;
  }
  EXPECT_NEAR(total, 500, 110);
}

TEST_F(SetSamplerTest, ABlockedShardNeitherDelaysNorEndsTheOthers) {
  Add(std::vector<double>(10, 1.0));
  Add(std::vector<double>(90, 1.0)).is_blocked = true;
  Create({.max_samples = 200, .rate_limiter_timeout = 1s});
  EXPECT_EQ(CountByShard(200)[1], 200);
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kOutOfRange));
}

TEST_F(SetSamplerTest, AShardThatWasBlockedIsUsedAgain) {
  Add(std::vector<double>(50, 1.0));
  Add(std::vector<double>(50, 1.0)).is_blocked = true;
  Create();
  EXPECT_EQ(CountByShard(500)[2], 0);
  shards_[1]->is_blocked = false;
  clock_.Advance(2s);
  (void)TakeSamples(500);
  EXPECT_NEAR(CountByShard(2000)[2], 1000, 150);
}

TEST_F(SetSamplerTest, SamplingEndsWhenTheLimitersOfAllBlock) {
  Add(std::vector<double>(10, 1.0)).is_blocked = true;
  Add({});  // has no item
  Create({.rate_limiter_timeout = 3s});
  int calls = 0;
  const Status status = sampler_
                            ->Next({.on_wait =
                                        [&] {
                                          clock_.Advance(100ms);
                                          return ++calls > 200 ? Status::Internal("too late") : Status::Ok();
                                        }})
                            .status();
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
  EXPECT_THAT(std::string(status.message()), HasSubstr("blocks"));
  EXPECT_GE(calls, 25);
}

TEST_F(SetSamplerTest, AShardThatDoesNotAnswerIsLeftOut) {
  Add(std::vector<double>(50, 1.0));
  Add(std::vector<double>(50, 1.0));
  Create({.max_in_flight = 10});
  EXPECT_GT(CountByShard(200)[2], 50);
  shards_[1]->is_silent = true;
  (void)TakeSamples(100);  // waits for it once
  EXPECT_EQ(CountByShard(500)[2], 0);
  shards_[1]->Speak();
  (void)TakeSamples(100);
  EXPECT_NEAR(CountByShard(2000)[2], 1000, 150);
  const int64_t requested = shards_[0]->requested + shards_[1]->requested;
  sampler_->Close();
  const SampleSource::Stats stats = sampler_->stats();
  EXPECT_EQ(stats.delivered + stats.undelivered + stats.unanswered, requested) << "each is accounted for";
}

TEST_F(SetSamplerTest, APauseOfTheConsumerChangesNoShares) {
  Add(std::vector<double>(50, 1.0));
  Add(std::vector<double>(50, 1.0));
  Create({.max_in_flight = 100});
  (void)TakeSamples(10);
  // A server whose replies the consumer does not take waits for credit.
  for (const auto& shard : shards_) shard->is_silent = true;
  (void)TakeSamples(60);
  clock_.Advance(3s);
  (void)TakeSamples(10);
  for (const auto& shard : shards_) shard->Speak();
  int from_first = 0;
  for (const Sample& sample : TakeSamples(200)) {
    EXPECT_NEAR(sample.probability, 0.01, 1e-12);
    from_first += ShardOf(sample.key) == 1 ? 1 : 0;
  }
  EXPECT_NEAR(from_first, 100, 35);
}

TEST_F(SetSamplerTest, CallsThatTimeOutLeaveOutASilentShard) {
  Add(std::vector<double>(50, 1.0));
  Add(std::vector<double>(50, 1.0));
  Create({.exact = true});
  (void)TakeSamples(1);
  shards_[1]->is_silent = true;
  // Each call ends long before a silent server is left out, and the consumer pauses between them.
  int calls = 0;
  std::vector<Sample> samples;
  while (samples.size() < 10 && ++calls < 100) {
    (void)sampler_->Next(10 - static_cast<int64_t>(samples.size()), kNow, &samples);
    clock_.Advance(300ms);
    (void)sampler_->Next(10 - static_cast<int64_t>(samples.size()), kNow, &samples);
    clock_.Advance(2s);
  }
  EXPECT_EQ(samples.size(), 10u);
}

TEST_F(SetSamplerTest, AShardWithoutItemsIsUsedOnceItHasSome) {
  Add({});
  Add({});
  Create();
  EXPECT_THAT(sampler_->Next(kNow), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("its table is empty")));
  shards_[1]->weights = {1.0};
  EXPECT_EQ(CountByShard(10)[2], 10);
  shards_[0]->weights = {1.0, 1.0, 1.0};
  clock_.Advance(1s);
  (void)TakeSamples(500);
  EXPECT_NEAR(CountByShard(2000)[1], 1500, 150);
}

TEST_F(SetSamplerTest, OrderedShardsTakeTurns) {
  Add(std::vector<double>(10, 1.0)).is_weighted = false;
  Add(std::vector<double>(1000, 1.0)).is_weighted = false;
  Create({.exact = true});
  const std::vector<Sample> samples = TakeSamples(100);
  for (size_t i = 2; i < samples.size(); ++i) EXPECT_EQ(ShardOf(samples[i].key), ShardOf(samples[i - 2].key));
  EXPECT_EQ(samples[0].probability, 1);
  EXPECT_EQ(samples[0].table_size, 1010);
}

TEST_F(SetSamplerTest, ServersJoinAndLeave) {
  Add(std::vector<double>(50, 1.0));
  Create();
  EXPECT_EQ(CountByShard(100)[1], 100);
  Add(std::vector<double>(150, 1.0));
  sampler_->SetServers(Servers());
  (void)TakeSamples(500);
  EXPECT_NEAR(CountByShard(2000)[2], 1500, 150);
  shards_.erase(shards_.begin());
  sampler_->SetServers(Servers());
  (void)TakeSamples(1);
  EXPECT_EQ(CountByShard(500)[2], 500);
}

TEST_F(SetSamplerTest, AServerThatLeavesWhileItsSamplerIsCreated) {
  Add(std::vector<double>(50, 1.0));
  Create();
  const std::vector<SetSampler::Server> first = Servers();
  Add(std::vector<double>(50, 1.0)).answers_cancel = true;  // as a server of this process does
  std::vector<SetSampler::Server> both = Servers();
  both[1].create = [&, create = both[1].create](SamplerImpl::Options options) {
    sampler_->SetServers(first);
    return create(std::move(options));
  };
  sampler_->SetServers(both);
  EXPECT_TRUE(shards_[1]->streams.empty()) << "its sampler was closed";
  EXPECT_EQ(CountByShard(100)[1], 100);
}

TEST_F(SetSamplerTest, FailsWhenAllServersFail) {
  Add(std::vector<double>(50, 1.0)).is_down = true;
  Add(std::vector<double>(50, 1.0)).is_down = true;
  Create({.reconnect_timeout = 1s});
  const Status status = sampler_
                            ->Next({.timeout = 60s,
                                    .on_wait =
                                        [this] {
                                          clock_.Advance(500ms);
                                          return Status::Ok();
                                        }})
                            .status();
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr("all 2 servers failed")));
}

TEST_F(SetSamplerTest, FailsWhenTheLastServerFailsLater) {
  Add(std::vector<double>(50, 1.0)).is_down = true;
  Add(std::vector<double>(50, 1.0));
  Create({.reconnect_timeout = 5s});
  EXPECT_EQ(CountByShard(20)[2], 20);
  clock_.Advance(3s);
  shards_[1]->Break();
  int calls = 0;
  const auto on_wait = [&] {
    clock_.Advance(500ms);
    return ++calls > 40 ? Status::Internal("too late") : Status::Ok();
  };
  Status status;
  while (status.ok()) status = sampler_->Next({.timeout = 60s, .on_wait = on_wait}).status();
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr("all 2 servers failed")));
}

TEST_F(SetSamplerTest, CloseEndsTheStreamsOfServersThatFailed) {
  Add(std::vector<double>(50, 1.0)).refusal = Status::NotFound("no such table");
  Add(std::vector<double>(50, 1.0)).refusal = Status::NotFound("no such table");
  Create();
  EXPECT_THAT(sampler_->Next({.timeout = 60s}), StatusIs(StatusCode::kNotFound));
  sampler_->Close();
  for (const auto& shard : shards_) EXPECT_TRUE(shard->streams.empty());
}

// --- Leases, and batches that are drawn together ---

TEST_F(SetSamplerTest, LeasesAreNotRequestedAhead) {
  Add(std::vector<double>(50, 1.0));
  Add(std::vector<double>(50, 1.0));
  Create({.whole_windows = true, .lease = 10s});
  EXPECT_NE(TakeSamples(1)[0].lease_id, 0u);
  EXPECT_EQ(shards_[0]->requested + shards_[1]->requested, 1);
}

TEST_F(SetSamplerTest, BatchesThatAreDrawnTogetherAreRequestedOneByOne) {
  for (int i = 0; i < 2; ++i) {
    FakeShard& shard = Add(std::vector<double>(10, 1.0));
    shard.is_weighted = false;
    shard.max_count = 4;
  }
  Create({.max_in_flight = 100, .batch_size = 8, .rules = {.all_or_nothing = true}});
  EXPECT_EQ(shards_[0]->requested, 100) << "they are requested ahead nevertheless";
  for (int i = 0; i < 50; ++i) EXPECT_EQ(CountByShard(8)[1], 4);
}

// Two queues of four items each, and batches of eight.
class SetSamplerWholeBatchTest : public SetSamplerTest, public ::testing::WithParamInterface<bool> {
 protected:
  void CreateQueues(std::vector<double> first, std::vector<double> second) {
    Add(std::move(first));
    Add(std::move(second));
    for (const auto& shard : shards_) {
      shard->is_weighted = false;
      shard->max_count = 4;
    }
    const bool is_leased = GetParam();
    Create({.exact = true,
            .batch_size = 8,
            .rules = {.all_or_nothing = !is_leased},
            .lease = is_leased ? Duration(10s) : Duration(0)});
  }
  void ExpectBatch() {
    std::map<uint32_t, int> counts = CountByShard(8);
    EXPECT_EQ(counts[1], 4);
    EXPECT_EQ(counts[2], 4);
  }
  const std::vector<double> full_ = std::vector<double>(4, 1.0);
};

TEST_P(SetSamplerWholeBatchTest, AnEmptyShardDoesNotEndTheOthers) {
  CreateQueues(full_, {});
  std::vector<Sample> samples;
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(sampler_->Next(8, kNow, &samples),
                StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("can never be drawn together: 8")));
    clock_.Advance(300ms);
  }
  shards_[1]->weights = full_;
  ExpectBatch();
  ExpectBatch();
}

TEST_P(SetSamplerWholeBatchTest, AShardThatIsDownDoesNotEndTheOthers) {
  CreateQueues(full_, full_);
  ExpectBatch();
  shards_[1]->Break();
  std::vector<Sample> samples;
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(sampler_->Next(8, kNow, &samples), StatusIs(StatusCode::kDeadlineExceeded));
    clock_.Advance(300ms);
  }
  EXPECT_TRUE(samples.empty());
  shards_[1]->is_down = false;
  ExpectBatch();
}

TEST_P(SetSamplerWholeBatchTest, ABatchThatNoShardCanServeIsAnError) {
  CreateQueues(full_, full_);
  for (const auto& shard : shards_) shard->max_count = 3;
  std::vector<Sample> samples;
  EXPECT_THAT(sampler_->Next(8, {.timeout = 60s}, &samples),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("can never be drawn together: 4")));
}

INSTANTIATE_TEST_SUITE_P(Rules, SetSamplerWholeBatchTest, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "Leased" : "AllOrNothing");
});

}  // namespace
}  // namespace reverb::internal
