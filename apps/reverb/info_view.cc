#include "info_view.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <ranges>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reverb/server_info_fields.h"
#include "reverb/signature.h"
#include "rows_view.h"
#include "specs.h"
#include "text.h"

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

std::string ShowSignature(const TableInfo& table) {
  if (table.signature.empty()) return "";
  const Result<Signature> signature = DecodeSignature(table.signature);
  return signature.ok() ? signature->ToString() : "unreadable";
}

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
  return page + "\n";
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

namespace {

// Returns the name of a reason in the JSON.
const char* ReasonWord(WaitReason reason) {
  switch (reason) {
    case WaitReason::kNone:
      return "none";
    case WaitReason::kMinSize:
      return "min_size";
    case WaitReason::kTooManySamples:
      return "too_many_samples";
    case WaitReason::kTooManyInserts:
      return "too_many_inserts";
    case WaitReason::kMemory:
      return "memory";
    case WaitReason::kQueued:
      return "queued";
    case WaitReason::kLeased:
      return "leased";
  }
  return "unknown";
}

double Seconds(int64_t nanos) { return static_cast<double>(nanos) / 1e9; }

// Add the value of a field that the JSON shows in another form. Return false for all other fields.
template <typename Record>
bool AddConverted(const Record& /*record*/, std::string_view /*name*/, JsonWriter* /*json*/) {
  return false;
}
bool AddConverted(const TableInfo& table, std::string_view name, JsonWriter* json) {
  if (name == "signature" && !table.signature.empty()) {
    json->Value(ShowSignature(table));
  } else if (name == "signature" || (name == "max_times_sampled" && table.max_times_sampled <= 0) ||
             (name == "max_age_nanos" && table.max_age_nanos <= 0) ||
             (name == "insert_wait_reason" && table.waiting_inserts == 0) ||
             (name == "sample_wait_reason" && table.waiting_samples == 0)) {
    json->Null();
  } else {
    return false;
  }
  return true;
}
bool AddConverted(const WaiterInfo& waiter, std::string_view name, JsonWriter* json) {
  if (name != "is_insert") return false;
  json->Value(waiter.is_insert ? "insert" : "sample");
  return true;
}

bool AddConverted(const RowTableInfo& table, std::string_view name, JsonWriter* json) {
  if (!(name == "write_reason" && table.waiting_writes == 0) &&
      !(name == "claim_reason" && table.waiting_claims == 0) &&
      !(name == "reservation_reason" && table.waiting_reservations == 0)) {
    return false;
  }
  json->Null();
  return true;
}

template <HasFields Record>
void AddFields(const Record& record, JsonWriter* json);

template <typename T>
void AddValue(FieldKind kind, const T& value, JsonWriter* json) {
  if constexpr (requires { value.has_value(); }) {
    value ? AddValue(kind, *value, json) : static_cast<void>(json->Null());
  } else if constexpr (std::is_same_v<T, SelectorOptions>) {
    json->Value(ShowSelector(value));
  } else if constexpr (std::is_same_v<T, WaitReason>) {
    json->Value(ReasonWord(value));
  } else if constexpr (std::is_same_v<T, LayoutPolicy>) {
    json->Value(LayoutPolicyName(value));
  } else if constexpr (std::is_same_v<T, RowOrder>) {
    json->Value(RowOrderName(value));
  } else if constexpr (std::is_same_v<T, WhenStale>) {
    json->Value(WhenStaleName(value));
  } else if constexpr (std::is_enum_v<T>) {
    json->Value(static_cast<int64_t>(value));
  } else if constexpr (HasFields<T>) {
    json->BeginObject();
    AddFields(value, json);
    json->End();
  } else if constexpr (std::is_convertible_v<T, std::string_view>) {
    json->Value(std::string_view(value));
  } else if constexpr (std::ranges::range<T>) {
    json->BeginArray();
    for (const auto& each : value) AddValue(kind, each, json);
    json->End();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    kind == FieldKind::kNanos ? json->Value(Seconds(value)) : json->Value(value);
  } else {
    json->Value(value);
  }
}

template <typename Record, typename F>
void AddField(const Record& record, const F& field, JsonWriter* json) {
  if constexpr (HasFields<std::remove_cvref_t<decltype(field(record))>>) {
    if (field.is_flat) return AddFields(field(record), json);
  }
  json->Key(field.json_name);
  if (!AddConverted(record, field.name, json)) AddValue(field.kind, field(record), json);
}

template <HasFields Record>
void AddFields(const Record& record, JsonWriter* json) {
  ForEachField<Record>([&](const auto& field) {
    if (!field.json_name.empty()) AddField(record, field, json);
  });
}

}  // namespace

void AddTableJson(const TableInfo& table, std::span<const std::string_view> names, JsonWriter* json) {
  json->BeginObject();
  ForEachField<TableInfo>([&](const auto& field) {
    if (!field.json_name.empty() && std::ranges::find(names, field.json_name) != names.end()) {
      AddField(table, field, json);
    }
  });
  json->End();
}

void AddSavedRowTableJson(const RowTableInfo& table, JsonWriter* json) {
  json->BeginObject()
      .Field("name", table.settings.name)
      .Field("version", table.version)
      .Field("rows", table.counts.rows)
      .Field("groups", table.counts.groups)
      .Field("created", table.counts.created)
      .Field("consumed", table.counts.consumed)
      .Field("acknowledged", table.counts.acknowledged)
      .Field("state_bytes", table.state_bytes);
  json->Key("settings");
  AddValue(FieldKind::kPlain, table.settings, json);
  json->End();
}

std::string InfoJson(const std::string& address, const Snapshot& now, const Snapshot* before) {
  ServerInfo info = now.info;
  for (TableInfo& table : info.tables) {
    const Rates rates = RatesOf(table, now, before);
    table.inserts_per_second = rates.inserts;
    table.samples_per_second = rates.samples;
  }
  JsonWriter json;
  json.BeginObject()
      .Field("address", address)
      .Field("transport",
             now.servers.empty() ? std::optional(std::string(TransportName(now.transport))) : std::nullopt)
      .Field("server", info.server_name)
      .Field("uptime_seconds", info.started_nanos > 0
                                   ? std::optional(Seconds(info.now_nanos - info.started_nanos))
                                   : std::nullopt);
  AddFields(info, &json);
  if (!now.servers.empty()) {
    json.Key("servers").BeginArray();
    for (const Client::ServerReport& report : now.servers) {
      json.BeginObject().Field("address", report.address);
      if (report.info.ok()) {
        AddFields(*report.info, &json);
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
