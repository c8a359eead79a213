#include "core/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/table_state_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class TableSnapshotTest : public TableStateTest {
 protected:
  struct Shown {
    double priority;
    int32_t times_sampled;
    int64_t inserted_at;
    int64_t value;
    bool operator==(const Shown&) const = default;
  };
  using Picture = std::map<uint64_t, Shown>;

  static Picture PictureOf(const TableSnapshot& snapshot) {
    Picture picture;
    for (size_t i = 0; i < snapshot.num_slots(); ++i) {
      if (snapshot.slot(i).is_free()) continue;
      const internal::Sample item = snapshot.item(i);
      const bool is_new = picture
                              .emplace(item.key, Shown{item.priority, item.times_sampled, item.inserted_at,
                                                       ValueOf(item.trajectory)})
                              .second;
      EXPECT_TRUE(is_new) << "key " << item.key << " twice";
    }
    EXPECT_EQ(static_cast<int64_t>(picture.size()), snapshot.size());
    return picture;
  }
  static Picture PictureOf(const TableState& state) {
    Picture picture;
    for (const internal::Sample& item : All(state)) {
      picture.emplace(item.key,
                      Shown{item.priority, item.times_sampled, item.inserted_at, ValueOf(item.trajectory)});
    }
    return picture;
  }
  static std::vector<SelectorItem> ItemsOf(const TableSnapshot& snapshot) {
    std::vector<SelectorItem> items;
    for (size_t i = 0; i < snapshot.num_slots(); ++i) {
      const SlotRecord& record = snapshot.slot(i);
      if (record.is_free()) continue;
      items.push_back({.slot = static_cast<Slot>(i),
                       .priority = record.priority,
                       .inserted = record.inserted,
                       .touched = record.touched});
    }
    std::ranges::sort(items, {}, &SelectorItem::inserted);
    return items;
  }
  static std::unique_ptr<Selector> Restored(const SelectorOptions& options, const SelectorCapture* capture,
                                            const TableSnapshot& snapshot) {
    auto selector = MakeSelector(options);
    EXPECT_OK(selector);
    std::string encoded;
    if (capture != nullptr) capture->Encode(&encoded);
    EXPECT_OK((*selector)->Restore(ItemsOf(snapshot), encoded));
    return *std::move(selector);
  }
};

TEST_F(TableSnapshotTest, HasTheCompleteState) {
  std::vector<std::string> log;
  const auto state =
      Make({.sampler = SelectorOptions::Prioritized(0.5, 4),
            .remover = SelectorOptions::Lifo(),
            .max_size = 3,
            .max_times_sampled = 9,
            .rate_limiter = RateLimiterOptions::MinSize(2),
            .extensions = {std::make_shared<Recorder>("a", &log), std::make_shared<Recorder>("b", &log)}});
  for (uint64_t key = 1; key <= 4; ++key) Insert(state.get(), key, static_cast<double>(key), key);
  SampleKeys(state.get(), 2);
  Update(state.get(), {{1, 5}, {70, 1}}, {2});
  const auto snapshot = state->TakeSnapshot();
  const TableSnapshot::State& shown = snapshot->state();
  EXPECT_EQ(shown.name, "t");
  EXPECT_EQ(shown.sampler, SelectorOptions::Prioritized(0.5, 4));
  EXPECT_EQ(shown.remover, SelectorOptions::Lifo());
  EXPECT_EQ(shown.max_size, 3);
  EXPECT_EQ(shown.max_times_sampled, 9);
  EXPECT_EQ(shown.rate_limiter, RateLimiterOptions::MinSize(2));
  EXPECT_EQ(shown.counters, (RateLimiterCounters{.inserts = 4, .samples = 2, .deletes = 2}));
  const TableInfo info = Info(*state);
  EXPECT_EQ(shown.counts.num_unique_samples, info.num_unique_samples);
  EXPECT_EQ(shown.counts.num_deleted_episodes, info.num_deleted_episodes);
  EXPECT_EQ(shown.counts.evictions, 1);
  EXPECT_EQ(shown.counts.explicit_deletes, 1);
  EXPECT_EQ(shown.counts.updates, 1);
  EXPECT_EQ(shown.counts.unknown_keys, 1);
  EXPECT_THAT(shown.extension_states,
              ElementsAre(std::pair("a", "state of a"), std::pair("b", "state of b")));
  EXPECT_EQ(snapshot->size(), 2);
  EXPECT_EQ(PictureOf(*snapshot), PictureOf(*state));
  EXPECT_NE(shown.free_head, 0u);
  EXPECT_TRUE(snapshot->slot(shown.free_head - 1).is_free());
}

