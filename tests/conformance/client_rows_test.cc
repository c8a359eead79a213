// Row tables through the C++ API, over every transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/client_rows_testing.h"
#include "reverb/rows.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int32_t> ToInts(const Tensor& tensor) {
  const auto* data = reinterpret_cast<const int32_t*>(tensor.data());
  return {data, data + tensor.num_elements()};
}

class ClientRowsTest : public RowsFixture {};

TEST_P(ClientRowsTest, ColumnsArriveOverTimeAndAreReadTogether) {
  const Rows rows = StartRows({.consumers = {"train"}});
  const Int32s first(3, 10);
  const Int32s second(2, 20);
  const int64_t prompt = 7;
  const std::array new_rows = {
      NewRow{.key = "a",
             .tags = {{"prompt", prompt}, {"reward", 0.5}, {"ok", true}, {"split", std::string("math")}},
             .values = {first.view()}},
      NewRow{.key = "b", .values = {second.view()}}};
  const Result<PutOutcome> put = rows.Put({.columns = {"tokens"}, .version = 12}, new_rows, kPatience);
  ASSERT_OK(put.status());
  EXPECT_EQ(put->stored, 2);
  EXPECT_THAT(put->aborted, IsEmpty());
  const Floats advantage(0.25f);
  const std::array late = {NewRow{.key = "a", .values = {advantage.view()}},
                           NewRow{.key = "b", .values = {advantage.view()}}};
  ASSERT_OK(rows.Put({.columns = {"adv"}}, late, kPatience).status());

  const Result<RowBatch> batch =
      rows.Claim({.consumer = "train", .count = 2, .needs = {"tokens", "adv"}}, kPatience);
  ASSERT_OK(batch.status());
  EXPECT_THAT(Keys(*batch), ElementsAre("a", "b"));
  EXPECT_EQ(batch->rows()[0].version, 12);
  EXPECT_EQ(batch->rows()[0].tags, new_rows[0].tags);
  const Result<JaggedColumn> tokens = batch->Column("tokens");
  ASSERT_OK(tokens.status());
  EXPECT_THAT(tokens->offsets, ElementsAre(0, 3, 5));
  EXPECT_THAT(ToInts(tokens->values), ElementsAre(10, 11, 12, 20, 21));
  const Result<JaggedColumn> advantages = batch->Column("adv");
  ASSERT_OK(advantages.status());
  EXPECT_TRUE(advantages->is_scalar);
  EXPECT_THAT(ToVector(advantages->values), ElementsAre(0.25f, 0.25f));
  EXPECT_THAT(batch->Column("other"),
              StatusIs(StatusCode::kNotFound, HasSubstr("name it in needs or select")));

  EXPECT_THAT(batch->Extend(seconds(100)), IsOkAndHolds(LeaseOutcome{.settled = 2}));
  EXPECT_THAT(batch->Acknowledge(), IsOkAndHolds(LeaseOutcome{.settled = 2}));
  EXPECT_THAT(batch->Acknowledge(), IsOkAndHolds(LeaseOutcome{.expired = 1}));
  EXPECT_EQ(rows.Info()->counts.rows, 0);
}

TEST_P(ClientRowsTest, StringsAndEmptyValuesAreColumnsToo) {
  const Rows rows = StartRows({.consumers = {"train"}});
  const std::string_view text = "how are you?";
  const std::vector<int64_t> none = {0, 4};
  const TensorView scalar{DType::kString, {}, &text};
  const TensorView empty{DType::kFloat32, none, nullptr};
  const std::array new_rows = {NewRow{.key = "a", .values = {scalar, empty}}};
  ASSERT_OK(rows.Put({.columns = {"text", "empty"}}, new_rows, kPatience).status());
  const std::vector<std::string> keys = {"a", "unknown"};
  const std::vector<std::string> columns = {"empty", "text"};
  const Result<RowBatch> batch = rows.Get(keys, columns, kPatience);
  ASSERT_OK(batch.status());
  EXPECT_THAT(Keys(*batch), ElementsAre("a"));
  EXPECT_THAT(batch->Column("text")->values.strings(), ElementsAre("how are you?"));
  EXPECT_THAT(batch->Column("empty")->values.dims(), ElementsAre(0, 4));
  EXPECT_THAT(batch->Acknowledge(), StatusIs(StatusCode::kFailedPrecondition));
}

