#include "checkpoint/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "tensor/checksum.h"
#include "testing/chunks.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kPath[] = "/data/MANIFEST";

// Replaces the checksum at the end of a manifest.
std::string WithChecksum(std::string bytes) {
  const size_t size = bytes.size() - 8;
  const uint64_t checksum = Checksum(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), size));
  std::memcpy(bytes.data() + size, &checksum, 8);
  return bytes;
}

// Two tables, one of them empty, with segments and a writer.
Manifest SomeManifest() {
  Manifest manifest;
  manifest.created_nanos = 1'700'000'000'000'000'001;
  manifest.segments = {{.number = 7,
                        .kind = SegmentKind::kChunks,
                        .file_bytes = 1000,
                        .count = 5,
                        .live_count = 3,
                        .live_bytes = 600},
                       {.number = 8, .kind = SegmentKind::kPages, .file_bytes = 500}};
  ManifestTable full;
  full.saved.name = "replay";
  full.saved.sampler = SelectorOptions::Prioritized(0.6);
  full.saved.sampler.seed = 42;
  full.saved.remover = SelectorOptions::Fifo();
  full.saved.max_size = 1000;
  full.saved.max_times_sampled = -1;
  full.saved.rate_limiter = {
      .samples_per_insert = 1.5, .min_size_to_sample = 10, .min_diff = -3, .max_diff = 7};
  full.saved.layout = LayoutPolicy::kAny;
  full.saved.size = 290;
  full.saved.state.counters = {.inserts = 300, .samples = 450, .deletes = 10, .uncounted_inserts = 4};
  full.saved.state.counts = {.num_deleted_episodes = 1,
                             .num_unique_samples = 2,
                             .evictions = 3,
                             .expirations = 4,
                             .explicit_deletes = 5,
                             .updates = 6,
                             .unknown_keys = 7,
                             .aged_out = 8};
  full.saved.max_age_nanos = 1'500'000'000;
  full.saved.created_by_client = true;
  full.saved.state.sequence = 999;
  full.saved.state.num_slots = 300;
  full.state = {.segment = 8, .offset = 32, .size = 40};
  full.pages = {{.segment = 8, .offset = 72, .size = 100}, {.segment = 8, .offset = 172, .size = 50}};
  ManifestTable empty;
  empty.saved.name = "empty";
  empty.state = {.segment = 8, .offset = 222, .size = 20};
  manifest.tables = {full, empty};
  SavedWriter writer{.applied_through = 12, .applied = {{"replay", 15}}};
  writer.id[3] = 9;
  manifest.writers = {writer};
  manifest.shard = 0xABCD;
  return manifest;
}

TEST(ManifestTest, RoundTrips) {
  const std::string bytes = EncodeManifest(SomeManifest());
  const Result<Manifest> manifest = DecodeManifest(bytes, kPath);
  ASSERT_OK(manifest);
  EXPECT_EQ(manifest->created_nanos, 1'700'000'000'000'000'001);
  ASSERT_EQ(manifest->segments.size(), 2u);
  EXPECT_EQ(manifest->segments[0].live_bytes, 600u);
  EXPECT_EQ(manifest->segments[1].kind, SegmentKind::kPages);
  ASSERT_EQ(manifest->tables.size(), 2u);
  const ManifestTable& table = manifest->tables[0];
  EXPECT_EQ(table.saved.name, "replay");
  EXPECT_EQ(table.saved.sampler.ToString(), "prioritized(exponent=0.6, seed=42)");
  EXPECT_EQ(table.saved.max_times_sampled, -1);
  EXPECT_EQ(table.saved.max_age_nanos, 1'500'000'000);
  EXPECT_EQ(table.saved.state.counts.aged_out, 8);
  EXPECT_EQ(table.saved.state.counters.uncounted_inserts, 4);
  EXPECT_TRUE(table.saved.created_by_client);
  EXPECT_FALSE(manifest->tables[1].saved.created_by_client);
  EXPECT_EQ(table.saved.rate_limiter.min_diff, -3);
  EXPECT_EQ(table.saved.layout, LayoutPolicy::kAny);
  EXPECT_EQ(manifest->tables[1].saved.layout, LayoutPolicy::kFirst);
  EXPECT_EQ(table.saved.state.counts.unknown_keys, 7);
  EXPECT_EQ(table.pages[1].offset, 172u);
  EXPECT_EQ(manifest->shard, 0xABCDu);
  ASSERT_EQ(manifest->writers.size(), 1u);
  EXPECT_EQ(manifest->writers[0].id[3], 9);
  EXPECT_THAT(manifest->writers[0].applied, ElementsAre(Pair("replay", 15)));
  EXPECT_EQ(EncodeManifest(*manifest), bytes) << "no other field was lost";
}

TEST(ManifestTest, EveryFlippedOrMissingByteIsDataLoss) {
  const std::string bytes = EncodeManifest(SomeManifest());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 0x10;
    EXPECT_THAT(DecodeManifest(damaged, kPath), StatusIs(StatusCode::kDataLoss, HasSubstr(kPath))) << i;
    EXPECT_THAT(DecodeManifest(bytes.substr(0, i), kPath), StatusIs(StatusCode::kDataLoss)) << i;
  }
}

