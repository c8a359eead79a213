// Tests calls on row tables, whose data is in shared memory in both directions, and clients that break the rules.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "testing/thread_sanitizer.h"
#include "testing/wait.h"
#include "transport/local/local_memory_testing.h"
#include "transport/local/shared_messages.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using test::StatusIs;
using test::WaitUntil;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int64_t kLength = 10'000;  // of a value

std::vector<int32_t> ValuesFrom(int32_t first) {
  std::vector<int32_t> values(kLength);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<int32_t> ReadValues(const RowSegment& segment) {
  std::vector<int32_t> values(kLength);
  EXPECT_OK(ReadSegment(segment, {reinterpret_cast<uint8_t*>(values.data()), values.size() * 4}));
  return values;
}

class LocalRowsTest : public LocalMemoryFixture {
 protected:
  // A chunk with one value of 40 kB.
  ChunkRef SharedRow(int32_t first) {
    const std::vector<int32_t> values = ValuesFrom(first);
    const std::vector<int64_t> dims = {kLength};
    const std::vector<TensorView> row = {TensorView{DType::kInt32, dims, values.data()}};
    return EncodeRow(row, &source_).value();
  }
  RowsRequest PutRequest(int32_t first) {
    RowsRequest request;
    request.call.verb = RowsVerb::kPut;
    request.call.table = "rollouts";
    request.call.write.columns = {"tokens"};
    request.rows.push_back({.key = "a", .chunk = SharedRow(first)});
    return request;
  }
  RowsReply ReplyOf(int32_t first) {
    RowsReply reply;
    reply.result.columns = {"tokens"};
    RowRecord& row = reply.rows.emplace_back();
    row.key = "a";
    row.num_segments = {1};
    row.segments.push_back({.chunk = SharedRow(first)});
    reply.rows_with_data = 1;
    return reply;
  }
  static RowsRequest Get() {
    RowsRequest request;
    request.call.verb = RowsVerb::kGet;
    request.call.table = "rollouts";
    return request;
  }
  void AnswerWithRows() {
    handler_->on_rows = [this](const RowsRequest&) -> Result<RowsReply> { return ReplyOf(next_++); };
  }

  std::atomic<int32_t> next_{0};
};

TEST_F(LocalRowsTest, RowsReferToTheServersMemoryUntilTheyAreDestroyed) {
  AnswerWithRows();
  StartServer();
  {
    const Result<RowsReply> first = connection_->Rows(Get(), {.timeout = kLong});
    const Result<RowsReply> second = connection_->Rows(Get(), {.timeout = kLong});
    ASSERT_OK(first);
    ASSERT_OK(second);
    EXPECT_TRUE(first->rows[0].segments[0].chunk->is_scattered()) << "nothing was copied";
    EXPECT_EQ(source_.num_blocks, 2);
    EXPECT_EQ(ReadValues(first->rows[0].segments[0]), ValuesFrom(0));
    EXPECT_EQ(ReadValues(second->rows[0].segments[0]), ValuesFrom(1));
  }
  EXPECT_TRUE(NothingIsPinned());
}

TEST_F(LocalRowsTest, WrittenRowsAreCopiedFromTheWritersMemory) {
  std::vector<RowsRequest> received;
  handler_->on_rows = [&](RowsRequest request) -> Result<RowsReply> {
    received.push_back(std::move(request));
    return RowsReply();
  };
  StartServer();
  for (int32_t i = 0; i < 50; ++i) {
    ASSERT_OK(connection_->Rows(PutRequest(i), {.timeout = kLong}));
    EXPECT_TRUE(NothingIsPinned()) << "the server has its own copy";
  }
  ASSERT_EQ(received.size(), 50u);
  for (int32_t i = 0; i < 50; ++i) {
    const RowSegment segment{.chunk = received[static_cast<size_t>(i)].rows[0].chunk};
    EXPECT_EQ(ReadValues(segment), ValuesFrom(i));
  }
}

TEST_F(LocalRowsTest, HeldRowsAreCopiedWhenTheServerAsksForThem) {
  AnswerWithRows();
  StartServer({.path = {}, .stalled_client_timeout = 400ms});
  const Result<RowsReply> held = connection_->Rows(Get(), {.timeout = kLong});
  ASSERT_OK(held);
  EXPECT_TRUE(NothingIsPinned()) << "the server has the memory back although the rows are held";
  EXPECT_EQ(ReadValues(held->rows[0].segments[0]), ValuesFrom(0)) << "nor are they overwritten";
  const Result<RowsReply> next = connection_->Rows(Get(), {.timeout = kLong});
  ASSERT_OK(next);
  EXPECT_EQ(ReadValues(next->rows[0].segments[0]), ValuesFrom(1));
}

TEST_F(LocalRowsTest, HeldRowsOutliveTheirConnectionAndTheServer) {
  AnswerWithRows();
  StartServer();
  const Result<RowsReply> first = connection_->Rows(Get(), {.timeout = kLong});
  ASSERT_OK(first);
  connection_.reset();
  EXPECT_TRUE(NothingIsPinned());
  EXPECT_EQ(ReadValues(first->rows[0].segments[0]), ValuesFrom(0));
}

TEST_F(LocalRowsTest, ErrorsOfTheServerDoNotEndTheSocket) {
  handler_->on_rows = [&](const RowsRequest&) -> Result<RowsReply> {
    return Status::NotFound("there is no row table \"rollouts\"");
  };
  StartServer();
  ASSERT_THAT(connection_->Rows(Get(), {.timeout = kLong}), StatusIs(StatusCode::kNotFound));
  const size_t before = NumDescriptorsForTesting();
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(connection_->Rows(Get(), {.timeout = kLong}), StatusIs(StatusCode::kNotFound));
  }
  EXPECT_EQ(NumDescriptorsForTesting(), before);
}

