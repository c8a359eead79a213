#include "transport/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "testing/seed.h"
#include "testing/status_matchers.h"
#include "transport/wire_seal.h"
#include "transport/wire_testing.h"

namespace reverb::internal {
namespace {

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

// The factory of a server: ids of its own.
InsertDecoder::ChunkFactory Factory() {
  return [next = uint64_t{1'000'000}](const ChunkHeader& header, uint8_t** payload) mutable {
    return Chunk::Uninitialized(next++, header, payload);
  };
}

Result<InsertMessage> Decode(InsertDecoder* decoder, const WireMessage& message) {
  return decoder->Decode(Slices(message));
}

Item ItemOf(uint64_t number, Trajectory trajectory, std::string table = "replay") {
  return {.number = number,
          .key = number * 7,
          .table = std::move(table),
          .priority = 1.5,
          .trajectory = std::move(trajectory)};
}
InsertMessage MessageOf(Item item) {
  InsertMessage message;
  message.items.push_back(std::move(item));
  return message;
}

void ExpectSame(const std::vector<Item>& got, const std::vector<Item>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].number, want[i].number);
    EXPECT_EQ(got[i].key, want[i].key);
    EXPECT_EQ(got[i].table, want[i].table);
    EXPECT_EQ(got[i].priority, want[i].priority);
    EXPECT_EQ(Contents(got[i].trajectory), Contents(want[i].trajectory)) << "item " << i;
  }
}

void ExpectSame(const std::vector<Sample>& got, const std::vector<Sample>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].key, want[i].key);
    EXPECT_EQ(got[i].priority, want[i].priority);
    EXPECT_EQ(got[i].probability, want[i].probability);
    EXPECT_EQ(got[i].table_size, want[i].table_size);
    EXPECT_EQ(got[i].inserted_at, want[i].inserted_at);
    EXPECT_EQ(got[i].times_sampled, want[i].times_sampled);
    EXPECT_EQ(got[i].rate_limited, want[i].rate_limited);
    EXPECT_EQ(Contents(got[i].trajectory), Contents(want[i].trajectory)) << "sample " << i;
  }
}

void ExpectSame(const Welcome& got, const Welcome& want) {
  EXPECT_EQ(got.version, want.version);
  EXPECT_EQ(got.server_life_id, want.server_life_id);
  EXPECT_EQ(got.server_name, want.server_name);
  EXPECT_EQ(got.applied_through, want.applied_through);
  EXPECT_EQ(got.limits.max_message_bytes, want.limits.max_message_bytes);
  EXPECT_EQ(got.limits.max_chunk_bytes, want.limits.max_chunk_bytes);
  EXPECT_EQ(got.limits.insert_window_bytes, want.limits.insert_window_bytes);
  EXPECT_EQ(got.limits.max_item_bytes, want.limits.max_item_bytes);
}

void ExpectSame(const Hello& got, const Hello& want) {
  EXPECT_EQ(got.min_version, want.min_version);
  EXPECT_EQ(got.max_version, want.max_version);
  EXPECT_EQ(got.session_id, want.session_id);
  EXPECT_EQ(got.client_name, want.client_name);
  EXPECT_EQ(got.receive_window_bytes, want.receive_window_bytes);
  EXPECT_EQ(got.max_response_bytes, want.max_response_bytes);
}

// --- Messages without data ---

TEST(WireTest, InsertHello) {
  const auto hello = DecodeInsertHello(Slices(EncodeInsertHello(test::ExampleHello())));
  ASSERT_OK(hello);
  ExpectSame(*hello, test::ExampleHello());
}

TEST(WireTest, InsertHelloIsAloneInItsMessage) {
  EXPECT_THAT(DecodeInsertHello({}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("must greet")));
  const std::string bytes = EncodeInsertHello({}).Flatten() + "\x20\x01";
  const ByteSlice slice = SliceOf(bytes);
  EXPECT_THAT(DecodeInsertHello({&slice, 1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("field 4")));
}

TEST(WireTest, InsertReply) {
  const InsertReply want = test::ExampleInsertReply();
  const auto got = DecodeInsertReply(Slices(EncodeInsertReply(want)));
  ASSERT_OK(got);
  ASSERT_TRUE(got->welcome && got->waiting);
  ExpectSame(*got->welcome, *want.welcome);
  EXPECT_EQ(got->confirmed_through, want.confirmed_through);
  ASSERT_EQ(got->rejections.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got->rejections[i].number, want.rejections[i].number);
    EXPECT_EQ(got->rejections[i].status, want.rejections[i].status);
  }
  EXPECT_EQ(got->waiting->table, want.waiting->table);
  EXPECT_EQ(got->waiting->reason, want.waiting->reason);
  EXPECT_EQ(got->waiting->waited, want.waiting->waited);
  EXPECT_EQ(got->waiting->text, want.waiting->text);

  const auto empty = DecodeInsertReply(Slices(EncodeInsertReply({})));
  ASSERT_OK(empty);
  EXPECT_FALSE(empty->welcome || empty->waiting);
}

TEST(WireTest, SampleRequest) {
  const SampleStreamMessage want = test::ExampleSampleRequest();
  const auto got = DecodeSampleRequest(Slices(EncodeSampleRequest(want)));
  ASSERT_OK(got);
  ASSERT_TRUE(got->hello);
  ExpectSame(*got->hello, *want.hello);
  EXPECT_EQ(got->request.request_id, want.request.request_id);
  EXPECT_EQ(got->request.table, want.request.table);
  EXPECT_EQ(got->request.count, want.request.count);
  EXPECT_EQ(got->request.timeout, Duration(0));
  EXPECT_EQ(got->request.taken_bytes, want.request.taken_bytes);
  EXPECT_TRUE(got->request.even_columns);

  const auto plain = DecodeSampleRequest(Slices(EncodeSampleRequest({})));
  ASSERT_OK(plain);
  EXPECT_FALSE(plain->hello);
  EXPECT_FALSE(plain->request.timeout);  // absent and zero are different things
  EXPECT_FALSE(plain->request.even_columns);
}

TEST(WireTest, SingleCalls) {
  const MutateRequest mutate = test::ExampleMutateRequest();
  const auto mutated = DecodeMutateRequest(Slices(EncodeMutateRequest(mutate)));
  ASSERT_OK(mutated);
  EXPECT_EQ(mutated->table, mutate.table);
  ASSERT_EQ(mutated->updates.size(), mutate.updates.size());
  for (size_t i = 0; i < mutate.updates.size(); ++i) {
    EXPECT_EQ(mutated->updates[i].key, mutate.updates[i].key);
    EXPECT_EQ(mutated->updates[i].priority, mutate.updates[i].priority);
    EXPECT_EQ(std::signbit(mutated->updates[i].priority), std::signbit(mutate.updates[i].priority));
  }
  EXPECT_EQ(mutated->deletes, mutate.deletes);

  EXPECT_EQ(DecodeResetRequest(Slices(EncodeResetRequest("replay"))).value(), "replay");
  EXPECT_EQ(DecodeCheckpointReply(Slices(EncodeCheckpointReply("/a/b"))).value(), "/a/b");
  EXPECT_OK(DecodeEmpty(Slices(EncodeEmpty())));

  const SetRateLimiterRequest limiter = test::ExampleSetRateLimiter();
  const auto set = DecodeSetRateLimiterRequest(Slices(EncodeSetRateLimiterRequest(limiter)));
  ASSERT_OK(set);
  EXPECT_EQ(set->table, limiter.table);
  EXPECT_EQ(set->options, limiter.options);
  EXPECT_THAT(DecodeSetRateLimiterRequest({}), StatusIs(StatusCode::kInvalidArgument));

  const InspectRequest inspect = test::ExampleInspectRequest();
  const auto looked = DecodeInspectRequest(Slices(EncodeInspectRequest(inspect)));
  ASSERT_OK(looked);
  EXPECT_EQ(looked->table, inspect.table);
  EXPECT_EQ(looked->cursor, inspect.cursor);
  EXPECT_EQ(looked->count, inspect.count);
}

