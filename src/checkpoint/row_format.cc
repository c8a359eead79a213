#include "checkpoint/row_format.h"

#include <utility>
#include <variant>

#include "checkpoint/field_reader.h"

namespace reverb::internal {
namespace {

// Flags of a row in a page.
constexpr uint8_t kRowIsOpen = 1;
constexpr uint8_t kRowIsRequeued = 2;
constexpr uint8_t kRowHasGroup = 4;
// Flags of a table.
constexpr uint8_t kTableHasStaleness = 1;
constexpr uint8_t kTableDropsConsumed = 2;
constexpr uint8_t kTableByClient = 4;
constexpr uint8_t kTableHasStarted = 8;
constexpr uint8_t kTableHasState = 16;
// Kinds of tags. Stored: never change the values.
enum class TagKind : uint8_t { kFalse = 0, kTrue = 1, kInteger = 2, kReal = 3, kText = 4 };

// The counters of a table, in the order in which they are stored.
template <typename Counts>
auto LifetimeCounts(Counts& counts) {
  return std::vector{&counts.accepted,      &counts.created,  &counts.updated, &counts.consumed,
                     &counts.dropped_stale, &counts.deleted,  &counts.refused, &counts.claimed,
                     &counts.acknowledged,  &counts.released, &counts.expired};
}

void PutNumbers(std::string* out, const std::vector<uint16_t>& numbers) {
  PutVarint(out, numbers.size());
  for (const uint16_t number : numbers) PutVarint(out, number);
}

std::vector<uint16_t> TakeNumbers(FieldReader& in, bool* fits) {
  std::vector<uint16_t> numbers(in.Count(1));
  for (uint16_t& number : numbers) {
    const uint64_t wide = in.Varint();
    if (wide > UINT16_MAX) *fits = false;
    number = static_cast<uint16_t>(wide);
  }
  return numbers;
}

}  // namespace

void EncodeRowTable(const SavedRowTable& table, std::string* out) {
  const RowTableOptions& settings = table.settings;
  PutString(out, settings.name);
  PutByte(out, static_cast<uint8_t>((settings.staleness ? kTableHasStaleness : 0) |
                                    (settings.drop_consumed ? kTableDropsConsumed : 0) |
                                    (table.created_by_client ? kTableByClient : 0) |
                                    (table.has_started ? kTableHasStarted : 0) |
                                    (table.user_state != nullptr ? kTableHasState : 0)));
  PutByte(out, static_cast<uint8_t>(settings.order));
  PutSigned(out, settings.max_rows);
  PutSigned(out, settings.group_size);
  PutSigned(out, settings.max_running);
  PutVarint(out, settings.consumers.size());
  for (const std::string& consumer : settings.consumers) PutString(out, consumer);
  if (settings.staleness) {
    PutSigned(out, settings.staleness->max_lag);
    PutByte(out, static_cast<uint8_t>(settings.staleness->when_stale));
    PutSigned(out, settings.staleness->batch);
  }
  PutSigned(out, table.counts.rows);
  for (const int64_t* count : LifetimeCounts(table.counts)) PutSigned(out, *count);
  PutSigned(out, table.version);
  PutSigned(out, table.first_version);
  PutVarint(out, table.sequence);
  PutVarint(out, table.operation);
  PutVarint(out, table.free_slots.size());
  for (const uint32_t slot : table.free_slots) PutVarint(out, slot);
  PutVarint(out, table.names.size());
  for (const std::string& name : table.names) PutString(out, name);
  PutVarint(out, table.layouts.size());
  for (const std::vector<uint16_t>& layout : table.layouts) PutNumbers(out, layout);
  PutVarint(out, table.groups.size());
  for (const SavedRowGroup& group : table.groups) {
    PutString(out, group.name);
    PutVarint(out, group.sequence);
    PutSigned(out, group.version);
  }
  PutVarint(out, table.views.size());
  for (const SavedRowView& view : table.views) {
    PutVarint(out, uint64_t{view.consumer} << 1 | (view.whole_groups ? 1 : 0));
    PutNumbers(out, view.needs);
    PutVarint(out, view.ready_since.size());
    for (const auto& [sequence, operation] : view.ready_since) {
      PutVarint(out, sequence);
      PutVarint(out, operation);
    }
  }
  if (table.user_state != nullptr) PutString(out, *table.user_state);
}

Result<SavedRowTable> DecodeRowTable(std::string_view bytes) {
  FieldReader in(bytes);
  SavedRowTable table;
  RowTableOptions& settings = table.settings;
  bool fits = true;
  settings.name = in.String();
  const uint8_t flags = in.Byte();
  settings.drop_consumed = (flags & kTableDropsConsumed) != 0;
  table.created_by_client = (flags & kTableByClient) != 0;
  table.has_started = (flags & kTableHasStarted) != 0;
  const uint8_t order = in.Byte();
  settings.order = static_cast<RowOrder>(order);
  fits = fits && order < kNumRowOrders;
  settings.max_rows = in.Signed();
  settings.group_size = in.Signed();
  settings.max_running = in.Signed();
  const size_t consumers = in.Count(1);
  for (size_t i = 0; i < consumers && in.ok(); ++i) settings.consumers.emplace_back(in.String());
  if ((flags & kTableHasStaleness) != 0) {
    StalenessOptions& staleness = settings.staleness.emplace();
    staleness.max_lag = in.Signed();
    const uint8_t when = in.Byte();
    staleness.when_stale = static_cast<WhenStale>(when);
    fits = fits && when < kNumWhenStale;
    staleness.batch = in.Signed();
  }
  table.counts.rows = in.Signed();
  for (int64_t* count : LifetimeCounts(table.counts)) *count = in.Signed();
  table.version = in.Signed();
  table.first_version = in.Signed();
  table.sequence = in.Varint();
  table.operation = in.Varint();
  table.free_slots.resize(in.Count(1));
  for (uint32_t& slot : table.free_slots) slot = in.Varint32();
  const size_t names = in.Count(1);
  for (size_t i = 0; i < names && in.ok(); ++i) table.names.emplace_back(in.String());
  const size_t layouts = in.Count(1);
  for (size_t i = 0; i < layouts && in.ok(); ++i) table.layouts.push_back(TakeNumbers(in, &fits));
  const size_t groups = in.Count(3);
  for (size_t i = 0; i < groups && in.ok(); ++i) {
    SavedRowGroup& group = table.groups.emplace_back();
    group.name = in.String();
    group.sequence = in.Varint();
    group.version = in.Signed();
  }
  const size_t views = in.Count(3);
  for (size_t i = 0; i < views && in.ok(); ++i) {
    SavedRowView& view = table.views.emplace_back();
    const uint64_t consumer = in.Varint();
    view.consumer = static_cast<uint32_t>(consumer >> 1);
    view.whole_groups = (consumer & 1) != 0;
    fits = fits && consumer >> 1 <= RowTableOptions::kMaxConsumers;
    view.needs = TakeNumbers(in, &fits);
    const size_t ready = in.Count(2);
    view.ready_since.reserve(ready);
    for (size_t k = 0; k < ready && in.ok(); ++k) {
      const uint64_t sequence = in.Varint();
      view.ready_since.emplace_back(sequence, in.Varint());
    }
  }
  if ((flags & kTableHasState) != 0) table.user_state = std::make_shared<const std::string>(in.String());
  if (!fits || !in.at_end()) return Status::DataLoss("the state of a row table has invalid fields");
  if (const Status status = settings.Validate(); !status.ok()) {
    return Status::DataLoss("the settings are not valid: " + std::string(status.message()));
  }
  return table;
}

void EncodeSavedRow(const SavedRow& row, uint32_t next_slot, std::span<const uint16_t> tag_names,
                    std::span<const ChunkPlace> places, std::string* out) {
  PutVarint(out, row.slot - next_slot);
  PutByte(out, static_cast<uint8_t>((row.is_open ? kRowIsOpen : 0) | (row.is_requeued ? kRowIsRequeued : 0) |
                                    (row.group ? kRowHasGroup : 0)));
  PutString(out, row.key);
  PutVarint(out, row.sequence);
  PutSigned(out, row.version);
  if (row.group) PutVarint(out, *row.group);
  PutVarint(out, row.done);
  PutVarint(out, row.tags.size());
  for (size_t i = 0; i < row.tags.size(); ++i) {
    PutVarint(out, tag_names[i]);
    const auto& value = row.tags[i].value;
    if (const auto* flag = std::get_if<bool>(&value)) {
      PutByte(out, static_cast<uint8_t>(*flag ? TagKind::kTrue : TagKind::kFalse));
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      PutByte(out, static_cast<uint8_t>(TagKind::kInteger));
      PutSigned(out, *integer);
    } else if (const auto* real = std::get_if<double>(&value)) {
      PutByte(out, static_cast<uint8_t>(TagKind::kReal));
      PutDouble(out, *real);
    } else {
      PutByte(out, static_cast<uint8_t>(TagKind::kText));
      PutString(out, std::get<std::string>(value));
    }
  }
  PutVarint(out, row.parts.size());
  for (size_t i = 0; i < row.parts.size(); ++i) {
    PutVarint(out, places[i].segment);
    PutVarint(out, places[i].ordinal);
    PutVarint(out, uint64_t{row.parts[i].layout} << 1 | (row.parts[i].replaces ? 1 : 0));
    PutSigned(out, row.parts[i].lag);
  }
}

Status DecodeRowPage(std::string_view bytes, const SavedRowTable& table,
                     const std::function<Status(PageRow&)>& visit) {
  FieldReader in(bytes);
  uint64_t next_slot = 0;
  while (in.ok() && !in.at_end()) {
    PageRow page_row;
    SavedRow& row = page_row.row;
    const uint64_t slot = next_slot + in.Varint();
    const uint8_t flags = in.Byte();
    row.is_open = (flags & kRowIsOpen) != 0;
    row.is_requeued = (flags & kRowIsRequeued) != 0;
    row.key = in.String();
    row.sequence = in.Varint();
    row.version = in.Signed();
    if ((flags & kRowHasGroup) != 0) row.group = in.Varint32();
    row.done = in.Varint32();
    bool fits = slot >= next_slot && slot < UINT32_MAX;
    const size_t tags = in.Count(2);
    fits = fits && tags <= RowTableOptions::kMaxTags;
    for (size_t i = 0; i < tags && in.ok() && fits; ++i) {
      const uint64_t name = in.Varint();
      const auto kind = static_cast<TagKind>(in.Byte());
      if (name >= table.names.size() || kind > TagKind::kText) {
        fits = false;
        break;
      }
      RowTag& tag = row.tags.emplace_back();
      tag.name = table.names[name];
      switch (kind) {
        case TagKind::kFalse:
        case TagKind::kTrue:
          tag.value = kind == TagKind::kTrue;
          break;
        case TagKind::kInteger:
          tag.value = in.Signed();
          break;
        case TagKind::kReal:
          tag.value = in.Double();
          break;
        case TagKind::kText:
          tag.value = std::string(in.String());
          break;
      }
    }
    if (fits && in.ok()) {
      row.parts.resize(in.Count(4));
      page_row.chunks.resize(row.parts.size());
      for (size_t i = 0; i < row.parts.size(); ++i) {
        page_row.chunks[i].segment = in.Varint();
        page_row.chunks[i].ordinal = in.Varint32();
        const uint64_t layout = in.Varint();
        row.parts[i].layout = static_cast<uint32_t>(layout >> 1);
        row.parts[i].replaces = (layout & 1) != 0;
        const int64_t lag = in.Signed();
        fits = fits && layout >> 1 < table.layouts.size() && lag >= INT32_MIN && lag <= INT32_MAX;
        row.parts[i].lag = static_cast<int32_t>(lag);
      }
    }
    if (!fits || !in.ok()) {
      return Status::DataLoss("row \"" + row.key.substr(0, RowTableOptions::kMaxKeyBytes) +
                              "\" of a page has invalid fields");
    }
    row.slot = static_cast<uint32_t>(slot);
    next_slot = slot + 1;
    REVERB_RETURN_IF_ERROR(visit(page_row));
  }
  if (!in.at_end()) return Status::DataLoss("a page of rows has unexpected bytes after its last row");
  return Status::Ok();
}

}  // namespace reverb::internal
