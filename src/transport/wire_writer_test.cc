#include "tensor/proto_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "testing/status_matchers.h"
#include "transport/wire_testing.h"
#include "transport/wire_writer.h"

namespace reverb::internal {
namespace {

using test::SliceOf;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

// Calls `read` for each field of a message, and returns the status of the reader.
template <typename Read>
Status ReadOne(std::string_view bytes, const Read& read) {
  const ByteSlice slice = SliceOf(bytes);
  ProtoReader reader({&slice, 1});
  while (reader.Next()) read(&reader);
  return reader.status("Test");
}

TEST(WireWriterTest, DefaultsAreLeftOut) {
  WireWriter writer;
  writer.Uint(1, 0);
  writer.Count(2, -5);
  writer.Sint(3, 0);
  writer.Bool(4, false);
  writer.Double(5, 0.0);
  writer.Bytes(6, "");
  writer.PackedUint(7, std::span<const uint64_t>());
  const WireMessage message = writer.Finish();
  EXPECT_EQ(message.total_bytes(), 0u);
  EXPECT_TRUE(message.parts().empty());
}

TEST(WireWriterTest, BytesAreThoseOfProtobuf) {
  WireWriter writer;
  writer.Uint(1, 150);  // the example in protobuf's documentation
  writer.Bytes(2, "testing");
  writer.Sint(3, -1);
  writer.Int(4, -1);
  EXPECT_EQ(writer.Finish().Flatten(), std::string("\x08\x96\x01\x12\x07testing\x18\x01\x20") +
                                           "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
}

// Tests every length of a nested message, for any size reserved for the length, with and without shared
// bytes.
TEST(WireWriterTest, NestedLengthsAreCorrectForAnyReservedSize) {
  const std::string large(kShareBytes, 'x');
  for (const uint64_t expected : {0, 127, 128, 20'000, 3'000'000}) {
    for (const size_t size : {0, 1, 100, 124, 125, 126, 127, 128, 129, 16'380, 16'384, 20'000}) {
      for (const bool shared : {false, true}) {
        WireWriter writer;
        writer.Uint(9, 9);
        const auto outer = writer.Begin(1, expected);
        writer.Bytes(1, std::string(size, 'a'));
        const auto inner = writer.Begin(2);
        if (shared) {
          writer.BeginPayload(1, large.size());
          writer.AppendShared(Buffer::CopyOf(large));
        }
        writer.Bytes(2, "tail");
        writer.End(inner);
        writer.End(outer);
        writer.Uint(10, 10);
        const WireMessage message = writer.Finish();
        EXPECT_EQ(message.parts().size(), shared ? 3u : 1u);

        const std::vector<ByteSlice> slices = test::Slices(message);
        ProtoReader reader(slices);
        std::string first, second, payload;
        uint64_t nine = 0, ten = 0;
        while (reader.Next()) {
          if (reader.field() == 9) reader.Read(&nine);
          if (reader.field() == 10) reader.Read(&ten);
          if (reader.field() != 1) continue;
          ProtoReader nested = reader.ReadMessage();
          while (nested.Next()) {
            if (nested.field() == 1) nested.Read(&first, 1 << 20);
            if (nested.field() != 2) continue;
            ProtoReader deep = nested.ReadMessage();
            while (deep.Next()) deep.Read(deep.field() == 1 ? &payload : &second, 1 << 20);
            ASSERT_OK(deep.status("deep"));
          }
          ASSERT_OK(nested.status("nested"));
        }
        ASSERT_OK(reader.status("outer"));
        EXPECT_EQ(first, std::string(size, 'a'));
        EXPECT_EQ(second, "tail");
        EXPECT_EQ(payload, shared ? large : "");
        EXPECT_EQ(nine, 9u);
        EXPECT_EQ(ten, 10u);
      }
    }
  }
}

TEST(ProtoReaderTest, ReadsWhatWasWritten) {
  for (const uint64_t value : {uint64_t{1}, uint64_t{127}, uint64_t{128}, uint64_t{1} << 32, ~uint64_t{0}}) {
    WireWriter writer;
    writer.Uint(1, value);
    writer.Fixed64(2, value);
    writer.Sint(3, static_cast<int64_t>(value));
    writer.Double(4, -static_cast<double>(value));
    writer.PackedUint(5, std::vector<uint64_t>{value, 0, value});
    writer.PackedFixed64(6, std::vector<uint64_t>{0, value});
    writer.Int(7, -7);
    const std::string bytes = writer.Finish().Flatten();
    // One byte per slice, with empty slices between.
    std::vector<ByteSlice> slices;
    for (size_t i = 0; i < bytes.size(); ++i) {
      slices.push_back(SliceOf(std::string_view(bytes).substr(i, 1)));
      slices.push_back({});
    }
    ProtoReader reader(slices);
    uint64_t varint = 0, fixed = 0;
    int64_t zigzag = 0;
    int32_t negative = 0;
    double number = 0;
    std::vector<uint64_t> packed, packed_fixed;
    while (reader.Next()) {
      switch (reader.field()) {
        case 1:
          reader.Read(&varint);
          break;
        case 2:
          reader.ReadFixed(&fixed);
          break;
        case 3:
          reader.ReadSint(&zigzag);
          break;
        case 4:
          reader.Read(&number);
          break;
        case 5:
          reader.ReadVarints([&](uint64_t v) { packed.push_back(v); });
          break;
        case 6:
          reader.ReadFixed64s([&](uint64_t v) { packed_fixed.push_back(v); });
          break;
        case 7:
          reader.ReadInt(&negative);
          break;
      }
    }
    ASSERT_OK(reader.status("Test"));
    EXPECT_EQ(varint, value);
    EXPECT_EQ(fixed, value);
    EXPECT_EQ(zigzag, static_cast<int64_t>(value));
    EXPECT_EQ(number, -static_cast<double>(value));
    EXPECT_THAT(packed, ElementsAre(value, 0, value));
    EXPECT_THAT(packed_fixed, ElementsAre(0, value));
    EXPECT_EQ(negative, -7);
  }
}

TEST(ProtoReaderTest, RepeatedNumbersMayComeOneByOne) {
  std::vector<uint64_t> values;
  EXPECT_OK(ReadOne(std::string("\x08\x05\x0a\x02\x06\x07\x08\x00", 8), [&](ProtoReader* reader) {
    reader->ReadVarints([&](uint64_t value) { values.push_back(value); });
  }));
  EXPECT_THAT(values, ElementsAre(5, 6, 7, 0));
}

TEST(ProtoReaderTest, UnreadFieldsOfEveryTypeAreSkipped) {
  std::string bytes("\x08\x96\x01", 3);              // varint
  bytes += std::string("\x11\1\2\3\4\5\6\7\10", 9);  // 64 bits
  bytes += std::string(
      "\x1a\x03"
      "abc",
      5);                                   // bytes
  bytes += std::string("\x25\1\2\3\4", 5);  // 32 bits
  bytes += std::string("\x28\x2a", 2);
  uint64_t last = 0;
  EXPECT_OK(ReadOne(bytes, [&](ProtoReader* reader) {
    if (reader->field() == 5) reader->Read(&last);
  }));
  EXPECT_EQ(last, 42u);
}

TEST(ProtoReaderTest, DamageIsNamed) {
  const auto nothing = [](ProtoReader*) {};
  const auto expect = [](const Status& status, const char* text) {
    EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr(text)));
  };
  expect(ReadOne("\x08", nothing), "field 1 is cut short");
  expect(ReadOne("\x08\x80", nothing), "field 1 is cut short");
  expect(ReadOne("\x0a\x05"
                 "abcd",
                 nothing),
         "field 1 is cut short");
  expect(ReadOne("\x11"
                 "1234567",
                 nothing),
         "field 2 is cut short");
  expect(ReadOne("\x25"
                 "123",
                 nothing),
         "field 4 is cut short");
  expect(ReadOne("\x80", nothing), "a field is cut short");
  expect(ReadOne("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", nothing), "more than 64 bits");
  expect(ReadOne("\x0b", nothing), "group");
  expect(ReadOne("\x0e", nothing), "wire type");
  expect(ReadOne(std::string("\x00\x01", 2), nothing), "protobuf does not have");
  expect(ReadOne("\xff\xff\xff\xff\xff\xff\x01", nothing), "protobuf does not have");
  uint32_t small = 0;
  expect(ReadOne("\x08\x80\x80\x80\x80\x10", [&](ProtoReader* r) { r->Read(&small); }), "does not fit");
  expect(ReadOne("\x0a\x01z", [&](ProtoReader* r) { r->Read(&small); }), "another wire type");
  int64_t count = 0;
  expect(
      ReadOne("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", [&](ProtoReader* r) { r->ReadCount(&count); }),
      "does not fit");
  std::array<uint8_t, 16> id{};
  expect(ReadOne("\x0a\x01z", [&](ProtoReader* r) { r->Read(&id); }), "16 bytes");
  expect(ReadOne("\x0a\x01\x80", [&](ProtoReader* r) { r->ReadVarints([](uint64_t) {}); }), "cut short");
  expect(ReadOne("\x0a\x03"
                 "abc",
                 [&](ProtoReader* r) { r->ReadFixed64s([](uint64_t) {}); }),
         "cut short");
  std::string text;
  EXPECT_THAT(ReadOne("\x0a\x03"
                      "abc",
                      [&](ProtoReader* r) { r->Read(&text, 2); }),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("message Test: field 1 is longer")));
}

}  // namespace
}  // namespace reverb::internal