TEST(ManifestTest, InvalidFieldsWithAValidChecksumNeverCrash) {
  const std::string bytes = EncodeManifest(SomeManifest());
  Random random(test::Seed());
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = bytes;
    for (uint64_t n = random.Below(3) + 1; n > 0; --n) {
      damaged[12 + random.Below(damaged.size() - 20)] = static_cast<char>(random.Next());
    }
    const Result<Manifest> manifest = DecodeManifest(WithChecksum(damaged), kPath);
    if (manifest.ok()) continue;  // another valid manifest
    ASSERT_THAT(manifest, StatusIs(StatusCode::kDataLoss));
  }
}

TEST(ManifestTest, ALaterVersionIsNotDamage) {
  std::string bytes = EncodeManifest(SomeManifest());
  ++bytes[8];
  EXPECT_THAT(
      DecodeManifest(WithChecksum(bytes), kPath),
      StatusIs(StatusCode::kFailedPrecondition, HasSubstr("version " + std::to_string(kManifestVersion))));
}

TEST(ManifestTest, AnUnknownLayoutIsDataLoss) {
  Manifest manifest = SomeManifest();
  manifest.tables[1].saved.layout = static_cast<LayoutPolicy>(2);
  EXPECT_THAT(DecodeManifest(EncodeManifest(manifest), kPath),
              StatusIs(StatusCode::kDataLoss, HasSubstr("\"empty\" has the unknown layout policy 2")));
}

TEST(ManifestTest, PagesMustMatchTheSlots) {
  const auto decode = [](const Manifest& manifest) {
    return DecodeManifest(EncodeManifest(manifest), kPath);
  };
  Manifest too_few_pages = SomeManifest();
  too_few_pages.tables[0].pages.pop_back();
  EXPECT_THAT(decode(too_few_pages), StatusIs(StatusCode::kDataLoss, HasSubstr("on 1 pages")));
  Manifest too_many_items = SomeManifest();
  too_many_items.tables[0].saved.size = 301;
  EXPECT_THAT(decode(too_many_items), StatusIs(StatusCode::kDataLoss, HasSubstr("301 items in 300 slots")));
  Manifest huge_pages = SomeManifest();
  huge_pages.slots_per_page = uint64_t{1} << 20;
  EXPECT_THAT(decode(huge_pages), StatusIs(StatusCode::kDataLoss, HasSubstr("slots")));
}

