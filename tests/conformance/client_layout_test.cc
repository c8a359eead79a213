// Tests the C++ API over every transport: names and layouts of items, and batches that are drawn as a whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "conformance/client_fixture.h"
#include "conformance/transports.h"
#include "reverb/client.h"
#include "reverb/server.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb {
namespace {

using std::chrono_literals::operator""ms;
using test::Floats;
using test::kPatience;
using test::MakeQueue;
using test::StatusIs;
using test::Transport;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClientLayoutTest : public test::ClientFixture {
 protected:
  // Creates an item of one row in column 0, under this name.
  static Status WriteNamed(TrajectoryWriter& writer, const std::string& table, const std::string& name) {
    const Floats x(1.0F);
    REVERB_RETURN_IF_ERROR(writer.Append(std::array{ColumnValue{0, x.view()}}));
    const CellRange newest = CellRange::One(0, writer.position() - 1);
    return writer.CreateItem(table, 1.0, std::array{NamedColumn{name, {{&newest, 1}}}});
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, ClientLayoutTest, REVERB_ALL_TRANSPORTS, test::TransportName);

TEST_P(ClientLayoutTest, NamedColumnsArriveInTheOrderOfTheirNames) {
  Start({MakeQueue("q", 10)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  const Floats reward(0.5F), action(3.0F);
  ASSERT_OK(writer.Append(std::array{ColumnValue{0, reward.view()}, ColumnValue{1, action.view()}}));
  const CellRange rewards = CellRange::One(0, 0), actions = CellRange::One(1, 0);
  const std::array columns{NamedColumn{"reward", {{&rewards, 1}, true}},
                           NamedColumn{"action", {{&actions, 1}, true}}};
  for (int i = 0; i < 2; ++i) ASSERT_OK(writer.CreateItem("q", 1.0, columns));
  const std::array twice{NamedColumn{"x", {{&rewards, 1}}}, NamedColumn{"x", {{&actions, 1}}}};
  EXPECT_THAT(writer.CreateItem("q", 1.0, twice), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK(writer.Flush(0, kPatience));
  EXPECT_THAT(client.ColumnNames("q", kPatience).value(), ElementsAre("action", "reward"));
  const auto samples = client.Sample("q", 1, kPatience).value();
  EXPECT_THAT(test::ToVector(samples[0].column(0).value()), ElementsAre(3.0F));
  EXPECT_THAT(test::ToVector(samples[0].column(1).value()), ElementsAre(0.5F));
}

TEST_P(ClientLayoutTest, AnotherLayoutIsRefused) {
  TableOptions any = MakeQueue("any", 10);
  any.layout = LayoutPolicy::kAny;
  Start({MakeQueue("q", 10), any});
  const Client client = Connect();
  auto first = NewWriter(client), second = NewWriter(client);
  ASSERT_OK(WriteNamed(first, "q", "x"));
  ASSERT_OK(WriteNamed(first, "any", "x"));
  ASSERT_OK(first.Flush(0, kPatience));
  ASSERT_OK(WriteNamed(second, "any", "y"));
  ASSERT_OK(second.Flush(0, kPatience));
  EXPECT_EQ(table("any").Info().current_size, 2);
  Status status = WriteNamed(second, "q", "y");
  if (status.ok()) status = second.Flush(0, kPatience);
  EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument,
                               HasSubstr("layout {y: float32}, but the table has {x: float32}")));
  EXPECT_EQ(table("q").Info().current_size, 1);
  ASSERT_OK(client.Reset("q", kPatience));
  auto third = NewWriter(client);
  ASSERT_OK(WriteNamed(third, "q", "y"));
  ASSERT_OK(third.Flush(0, kPatience));
  EXPECT_THAT(client.ColumnNames("q", kPatience).value(), ElementsAre("y"));
}

TEST_P(ClientLayoutTest, ABatchIsDrawnAsAWholeOrNotAtAll) {
  Start({MakeQueue("q", 10)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 7; ++i) ASSERT_OK(WriteNamed(writer, "q", "x"));
  ASSERT_OK(writer.Flush(0, kPatience));
  const SamplerOptions options{.table = "q", .batch_size = 4, .all_or_nothing = true};
  {
    auto sampler = client.NewSampler(options).value();
    Batch batch;
    EXPECT_THAT(sampler.NextBatch(3, &batch, kPatience),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("batch_size 4")));
    ASSERT_OK(sampler.NextBatch(4, &batch, kPatience));
    EXPECT_THAT(sampler.NextBatch(4, &batch, {.timeout = 50ms}), StatusIs(StatusCode::kDeadlineExceeded));
  }
  EXPECT_TRUE(test::WaitUntil([&] { return table("q").Info().waiting_samples == 0; }));
  EXPECT_EQ(table("q").Info().current_size, 3);
  SamplerOptions too_many = options;
  too_many.batch_size = 11;
  auto never = client.NewSampler(too_many).value();
  Batch batch;
  EXPECT_THAT(never.NextBatch(11, &batch, kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("can never be drawn together")));
  EXPECT_THAT(client.NewSampler({.table = "q", .all_or_nothing = true}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("needs a batch_size")));
  EXPECT_THAT(client.NewSampler({.table = "q", .max_samples = 5, .batch_size = 2}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("a multiple of batch_size")));
}

TEST_P(ClientLayoutTest, ABatchMayBeLargerThanTheWindow) {
  constexpr int kItems = 20;
  Start({MakeQueue("q", 2 * kItems)});
  const Client client = Connect();
  const std::vector<float> values(100'000);
  for (int i = 0; i < 2 * kItems; ++i) {
    const Floats x({static_cast<int64_t>(values.size())}, values);
    ASSERT_OK(client.Insert(std::array{x.view()}, std::array{Client::TablePriority{"q", 1.0}}, kPatience));
  }
  auto sampler = client
                     .NewSampler({.table = "q",
                                  .max_samples = 2 * kItems,
                                  .batch_size = kItems,
                                  .all_or_nothing = true,
                                  .receive_window_bytes = 1 << 20})
                     .value();
  Batch batch;
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(sampler.NextBatch(kItems, &batch, kPatience));
    EXPECT_THAT(batch.columns[0].dims(), ElementsAre(kItems, 1, values.size()));
  }
  EXPECT_EQ(table("q").Info().current_size, 0);
}

}  // namespace
}  // namespace reverb