TEST_F(LocalRowsTest, ACallThatIsGivenUpIsCancelledAtTheServer) {
  StartServer();
  EXPECT_THAT(connection_->Rows(Get(), {.timeout = 100ms}), StatusIs(StatusCode::kDeadlineExceeded));
  TAKE_OR_FAIL(done, handler_->rows);
  EXPECT_TRUE(handler_->cancelled_rows.Take());
  EXPECT_FALSE(done(ReplyOf(0))) << "what it would have got is given back";
  EXPECT_TRUE(NothingIsPinned());
}

TEST_F(LocalRowsTest, AWaitingCallGetsItsReplyFromAnotherThread) {
  StartServer();
  std::optional<Result<RowsReply>> reply;
  std::thread caller([&] { reply = connection_->Rows(Get(), {.timeout = kLong}); });
  TAKE_OR_FAIL(done, handler_->rows);
  EXPECT_TRUE(done(ReplyOf(5)));
  caller.join();
  ASSERT_OK(*reply);
  EXPECT_EQ(ReadValues((*reply)->rows[0].segments[0]), ValuesFrom(5));
}

TEST_F(LocalRowsTest, AClientThatReturnsNothingIsDisconnected) {
  AnswerWithRows();
  StartServer({.path = {}, .stalled_client_timeout = 200ms});
  RawSocket raw(path_);
  raw.Open(Method::kRows, EncodeRowsRequest(Get()));
  while (std::optional<IncomingFrame> frame = raw.Receive()) {
    if (frame->header.kind != FrameKind::kMessage) continue;
    EXPECT_GT(frame->header.num_references, 0u);
  }
  EXPECT_TRUE(NothingIsPinned());
}

TEST_F(LocalRowsTest, AStoppedServerEndsTheCallAndAnotherOneIsFound) {
  AnswerWithRows();
  StartServer();
  ASSERT_OK(connection_->Rows(Get(), {.timeout = kLong}));
  for (int i = 0; i < 20; ++i) {
    server_.reset();
    auto server = LocalServer::Start({.path = path_}, handler_);
    ASSERT_OK(server);
    server_ = *std::move(server);
    EXPECT_OK(connection_->Rows(Get(), {.timeout = kLong}))
        << "the closed socket was noticed before the request";
  }
}

