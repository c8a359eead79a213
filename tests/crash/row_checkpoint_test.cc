// Tests that checkpoints hold row tables: round trips, increments, power loss, damage, differing settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/checkpointer.h"
#include "checkpoint/layout.h"
#include "checkpoint/load.h"
#include "checkpoint/reverb_source.h"
#include "checkpoint/row_format.h"
#include "core/rows/row_table.h"
#include "crash/random_tables.h"
#include "reverb/log.h"
#include "testing/effort.h"
#include "testing/fake_file_system.h"
#include "testing/rows.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using test::FakeFileSystem;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kRoot[] = "/data/run";
constexpr int64_t kStart = 1'700'000'000'000'000'000;

RowTableOptions Rollouts() {
  return {.name = "rollouts",
          .max_rows = 500,
          .group_size = 2,
          .consumers = {"logprob", "train"},
          .staleness = StalenessOptions{.max_lag = 3, .when_stale = WhenStale::kDrop, .batch = 100},
          .order = RowOrder::kReady};
}
RowTableOptions Plain() { return {.name = "plain", .consumers = {"train"}, .drop_consumed = false}; }

// Row tables, and what is done to them.
class RowWorld {
 public:
  explicit RowWorld(const std::vector<RowTableOptions>& options = {Rollouts(), Plain()}) {
    tables_ = MakeEmpty({}, options, environment()).value().row_tables;
  }
  // Loads the tables of a checkpoint.
  static Result<RowWorld> Load(FileSystem* fs,
                               const std::vector<RowTableOptions>& options = {Rollouts(), Plain()},
                               const RestoreOptions& restore = {}) {
    RowWorld world(std::vector<RowTableOptions>{});
    REVERB_ASSIGN_OR_RETURN(LoadedServer loaded, LoadLatest(fs, {.path = kRoot, .restore = restore}, {},
                                                            world.environment(), options));
    world.tables_ = std::move(loaded.row_tables);
    world.segments_ = std::move(loaded.segments);
    world.path_ = loaded.path.value_or("");
    return world;
  }

  ConcurrentTable::Environment environment() const { return {.store = store_, .clock = clock_.get()}; }
  std::vector<std::shared_ptr<ConcurrentRows>>& tables() { return tables_; }
  ConcurrentRows& table(size_t i = 0) { return *tables_[i]; }
  Snapshot TakeSnapshot() {
    Snapshot snapshot;
    snapshot.row_tables = ConcurrentRows::TakeSnapshots(tables_).tables;
    return snapshot;
  }
  // Returns a writer that continues from the checkpoint that was loaded.
  std::unique_ptr<CheckpointWriter> Continue(FileSystem* fs) {
    auto writer = std::make_unique<CheckpointWriter>(fs, CheckpointWriter::Options{.root = kRoot});
    writer->Adopt(path_, segments_);
    return writer;
  }

  Status Put(size_t table, RowWriteMode mode, std::vector<RowWrite> rows) {
    auto write = std::make_shared<RowOperation>(RowOperation::Kind::kWrite);
    write->timeout = Duration(0);
    write->mode = std::move(mode);
    write->rows = std::move(rows);
    tables_[table]->Start(write);
    return write->status;
  }
  Result<ClaimedRows> Claim(size_t table, RowClaim claim) {
    auto operation = std::make_shared<RowOperation>(RowOperation::Kind::kClaim);
    operation->timeout = Duration(0);
    operation->claim = std::move(claim);
    tables_[table]->Start(operation);
    if (!operation->status.ok()) return operation->status;
    return std::move(operation->claimed);
  }
  // Claims and acknowledges everything that is ready.
  std::vector<std::string> Consume(size_t table, const std::string& consumer) {
    std::vector<std::string> keys;
    while (true) {
      Result<ClaimedRows> claimed =
          Claim(table, {.consumer = consumer, .count = 100, .at_least = 1, .whole_groups = false});
      if (!claimed.ok()) return keys;
      for (const RowRecord& row : claimed->rows) keys.push_back(row.key);
      EXPECT_EQ(tables_[table]->Settle(claimed->lease, {}, RowSettlement::kAcknowledge, {}).expired, 0);
    }
  }

