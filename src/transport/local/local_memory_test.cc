// Tests messages that refer to shared memory: what is pinned and for how long, and clients that break the rules.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/shared_memory.h"
#include "testing/thread_sanitizer.h"
#include "testing/wait.h"
#include "transport/local/local_memory_testing.h"
#include "transport/local/shared_messages.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using test::Contents;
using test::StatusIs;
using test::WaitUntil;
using ::testing::AllOf;
using ::testing::HasSubstr;

class LocalMemoryTest : public LocalMemoryFixture {
 protected:
  // One column of `rows` raw rows of 400 bytes, in shared memory.
  Trajectory SharedTrajectory(uint32_t rows = 100, uint64_t chunk_id = 7) {
    const ChunkRef chunk =
        test::MakeChunk(chunk_id, {{DType::kFloat32, {100}, CodecPolicy::kNone}}, rows, &random_, &source_);
    return Trajectory::Single(chunk, 0, rows).value();
  }
  SampleReply ReplyOf(Trajectory trajectory) {
    SampleReply reply{.request_id = 1};
    reply.samples.push_back({.key = 5, .trajectory = std::move(trajectory)});
    return reply;
  }
  // Opens a sample stream on which the welcome was received.
  SampleEnds OpenGreeted() {
    SampleEnds sample = OpenSample();
    EXPECT_TRUE(sample.events->replies.Take());
    return sample;
  }
  // Opens a sample stream that does not return anything, and receives a message with references on it.
  std::shared_ptr<SampleSessionFake> OpenRaw(RawSocket* raw) {
    raw->Open(Method::kSample, EncodeSampleRequest({.hello = test::ExampleHello(), .request = {}}));
    std::shared_ptr<SampleSessionFake> session = handler_->samples.Take().value_or(nullptr);
    session->peer->Reply(ReplyOf(SharedTrajectory()));
    while (std::optional<IncomingFrame> frame = raw->Receive()) {
      if (frame->header.kind == FrameKind::kMessage && frame->header.num_references > 0) return session;
    }
    ADD_FAILURE() << "no message with references came";
    return session;
  }

  Random random_{3};
};

