// Tests what clients can make a server hold: descriptors, mappings, and replies that they do not take.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_budget.h"
#include "base/random.h"
#include "testing/wait.h"
#include "transport/local/local_memory_testing.h"
#include "transport/local/shared_messages.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using test::WaitUntil;
using ::testing::AllOf;
using ::testing::HasSubstr;

class LocalLimitsTest : public LocalMemoryFixture {
 protected:
  using LocalMemoryFixture::OpenInsert;
  // Opens an insert stream of a client that breaks the rules.
  std::shared_ptr<InsertSessionFake> OpenInsert(RawSocket* raw) {
    raw->Open(Method::kInsert, EncodeInsertHello(test::ExampleHello()));
    return handler_->inserts.Take().value_or(nullptr);
  }
  // A heartbeat that announces a segment.
  static OutgoingFrame Announcement(uint32_t segment, int fd, uint64_t bytes = kMemfdBytes) {
    InsertEncoder encoder;
    return HostileFrame{.announcements = {{.bytes = bytes, .segment = segment}},
                        .descriptors = {fd},
                        .inline_bytes = encoder.Encode(Heartbeat()).Flatten()}
        .Make();
  }
};

TEST_F(LocalLimitsTest, AServerKeepsNoDescriptorsOfItsClients) {
  StartServer();
  RawSocket raw(path_);
  const auto session = OpenInsert(&raw);
  std::vector<Descriptor> memfds;
  for (int i = 0; i < 10; ++i) memfds.push_back(MakeMemfd());
  const size_t before = NumDescriptorsForTesting();
  for (uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(raw.Send(Announcement(i, memfds[i].get())));
    ASSERT_TRUE(session->messages.Take());
  }
  EXPECT_TRUE(WaitUntil([&] { return NumDescriptorsForTesting() == before; })) << NumDescriptorsForTesting();
}

TEST_F(LocalLimitsTest, AServerWithoutDescriptorsAsksAWriterToConnectAgain) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan needs a descriptor to check whether memory is readable";
#endif
  StartServer();
  Insert witness = OpenInsert();
  const Descriptor memfd = MakeMemfd();
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  struct Case {
    rlim_t num_free;
    const char* text;
  };
  for (const Case shortage : {Case{0, "all are in use"}, Case{1, "the rest is reserved for files"}}) {
    SCOPED_TRACE(shortage.text);
    RawSocket raw(path_);
    const auto session = OpenInsert(&raw);
    // The system assigns the lowest numbers: all up to this one are in use from here on.
    std::vector<Descriptor> filling;
    while (filling.empty() || filling.back().get() < 32) filling.emplace_back(dup(0));
    const int first_free = dup(0);
    close(first_free);
    const rlimit few = {.rlim_cur = static_cast<rlim_t>(first_free) + shortage.num_free,
                        .rlim_max = old.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    EXPECT_TRUE(raw.Send(Announcement(0, memfd.get())));
    const Status status = raw.ReceiveStatus();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
    EXPECT_THAT(status,
                StatusIs(StatusCode::kUnavailable, AllOf(HasSubstr("no file descriptors left"),
                                                         HasSubstr(shortage.text), HasSubstr("ulimit -n"))));
    EXPECT_TRUE(session->gone.Take());
  }
  (void)witness.stream->Send(Heartbeat());
  EXPECT_TRUE(witness.session->messages.Take());
  RawSocket again(path_);
  const auto session = OpenInsert(&again);
  EXPECT_TRUE(again.Send(Announcement(0, memfd.get())));
  EXPECT_TRUE(session->messages.Take());
}