  // Does something at random.
  void Do(Random* random) {
    const std::string key = "k" + std::to_string(random->Below(60));
    const std::string group = "g" + std::to_string(std::stoi(key.substr(1)) / 2);
    const size_t which = random->Below(2);
    switch (random->Below(10)) {
      case 0: {
        (void)Claim(
            which,
            {.consumer = "train", .count = 4, .at_least = 1, .needs = {"tokens"}, .whole_groups = false});
        break;
      }
      case 1: {
        const Result<ClaimedRows> claimed =
            Claim(which, {.consumer = "train", .count = 4, .at_least = 1, .whole_groups = false});
        if (claimed.ok()) {
          tables_[which]->Settle(claimed->lease, {}, RowSettlement::kAcknowledge, {},
                                 "after " + std::to_string(claimed->lease % 1000));
        }
        break;
      }
      case 2:
        (void)tables_[which]->Delete({&key, 1});
        break;
      case 3:
        (void)tables_[which]->End({&key, 1}, static_cast<RowEnding>(random->Below(3)));
        break;
      case 4:
        if (random->Below(8) == 0) (void)tables_[which]->SetVersion(tables_[which]->version() + 1);
        break;
      default: {
        RowWriteMode mode{
            .columns = {"tokens"}, .overwrite = random->Below(3) == 0, .open = random->Below(6) == 0};
        if (random->Below(3) == 0) mode.columns = {"logprobs"};
        std::vector<RowTag> tags;
        if (random->Below(2) == 0) tags = {{"reward", random->Unit()}, {"split", std::string("math")}};
        (void)Put(
            which, mode,
            {test::MakeRow(key, {static_cast<int64_t>(random->Below(40))}, which == 0 ? group : "", tags)});
      }
    }
  }

  // Returns everything that a checkpoint keeps, the data included.
  std::string Text() {
    std::string text;
    for (const auto& snapshot : ConcurrentRows::TakeSnapshots(tables_).tables) {
      SavedRowTable table = snapshot->table();
      // What a restart changes: operations are counted on, and sets have no order.
      table.operation = 0;
      for (SavedRowView& view : table.views) std::ranges::sort(view.ready_since);
      EncodeRowTable(table, &text);
      for (size_t i = 0; i < snapshot->num_rows(); ++i) {
        const SavedRow row = snapshot->row(i);
        text += "\n" + row.key + " " + std::to_string(row.slot) + " " + std::to_string(row.sequence) + " " +
                std::to_string(row.version) + " " + std::to_string(row.group.value_or(99)) + " " +
                std::to_string(row.done) + (row.is_open ? " open" : "") +
                (row.is_requeued ? " requeued" : "");
        for (const RowTag& tag : row.tags) text += " " + tag.name + "#" + std::to_string(tag.value.index());
        for (const SavedRowPart& part : row.parts) {
          const auto payload = part.chunk->payload();
          text += " " + std::to_string(part.layout) + (part.replaces ? "!" : ":") + std::to_string(part.lag) +
                  std::string(reinterpret_cast<const char*>(payload.data()), payload.size());
        }
      }
    }
    return text;
  }

 private:
  std::shared_ptr<ChunkStore> store_ = std::make_shared<ChunkStore>(ChunkStore::Options());
  std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  std::vector<std::shared_ptr<ConcurrentRows>> tables_;
  std::vector<LoadedSegment> segments_;
  std::string path_;
};

