#include "info_view.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "reverb/signature.h"
#include "rows_view.h"
#include "specs.h"
#include "text.h"
#include "view/info_json.h"

namespace reverb::program {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::max();

bool IsBounded(const RateLimiterOptions& limiter) {
  return limiter.min_diff > -kUnbounded || limiter.max_diff < kUnbounded;
}

// Returns a bar that shows where the cursor is between its bounds; empty if one of them is missing.
std::string Gauge(const TableInfo& table, const Paint& paint) {
  constexpr int kWidth = 24;
  const RateLimiterOptions& limiter = table.rate_limiter;
  if (limiter.min_diff <= -kUnbounded || limiter.max_diff >= kUnbounded) return "";
  const double range = limiter.max_diff - limiter.min_diff;
  const double place = range > 0 ? (table.cursor - limiter.min_diff) / range : 0.5;
  const int at = static_cast<int>(std::lround(std::clamp(place, 0.0, 1.0) * (kWidth - 1)));
  std::string bar(static_cast<size_t>(kWidth), '-');
  bar[static_cast<size_t>(at)] = '#';
  return " [" + (place <= 0 || place >= 1 ? paint.Yellow(bar) : paint.Green(bar)) + "]";
}

std::string LimiterLine(const TableInfo& table, const Paint& paint) {
  const RateLimiterOptions& limiter = table.rate_limiter;
  std::string text = "limiter  ";
  const bool has_enough = table.current_size >= limiter.min_size_to_sample;
  text += has_enough ? "min size " + ShowCount(limiter.min_size_to_sample) + " reached"
                     : paint.Yellow("size " + ShowCount(table.current_size) + " below min size " +
                                    ShowCount(limiter.min_size_to_sample));
  if (!IsBounded(limiter)) return text;
  text += "; samples per insert " + ShowNumber(limiter.samples_per_insert) + ": cursor " +
          ShowNumber(table.cursor) + " between " + ShowNumber(limiter.min_diff) + " and " +
          ShowNumber(limiter.max_diff) + Gauge(table, paint);
  return text;
}

std::string WaitLine(const TableInfo& table, bool is_insert) {
  const int64_t count = is_insert ? table.waiting_inserts : table.waiting_samples;
  const WaitReason reason = is_insert ? table.insert_wait_reason : table.sample_wait_reason;
  std::string why(WaitReasonName(reason));
  if (reason == WaitReason::kMinSize) {
    why += " (" + ShowCount(table.current_size) + " of " + ShowCount(table.rate_limiter.min_size_to_sample) +
           ")";
  } else if (reason == WaitReason::kTooManySamples) {
    why +=
        " (cursor " + ShowNumber(table.cursor) + ", least " + ShowNumber(table.rate_limiter.min_diff) + ")";
  } else if (reason == WaitReason::kLeased) {
    why += " (" + ShowCount(table.leases.leased) + " of " + ShowCount(table.current_size) + ")";
  } else if (reason == WaitReason::kTooManyInserts) {
    why += " (cursor " + ShowNumber(table.cursor) + ", most " + ShowNumber(table.rate_limiter.max_diff) + ")";
  }
  return ShowCount(count, is_insert ? "insert" : "sample") + (count == 1 ? " waits: " : " wait: ") + why;
}

std::string ShowWho(const WaiterInfo& waiter) {
  const std::string name = ShowName(waiter.client_name, 60);
  const std::string address = waiter.address.empty() ? "this server's process" : ShowName(waiter.address, 60);
  return name.empty() ? address : name + " at " + address;
}

void AddTable(const TableInfo& table, const std::vector<WaiterInfo>& waiters, const Paint& paint,
              std::string* page) {
  *page += "\n" + paint.Bold(ShowName(table.name)) + (table.closed ? paint.Red("  closed") : "") + "\n";
  *page += "  " + LimiterLine(table, paint) + "\n";
  std::string picks =
      "picks    sampler " + ShowSelector(table.sampler) + ", remover " + ShowSelector(table.remover);
  if (table.max_times_sampled > 0) picks += ", removed after " + ShowCount(table.max_times_sampled, "sample");
  if (table.max_age_nanos > 0)
    picks += ", removed after " + ShowDuration(std::chrono::nanoseconds(table.max_age_nanos));
  if (table.max_bytes > 0) picks += ", at most " + ShowBytes(table.max_bytes);
  *page += "  " + picks + "\n";
  if (table.leases.granted > 0) {
    *page += "  leases   " + ShowCount(table.leases.leased, "item") + " leased; " +
             ShowCount(table.leases.granted) + " granted, " + ShowCount(table.leases.acknowledged) +
             " acknowledged, " + ShowCount(table.leases.expired) + " expired\n";
  }
  if (const std::string items = ShowItems(table); !items.empty()) *page += "  items    " + items + "\n";
  for (const bool is_insert : {true, false}) {
    if ((is_insert ? table.waiting_inserts : table.waiting_samples) == 0) continue;
    *page += "  " + paint.Yellow("waiting  " + WaitLine(table, is_insert)) + "\n";
    size_t shown = 0;
    for (const WaiterInfo& waiter : waiters) {
      if (waiter.table != table.name || waiter.is_insert != is_insert) continue;
      constexpr size_t kMaxShown = 8;
      if (++shown > kMaxShown) {
        *page += "           and others\n";
        break;
      }
      *page += "           " + ShowWho(waiter) + ", " +
               ShowCount(waiter.count, is_insert ? "item" : "sample") + ", for " +
               ShowDuration(std::chrono::nanoseconds(waiter.waited_nanos)) + "\n";
    }
  }
}

// Describes a nest without dtypes: "{action, obs: [0, 1]}" names its columns.
std::string ShowNest(const Signature& nest) {
  using Kind = Signature::Kind;
  if (nest.kind() == Kind::kNone) return "";
  const bool has_keys = !nest.keys().empty();
  std::vector<std::string> parts;
  for (size_t i = 0; i < nest.children().size(); ++i) {
    const std::string child = ShowNest(nest.children()[i]);
    const std::string key = has_keys ? nest.keys()[i] : std::to_string(i);
    parts.push_back(child.empty() ? key : key + ": " + child);
  }
  const bool is_list = nest.kind() == Kind::kList;
  const bool is_dict = nest.kind() == Kind::kDict;
  return std::string(nest.type_name()) +
         (is_dict   ? "{"
          : is_list ? "["
                    : "(") +
         Join(parts, ", ") +
         (is_dict   ? "}"
          : is_list ? "]"
                    : ")");
}

}  // namespace