TEST_F(LocalLimitsTest, ASegmentOfAClientIsAtMostAsLargeAsThoseOfWriters) {
  StartServer();
  for (const uint64_t excess : {0, 4096}) {
    const uint64_t bytes = SharedMemory::kSegmentBytes + excess;
    const Descriptor memfd = MakeMemfd(F_SEAL_SHRINK, bytes);
    RawSocket raw(path_);
    const auto session = OpenInsert(&raw);
    ASSERT_TRUE(raw.Send(Announcement(0, memfd.get(), bytes)));
    if (excess == 0) {
      EXPECT_TRUE(session->messages.Take());
    } else {
      EXPECT_THAT(raw.ReceiveStatus(),
                  StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 4294967296 bytes")));
    }
  }
}

TEST_F(LocalLimitsTest, TheSegmentsOfAllSocketsOfAClientAreBounded) {
  StartServer();
  Insert witness = OpenInsert();
  std::vector<Descriptor> memfds;
  for (int i = 0; i < 65; ++i) memfds.push_back(MakeMemfd());
  RawSocket first(path_), second(path_);
  const auto first_session = OpenInsert(&first), second_session = OpenInsert(&second);
  for (uint32_t i = 0; i < 64; ++i) {
    const bool is_first = i % 2 == 0;
    ASSERT_TRUE((is_first ? first : second).Send(Announcement(i, memfds[i].get())));
    ASSERT_TRUE((is_first ? first_session : second_session)->messages.Take());
  }
  {
    RawSocket third(path_);
    const auto session = OpenInsert(&third);
    // A segment that is mapped already does not count again.
    ASSERT_TRUE(third.Send(Announcement(0, memfds[0].get())));
    ASSERT_TRUE(session->messages.Take());
    ASSERT_TRUE(third.Send(Announcement(1, memfds[64].get())));
    EXPECT_THAT(third.ReceiveStatus(),
                StatusIs(StatusCode::kResourceExhausted, HasSubstr("at most 64 segments")));
    EXPECT_TRUE(session->gone.Take());
  }
  (void)witness.stream->Send(Heartbeat());
  EXPECT_TRUE(witness.session->messages.Take());
  // What a closed socket has announced is unmapped.
  first.Close();
  ASSERT_TRUE(first_session->gone.Take());
  ASSERT_TRUE(second.Send(Announcement(64, memfds[64].get())));
  EXPECT_TRUE(second_session->messages.Take());
}

// --- Replies that are not taken ---

class UntakenRepliesTest : public LocalLimitsTest {
 protected:
  UntakenRepliesTest() {
    handler_->budget = &budget_;
    Random random(1);
    const ChunkRef chunk = test::MakeChunk(7, {{DType::kFloat32, {100}, CodecPolicy::kNone}}, kRows, &random);
    large_ = Trajectory::Single(chunk, 0, kRows).value();
    handler_->inspected.items.push_back({.key = 1, .trajectory = large_});
    StartServer({.path = {}, .num_threads = 1, .max_pinned_bytes = 0});
  }
  // Sends calls whose replies have 4 MB each, and waits until the server could have answered all.
  void SendCalls(RawSocket* raw, bool has_numbers) {
    (void)raw->Greet();
    for (uint64_t number = 1; number <= kCalls; ++number) {
      const WireMessage request = EncodeInspectRequest({.table = "large", .count = 1});
      ASSERT_TRUE(raw->Send(has_numbers ? MakeCallFrame(FrameKind::kCall, number, request, Method::kInspect)
                                        : MakeFrame(FrameKind::kRequest, request, Method::kInspect)));
    }
    ASSERT_TRUE(WaitUntil([&] { return handler_->texts.total() > 0; }));
    // Other sockets have their turn after a few frames of this one.
    for (uint64_t i = 0; i < kCalls; ++i) ASSERT_OK(connection_->Mutate({.table = "t"}, {.timeout = kLong}));
  }

  static constexpr uint64_t kCalls = 100;
  static constexpr uint32_t kRows = 10'000;
  static constexpr int64_t kReplyBytes = int64_t{400} * kRows;
  MemoryBudget budget_;
  Trajectory large_;
};

TEST_F(UntakenRepliesTest, AClientThatDoesNotTakeItsRepliesGetsNoMore) {
  for (const bool has_numbers : {false, true}) {
    SCOPED_TRACE(has_numbers);
    const int64_t before = handler_->texts.total();
    RawSocket raw(path_);
    SendCalls(&raw, has_numbers);
    EXPECT_LE(handler_->texts.total() - before, 3);
    EXPECT_GT(budget_.usage().replies, kReplyBytes / 2) << "they count";
    EXPECT_LT(budget_.usage().replies, 3 * kReplyBytes);
    for (uint64_t i = 0; i < kCalls; ++i) {
      const std::optional<IncomingFrame> reply = raw.Receive();
      ASSERT_TRUE(reply) << i;
      EXPECT_EQ(reply->header.kind, has_numbers ? FrameKind::kReply : FrameKind::kMessage);
      EXPECT_GT(reply->inline_bytes.size(), static_cast<size_t>(kReplyBytes));
    }
    EXPECT_TRUE(WaitUntil([&] { return budget_.usage().replies == 0; }));
  }
}

TEST_F(UntakenRepliesTest, AClientThatDisconnectsLeavesNoReplies) {
  {
    RawSocket raw(path_);
    SendCalls(&raw, /*has_numbers=*/false);
    EXPECT_GT(budget_.usage().replies, 0);
  }
  EXPECT_TRUE(WaitUntil([&] { return budget_.usage().replies == 0; }));
}

TEST_F(UntakenRepliesTest, SamplesAreChargedByTheirSession) {
  RawSocket raw(path_);
  raw.Open(Method::kSample, EncodeSampleRequest({.hello = test::ExampleHello(), .request = {}}));
  TAKE_OR_FAIL(session, handler_->samples);
  SampleReply reply{.request_id = 1};
  reply.samples.push_back({.key = 5, .trajectory = large_});
  EXPECT_FALSE(session->peer->Reply(std::move(reply)).ready);
  EXPECT_EQ(budget_.usage().replies, 0);
}

TEST(SegmentQuotaTest, TheSegmentsOfAllClientsAreBounded) {
  const auto all = std::make_shared<BoundedSum>(3);
  SegmentQuota one(all, 2), other(all, 2);
  EXPECT_OK(one.Take());
  EXPECT_OK(one.Take());
  EXPECT_THAT(one.Take(), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_OK(other.Take());
  EXPECT_THAT(other.Take(), StatusIs(StatusCode::kUnavailable, HasSubstr("the clients of this server")));
  one.Return();
  EXPECT_OK(other.Take());
  EXPECT_THAT(other.Take(), StatusIs(StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace reverb::internal