TEST_F(TableSnapshotTest, OfAnEmptyTable) {
  const auto state = Make({});
  auto snapshot = state->TakeSnapshot();
  EXPECT_EQ(snapshot->size(), 0);
  EXPECT_THAT(PictureOf(*snapshot), IsEmpty());
  Insert(state.get(), 1);
  Delete(state.get(), {1});
  EXPECT_EQ(store_.stats().live_chunks, 0) << "nothing of it is shown";
  Reset(state.get());
  EXPECT_THAT(PictureOf(*snapshot), IsEmpty());
}

TEST_F(TableSnapshotTest, IsUnaffectedByChangesOfTheTable) {
  const auto state = Make({.sampler = SelectorOptions::Uniform(2),
                           .remover = SelectorOptions::Fifo(),
                           .max_size = 600,
                           .max_times_sampled = 3});
  for (uint64_t key = 1; key <= 600; ++key) Insert(state.get(), key, static_cast<double>(key));
  SampleKeys(state.get(), 300);
  const Picture before = PictureOf(*state);
  auto snapshot = state->TakeSnapshot();
  const auto unchanged = [&](const char* after) {
    EXPECT_EQ(PictureOf(*snapshot), before) << "after " << after;
  };
  unchanged("nothing");
  for (uint64_t key = 1'000; key < 1'300; ++key) Insert(state.get(), key);
  unchanged("inserts and evictions");
  std::vector<KeyPriority> updates;
  for (uint64_t key = 1; key <= 1'300; ++key) updates.push_back({key, -1});
  Update(state.get(), updates);
  unchanged("updates");
  SampleKeys(state.get(), 500);
  unchanged("samples and expirations");
  for (uint64_t key = 1; key <= 600; key += 2) Delete(state.get(), {key});
  unchanged("deletes");
  for (uint64_t key = 2'000; key < 2'100; ++key) Insert(state.get(), key);
  unchanged("slots used again");
  Reset(state.get());
  unchanged("a reset");
  for (uint64_t key = 1; key <= 50; ++key) Insert(state.get(), key, 7);
  unchanged("a second life");
  EXPECT_EQ(snapshot->state().counters.inserts, 600);
  EXPECT_GE(store_.stats().live_chunks, static_cast<int64_t>(before.size()));
  snapshot.reset();
  EXPECT_EQ(store_.stats().live_chunks, 50);
  EXPECT_EQ(store_.stored_bytes(), Info(*state).referenced_bytes);
}

TEST_F(TableSnapshotTest, IsUnaffectedByAnyFirstChange) {
  const std::vector<std::pair<std::string, std::function<void(TableState*)>>> changes = {
      {"insert", [&](TableState* state) { Insert(state, 100); }},
      {"assign", [&](TableState* state) { Insert(state, 1, 50); }},
      {"sample", [&](TableState* state) { SampleKeys(state, 1); }},
      {"sample many", [&](TableState* state) { SampleKeys(state, 20); }},
      {"update",
       [](TableState* state) {
         Update(state, {{1, 50}, {2, 60}});
       }},
      {"delete", [](TableState* state) { Delete(state, {2}); }},
      {"evict",
       [](TableState* state) {
         Effects effects;
         state->EvictOne(&effects);
       }},
      {"reset", [](TableState* state) { Reset(state); }},
  };
  for (const int32_t max_times_sampled : {0, 2}) {
    for (const auto& [name, change] : changes) {
      SCOPED_TRACE(name);
      const auto state =
          Make({.sampler = SelectorOptions::Uniform(1), .max_times_sampled = max_times_sampled});
      for (uint64_t key = 1; key <= 5; ++key) Insert(state.get(), key);
      const Picture before = PictureOf(*state);
      const auto snapshot = state->TakeSnapshot();
      change(state.get());
      EXPECT_NE(PictureOf(*state), before);
      EXPECT_EQ(PictureOf(*snapshot), before);
    }
  }
  EXPECT_EQ(store_.stats().live_chunks, 0);
}

TEST_F(TableSnapshotTest, KeepsOnlyTheItemsItContains) {
  const auto state = Make({});
  for (uint64_t key = 1; key <= 3; ++key) Insert(state.get(), key);
  auto snapshot = state->TakeSnapshot();
  Insert(state.get(), 4);
  Delete(state.get(), {4});
  EXPECT_EQ(store_.stats().live_chunks, 3) << "not shown";
  Delete(state.get(), {1, 2});
  EXPECT_EQ(store_.stats().live_chunks, 3) << "shown";
  EXPECT_EQ(Info(*state).referenced_bytes, store_.stored_bytes()) << "parked data is not stored data";
  EXPECT_EQ(PictureOf(*snapshot).size(), 3u);
  snapshot.reset();
  EXPECT_EQ(store_.stats().live_chunks, 1);
}

TEST_F(TableSnapshotTest, ItemsTakenFromItOutliveIt) {
  const auto state = Make({});
  Insert(state.get(), 1);
  auto snapshot = state->TakeSnapshot();
  internal::Sample item = snapshot->item(0);
  Delete(state.get(), {1});
  snapshot.reset();
  EXPECT_EQ(ValueOf(item.trajectory), 1);
  item = {};
  EXPECT_EQ(store_.stats().live_chunks, 0);
}

TEST_F(TableSnapshotTest, OutlivesItsTable) {
  auto state = Make({});
  for (uint64_t key = 1; key <= 300; ++key) Insert(state.get(), key);
  const Picture before = PictureOf(*state);
  auto snapshot = state->TakeSnapshot();
  Delete(state.get(), {5});
  state.reset();
  EXPECT_EQ(PictureOf(*snapshot), before);
  EXPECT_EQ(store_.stats().live_chunks, 300);
  snapshot.reset();
  EXPECT_EQ(store_.stats().live_chunks, 0);
  EXPECT_EQ(store_.stored_bytes(), 0);
}

TEST_F(TableSnapshotTest, SeveralOverlapAndAreDroppedInAnyOrder) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    SCOPED_TRACE(testing::PrintToString(order));
    const auto state =
        Make({.sampler = SelectorOptions::Fifo(), .remover = SelectorOptions::Fifo(), .max_size = 8});
    std::vector<std::unique_ptr<TableSnapshot>> snapshots;
    std::vector<Picture> pictures;
    uint64_t key = 0;
    const auto change = [&](int round) {
      for (int i = 0; i < 5; ++i) Insert(state.get(), ++key, round);
      SampleKeys(state.get(), 2);
      Update(state.get(), {{key, 50 + static_cast<double>(round)}}, {key - 2});
      if (round == 2) Reset(state.get());
    };
    for (int i = 0; i < 4; ++i) {
      change(i);
      pictures.push_back(PictureOf(*state));
      snapshots.push_back(state->TakeSnapshot());
    }
    change(4);
    const auto check = [&] {
      for (size_t i = 0; i < snapshots.size(); ++i) {
        if (snapshots[i] == nullptr) continue;
        ASSERT_EQ(PictureOf(*snapshots[i]), pictures[i]) << "snapshot " << i;
      }
    };
    for (const int i : order) {
      check();
      snapshots[i].reset();
      change(5 + i);  // items removed now may belong to the remaining snapshots
    }
    EXPECT_EQ(store_.stats().live_chunks, state->size());
  } while (std::ranges::next_permutation(order).found);
  EXPECT_EQ(store_.stats().live_chunks, 0);
}