TEST_P(ClientRowsTest, TheWriteThatMakesARowReadyWakesTheClaim) {
  const Rows rows = StartRows({.consumers = {"train"}});
  std::optional<Result<RowBatch>> claimed;
  std::thread trainer([&] { claimed = rows.Claim({.consumer = "train", .needs = {"x"}}, kPatience); });
  ASSERT_TRUE(WaitUntil([&] { return rows.Info()->waiting_claims == 1; }));
  EXPECT_THAT(rows.Info()->claim_reason, HasSubstr("the table is empty"));
  EXPECT_OK(Put(rows, {"a"}, "x", 3).status());
  trainer.join();
  ASSERT_OK(claimed->status());
  EXPECT_THAT(Keys(**claimed), ElementsAre("a"));
}

TEST_P(ClientRowsTest, ATimeoutNamesTheReasons) {
  const Rows rows = StartRows({.consumers = {"train"}});
  ASSERT_OK(Put(rows, {"a"}, "x", 3).status());
  const RowClaim claim{.consumer = "train", .count = 1, .needs = {"x", "adv"}};
  EXPECT_THAT(
      rows.Claim(claim, {.timeout = milliseconds(0)}),
      StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited, HasSubstr("1 row lacks \"adv\"")));
  EXPECT_THAT(rows.Claim(claim, {.timeout = milliseconds(20)}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("1 row lacks \"adv\"")));
  const Result<RowBatch> held = rows.Claim({.consumer = "train", .needs = {"x"}}, kPatience);
  ASSERT_OK(held.status());
  EXPECT_THAT(rows.Claim({.consumer = "train", .needs = {"x"}}, {.timeout = milliseconds(0)}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("is leased by trainer-1 for")));
  EXPECT_THAT(held->Release(), IsOkAndHolds(LeaseOutcome{.settled = 1}));
}

TEST_P(ClientRowsTest, EndingTheWaitCancelsTheClaimAtTheServer) {
  const Rows rows = StartRows({.consumers = {"train"}});
  std::atomic<bool> stop = false;
  std::optional<Result<RowBatch>> claimed;
  std::thread trainer([&] {
    claimed = rows.Claim({.consumer = "train"},
                         {.on_wait = [&] { return stop ? Status::Cancelled("interrupted") : Status::Ok(); }});
  });
  ASSERT_TRUE(WaitUntil([&] { return rows.Info()->waiting_claims == 1; }));
  stop = true;
  trainer.join();
  EXPECT_THAT(*claimed, StatusIs(StatusCode::kCancelled, HasSubstr("interrupted")));
  ASSERT_TRUE(WaitUntil([&] { return rows.Info()->waiting_claims == 0; }));
  // The row is there for the next one.
  ASSERT_OK(Put(rows, {"a"}, "x", 3).status());
  EXPECT_OK(rows.Claim({.consumer = "train"}, {.timeout = milliseconds(0)}).status());
}

TEST_P(ClientRowsTest, AClientThatClosesLeavesTheTableToOthers) {
  const Rows rows = StartRows({.consumers = {"train"}});
  {
    const Rows other = Connect({.name = "other"}).RowTable("rollouts").value();
    ASSERT_OK(Put(other, {"a"}, "x", 3).status());
    ASSERT_OK(other.Claim({.consumer = "train", .lease = milliseconds(50)}, kPatience).status());
  }
  // What it had claimed comes back.
  EXPECT_THAT(Keys(rows.Claim({.consumer = "train"}, kPatience).value()), ElementsAre("a"));
}

TEST_P(ClientRowsTest, NewRowsWaitForRoom) {
  const Rows rows = StartRows({.max_rows = 2, .consumers = {"train"}});
  EXPECT_THAT(Put(rows, {"a", "b", "c"}, "x", 3, {}, {.timeout = milliseconds(20)}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("stored 2 of 3 rows")));
  std::thread producer([&] { EXPECT_OK(Put(rows, {"c"}, "x", 3).status()); });
  ASSERT_TRUE(WaitUntil([&] { return rows.Info()->waiting_writes == 1; }));
  EXPECT_OK(rows.Claim({.consumer = "train"}, kPatience)->Acknowledge().status());
  producer.join();
  EXPECT_EQ(rows.Info()->counts.rows, 2);
}

