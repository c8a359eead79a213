// The sum of the information of several servers.
#include "reverb/server_info.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "reverb/server_info_fields.h"

namespace reverb {
namespace {

template <typename Value>
void AddNumber(FieldSum how, Value more, Value* sum) {
  switch (how) {
    case FieldSum::kAdd:
      if constexpr (!std::is_enum_v<Value> && !std::is_same_v<Value, bool>) *sum += more;
      return;
    case FieldSum::kFirst:
      return;
    case FieldSum::kFirstSet:
      if (*sum == Value{}) *sum = more;
      return;
    case FieldSum::kLeast:
      *sum = std::min(*sum, more);
      return;
    case FieldSum::kLargest:
      *sum = std::max(*sum, more);
      return;
  }
}

// Combines the numbers of two records as their list of fields says. Leaves other values as they are.
template <HasFields Record>
void AddNumbers(const Record& more, Record* sum) {
  ForEachField<Record>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(field(*sum))>;
    if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>) {
      AddNumber(field.sum, field(more), &field(*sum));
    } else if constexpr (std::is_bounded_array_v<Value>) {
      for (size_t i = 0; i < std::size(field(more)); ++i) AddNumbers(field(more)[i], &field(*sum)[i]);
    }
  });
}

void AddTable(const TableInfo& more, TableInfo* sum) {
  AddNumbers(more, sum);
  // Absent: no writer sent one; empty: they differ.
  if (!sum->structure) sum->structure = more.structure;
  if (more.structure && *more.structure != *sum->structure) sum->structure = std::string();
}

// A row table is on one server. Several servers may have tables of the same name nevertheless.
void AddRowTable(const RowTableInfo& more, RowTableInfo* sum) {
  AddNumbers(more, sum);
  AddNumbers(more.counts, &sum->counts);
  for (const RowConsumerInfo& consumer : more.consumers) {
    const auto same = std::ranges::find(sum->consumers, consumer.name, &RowConsumerInfo::name);
    if (same == sum->consumers.end()) {
      sum->consumers.push_back(consumer);
    } else {
      AddNumbers(consumer, &*same);
    }
  }
  for (auto reason :
       {&RowTableInfo::write_reason, &RowTableInfo::claim_reason, &RowTableInfo::reservation_reason}) {
    if ((sum->*reason).empty()) sum->*reason = more.*reason;
  }
}

}  // namespace

ServerInfo SumOf(const std::vector<ServerInfo>& servers) {
  if (servers.empty()) return {};
  ServerInfo sum = servers.front();
  for (size_t i = 1; i < servers.size(); ++i) {
    const ServerInfo& more = servers[i];
    const int64_t started_nanos = sum.started_nanos == 0 ? more.started_nanos : sum.started_nanos;
    AddNumbers(more, &sum);
    if (more.started_nanos == 0 || sum.started_nanos == 0) sum.started_nanos = started_nanos;  // 0 = unknown
    // Unbounded if one of them is.
    sum.max_bytes =
        sum.max_bytes && more.max_bytes ? std::optional(*sum.max_bytes + *more.max_bytes) : std::nullopt;
    sum.memory.limit = sum.memory.limit && more.memory.limit
                           ? std::optional(*sum.memory.limit + *more.memory.limit)
                           : std::nullopt;
    const std::optional<int64_t> limit = sum.memory.limit;
    AddNumbers(more.memory, &sum.memory);
    sum.memory.limit = limit;
    const auto add = [&](auto member) {
      if (more.*member) sum.*member = (sum.*member).value_or(0) + *(more.*member);
    };
    add(&ServerInfo::storage_memory_limit);
    add(&ServerInfo::storage_disk_limit);
    if (sum.storage_error.empty()) sum.storage_error = more.storage_error;
    sum.waiters.insert(sum.waiters.end(), more.waiters.begin(), more.waiters.end());
    for (const TableInfo& table : more.tables) {
      const auto same = std::ranges::find(sum.tables, table.name, &TableInfo::name);
      if (same == sum.tables.end()) {
        sum.tables.push_back(table);
      } else {
        AddTable(table, &*same);
      }
    }
    for (const RowTableInfo& table : more.row_tables) {
      const auto same = std::ranges::find_if(sum.row_tables, [&](const RowTableInfo& each) {
        return each.settings.name == table.settings.name;
      });
      if (same == sum.row_tables.end()) {
        sum.row_tables.push_back(table);
      } else {
        AddRowTable(table, &*same);
      }
    }
  }
  if (servers.size() > 1) {
    std::ranges::stable_sort(sum.waiters, std::greater<>(), &WaiterInfo::waited_nanos);
    sum.server_life_id = {};
    sum.shard = 0;
    sum.local_path.clear();
    sum.boot_id.clear();
    sum.user_id.reset();
  }
  return sum;
}

}  // namespace reverb