TEST(WireTest, ServerInfo) {
  const ServerInfo want = test::ExampleServerInfo();
  const WireMessage message = EncodeServerInfo(want);
  const auto got = DecodeServerInfo(Slices(message));
  ASSERT_OK(got);
  EXPECT_EQ(EncodeServerInfo(*got).Flatten(), message.Flatten());
  EXPECT_EQ(got->server_life_id, want.server_life_id);
  EXPECT_EQ(got->server_name, want.server_name);
  EXPECT_EQ(got->live_chunks, want.live_chunks);
  EXPECT_EQ(got->live_bytes, want.live_bytes);
  EXPECT_EQ(got->stored_bytes, want.stored_bytes);
  EXPECT_EQ(got->max_bytes, want.max_bytes);
  EXPECT_EQ(got->now_nanos, want.now_nanos);
  EXPECT_EQ(got->started_nanos, want.started_nanos);
  ASSERT_EQ(got->waiters.size(), 2u);
  EXPECT_EQ(got->waiters[0].table, "replay");
  EXPECT_TRUE(got->waiters[0].is_insert);
  EXPECT_EQ(got->waiters[0].reason, WaitReason::kTooManyInserts);
  EXPECT_EQ(got->waiters[0].waited_nanos, 7'000);
  EXPECT_EQ(got->waiters[0].count, 8);
  EXPECT_EQ(got->waiters[0].client_name, "actor-17");
  EXPECT_EQ(got->waiters[0].address, "192.0.2.1:1234");
  EXPECT_FALSE(got->waiters[1].is_insert);
  ASSERT_EQ(got->tables.size(), 2u);
  const TableInfo& a = got->tables[0];
  const TableInfo& b = want.tables[0];
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.sampler, b.sampler);
  EXPECT_EQ(a.remover, b.remover);
  EXPECT_EQ(a.max_size, b.max_size);
  EXPECT_EQ(a.max_times_sampled, b.max_times_sampled);
  EXPECT_EQ(a.rate_limiter, b.rate_limiter);
  EXPECT_EQ(a.signature, b.signature);
  EXPECT_EQ(a.current_size, b.current_size);
  EXPECT_EQ(a.counters, b.counters);
  EXPECT_EQ(a.cursor, b.cursor);
  EXPECT_EQ(a.work_time.idle_nanos, b.work_time.idle_nanos);
  EXPECT_EQ(a.waits[5].total_nanos, b.waits[5].total_nanos);
  EXPECT_EQ(a.insert_wait_reason, b.insert_wait_reason);
  EXPECT_TRUE(a.closed);
  EXPECT_EQ(a.user_data, b.user_data);
  EXPECT_EQ(a.structure, b.structure);
  EXPECT_EQ(got->tables[1].structure, "");
  EXPECT_EQ(got->tables[1].sampler, want.tables[1].sampler);
}

TEST(WireTest, Statuses) {
  Status got;
  for (const Status& want : {Status::Ok(), Status::NotFound("x"),
                             Status(StatusCode::kDeadlineExceeded, "late", Detail::kQueued)}) {
    ASSERT_OK(DecodeStatus(Slices(EncodeStatus(want)), &got));
    EXPECT_EQ(got, want);
  }
  // From the future: code 99, detail 77.
  const ByteSlice slice = SliceOf("\x08\x63\x10\x4d");
  ASSERT_OK(DecodeStatus({&slice, 1}, &got));
  EXPECT_THAT(got, StatusIs(StatusCode::kUnknown, Detail::kNone));
  // A novel is cut, between characters.
  std::string novel;
  while (novel.size() < (1 << 17))
    novel +=
        "\xc3\xa4"
        "b\xc3\xb6";
  ASSERT_OK(DecodeStatus(Slices(EncodeStatus(Status::Internal(novel))), &got));
  EXPECT_LT(got.message().size(), size_t{1} << 15);
  EXPECT_TRUE(got.message().ends_with("\xc3\xa4") || got.message().ends_with("\xc3\xb6") ||
              got.message().ends_with("b"));
}

// --- Insert ---

class WireInsertTest : public testing::Test {
 protected:
  ChunkRef Numbers(uint64_t id, uint32_t rows) { return MakeChunk(id, {{DType::kInt64}}, rows, &random_); }
  Trajectory Whole(const ChunkRef& chunk) {
    return Trajectory::Single(chunk, 0, chunk->header().rows()).value();
  }

  const uint64_t seed_ = test::Seed();
  testing::ScopedTrace trace_{__FILE__, __LINE__, test::SeedTrace(seed_)};
  Random random_{seed_};
  InsertEncoder encoder_;
  InsertDecoder decoder_{Factory()};
};

TEST_F(WireInsertTest, RandomItemsArriveAsTheyWere) {
  const std::vector<ColumnKind> kinds = AllKinds();
  for (int round = 0; round < 20; ++round) {
    InsertEncoder encoder;
    InsertDecoder decoder(Factory());
    std::vector<ChunkRef> chunks;
    std::set<uint64_t> alive;
    uint64_t number = 0;
    for (int step = 0; step < 10; ++step) {
      for (int i = 0; i < 2; ++i) {
        chunks.push_back(
            MakeChunk(random_.Next(), kinds, static_cast<uint32_t>(1 + random_.Below(20)), &random_));
      }
      InsertMessage message;
      const uint64_t count = random_.Below(6);
      for (uint64_t i = 0; i < count; ++i) {
        std::vector<uint32_t> columns;
        for (uint64_t c = random_.Below(5) + 1; c > 0; --c) {
          columns.push_back(static_cast<uint32_t>(random_.Below(kinds.size())));
        }
        number += 1 + random_.Below(2);
        message.items.push_back(
            ItemOf(number, RandomTrajectory(chunks, columns, &random_), random_.Below(3) != 0 ? "a" : "b"));
        message.items.back().trajectory.ForEachChunk([&](Chunk* chunk) { alive.insert(chunk->id()); });
      }
      if (chunks.size() > 6) {
        for (int i = 0; i < 3; ++i) {
          message.forget_chunks.push_back(chunks[0]->id());
          alive.erase(chunks[0]->id());
          chunks.erase(chunks.begin());
        }
      }
      message.heartbeat = random_.Below(2) == 0;
      const auto got = Decode(&decoder, encoder.Encode(message));
      ASSERT_OK(got);
      ExpectSame(got->items, message.items);
      EXPECT_EQ(got->heartbeat, message.heartbeat);
      EXPECT_EQ(encoder.window_chunks(), alive.size());
      EXPECT_EQ(decoder.window_chunks(), alive.size());
    }
  }
}

TEST_F(WireInsertTest, HeadersArriveAsTheyWere) {
  const ChunkRef chunk = MakeChunk(~uint64_t{0}, AllKinds(), 13, &random_);
  ChunkHeader seen;
  InsertDecoder decoder([&](const ChunkHeader& header, uint8_t** payload) {
    seen = header;
    return Chunk::Uninitialized(1, header, payload);
  });
  ASSERT_OK(Decode(&decoder, encoder_.Encode(MessageOf(ItemOf(1, Whole(chunk))))));
  EXPECT_EQ(seen, chunk->header().Unpack());
}

