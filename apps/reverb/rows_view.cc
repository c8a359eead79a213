#include "rows_view.h"

#include <algorithm>
#include <chrono>
#include <variant>

#include "items_view.h"
#include "json.h"
#include "text.h"

namespace reverb::program {
namespace {

// Returns the table as it was in an earlier snapshot of the same server; null if there is none.
const RowTableInfo* FindFormer(const RowTableInfo& table, const Snapshot& now, const Snapshot* before) {
  if (before == nullptr || before->info.server_life_id != now.info.server_life_id) return nullptr;
  for (const RowTableInfo& each : before->info.row_tables) {
    if (each.settings.name == table.settings.name && each.counts.created <= table.counts.created)
      return &each;
  }
  return nullptr;
}

std::string ShowSince(int64_t count, int64_t former, double seconds) {
  return ShowRate(static_cast<double>(count - former) / seconds);
}

void AddConsumers(const RowTableInfo& table, const Paint& paint, std::string* page) {
  Columns columns;
  columns.AddColumn("  CONSUMER");
  for (const char* heading : {"READY", "LEASED", "CONSUMED"})
    columns.AddColumn(heading, Columns::Align::kRight);
  for (const RowConsumerInfo& consumer : table.consumers) {
    const bool is_idle = consumer.ready == 0 && consumer.leased == 0;
    if (consumer.name == kResumeConsumer && is_idle) continue;
    columns.AddRow({"  " + ShowName(consumer.name, 40), ShowCount(consumer.ready), ShowCount(consumer.leased),
                    ShowCount(consumer.consumed)});
  }
  *page += columns.ToString(paint);
}

void AddRowTable(const RowTableInfo& table, const Paint& paint, std::string* page) {
  const RowCounts& counts = table.counts;
  *page += "\n" + paint.Bold(ShowName(table.settings.name)) + "\n";
  *page += "  table    " + ShowRowSettings(table.settings) + "\n";
  std::string rows = "rows     " + ShowCount(counts.rows) + ": " + ShowCount(counts.open) + " open, ";
  rows += counts.stale > 0 ? paint.Yellow(ShowCount(counts.stale) + " stale") : "0 stale";
  if (table.settings.group_size > 0) {
    rows += "; " + ShowCount(counts.groups, "group") + ", " + ShowCount(counts.complete_groups) + " complete";
  }
  if (counts.running > 0) rows += "; " + ShowCount(counts.running) + " reserved";
  *page += "  " + rows + "\n";
  *page += "  dropped  " + ShowCount(counts.consumed) + " consumed, " + ShowCount(counts.dropped_stale) +
           " stale, " + ShowCount(counts.deleted) + " deleted; " + ShowCount(counts.refused) +
           " writes aborted\n";
  *page += "  leases   " + ShowCount(counts.leases) + " now; " + ShowCount(counts.claimed, "row") +
           " claimed, " + ShowCount(counts.acknowledged) + " acknowledged, " + ShowCount(counts.released) +
           " released, " + ShowCount(counts.expired) + " expired\n";
  if (table.state_bytes > 0) *page += "  state    " + ShowBytes(table.state_bytes) + " of the caller\n";
  const auto waiting = [&](int64_t count, const char* what, const std::string& reason) {
    if (count == 0) return;
    *page += "  " +
             paint.Yellow("waiting  " + ShowCount(count, what) + (count == 1 ? " waits: " : " wait: ") +
                          ShowName(reason, 400)) +
             "\n";
  };
  waiting(table.waiting_writes, "write", table.write_reason);
  waiting(table.waiting_claims, "claim", table.claim_reason);
  waiting(table.waiting_reservations, "reservation", table.reservation_reason);
  if (table.longest_wait_nanos > 0) {
    *page += "           the longest for " +
             ShowDuration(std::chrono::nanoseconds(table.longest_wait_nanos)) + "\n";
  }
  AddConsumers(table, paint, page);
}

std::string ShowTag(const RowTag& tag) {
  const std::string name = ShowName(tag.name, 60) + " = ";
  if (const auto* flag = std::get_if<bool>(&tag.value)) return name + (*flag ? "true" : "false");
  if (const auto* integer = std::get_if<int64_t>(&tag.value)) return name + std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&tag.value)) return name + ShowNumber(*real);
  return name + "\"" + ShowName(std::get<std::string>(tag.value), 80) + "\"";
}

// Returns the words for the state of a row: "open", "requeued", "stale".
std::vector<std::string> StatesOf(const RowInfo& row) {
  std::vector<std::string> states;
  if (row.is_open) states.emplace_back("open");
  if (row.is_requeued) states.emplace_back("requeued");
  if (row.is_stale) states.emplace_back("stale");
  return states;
}