TEST_P(ClientRowsTest, StaleRowsAreReportedToTheirProducers) {
  const Rows rows =
      StartRows({.consumers = {"train"}, .staleness = StalenessOptions{.max_lag = 1, .batch = 2}});
  ASSERT_OK(Put(rows, {"open"}, "x", 3, {.version = 0, .open = true}).status());
  EXPECT_OK(rows.SetVersion(2));
  EXPECT_THAT(rows.SetVersion(1), StatusIs(StatusCode::kFailedPrecondition));
  const Result<PutOutcome> put = Put(rows, {"open"}, "x", 3, {.append = true});
  ASSERT_OK(put.status());
  EXPECT_THAT(put->aborted, ElementsAre("open"));
  EXPECT_EQ(put->version, 2);
  EXPECT_THAT(Put(rows, {"old"}, "x", 3, {.version = 0})->aborted, ElementsAre("old"));
  EXPECT_EQ(rows.Info()->counts.refused, 2);
}

TEST_P(ClientRowsTest, OpenRowsAreListedAndResumed) {
  const Rows rows = StartRows({.consumers = {"train"}});
  ASSERT_OK(Put(rows, {"a"}, "x", 3, {.open = true}).status());
  ASSERT_OK(Put(rows, {"a"}, "x", 2, {.append = true}).status());
  const Result<std::vector<RowInfo>> listed = rows.List("x.length == 5", 10);
  ASSERT_OK(listed.status());
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_TRUE(listed->front().is_open);
  EXPECT_THAT(listed->front().columns, ElementsAre("x"));
  const std::vector<std::string> keys = {"a"};
  EXPECT_THAT(rows.End(keys, RowEnding::kRequeue), IsOkAndHolds(IsEmpty()));
  const Result<RowBatch> resumed = rows.Claim({.consumer = "resume", .needs = {"x"}}, kPatience);
  ASSERT_OK(resumed.status());
  EXPECT_THAT(ToInts(resumed->Column("x")->values), ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(rows.End(keys, RowEnding::kClose), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(Keys(rows.Claim({.consumer = "train"}, kPatience).value()), ElementsAre("a"));
}

TEST_P(ClientRowsTest, ReservationsAreGivenBack) {
  const Rows rows = StartRows(
      {.consumers = {"train"}, .staleness = StalenessOptions{.max_lag = 0, .batch = 2}, .max_running = 2});
  const Result<Rows::Reservation> first = rows.Reserve(2, 0, seconds(60), kPatience);
  ASSERT_OK(first.status());
  EXPECT_THAT(rows.Reserve(1, 0, seconds(60), {.timeout = milliseconds(0)}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("max_running = 2")));
  EXPECT_THAT(rows.CancelReservation(first->id), IsOkAndHolds(true));
  EXPECT_THAT(rows.CancelReservation(first->id), IsOkAndHolds(false));
  EXPECT_OK(rows.Reserve(1, 0, seconds(60), {.timeout = milliseconds(0)}).status());
}

TEST_P(ClientRowsTest, ABatchLargerThanAReplyIsReadInParts) {
  const Rows rows = StartRows({.consumers = {"train"}});
  constexpr int64_t kLength = 5 << 20;  // 20 MiB; a reply has 32
  for (const char* key : {"a", "b", "c"}) ASSERT_OK(Put(rows, {key}, "x", kLength).status());
  const Result<RowBatch> batch = rows.Claim({.consumer = "train", .count = 3, .needs = {"x"}}, kPatience);
  ASSERT_OK(batch.status());
  const Result<JaggedColumn> values = batch->Column("x");
  ASSERT_OK(values.status());
  EXPECT_THAT(values->offsets, ElementsAre(0, kLength, 2 * kLength, 3 * kLength));
  const std::vector<int32_t> all = ToInts(values->values);
  EXPECT_EQ(all[2 * kLength], 0);
  EXPECT_EQ(all[3 * kLength - 1], kLength - 1);
}

TEST_P(ClientRowsTest, AClaimThatCannotBeReadToTheEndIsGivenBack) {
  if (in_process()) GTEST_SKIP() << "replies in the process have no size";
  const Rows rows = StartRows({.consumers = {"train"}});
  const Rows small = ClientThatCannotReadTheRest(rows);
  const RowClaim claim{.consumer = "train", .count = 2, .needs = {"x"}, .lease = std::chrono::hours(1)};
  EXPECT_THAT(small.Claim(claim, kPatience), StatusIs(StatusCode::kResourceExhausted));
  // The lease of an hour does not keep others from the rows.
  const Result<RowBatch> batch = rows.Claim(claim, kPatience);
  ASSERT_OK(batch.status());
  EXPECT_THAT(Keys(*batch), ElementsAre("a", "b"));
}

TEST_P(ClientRowsTest, APutOfManyRowsIsStoredAsAWholeOrNotAtAll) {
  const Rows rows = StartRows({.consumers = {"train"}});
  constexpr int64_t kLength = 20'000;  // 80 kB: over the local transport, the rows travel in several parts
  std::vector<std::string> keys;
  for (int i = 0; i < 50; ++i) keys.push_back("row " + std::to_string(i));
  const std::vector<std::string> last(keys.end() - 1, keys.end());
  ASSERT_OK(Put(rows, last, "x", 3).status());
  EXPECT_THAT(Put(rows, keys, "x", kLength), StatusIs(StatusCode::kAlreadyExists, HasSubstr("row 49")));
  EXPECT_EQ(rows.Info()->counts.rows, 1) << "the last row was there, so that no other one is stored";
  // An error of the client, after the first rows were sent.
  const Int32s values(kLength);
  std::vector<NewRow> wrong;
  for (const std::string& key : keys) wrong.push_back({.key = key, .values = {values.view()}});
  const std::vector<int64_t> negative = {-1};
  wrong.back().values = {TensorView{DType::kInt32, negative, values.values.data()}};
  EXPECT_THAT(rows.Put({.columns = {"y"}}, wrong, kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("row 49")));
  EXPECT_EQ(rows.Info()->counts.rows, 1);
  const Result<PutOutcome> put = Put(rows, keys, "x", kLength, {.overwrite = true});
  ASSERT_OK(put.status());
  EXPECT_EQ(put->stored, 50);
  const Result<RowBatch> batch = rows.Claim({.consumer = "train", .count = 50, .needs = {"x"}}, kPatience);
  ASSERT_OK(batch.status());
  const Result<JaggedColumn> column = batch->Column("x");
  ASSERT_OK(column.status());
  EXPECT_EQ(column->offsets.back(), 50 * kLength);
  for (const size_t row : {0, 1, 20, 49}) {
    const std::vector<int32_t> all = ToInts(column->values);
    EXPECT_EQ(all[row * kLength], 0);
    EXPECT_EQ(all[(row + 1) * kLength - 1], kLength - 1);
  }
}

TEST_P(ClientRowsTest, RowsAreDeletedByKeyAndByCondition) {
  const Rows rows = StartRows({.consumers = {"train"}});
  ASSERT_OK(Put(rows, {"a", "b"}, "x", 3).status());
  ASSERT_OK(Put(rows, {"c"}, "x", 5).status());
  const std::vector<std::string> keys = {"a", "other"};
  EXPECT_THAT(rows.Delete(keys), IsOkAndHolds(1));
  EXPECT_THAT(rows.DeleteWhere("x.length > 4"), IsOkAndHolds(1));
  EXPECT_THAT(rows.DeleteWhere("x.length >"),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("x.length >"), HasSubstr("^"))));
  EXPECT_EQ(rows.Info()->counts.rows, 1);
}