TEST_F(WireInsertTest, AChunkTravelsOnceInAWindow) {
  const ChunkRef chunk = Numbers(5, 2'000);  // 16 kB
  InsertMessage message;
  for (uint64_t i = 1; i <= 10; ++i) message.items.push_back(ItemOf(i, Whole(chunk)));
  const WireMessage first = encoder_.Encode(message);
  EXPECT_GT(first.total_bytes(), 16'000u);
  EXPECT_LT(first.total_bytes(), 16'000u + 10 * 50 + 100);
  // The payload is the chunk's own memory.
  ASSERT_EQ(first.parts().size(), 2u);
  EXPECT_EQ(first.parts()[1].data(), chunk->payload().data());
  ASSERT_OK(Decode(&decoder_, first));

  const uint64_t expected = encoder_.NewBytes(Whole(chunk));
  InsertMessage second = MessageOf(ItemOf(11, Whole(chunk)));
  second.forget_chunks = {5, 77};  // 77 was never sent
  const WireMessage small = encoder_.Encode(second);
  EXPECT_LT(small.total_bytes(), 60u);
  EXPECT_LT(expected, 100u);
  const auto got = Decode(&decoder_, small);
  ASSERT_OK(got);
  EXPECT_THAT(got->forget_chunks, ElementsAre(5));
  EXPECT_EQ(Contents(got->items[0].trajectory), Contents(Whole(chunk)));
  EXPECT_EQ(decoder_.window_chunks(), 0u);
  EXPECT_EQ(decoder_.window_bytes(), 0u);

  // Forgotten on both sides: travels anew.
  EXPECT_GT(encoder_.NewBytes(Whole(chunk)), 16'000u);
  const WireMessage third = encoder_.Encode(MessageOf(ItemOf(12, Whole(chunk))));
  EXPECT_GT(third.total_bytes(), 16'000u);
  EXPECT_OK(Decode(&decoder_, third));
}

TEST_F(WireInsertTest, SharedPayloadsKeepTheirChunkAlive) {
  ChunkRef chunk = Numbers(5, 2'000);
  InsertMessage insert = MessageOf(ItemOf(1, Whole(chunk)));
  const std::string want = Contents(insert.items[0].trajectory);
  const WireMessage message = encoder_.Encode(insert);
  insert = {};
  chunk = {};
  const auto got = Decode(&decoder_, message);
  ASSERT_OK(got);
  EXPECT_EQ(Contents(got->items[0].trajectory), want);
}

TEST_F(WireInsertTest, SmallPayloadsAreCopiedTogether) {
  InsertMessage message;
  for (uint64_t i = 1; i <= 10; ++i) message.items.push_back(ItemOf(i, Whole(Numbers(i, 100))));
  EXPECT_EQ(encoder_.Encode(message).parts().size(), 1u);
}

TEST_F(WireInsertTest, FieldsMayComeInAnyOrder) {
  InsertMessage message = MessageOf(ItemOf(1, Whole(Numbers(1, 10))));
  message.items.push_back(ItemOf(2, Whole(Numbers(2, 10)), "other"));
  message.forget_chunks = {1};
  const std::string bytes = encoder_.Encode(message).Flatten();
  // Chunks to the front, forgetting too; the items stay in order.
  const ByteSlice slice = SliceOf(bytes);
  WireReader reader({&slice, 1});
  std::string front, back;
  size_t start = 0;
  while (reader.Next()) {
    const uint32_t field = reader.field();
    (void)reader.ReadMessage();
    const size_t end = bytes.size() - reader.remaining();
    (field == 2 ? back : front) += bytes.substr(start, end - start);
    start = end;
  }
  ASSERT_OK(reader.status("InsertRequest"));
  const ByteSlice turned[] = {SliceOf(front), SliceOf(back)};
  const auto got = decoder_.Decode(turned);
  ASSERT_OK(got);
  ExpectSame(got->items, message.items);
  EXPECT_EQ(decoder_.window_chunks(), 1u);
}

TEST_F(WireInsertTest, ErrorsNameWhatIsWrong) {
  const ChunkRef chunk = Numbers(5, 10);
  const WireMessage first = encoder_.Encode(MessageOf(ItemOf(3, Whole(chunk))));
  const WireMessage again = encoder_.Encode(MessageOf(ItemOf(4, Whole(chunk))));
  EXPECT_THAT(Decode(&decoder_, again),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("item 0 (number 4)"), HasSubstr("chunk 5, which is not known"))));
  ASSERT_OK(Decode(&decoder_, first));
  EXPECT_THAT(Decode(&decoder_, first),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("chunk 5 was sent before")));
  EXPECT_THAT(Decode(&decoder_, encoder_.Encode(MessageOf(ItemOf(3, Whole(chunk))))),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("item 0 (number 3): comes after number 3")));
  EXPECT_THAT(Decode(&decoder_, encoder_.Encode(MessageOf(ItemOf(9, Whole(chunk), "")))),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("names no table")));
  EXPECT_THAT(Decode(&decoder_, EncodeInsertHello({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("greets again")));
  const ByteSlice forget = SliceOf("\x18\x63");
  EXPECT_THAT(decoder_.Decode({&forget, 1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("chunk 99")));
  // Rows that the chunk does not have.
  InsertDecoder decoder(Factory());
  InsertEncoder encoder;
  ASSERT_OK(Decode(&decoder, encoder.Encode(MessageOf(ItemOf(1, Whole(Numbers(5, 4)))))));
  EXPECT_THAT(Decode(&decoder, encoder.Encode(MessageOf(ItemOf(2, Whole(chunk))))),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("item 0 (number 2)"), HasSubstr("rows 0 to 10"))));
}

TEST_F(WireInsertTest, LimitsAreKept) {
  const auto decode = [&](const WireLimits& limits, int messages = 1) {
    InsertEncoder encoder;
    InsertDecoder decoder(Factory(), limits);
    Result<InsertMessage> result = Status::Internal("nothing was decoded");
    for (int i = 0; i < messages; ++i) {
      InsertMessage message;
      for (uint64_t k = 1; k <= 2; ++k) {
        const uint64_t id = static_cast<uint64_t>(i) * 2 + k;
        message.items.push_back(ItemOf(id, Whole(Numbers(id, 100))));
      }
      result = Decode(&decoder, encoder.Encode(message));
    }
    return result;
  };
  EXPECT_OK(decode({}));
  const auto refused = [](const char* text) {
    return StatusIs(StatusCode::kResourceExhausted, HasSubstr(text));
  };
  EXPECT_THAT(decode({.max_message_bytes = 100}), refused("at most 100 are accepted"));
  EXPECT_THAT(decode({.max_chunk_bytes = 799}), refused("chunk 1 has 800 bytes"));
  EXPECT_THAT(decode({.max_items = 1}), refused("more than the 1 items"));
  EXPECT_THAT(decode({.max_chunks = 1}), refused("more than the 1 chunks"));
  EXPECT_THAT(decode({.max_slices = 1}), refused("more slices"));
  EXPECT_THAT(decode({.max_columns = 0}), refused("columns"));
  EXPECT_THAT(decode({.max_name_bytes = 3}), refused("longer than is accepted"));
  EXPECT_OK(decode({.max_window_chunks = 4}, 2));
  EXPECT_THAT(decode({.max_window_chunks = 3}, 2), refused("the window of the stream holds 3 chunks"));
  EXPECT_THAT(decode({.max_window_bytes = 3'000}, 2), refused("the window of the stream holds 3 chunks"));
  EXPECT_THAT(decode({.chunk = {.max_columns = 0}}), refused("columns"));
}

ItemStructure ListOf(size_t leaves) {
  return ItemStructure::Create(Signature::List(std::vector<Signature>(leaves)).value()).value();
}

TEST_F(WireInsertTest, AStructureTravelsOnceOnAStream) {
  const ChunkRef chunk = Numbers(5, 10);
  const std::vector<ItemStructure> structures = {ListOf(30), ListOf(40), ListOf(30)};
  uint64_t number = 0;
  for (int round = 0; round < 3; ++round) {
    InsertMessage message;
    for (const ItemStructure& structure :
         {ItemStructure(), structures[0], structures[0], structures[1], ItemStructure(), structures[2]}) {
      message.items.push_back(ItemOf(++number, Whole(chunk)));
      message.items.back().structure = structure;
    }
    const WireMessage bytes = encoder_.Encode(message);
    const auto got = Decode(&decoder_, bytes);
    ASSERT_OK(got);
    ExpectSame(got->items, message.items);
    for (size_t i = 0; i < message.items.size(); ++i) {
      EXPECT_EQ(got->items[i].structure, message.items[i].structure) << i;
    }
    // The one that is meant by "as before" is the very same.
    EXPECT_TRUE(got->items[2].structure.IsCopyOf(got->items[1].structure));
    EXPECT_TRUE(got->items[5].structure.IsCopyOf(got->items[1].structure));
    for (const ItemStructure& structure : {structures[0], structures[1]}) {
      EXPECT_EQ(bytes.Flatten().find(structure.encoded()) != std::string::npos, round == 0);
    }
  }
  // Another stream knows nothing of them.
  InsertMessage again = MessageOf(ItemOf(1, Whole(chunk)));
  again.items[0].structure = structures[1];
  InsertEncoder encoder;
  InsertDecoder decoder(Factory());
  const auto got = Decode(&decoder, encoder.Encode(again));
  ASSERT_OK(got);
  EXPECT_EQ(got->items[0].structure, structures[1]);
}

TEST_F(WireInsertTest, TooManyStructuresAreNotSaid) {
  const ChunkRef chunk = Numbers(5, 10);
  const size_t most = WireLimits().max_structures;
  InsertMessage message;
  for (size_t i = 0; i < most + 2; ++i) {
    message.items.push_back(ItemOf(i + 1, Whole(chunk)));
    message.items.back().structure = ListOf(i + 1);
  }
  const auto got = Decode(&decoder_, encoder_.Encode(message));
  ASSERT_OK(got);
  for (size_t i = 0; i < most + 2; ++i) {
    EXPECT_EQ(got->items[i].structure, i < most ? ListOf(i + 1) : ItemStructure()) << i;
  }
  const ByteSlice more = SliceOf("\x2a\x02\x01\x00");
  EXPECT_THAT(decoder_.Decode({&more, 1}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("more than the 16 structures")));
}

TEST_F(WireInsertTest, DamagedStructuresAreFound) {
  const auto decode = [](std::string_view structure) {
    WireWriter writer;
    writer.Bytes(5, structure);
    InsertDecoder decoder(Factory());
    return Decode(&decoder, writer.Finish());
  };
  const std::string good(ListOf(3).encoded());
  EXPECT_OK(decode(good));
  for (size_t length = 1; length < good.size(); ++length) {
    EXPECT_THAT(decode(std::string_view(good).substr(0, length)),
                StatusIs(StatusCode::kDataLoss, HasSubstr("structure 1")));
  }
  std::string deep = "\x01";
  for (int i = 0; i < 30'000; ++i) deep += "\x02\x01";
  EXPECT_THAT(decode(deep + '\0'), StatusIs(StatusCode::kDataLoss, HasSubstr("structure 1")));
  EXPECT_THAT(decode(std::string(ItemStructure::kMaxBytes + 1, '\x01')),
              StatusIs(StatusCode::kResourceExhausted));
  // A number that none has.
  const std::string bytes = [&] {
    InsertMessage message = MessageOf(ItemOf(1, Whole(Numbers(5, 10))));
    message.items[0].structure = ListOf(3);
    return encoder_.Encode(message).Flatten();
  }();
  const size_t at = bytes.find("\x38\x01\x2a");  // structure 1, then the field of structures
  ASSERT_NE(at, std::string::npos);
  std::string wrong = bytes;
  wrong[at + 1] = 2;
  const ByteSlice slice = SliceOf(wrong);
  EXPECT_THAT(decoder_.Decode({&slice, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("names structure 2")));
}

TEST_F(WireInsertTest, TheFactoryMayRefuse) {
  InsertDecoder decoder(
      [](const ChunkHeader&, uint8_t**) -> Result<ChunkRef> { return Status::ResourceExhausted("no room"); });
  EXPECT_THAT(Decode(&decoder, encoder_.Encode(MessageOf(ItemOf(1, Whole(Numbers(5, 1)))))),
              StatusIs(StatusCode::kResourceExhausted, "chunk 5: no room"));
}

TEST_F(WireInsertTest, DamagedPayloadsAreFound) {
  const ChunkRef chunk = MakeChunk(5, {{DType::kUint8, {500}}, {DType::kInt64}}, 10, &random_);
  const WireMessage message = encoder_.Encode(MessageOf(ItemOf(1, Trajectory::Single(chunk, 0, 5).value())));
  ASSERT_EQ(message.parts().size(), 2u);
  for (size_t i = 0; i < message.parts()[1].size(); i += 7) {
    std::string payload(reinterpret_cast<const char*>(message.parts()[1].data()), message.parts()[1].size());
    payload[i] = static_cast<char>(payload[i] ^ (1 << random_.Below(8)));
    const ByteSlice slices[] = {message.parts()[0].span(), SliceOf(payload)};
    InsertDecoder decoder(Factory());
    EXPECT_THAT(decoder.Decode(slices), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData,
                                                 HasSubstr(i < 5'000 ? "chunk 5, column 0" : "column 1")));
  }
}

// --- Sample ---

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

TEST_F(WireSampleTest, RandomSamplesArriveAsTheyWere) {
  const std::vector<ColumnKind> kinds = AllKinds();
  for (int round = 0; round < 150; ++round) {
    std::vector<ChunkRef> chunks;
    const uint64_t num_chunks = 1 + random_.Below(random_.Below(4) == 0 ? 10 : 2);
    for (uint64_t i = 0; i < num_chunks; ++i) {
      chunks.push_back(MakeChunk(i, kinds, static_cast<uint32_t>(1 + random_.Below(30)), &random_));
    }
    SampleReply reply{.request_id = random_.Next(), .even_columns = random_.Below(2) == 0};
    while (random_.Below(4) != 0) {  // some batches, each of its own columns
      std::vector<uint32_t> columns;
      for (uint64_t c = random_.Below(4) + 1; c > 0; --c) {
        columns.push_back(static_cast<uint32_t>(random_.Below(kinds.size())));
      }
      for (Sample& sample : RandomSamples(chunks, columns, random_.Below(6), &random_)) {
        reply.samples.push_back(std::move(sample));
      }
    }
    if (random_.Below(2) == 0) reply.welcome = test::ExampleWelcome();
    if (random_.Below(2) == 0) reply.end = random_.Below(2) == 0 ? Status::Ok() : Status::Cancelled("enough");
    const auto got = RoundTrip(reply);
    ASSERT_OK(got);
    EXPECT_EQ(got->request_id, reply.request_id);
    EXPECT_EQ(got->welcome.has_value(), reply.welcome.has_value());
    EXPECT_EQ(got->end, reply.end);
    ExpectSame(got->samples, reply.samples);

    const InspectReply inspect{.next_cursor = 17, .items = reply.samples};
    const auto looked = DecodeInspectReply(Slices(EncodeInspectReply(inspect)));
    ASSERT_OK(looked);
    EXPECT_EQ(looked->next_cursor, 17u);
    ExpectSame(looked->items, reply.samples);
  }
}

TEST_F(WireSampleTest, ABatchOfRawRowsArrivesInOneRun) {
  const std::vector<ColumnKind> kinds = {{DType::kInt64}, {DType::kFloat32, {3}}};
  SampleReply reply;
  for (uint32_t i = 0; i < 32; ++i) {
    const ChunkRef a = MakeChunk(2 * i, kinds, 10, &random_);
    const ChunkRef b = MakeChunk(2 * i + 1, kinds, 10, &random_);
    std::vector<ColumnSpec> columns(2);
    columns[0].slices = {{a, 0, i % 7, 1}};
    columns[0].squeeze = true;
    columns[1].slices = {{a, 1, 8, 2}, {b, 1, 0, 3}};
    reply.samples.push_back(SampleOf(Trajectory::Create(columns).value()));
  }
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  // Only the rows that are needed, and little else.
  const uint64_t rows_bytes = 32 * (8 + 5 * 12);
  EXPECT_LT(message_.total_bytes(), rows_bytes + 32 * 60 + 100);
  for (uint32_t i = 0; i < 32; ++i) {
    const Trajectory& trajectory = got->samples[i].trajectory;
    ASSERT_EQ(trajectory.num_slices(1), 1u);  // two became one
    EXPECT_EQ(trajectory.slice(0, 0).offset, i);
    EXPECT_EQ(trajectory.slice(1, 0).offset, 5 * i);
    for (uint32_t c : {0, 1}) {
      EXPECT_EQ(trajectory.slice(c, 0).chunk, got->samples[0].trajectory.slice(c, 0).chunk);
    }
  }
}

TEST_F(WireSampleTest, LargeRawRowsTravelFromWhereTheyLie) {
  SampleReply reply;
  std::vector<const uint8_t*> sources;
  for (uint32_t i = 0; i < 8; ++i) {
    const ChunkRef chunk = MakeChunk(i, {{DType::kUint8, {7056}}}, 20, &random_);  // several blocks
    reply.samples.push_back(SampleOf(chunk, i, 4));
    sources.push_back(chunk->payload().data() + i * 7056);
  }
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  ASSERT_EQ(message_.parts().size(), 9u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(message_.parts()[i + 1].data(), sources[i]);
  EXPECT_EQ(got->samples[7].trajectory.slice(0, 0).offset, 28u);
  EXPECT_LT(message_.total_bytes(), 8u * 4 * 7056 + 8 * 70 + 100);
}

TEST_F(WireSampleTest, LongRawRowsMayStayInTheMessageAsLongAsSomethingKeepsIt) {
  const ChunkRef chunk = MakeChunk(1, {{DType::kUint8, {50'000}, CodecPolicy::kNone}}, 4, &random_);
  const SampleReply reply{.samples = {SampleOf(chunk, 2, 1), SampleOf(chunk, 0, 1), SampleOf(chunk, 1, 2)}};
  const std::string bytes = EncodeSampleReply(reply).Flatten();
  struct Keeper final : BufferOwner {
    std::vector<std::string> parts;
    std::vector<ByteSlice> slices;
  };
  const auto receive = [](std::string_view text) {
    auto* keeper = new Keeper;
    for (size_t at = 0; at < text.size(); at += 16'001) keeper->parts.emplace_back(text.substr(at, 16'001));
    for (const std::string& part : keeper->parts) keeper->slices.push_back(SliceOf(part));
    return std::pair(Buffer(keeper, nullptr, 0), ByteSlices(keeper->slices));
  };
  Result<SampleReply> got = Status::Internal("not yet");
  {
    const auto [keeper, slices] = receive(bytes);
    got = DecodeSampleReply(slices, {}, keeper);
  }
  ASSERT_OK(got);
  EXPECT_TRUE(got->samples[0].trajectory.slice(0, 0).chunk->is_scattered());
  ExpectSame(got->samples, reply.samples);

  std::string damaged = bytes;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  const auto [keeper, slices] = receive(damaged);
  EXPECT_THAT(DecodeSampleReply(slices, {}, keeper),
              StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("piece 0")));
}

TEST_F(WireSampleTest, OnlyTouchedBlocksOfCompressedColumnsTravelEachOnce) {
  // 12 kB a row, five rows a block.
  const ChunkRef chunk = MakeChunk(1, {{DType::kUint16, {6000}, CodecPolicy::kLz4}}, 40, &random_);
  const ColumnView view = chunk->header().column(0);
  ASSERT_GE(view.blocks.size(), 4u);
  ASSERT_LT(view.blocks[0].stored_size, view.blocks[0].raw_size);
  const uint32_t per_block = view.rows_per_block;
  const auto stored = [&](uint32_t first, uint32_t count) {
    uint64_t bytes = 0;
    for (uint32_t i = first; i < first + count; ++i) bytes += view.blocks[i].stored_size;
    return bytes;
  };

  SampleReply one{.samples = {SampleOf(chunk, per_block + 1, 1)}};
  auto got = RoundTrip(one);
  ASSERT_OK(got);
  ExpectSame(got->samples, one.samples);
  EXPECT_GE(message_.total_bytes(), stored(1, 1));
  EXPECT_LT(message_.total_bytes(), stored(1, 1) + 150);
  EXPECT_EQ(got->samples[0].trajectory.slice(0, 0).offset, 1u);  // rebased

  // Blocks 1 and 2 by three samples, and the last, which is shorter.
  SampleReply several{.samples = {SampleOf(chunk, 39, 1), SampleOf(chunk, 2 * per_block, 2),
                                  SampleOf(chunk, per_block, per_block + 1), SampleOf(chunk, per_block, 1)}};
  got = RoundTrip(several);
  ASSERT_OK(got);
  ExpectSame(got->samples, several.samples);
  const uint64_t needed = stored(1, 2) + stored(static_cast<uint32_t>(view.blocks.size()) - 1, 1);
  EXPECT_GE(message_.total_bytes(), needed);
  EXPECT_LT(message_.total_bytes(), needed + 400);
  EXPECT_EQ(got->samples[1].trajectory.slice(0, 0).chunk, got->samples[2].trajectory.slice(0, 0).chunk);
}

TEST_F(WireSampleTest, RawRowsThatOverlapMuchTravelOnce) {
  // Observations and next observations over the same rows; rewards do not overlap.
  const ChunkRef chunk = MakeChunk(1, {{DType::kFloat32, {600}}, {DType::kFloat32}}, 50, &random_);
  SampleReply reply;
  for (uint32_t i = 0; i < 10; ++i) {
    std::vector<ColumnSpec> columns(3);
    columns[0].slices = {{chunk, 0, 10 + i, 4}};
    columns[1].slices = {{chunk, 0, 11 + i, 4}};
    columns[2].slices = {{chunk, 1, 4 * i, 4}};
    reply.samples.push_back(SampleOf(Trajectory::Create(columns).value()));
  }
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  EXPECT_LT(message_.total_bytes(), 14u * 2400 + 40 * 4 + 10 * 70 + 200);
  // The rewards are in one run all the same.
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(got->samples[i].trajectory.slice(2, 0).offset, 4 * i);
}

TEST_F(WireSampleTest, TheSameItemManyTimes) {
  const ChunkRef chunk = MakeChunk(1, AllKinds(), 8, &random_);
  std::vector<ColumnSpec> columns;
  for (uint32_t c = 0; c < AllKinds().size(); ++c) columns.push_back({.slices = {{chunk, c, 2, 3}}});
  SampleReply reply;
  reply.samples.assign(20, SampleOf(Trajectory::Create(columns).value()));
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  EXPECT_LT(message_.total_bytes(), chunk->payload().size() + 20 * 12 * 20 + 2'000);
}

TEST_F(WireSampleTest, ErrorsNameWhatIsWrong) {
  const ChunkRef chunk = MakeChunk(1, {{DType::kInt64}}, 10, &random_);
  const std::string bytes = EncodeSampleReply({.samples = {SampleOf(chunk, 0, 10)}}).Flatten();
  const auto decode = [](std::string_view text, const WireLimits& limits = {}) {
    const ByteSlice slice = SliceOf(text);
    return DecodeSampleReply({&slice, 1}, limits);
  };
  ASSERT_OK(decode(bytes));
  // Without the piece: it is the last field, 80 bytes and some.
  const size_t piece = bytes.find('\x7a');
  ASSERT_NE(piece, std::string::npos);
  EXPECT_THAT(
      decode(bytes.substr(0, piece)),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("sample 0: column 0: slice 0 refers to chunk 0")));
  std::string damaged = bytes;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  EXPECT_THAT(decode(damaged), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("piece 0")));
  const auto refused = [](const char* text) {
    return StatusIs(StatusCode::kResourceExhausted, HasSubstr(text));
  };
  EXPECT_THAT(decode(bytes, {.max_message_bytes = 10}), refused("at most 10"));
  EXPECT_THAT(decode(bytes, {.max_chunk_bytes = 10}), refused("piece 0: 80 bytes, at most 10"));
  EXPECT_THAT(decode(bytes, {.max_items = 0}), refused("samples"));
  EXPECT_THAT(decode(bytes, {.max_slices = 0}), refused("pieces"));
  EXPECT_THAT(decode(bytes, {.max_columns = 0}), refused("columns"));
}

// --- Samples that all have the same columns ---

class WireEvenTest : public WireSampleTest {
 protected:
  // Raw columns: small rows, empty rows, rows long enough to travel from where they lie.
  const std::vector<ColumnKind> kinds_ = {{DType::kInt64},
                                          {DType::kFloat32, {3}},
                                          {DType::kBool, {0, 3}},
                                          {DType::kUint8, {2000}},
                                          {DType::kFloat32, {300}, CodecPolicy::kLz4},
                                          {DType::kString}};
  std::vector<ChunkRef> Chunks(size_t count, uint32_t rows) {
    std::vector<ChunkRef> chunks;
    for (size_t i = 0; i < count; ++i) chunks.push_back(MakeChunk(i, kinds_, rows, &random_));
    return chunks;
  }
  // Whether it arrives as it was, and whether the columns were said once.
  void ExpectArrives(const SampleReply& reply, bool even) {
    const auto got = RoundTrip(reply);
    ASSERT_OK(got);
    ExpectSame(got->samples, reply.samples);
    EXPECT_EQ(got->even_columns, even);
  }
};

TEST_F(WireEvenTest, RandomBatchesArriveAsTheyWere) {
  const std::vector<ChunkRef> chunks = Chunks(300, 6);
  int num_even = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<uint32_t> columns;
    std::vector<uint32_t> lengths;
    for (uint64_t c = random_.Below(4) + 1; c > 0; --c) {
      columns.push_back(static_cast<uint32_t>(random_.Below(4)));
      lengths.push_back(static_cast<uint32_t>(random_.Below(2) == 0 ? 1 : 1 + random_.Below(5)));
    }
    SampleReply reply{.request_id = 1,
                      .samples = test::EvenBatch(chunks, columns, lengths, 2 + random_.Below(5), &random_),
                      .end = Status::Cancelled("enough"),
                      .even_columns = true};
    const auto got = RoundTrip(reply);
    ASSERT_OK(got);
    EXPECT_EQ(got->end, reply.end);
    ExpectSame(got->samples, reply.samples);
    num_even += got->even_columns;  // some chance to overlap is left
    // The same for a client that does not know it, in the longer form.
    reply.even_columns = false;
    ExpectArrives(reply, false);
  }
  EXPECT_GT(num_even, 80);
}

TEST_F(WireEvenTest, ColumnsAreSaidOnceAndRowsLieTogether) {
  const SampleReply reply{.samples = test::EvenBatch(Chunks(400, 6), {0, 1, 1}, {1, 3, 2}, 32, &random_),
                          .even_columns = true};
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  ASSERT_TRUE(got->even_columns);
  EXPECT_LT(message_.total_bytes(), 32 * (8 + 3 * 12 + 2 * 12 + 50) + 300);
  for (uint32_t i = 0; i < 32; ++i) {
    const Trajectory& trajectory = got->samples[i].trajectory;
    const uint32_t lengths[] = {1, 3, 2};
    for (uint32_t c = 0; c < 3; ++c) {
      ASSERT_EQ(trajectory.num_slices(c), 1u);
      EXPECT_EQ(trajectory.slice(c, 0).offset, i * lengths[c]);
      EXPECT_EQ(trajectory.slice(c, 0).length, lengths[c]);
    }
    EXPECT_EQ(i > 0, i > 0 && trajectory.Follows(got->samples[i - 1].trajectory));
  }
}

TEST_F(WireEvenTest, LongRowsTravelFromWhereTheyLie) {
  const std::vector<ChunkRef> chunks = Chunks(8, 4);
  SampleReply reply{.even_columns = true};
  for (const ChunkRef& chunk : chunks) {
    std::vector<ColumnSpec> columns(1);
    columns[0].slices = {{chunk, 3, 1, 2}};
    reply.samples.push_back(SampleOf(Trajectory::Create(columns).value()));
  }
  ExpectArrives(reply, true);
  ASSERT_EQ(message_.parts().size(), 9u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(message_.parts()[i + 1].data(), chunks[i]->column_payload(3).data() + 2000);
  }
}

TEST_F(WireEvenTest, WhatIsNotEvenTakesTheLongerForm) {
  const std::vector<ChunkRef> chunks = Chunks(64, 6);
  const auto batch = [&](const std::vector<uint32_t>& columns, const std::vector<uint32_t>& lengths) {
    return test::EvenBatch(chunks, columns, lengths, 8, &random_);
  };
  const auto both = [&](std::vector<Sample> samples, const std::vector<Sample>& more) {
    samples.insert(samples.end(), more.begin(), more.end());
    return SampleReply{.samples = std::move(samples), .even_columns = true};
  };
  ExpectArrives(both(batch({0, 1}, {1, 1}), {}), true);
  ExpectArrives(both(batch({0, 4}, {1, 1}), {}), false);                           // compressed
  ExpectArrives(both(batch({0, 5}, {1, 1}), {}), false);                           // strings
  ExpectArrives(both(batch({0, 1}, {1, 1}), batch({1, 1}, {1, 1})), false);        // another dtype
  ExpectArrives(both(batch({0, 1}, {2, 1}), batch({0, 1}, {3, 1})), false);        // longer
  ExpectArrives(both(batch({0, 1}, {1, 1}), batch({0, 1, 1}, {1, 1, 1})), false);  // more columns
  ExpectArrives(both({batch({0}, {1})[0]}, {}), false);                            // one alone
  ExpectArrives(both({}, {}), false);
}

TEST_F(WireEvenTest, ASqueezedColumnIsNotLikeOneOfARow) {
  const ChunkRef chunk = Chunks(1, 6)[0];
  SampleReply reply{.even_columns = true};
  for (const bool squeeze : {true, false}) {
    reply.samples.push_back(SampleOf(Trajectory::Single(chunk, squeeze ? 1 : 2, 1, squeeze).value()));
  }
  ExpectArrives(reply, false);
}

TEST_F(WireEvenTest, RowsThatOverlapMuchTravelOnce) {
  const ChunkRef chunk = Chunks(1, 40)[0];
  SampleReply drawn_often{.even_columns = true};
  SampleReply frames{.even_columns = true};
  for (uint32_t i = 0; i < 20; ++i) {
    drawn_often.samples.push_back(SampleOf(chunk, i % 8, 1));
    frames.samples.push_back(SampleOf(chunk, i, 4));
  }
  ExpectArrives(drawn_often, false);
  ExpectArrives(frames, false);
  SampleReply seldom{.even_columns = true};
  for (uint32_t i = 0; i < 20; ++i) seldom.samples.push_back(SampleOf(chunk, i % 16, 1));
  ExpectArrives(seldom, true);
}

TEST_F(WireEvenTest, ErrorsNameWhatIsWrong) {
  // A response with two samples without columns, and one piece of ten rows.
  const ChunkRef chunk = MakeChunk(1, {{DType::kInt64}}, 10, &random_);
  const std::string piece_only = [&] {
    const std::string bytes = EncodeSampleReply({.samples = {SampleOf(chunk, 0, 10)}}).Flatten();
    return bytes.substr(bytes.find('\x7a'));
  }();
  const auto column = [](const std::string& slice) {
    const std::string in_column = std::string("\x0a") + static_cast<char>(slice.size()) + slice;
    return std::string("\x2a") + static_cast<char>(in_column.size()) + in_column;
  };
  const std::string two_samples("\x1a\x00\x1a\x00", 4);
  const auto decode = [&](const std::string& columns, const WireLimits& limits = {}) {
    const std::string bytes = two_samples + columns + piece_only;
    const ByteSlice slice = SliceOf(bytes);
    return DecodeSampleReply({&slice, 1}, limits);
  };
  // Of piece 0: `length` rows from `offset` on.
  const auto rows = [](char offset, char length) { return std::string{'\x18', offset, '\x20', length}; };
  const auto got = decode(column(rows(2, 4)));
  ASSERT_OK(got);
  ASSERT_EQ(got->samples.size(), 2u);
  EXPECT_EQ(got->samples[1].trajectory.slice(0, 0).offset, 6u);
  EXPECT_EQ(got->samples[1].trajectory.length(0), 4);

  const auto is_invalid = [](const char* text) {
    return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(decode(""), is_invalid("sample 0"));
  EXPECT_THAT(decode(column(rows(3, 4))),
              is_invalid("even columns: trajectory column 0: 2 times 4 rows from 3"));
  EXPECT_THAT(decode(column(rows(11, 1))), is_invalid("which has 10 rows"));
  EXPECT_THAT(decode(column(rows(0, 0))), is_invalid("even columns"));
  EXPECT_THAT(decode(column("\x20\xff\xff\xff\xff\x0f")), is_invalid("4294967295 rows"));
  EXPECT_THAT(decode(column("\x08\x01\x20\x01")),
              is_invalid("even column 0: slice 0 refers to chunk 1, which is not known here"));
  EXPECT_THAT(decode(column("\x10\x01\x20\x01")), is_invalid("names column 1"));
  EXPECT_THAT(decode(std::string("\x2a\x00", 2)),
              is_invalid("has 0 slices; in a series each column has one"));
  // One of two slices.
  EXPECT_THAT(decode(std::string("\x2a\x08\x0a\x02\x20\x01\x0a\x02\x20\x01", 10)),
              is_invalid("has 2 slices; in a series each column has one"));
  // Squeezed, of two rows.
  EXPECT_THAT(decode(std::string("\x2a\x06\x0a\x02\x20\x02\x10\x01", 8)), is_invalid("squeezed"));

  const auto is_refused = [](const char* text) {
    return StatusIs(StatusCode::kResourceExhausted, HasSubstr(text));
  };
  const std::string two_columns = column(rows(0, 1)) + column(rows(0, 2));
  EXPECT_OK(decode(two_columns));
  EXPECT_THAT(decode(two_columns, {.max_columns = 1}), is_refused("more than the 1 columns"));
  // They count for every sample.
  EXPECT_OK(decode(two_columns, {.max_slices = 4}));
  EXPECT_THAT(decode(two_columns, {.max_slices = 3}),
              is_refused("2 samples of 2 columns: more than the 3 slices"));
}

TEST_F(WireEvenTest, ASampleMayHaveColumnsOfItsOwn) {
  const ChunkRef chunk = MakeChunk(1, {{DType::kInt64}}, 10, &random_);
  // A sample with columns, then one without, then the columns of those that have none.
  const std::string own = EncodeSampleReply({.samples = {SampleOf(chunk, 0, 10)}}).Flatten();
  const std::string bytes = own + std::string("\x1a\x00\x2a\x04\x0a\x02\x20\x02", 8);
  const ByteSlice slice = SliceOf(bytes);
  const auto got = DecodeSampleReply({&slice, 1});
  ASSERT_OK(got);
  ASSERT_EQ(got->samples.size(), 2u);
  EXPECT_EQ(got->samples[0].trajectory.length(0), 10);
  EXPECT_EQ(got->samples[1].trajectory.length(0), 2);
  EXPECT_EQ(got->samples[1].trajectory.slice(0, 0).offset, 2u);
}

// --- Whatever the bytes ---

// Small messages of every type with what decodes them and writes them again; empty when refused.
struct Case {
  Case(const char* name_in, WireMessage message, std::function<std::string(ByteSlices)> again_in)
      : name(name_in), bytes(message.Flatten()), again(std::move(again_in)) {
    message.Seal(kNumber);
    sealed = message.Flatten();
  }
  static constexpr uint64_t kNumber = 7;  // of the sealed message

  const char* name;
  std::string bytes;
  std::string sealed;
  std::function<std::string(ByteSlices)> again;
};

template <typename T, typename Encode>
std::string Again(const Result<T>& result, const Encode& encode) {
  return result.ok() ? "OK " + encode(*result).Flatten() : std::string();
}

std::vector<Case> AllCases() {
  Random random(3);
  const std::vector<ChunkRef> chunks = {MakeChunk(1, {{DType::kInt64}, {DType::kString}}, 4, &random),
                                        MakeChunk(2, {{DType::kInt64}, {DType::kString}}, 3, &random)};
  const std::vector<Sample> samples = RandomSamples(chunks, {0, 1}, 2, &random);
  InsertMessage insert;
  for (uint64_t i = 1; i <= 2; ++i) insert.items.push_back(ItemOf(i, samples[i - 1].trajectory));
  insert.items[1].structure = ListOf(3);
  insert.forget_chunks = {1};
  insert.heartbeat = true;
  const SampleReply reply{
      .welcome = test::ExampleWelcome(), .request_id = 3, .samples = samples, .end = Status()};
  const InspectReply inspect{.next_cursor = 3, .items = samples};
  const ChunkRef long_chunk = MakeChunk(3, {{DType::kInt64}}, 1'000, &random);
  const SampleReply even{.request_id = 3,
                         .samples = test::EvenBatch({long_chunk}, {0, 0}, {1, 1}, 3, &random),
                         .even_columns = true};
  const auto again_reply = [](ByteSlices s) {
    return Again(DecodeSampleReply(s), [](const SampleReply& m) {
      for (const Sample& sample : m.samples) (void)Contents(sample.trajectory);
      return EncodeSampleReply(m);
    });
  };
  return {
      {"insert", InsertEncoder().Encode(insert),
       [](ByteSlices s) {
         InsertDecoder decoder(Factory());
         return Again(decoder.Decode(s), [](const InsertMessage& m) {
           for (const Item& item : m.items) (void)Contents(item.trajectory);
           return InsertEncoder().Encode(m);
         });
       }},
      {"insert hello", EncodeInsertHello(test::ExampleHello()),
       [](ByteSlices s) { return Again(DecodeInsertHello(s), EncodeInsertHello); }},
      {"insert reply", EncodeInsertReply(test::ExampleInsertReply()),
       [](ByteSlices s) { return Again(DecodeInsertReply(s), EncodeInsertReply); }},
      {"sample request", EncodeSampleRequest(test::ExampleSampleRequest()),
       [](ByteSlices s) { return Again(DecodeSampleRequest(s), EncodeSampleRequest); }},
      {"sample reply", EncodeSampleReply(reply), again_reply},
      {"sample reply of even columns", EncodeSampleReply(even), again_reply},
      {"inspect reply", EncodeInspectReply(inspect),
       [](ByteSlices s) { return Again(DecodeInspectReply(s), EncodeInspectReply); }},
      {"inspect request", EncodeInspectRequest(test::ExampleInspectRequest()),
       [](ByteSlices s) { return Again(DecodeInspectRequest(s), EncodeInspectRequest); }},
      {"mutate", EncodeMutateRequest(test::ExampleMutateRequest()),
       [](ByteSlices s) { return Again(DecodeMutateRequest(s), EncodeMutateRequest); }},
      {"limiter", EncodeSetRateLimiterRequest(test::ExampleSetRateLimiter()),
       [](ByteSlices s) { return Again(DecodeSetRateLimiterRequest(s), EncodeSetRateLimiterRequest); }},
      {"info", EncodeServerInfo(test::ExampleServerInfo()),
       [](ByteSlices s) { return Again(DecodeServerInfo(s), EncodeServerInfo); }},
      {"reset", EncodeResetRequest("replay"),
       [](ByteSlices s) { return Again(DecodeResetRequest(s), EncodeResetRequest); }},
      {"checkpoint", EncodeCheckpointReply("/somewhere"),
       [](ByteSlices s) { return Again(DecodeCheckpointReply(s), EncodeCheckpointReply); }},
  };
}

// The same for payloads that a checksum of the message leaves out, some of them compressed.
std::vector<Case> LongCases() {
  Random random(4);
  const std::vector<ChunkRef> chunks = {
      MakeChunk(1, {{DType::kUint8, {1000}}, {DType::kInt64, {}, CodecPolicy::kLz4}}, 3, &random),
      MakeChunk(2, {{DType::kUint8, {1000}}, {DType::kInt64, {}, CodecPolicy::kLz4}}, 2, &random)};
  const std::vector<Sample> samples = RandomSamples(chunks, {0, 1}, 2, &random);
  InsertMessage insert;
  for (uint64_t i = 1; i <= 2; ++i) insert.items.push_back(ItemOf(i, samples[i - 1].trajectory));
  return {
      {"insert", InsertEncoder().Encode(insert),
       [](ByteSlices s) {
         InsertDecoder decoder(Factory());
         return decoder.Decode(s).ok() ? "OK" : "";
       }},
      {"sample reply", EncodeSampleReply({.samples = samples}),
       [](ByteSlices s) { return DecodeSampleReply(s).ok() ? "OK" : ""; }},
      {"even sample reply",
       EncodeSampleReply({.samples = test::EvenBatch(chunks, {0}, {1}, 3, &random), .even_columns = true}),
       [](ByteSlices s) { return DecodeSampleReply(s).ok() ? "OK" : ""; }}};
}

TEST(WireBytesTest, SlicesMayEndAnywhere) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(c.name);
    const ByteSlice whole = SliceOf(c.bytes);
    const std::string want = c.again({&whole, 1});
    ASSERT_FALSE(want.empty());
    for (size_t i = 0; i <= c.bytes.size(); ++i) {
      const ByteSlice halves[] = {whole.first(i), whole.subspan(i)};
      ASSERT_EQ(c.again(halves), want) << "split at " << i;
    }
    std::vector<ByteSlice> single;
    for (size_t i = 0; i < c.bytes.size(); ++i) single.push_back(whole.subspan(i, 1));
    ASSERT_EQ(c.again(single), want);
  }
}

TEST(WireBytesTest, UnknownFieldsChangeNothing) {
  // Fields 1000 to 1003 of the four wire types.
  const std::string unknown(
      "\xc0\x3e\x07\xc9\x3e"
      "12345678\xd2\x3e\x03"
      "abc\xdd\x3e"
      "1234",
      25);
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(c.name);
    const ByteSlice slices[] = {SliceOf(unknown), SliceOf(c.bytes), SliceOf(unknown)};
    const ByteSlice whole = SliceOf(c.bytes);
    EXPECT_EQ(c.again(slices), c.again({&whole, 1}));
  }
}

// Each input is a copy of its own, so that a read past its end is seen by the sanitizer.
TEST(WireBytesTest, CutMessagesDoNoHarm) {
  for (const Case& c : AllCases()) {
    for (size_t i = 0; i < c.bytes.size(); ++i) {
      const std::vector<uint8_t> cut(c.bytes.begin(), c.bytes.begin() + static_cast<ptrdiff_t>(i));
      const ByteSlice slice(cut);
      (void)c.again({&slice, 1});
    }
  }
}

TEST(WireBytesTest, FlippedBitsDoNoHarm) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(c.name);
    for (size_t i = 0; i < c.bytes.size() * 8; ++i) {
      std::vector<uint8_t> flipped(c.bytes.begin(), c.bytes.end());
      flipped[i / 8] ^= static_cast<uint8_t>(1 << (i % 8));
      const ByteSlice slice(flipped);
      const std::string got = c.again({&slice, 1});
      if (got.empty()) continue;
      // What is accepted is a message: it is accepted again as it is now written.
      const ByteSlice rewritten = SliceOf(std::string_view(got).substr(3));
      ASSERT_FALSE(c.again({&rewritten, 1}).empty()) << "bit " << i;
    }
  }
}

// --- Seals ---

Status UnsealString(uint64_t number, std::string_view sealed, std::vector<ByteSlice>* slices) {
  *slices = {SliceOf(sealed)};
  return Unseal(number, slices);
}

TEST(WireSealTest, ASealComesOffWhereverSlicesEnd) {
  std::vector<Case> cases = AllCases();
  for (Case& c : LongCases()) cases.push_back(std::move(c));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(c.sealed.size(), kSealBytes + c.bytes.size());
    EXPECT_EQ(c.sealed.substr(kSealBytes), c.bytes);
    const ByteSlice whole = SliceOf(c.sealed);
    for (size_t i = 0; i <= c.sealed.size(); ++i) {
      std::vector<ByteSlice> slices = {whole.first(i), whole.subspan(i)};
      ASSERT_OK(Unseal(Case::kNumber, &slices));
      std::string rest;
      for (const ByteSlice& slice : slices) rest.append(slice.begin(), slice.end());
      ASSERT_EQ(rest, c.bytes) << "split at " << i;
    }
    std::vector<ByteSlice> single;
    for (size_t i = 0; i < c.sealed.size(); ++i) single.push_back(whole.subspan(i, 1));
    ASSERT_OK(Unseal(Case::kNumber, &single));
  }
}

// By the seal, or by the checksums of the long payloads that it leaves out.
TEST(WireSealTest, EveryFlippedBitIsFound) {
  std::vector<Case> cases = AllCases();
  for (Case& c : LongCases()) cases.push_back(std::move(c));
  size_t left_to_blocks = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    std::string flipped = c.sealed;
    for (size_t i = 0; i < c.sealed.size() * 8; ++i) {
      flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ 1 << i % 8);
      std::vector<ByteSlice> slices;
      const Status status = UnsealString(Case::kNumber, flipped, &slices);
      if (status.ok()) {
        ++left_to_blocks;
        ASSERT_EQ(c.again(slices), "") << "bit " << i;
      } else {
        ASSERT_THAT(status, StatusIs(StatusCode::kDataLoss, Detail::kCorruptData)) << "bit " << i;
      }
      flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ 1 << i % 8);
    }
    std::vector<ByteSlice> slices;
    ASSERT_OK(UnsealString(Case::kNumber, flipped, &slices));
    for (size_t i = 0; i < c.sealed.size(); ++i) {
      const std::string cut = c.sealed.substr(0, i);
      ASSERT_FALSE(UnsealString(Case::kNumber, cut, &slices).ok() && !c.again(slices).empty()) << i;
    }
  }
  EXPECT_GT(left_to_blocks, 50'000u) << "seals should not cost as much as payloads";
}

TEST(WireSealTest, AMessageOfAnotherNumberIsFound) {
  for (const Case& c : AllCases()) {
    std::vector<ByteSlice> slices;
    for (const uint64_t number : {Case::kNumber - 1, Case::kNumber + 1, uint64_t{0}}) {
      EXPECT_THAT(UnsealString(number, c.sealed, &slices),
                  StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("lost")));
    }
  }
  WireMessage empty;
  empty.Seal(3);
  std::vector<ByteSlice> slices = Slices(empty);
  EXPECT_OK(Unseal(3, &slices));
  EXPECT_THAT(Unseal(3, &slices), StatusIs(StatusCode::kDataLoss));
}

// --- Responses in parts ---

// An owner that does nothing else.
Buffer AnyKeeper() { return Buffer::CopyOf("x"); }

class WirePartsTest : public WireSampleTest {
 protected:
  SampleReply LargeReply() {
    const ChunkRef chunk = MakeChunk(1, {{DType::kUint8, {1 << 20}}, {DType::kString}}, 10, &random_);
    return {.request_id = 5, .samples = {SampleOf(chunk, 0, 9), SampleOf(chunk, 9, 1)}, .end = Status()};
  }
  static std::string Part(uint64_t response_bytes, std::string_view bytes) {
    WireWriter writer;
    writer.Uint(6, response_bytes);
    writer.AlwaysBytes(13, bytes);
    return writer.Finish().Flatten();
  }
  Result<std::optional<SampleReply>> Add(SampleReplyDecoder* decoder, std::string_view bytes) {
    const Buffer kept = Buffer::CopyOf(bytes);
    const ByteSlice slice(kept.data(), kept.size());
    return decoder->Decode({&slice, 1}, kept);
  }
};

TEST_F(WirePartsTest, ALargeResponseArrivesInParts) {
  SampleReplyDecoder decoder;
  for (int round = 0; round < 2; ++round) {
    const SampleReply reply = LargeReply();
    const WireMessage whole = EncodeSampleReply(reply);
    ASSERT_GT(whole.total_bytes(), 2 * kMaxPartBytes);
    const std::vector<WireMessage> parts = SplitIntoParts(whole);
    ASSERT_EQ(parts.size(), 3u);
    std::optional<SampleReply> got;
    for (const WireMessage& part : parts) {
      EXPECT_LE(part.total_bytes() + kSealBytes, kMaxPartBytes);
      EXPECT_FALSE(got);
      auto result = decoder.Decode(Slices(part), AnyKeeper());
      ASSERT_OK(result);
      got = *std::move(result);
      EXPECT_EQ(decoder.is_in_parts(), !got.has_value());
    }
    ASSERT_TRUE(got);
    EXPECT_EQ(got->request_id, 5u);
    EXPECT_EQ(got->end, Status());
    ExpectSame(got->samples, reply.samples);
    // Small ones come as they are.
    auto small = decoder.Decode(Slices(EncodeSampleReply({.request_id = 6})), Buffer());
    ASSERT_OK(small);
    EXPECT_EQ((*small)->request_id, 6u);
  }
}

TEST_F(WirePartsTest, DamageInAPartIsFound) {
  const std::string whole = [&] {
    WireMessage message = EncodeSampleReply(LargeReply());
    message.Seal(0);
    return message.Flatten();
  }();
  for (int round = 0; round < 50; ++round) {
    std::string flipped = whole;
    const size_t bit = round < 10 ? round * 97 : random_.Below(flipped.size() * 8);
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    SampleReplyDecoder decoder;
    ASSERT_OK(Add(&decoder, Part(flipped.size(), std::string_view(flipped).substr(0, 1 << 20))));
    EXPECT_THAT(Add(&decoder, Part(flipped.size(), std::string_view(flipped).substr(1 << 20))),
                StatusIs(StatusCode::kDataLoss, Detail::kCorruptData))
        << "bit " << bit;
  }
}

TEST_F(WirePartsTest, PartsThatDoNotFitAreRefused) {
  const std::string bytes(kMinPartBytes, 'x');
  const auto refused = [](const char* text) {
    return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text));
  };
  const auto after_one = [&](std::string_view next) {
    SampleReplyDecoder decoder;
    EXPECT_OK(Add(&decoder, Part(3 * bytes.size(), bytes)));
    return Add(&decoder, next);
  };
  EXPECT_OK(after_one(Part(3 * bytes.size(), bytes)));
  EXPECT_THAT(after_one(Part(3 * bytes.size(), bytes + bytes + "x")), refused("bytes are missing"));
  EXPECT_THAT(after_one(Part(4 * bytes.size(), bytes)), refused("the part before it"));
  EXPECT_THAT(after_one(Part(3 * bytes.size(), bytes.substr(1))), refused("all parts but the last"));
  EXPECT_THAT(after_one(Part(3 * bytes.size(), "")), refused("all parts but the last"));
  EXPECT_THAT(after_one(EncodeSampleReply({.request_id = 1}).Flatten()), refused("before the last part"));
  SampleReplyDecoder decoder;
  EXPECT_THAT(Add(&decoder, Part(0, "")), refused("all parts but the last"));
  EXPECT_THAT(Add(&decoder, EncodeSampleReply({.request_id = 1}).Flatten() + Part(3 * bytes.size(), bytes)),
              refused("no other fields"));
  // A claim takes no memory.
  EXPECT_THAT(Add(&decoder, Part(uint64_t{1} << 62, bytes)),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_response_bytes")));
}

// --- Sizes ---

TEST_F(WireSampleTest, ASampleIsNeverLargerThanWasSaid) {
  const std::vector<ColumnKind> kinds = AllKinds();
  for (int round = 0; round < 300; ++round) {
    std::vector<ChunkRef> chunks;
    for (uint64_t i = 0; i < 3; ++i) {
      chunks.push_back(MakeChunk(i, kinds, static_cast<uint32_t>(1 + random_.Below(30)), &random_));
    }
    std::vector<uint32_t> columns;
    for (uint64_t c = random_.Below(4) + 1; c > 0; --c) {
      columns.push_back(static_cast<uint32_t>(random_.Below(kinds.size())));
    }
    for (Sample& sample : RandomSamples(chunks, columns, 4, &random_)) {
      const uint64_t said = MaxSampleBytes(sample.trajectory);
      const uint64_t bytes = EncodeSampleReply({.samples = {sample}}).total_bytes();
      EXPECT_LE(bytes, said);
      EXPECT_OK(CheckItemSize(sample.trajectory, said));
      EXPECT_THAT(CheckItemSize(sample.trajectory, bytes - 1), StatusIs(StatusCode::kResourceExhausted));
    }
  }
}

TEST_F(WireSampleTest, ItemsThatNoReplyCanCarryAreFound) {
  const ChunkRef chunk = MakeChunk(1, {{DType::kInt64}}, 10, &random_);
  std::vector<ColumnSpec> columns(3);
  for (ColumnSpec& column : columns) column.slices = {{chunk, 0, 0, 1}, {chunk, 0, 4, 2}};
  const Trajectory trajectory = Trajectory::Create(columns).value();
  EXPECT_OK(CheckItemSize(trajectory, 1 << 20, {.max_slices = 6, .max_columns = 3}));
  EXPECT_THAT(CheckItemSize(trajectory, 1 << 20, {.max_columns = 2}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("3 columns")));
  EXPECT_THAT(CheckItemSize(trajectory, 1 << 20, {.max_slices = 5}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("6 runs")));
  EXPECT_THAT(CheckItemSize(trajectory, 40),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_item_bytes")));
}

TEST_F(WireSampleTest, EverySliceMayHaveAPieceOfItsOwn) {
  std::vector<ColumnSpec> columns(1);
  for (uint32_t i = 0; i < 70'000; ++i) {
    columns[0].slices.push_back({MakeChunk(i, {{DType::kString}}, 1, &random_), 0, 0, 1});
  }
  const SampleReply reply{.samples = {SampleOf(Trajectory::Create(columns).value())}};
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
}

}  // namespace
}  // namespace reverb::internal