TEST(RowCheckpointTest, RowTablesAreRestored) {
  FakeFileSystem fs;
  RowWorld world;
  Random random(test::Seed());
  for (int i = 0; i < 3'000; ++i) world.Do(&random);
  ASSERT_OK(CheckpointWriter(&fs, {.root = kRoot}).Write(world.TakeSnapshot(), {}, kStart));
  Result<RowWorld> copy = RowWorld::Load(&fs);
  ASSERT_OK(copy);
  const RowTableInfo before = world.table().Info();
  const RowTableInfo after = copy->table().Info();
  EXPECT_EQ(after.counts.created, before.counts.created);
  EXPECT_EQ(after.version, before.version);
  EXPECT_EQ(after.counts.leases, 0);
  EXPECT_EQ(copy->table(1).State(), world.table(1).State());
  // A second restart changes nothing: the first has ended the leases.
  ASSERT_OK(CheckpointWriter(&fs, {.root = kRoot}).Write(copy->TakeSnapshot(), {}, kStart + 1));
  Result<RowWorld> again = RowWorld::Load(&fs);
  ASSERT_OK(again);
  EXPECT_EQ(again->Text(), copy->Text());
}

TEST(RowCheckpointTest, KeepsWhatWasAcknowledgedAndGivesLeasesBack) {
  FakeFileSystem fs;
  RowWorld world;
  std::vector<RowWrite> rows;
  for (int i = 0; i < 10; ++i) rows.push_back(test::MakeRow("k" + std::to_string(i), {i}));
  ASSERT_OK(world.Put(1, {.columns = {"tokens"}, .version = 2}, std::move(rows)));
  const Result<ClaimedRows> done = world.Claim(1, {.consumer = "train", .count = 3});
  ASSERT_OK(done);
  EXPECT_EQ(world.table(1).Settle(done->lease, {}, RowSettlement::kAcknowledge, {}, "step 3").settled, 3);
  const Result<ClaimedRows> lost = world.Claim(1, {.consumer = "train", .count = 4});
  ASSERT_OK(lost);
  ASSERT_OK(CheckpointWriter(&fs, {.root = kRoot}).Write(world.TakeSnapshot(), {}, kStart));
  // After the checkpoint: is lost with the server.
  EXPECT_EQ(world.table(1).Settle(lost->lease, {}, RowSettlement::kAcknowledge, {}, "step 7").settled, 4);

  Result<RowWorld> copy = RowWorld::Load(&fs);
  ASSERT_OK(copy);
  EXPECT_EQ(copy->table(1).State(), "step 3");
  EXPECT_EQ(copy->Consume(1, "train"), (std::vector<std::string>{"k3", "k4", "k5", "k6", "k7", "k8", "k9"}))
      << "in their old order";
  EXPECT_EQ(copy->table(1).Settle(lost->lease, {}, RowSettlement::kAcknowledge, {}).expired, 1)
      << "leases of the former server mean nothing";
}

TEST(RowCheckpointTest, AStateIsNotSetWithALostLease) {
  RowWorld world;
  ASSERT_OK(world.Put(1, {.columns = {"x"}}, {test::MakeRow("a", {1})}));
  world.table(1).SetState("before");
  EXPECT_EQ(world.table(1).Settle(12345, {}, RowSettlement::kAcknowledge, {}, "after").expired, 1);
  EXPECT_EQ(world.table(1).State(), "before");
  EXPECT_THAT(world.table(1).SetVersion(-1, "after"), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(world.table(1).State(), "before");
  EXPECT_OK(world.table(1).SetVersion(1, "with the version"));
  EXPECT_EQ(world.table(1).State(), "with the version");
  EXPECT_EQ(world.table(1).Info().state_bytes, 16);
}

TEST(RowCheckpointTest, ASecondCheckpointWritesOnlyNewChunks) {
  FakeFileSystem fs;
  RowWorld world;
  const auto put = [&](int from, int to) {
    std::vector<RowWrite> rows;
    for (int i = from; i < to; ++i) rows.push_back(test::MakeRow("k" + std::to_string(i), {50}));
    ASSERT_OK(world.Put(1, {.columns = {"tokens"}}, std::move(rows)));
  };
  put(0, 2'000);
  CheckpointWriter writer(&fs, {.root = kRoot});
  const auto first = writer.Write(world.TakeSnapshot(), {}, kStart);
  ASSERT_OK(first);
  EXPECT_EQ(first->chunks_written, 2'000u);
  put(2'000, 2'050);
  const auto second = writer.Write(world.TakeSnapshot(), {}, kStart + 1);
  ASSERT_OK(second);
  EXPECT_EQ(second->chunks_written, 50u);
  // A server that loads it continues from its files.
  Result<RowWorld> copy = RowWorld::Load(&fs);
  ASSERT_OK(copy);
  const std::unique_ptr<CheckpointWriter> continued = copy->Continue(&fs);
  const auto third = continued->Write(copy->TakeSnapshot(), {}, kStart + 2);
  ASSERT_OK(third);
  EXPECT_EQ(third->chunks_written, 0u);
  // Dead chunks are left behind.
  EXPECT_EQ(copy->Consume(1, "train").size(), 2'050u);
  ASSERT_OK(copy->table(1).DeleteWhere("true"));
  ASSERT_OK(continued->Write(copy->TakeSnapshot(), {}, kStart + 3));
  int64_t chunk_files = 0;
  for (const std::string& file : *fs.ListDir(std::string(kRoot) + "/segments")) {
    chunk_files += file.ends_with(".chunks") ? 1 : 0;
  }
  EXPECT_EQ(chunk_files, 0);
}

TEST(RowCheckpointTest, PowerLossLeavesTheLastPublishedRows) {
  constexpr int kRounds = 3;
  const auto run = [&](FakeFileSystem* disk, std::optional<int64_t> fault,
                       std::vector<std::string>* published) {
    RowWorld world;
    Random random(test::Seed());
    CheckpointWriter writer(disk, {.root = kRoot, .segment_bytes = 3'000, .compact_bytes = 500});
    if (fault) disk->Inject({.after = *fault, .for_ever = true});
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < 40; ++i) world.Do(&random);
      // As a server that loads it has it.
      FakeFileSystem memory;
      ASSERT_OK(CheckpointWriter(&memory, {.root = kRoot}).Write(world.TakeSnapshot(), {}, kStart));
      published->push_back(RowWorld::Load(&memory)->Text());
      if (!writer.Write(world.TakeSnapshot(), {}, kStart + round).ok()) return;
    }
    published->push_back("");  // all succeeded
  };
  FakeFileSystem counted;
  std::vector<std::string> all;
  run(&counted, std::nullopt, &all);
  const int64_t writes = counted.num_operations(FakeFileSystem::Kind::kWrite);
  ASSERT_GT(writes, 20);
  for (int64_t n = 0; n <= writes; n += test::Effort(1, 4) == 1 ? 1 : 3) {
    FakeFileSystem disk;
    std::vector<std::string> published;
    run(&disk, n, &published);
    for (const uint64_t seed : {FakeFileSystem::kLoseAll, test::Seed() + 1}) {
      const std::unique_ptr<FakeFileSystem> after = disk.AfterCrash(seed);
      Result<RowWorld> copy = RowWorld::Load(after.get());
      ASSERT_OK(copy) << "operation " << n;
      // Of the last round that succeeded, or of the one that was interrupted.
      const std::string text = copy->Text();
      const size_t rounds = published.size();
      const std::string before = rounds > 1 ? published[rounds - 2] : RowWorld().Text();
      ASSERT_TRUE(text == before || text == published[rounds - 1]) << "operation " << n << " of " << writes;
    }
  }
}

TEST(RowCheckpointTest, DamageIsFoundOrHarmless) {
  FakeFileSystem fs;
  RowWorld world;
  Random random(test::Seed());
  for (int i = 0; i < 60; ++i) world.Do(&random);
  world.table().SetState("state");
  ASSERT_OK(CheckpointWriter(&fs, {.root = kRoot}).Write(world.TakeSnapshot(), {}, kStart));
  const std::string whole = RowWorld::Load(&fs)->Text();
  std::vector<std::string> files = {ListCheckpoints(&fs, kRoot)->back().path + "/MANIFEST"};
  for (const std::string& file : *fs.ListDir(std::string(kRoot) + "/segments")) {
    if (file != kLockName) files.push_back(std::string(kRoot) + "/segments/" + file);
  }
  int found = 0;
  for (const std::string& file : files) {
    const std::string good = *fs.ReadAll(file);
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << random.Below(8)));
      ASSERT_OK(fs.WriteAll(file, bad));
      Result<RowWorld> copy = RowWorld::Load(&fs);
      if (copy.ok()) {
        ASSERT_EQ(copy->Text(), whole) << file << " byte " << at;
      } else {
        ASSERT_TRUE(copy.status().code() == StatusCode::kDataLoss ||
                    copy.status().code() == StatusCode::kFailedPrecondition)
            << copy.status().ToString();
        ASSERT_THAT(std::string(copy.status().message()), HasSubstr(kRoot));
        ++found;
      }
    }
    for (const size_t size : {size_t{0}, good.size() / 2, good.size() - 1}) {
      ASSERT_OK(fs.WriteAll(file, good.substr(0, size)));
      ASSERT_THAT(RowWorld::Load(&fs).status(), StatusIs(StatusCode::kDataLoss));
    }
    ASSERT_OK(fs.WriteAll(file, good));
  }
  EXPECT_GT(found, 1000);
}

// A checksum does not protect from a writer that means harm.
TEST(RowCheckpointTest, AnInconsistentTableIsRefused) {
  RowWorld world;
  ASSERT_OK(world.Put(0, {.columns = {"x"}}, {test::MakeRow("a", {1}, "g"), test::MakeRow("b", {1}, "g")}));
  ASSERT_OK(world.Claim(0, {.consumer = "train", .count = 2, .needs = {"x"}}));
  const auto snapshots = ConcurrentRows::TakeSnapshots(world.tables());
  const RowTableSnapshot& snapshot = *snapshots.tables[0];
  const auto restore = [&](auto change) {
    SavedRowTable table = snapshot.table();
    std::vector<SavedRow> rows = {snapshot.row(0), snapshot.row(1)};
    change(table, rows);
    const auto state = RowState::Create(Rollouts()).value();
    REVERB_RETURN_IF_ERROR(state->BeginRestore(std::move(table)));
    for (SavedRow& row : rows) REVERB_RETURN_IF_ERROR(state->RestoreRow(std::move(row)));
    RowEffects effects;
    return state->FinishRestore(&effects);
  };
  EXPECT_OK(restore([](auto&, auto&) {}));
  const auto expect_damage = [&](const std::string& what, auto change) {
    EXPECT_THAT(restore(change), StatusIs(StatusCode::kDataLoss, HasSubstr(what)));
  };
  expect_damage("counter", [](auto& table, auto&) { table.counts.accepted = -1; });
  expect_damage("name of a column", [](auto& table, auto&) { table.names.push_back(table.names[0]); });
  expect_damage("name of a column", [](auto& table, auto&) { table.names.emplace_back(); });
  expect_damage("layout", [](auto& table, auto&) { table.layouts.push_back({7}); });
  expect_damage("layout", [](auto& table, auto&) { table.layouts.push_back(table.layouts[0]); });
  expect_damage("group", [](auto& table, auto&) { table.groups.push_back(table.groups[0]); });
  expect_damage("has no rows", [](auto& table, auto&) { table.groups.push_back({.name = "empty"}); });
  expect_damage("kind of claim", [](auto& table, auto&) { table.views[0].consumer = 9; });
  expect_damage("kind of claim", [](auto& table, auto&) { table.views[0].needs = {3, 1}; });
  expect_damage("versions", [](auto& table, auto&) { table.first_version = table.version + 1; });
  expect_damage("free slot", [](auto& table, auto&) { table.free_slots = {0}; });
  expect_damage("should have 2 rows", [](auto&, auto& rows) { rows.pop_back(); });
  expect_damage("key", [](auto&, auto& rows) { rows[1].key = rows[0].key; });
  expect_damage("key", [](auto&, auto& rows) { rows[1].key = std::string(300, 'k'); });
  expect_damage("slot", [](auto&, auto& rows) { rows[1].slot = rows[0].slot; });
  expect_damage("slot", [](auto&, auto& rows) { rows[1].slot = 1'000'000'000; });
  expect_damage("number", [](auto&, auto& rows) { rows[1].sequence = 77; });
  expect_damage("group", [](auto&, auto& rows) { rows[1].group = 5; });
  expect_damage("group", [](auto&, auto& rows) { rows[1].group.reset(); });
  expect_damage("requeued", [](auto&, auto& rows) { rows[1].is_requeued = true; });
  expect_damage("consumer", [](auto&, auto& rows) { rows[1].done = 4; });
  expect_damage("columns", [](auto&, auto& rows) { rows[1].parts[0].layout = 3; });
  expect_damage("columns", [](auto&, auto& rows) { rows[1].parts[0].chunk = test::RowChunk({1, 2}); });
  expect_damage("tags", [](auto&, auto& rows) { rows[1].tags = {{"", true}}; });
}

// --- Settings that differ ---

class LogCapture {
 public:
  LogCapture() {
    SetLogSink([this](LogLevel, std::string_view message) { text_ += std::string(message) + "\n"; });
  }
  ~LogCapture() { SetLogSink({}); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

TEST(RowCheckpointTest, SavedSettingsWinUnlessGivenOnesAreAskedFor) {
  FakeFileSystem fs;
  RowWorld world(std::vector{Plain()});
  ASSERT_OK(world.Put(0, {.columns = {"x"}}, {test::MakeRow("a", {1}), test::MakeRow("b", {1})}));
  const Result<ClaimedRows> claimed = world.Claim(0, {.consumer = "train", .count = 1});
  ASSERT_OK(claimed);
  world.table().Settle(claimed->lease, {}, RowSettlement::kAcknowledge, {});
  ASSERT_OK(CheckpointWriter(&fs, {.root = kRoot}).Write(world.TakeSnapshot(), {}, kStart));
  RowTableOptions other = Plain();
  other.max_rows = 7;
  other.consumers = {"logprob", "train"};
  other.order = RowOrder::kVersion;
  other.group_size = 2;
  {
    const LogCapture log;
    Result<RowWorld> copy = RowWorld::Load(&fs, {other});
    ASSERT_OK(copy);
    EXPECT_EQ(copy->table().options(), Plain());
    EXPECT_THAT(
        log.text(),
        AllOf(HasSubstr("row table \"plain\": max_rows was saved as 100000 and given as 7; the saved"),
              HasSubstr("consumers was saved as (\"train\") and given as (\"logprob\", \"train\")"),
              HasSubstr("order was saved as fifo"), HasSubstr("group_size was saved as 0")));
  }
  Result<RowWorld> copy = RowWorld::Load(
      &fs, {other},
      {.sizes = RestoreOptions::Settings::kGiven, .selectors = RestoreOptions::Settings::kGiven});
  ASSERT_OK(copy);
  EXPECT_EQ(copy->table().options().max_rows, 7);
  EXPECT_EQ(copy->table().options().group_size, 0) << "groups cannot be divided anew";
  EXPECT_THAT(copy->Consume(0, "train"), ElementsAre("b")) << "acknowledgements follow the name";
  EXPECT_THAT(copy->Consume(0, "logprob"), ElementsAre("a", "b"));
}

TEST(RowCheckpointTest, MissingAndExtraTables) {
  FakeFileSystem fs;
  RowWorld world(std::vector{Plain()});
  ASSERT_OK(CheckpointWriter(&fs, {.root = kRoot}).Write(world.TakeSnapshot(), {}, kStart));
  EXPECT_THAT(RowWorld::Load(&fs, {}).status(),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("has a row table \"plain\" that the server does not")));
  Result<RowWorld> both = RowWorld::Load(&fs, {Rollouts(), Plain()});
  ASSERT_OK(both);
  EXPECT_EQ(both->tables().size(), 2u);
  EXPECT_THAT(
      RowWorld::Load(&fs, {Rollouts(), Plain()}, {.missing_tables = RestoreOptions::MissingTables::kFail})
          .status(),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("no row table \"rollouts\"")));
  EXPECT_EQ(RowWorld::Load(&fs, {}, {.extra_tables = RestoreOptions::ExtraTables::kDrop})->tables().size(),
            0u);
  EXPECT_EQ(RowWorld::Load(&fs, {}, {.extra_tables = RestoreOptions::ExtraTables::kCreate})->tables().size(),
            1u);
  // One that a client created comes back by itself.
  const auto by_client = ConcurrentRows::Create(
      Plain(),
      {.store = world.environment().store, .clock = world.environment().clock, .created_by_client = true});
  world.tables() = {*by_client};
  ASSERT_OK(CheckpointWriter(&fs, {.root = kRoot}).Write(world.TakeSnapshot(), {}, kStart + 1));
  EXPECT_EQ(RowWorld::Load(&fs, {})->tables().size(), 1u);
}

// --- One instant ---

TEST(RowCheckpointTest, RowsAndItemsAreOfOneInstant) {
  FakeFileSystem fs;
  RowWorld world(std::vector{Plain()});
  const std::vector<TableOptions> given = {
      {.name = "items", .sampler = SelectorOptions::Fifo(), .max_size = 1'000'000}};
  const auto items = MakeTables(given, {.store = world.environment().store}).value();
  Checkpointer checkpointer({.path = kRoot},
                            {.fs = &fs,
                             .tables = [&] { return items; },
                             .row_tables = [&] { return world.tables(); },
                             .save_writers = {}},
                            "", {});
  std::atomic<bool> stop = false;
  // A row always comes before its item.
  struct Writer {
    ~Writer() {
      *stop = true;
      thread.join();
    }
    std::atomic<bool>* stop;
    std::thread thread;
  };
  const Writer writer{
      &stop, std::thread([&] {
        for (uint64_t i = 1; !stop; ++i) {
          EXPECT_OK(world.Put(0, {.columns = {"x"}}, {test::MakeRow("k" + std::to_string(i), {1})}));
          // Replaces data and tags that a snapshot may show.
          EXPECT_OK(world.Put(0, {.columns = {"x"}, .overwrite = true},
                              {test::MakeRow("k" + std::to_string(1 + i / 2), {2}, "", {{"reward", 0.5}})}));
          EXPECT_OK(items[0]->Insert(
              test::MakeItem(i, 1, test::MakeChunk(world.environment().store.get(), i, 0, 1))));
        }
      })};
  for (int i = 0; i < 15; ++i) {
    // The writer is at work.
    ASSERT_TRUE(test::WaitUntil([&] { return items[0]->size() >= 20 * (i + 1); }));
    ASSERT_OK(checkpointer.Save());
    const auto source = ReverbSource::Open(&fs, ListCheckpoints(&fs, kRoot)->back().path);
    ASSERT_OK(source);
    const int64_t num_items = (*source)->server().tables[0].size;
    const int64_t num_rows = (*source)->server().row_tables[0].counts.rows;
    // Every row of it can be read.
    const std::unique_ptr<RowCursor> cursor = (*source)->OpenRows(0);
    int64_t read = 0;
    for (; true; ++read) {
      const Result<std::optional<SavedRow>> row = cursor->Next();
      ASSERT_OK(row);
      if (!*row) break;
    }
    EXPECT_EQ(read, num_rows);
    EXPECT_TRUE(num_rows == num_items || num_rows == num_items + 1)
        << num_rows << " rows, " << num_items << " items";
  }
}

}  // namespace
}  // namespace reverb::internal