TEST_P(ClientRowsTest, TablesAreCreatedAndRemovedWhileTheServerRuns) {
  StartRows({.consumers = {"train"}});
  const Client client = Connect();
  RowTableOptions options{
      .name = "more",
      .group_size = 2,
      .consumers = {"x", "y"},
      .staleness = StalenessOptions{.max_lag = 3, .when_stale = WhenStale::kWait, .batch = 8},
      .order = RowOrder::kReady};
  ASSERT_OK(client.CreateRowTable(options));
  EXPECT_OK(client.CreateRowTable(options, /*exist_ok=*/true));
  EXPECT_THAT(client.CreateRowTable(options), StatusIs(StatusCode::kAlreadyExists));
  const Result<std::vector<RowTableInfo>> tables = client.InfoOfRowTables();
  ASSERT_OK(tables.status());
  ASSERT_EQ(tables->size(), 2u);
  EXPECT_EQ(tables->front().settings, options);
  EXPECT_OK(client.RemoveRowTable("more"));
  EXPECT_THAT(client.RowTable("more")->Info(),
              StatusIs(StatusCode::kNotFound, HasSubstr("its row tables are \"rollouts\"")));
  EXPECT_THAT(client.CreateTable(MakeQueue("rollouts", 3)), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_THAT(client.Reset("rollouts"), StatusIs(StatusCode::kNotFound, HasSubstr("is a row table")));
}

TEST_P(ClientRowsTest, TheCallersStateIsSetTogetherWithWhatItBelongsTo) {
  const Rows rows = StartRows({.consumers = {"train"}});
  EXPECT_THAT(rows.State(), IsOkAndHolds(""));
  const std::string bytes("a\0b\xff", 4);
  ASSERT_OK(rows.SetState(bytes));
  EXPECT_THAT(rows.State(), IsOkAndHolds(bytes));
  ASSERT_OK(Put(rows, {"a", "b"}, "x", 3).status());
  const Result<RowBatch> batch = rows.Claim({.consumer = "train", .count = 2}, kPatience);
  ASSERT_OK(batch.status());
  const std::vector<std::string> first = {"a"};
  ASSERT_OK(batch->Acknowledge(first, {}, "with a").status());
  EXPECT_THAT(rows.State(), IsOkAndHolds("with a"));
  ASSERT_OK(batch->Release());
  const Result<LeaseOutcome> late = batch->Acknowledge({}, {}, "too late");
  ASSERT_OK(late.status());
  EXPECT_EQ(late->expired, 1);
  EXPECT_THAT(rows.State(), IsOkAndHolds("with a")) << "the lease was over";
  ASSERT_OK(rows.SetVersion(5, {}, "at 5"));
  EXPECT_THAT(rows.SetVersion(4, {}, "at 4"), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(rows.State(), IsOkAndHolds("at 5"));
  EXPECT_THAT(
      rows.SetState(std::string(RowTableOptions::kMaxStateBytes + 1, 'x')),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("the state has 16777217 bytes, more than 16777216")));
  const std::string large(RowTableOptions::kMaxStateBytes, 'x');
  ASSERT_OK(rows.SetState(large));
  EXPECT_EQ(rows.State()->size(), large.size());
  EXPECT_EQ(rows.Info()->state_bytes, std::ssize(large));
}

TEST_P(ClientRowsTest, TheServersInformationHasRowTables) {
  const Rows rows = StartRows({.consumers = {"train"}, .staleness = StalenessOptions{.max_lag = 2}});
  ASSERT_OK(Put(rows, {"a", "b"}, "x", 3).status());
  ASSERT_OK(Put(rows, {"c"}, "x", 3, {.open = true}).status());
  const Result<RowBatch> batch = rows.Claim({.consumer = "train", .count = 1}, kPatience);
  ASSERT_OK(batch.status());
  std::optional<Result<RowBatch>> claimed;
  std::thread trainer([&] {
    claimed = rows.Claim({.consumer = "train", .needs = {"y"}}, {.timeout = seconds(60), .on_wait = {}});
  });
  const Client client = Connect();
  ASSERT_TRUE(WaitUntil([&] { return client.Info()->row_tables.at(0).waiting_claims == 1; }));
  const RowTableInfo info = client.Info()->row_tables.at(0);
  EXPECT_EQ(info.settings.name, "rollouts");
  EXPECT_EQ(info.settings.staleness, (StalenessOptions{.max_lag = 2}));
  EXPECT_EQ(info.counts.rows, 3);
  EXPECT_EQ(info.counts.open, 1);
  EXPECT_GT(info.counts.bytes, 36);
  EXPECT_EQ(info.consumers.at(0).leased, 1);
  EXPECT_THAT(info.claim_reason, HasSubstr("1 row lacks \"y\""));
  EXPECT_EQ(info.write_reason, "");
  EXPECT_GT(info.longest_wait_nanos, 0);
  const Result<std::vector<RowInfo>> listed = rows.List("", 10);
  ASSERT_OK(listed.status());
  EXPECT_THAT((*listed)[0].leased_by, testing::ElementsAre("train"));
  EXPECT_TRUE((*listed)[2].is_open);
  EXPECT_OK(Put(rows, {"b"}, "y", 1).status());
  trainer.join();
  EXPECT_OK(claimed->status());
}

TEST_P(ClientRowsTest, StoppingTheServerEndsTheWaits) {
  const Rows rows = StartRows({.consumers = {"train"}});
  std::optional<Result<RowBatch>> claimed;
  std::thread trainer(
      [&] { claimed = rows.Claim({.consumer = "train"}, {.timeout = seconds(60), .on_wait = {}}); });
  ASSERT_TRUE(WaitUntil([&] { return rows.Info()->waiting_claims == 1; }));
  std::thread stopper([&] { server_->Stop(); });
  stopper.join();
  if (in_process()) {
    trainer.join();
    EXPECT_THAT(*claimed, StatusIs(StatusCode::kCancelled, Detail::kTableClosed));
    return;
  }
  trainer.join();
  EXPECT_FALSE(claimed->ok());
}

INSTANTIATE_TEST_SUITE_P(Transports, ClientRowsTest, REVERB_ALL_TRANSPORTS, TransportName);

}  // namespace
}  // namespace reverb::test