TEST(SegmentHeaderTest, IdentifiesTheFile) {
  const std::string header = EncodeSegmentHeader(7, SegmentKind::kChunks);
  ASSERT_EQ(header.size(), kSegmentHeaderBytes);
  EXPECT_OK(CheckSegmentHeader(header, 7, SegmentKind::kChunks, "file"));
  EXPECT_THAT(CheckSegmentHeader(header, 8, SegmentKind::kChunks, "file"), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(CheckSegmentHeader(header, 7, SegmentKind::kPages, "file"), StatusIs(StatusCode::kDataLoss));
  for (size_t i = 0; i < header.size(); ++i) {
    std::string damaged = header;
    damaged[i] ^= 1;
    EXPECT_THAT(CheckSegmentHeader(damaged, 7, SegmentKind::kChunks, "file"), StatusIs(StatusCode::kDataLoss))
        << i;
    EXPECT_THAT(CheckSegmentHeader(header.substr(0, i), 7, SegmentKind::kChunks, "file"),
                StatusIs(StatusCode::kDataLoss))
        << i;
  }
}

// --- Pages ---

class PageTest : public ::testing::Test {
 protected:
  // Slots 3, 4 and 9: one slice; squeezed and sampled; two columns of two chunks.
  void SetUp() override {
    const ChunkRef a = test::MakeChunk(&store_, 1, 0, 5), b = test::MakeChunk(&store_, 1, 5, 5);
    trajectories_.push_back(Trajectory::Single(a, 1, 3).value());
    trajectories_.push_back(Trajectory::Single(b, 4, 1, /*squeeze=*/true).value());
    const std::vector<ColumnSpec> columns = {
        {.slices = {{.chunk = a, .offset = 4, .length = 1}, {.chunk = b, .offset = 0, .length = 2}}},
        {.slices = {{.chunk = b, .offset = 3, .length = 1}}, .squeeze = true}};
    trajectories_.push_back(Trajectory::Create(columns).value());
    encoder_.Begin(kFirst);
    Add(3, {.key = 100, .priority = 0.5, .inserted_at = -1, .inserted = 10, .touched = 10}, {{7, 0}});
    Add(4, {.key = 101, .priority = 2, .inserted_at = 5, .inserted = 11, .touched = 12, .times_sampled = 3},
        {{7, 1}});
    Add(9, {.key = UINT64_MAX, .priority = -1, .inserted_at = 6, .inserted = 20, .touched = 20},
        {{7, 0}, {9, 1}});
  }
  void Add(uint64_t slot, SlotRecord record, const std::vector<ChunkPlace>& places) {
    record.trajectory = trajectories_[num_added_++].handle();
    encoder_.Add(slot, record, places);
  }
  static Status Decode(std::string_view bytes, std::vector<PageItem>* items) {
    items->clear();
    return DecodePage(bytes, kFirst, kEnd, [&](PageItem& item) {
      items->push_back(item);
      return Status::Ok();
    });
  }

  static constexpr uint64_t kFirst = 2;
  static constexpr uint64_t kEnd = 10;
  ChunkStore store_{{}};
  std::vector<Trajectory> trajectories_;
  PageEncoder encoder_;
  size_t num_added_ = 0;
};

TEST_F(PageTest, RoundTrips) {
  std::vector<PageItem> items;
  ASSERT_OK(Decode(encoder_.bytes(), &items));
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].item.slot, 3u);
  EXPECT_EQ(items[0].item.key, 100u);
  EXPECT_EQ(items[0].item.inserted_at, -1);
  EXPECT_EQ(items[0].columns[0].slices[0].length, 3u);
  EXPECT_FALSE(items[0].columns[0].squeeze);
  EXPECT_EQ(items[1].item.times_sampled, 3);
  EXPECT_EQ(items[1].item.touched, 12u);
  EXPECT_TRUE(items[1].columns[0].squeeze);
  EXPECT_EQ(items[2].item.slot, 9u);
  EXPECT_EQ(items[2].item.key, UINT64_MAX);
  EXPECT_EQ(items[2].item.priority, -1);
  ASSERT_EQ(items[2].num_columns, 2u);
  ASSERT_EQ(items[2].chunks.size(), 2u);
  EXPECT_EQ(items[2].chunks[1].segment, 9u);
  EXPECT_EQ(items[2].columns[0].slices[1].chunk, 1u);
  EXPECT_EQ(items[2].columns[0].slices[1].length, 2u);
  EXPECT_EQ(items[2].columns[1].slices[0].offset, 3u);
}

TEST_F(PageTest, SlotsBeyondThePageAreDataLoss) {
  EXPECT_THAT(DecodePage(encoder_.bytes(), kFirst, 9, [](PageItem&) { return Status::Ok(); }),
              StatusIs(StatusCode::kDataLoss));
}

TEST_F(PageTest, ErrorsOfTheVisitorEndTheDecoding) {
  int visits = 0;
  EXPECT_EQ(DecodePage(encoder_.bytes(), kFirst, kEnd,
                       [&](PageItem&) {
                         ++visits;
                         return Status::Cancelled("enough");
                       }),
            Status::Cancelled("enough"));
  EXPECT_EQ(visits, 1);
}

TEST_F(PageTest, TruncatedPagesLoseWholeItemsOnly) {
  const std::string bytes(encoder_.bytes());
  int valid = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::vector<PageItem> items;
    const Status status = Decode(std::string_view(bytes).substr(0, size), &items);
    EXPECT_LT(items.size(), 3u) << size;
    if (status.ok()) {
      ++valid;
    } else {
      EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss)) << size;
    }
  }
  EXPECT_EQ(valid, 3) << "the ends of 0, 1 and 2 items; the checksum of the record detects those";
}

