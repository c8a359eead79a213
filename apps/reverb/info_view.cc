#include "info_view.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "reverb/signature.h"
#include "specs.h"
#include "text.h"

namespace reverb::program {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::max();

bool IsBounded(const RateLimiterOptions& limiter) {
  return limiter.min_diff > -kUnbounded || limiter.max_diff < kUnbounded;
}

std::string ShowRate(double rate) {
  if (rate >= 1e6) return Format("%.2f M", rate / 1e6);
  if (rate >= 1e4) return Format("%.1f k", rate / 1e3);
  return Format(rate >= 100 || rate == 0 ? "%.0f" : "%.1f", rate);
}

// How long a table can stay as it is: for how many more samples, or inserts, there is room.
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

std::string Signature(const TableInfo& table) {
  if (table.signature.empty()) return "";
  const Result<reverb::Signature> signature = DecodeSignature(table.signature);
  return signature.ok() ? signature->ToString() : "unreadable";
}

void AddTable(const TableInfo& table, const std::vector<WaiterInfo>& waiters, const Paint& paint,
              std::string* page) {
  *page += "\n" + paint.Bold(ShowName(table.name)) + (table.closed ? paint.Red("  closed") : "") + "\n";
  *page += "  " + LimiterLine(table, paint) + "\n";
  std::string picks =
      "picks    sampler " + ShowSelector(table.sampler) + ", remover " + ShowSelector(table.remover);
  if (table.max_times_sampled > 0) picks += ", gone after " + ShowCount(table.max_times_sampled, "sample");
  *page += "  " + picks + "\n";
  if (const std::string signature = Signature(table); !signature.empty()) {
    *page += "  items    " + ShowName(signature, 300) + "\n";
  }
  for (const bool is_insert : {true, false}) {
    if ((is_insert ? table.waiting_inserts : table.waiting_samples) == 0) continue;
    *page += "  " + paint.Yellow("waiting  " + WaitLine(table, is_insert)) + "\n";
    size_t shown = 0;
    for (const WaiterInfo& waiter : waiters) {
      if (waiter.table != table.name || waiter.is_insert != is_insert) continue;
      constexpr size_t kMost = 8;
      if (++shown > kMost) {
        *page += "           and others\n";
        break;
      }
      *page += "           " + ShowWho(waiter) + ", " +
               ShowCount(waiter.count, is_insert ? "item" : "sample") + ", for " +
               ShowDuration(std::chrono::nanoseconds(waiter.waited_nanos)) + "\n";
    }
  }
}

}  // namespace

Rates RatesOf(const TableInfo& table, const Snapshot& now, const Snapshot* before) {
  if (before != nullptr) {
    const double seconds = std::chrono::duration<double>(now.when - before->when).count();
    const auto former = std::ranges::find(before->info.tables, table.name, &TableInfo::name);
    // Counters begin anew with a reset, and with another life of the server.
    if (seconds > 0 && former != before->info.tables.end() &&
        before->info.server_life_id == now.info.server_life_id &&
        former->counters.inserts <= table.counters.inserts &&
        former->counters.samples <= table.counters.samples) {
      return {.inserts = static_cast<double>(table.counters.inserts - former->counters.inserts) / seconds,
              .samples = static_cast<double>(table.counters.samples - former->counters.samples) / seconds};
    }
  }
  return {.inserts = table.inserts_per_second, .samples = table.samples_per_second};
}

std::string InfoPage(const std::string& address, const Snapshot& now, const Snapshot* before,
                     const Paint& paint) {
  const ServerInfo& info = now.info;
  std::string page = paint.Bold(ShowName(info.server_name)) + " at " + ShowName(address);
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
  page += " of data in " + ShowCount(info.live_chunks, "chunk") + "\n\n";

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
  if (info.tables.empty()) page += "no tables\n";
  for (const TableInfo& table : info.tables) AddTable(table, info.waiters, paint, &page);
  return page;
}

// --- JSON ---

namespace {

void AddLimiter(const RateLimiterOptions& limiter, JsonWriter* json) {
  json->Key("rate_limiter")
      .BeginObject()
      .Field("samples_per_insert", limiter.samples_per_insert)
      .Field("min_size_to_sample", limiter.min_size_to_sample)
      .Field("min_diff", limiter.min_diff)
      .Field("max_diff", limiter.max_diff)
      .End();
}

// A word for programs.
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
  }
  return "unknown";
}

std::optional<const char*> OptionalReason(int64_t waiting, WaitReason reason) {
  if (waiting == 0) return std::nullopt;
  return ReasonWord(reason);
}

double Seconds(int64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

}  // namespace

void AddTableJson(const TableInfo& table, const Rates& rates, JsonWriter* json) {
  json->BeginObject()
      .Field("name", table.name)
      .Field("size", table.current_size)
      .Field("max_size", table.max_size)
      .Field("bytes", table.referenced_bytes)
      .Field("sampler", ShowSelector(table.sampler))
      .Field("remover", ShowSelector(table.remover))
      .Field("max_times_sampled",
             table.max_times_sampled > 0 ? std::optional(table.max_times_sampled) : std::nullopt);
  AddLimiter(table.rate_limiter, json);
  json->Field("cursor", table.cursor);
  const std::string signature = Signature(table);
  json->Field("signature", signature.empty() ? std::nullopt : std::optional(signature))
      .Field("inserts", table.counters.inserts)
      .Field("samples", table.counters.samples)
      .Field("deletes", table.counters.deletes)
      .Field("evictions", table.evictions)
      .Field("expirations", table.expirations)
      .Field("explicit_deletes", table.explicit_deletes)
      .Field("priority_updates", table.updates)
      .Field("unknown_keys", table.unknown_keys)
      .Field("episodes", table.num_episodes)
      .Field("inserts_per_second", rates.inserts)
      .Field("samples_per_second", rates.samples)
      .Field("waiting_inserts", table.waiting_inserts)
      .Field("waiting_samples", table.waiting_samples)
      .Field("insert_wait_reason", OptionalReason(table.waiting_inserts, table.insert_wait_reason))
      .Field("sample_wait_reason", OptionalReason(table.waiting_samples, table.sample_wait_reason))
      .Field("longest_wait_seconds", Seconds(table.longest_wait_nanos))
      .Field("closed", table.closed)
      .End();
}

std::string InfoJson(const std::string& address, const Snapshot& now, const Snapshot* before) {
  const ServerInfo& info = now.info;
  JsonWriter json;
  json.BeginObject()
      .Field("address", address)
      .Field("server", info.server_name)
      .Field("uptime_seconds", info.started_nanos > 0
                                   ? std::optional(Seconds(info.now_nanos - info.started_nanos))
                                   : std::nullopt)
      .Field("stored_bytes", info.stored_bytes)
      .Field("live_bytes", info.live_bytes)
      .Field("max_bytes", info.max_bytes)
      .Field("chunks", info.live_chunks);
  json.Key("tables").BeginArray();
  for (const TableInfo& table : info.tables) AddTableJson(table, RatesOf(table, now, before), &json);
  json.End().Key("waiters").BeginArray();
  for (const WaiterInfo& waiter : info.waiters) {
    json.BeginObject()
        .Field("table", waiter.table)
        .Field("operation", waiter.is_insert ? "insert" : "sample")
        .Field("reason", ReasonWord(waiter.reason))
        .Field("count", waiter.count)
        .Field("seconds", Seconds(waiter.waited_nanos))
        .Field("client", waiter.client_name)
        .Field("address", waiter.address)
        .End();
  }
  return json.End().End().text();
}

}  // namespace reverb::program
