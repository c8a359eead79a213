// wire_stream_testing.h — helpers for the tests of insert and sample streams.
#ifndef REVERB_TRANSPORT_WIRE_STREAM_TESTING_H_
#define REVERB_TRANSPORT_WIRE_STREAM_TESTING_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "testing/seed.h"
#include "testing/status_matchers.h"
#include "transport/wire.h"
#include "transport/wire_testing.h"

namespace reverb::internal {

using test::AllKinds;
using test::ColumnKind;
using test::Contents;
using test::MakeChunk;
using test::RandomSamples;
using test::RandomTrajectory;
using test::SliceOf;
using test::Slices;
using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Returns a factory that assigns its own IDs, like that of a server.
inline InsertDecoder::ChunkFactory Factory() {
  return [next = uint64_t{1'000'000}](const ChunkHeader& header, uint8_t** payload) mutable {
    return Chunk::Uninitialized(next++, header, payload);
  };
}

inline Result<InsertMessage> Decode(InsertDecoder* decoder, const WireMessage& message) {
  return decoder->Decode(Slices(message));
}

inline Item ItemOf(uint64_t number, Trajectory trajectory, std::string table = "replay") {
  return {.number = number,
          .key = number * 7,
          .table = std::move(table),
          .priority = 1.5,
          .trajectory = std::move(trajectory)};
}
inline InsertMessage MessageOf(Item item) {
  InsertMessage message;
  message.items.push_back(std::move(item));
  return message;
}

inline void ExpectSame(const std::vector<Item>& got, const std::vector<Item>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].number, want[i].number);
    EXPECT_EQ(got[i].key, want[i].key);
    EXPECT_EQ(got[i].table, want[i].table);
    EXPECT_EQ(got[i].priority, want[i].priority);
    EXPECT_EQ(Contents(got[i].trajectory), Contents(want[i].trajectory)) << "item " << i;
  }
}

inline void ExpectSame(const std::vector<Sample>& got, const std::vector<Sample>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(test::Describe(got[i]), test::Describe(want[i]));
    EXPECT_EQ(Contents(got[i].trajectory), Contents(want[i].trajectory)) << "sample " << i;
  }
}

inline ItemStructure ListOf(size_t leaves) {
  return ItemStructure::Create(Signature::List(std::vector<Signature>(leaves)).value()).value();
}

class WireSampleTest : public testing::Test {
 protected:
  Result<SampleReply> RoundTrip(const SampleReply& reply) {
    message_ = EncodeSampleReply(reply);
    return DecodeSampleReply(Slices(message_));
  }
  Sample SampleOf(Trajectory trajectory) { return {.key = 1, .trajectory = std::move(trajectory)}; }
  Sample SampleOf(const ChunkRef& chunk, uint32_t offset, uint32_t length) {
    return SampleOf(Trajectory::Single(chunk, offset, length).value());
  }

  const uint64_t seed_ = test::Seed();
  testing::ScopedTrace trace_{__FILE__, __LINE__, test::SeedTrace(seed_)};
  Random random_{seed_};
  WireMessage message_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_STREAM_TESTING_H_
