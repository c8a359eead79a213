// Tests the hooks of table extensions and the calls they may make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/table_state_testing.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::MakeChunk;
using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class TableExtensionTest : public TableStateTest {
 protected:
  std::vector<std::string> TakeLog() { return std::exchange(log_, {}); }

  std::vector<std::string> log_;
  std::shared_ptr<Recorder> a_ = std::make_shared<Recorder>("a", &log_);
  std::shared_ptr<Recorder> b_ = std::make_shared<Recorder>("b", &log_);
};

TEST_F(TableExtensionTest, HooksRunInOrder) {
  const auto state = Make({.sampler = SelectorOptions::Fifo(),
                           .remover = SelectorOptions::Fifo(),
                           .max_size = 2,
                           .max_times_sampled = 2,
                           .extensions = {a_, b_}});
  Insert(state.get(), 1, 10);
  EXPECT_THAT(TakeLog(), ElementsAre("a: insert 1 priority 10 times 0", "b: insert 1 priority 10 times 0"));
  Insert(state.get(), 2, 20, 1, 5);
  EXPECT_THAT(TakeLog(), ElementsAre("a: insert 2 priority 20 times 5", "b: insert 2 priority 20 times 5"));
  Insert(state.get(), 1, 11);
  EXPECT_THAT(TakeLog(), ElementsAre("a: update 1 priority 11 times 0", "b: update 1 priority 11 times 0"));
  Insert(state.get(), 3, 30);
  EXPECT_THAT(TakeLog(), ElementsAre("a: insert 3 priority 30 times 0", "b: insert 3 priority 30 times 0",
                                     "a: delete 1 priority 11 times 0", "b: delete 1 priority 11 times 0"));
  EXPECT_THAT(SampleKeys(state.get(), 1), ElementsAre(2));
  EXPECT_THAT(TakeLog(), ElementsAre("a: sample 2 priority 20 times 6", "b: sample 2 priority 20 times 6",
                                     "a: delete 2 priority 20 times 6", "b: delete 2 priority 20 times 6"));
  EXPECT_THAT(SampleKeys(state.get(), 1), ElementsAre(3));
  EXPECT_THAT(TakeLog(), ElementsAre("a: sample 3 priority 30 times 1", "b: sample 3 priority 30 times 1"));
  Insert(state.get(), 4, 40);
  TakeLog();
  Update(state.get(), {{3, 31}, {77, 1}}, {4, 78});
  EXPECT_THAT(TakeLog(), ElementsAre("a: delete 4 priority 40 times 0", "b: delete 4 priority 40 times 0",
                                     "a: update 3 priority 31 times 1", "b: update 3 priority 31 times 1"));
  Reset(state.get());
  EXPECT_THAT(TakeLog(), ElementsAre("a: reset", "b: reset")) << "no deletes";
}

TEST_F(TableExtensionTest, PeeksAndRejectionsCallNoHooks) {
  const auto state = Make({.extensions = {a_}});
  Insert(state.get(), 1);
  TakeLog();
  (void)state->CheckItem(NewItem(2, kNan));
  (void)state->Find(1);
  (void)All(*state);
  (void)state->TakeSnapshot();
  EXPECT_THAT(TakeLog(), IsEmpty());
}