std::string ShowItems(const TableInfo& table) {
  std::string text = ShowSignature(table);
  if (text.empty() && table.structure && !table.structure->empty()) {
    const Result<Signature> nest = DecodeSignature(*table.structure);
    if (nest.ok()) text = ShowNest(*nest);
  }
  text = ShowName(text, 300);
  if (table.layout == LayoutPolicy::kAny) text += text.empty() ? "any layout" : "; any layout";
  return text;
}

namespace {

// Returns the lives of the servers whose sum is the snapshot's information.
auto LivesOf(const Snapshot& snapshot) {
  std::vector lives{snapshot.info.server_life_id};
  if (snapshot.servers.empty()) return lives;
  lives.clear();
  for (const Client::ServerReport& report : snapshot.servers) {
    if (report.info.ok()) lives.push_back(report.info->server_life_id);
  }
  std::ranges::sort(lives);
  return lives;
}

}  // namespace

Rates RatesOf(const TableInfo& table, const Snapshot& now, const Snapshot* before) {
  if (before != nullptr) {
    const double seconds = std::chrono::duration<double>(now.when - before->when).count();
    const auto former = std::ranges::find(before->info.tables, table.name, &TableInfo::name);
    // Counters restart at 0 after a reset and after a restart of the server. The sum of a set also changes when a
    // server begins or ceases to answer.
    if (seconds > 0 && former != before->info.tables.end() && LivesOf(*before) == LivesOf(now) &&
        former->counters.inserts <= table.counters.inserts &&
        former->counters.samples <= table.counters.samples) {
      return {.inserts = static_cast<double>(table.counters.inserts - former->counters.inserts) / seconds,
              .samples = static_cast<double>(table.counters.samples - former->counters.samples) / seconds};
    }
  }
  return {.inserts = table.inserts_per_second, .samples = table.samples_per_second};
}

namespace {

// Shows one line for each server of a set.
std::string ShowServers(const Snapshot& now, const Paint& paint) {
  Columns columns;
  columns.AddColumn("SERVER");
  for (const char* heading : {"SHARD", "ITEMS", "BYTES"}) columns.AddColumn(heading, Columns::Align::kRight);
  columns.AddColumn("STATE");
  for (const Client::ServerReport& report : now.servers) {
    if (!report.info.ok()) {
      columns.AddRow({ShowName(report.address, 60), "-", "-", "-",
                      paint.Red("does not answer: " + ShowName(report.info.status().message(), 80))});
      continue;
    }
    int64_t items = 0;
    for (const TableInfo& table : report.info->tables) items += table.current_size;
    columns.AddRow({ShowName(report.address, 60), std::to_string(report.info->shard), ShowCount(items),
                    ShowBytes(report.info->stored_bytes),
                    "up " + ShowDuration(std::chrono::nanoseconds(report.info->now_nanos -
                                                                  report.info->started_nanos))});
  }
  return columns.ToString(paint);
}

}  // namespace