TEST_F(LocalMemoryTest, SamplesReferToTheServersMemoryUntilTheyAreReturned) {
  StartServer();
  SampleEnds sample = OpenGreeted();
  std::string contents;
  uint64_t sent_bytes = 0;
  {
    Trajectory trajectory = SharedTrajectory();
    contents = Contents(trajectory);
    sent_bytes = sample.session->peer->Reply(ReplyOf(std::move(trajectory))).bytes;
  }
  {
    TAKE_OR_FAIL(got, sample.events->replies);
    EXPECT_EQ(got.bytes, sent_bytes);
    EXPECT_GT(sent_bytes, 40'000u);
    EXPECT_EQ(source_.num_blocks, 1) << "the sample refers to it";
    EXPECT_EQ(Contents(got.reply.samples[0].trajectory), contents);
  }
  EXPECT_TRUE(NothingIsPinned());
}

TEST_F(LocalMemoryTest, TheBodyOfALargeMessageIsInSharedMemory) {
  StartServer();
  const auto reply_of = [&](size_t count) {
    SampleReply reply{.request_id = 1, .shared_columns = true};
    for (uint32_t i = 0; i < count; ++i) {
      const ChunkRef chunk = test::MakeChunk(
          i, {{DType::kFloat32, {100}, CodecPolicy::kNone}, {DType::kInt8}}, 20, &random_, &source_);
      std::vector<ColumnSpec> columns(2);
      columns[0].slices = {{chunk, 0, i % 20, 1}};
      columns[1].slices = {{chunk, 1, i % 20, 1}};
      reply.samples.push_back({.key = i, .trajectory = Trajectory::Create(columns).value()});
    }
    return reply;
  };
  {
    RawSocket raw(path_);
    const auto session = OpenRaw(&raw);
    session->peer->Reply(reply_of(256));
    const std::optional<IncomingFrame> frame = raw.Receive();
    ASSERT_TRUE(frame);
    EXPECT_TRUE(frame->header.has_body());
    EXPECT_EQ(frame->header.num_references, 512u) << "short rows too";
    EXPECT_TRUE(frame->inline_bytes.empty());
  }
  const auto in_use = [] { return ProcessSharedMemory()->stats().allocated_bytes; };
  SampleEnds sample = OpenGreeted();
  const auto before = in_use();
  for (int round = 0; round < 3; ++round) {
    const SampleReply reply = reply_of(256);
    std::vector<std::string> contents;
    for (const Sample& each : reply.samples) contents.push_back(Contents(each.trajectory));
    sample.session->peer->Reply(reply);
    TAKE_OR_FAIL(got, sample.events->replies);
    ASSERT_EQ(got.reply.samples.size(), 256u);
    for (size_t i = 0; i < 256; ++i) {
      EXPECT_EQ(got.reply.samples[i].key, i);
      EXPECT_EQ(Contents(got.reply.samples[i].trajectory), contents[i]);
    }
  }
  EXPECT_TRUE(NothingIsPinned());
  EXPECT_TRUE(WaitUntil([&] { return in_use() <= before; })) << "nor are the bodies";
}

TEST_F(LocalMemoryTest, ABodyIsCheckedAndCopied) {
  SharedMemory* const memory = ProcessSharedMemory();
  uint8_t* const block = memory->Allocate(4096);
  ASSERT_NE(block, nullptr);
  const SharedMemory::Location at = memory->Find(block).value();
  std::memset(block, 0x11, 4096);
  SegmentTable segments(4);
  const auto take = [&](uint64_t body, uint64_t inline_bytes, uint32_t references, bool announces,
                        IncomingFrame* frame) {
    *frame = {};
    frame->header.kind = FrameKind::kMessage;
    frame->header.body = body;
    frame->header.inline_bytes = inline_bytes;
    frame->header.num_references = references;
    if (announces) {
      frame->announcements.push_back({.bytes = memory->segment_bytes(), .segment = at.segment});
      frame->descriptors.emplace_back(fcntl(memory->descriptor(at.segment), F_DUPFD_CLOEXEC, 0));
    }
    return segments.TakeBody(frame);
  };
  const uint64_t place = MakePlace(at.segment, at.offset);
  IncomingFrame frame;
  EXPECT_THAT(take(place, 100, 0, false, &frame),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("announced")));
  EXPECT_OK(take(place, 100, 1, true, &frame));
  std::memset(block, 0x22, 4096);
  ASSERT_EQ(frame.inline_bytes.size(), 100u);
  EXPECT_EQ(frame.inline_bytes[99], 0x11);
  ASSERT_EQ(frame.references.size(), 1u);
  EXPECT_EQ(frame.references[0].length, 0x1111'1111u);
  EXPECT_THAT(take(MakePlace(at.segment, memory->segment_bytes() - 99), 100, 0, false, &frame),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not all in a segment")));
  EXPECT_THAT(take(place, UINT64_MAX - 8, 1, false, &frame),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not all in a segment")));
  memory->Free(block, 4096);
}

TEST_F(LocalMemoryTest, ReturnsTravelWithTheNextRequest) {
  StartServer();
  SampleEnds sample = OpenGreeted();
  for (int i = 0; i < 200; ++i) {
    sample.session->peer->Reply(ReplyOf(SharedTrajectory()));
    ASSERT_TRUE(sample.events->replies.Take());
    sample.stream->Send({.request_id = 1, .table = "t", .count = 1});
    ASSERT_TRUE(sample.session->requests.Take());
  }
  EXPECT_TRUE(NothingIsPinned());
}

TEST_F(LocalMemoryTest, ItemsAreCopiedFromTheWritersMemory) {
  StartServer();
  Insert insert = OpenInsert();
  for (uint64_t number = 1; number <= 50; ++number) {
    std::string contents;
    {
      Trajectory trajectory = SharedTrajectory(100, number);
      contents = Contents(trajectory);
      const InsertStream::Sent sent = insert.stream->Send(MessageOf(number, std::move(trajectory)));
      EXPECT_GT(sent.bytes, 40'000u);
      EXPECT_TRUE(sent.ready) << "a reference always fits into the socket";
    }
    TAKE_OR_FAIL(message, insert.session->messages);
    EXPECT_EQ(Contents(message.items[0].trajectory), contents);
    EXPECT_TRUE(NothingIsPinned()) << "the server has its own copy";
    EXPECT_EQ(Contents(message.items[0].trajectory), contents);
  }
}

TEST_F(LocalMemoryTest, AClientThatHoldsMuchCopiesTheRest) {
  StartServer({.path = {}, .max_pinned_bytes = 200'000});
  SampleEnds sample = OpenGreeted();
  std::vector<SampleReply> held;
  std::vector<std::string> contents;
  for (int i = 0; i < 20; ++i) {
    Trajectory trajectory = SharedTrajectory();
    contents.push_back(Contents(trajectory));
    sample.session->peer->Reply(ReplyOf(std::move(trajectory)));
    TAKE_OR_FAIL(got, sample.events->replies);
    held.push_back(std::move(got.reply));
  }
  // Half of the limit: two samples of 40 kB.
  EXPECT_TRUE(WaitUntil([&] { return source_.num_blocks <= 2; })) << source_.num_blocks;
  EXPECT_GT(source_.num_blocks, 0);
  for (size_t i = 0; i < held.size(); ++i) EXPECT_EQ(Contents(held[i].samples[0].trajectory), contents[i]);
  held.clear();
  EXPECT_TRUE(NothingIsPinned());
}

TEST_F(LocalMemoryTest, AServerCopiesWhatExceedsTheLimit) {
  StartServer({.path = {}, .max_pinned_bytes = 50'000});
  RawSocket raw(path_);
  const auto session = OpenRaw(&raw);  // holds 40 kB
  EXPECT_EQ(source_.num_blocks, 1);
  session->peer->Reply(ReplyOf(SharedTrajectory()));
  const std::optional<IncomingFrame> inline_message = raw.Receive();
  ASSERT_TRUE(inline_message);
  EXPECT_EQ(inline_message->header.num_references, 0u);
  EXPECT_GT(inline_message->inline_bytes.size(), 40'000u);
  EXPECT_TRUE(WaitUntil([&] { return source_.num_blocks == 1; }));
}

TEST_F(LocalMemoryTest, TheLimitIsOfAllSocketsOfAProcess) {
  StartServer({.path = {}, .max_pinned_bytes = 50'000});
  RawSocket other(path_);
  other.Open(Method::kSample, EncodeSampleRequest({.hello = test::ExampleHello(), .request = {}}));
  TAKE_OR_FAIL(other_session, handler_->samples);
  // Returns the number of references of the next message to it.
  const auto next_references = [&]() -> size_t {
    while (std::optional<IncomingFrame> frame = other.Receive()) {
      if (frame->header.kind == FrameKind::kMessage) return frame->header.num_references;
    }
    return SIZE_MAX;
  };
  EXPECT_EQ(next_references(), 0u) << "the welcome";
  {
    RawSocket raw(path_);
    const auto session = OpenRaw(&raw);  // holds 40 kB
    other_session->peer->Reply(ReplyOf(SharedTrajectory()));
    EXPECT_EQ(next_references(), 0u);
    raw.Close();
    EXPECT_TRUE(session->gone.Take());
    EXPECT_TRUE(NothingIsPinned());
  }
  other_session->peer->Reply(ReplyOf(SharedTrajectory()));
  EXPECT_EQ(next_references(), 1u) << "a closed socket holds nothing";
}

TEST_F(LocalMemoryTest, HeldSamplesAreCopiedWhenTheServerAsksForThem) {
  StartServer({.path = {}, .stalled_client_timeout = 400ms});
  SampleEnds sample = OpenGreeted();
  Trajectory trajectory = SharedTrajectory();
  const std::string contents = Contents(trajectory);
  sample.session->peer->Reply(ReplyOf(std::move(trajectory)));
  TAKE_OR_FAIL(got, sample.events->replies);
  trajectory = {};
  EXPECT_TRUE(NothingIsPinned()) << "the server has the memory back although the sample is held";
  EXPECT_EQ(Contents(got.reply.samples[0].trajectory), contents) << "nor is it overwritten";
  // Further messages do not see the copied pages.
  for (int i = 0; i < 5; ++i) {
    Trajectory next = SharedTrajectory();
    const std::string next_contents = Contents(next);
    sample.session->peer->Reply(ReplyOf(std::move(next)));
    TAKE_OR_FAIL(further, sample.events->replies);
    EXPECT_EQ(Contents(further.reply.samples[0].trajectory), next_contents);
  }
  EXPECT_EQ(Contents(got.reply.samples[0].trajectory), contents);
  EXPECT_EQ(sample.events->closed.total(), 0) << "such a client is not disconnected";
}

TEST_F(LocalMemoryTest, HeldSamplesOutliveTheirStream) {
  StartServer();
  for (const bool by_server : {false, true}) {
    SampleEnds sample = OpenGreeted();
    Trajectory trajectory = SharedTrajectory();
    const std::string contents = Contents(trajectory);
    sample.session->peer->Reply(ReplyOf(std::move(trajectory)));
    TAKE_OR_FAIL(got, sample.events->replies);
    trajectory = {};
    by_server ? sample.session->peer->End(Status::Ok()) : sample.stream->Cancel();
    ASSERT_TRUE(sample.events->closed.Take());
    ASSERT_TRUE(sample.session->gone.Take());
    EXPECT_TRUE(NothingIsPinned());
    EXPECT_EQ(Contents(got.reply.samples[0].trajectory), contents);
  }
}

TEST_F(LocalMemoryTest, AClientThatReturnsNothingIsDisconnectedAndItsLeaseRevoked) {
  WarningsForTest warnings;
  StartServer({.path = {}, .stalled_client_timeout = 200ms});
  RawSocket raw(path_);
  raw.Open(Method::kSample, EncodeSampleRequest({.hello = test::ExampleHello(), .request = {}}));
  TAKE_OR_FAIL(session, handler_->samples);
  SegmentTable segments(4);
  std::shared_ptr<const MappedSegment> mapping;
  const std::atomic<uint64_t>* word = nullptr;
  std::optional<IncomingFrame> frame = raw.Receive();
  ASSERT_TRUE(frame && frame->header.kind == FrameKind::kLease);
  ASSERT_OK(segments.ResolveLease(&*frame, &mapping, &word));
  EXPECT_EQ(word->load(), frame->header.number);
  const uint64_t value = frame->header.number;
  session->peer->Reply(ReplyOf(SharedTrajectory()));
  EXPECT_TRUE(session->gone.Take());
  EXPECT_TRUE(NothingIsPinned());
  EXPECT_NE(word->load(), value);
  EXPECT_THAT(
      raw.ReceiveStatus(),
      StatusIs(StatusCode::kUnavailable,
               AllOf(HasSubstr("the server has disconnected this client: it has not returned memory that"),
                     HasSubstr("(stalled_client_timeout)"))));
  TAKE_OR_FAIL(logged, warnings.messages);
  EXPECT_THAT(logged, AllOf(HasSubstr("disconnected the client " + test::ExampleHello().client_name +
                                      " at pid " + std::to_string(getpid()) + " of user " +
                                      std::to_string(geteuid()) + ": it has not returned memory"),
                            HasSubstr("(stalled_client_timeout)")));
}

TEST_F(LocalMemoryTest, ReadingFailsAfterTheLeaseWasRevoked) {
  // Stops the thread that receives, as if the process were stopped.
  struct StoppingEvents final : SampleEvents {
    void OnReply(SampleReply reply, uint64_t) override {
      if (reply.samples.empty()) return;
      replies.Put(std::move(reply));
      (void)release.Take();
    }
    void OnClosed(Status status) override { closed.Put(std::move(status)); }
    Mailbox<SampleReply> replies;
    Mailbox<bool> release;
    Mailbox<Status> closed;
  };
  StartServer();
  auto events = std::make_shared<StoppingEvents>();
  auto stream = connection_->OpenSample(test::ExampleHello(), events);
  TAKE_OR_FAIL(session, handler_->samples);
  session->peer->Reply(ReplyOf(SharedTrajectory()));
  TAKE_OR_FAIL(reply, events->replies);
  std::vector<uint8_t> bytes(100 * 400);
  EXPECT_OK(reply.samples[0].trajectory.Read(0, bytes));
  server_.reset();  // does not wait for this client
  EXPECT_EQ(source_.num_blocks, 0);
  EXPECT_THAT(reply.samples[0].trajectory.Read(0, bytes),
              StatusIs(StatusCode::kUnavailable, HasSubstr("taken back the memory")));
  events->release.Put(true);
  EXPECT_TRUE(events->closed.Take());
  EXPECT_THAT(reply.samples[0].trajectory.Read(0, bytes), StatusIs(StatusCode::kUnavailable));
}

// --- Clients that break the rules ---

TEST_F(LocalMemoryTest, HostileReferencesEndOnlyTheirStream) {
  StartServer();
  Insert witness = OpenInsert();
  const Descriptor sealed = MakeMemfd(), unsealed = MakeMemfd(0),
                   directory(open("/tmp", O_RDONLY | O_CLOEXEC));
  const FrameAnnouncement announcement{.bytes = kMemfdBytes, .segment = 3};
  const uint64_t segment = uint64_t{3} << 48;
  // A heartbeat, with an unknown field of bytes at the end, whose contents are elsewhere.
  const std::string outside = EncodeSampleRequest({}).Flatten() + std::string("\xfa\x3f\x80\x02", 4);
  struct Case {
    const char* name;
    HostileFrame frame;
    const char* text;
  };
  const std::vector<Case> cases = {
      {"unannounced", {.references = {{.at = 0, .length = 256, .place = segment}}}, "was not announced"},
      {"no descriptor", {.announcements = {announcement}}, "did not arrive"},
      {"too many descriptors",
       {.descriptors = std::vector<int>(64, sealed.get()), .inline_bytes = {}},
       "descriptors without announcements"},
      {"unsealed", {.announcements = {announcement}, .descriptors = {unsealed.get()}}, "not sealed"},
      {"no memfd", {.announcements = {announcement}, .descriptors = {directory.get()}}, "not a memfd"},
      {"wrong size",
       {.announcements = {{.bytes = kMemfdBytes + 4096, .segment = 3}}, .descriptors = {sealed.get()}},
       "were announced"},
      {"huge size",
       {.announcements = {{.bytes = UINT64_MAX, .segment = 3}}, .descriptors = {sealed.get()}},
       "announced"},
      {"offset beyond the end",
       {.announcements = {announcement},
        .references = {{.at = 0, .length = 256, .place = segment | (kMemfdBytes - 255)}},
        .descriptors = {sealed.get()}},
       "not all in a segment"},
      {"largest offset",
       {.announcements = {announcement},
        .references = {{.at = 0, .length = UINT32_MAX, .place = segment | ((uint64_t{1} << 48) - 1)}},
        .descriptors = {sealed.get()}},
       "not all in a segment"},
      {"position beyond the inline bytes",
       {.announcements = {announcement},
        .references = {{.at = 9, .length = 256, .place = segment}},
        .descriptors = {sealed.get()}},
       "position 9"},
      {"decreasing positions",
       {.announcements = {announcement},
        .references = {{.at = 2, .length = 256, .place = segment},
                       {.at = 1, .length = 256, .place = segment}},
        .descriptors = {sealed.get()},
        .inline_bytes = "abc"},
       "position 1"},
      {"empty reference",
       {.announcements = {announcement},
        .references = {{.at = 0, .length = 0, .place = segment}},
        .descriptors = {sealed.get()}},
       "empty"},
      {"announced twice",
       {.announcements = {announcement, announcement}, .descriptors = {sealed.get(), sealed.get()}},
       "announced twice"},
      {"outside of payloads",
       {.announcements = {announcement},
        .references = {{.at = static_cast<uint32_t>(outside.size()), .length = 256, .place = segment}},
        .descriptors = {sealed.get()},
        .inline_bytes = outside},
       "only payloads"},
      {"a whole message",
       {.announcements = {announcement},
        .references = {{.at = 0, .length = 256, .place = segment}},
        .descriptors = {sealed.get()}},
       ""},
  };
  const size_t before = NumDescriptorsForTesting();
  for (const Case& hostile : cases) {
    SCOPED_TRACE(hostile.name);
    RawSocket raw(path_);
    raw.Open(Method::kInsert, EncodeInsertHello(test::ExampleHello()));
    TAKE_OR_FAIL(session, handler_->inserts);
    (void)raw.Send(hostile.frame.Make());
    if (std::string_view(hostile.name) == "too many descriptors") (void)raw.Send(hostile.frame.Make());
    const Status status = raw.ReceiveStatus();
    EXPECT_THAT(status.code(), testing::AnyOf(StatusCode::kInvalidArgument, StatusCode::kResourceExhausted,
                                              StatusCode::kDataLoss))
        << status.ToString();
    EXPECT_THAT(std::string(status.message()), HasSubstr(hostile.text));
    EXPECT_TRUE(session->gone.Take());
  }
  EXPECT_TRUE(WaitUntil([&] { return NumDescriptorsForTesting() == before; })) << "nothing leaks";
  (void)witness.stream->Send(Heartbeat());
  EXPECT_TRUE(witness.session->messages.Take());
}

TEST_F(LocalMemoryTest, PayloadsAreVerifiedAfterTheyWereCopied) {
  StartServer();
  const Trajectory trajectory = SharedTrajectory(1);
  std::string payload(400, '\0');
  ASSERT_OK(trajectory.Read(0, {reinterpret_cast<uint8_t*>(payload.data()), payload.size()}));
  InsertEncoder encoder;
  std::string message = encoder.Encode(MessageOf(1, trajectory)).Flatten();
  const size_t at = message.find(payload);
  ASSERT_NE(at, std::string::npos);
  message.erase(at, payload.size());
  const Descriptor memfd = MakeMemfd();
  EXPECT_NE(ftruncate(memfd.get(), 0), 0) << "a sealed segment does not shrink";
  ASSERT_EQ(pwrite(memfd.get(), payload.data(), payload.size(), 64), 400);
  for (const bool is_damaged : {false, true}) {
    if (is_damaged) {
      // Reads as zeros from now on.
      ASSERT_EQ(fallocate(memfd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kMemfdBytes), 0);
    }
    RawSocket raw(path_);
    raw.Open(Method::kInsert, EncodeInsertHello(test::ExampleHello()));
    TAKE_OR_FAIL(session, handler_->inserts);
    const HostileFrame frame{
        .announcements = {{.bytes = kMemfdBytes, .segment = 1}},
        .references = {{.at = static_cast<uint32_t>(at), .length = 400, .place = uint64_t{1} << 48 | 64}},
        .descriptors = {memfd.get()},
        .inline_bytes = message};
    ASSERT_TRUE(raw.Send(frame.Make()));
    if (is_damaged) {
      EXPECT_THAT(raw.ReceiveStatus(), StatusIs(StatusCode::kDataLoss));
      EXPECT_TRUE(session->gone.Take());
    } else {
      TAKE_OR_FAIL(received, session->messages);
      EXPECT_EQ(Contents(received.items[0].trajectory), Contents(trajectory));
    }
  }
}

TEST_F(LocalMemoryTest, ReturnsOfMessagesThatWereNotSentEndTheStream) {
  StartServer();
  RawSocket raw(path_);
  const auto session = OpenRaw(&raw);
  const uint64_t number = 77;
  FrameHeader header;
  header.kind = FrameKind::kReturn;
  header.inline_bytes = sizeof number;
  raw.Send(std::string(reinterpret_cast<const char*>(&header), sizeof header) +
           std::string(reinterpret_cast<const char*>(&number), sizeof number));
  EXPECT_THAT(raw.ReceiveStatus(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("message 77")));
  raw.Close();
  EXPECT_TRUE(session->gone.Take());
  EXPECT_TRUE(NothingIsPinned());
}

// --- Processes ---

#ifndef REVERB_TSAN
TEST_F(LocalMemoryTest, AKilledClientReleasesItsMemoryAtOnce) {
  StartServer();
  ChildProcess child([&] {
    RawSocket raw(path_);
    raw.Open(Method::kSample, EncodeSampleRequest({.hello = test::ExampleHello(), .request = {}}));
    while (raw.Receive()) {
    }
  });
  TAKE_OR_FAIL(session, handler_->samples);
  session->peer->Reply(ReplyOf(SharedTrajectory()));
  EXPECT_EQ(source_.num_blocks, 1);
  child.Kill(SIGKILL);
  EXPECT_TRUE(session->gone.Take());
  EXPECT_TRUE(NothingIsPinned());
}

TEST_F(LocalMemoryTest, AStoppedClientIsDisconnected) {
  StartServer({.path = {}, .stalled_client_timeout = 200ms});
  ChildProcess child([&] {
    RawSocket raw(path_);
    raw.Open(Method::kSample, EncodeSampleRequest({.hello = test::ExampleHello(), .request = {}}));
    while (raw.Receive()) {
    }
  });
  TAKE_OR_FAIL(session, handler_->samples);
  child.Stop();
  session->peer->Reply(ReplyOf(SharedTrajectory()));
  EXPECT_TRUE(session->gone.Take());
  EXPECT_TRUE(NothingIsPinned());
}

TEST_F(LocalMemoryTest, CallsEndWhenTheServerIsKilled) {
  // The server in the child uses the handler of its copy of this process.
  int started[2];
  ASSERT_EQ(pipe(started), 0);
  ChildProcess child([&] {
    auto server = LocalServer::Start({.path = path_}, handler_);
    (void)!write(started[1], server.ok() ? "y" : "n", 1);
    pause();
  });
  char is_started = 0;
  ASSERT_EQ(read(started[0], &is_started, 1), 1);
  ASSERT_EQ(is_started, 'y');
  const auto connection = ConnectLocal({.path = path_}).value();
  ASSERT_OK(connection->Reset("t", {.timeout = kLong}));
  auto events = std::make_shared<InsertEventsFake>();
  auto stream = connection->OpenInsert(test::ExampleHello(), events);
  ASSERT_TRUE(events->replies.Take());
  child.Stop();
  EXPECT_THAT(connection->Reset("t", {.timeout = 100ms}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("Reset")));
  child.Kill(SIGKILL);
  TAKE_OR_FAIL(closed, events->closed);
  EXPECT_THAT(closed, StatusIs(StatusCode::kUnavailable, HasSubstr(path_)));
  EXPECT_FALSE(connection->is_connected());
  EXPECT_THAT(connection->Reset("t", {.timeout = Duration(0)}), StatusIs(StatusCode::kUnavailable));
  close(started[0]);
  close(started[1]);
}

TEST_F(LocalMemoryTest, AChildUsesSocketsOfItsOwn) {
  StartServer();
  ASSERT_OK(connection_->Reset("before", {}));
  Insert insert = OpenInsert();
  SampleEnds sample = OpenGreeted();
  ChildProcess child([&] {
    EXPECT_OK(connection_->Reset("child", {.timeout = kLong}));
    // The parent's streams are closed here, and the parent does not notice.
    EXPECT_EQ(insert.stream->Send(Heartbeat()).bytes, 0u);
    const auto closed = insert.events->closed.Take();
    EXPECT_TRUE(closed && closed->code() == StatusCode::kUnavailable);
    sample.stream->Cancel();
    EXPECT_TRUE(sample.events->closed.Take());
    auto events = std::make_shared<InsertEventsFake>();
    auto stream = connection_->OpenInsert(test::ExampleHello(), events);
    EXPECT_TRUE(events->replies.Take());
    EXPECT_GT(stream->Send(Heartbeat()).bytes, 0u);
    stream->Finish();
    const auto finished = events->closed.Take();
    EXPECT_TRUE(finished && finished->ok());
  });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_OK(connection_->Reset("after", {}));
  EXPECT_GT(insert.stream->Send(Heartbeat()).bytes, 0u);
  EXPECT_TRUE(insert.session->messages.Take());
  EXPECT_EQ(insert.events->closed.total(), 0);
  EXPECT_EQ(sample.events->closed.total(), 0);
}
#endif

}  // namespace
}  // namespace reverb::internal