TEST_F(TableExtensionTest, AnItemViewNamesItsEpisodeAndFirstStep) {
  const auto state = Make({.extensions = {a_}});
  int calls = 0;
  a_->then = [&](const std::string&, const ItemView& item, TableExtension::Context&) {
    ++calls;
    EXPECT_EQ(item.episode_id, 77u);
    EXPECT_EQ(item.first_step, 1'003);
    EXPECT_EQ(ValueOf(*item.trajectory), 53);
  };
  Effects effects;
  const ChunkRef chunk = MakeChunk(&store_, 77, 1'000, 10, 50);
  state->InsertOrAssign({.key = 1, .priority = 1, .trajectory = Trajectory::Single(chunk, 3, 1).value()}, 0,
                        &effects);
  Update(state.get(), {{1, 2}}, {});
  SampleKeys(state.get(), 1);
  Delete(state.get(), {1});
  EXPECT_EQ(calls, 4);
}

TEST_F(TableExtensionTest, HooksMaySetPrioritiesOfOtherItemsWithoutRecursion) {
  const auto state = Make({.sampler = SelectorOptions::MaxHeap(), .extensions = {a_, b_}});
  for (uint64_t key = 1; key <= 3; ++key) Insert(state.get(), key, 1);
  TakeLog();
  // Each sample raises the priority of all other items, and lowers its own to the minimum.
  a_->then = [](const std::string& what, const ItemView& item, TableExtension::Context& context) {
    if (what != "sample") return;
    for (uint64_t key = 1; key <= 3; ++key)
      context.UpdatePriority(key, key == item.key ? 0 : 10 + static_cast<double>(key));
  };
  double seen_by_b = -1;
  b_->then = [&](const std::string&, const ItemView& item, TableExtension::Context&) {
    seen_by_b = item.priority;
  };
  EXPECT_THAT(SampleKeys(state.get(), 1), ElementsAre(1));
  EXPECT_EQ(seen_by_b, 1) << "what hooks ask for comes after all of them";
  EXPECT_THAT(TakeLog(), ElementsAre("a: sample 1 priority 1 times 1", "b: sample 1 priority 1 times 1"))
      << "no update hooks for updates by hooks";
  EXPECT_EQ(state->Find(1)->priority, 0);
  EXPECT_EQ(state->Find(2)->priority, 12);
  EXPECT_EQ(state->Find(3)->priority, 13);
  EXPECT_EQ(Info(*state).updates, 3);
  // Later draws of one call see the effects of hooks of earlier draws.
  EXPECT_THAT(SampleKeys(state.get(), 3), ElementsAre(3, 2, 3));
}

TEST_F(TableExtensionTest, HooksOfAnInsertRunBeforeItsEviction) {
  const auto state = Make({.remover = SelectorOptions::MinHeap(), .max_size = 2, .extensions = {a_}});
  Insert(state.get(), 1, 10);
  Insert(state.get(), 2, 20);
  a_->then = [](const std::string& what, const ItemView&, TableExtension::Context& context) {
    if (what == "insert") context.UpdatePriority(2, 5);
  };
  Insert(state.get(), 3, 30);
  EXPECT_THAT(Keys(*state), ElementsAre(1, 3));
}

TEST_F(TableExtensionTest, HooksOfABatchOfUpdatesSeeTheWholeBatch) {
  const auto state = Make({.extensions = {a_}});
  for (uint64_t key = 1; key <= 3; ++key) Insert(state.get(), key, 1);
  TakeLog();
  a_->then = [](const std::string& what, const ItemView& item, TableExtension::Context& context) {
    if (what == "update" && item.key == 1) context.UpdatePriority(3, 99);
  };
  Update(state.get(), {{1, 5}, {2, 6}});
  EXPECT_THAT(TakeLog(), ElementsAre("a: update 1 priority 5 times 0", "a: update 2 priority 6 times 0"));
  EXPECT_EQ(state->Find(3)->priority, 99);
  EXPECT_EQ(Info(*state).updates, 3);
}

TEST_F(TableExtensionTest, ADeleteHookMayUpdateOthersButNotTheDeleted) {
  const auto state = Make({.extensions = {a_}});
  for (uint64_t key = 1; key <= 2; ++key) Insert(state.get(), key, 1);
  a_->then = [](const std::string& what, const ItemView& item, TableExtension::Context& context) {
    if (what != "delete") return;
    context.UpdatePriority(item.key, 50);
    context.UpdatePriority(2, 60);
  };
  Delete(state.get(), {1});
  EXPECT_FALSE(state->Contains(1));
  EXPECT_EQ(state->Find(2)->priority, 60);
  EXPECT_EQ(Info(*state).unknown_keys, 1);
}

TEST_F(TableExtensionTest, InvalidUpdatesByHooksAreIgnoredAndCounted) {
  const auto state = Make({.sampler = SelectorOptions::Prioritized(1, 1),
                           .remover = SelectorOptions::MinHeap(),
                           .extensions = {a_}});
  Insert(state.get(), 1, 1);
  a_->then = [](const std::string&, const ItemView&, TableExtension::Context& context) {
    context.UpdatePriority(1, kNan);
    context.UpdatePriority(1, -1);
    context.UpdatePriority(1, kInfinity);
    context.UpdatePriority(404, 1);
  };
  EXPECT_EQ(SampleKeys(state.get(), 1).size(), 1u);
  EXPECT_EQ(state->Find(1)->priority, 1);
  EXPECT_EQ(Info(*state).unknown_keys, 4);
  EXPECT_EQ(Info(*state).updates, 0);
}

TEST_F(TableExtensionTest, DeferredWorkIsReturnedToTheCaller) {
  const auto state =
      Make({.sampler = SelectorOptions::Fifo(), .max_times_sampled = 1, .extensions = {a_, b_}});
  Insert(state.get(), 1);
  std::vector<std::string> done;
  a_->then = [&](const std::string& what, const ItemView&, TableExtension::Context& context) {
    context.AfterUnlock([&done, what] { done.push_back("a " + what); });
  };
  b_->then = [&](const std::string& what, const ItemView&, TableExtension::Context& context) {
    context.AfterUnlock([&done, what] { done.push_back("b " + what); });
  };
  Effects effects;
  std::vector<internal::Sample> samples;
  state->Sample(1, false, &samples, &effects);
  EXPECT_THAT(done, IsEmpty());
  for (const auto& work : effects.after_unlock) work();
  EXPECT_THAT(done, ElementsAre("a sample", "b sample", "a delete", "b delete"));
}

TEST_F(TableExtensionTest, AnExtensionServesOneTableAtATime) {
  auto first = Make({.extensions = {a_}});
  const auto refused = [](TableOptions options) { return TableState::Create(std::move(options)).status(); };
  EXPECT_THAT(refused({.name = "u", .extensions = {b_, a_}}),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("\"u\""), HasSubstr("\"a\""))));
  EXPECT_THAT(refused({.name = "u", .extensions = {b_, b_}}), StatusIs(StatusCode::kInvalidArgument))
      << "nor twice one table";
  auto second = Make({.extensions = {b_}});  // the failures above released it
  first.reset();
  first = Make({.extensions = {a_}});
}

}  // namespace
}  // namespace reverb::internal