namespace {

std::string MemorySummary(const MemoryInfo& memory, const Paint& paint) {
  if (!memory.limit) return "";  // also of servers that do not report it
  const double share = static_cast<double>(memory.used) / static_cast<double>(*memory.limit);
  const std::string used = "memory: " + ShowBytes(memory.used) + " of " + ShowBytes(*memory.limit) +
                           Format(" (%.0f %%)", share * 100);
  std::string text = share > 0.9 ? paint.Yellow(used) : used;
  // Parts that matter; the first is on the line before.
  const std::pair<const char*, int64_t> parts[] = {
      {"index", memory.index},           {"for a checkpoint", memory.parked}, {"waiting", memory.waiting},
      {"in transit", memory.in_transit}, {"receiving", memory.receiving},     {"replies", memory.replies},
      {"sessions", memory.sessions}};
  for (const auto& [name, bytes] : parts) {
    if (bytes >= *memory.limit / 1000) text += ", " + ShowBytes(bytes) + " " + name;
  }
  return text + "\n";
}

}  // namespace

std::string ServerSummary(const std::string& address, const Snapshot& now, const Paint& paint) {
  const ServerInfo& info = now.info;
  const std::string how = now.servers.empty() ? std::string(TransportName(now.transport))
                                              : ShowCount(static_cast<int64_t>(now.servers.size()), "server");
  std::string page = paint.Bold(ShowName(info.server_name)) + " at " + ShowName(address) + " (" + how + ")";
  if (info.started_nanos > 0) {
    page += ", up " + ShowDuration(std::chrono::nanoseconds(info.now_nanos - info.started_nanos));
  }
  page += "\n" + ShowBytes(info.stored_bytes);
  if (info.max_bytes) {
    const double share = *info.max_bytes > 0
                             ? static_cast<double>(info.stored_bytes) / static_cast<double>(*info.max_bytes)
                             : 1;
    const std::string of = " of " + ShowBytes(*info.max_bytes) + Format(" (%.0f %%)", share * 100);
    page += share > 0.9 ? paint.Yellow(of) : of;
  }
  page += " of data in " + ShowCount(info.live_chunks, "chunk");
  if (info.storage_memory_limit) {
    page += "; " + ShowBytes(info.storage_memory_bytes) + " in memory, " +
            ShowBytes(info.storage_disk_bytes) + " on disk";
    if (!info.storage_error.empty()) page += "\n" + paint.Red(ShowName(info.storage_error, 200));
  }
  return page + "\n" + MemorySummary(info.memory, paint);
}

std::string TableDetail(const TableInfo& table, const std::vector<WaiterInfo>& waiters, const Paint& paint) {
  std::string text;
  AddTable(table, waiters, paint, &text);
  return text;
}

std::string InfoPage(const std::string& address, const Snapshot& now, const Snapshot* before,
                     const Paint& paint) {
  const ServerInfo& info = now.info;
  std::string page = ServerSummary(address, now, paint) + "\n";
  if (!now.servers.empty()) page += ShowServers(now, paint) + "\n";

  Columns columns;
  columns.AddColumn("TABLE");
  for (const char* heading : {"SIZE", "MAX", "BYTES", "INSERTS", "/s", "SAMPLES", "/s", "WAITING"}) {
    columns.AddColumn(heading, Columns::Align::kRight);
  }
  for (const TableInfo& table : info.tables) {
    const Rates rates = RatesOf(table, now, before);
    std::string waiting;
    if (table.waiting_inserts > 0) waiting = ShowCount(table.waiting_inserts, "insert");
    if (table.waiting_samples > 0) {
      waiting += (waiting.empty() ? "" : ", ") + ShowCount(table.waiting_samples, "sample");
    }
    columns.AddRow({ShowName(table.name, 40), ShowCount(table.current_size), ShowCount(table.max_size),
                    ShowBytes(table.referenced_bytes), ShowCount(table.counters.inserts),
                    ShowRate(rates.inserts), ShowCount(table.counters.samples), ShowRate(rates.samples),
                    waiting.empty() ? "-" : paint.Yellow(waiting)});
  }
  page += columns.ToString(paint);
  if (info.tables.empty()) page += info.row_tables.empty() ? "no tables\n" : "no tables of items\n";
  for (const TableInfo& table : info.tables) AddTable(table, info.waiters, paint, &page);
  return page + RowTablesPage(now, before, paint);
}

// --- JSON ---

std::string InfoJson(const std::string& address, const Snapshot& now, const Snapshot* before) {
  ServerInfo info = now.info;
  for (TableInfo& table : info.tables) {
    const Rates rates = RatesOf(table, now, before);
    table.inserts_per_second = rates.inserts;
    table.samples_per_second = rates.samples;
  }
  internal::JsonWriter json;
  json.BeginObject();
  internal::AddInfoHead(
      address, now.servers.empty() ? std::optional(std::string(TransportName(now.transport))) : std::nullopt,
      info, &json);
  internal::AddInfoFields(info, &json);
  if (!now.servers.empty()) {
    json.Key("servers").BeginArray();
    for (const Client::ServerReport& report : now.servers) {
      json.BeginObject().Field("address", report.address);
      if (report.info.ok()) {
        internal::AddInfoFields(*report.info, &json);
      } else {
        json.Field("error", std::string(report.info.status().message()));
      }
      json.End();
    }
    json.End();
  }
  return json.End().text();
}

}  // namespace reverb::program
