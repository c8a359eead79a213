// Tests threads that read the socket of their stream themselves (SampleStream::Poll).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/local/local_transport_testing.h"
#include "transport/stream_poller.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// Records on which thread events come.
struct ThreadEvents final : SampleEvents {
  void OnReply(SampleReply reply, uint64_t) override {
    if (!reply.welcome) replies.Put(std::this_thread::get_id());
  }
  void OnClosed(Status status) override { closed.Put(std::move(status)); }
  Mailbox<std::thread::id> replies;
  Mailbox<Status> closed;
};

class LocalPollTest : public LocalTransportTest {
 protected:
  void Open() {
    StartServer();
    stream_ = connection_->OpenSample(test::ExampleHello(), events_);
    auto session = handler_->samples.Take();
    ASSERT_TRUE(session);
    session_ = *session;
  }
  void Reply() { session_->peer->Reply({.request_id = 1}); }

  std::shared_ptr<ThreadEvents> events_ = std::make_shared<ThreadEvents>();
  std::shared_ptr<SampleStream> stream_;
  std::shared_ptr<SampleSessionFake> session_;
};

TEST_F(LocalPollTest, EventsComeOnTheThreadThatPolls) {
  Open();
  while (!stream_->Poll(1ms)) std::this_thread::yield();  // the loop may be reading the first frames
  // The loop reads again if this thread does not run for a while.
  int own = 0;
  for (int i = 0; i < 100; ++i) {
    Reply();
    while (events_->replies.total() == i) (void)stream_->Poll(10s);
    if (events_->replies.Take() == std::this_thread::get_id()) ++own;
  }
  EXPECT_GT(own, 10);
}

TEST_F(LocalPollTest, TheLoopReadsWhenNobodyPolls) {
  Open();
  for (int i = 0; i < 3; ++i) {
    (void)stream_->Poll(1ms);
    Reply();
    const auto reader = events_->replies.Take();
    ASSERT_TRUE(reader);
    EXPECT_NE(*reader, std::this_thread::get_id());
  }
}

// Returns how often the threads of this process have gone to sleep, except for the caller's.
int64_t SleepsOfOtherThreads() {
  int64_t total = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    if (thread.path().filename() == std::to_string(gettid())) continue;
    std::ifstream status(thread.path() / "status");
    for (std::string name; status >> name;) {
      int64_t count = 0;
      if (name == "voluntary_ctxt_switches:" && status >> count) total += count;
    }
  }
  return total;
}

TEST_F(LocalPollTest, NoOtherThreadLooksWhileAWaitGoesOn) {
  Open();
  StreamPoller<SampleStream> poller;
  while (!poller.Poll(stream_, 1ms)) std::this_thread::yield();
  EXPECT_TRUE(poller.Poll(stream_, 100ms));  // the last check from before the wait
  const int64_t before = SleepsOfOtherThreads();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(poller.Poll(stream_, 50ms));
  // A check every 20 ms would be 50.
  EXPECT_LT(SleepsOfOtherThreads() - before, 15);
  EXPECT_EQ(events_->replies.total(), 0);
}

TEST_F(LocalPollTest, TheLoopReadsAgainAfterAWait) {
  Open();
  {
    StreamPoller<SampleStream> poller;
    while (!poller.Poll(stream_, 1ms)) std::this_thread::yield();
    EXPECT_TRUE(poller.Poll(stream_, 1ms));
  }
  Reply();
  const auto reader = events_->replies.Take();
  ASSERT_TRUE(reader);
  EXPECT_NE(*reader, std::this_thread::get_id());
}

TEST_F(LocalPollTest, OneThreadReadsAtATime) {
  Open();
  std::atomic<bool> is_done = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (!is_done) {
        if (!stream_->Poll(5ms)) std::this_thread::yield();
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    Reply();
    ASSERT_TRUE(events_->replies.Take());
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(events_->closed.total(), 0);
}

TEST_F(LocalPollTest, AStreamThatIsCancelledDuringAPollIsClosed) {
  Open();
  for (int round = 0; round < 20; ++round) {
    std::thread poller([stream = stream_] {
      while (stream->Poll(20ms)) {
      }
    });
    if (round % 2 == 0) std::this_thread::sleep_for(2ms);  // usually, the thread polls by then
    stream_->Cancel();
    EXPECT_TRUE(events_->closed.Take());
    EXPECT_TRUE(session_->gone.Take());
    poller.join();
    EXPECT_FALSE(stream_->Poll(1ms)) << "it is closed";
    stream_ = connection_->OpenSample(test::ExampleHello(), events_);
    auto session = handler_->samples.Take();
    ASSERT_TRUE(session);
    session_ = *session;
  }
}

TEST_F(LocalPollTest, TheEndOfTheStreamArrivesWithItsReason) {
  for (const bool is_polled : {true, false}) {
    Open();
    (void)stream_->Poll(1ms);
    Reply();
    session_->peer->End(Status::FailedPrecondition("so"));
    if (is_polled) {
      while (stream_->Poll(1s)) {
      }
    }
    const auto closed = events_->closed.Take();
    ASSERT_TRUE(closed);
    EXPECT_THAT(*closed, test::StatusIs(StatusCode::kFailedPrecondition, ::testing::HasSubstr("so")));
    EXPECT_TRUE(events_->replies.Take());
    server_.reset();
  }
}

TEST_F(LocalPollTest, ALostServerEndsAPoll) {
  for (const bool is_polled : {true, false}) {
    Open();
    (void)stream_->Poll(1ms);
    std::thread poller;
    if (is_polled) {
      poller = std::thread([stream = stream_] {
        while (stream->Poll(10s)) {
        }
      });
    }
    server_.reset();
    EXPECT_TRUE(events_->closed.Take());
    if (is_polled) poller.join();
  }
}

}  // namespace
}  // namespace reverb::internal