std::string ShowNames(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(ShowName(name, 40));
  return Join(shown, ", ");
}

}  // namespace

std::string ShowRowSettings(const RowTableOptions& settings) {
  std::string text = settings.group_size > 0 ? "groups of " + std::to_string(settings.group_size) + ", " : "";
  text += "order " + std::string(RowOrderName(settings.order));
  if (settings.staleness) {
    text += ", max lag " + ShowCount(settings.staleness->max_lag) + " (" +
            std::string(WhenStaleName(settings.staleness->when_stale)) + ")";
    if (settings.staleness->batch > 0)
      text += ", " + ShowCount(settings.staleness->batch) + " rows per version";
  }
  if (settings.max_running > 0) text += ", at most " + ShowCount(settings.max_running) + " reserved";
  if (!settings.drop_consumed) text += ", keeps consumed rows";
  return text;
}

std::string RowTablesPage(const Snapshot& now, const Snapshot* before, const Paint& paint) {
  if (now.info.row_tables.empty()) return "";
  Columns columns;
  columns.AddColumn("ROW TABLE");
  for (const char* heading :
       {"ROWS", "MAX", "BYTES", "VERSION", "CREATED", "/s", "ACKNOWLEDGED", "/s", "WAITING"}) {
    columns.AddColumn(heading, Columns::Align::kRight);
  }
  for (const RowTableInfo& table : now.info.row_tables) {
    const RowCounts& counts = table.counts;
    std::vector<std::string> waiting;
    if (table.waiting_writes > 0) waiting.push_back(ShowCount(table.waiting_writes, "write"));
    if (table.waiting_claims > 0) waiting.push_back(ShowCount(table.waiting_claims, "claim"));
    if (table.waiting_reservations > 0)
      waiting.push_back(ShowCount(table.waiting_reservations, "reservation"));
    std::string created = "-";
    std::string acknowledged = "-";
    if (const RowTableInfo* former = FindFormer(table, now, before)) {
      const double seconds = std::chrono::duration<double>(now.when - before->when).count();
      created = ShowSince(counts.created, former->counts.created, seconds);
      acknowledged = ShowSince(counts.acknowledged, former->counts.acknowledged, seconds);
    }
    columns.AddRow({ShowName(table.settings.name, 40), ShowCount(counts.rows),
                    ShowCount(table.settings.max_rows), ShowBytes(counts.bytes),
                    std::to_string(table.version), ShowCount(counts.created), created,
                    ShowCount(counts.acknowledged), acknowledged,
                    waiting.empty() ? "-" : paint.Yellow(Join(waiting, ", "))});
  }
  std::string page = "\n" + columns.ToString(paint);
  for (const RowTableInfo& table : now.info.row_tables) AddRowTable(table, paint, &page);
  return page;
}

Result<std::string> RowsView::ToText(const RowInfo& row, const RowBatch& batch, const Paint& paint) const {
  std::string text = "key " + paint.Bold(ShowName(row.key, 256));
  if (!row.group.empty()) text += "  group " + ShowName(row.group, 256);
  text += "  version " + std::to_string(row.version);
  if (const std::vector<std::string> states = StatesOf(row); !states.empty())
    text += "  " + Join(states, ", ");
  if (!row.leased_by.empty()) text += "  leased by " + ShowNames(row.leased_by);
  if (!row.consumed_by.empty()) text += "  consumed by " + ShowNames(row.consumed_by);
  text += "\n";
  if (!row.tags.empty()) {
    std::vector<std::string> tags;
    for (const RowTag& tag : row.tags) tags.push_back(ShowTag(tag));
    text += "  " + paint.Dim("tags") + "  " + Join(tags, ", ") + "\n";
  }
  if (batch.rows().empty()) return text;
  size_t width = 0;
  for (const std::string& column : row.columns) width = std::max(width, DisplayWidth(ShowName(column)));
  for (const std::string& column : row.columns) {
    REVERB_ASSIGN_OR_RETURN(const auto value, internal::ValueOfRow(batch, column));
    const auto& [tensor, dims] = value;
    std::string name = ShowName(column);
    name.resize(name.size() + width - std::min(width, DisplayWidth(name)), ' ');
    text += "  " + name + "  " + ShowColumn(tensor, dims, static_cast<size_t>(values), paint) + "\n";
  }
  return text;
}

Result<std::string> RowsView::ToJson(const RowInfo& row, const RowBatch& batch) const {
  JsonWriter json;
  REVERB_RETURN_IF_ERROR(internal::AddRowJson(table, {.values = values}, row, batch, &json));
  return json.text();
}

}  // namespace reverb::program