TEST_F(PageTest, DamagedPagesNeverCrash) {
  const std::string bytes(encoder_.bytes());
  Random random(test::Seed());
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = bytes;
    for (uint64_t n = random.Below(3) + 1; n > 0; --n) {
      damaged[random.Below(damaged.size())] = static_cast<char>(random.Next());
    }
    std::vector<PageItem> items;
    const Status status = Decode(damaged, &items);
    if (!status.ok()) {
      ASSERT_THAT(status, StatusIs(StatusCode::kDataLoss));
    }
    for (const PageItem& item : items) {
      ASSERT_LT(*item.item.slot, kEnd);
      for (size_t c = 0; c < item.num_columns; ++c) {
        for (const PageSlice& slice : item.columns[c].slices) ASSERT_LT(slice.chunk, item.chunks.size());
      }
    }
  }
}

// --- Table states ---

TEST(TableStateTest, RoundTrips) {
  SavedTableState state;
  state.sampler_state = std::string("\0random", 7);
  state.extension_states = {{"statistics", "abc"}, {"other", ""}};
  state.free_slots = {5, 0, 300};
  for (const bool has_structure : {false, true}) {
    if (has_structure) state.structure = "";
    std::string bytes;
    EncodeTableState(state, &bytes);
    SavedTableState decoded;
    ASSERT_OK(DecodeTableState(bytes, &decoded));
    EXPECT_EQ(decoded.sampler_state, state.sampler_state);
    EXPECT_EQ(decoded.remover_state, "");
    EXPECT_EQ(decoded.extension_states, state.extension_states);
    EXPECT_EQ(decoded.free_slots, state.free_slots);
    EXPECT_EQ(decoded.structure, state.structure);
  }
}

TEST(TableStateTest, TruncationIsDataLoss) {
  SavedTableState state;
  state.extension_states = {{"statistics", "abc"}};
  state.free_slots = {5, 0, 300};
  std::string bytes;
  EncodeTableState(state, &bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    SavedTableState decoded;
    EXPECT_THAT(DecodeTableState(std::string_view(bytes).substr(0, size), &decoded),
                StatusIs(StatusCode::kDataLoss))
        << size;
  }
}

TEST(LargePageTest, AnItemOfManyChunksAndSlicesTakesLittleTime) {
  // Looking for the chunk of each slice among all of them would take minutes.
  constexpr uint32_t kChunks = 1 << 18, kSlices = 1 << 20;
  ChunkStore store{{}};
  std::vector<ColumnSpec> columns(1);
  std::vector<ChunkPlace> places;
  for (uint32_t i = 0; i < kChunks; ++i) {
    columns[0].slices.push_back({.chunk = test::MakeChunk(&store, 1, i, 1), .length = 1});
    places.push_back({1, i});
  }
  for (uint32_t i = kChunks; i < kSlices; ++i) {
    columns[0].slices.push_back({.chunk = columns[0].slices[kChunks - 1 - i % 100].chunk, .length = 1});
  }
  const Trajectory trajectory = Trajectory::Create(columns).value();
  PageEncoder encoder;
  encoder.Begin(0);
  SlotRecord record{.key = 1, .inserted = 1, .touched = 1};
  record.trajectory = trajectory.handle();
  encoder.Add(0, record, places);
  size_t slices = 0;
  ASSERT_OK(DecodePage(encoder.bytes(), 0, 1, [&](PageItem& item) {
    slices = item.columns[0].slices.size();
    EXPECT_EQ(item.chunks.size(), kChunks);
    EXPECT_EQ(item.columns[0].slices[kChunks / 2].chunk, kChunks / 2);
    EXPECT_EQ(item.columns[0].slices[kSlices - 1].chunk, kChunks - 1 - (kSlices - 1) % 100);
    return Status::Ok();
  }));
  EXPECT_EQ(slices, kSlices);
}

TEST(LargePageTest, MoreSlicesThanThePageHoldsAreNotAllocated) {
  // One item with one chunk and one column that claims 2^40 slices.
  std::string bytes;
  PutVarint(&bytes, 0);
  PutByte(&bytes, 0);
  for (int i = 0; i < 3; ++i) PutFixed64(&bytes, 0);
  PutVarint(&bytes, 1);
  PutVarint(&bytes, 1);
  PutVarint(&bytes, 7);
  PutVarint(&bytes, 0);
  PutVarint(&bytes, 1);
  PutVarint(&bytes, uint64_t{1} << 41);
  bytes.append(100, 0);
  EXPECT_THAT(DecodePage(bytes, 0, 1, [](PageItem&) { return Status::Ok(); }),
              StatusIs(StatusCode::kDataLoss, HasSubstr("invalid fields")));
}

}  // namespace
}  // namespace reverb::internal
