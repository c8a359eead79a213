// The row tables of include/reverb/checkpoint.h.
#include <algorithm>
#include <memory>
#include <utility>

#include "api/checkpoint_rep.h"
#include "api/row_batch_factory.h"
#include "core/rows/row_state.h"

namespace reverb {

using internal::ReverbSource;
using internal::RowCursor;
using internal::RowRecord;
using internal::SavedRow;
using internal::SavedRowPart;
using internal::SavedRowTable;

struct CheckpointRows::Rep {
  std::shared_ptr<internal::CheckpointSource> source;  // the cursor needs it
  size_t index = 0;
  std::unique_ptr<RowCursor> cursor;

  const SavedRowTable& table() const { return source->server().row_tables[index]; }
};

CheckpointRows::CheckpointRows(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
CheckpointRows::CheckpointRows(CheckpointRows&&) noexcept = default;
CheckpointRows& CheckpointRows::operator=(CheckpointRows&&) noexcept = default;
CheckpointRows::~CheckpointRows() = default;

namespace {

bool HasColumn(const SavedRowTable& table, const SavedRowPart& part, uint16_t column) {
  const std::vector<uint16_t>& layout = table.layouts[part.layout];
  return std::ranges::find(layout, column) != layout.end();
}

// Adds the segments of a column: those since the last part that replaces it.
uint32_t AddSegments(const SavedRowTable& table, const SavedRow& row, uint16_t column, RowRecord* record) {
  size_t first = 0;
  for (size_t i = 0; i < row.parts.size(); ++i) {
    if (row.parts[i].replaces && HasColumn(table, row.parts[i], column)) first = i;
  }
  uint32_t count = 0;
  for (size_t i = first; i < row.parts.size(); ++i) {
    const std::vector<uint16_t>& layout = table.layouts[row.parts[i].layout];
    const auto found = std::ranges::find(layout, column);
    if (found == layout.end()) continue;
    record->segments.push_back(
        {.chunk = row.parts[i].chunk, .chunk_column = static_cast<uint32_t>(found - layout.begin())});
    ++count;
  }
  return count;
}

RowRecord ToRecord(const SavedRowTable& table, SavedRow row, std::span<const uint16_t> columns) {
  RowRecord record;
  record.key = std::move(row.key);
  if (row.group && *row.group < table.groups.size()) record.group = table.groups[*row.group].name;
  record.version = row.version;
  record.is_open = row.is_open;
  record.is_requeued = row.is_requeued;
  record.tags = std::move(row.tags);
  if (table.settings.staleness && table.settings.staleness->when_stale != WhenStale::kWait) {
    const int64_t oldest =
        row.group && *row.group < table.groups.size() ? table.groups[*row.group].version : row.version;
    record.is_stale = table.version - oldest > table.settings.staleness->max_lag;
  }
  for (size_t i = 0; i < table.settings.consumers.size(); ++i) {
    if ((row.done >> i & 1) != 0) record.consumed_by.push_back(table.settings.consumers[i]);
  }
  for (const uint16_t column : columns) {
    record.num_segments.push_back(AddSegments(table, row, column, &record));
    if (record.num_segments.back() > 0) record.columns.push_back(table.names[column]);
  }
  return record;
}

}  // namespace

Result<RowBatch> CheckpointRows::Next(int64_t n) {
  if (n < 1) return Status::InvalidArgument("a batch of " + std::to_string(n) + " rows was requested");
  const SavedRowTable& table = rep_->table();
  std::vector<SavedRow> rows;
  std::vector<uint16_t> columns;  // of all rows, in the order in which they come
  while (std::ssize(rows) < n) {
    REVERB_ASSIGN_OR_RETURN(std::optional<SavedRow> row, rep_->cursor->Next());
    if (!row) break;
    for (const SavedRowPart& part : row->parts) {
      for (const uint16_t column : table.layouts[part.layout]) {
        if (column >= table.names.size()) {
          return Status::DataLoss("row \"" + row->key + "\" has a column without a name")
              .WithDetail(Detail::kCorruptData);
        }
        if (std::ranges::find(columns, column) == columns.end()) columns.push_back(column);
      }
    }
    rows.push_back(*std::move(row));
  }
  std::vector<std::string> names;
  for (const uint16_t column : columns) names.push_back(table.names[column]);
  std::vector<RowRecord> records;
  for (SavedRow& row : rows) records.push_back(ToRecord(table, std::move(row), columns));
  return internal::RowBatchFactory::Make(std::move(names), std::move(records), table.version);
}

namespace internal {

RowTableInfo InfoOf(const SavedRowTable& table) {
  RowTableInfo info;
  info.settings = table.settings;
  info.counts = table.counts;
  info.counts.groups = std::ssize(table.groups);
  info.version = table.version;
  for (const std::string& consumer : table.settings.consumers) info.consumers.push_back({.name = consumer});
  info.consumers.push_back({.name = std::string(kResumeConsumer)});
  if (table.user_state != nullptr) info.state_bytes = std::ssize(*table.user_state);
  return info;
}

}  // namespace internal

Result<size_t> CheckpointReader::Rep::FindRowTable(std::string_view table) const {
  const std::vector<SavedRowTable>& tables = source->server().row_tables;
  std::string names;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (tables[i].settings.name == table) return i;
    names += (names.empty() ? "\"" : ", \"") + tables[i].settings.name + "\"";
  }
  return Status::NotFound("checkpoint \"" + info.path + "\" has no row table \"" +
                          std::string(table.substr(0, 200)) + "\"; it has " +
                          (names.empty() ? "none" : names));
}

Status CheckpointReader::Rep::VerifyRows(size_t index, const std::function<void()>& advance) const {
  const SavedRowTable& saved = source->server().row_tables[index];
  REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<internal::RowState> state,
                          internal::RowState::Create(saved.settings));
  const auto located = [&](const Status& status) {
    return status.ok() ? status : status.Prefixed("checkpoint \"" + info.path + "\" is damaged");
  };
  REVERB_RETURN_IF_ERROR(located(state->BeginRestore(saved)));
  const std::unique_ptr<RowCursor> cursor = dynamic_cast<const ReverbSource&>(*source).OpenRows(index);
  while (true) {
    REVERB_ASSIGN_OR_RETURN(std::optional<SavedRow> row, cursor->Next());
    if (!row) break;
    REVERB_RETURN_IF_ERROR(located(state->RestoreRow(*std::move(row))));
    advance();
  }
  internal::RowEffects effects;
  return located(state->FinishRestore(&effects));
}

Result<CheckpointRows> CheckpointReader::Rows(std::string_view table) const {
  auto rows = std::make_unique<CheckpointRows::Rep>();
  REVERB_ASSIGN_OR_RETURN(rows->index, rep_->FindRowTable(table));
  rows->source = rep_->source;
  // Only Reverb's own checkpoints have row tables.
  rows->cursor = dynamic_cast<const ReverbSource&>(*rows->source).OpenRows(rows->index);
  return CheckpointRows(std::move(rows));
}

Result<std::string> CheckpointReader::RowTableState(std::string_view table) const {
  REVERB_ASSIGN_OR_RETURN(const size_t index, rep_->FindRowTable(table));
  const SavedRowTable& saved = rep_->source->server().row_tables[index];
  return saved.user_state == nullptr ? std::string() : *saved.user_state;
}

}  // namespace reverb
