#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "testing/status_matchers.h"
#include "transport/wire.h"
#include "transport/wire_seal.h"
#include "transport/wire_testing.h"

namespace reverb::internal {
namespace {

using test::Describe;
using test::Filled;
using test::SliceOf;
using test::Slices;
using test::StatusIs;
using testing::HasSubstr;

// Expects that every field arrives as it was sent, in a filled message and in an empty one.
template <typename Record, typename Encode, typename Decode>
void ExpectArrives(const Encode& encode, const Decode& decode) {
  SCOPED_TRACE(kFields<Record>.message);
  Record empty;
  ClearFields(&empty);
  for (const Record& want : {Filled<Record>(), empty}) {
    const WireMessage message = encode(want);
    const Result<Record> got = decode(Slices(message));
    ASSERT_OK(got);
    EXPECT_EQ(Describe(*got), Describe(want));
    EXPECT_EQ(encode(*got).Flatten(), message.Flatten());
  }
}

TEST(WireMessagesTest, EveryFieldArrives) {
  ExpectArrives<Hello>(EncodeInsertHello, [](ByteSlices s) { return DecodeInsertHello(s); });
  ExpectArrives<InsertReply>(EncodeInsertReply, [](ByteSlices s) { return DecodeInsertReply(s); });
  ExpectArrives<SampleStreamMessage>(EncodeSampleRequest,
                                     [](ByteSlices s) { return DecodeSampleRequest(s); });
  ExpectArrives<MutateRequest>(EncodeMutateRequest, [](ByteSlices s) { return DecodeMutateRequest(s); });
  ExpectArrives<SetRateLimiterRequest>(EncodeSetRateLimiterRequest,
                                       [](ByteSlices s) { return DecodeSetRateLimiterRequest(s); });
  ExpectArrives<CreateTableRequest>(EncodeCreateTableRequest,
                                    [](ByteSlices s) { return DecodeCreateTableRequest(s); });
  ExpectArrives<ChangeTableRequest>(EncodeChangeTableRequest,
                                    [](ByteSlices s) { return DecodeChangeTableRequest(s); });
  ExpectArrives<ServerInfo>(EncodeServerInfo, [](ByteSlices s) { return DecodeServerInfo(s); });
  ExpectArrives<InspectRequest>(EncodeInspectRequest, [](ByteSlices s) { return DecodeInspectRequest(s); });
}

// The seal of a large message leaves out its payloads, which it finds by their field numbers (wire_seal.h).
TEST(WireMessagesTest, ALargeInformationHasNoFieldsThatLookLikePayloads) {
  ServerInfo info = Filled<ServerInfo>();
  const TableInfo table = info.tables.front();
  info.tables.assign(100, table);
  WireMessage message = EncodeServerInfo(info);
  ASSERT_GT(message.Flatten().size(), kShareBytes);
  message.Seal(0);
  std::vector<ByteSlice> slices = Slices(message);
  EXPECT_OK(Unseal(0, &slices));
}

TEST(WireMessagesTest, InsertHelloIsAloneInItsMessage) {
  EXPECT_THAT(DecodeInsertHello({}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("must greet")));
  const std::string bytes = EncodeInsertHello({}).Flatten() + "\x20\x01";
  const ByteSlice slice = SliceOf(bytes);
  EXPECT_THAT(DecodeInsertHello({&slice, 1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("field 4")));
}

TEST(WireMessagesTest, AbsentAndZeroDiffer) {
  ChangeTableRequest change{.table = "t", .changes = {.max_times_sampled = 0, .max_age = Duration(0)}};
  const auto changed = DecodeChangeTableRequest(Slices(EncodeChangeTableRequest(change)));
  ASSERT_OK(changed);
  EXPECT_EQ(changed->changes.max_times_sampled, 0);
  EXPECT_EQ(changed->changes.max_age, Duration(0));
  EXPECT_FALSE(changed->changes.max_size);
  EXPECT_FALSE(changed->changes.rate_limiter);

  SampleStreamMessage request;
  EXPECT_FALSE(DecodeSampleRequest(Slices(EncodeSampleRequest(request)))->request.timeout);
  request.request.timeout = Duration(0);
  EXPECT_EQ(DecodeSampleRequest(Slices(EncodeSampleRequest(request)))->request.timeout, Duration(0));
  ServerInfo info;
  info.tables.resize(2);
  info.tables[1].structure = "";
  info.max_bytes = 0;
  const auto got = DecodeServerInfo(Slices(EncodeServerInfo(info)));
  ASSERT_OK(got);
  EXPECT_EQ(got->max_bytes, 0);
  EXPECT_EQ(got->tables[0].structure, std::nullopt);
  EXPECT_EQ(got->tables[1].structure, "");
}

TEST(WireMessagesTest, NumbersKeepTheirSignAndSize) {
  const MutateRequest mutate{
      .table = "replay", .updates = {{.key = ~uint64_t{0}, .priority = -0.0}}, .deletes = {}};
  const auto mutated = DecodeMutateRequest(Slices(EncodeMutateRequest(mutate)));
  ASSERT_OK(mutated);
  EXPECT_EQ(mutated->updates[0].key, ~uint64_t{0});
  EXPECT_TRUE(std::signbit(mutated->updates[0].priority));
  // A timeout of more nanoseconds than there are becomes the longest; a count is rejected.
  const ByteSlice timeout = SliceOf("\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  EXPECT_EQ(DecodeSampleRequest({&timeout, 1})->request.timeout, Duration::max());
  const ByteSlice count = SliceOf("\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  EXPECT_THAT(DecodeSampleRequest({&count, 1}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("message SampleRequest: field 4 is a number that")));
}

TEST(WireMessagesTest, NumbersOfNewerPeersBecomeZero) {
  // A waiter with reason 99; a table with a sampler of kind 99, and with waits of reason 99.
  const ByteSlice slice = SliceOf("\x52\x02\x18\x63\x1a\x0b\x12\x02\x08\x63\xe2\x01\x04\x08\x63\x10\x01");
  const auto info = DecodeServerInfo({&slice, 1});
  ASSERT_OK(info);
  EXPECT_EQ(info->waiters[0].reason, WaitReason::kNone);
  EXPECT_EQ(info->tables[0].sampler.kind, SelectorOptions::Kind::kCustom);
  for (const WaitStats& waits : info->tables[0].waits) EXPECT_EQ(waits.count, 0);
}

TEST(WireMessagesTest, NestedMessagesAreMerged) {
  // The sampler of a table in two parts; two welcomes, of which the last one counts.
  const ByteSlice sampler =
      SliceOf(std::string_view("\x1a\x0f\x12\x02\x08\x06\x12\x09\x11\0\0\0\0\0\0\xf0\x3f", 17));
  const auto info = DecodeServerInfo({&sampler, 1});
  ASSERT_OK(info);
  EXPECT_EQ(info->tables[0].sampler, SelectorOptions::Prioritized(1.0));
  const ByteSlice welcomes = SliceOf(std::string_view("\x0a\x02\x08\x07\x0a\x02\x20\x05", 8));
  const auto reply = DecodeInsertReply({&welcomes, 1});
  ASSERT_OK(reply);
  EXPECT_EQ(reply->welcome->version, 0u);
  EXPECT_EQ(reply->welcome->applied_through, 5u);
}

TEST(WireMessagesTest, LimitsAreEnforced) {
  const auto refused = [](const char* text) {
    return StatusIs(StatusCode::kResourceExhausted, HasSubstr(text));
  };
  const WireMessage info = EncodeServerInfo(Filled<ServerInfo>());
  EXPECT_THAT(DecodeServerInfo(Slices(info), {.max_message_bytes = 10}), refused("InfoResponse"));
  EXPECT_THAT(DecodeServerInfo(Slices(info), {.max_items = 1}), refused("more than the 1 tables"));
  EXPECT_THAT(DecodeServerInfo(Slices(info), {.max_name_bytes = 4}), refused("is longer than is accepted"));
  EXPECT_THAT(DecodeServerInfo(Slices(info), {.max_signature_bytes = 10}),
              refused("message TableInfo: field 7 is longer"));
  const WireMessage mutate = EncodeMutateRequest(Filled<MutateRequest>());
  EXPECT_THAT(DecodeMutateRequest(Slices(mutate), {.max_updates = 1}), refused("more than the 1 updates"));
  EXPECT_THAT(DecodeMutateRequest(Slices(mutate), {.max_updates = 2}), refused("more than the 2 deletes"));
  const WireMessage reply = EncodeInsertReply(Filled<InsertReply>());
  EXPECT_THAT(DecodeInsertReply(Slices(reply), {.max_items = 1}), refused("more than the 1 rejections"));
}

TEST(WireMessagesTest, SmallMessages) {
  EXPECT_EQ(DecodeResetRequest(Slices(EncodeResetRequest("replay"))).value(), "replay");
  EXPECT_EQ(DecodeCheckpointReply(Slices(EncodeCheckpointReply("/a/b"))).value(), "/a/b");
  EXPECT_OK(DecodeEmpty(Slices(EncodeEmpty())));
  EXPECT_THAT(DecodeSetRateLimiterRequest({}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("has no rate_limiter")));
}

TEST(WireMessagesTest, Statuses) {
  Status got;
  for (const Status& want : {Status::Ok(), Status::NotFound("x"),
                             Status(StatusCode::kDeadlineExceeded, "late", Detail::kQueued)}) {
    ASSERT_OK(DecodeStatus(Slices(EncodeStatus(want)), &got));
    EXPECT_EQ(got, want);
  }
  // From a newer peer: code 99, detail 77.
  const ByteSlice slice = SliceOf("\x08\x63\x10\x4d");
  ASSERT_OK(DecodeStatus({&slice, 1}, &got));
  EXPECT_THAT(got, StatusIs(StatusCode::kUnknown, Detail::kNone));
  // A long text is truncated between characters.
  std::string text;
  while (text.size() < (1 << 17))
    text +=
        "\xc3\xa4"
        "b\xc3\xb6";
  ASSERT_OK(DecodeStatus(Slices(EncodeStatus(Status::Internal(text))), &got));
  EXPECT_LT(got.message().size(), size_t{1} << 15);
  EXPECT_TRUE(got.message().ends_with("\xc3\xa4") || got.message().ends_with("\xc3\xb6") ||
              got.message().ends_with("b"));
}

}  // namespace
}  // namespace reverb::internal
