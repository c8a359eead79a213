// The sum of the information of several servers.
#include "reverb/server_info.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace reverb {
namespace {

void AddTable(const TableInfo& more, TableInfo* sum) {
  sum->max_size += more.max_size;
  sum->current_size += more.current_size;
  sum->num_episodes += more.num_episodes;
  sum->num_deleted_episodes += more.num_deleted_episodes;
  sum->num_unique_samples += more.num_unique_samples;
  sum->evictions += more.evictions;
  sum->expirations += more.expirations;
  sum->aged_out += more.aged_out;
  sum->explicit_deletes += more.explicit_deletes;
  sum->updates += more.updates;
  sum->unknown_keys += more.unknown_keys;
  sum->counters.inserts += more.counters.inserts;
  sum->counters.samples += more.counters.samples;
  sum->counters.deletes += more.counters.deletes;
  sum->counters.uncounted_inserts += more.counters.uncounted_inserts;
  sum->cursor += more.cursor;
  sum->referenced_bytes += more.referenced_bytes;
  sum->inserts_per_second += more.inserts_per_second;
  sum->samples_per_second += more.samples_per_second;
  sum->waiting_inserts += more.waiting_inserts;
  sum->waiting_samples += more.waiting_samples;
  if (sum->insert_wait_reason == WaitReason::kNone) sum->insert_wait_reason = more.insert_wait_reason;
  if (sum->sample_wait_reason == WaitReason::kNone) sum->sample_wait_reason = more.sample_wait_reason;
  sum->longest_wait_nanos = std::max(sum->longest_wait_nanos, more.longest_wait_nanos);
  for (size_t i = 0; i < std::size(sum->waits); ++i) {
    sum->waits[i].count += more.waits[i].count;
    sum->waits[i].total_nanos += more.waits[i].total_nanos;
  }
  sum->work_time.inserting_nanos += more.work_time.inserting_nanos;
  sum->work_time.sampling_nanos += more.work_time.sampling_nanos;
  sum->work_time.waiting_for_inserts_nanos += more.work_time.waiting_for_inserts_nanos;
  sum->work_time.waiting_for_sampling_nanos += more.work_time.waiting_for_sampling_nanos;
  sum->work_time.idle_nanos += more.work_time.idle_nanos;
  sum->closed &= more.closed;
  // Absent: no writer sent one; empty: they differ.
  if (!sum->structure) sum->structure = more.structure;
  if (more.structure && *more.structure != *sum->structure) sum->structure = std::string();
}

}  // namespace

ServerInfo SumOf(const std::vector<ServerInfo>& servers) {
  if (servers.empty()) return {};
  ServerInfo sum = servers.front();
  for (size_t i = 1; i < servers.size(); ++i) {
    const ServerInfo& more = servers[i];
    sum.live_chunks += more.live_chunks;
    sum.live_bytes += more.live_bytes;
    sum.stored_bytes += more.stored_bytes;
    // Unbounded if one of them is.
    sum.max_bytes =
        sum.max_bytes && more.max_bytes ? std::optional(*sum.max_bytes + *more.max_bytes) : std::nullopt;
    sum.started_nanos = std::min(sum.started_nanos, more.started_nanos);
    sum.waiters.insert(sum.waiters.end(), more.waiters.begin(), more.waiters.end());
    for (const TableInfo& table : more.tables) {
      const auto same = std::ranges::find(sum.tables, table.name, &TableInfo::name);
      if (same == sum.tables.end()) {
        sum.tables.push_back(table);
      } else {
        AddTable(table, &*same);
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