TEST_F(TableSnapshotTest, TakingOneCopiesNoItem) {
  const auto state = Make({});
  for (uint64_t key = 1; key <= 1'000; ++key) Insert(state.get(), key);
  const auto first = state->TakeSnapshot();
  const auto second = state->TakeSnapshot();
  ASSERT_EQ(first->slots().num_pages(), second->slots().num_pages());
  for (size_t page = 0; page < first->slots().num_pages(); ++page) {
    EXPECT_EQ(first->slots().page_identity(page), second->slots().page_identity(page));
  }
  Update(state.get(), {{1, 2}});
  const auto third = state->TakeSnapshot();
  EXPECT_NE(first->slots().page_identity(0), third->slots().page_identity(0));
  EXPECT_EQ(first->slots().page_identity(1), third->slots().page_identity(1)) << "only what was written";
}

TEST_F(TableSnapshotTest, RestoredSelectorsDrawTheSameItems) {
  for (const SelectorOptions& selector : AllSelectors()) {
    SCOPED_TRACE(selector.ToString());
    // Without a seed: only the captured state can make them agree.
    SelectorOptions unseeded = selector;
    unseeded.seed.reset();
    const auto state = Make({.sampler = unseeded, .remover = unseeded, .max_size = 50});
    for (uint64_t key = 1; key <= 80; ++key) {
      Insert(state.get(), key, static_cast<double>(key * 7 % 11));
      if (key % 9 == 0) Delete(state.get(), {key / 2, key});
      if (key % 5 == 0) Update(state.get(), {{key - 1, 3}, {key / 3, static_cast<double>(key % 4)}});
      SampleKeys(state.get(), 3);
    }
    const auto snapshot = state->TakeSnapshot();
    const auto sampler = Restored(unseeded, snapshot->state().sampler_state.get(), *snapshot);
    const std::vector<internal::Sample> drawn = Sample(state.get(), 200);
    ASSERT_EQ(drawn.size(), 200u);
    std::vector<Selection> picks(200);
    sampler->Sample(picks);
    for (size_t i = 0; i < picks.size(); ++i) {
      ASSERT_EQ(snapshot->slot(picks[i].slot).key, drawn[i].key) << "draw " << i;
      ASSERT_EQ(picks[i].probability, drawn[i].probability) << "draw " << i;
    }
    // The remover, down to the last item. A late encoding gives the captured state.
    const auto last = Restored(unseeded, snapshot->state().remover_state.get(), *snapshot);
    for (int64_t left = state->size(); left > 0; --left) {
      Selection pick;
      last->Sample({&pick, 1});
      last->Delete(pick.slot);
      const uint64_t key = snapshot->slot(pick.slot).key;
      ASSERT_TRUE(state->Contains(key));
      Effects effects;
      state->EvictOne(&effects);
      ASSERT_FALSE(state->Contains(key)) << left << " left";
    }
  }
}

TEST_F(TableSnapshotTest, ReleasedPagesFreeRemovedItems) {
  constexpr size_t kPerPage = PagedArray<SlotRecord>::kPerPage;
  auto state = Make({.max_size = 10'000});
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 3 * kPerPage; ++key) keys.push_back(key);
  for (const uint64_t key : keys) Insert(state.get(), key);
  const int64_t all = store_.stats().live_bytes;
  auto snapshot = state->TakeSnapshot();
  auto older = std::exchange(snapshot, state->TakeSnapshot());
  Delete(state.get(), keys);
  EXPECT_EQ(store_.stats().live_bytes, all);
  EXPECT_EQ(store_.budget().usage().parked, all);
  // The older snapshot shows the items too.
  snapshot->ReleasePage(1);
  EXPECT_EQ(store_.stats().live_bytes, all);
  older->ReleasePage(1);
  EXPECT_EQ(store_.stats().live_bytes, all / 3 * 2);
  EXPECT_EQ(store_.budget().usage().parked, all / 3 * 2);
  older->ReleasePage(2);
  EXPECT_EQ(store_.stats().live_bytes, all / 3 * 2);
  older.reset();
  EXPECT_EQ(store_.stats().live_bytes, all / 3 * 2);
  snapshot->ReleasePage(2);
  EXPECT_EQ(store_.stats().live_bytes, all / 3);
  snapshot.reset();
  EXPECT_EQ(store_.stats().live_bytes, 0);
  EXPECT_EQ(store_.budget().usage().parked, 0);
}

TEST_F(TableSnapshotTest, ItemsOfReleasedPagesAreNotParked) {
  auto state = Make({.max_size = 10'000});
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 10; ++key) keys.push_back(key);
  for (const uint64_t key : keys) Insert(state.get(), key);
  const auto snapshot = state->TakeSnapshot();
  snapshot->ReleasePage(0);
  Delete(state.get(), keys);
  EXPECT_EQ(store_.stats().live_bytes, 0);
}

TEST_F(TableSnapshotTest, AResetParksTheBytesOfItsItems) {
  auto state = Make({.max_size = 10'000});
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 10; ++key) keys.push_back(key);
  for (const uint64_t key : keys) Insert(state.get(), key);
  const int64_t all = store_.stats().live_bytes;
  auto snapshot = state->TakeSnapshot();
  Effects effects;
  state->Reset(&effects);
  effects.RunAndClear();
  EXPECT_EQ(store_.budget().usage().parked, all);
  snapshot.reset();
  EXPECT_EQ(store_.budget().usage().parked, 0);
  EXPECT_EQ(store_.stats().live_bytes, 0);
}

}  // namespace
}  // namespace reverb::internal
