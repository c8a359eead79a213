#include "admin/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "admin/admin_json.h"

namespace reverb::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsTest, WritesFamiliesAndEscapesLabels) {
  MetricsWriter writer;
  writer.Family("reverb_x", "gauge", "What it is.");
  writer.Add({}, 1);
  writer.Add({{"table", "a\"b\\c\nd<script>\xff"}, {"state", "open"}}, 0.5);
  EXPECT_EQ(writer.text(),
            "# HELP reverb_x What it is.\n# TYPE reverb_x gauge\nreverb_x 1\n"
            "reverb_x{table=\"a\\\"b\\\\c\\nd<script>\xef\xbf\xbd\",state=\"open\"} 0.5\n");
}

TEST(MetricsTest, WritesNumbersExactly) {
  MetricsWriter writer;
  writer.Family("x", "gauge", "h");
  for (const double value :
       {0.1, 1e-9, 123456789012.0, -2.0, std::numeric_limits<double>::max(),
        -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    writer.Add({}, value);
  }
  EXPECT_THAT(writer.text(), HasSubstr("x 0.1\nx 1e-09\nx 123456789012\nx -2\nx +Inf\nx -Inf\nx NaN\n"));
}

TEST(MetricsTest, HistogramsAreCumulative) {
  MetricsWriter writer;
  writer.Family("x", "histogram", "h");
  writer.AddHistogram({{"table", "t"}}, {.bounds = {1, 2.5}, .counts = {3, 0, 4}, .sum = 20});
  EXPECT_THAT(writer.text(), HasSubstr("x_bucket{table=\"t\",le=\"1\"} 3\n"
                                       "x_bucket{table=\"t\",le=\"2.5\"} 3\n"
                                       "x_bucket{table=\"t\",le=\"+Inf\"} 7\n"
                                       "x_sum{table=\"t\"} 20\nx_count{table=\"t\"} 7\n"));
}

AdminState StateOfTwoTables() {
  AdminState state;
  TableInfo table;
  table.name = "a";
  table.waits[static_cast<size_t>(WaitReason::kQueued)] = {.count = 2, .total_nanos = 5'000'000'000};
  table.queued_inserts = {.count = 1, .total_nanos = 2'000'000'000};
  state.info.tables.push_back(table);
  table.name = "b";
  state.info.tables.push_back(table);
  return state;
}

TEST(MetricsTest, TimeInTheQueueIsDividedByOperation) {
  const std::string text = MetricsText(StateOfTwoTables());
  EXPECT_THAT(
      text,
      HasSubstr("reverb_table_wait_seconds_total{table=\"a\",operation=\"insert\",reason=\"queued\"} 2\n"));
  EXPECT_THAT(
      text,
      HasSubstr("reverb_table_wait_seconds_total{table=\"a\",operation=\"sample\",reason=\"queued\"} 3\n"));
}

TEST(MetricsTest, TokensSeeTheirTablesOnly) {
  const AccessToken token({.name = "reader", .read = true, .tables = {"b*"}}, {});
  const std::string text = MetricsText(VisibleTo(StateOfTwoTables(), &token));
  EXPECT_THAT(text, HasSubstr("table=\"b\""));
  EXPECT_THAT(text, Not(HasSubstr("table=\"a\"")));
  const std::string json = AdminInfoJson(VisibleTo(StateOfTwoTables(), &token));
  EXPECT_THAT(json, HasSubstr("\"name\":\"b\""));
  EXPECT_THAT(json, Not(HasSubstr("\"name\":\"a\"")));
}

}  // namespace
}  // namespace reverb::internal
