// Tests puts whose rows travel in parts, and clients that break their rules.
#include "transport/local/staged_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "testing/wait.h"
#include "transport/local/local_memory_testing.h"
#include "transport/wire.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using test::WaitUntil;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kPartLength = 4'000;  // of a value

RowWrite MakeStagedRow(const std::string& key, int32_t value, PayloadSource* source = nullptr) {
  const std::vector<int32_t> values(kPartLength, value);
  const std::vector<int64_t> dims = {kPartLength};
  const std::vector<TensorView> row = {TensorView{DType::kInt32, dims, values.data()}};
  return {.key = key, .chunk = EncodeRow(row, source).value()};
}

std::vector<std::string> KeysOf(const RowsRequest& request) {
  std::vector<std::string> keys;
  for (const RowWrite& row : request.rows) keys.push_back(row.key);
  return keys;
}

// --- The rows that a server keeps ---

RowsRequest PartOf(const std::vector<std::string>& keys, const std::string& table = "") {
  RowsRequest part;
  part.call.verb = RowsVerb::kPut;
  part.call.table = table;
  for (const std::string& key : keys) part.rows.push_back(MakeStagedRow(key, 1));
  return part;
}

TEST(StagedRowsTest, PartsAreJoinedInOrderAndForgotten) {
  StagedRows staged;
  EXPECT_TRUE(staged.empty());
  staged.Add(PartOf({"a", "b"}), {});
  staged.Add(PartOf({"c"}), {});
  EXPECT_FALSE(staged.empty());
  const Result<RowsRequest> whole = staged.Join(PartOf({"d"}, "rollouts"), {});
  ASSERT_OK(whole.status());
  EXPECT_THAT(KeysOf(*whole), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(whole->call.table, "rollouts") << "the last part has the call";
  EXPECT_TRUE(staged.empty());
  EXPECT_THAT(KeysOf(*staged.Join(PartOf({"e"}), {})), ElementsAre("e"));
}

TEST(StagedRowsTest, AnErrorInAPartIsTheOutcomeOfTheWholeRequest) {
  StagedRows staged;
  staged.Add(PartOf({"a"}), {});
  staged.Add(Status::DataLoss("damaged"), {});
  staged.Add(PartOf({"b"}), {});
  EXPECT_FALSE(staged.empty());
  EXPECT_THAT(staged.Join(PartOf({"c"}), {}), StatusIs(StatusCode::kDataLoss, HasSubstr("damaged")));
  EXPECT_TRUE(staged.empty());
  staged.Add(PartOf({"a"}), {});
  EXPECT_THAT(staged.Join(Status::DataLoss("damaged"), {}), StatusIs(StatusCode::kDataLoss));
  EXPECT_OK(staged.Join(PartOf({"d"}), {}).status()) << "it does not concern the next request";
}

TEST(StagedRowsTest, TheLimitsAreThoseOfOneMessage) {
  StagedRows staged;
  WireLimits few;
  few.max_items = 2;
  staged.Add(PartOf({"a", "b"}), few);
  EXPECT_THAT(staged.Join(PartOf({"c"}), few), StatusIs(StatusCode::kResourceExhausted, HasSubstr("3 rows")));
  WireLimits small;
  small.max_message_bytes = 6 * kPartLength;
  staged.Add(PartOf({"a"}), small);
  staged.Add(PartOf({"b"}), small);
  EXPECT_THAT(staged.Join(PartOf({"c"}), small),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("write fewer rows at a time")));
  EXPECT_OK(staged.Join(PartOf({"c"}), small).status());
}

// --- Over a socket ---

// Rows in parts of one row.
class OneByOne final : public RowParts {
 public:
  OneByOne(size_t size, PayloadSource* source) : size_(size), source_(source) {}
  Result<std::vector<RowWrite>> Encode(size_t* next) const override {
    if (*next == fails_at) return Status::InvalidArgument("cannot be encoded");
    std::vector<RowWrite> rows;
    rows.push_back(MakeStagedRow(std::to_string(*next), static_cast<int32_t>(*next), source_));
    ++*next;
    return rows;
  }
  size_t size() const override { return size_; }

  size_t fails_at = SIZE_MAX;

 private:
  const size_t size_;
  PayloadSource* const source_;
};

class LocalPartsTest : public LocalTransportTest {
 protected:
  void SetUp() override {
    handler_->on_rows = [this](RowsRequest request) -> Result<RowsReply> {
      received_.Put(std::move(request));
      return RowsReply();
    };
  }
  // Before the source is destroyed.
  void TearDown() override {
    connection_.reset();
    server_.reset();
  }

  Result<RowsReply> PutInParts(const RowParts& parts) {
    RowsRequest request;
    request.call.verb = RowsVerb::kPut;
    request.call.table = "rollouts";
    request.parts = &parts;
    return connection_->Rows(request, {.timeout = kLong});
  }
  bool NothingIsInUse() {
    return WaitUntil([&] { return source_.num_blocks == 0; });
  }

  ScribblingSource source_;
  Mailbox<RowsRequest> received_;
};

