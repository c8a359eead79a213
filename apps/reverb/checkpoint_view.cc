#include "checkpoint_view.h"

#include <chrono>
#include <ctime>
#include <string_view>

#include "info_view.h"
#include "json.h"
#include "rows_view.h"
#include "specs.h"
#include "text.h"
#include "view/info_json.h"

namespace reverb::program {
namespace {

std::string ShowAge(int64_t nanos_since_epoch) {
  const auto age =
      std::chrono::system_clock::now().time_since_epoch() - std::chrono::nanoseconds(nanos_since_epoch);
  return age.count() < 0 ? "by a clock that is ahead of this machine's" : ShowDuration(age) + " ago";
}

std::string ShowUnsigned(uint64_t bytes) { return ShowBytes(static_cast<int64_t>(bytes)); }

}  // namespace

std::string ShowTime(int64_t nanos_since_epoch) {
  const std::time_t seconds =
      nanos_since_epoch / 1'000'000'000 - (nanos_since_epoch % 1'000'000'000 < 0 ? 1 : 0);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "an unknown time";
  return Format("%04d-%02d-%02d %02d:%02d:%02d UTC", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string CheckpointPage(const CheckpointInfo& info, const std::vector<CheckpointEntry>& siblings,
                           const Paint& paint) {
  std::string page = paint.Bold(ShowName(info.path, 1000)) + "\n";
  page += "format " + ShowName(info.format) + ", written " + ShowTime(info.created_nanos) + ", " +
          ShowAge(info.created_nanos) + "\n";
  page += ShowUnsigned(info.payload_bytes) + " of data in " + ShowCount(info.num_chunks, "chunk") +
          "; files " + ShowUnsigned(info.file_bytes);
  page += "\n";
  if (info.num_writers > 0) page += ShowCount(info.num_writers, "writer") + " can resume\n";
  page += "\n";

  Columns columns;
  columns.AddColumn("TABLE");
  for (const char* heading : {"SIZE", "MAX", "INSERTS", "SAMPLES"}) {
    columns.AddColumn(heading, Columns::Align::kRight);
  }
  for (const char* heading : {"SAMPLER", "REMOVER", "LIMITER"}) columns.AddColumn(heading);
  for (const TableInfo& table : info.tables) {
    columns.AddRow({ShowName(table.name, 40), ShowCount(table.current_size), ShowCount(table.max_size),
                    ShowCount(table.counters.inserts), ShowCount(table.counters.samples),
                    ShowSelector(table.sampler), ShowSelector(table.remover),
                    ShowLimiter(table.rate_limiter)});
  }
  page += columns.ToString(paint);
  for (const TableInfo& table : info.tables) {
    const std::string items = ShowItems(table);
    if (items.empty() && table.max_times_sampled <= 0 && table.max_age_nanos <= 0 && table.max_bytes <= 0)
      continue;
    page += "\n" + paint.Bold(ShowName(table.name)) + "\n";
    if (table.max_times_sampled > 0) {
      page += "  picks    removed after " + ShowCount(table.max_times_sampled, "sample") + "\n";
    }
    if (table.max_age_nanos > 0) {
      page +=
          "  picks    removed after " + ShowDuration(std::chrono::nanoseconds(table.max_age_nanos)) + "\n";
    }
    if (table.max_bytes > 0) page += "  picks    at most " + ShowBytes(table.max_bytes) + "\n";
    if (!items.empty()) page += "  items    " + items + "\n";
  }
  if (!info.row_tables.empty()) {
    Columns rows;
    rows.AddColumn("ROW TABLE");
    for (const char* heading : {"ROWS", "MAX", "VERSION", "CREATED", "CONSUMED", "STATE"}) {
      rows.AddColumn(heading, Columns::Align::kRight);
    }
    rows.AddColumn("SETTINGS");
    for (const RowTableInfo& table : info.row_tables) {
      rows.AddRow({ShowName(table.settings.name, 40), ShowCount(table.counts.rows),
                   ShowCount(table.settings.max_rows), std::to_string(table.version),
                   ShowCount(table.counts.created), ShowCount(table.counts.consumed),
                   table.state_bytes > 0 ? ShowBytes(table.state_bytes) : "-",
                   ShowRowSettings(table.settings)});
    }
    page += "\n" + rows.ToString(paint);
  }
  if (siblings.size() > 1) {
    page += "\nIn the same folder:\n";
    for (const CheckpointEntry& entry : siblings) {
      if (entry.path == info.path) continue;
      page += "  " + ShowName(entry.path, 1000) + (entry.is_foreign ? ", dm-reverb" : "") +
              (entry.is_complete ? "" : paint.Yellow(", not complete")) + "\n";
    }
  }
  return page;
}

std::string CheckpointJson(const CheckpointInfo& info, const std::vector<CheckpointEntry>& siblings) {
  JsonWriter json;
  json.BeginObject()
      .Field("path", info.path)
      .Field("format", info.format)
      .Field("created", ShowTime(info.created_nanos))
      .Field("created_nanos", info.created_nanos)
      .Field("chunks", info.num_chunks)
      .Field("payload_bytes", info.payload_bytes)
      .Field("file_bytes", info.file_bytes)
      .Field("writers", info.num_writers);
  json.Key("tables").BeginArray();
  constexpr std::string_view kTableFields[] = {
      "name",      "size",         "max_size",  "sampler", "remover", "max_times_sampled", "max_age_seconds",
      "max_bytes", "rate_limiter", "signature", "layout",  "inserts", "samples",           "deletes"};
  for (const TableInfo& table : info.tables) internal::AddTableJson(table, kTableFields, &json);
  json.End().Key("row_tables").BeginArray();
  for (const RowTableInfo& table : info.row_tables) internal::AddSavedRowTableJson(table, &json);
  json.End().Key("folder").BeginArray();
  for (const CheckpointEntry& entry : siblings) {
    json.BeginObject()
        .Field("path", entry.path)
        .Field("created_nanos", entry.created_nanos)
        .Field("complete", entry.is_complete)
        .Field("dm_reverb", entry.is_foreign)
        .End();
  }
  return json.End().End().text();
}

}  // namespace reverb::program
