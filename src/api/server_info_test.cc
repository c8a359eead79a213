// Tests SumOf(): what the information of several servers adds up to.
#include "reverb/server_info.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <type_traits>

#include "reverb/server_info_fields.h"

namespace reverb {
namespace {

// A server with one table in which every count is `number`.
ServerInfo MakeServer(int64_t number) {
  TableInfo table;
  ForEachField<TableInfo>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(field(table))>;
    if constexpr (std::is_same_v<Value, int64_t> || std::is_same_v<Value, double>) field(table) = number;
  });
  table.name = "t";
  for (WaitStats& wait : table.waits) wait = {.count = number, .total_nanos = number};
  ServerInfo server;
  server.tables = {table};
  server.live_chunks = server.live_bytes = server.stored_bytes = number;
  server.max_bytes = number;
  server.started_nanos = server.now_nanos = number;
  return server;
}

TEST(SumOfTest, AddsEveryCountOfATable) {
  const TableInfo sum = SumOf({MakeServer(3), MakeServer(40)}).tables.at(0);
  EXPECT_EQ(sum.current_size, 43);
  EXPECT_EQ(sum.leases.leased, 43);
  EXPECT_EQ(sum.leases.granted, 43);
  EXPECT_EQ(sum.leases.acknowledged, 43);
  EXPECT_EQ(sum.leases.expired, 43);
  EXPECT_EQ(sum.leases.late, 43);
  EXPECT_EQ(sum.waits[1].count, 43);
  EXPECT_EQ(sum.waits[kNumWaitReasons - 1].total_nanos, 43);
  EXPECT_EQ(sum.longest_wait_nanos, 40);
  EXPECT_EQ(sum.max_age_nanos, 3) << "a setting is that of the first server";
  ForEachField<TableInfo>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(field(sum))>;
    if constexpr (std::is_same_v<Value, int64_t> || std::is_same_v<Value, double>) {
      if (field.sum == FieldSum::kAdd) {
        EXPECT_EQ(field(sum), 43) << field.name;
      }
    }
  });
}

TEST(SumOfTest, CombinesReasonsAndStates) {
  ServerInfo first = MakeServer(1), second = MakeServer(2);
  second.tables[0].sample_wait_reason = WaitReason::kLeased;
  second.tables[0].layout = LayoutPolicy::kAny;
  second.tables[0].max_times_sampled = 7;
  second.tables[0].closed = true;
  first.tables[0].structure = "a";
  TableInfo sum = SumOf({first, second}).tables.at(0);
  EXPECT_EQ(sum.sample_wait_reason, WaitReason::kLeased);
  EXPECT_EQ(sum.insert_wait_reason, WaitReason::kNone);
  EXPECT_EQ(sum.layout, LayoutPolicy::kFirst);
  EXPECT_EQ(sum.max_times_sampled, 0);
  EXPECT_FALSE(sum.closed) << "one of them accepts calls";
  EXPECT_EQ(sum.structure, "a");
  second.tables[0].structure = "b";
  first.tables[0].closed = true;
  sum = SumOf({first, second}).tables.at(0);
  EXPECT_TRUE(sum.closed);
  EXPECT_EQ(sum.structure, "") << "they differ";
}

TEST(SumOfTest, CombinesServers) {
  ServerInfo first = MakeServer(5), second = MakeServer(2);
  first.shard = 1;
  second.shard = 2;
  second.tables[0].name = "u";
  ServerInfo sum = SumOf({first, second});
  EXPECT_EQ(sum.tables.size(), 2u);
  EXPECT_EQ(sum.stored_bytes, 7);
  EXPECT_EQ(sum.live_chunks, 7);
  EXPECT_EQ(sum.max_bytes, 7);
  EXPECT_EQ(sum.started_nanos, 2);
  EXPECT_EQ(sum.now_nanos, 5);
  EXPECT_EQ(sum.shard, 0u);
  ServerInfo old = MakeServer(9);
  old.started_nanos = 0;  // unknown
  EXPECT_EQ(SumOf({old, first, old, second, old}).started_nanos, 2);
  EXPECT_EQ(SumOf({old, old}).started_nanos, 0);
  second.max_bytes.reset();
  EXPECT_EQ(SumOf({first, second}).max_bytes, std::nullopt);
  EXPECT_EQ(SumOf({first}).shard, 1u) << "one server is its own sum";
  EXPECT_TRUE(SumOf({}).tables.empty());
}

TEST(SumOfTest, AddsRowTablesOfTheSameName) {
  RowTableInfo rows;
  rows.settings.name = "rollouts";
  rows.settings.max_rows = 10;
  rows.counts.rows = 3;
  rows.counts.expired = 1;
  rows.version = 4;
  rows.consumers = {{.name = "train", .ready = 2}};
  rows.waiting_claims = 1;
  rows.longest_wait_nanos = 50;
  ServerInfo first, second;
  first.row_tables = {rows};
  rows.version = 6;
  rows.longest_wait_nanos = 20;
  rows.claim_reason = "a reason";
  rows.consumers.push_back({.name = "stage", .leased = 5});
  second.row_tables = {rows};
  second.row_tables.push_back({.settings = {.name = "other"}});
  const ServerInfo sum = SumOf({first, second});
  ASSERT_EQ(sum.row_tables.size(), 2u);
  const RowTableInfo& both = sum.row_tables[0];
  EXPECT_EQ(both.settings.max_rows, 10) << "a setting is that of the first server";
  EXPECT_EQ(both.counts.rows, 6);
  EXPECT_EQ(both.counts.expired, 2);
  EXPECT_EQ(both.version, 6);
  EXPECT_EQ(both.waiting_claims, 2);
  EXPECT_EQ(both.longest_wait_nanos, 50);
  EXPECT_EQ(both.claim_reason, "a reason");
  ASSERT_EQ(both.consumers.size(), 2u);
  EXPECT_EQ(both.consumers[0].ready, 4);
  EXPECT_EQ(both.consumers[1].leased, 5);
}

}  // namespace
}  // namespace reverb