TEST_F(LocalPartsTest, PartsAreOneRequest) {
  StartServer();
  for (const size_t size : {1, 2, 40}) {
    ASSERT_OK(PutInParts(OneByOne(size, &source_)));
    TAKE_OR_FAIL(request, received_);
    EXPECT_EQ(request.call.table, "rollouts");
    ASSERT_EQ(request.rows.size(), size);
    for (size_t i = 0; i < size; ++i) {
      EXPECT_EQ(request.rows[i].key, std::to_string(i));
      std::vector<int32_t> values(kPartLength);
      ASSERT_OK(ReadSegment({.chunk = request.rows[i].chunk},
                            {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(int32_t)}));
      EXPECT_EQ(values, std::vector<int32_t>(kPartLength, static_cast<int32_t>(i)));
    }
    EXPECT_TRUE(NothingIsInUse()) << "the server has its own copy";
  }
  EXPECT_EQ(received_.total(), 3);
}

TEST_F(LocalPartsTest, WhatCannotBeEncodedIsNotSentInPart) {
  StartServer();
  OneByOne parts(10, &source_);
  parts.fails_at = 7;
  EXPECT_THAT(PutInParts(parts), StatusIs(StatusCode::kInvalidArgument, HasSubstr("cannot be encoded")));
  EXPECT_TRUE(NothingIsInUse());
  parts.fails_at = SIZE_MAX;
  ASSERT_OK(PutInParts(parts));
  TAKE_OR_FAIL(request, received_);
  EXPECT_EQ(request.rows.size(), 10u) << "nothing of the first attempt";
  EXPECT_EQ(received_.total(), 1);
}

TEST_F(LocalPartsTest, AStoppedServerEndsThePut) {
  StartServer();
  ASSERT_OK(PutInParts(OneByOne(3, &source_)));
  server_.reset();
  EXPECT_FALSE(
      connection_->Rows({.call = {.verb = RowsVerb::kInfo, .table = ""}}, {.timeout = Duration(0)}).ok());
  auto server = LocalServer::Start({.path = path_}, handler_);
  ASSERT_OK(server);
  server_ = *std::move(server);
  EXPECT_OK(PutInParts(OneByOne(3, &source_)));
  EXPECT_TRUE(NothingIsInUse());
}

OutgoingFrame PartFrame(const RowsRequest& part, Method method = Method::kRows) {
  return MakeFrame(FrameKind::kPart, EncodeRowsRequest(part), method);
}

TEST_F(LocalPartsTest, PartsOutOfOrderEndTheSocket) {
  StartServer();
  const RowsRequest part = PartOf({"a"});
  {
    RawSocket raw(path_);
    ASSERT_TRUE(raw.Send(PartFrame(part)));
    EXPECT_THAT(raw.ReceiveStatus(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("before the greeting")));
  }
  {
    RawSocket raw(path_);
    raw.Greet();
    ASSERT_TRUE(raw.Send(PartFrame(part, Method::kReset)));
    EXPECT_THAT(raw.ReceiveStatus(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("row tables")));
  }
  for (const FrameKind kind : {FrameKind::kRequest, FrameKind::kCall}) {
    RawSocket raw(path_);
    raw.Greet();
    ASSERT_TRUE(raw.Send(PartFrame(part)));
    ASSERT_TRUE(raw.Send(MakeFrame(kind, EncodeEmpty(), Method::kInfo)));
    EXPECT_THAT(raw.ReceiveStatus(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("did not come")));
  }
  EXPECT_OK(PutInParts(OneByOne(2, &source_))) << "others go on";
  EXPECT_EQ(received_.total(), 1);
}

TEST_F(LocalPartsTest, ADamagedPartIsTheOutcomeOfItsRequest) {
  StartServer();
  const RowsRequest part = PartOf({"a"});
  std::string damaged = EncodeRowsRequest(part).Flatten();
  damaged.back() = static_cast<char>(damaged.back() ^ 1);  // of the data
  RawSocket raw(path_);
  raw.Greet();
  ASSERT_TRUE(raw.Send(PartFrame(part)));
  FrameHeader header;
  header.kind = FrameKind::kPart;
  header.method = static_cast<uint8_t>(Method::kRows);
  header.inline_bytes = damaged.size();
  ASSERT_TRUE(raw.Send(std::string(reinterpret_cast<const char*>(&header), sizeof header) + damaged));
  const WireMessage last = EncodeRowsRequest(PartOf({"b"}, "rollouts"));
  ASSERT_TRUE(raw.Send(MakeFrame(FrameKind::kRequest, last, Method::kRows)));
  EXPECT_THAT(raw.ReceiveStatus(), StatusIs(StatusCode::kDataLoss, HasSubstr("checksum")));
  EXPECT_EQ(received_.total(), 0) << "nothing of it is stored";
  // The socket goes on.
  ASSERT_TRUE(raw.Send(MakeFrame(FrameKind::kRequest, last, Method::kRows)));
  TAKE_OR_FAIL(request, received_);
  EXPECT_THAT(KeysOf(request), ElementsAre("b"));
}

TEST_F(LocalPartsTest, PartsOfAClientThatIsGoneAreFreed) {
  handler_->payload_source = &source_;
  StartServer();
  {
    RawSocket raw(path_);
    raw.Greet();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(raw.Send(PartFrame(PartOf({std::to_string(i)}))));
    EXPECT_TRUE(WaitUntil([&] { return source_.num_blocks == 20; }));
  }
  EXPECT_TRUE(NothingIsInUse());
  EXPECT_EQ(received_.total(), 0);
}

}  // namespace
}  // namespace reverb::internal