#ifndef REVERB_TSAN
TEST_F(LocalRowsTest, AChildUsesSocketsOfItsOwn) {
  AnswerWithRows();
  StartServer();
  Result<RowsReply> held = connection_->Rows(Get(), {.timeout = kLong});
  ASSERT_OK(held);
  const pid_t child = fork();
  if (child == 0) {
    held = Status::Cancelled("destroyed here");  // the parent returns the message
    const Result<RowsReply> own = connection_->Rows(Get(), {.timeout = kLong});
    const bool is_right = own.ok() && ReadValues(own->rows[0].segments[0]) == ValuesFrom(1);
    _exit(is_right && !HasFailure() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(ReadValues(held->rows[0].segments[0]), ValuesFrom(0));
  EXPECT_OK(connection_->Rows(Get(), {.timeout = kLong}));
  held = Status::Cancelled("destroyed");
  EXPECT_TRUE(NothingIsPinned());
}
#endif

// --- Clients that break the rules ---

HostileFrame AsRequest(HostileFrame frame) {
  frame.kind = FrameKind::kRequest;
  return frame;
}

TEST_F(LocalRowsTest, HostileReferencesEndOnlyTheirSocket) {
  AnswerWithRows();
  StartServer();
  const Descriptor memfd = MakeMemfd();
  const FrameAnnouncement announcement{.bytes = kMemfdBytes, .segment = 3};
  const uint64_t segment = uint64_t{3} << 48;
  // A request, with an unknown field of bytes at the end, whose contents are elsewhere.
  const std::string outside = EncodeRowsRequest(Get()).Flatten() + std::string("\xfa\x3f\x80\x02", 4);
  struct Case {
    const char* name;
    HostileFrame request;
    const char* text;
  };
  const std::vector<Case> cases = {
      {"unannounced", {.references = {{.at = 0, .length = 256, .place = segment}}}, "was not announced"},
      {"offset beyond the end",
       {.announcements = {announcement},
        .references = {{.at = 0, .length = 256, .place = segment | (kMemfdBytes - 255)}},
        .descriptors = {memfd.get()}},
       "not all in a segment"},
      {"largest offset",
       {.announcements = {announcement},
        .references = {{.at = 0, .length = UINT32_MAX, .place = segment | ((uint64_t{1} << 48) - 1)}},
        .descriptors = {memfd.get()}},
       "not all in a segment"},
      {"position beyond the inline bytes",
       {.announcements = {announcement},
        .references = {{.at = 9, .length = 256, .place = segment}},
        .descriptors = {memfd.get()}},
       "position 9"},
      {"outside of payloads",
       {.announcements = {announcement},
        .references = {{.at = static_cast<uint32_t>(outside.size()), .length = 256, .place = segment}},
        .descriptors = {memfd.get()},
        .inline_bytes = outside},
       "only payloads"},
      {"a whole request",
       {.announcements = {announcement},
        .references = {{.at = 0, .length = 256, .place = segment}},
        .descriptors = {memfd.get()}},
       ""},
      {"of another call",
       {.method = Method::kReset,
        .announcements = {announcement},
        .references = {{.at = 0, .length = 256, .place = segment}},
        .descriptors = {memfd.get()}},
       "only items and rows"},
  };
  ASSERT_OK(connection_->Rows(Get(), {.timeout = kLong}));
  const size_t before = NumDescriptorsForTesting();
  for (const Case& hostile : cases) {
    SCOPED_TRACE(hostile.name);
    RawSocket raw(path_);
    raw.Greet();
    (void)raw.Send(AsRequest(hostile.request).Make());
    const Status status = raw.ReceiveStatus();
    EXPECT_THAT(status.code(),
                AnyOf(StatusCode::kInvalidArgument, StatusCode::kResourceExhausted, StatusCode::kDataLoss))
        << status.ToString();
    EXPECT_THAT(std::string(status.message()), HasSubstr(hostile.text));
  }
  EXPECT_TRUE(WaitUntil([&] { return NumDescriptorsForTesting() == before; })) << "nothing leaks";
  EXPECT_OK(connection_->Rows(Get(), {.timeout = kLong}));
  EXPECT_TRUE(NothingIsPinned());
}

TEST_F(LocalRowsTest, DataThatChangesAfterItWasSentIsRefused) {
  Mailbox<RowsRequest> received;
  handler_->on_rows = [&](RowsRequest request) -> Result<RowsReply> {
    received.Put(std::move(request));
    return RowsReply();
  };
  StartServer();
  const std::vector<int32_t> values = ValuesFrom(3);
  const std::string payload(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  std::string message = EncodeRowsRequest(PutRequest(3)).Flatten();
  const size_t at = message.find(payload);
  ASSERT_NE(at, std::string::npos);
  message.erase(at, payload.size());
  const Descriptor memfd = MakeMemfd();
  ASSERT_EQ(pwrite(memfd.get(), payload.data(), payload.size(), 64), static_cast<ssize_t>(payload.size()));
  HostileFrame request{.kind = FrameKind::kRequest,
                       .announcements = {{.bytes = kMemfdBytes, .segment = 1}},
                       .references = {{.at = static_cast<uint32_t>(at),
                                       .length = static_cast<uint32_t>(payload.size()),
                                       .place = uint64_t{1} << 48 | 64}},
                       .descriptors = {memfd.get()},
                       .inline_bytes = message};
  RawSocket raw(path_);
  raw.Greet();
  ASSERT_TRUE(raw.Send(request.Make()));
  TAKE_OR_FAIL(stored, received);
  // The server has its own copy, which later changes do not reach.
  ASSERT_EQ(fallocate(memfd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kMemfdBytes), 0);
  EXPECT_EQ(ReadValues({.chunk = stored.rows[0].chunk}), values);
  while (std::optional<IncomingFrame> frame = raw.Receive()) {
    if (frame->header.kind == FrameKind::kMessage) break;
  }
  request.announcements.clear();
  request.descriptors.clear();
  ASSERT_TRUE(raw.Send(request.Make()));
  EXPECT_THAT(raw.ReceiveStatus(), StatusIs(StatusCode::kDataLoss));
  EXPECT_EQ(received.total(), 1);
}

}  // namespace
}  // namespace reverb::internal
