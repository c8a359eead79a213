// Views, claims and leases of a row table.
#include <algorithm>
#include <cassert>
#include <map>

#include "base/duration_text.h"
#include "core/rows/row_state.h"

namespace reverb::internal {
namespace {

constexpr int64_t kMaxClaimedRows = int64_t{1} << 20;

std::string InQuotes(std::string_view name) { return "\"" + std::string(name) + "\""; }

// Returns "1 row" or "3 rows".
std::string RowsText(int64_t count) { return std::to_string(count) + (count == 1 ? " row" : " rows"); }

}  // namespace

// The rows that an expression sees together: a row alone, or the rows of its group.
class RowState::RowsOfUnit final : public WhereRows {
 public:
  RowsOfUnit(const RowState& state, std::span<const std::optional<uint16_t>> names, const SlotIndex& row)
      : state_(state), names_(names) {
    const uint32_t group = state.rows_[row].group;
    if (group == kNone) {
      slots_ = {&row, 1};
    } else {
      slots_ = state.groups_[group].rows;
      is_complete_ = state.IsComplete(state.groups_[group]);
    }
  }

  size_t IndexOf(SlotIndex row) const {
    return static_cast<size_t>(std::ranges::find(slots_, row) - slots_.begin());
  }
  size_t size() const override { return slots_.size(); }
  bool is_complete() const override { return is_complete_; }
  WhereValue Field(size_t row, WhereField field) const override {
    const Row& found = state_.rows_[slots_[row]];
    switch (field) {
      case WhereField::kKey:
        return WhereValue::Text(found.head.key());
      case WhereField::kGroup:
        return found.group == kNone ? WhereValue::Missing()
                                    : WhereValue::Text(state_.groups_[found.group].name);
      case WhereField::kVersion:
        return WhereValue::Integer(found.version);
      default:
        return WhereValue::Integer(state_.LagOf(found.version));
    }
  }
  WhereValue Tag(size_t row, size_t name) const override {
    return names_[name] ? state_.rows_[slots_[row]].head.Tag(*names_[name]) : WhereValue::Missing();
  }
  bool HasColumn(size_t row, size_t name) const override {
    return names_[name] && state_.HasColumn(state_.rows_[slots_[row]], *names_[name]);
  }
  WhereValue Length(size_t row, size_t name) const override {
    if (!names_[name]) return WhereValue::Missing();
    const std::optional<int64_t> length = state_.Length(state_.rows_[slots_[row]], *names_[name]);
    return length ? WhereValue::Integer(*length) : WhereValue::Missing();
  }

 private:
  const RowState& state_;
  const std::span<const std::optional<uint16_t>> names_;
  std::span<const SlotIndex> slots_;
  bool is_complete_ = true;
};

bool RowState::Matches(const Where& where, std::span<const std::optional<uint16_t>> names,
                       std::span<const SlotIndex> rows) const {
  return std::ranges::all_of(rows, [&](const SlotIndex& row) {
    const RowsOfUnit unit(*this, names, row);
    return where.Matches(unit, unit.IndexOf(row));
  });
}

// --- Reading --------------------------------------------------------------------------------------

std::vector<RowRecord> RowState::Get(std::span<const std::string> keys,
                                     std::span<const std::string> columns) const {
  const std::vector<std::optional<uint16_t>> numbers = Numbers(columns);
  std::vector<RowRecord> records;
  for (const std::string& key : keys) {
    const std::optional<SlotIndex> slot = Find(key);
    if (!slot) continue;
    records.push_back(Describe(rows_[*slot]));
    AddColumns(rows_[*slot], numbers, &records.back());
  }
  return records;
}

std::vector<RowRecord> RowState::List(const Where* where, int64_t limit, uint64_t* cursor) const {
  std::vector<RowRecord> records;
  std::vector<std::optional<uint16_t>> names;
  if (where != nullptr) names = Numbers(where->names());
  uint64_t next = *cursor;
  for (; next < rows_.size() && std::ssize(records) < limit; ++next) {
    const auto slot = static_cast<SlotIndex>(next);
    const Row& row = rows_[slot];
    if (row.sequence == 0 || (where != nullptr && !Matches(*where, names, {&slot, 1}))) continue;
    RowRecord& record = records.emplace_back(Describe(row));
    for (const Part& part : row.parts) {
      for (const uint16_t column : layouts_[part.layout]) {
        if (std::ranges::find(record.columns, names_[column]) == record.columns.end()) {
          record.columns.push_back(names_[column]);
        }
      }
    }
    record.is_requeued = row.is_requeued;
    record.is_stale = IsUnitStale(row);
    for (uint32_t consumer = 0; consumer <= resume_; ++consumer) {
      if ((row.leased >> consumer & 1) != 0) record.leased_by.emplace_back(ConsumerName(consumer));
      if ((row.done >> consumer & 1) != 0) record.consumed_by.emplace_back(ConsumerName(consumer));
    }
  }
  *cursor = next < rows_.size() ? next : 0;
  return records;
}

int64_t RowState::DeleteWhere(const Where& where, RowEffects* effects) {
  const std::vector<std::optional<uint16_t>> names = Numbers(where.names());
  int64_t deleted = 0;
  for (SlotIndex slot = 0; slot < rows_.size(); ++slot) {
    const Row& row = rows_[slot];
    if (row.sequence == 0) continue;
    std::vector<SlotIndex> unit = {slot};
    if (row.group != kNone) unit = groups_[row.group].rows;
    // A group is decided about once, at its first row.
    if (unit.front() != slot || !Matches(where, names, unit)) continue;
    for (const SlotIndex each : unit) Drop(each, Why::kDeleted, effects);
    deleted += std::ssize(unit);
  }
  return deleted;
}

// --- Views ----------------------------------------------------------------------------------------

std::optional<uint32_t> RowState::FindConsumer(std::string_view name) const {
  if (name == kResumeConsumer) return resume_;
  const auto found = std::ranges::find(options_.consumers, name);
  if (found == options_.consumers.end()) return std::nullopt;
  return static_cast<uint32_t>(found - options_.consumers.begin());
}

std::string_view RowState::ConsumerName(uint32_t consumer) const {
  return consumer == resume_ ? kResumeConsumer : std::string_view(options_.consumers[consumer]);
}

RowState::View* RowState::FindView(const RowClaim& claim) {
  std::vector<uint16_t> needs;
  for (const std::string& name : claim.needs) needs.push_back(*names_.Find(name));
  std::ranges::sort(needs);
  needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
  const uint32_t consumer = *FindConsumer(claim.consumer);
  const bool whole_groups = WholeGroups(claim);
  for (View& view : views_) {
    if (view.consumer == consumer && view.whole_groups == whole_groups && view.needs == needs) {
      view.last_used = ++tick_;
      return &view;
    }
  }
  View& added = AddView(consumer, std::move(needs), whole_groups);
  FillView(&added, /*are_old=*/true);
  return &added;
}

RowState::View& RowState::AddView(uint32_t consumer, std::vector<uint16_t> needs, bool whole_groups) {
  View* oldest = nullptr;
  if (views_.size() < kMaxViews) {
    views_.reserve(kMaxViews);
    oldest = &views_.emplace_back();
  } else {
    oldest = &*std::ranges::min_element(views_, {}, &View::last_used);
    const uint32_t bit = uint32_t{1} << (oldest - views_.data());
    for (Row& row : rows_) row.views &= ~bit;
    for (Group& group : groups_) group.views &= ~bit;
    *oldest = View();
  }
  oldest->consumer = consumer;
  oldest->needs = std::move(needs);
  oldest->whole_groups = whole_groups;
  oldest->last_used = ++tick_;
  oldest->generation = ++tick_;
  return *oldest;
}

void RowState::FillView(View* view, bool are_old) {
  view->is_new = are_old;
  const auto bit = static_cast<uint32_t>(view - views_.data());
  for (SlotIndex slot = 0; slot < rows_.size(); ++slot) {
    if (rows_[slot].sequence != 0) RefreshIn(view, bit, slot);
  }
  view->is_new = false;
}

bool RowState::HasNeeds(const View& view, const Row& row) const {
  return std::ranges::all_of(view.needs, [&](uint16_t column) { return HasColumn(row, column); });
}

bool RowState::IsReady(const View& view, const Row& row) const {
  const uint32_t bit = uint32_t{1} << view.consumer;
  if (row.sequence == 0 || ((row.done | row.leased) & bit) != 0) return false;
  if (view.consumer == resume_ ? !row.is_requeued : row.is_open) return false;
  return !IsUnitStale(row) && HasNeeds(view, row);
}

bool RowState::IsGroupReady(const View& view, const Group& group) const {
  return std::ssize(group.rows) == options_.group_size &&
         std::ranges::all_of(group.rows, [&](SlotIndex slot) { return IsReady(view, rows_[slot]); });
}

// The entry of a unit does not change while it is in the view: the version of a group that is complete stays.
RowState::Entry RowState::EntryOf(View* view, uint32_t unit) {
  const uint64_t sequence = view->whole_groups ? groups_[unit].sequence : rows_[unit].sequence;
  Entry entry{.minor = sequence, .unit = unit};
  if (options_.order == RowOrder::kVersion) {
    entry.major = view->whole_groups ? groups_[unit].version : rows_[unit].version;
  } else if (options_.order == RowOrder::kReady) {
    // What was ready before the first claim of this kind counts as ready since then, in the order of creation.
    // What one operation makes ready has the order of its creation too.
    const uint64_t now = view->is_new ? 0 : operation_;
    entry.major = static_cast<int64_t>(view->ready_since.try_emplace(sequence, now).first->second);
  }
  return entry;
}

void RowState::SetInView(View* view, uint32_t bit, uint32_t unit, uint32_t* views, bool is_ready) {
  const uint32_t mask = uint32_t{1} << bit;
  if (is_ready) view->generation = ++tick_;
  if (((*views & mask) != 0) == is_ready) return;
  *views ^= mask;
  const Entry entry = EntryOf(view, unit);
  if (is_ready) {
    view->ready.insert(entry);
  } else {
    view->ready.erase(entry);
  }
}

void RowState::RefreshIn(View* view, uint32_t bit, SlotIndex slot) {
  Row& row = rows_[slot];
  // Its values may decide about others of its group, through aggregates.
  if (row.group != kNone) view->generation = ++tick_;
  if (!view->whole_groups) return SetInView(view, bit, slot, &row.views, IsReady(*view, row));
  if (row.group == kNone) return;
  Group& group = groups_[row.group];
  SetInView(view, bit, row.group, &group.views, IsGroupReady(*view, group));
}

void RowState::Refresh(SlotIndex slot) {
  for (uint32_t i = 0; i < views_.size(); ++i) RefreshIn(&views_[i], i, slot);
}

std::span<const RowState::SlotIndex> RowState::UnitRows(const View& view, const uint32_t& unit) const {
  if (view.whole_groups) return groups_[unit].rows;
  return {&unit, 1};
}

// --- Claims ---------------------------------------------------------------------------------------

Status RowState::CheckClaim(const RowClaim& claim) {
  const std::string table = "table " + InQuotes(options_.name) + ": ";
  const auto invalid = [&](const std::string& what) { return Status::InvalidArgument(table + what); };
  if (!FindConsumer(claim.consumer)) {
    std::string known;
    for (const std::string& consumer : options_.consumers) known += InQuotes(consumer) + ", ";
    return Status::NotFound(table + "there is no consumer " + InQuotes(claim.consumer) +
                            "; the consumers are " + known + "\"resume\"");
  }
  const int64_t at_least = claim.at_least == 0 ? claim.count : claim.at_least;
  if (claim.count < 1 || claim.count > kMaxClaimedRows) {
    return invalid("a claim can take 1 to " + std::to_string(kMaxClaimedRows) + " rows, not " +
                   std::to_string(claim.count));
  }
  if (at_least < 1 || at_least > claim.count) {
    return invalid("at_least is " + std::to_string(at_least) + ", but must be 1 to " +
                   std::to_string(claim.count) + ", the rows of the claim");
  }
  if (claim.count > options_.max_rows + options_.group_size &&
      at_least > options_.max_rows + options_.group_size) {
    return invalid("a claim of " + std::to_string(at_least) + " rows can never be met, since max_rows is " +
                   std::to_string(options_.max_rows));
  }
  if (claim.lease <= Duration(0)) return invalid("a claim needs a positive lease");
  if (WholeGroups(claim) && options_.group_size == 0) {
    return invalid("whole_groups needs a table with group_size");
  }
  if (WholeGroups(claim) && claim.count < options_.group_size) {
    return invalid("a claim of " + RowsText(claim.count) + " cannot have whole groups of " +
                   std::to_string(options_.group_size));
  }
  if (claim.max_tokens < 0) return invalid("max_tokens is " + std::to_string(claim.max_tokens));
  if (claim.max_tokens > 0 && std::ranges::find(claim.needs, claim.token_column) == claim.needs.end()) {
    return invalid("max_tokens counts the column " + InQuotes(claim.token_column) +
                   ", which must be one of those that the claim needs; set token_column to another one");
  }
  for (const std::string& column : claim.needs) {
    if (column.empty() || column.size() > RowTableOptions::kMaxKeyBytes)
      return invalid("a column has no name");
    Result<uint16_t> number = names_.Add(column);
    if (!number.ok()) return number.status();
  }
  return Status::Ok();
}

int64_t RowState::AtLeast(const RowClaim& claim) const {
  const int64_t at_least = claim.at_least == 0 ? claim.count : claim.at_least;
  if (!WholeGroups(claim)) return at_least;
  return std::min(at_least, claim.count / options_.group_size * options_.group_size);
}

Result<std::optional<ClaimedRows>> RowState::Claim(const RowClaim& claim, const Where* where) {
  View* const view = FindView(claim);
  const int64_t unit_size = view->whole_groups ? options_.group_size : 1;
  const int64_t at_least = AtLeast(claim);
  if (std::ssize(view->ready) * unit_size < at_least && claim.max_tokens == 0)
    return std::optional<ClaimedRows>();
  std::vector<std::optional<uint16_t>> where_names;
  if (where != nullptr) where_names = Numbers(where->names());
  const std::optional<uint16_t> token_column = names_.Find(claim.token_column);
  std::vector<SlotIndex> taken;
  int64_t tokens = 0;
  bool is_full = false;
  for (const Entry& entry : view->ready) {
    if (std::ssize(taken) + unit_size > claim.count) break;
    const std::span<const SlotIndex> rows = UnitRows(*view, entry.unit);
    if (where != nullptr && !Matches(*where, where_names, rows)) continue;
    if (claim.max_tokens > 0) {
      int64_t more = 0;
      for (const SlotIndex row : rows) more += Length(rows_[row], *token_column).value_or(0);
      if (more > claim.max_tokens) {
        // Waiting would never end, and skipping it would hide it.
        return Error(rows_[rows.front()].head.key(),
                     (view->whole_groups ? "and its group have " : "has ") + std::to_string(more) +
                         " elements of column " + InQuotes(claim.token_column) + ", more than max_tokens = " +
                         std::to_string(claim.max_tokens) + "; raise it, or leave such rows out with where",
                     StatusCode::kFailedPrecondition);
      }
      // Not skipped in favor of shorter ones: it comes first in the next batch.
      is_full = tokens + more > claim.max_tokens;
      if (is_full) break;
      tokens += more;
    }
    taken.insert(taken.end(), rows.begin(), rows.end());
  }
  if (std::ssize(taken) < at_least && !is_full) return std::optional<ClaimedRows>();

  if (next_id_ == 0) ++next_id_;
  ClaimedRows claimed;
  claimed.lease = next_id_++;
  claimed.version = version_;
  claimed.columns = claim.needs;
  for (const std::string& column : claim.select) {
    if (std::ranges::find(claimed.columns, column) == claimed.columns.end())
      claimed.columns.push_back(column);
  }
  const std::vector<std::optional<uint16_t>> numbers = Numbers(claimed.columns);
  Lease lease{.consumer = view->consumer, .holder = claim.holder, .expires = After(claim.lease)};
  claimed.rows.reserve(taken.size());
  for (const SlotIndex slot : taken) {
    Row& row = rows_[slot];
    lease.rows.push_back({.slot = slot, .sequence = row.sequence});
    row.leased |= uint32_t{1} << view->consumer;
    AddColumns(row, numbers, &claimed.rows.emplace_back(Describe(row)));
  }
  // Afterwards: a group changes once for all of its rows.
  for (const SlotIndex slot : taken) Refresh(slot);
  counts_.claimed += std::ssize(taken);
  expiries_.emplace(lease.expires, claimed.lease);
  leases_.emplace(claimed.lease, std::move(lease));
  return std::optional(std::move(claimed));
}

uint64_t RowState::Generation(const RowClaim& claim) { return FindView(claim)->generation; }

std::string RowState::Explain(const RowClaim& claim, const Where* where) {
  const View& view = *FindView(claim);
  const uint32_t bit = uint32_t{1} << view.consumer;
  std::vector<std::optional<uint16_t>> where_names;
  if (where != nullptr) where_names = Numbers(where->names());
  int64_t ready = 0;
  int64_t filtered = 0;
  int64_t open = 0;
  int64_t stale = 0;
  int64_t incomplete = 0;
  int64_t held = 0;  // ready, but others of the group are not
  std::map<uint16_t, int64_t> lacking;
  for (SlotIndex slot = 0; slot < rows_.size(); ++slot) {
    const Row& row = rows_[slot];
    if (row.sequence == 0 || ((row.done | row.leased) & bit) != 0) continue;
    if (view.consumer == resume_ && !row.is_requeued) continue;
    if (view.consumer != resume_ && row.is_open) {
      ++open;
    } else if (IsUnitStale(row)) {
      ++stale;
    } else if (!HasNeeds(view, row)) {
      const auto missing =
          std::ranges::find_if_not(view.needs, [&](uint16_t column) { return HasColumn(row, column); });
      ++lacking[*missing];
    } else if (view.whole_groups && !IsComplete(groups_[row.group])) {
      ++incomplete;
    } else if (view.whole_groups && !IsGroupReady(view, groups_[row.group])) {
      ++held;
    } else if (const std::span<const SlotIndex> unit =
                   view.whole_groups ? std::span<const SlotIndex>(groups_[row.group].rows)
                                     : std::span<const SlotIndex>(&slot, 1);
               where != nullptr && !Matches(*where, where_names, unit)) {
      ++filtered;
    } else {
      ++ready;
    }
  }
  std::string text = "consumer " + InQuotes(claim.consumer) + " waits for " + RowsText(AtLeast(claim)) +
                     ", " + std::to_string(ready) + (ready == 1 ? " is ready" : " are ready");
  const auto add = [&](int64_t count, const std::string& one, const std::string& many) {
    if (count > 0) text += ", " + RowsText(count) + " " + (count == 1 ? one : many);
  };
  for (const auto& [column, count] : lacking) {
    add(count, "lacks " + InQuotes(names_[column]), "lack " + InQuotes(names_[column]));
  }
  add(stale, "is stale", "are stale");
  add(open, "is open", "are open");
  add(incomplete, "is in an incomplete group", "are in incomplete groups");
  add(held, "waits for others of its group", "wait for others of their groups");
  add(filtered, "does not match the condition", "do not match the condition");
  // Sorted by expiry, which is what a caller waits for.
  constexpr int kMaxNamed = 3;
  int named = 0;
  int64_t others = 0;
  for (const auto& [expires, id] : expiries_) {
    const auto lease = leases_.find(id);
    if (lease == leases_.end() || lease->second.consumer != view.consumer) continue;
    int64_t rows = 0;
    for (const LeasedRow& each : lease->second.rows) {
      const Row& row = rows_[each.slot];
      rows += row.sequence == each.sequence && (row.leased & bit) != 0 ? 1 : 0;
    }
    if (named++ >= kMaxNamed) {
      others += rows;
      continue;
    }
    const std::string by = (lease->second.holder.empty() ? "" : " by " + lease->second.holder) + " for " +
                           DurationText(std::max(expires - now_, Duration(0)));
    add(rows, "is leased" + by, "are leased" + by);
  }
  add(others, "is leased by others", "are leased by others");
  if (size() == 0) text += ", the table is empty";
  return text;
}

// --- Leases ---------------------------------------------------------------------------------------

TimePoint RowState::After(Duration time) const {
  return time > TimePoint::max() - now_ ? TimePoint::max() : now_ + time;
}

void RowState::AdvanceTo(TimePoint now, RowEffects* effects) {
  ++operation_;
  now_ = std::max(now, now_);
  while (!expiries_.empty() && expiries_.begin()->first <= now_) {
    const uint64_t id = expiries_.begin()->second;
    if (!CancelReservation(id)) EndLease(id, effects);
  }
}

std::optional<TimePoint> RowState::NextExpiry() const {
  if (expiries_.empty()) return std::nullopt;
  return expiries_.begin()->first;
}

void RowState::EndLease(uint64_t id, RowEffects* effects) {
  const auto found = leases_.find(id);
  assert(found != leases_.end());
  const Lease lease = std::move(found->second);
  expiries_.erase({lease.expires, id});
  leases_.erase(found);
  for (const LeasedRow& each : lease.rows) {
    counts_.expired += SettleRow(each, lease.consumer, RowSettlement::kRelease, effects).settled;
  }
}

std::vector<uint64_t> RowState::SplitLease(uint64_t id, std::span<const std::vector<size_t>> parts,
                                           std::span<const std::string> holders, RowEffects* effects) {
  const auto found = leases_.find(id);
  assert(found != leases_.end());
  const Lease whole = std::move(found->second);
  expiries_.erase({whole.expires, id});
  leases_.erase(found);
  std::vector<bool> is_kept(whole.rows.size(), false);
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) {
      ids.push_back(0);
      continue;
    }
    Lease part{.consumer = whole.consumer, .holder = holders[i], .expires = whole.expires};
    for (const size_t row : parts[i]) {
      part.rows.push_back(whole.rows[row]);
      is_kept[row] = true;
    }
    if (next_id_ == 0) ++next_id_;
    expiries_.emplace(part.expires, next_id_);
    leases_.emplace(next_id_, std::move(part));
    ids.push_back(next_id_++);
  }
  ++operation_;
  for (size_t row = 0; row < whole.rows.size(); ++row) {
    if (is_kept[row]) continue;
    counts_.released += SettleRow(whole.rows[row], whole.consumer, RowSettlement::kRelease, effects).settled;
  }
  return ids;
}

std::vector<RowRecord> RowState::LeasedRows(uint64_t id, std::span<const std::string> columns) const {
  std::vector<RowRecord> records;
  const auto lease = leases_.find(id);
  if (lease == leases_.end()) return records;
  const std::vector<std::optional<uint16_t>> numbers = Numbers(columns);
  for (const LeasedRow& each : lease->second.rows) {
    const Row& row = rows_[each.slot];
    if (row.sequence != each.sequence) continue;
    AddColumns(row, numbers, &records.emplace_back(Describe(row)));
  }
  return records;
}

LeaseOutcome RowState::SettleRow(const LeasedRow& leased, uint32_t consumer, RowSettlement settlement,
                                 RowEffects* effects) {
  Row& row = rows_[leased.slot];
  const uint32_t bit = uint32_t{1} << consumer;
  if (row.sequence != leased.sequence || (row.leased & bit) == 0) return {.gone = 1};
  if (settlement == RowSettlement::kExtend) return {.settled = 1};
  row.leased &= ~bit;
  if (settlement == RowSettlement::kAcknowledge) {
    const bool was_consumed = IsConsumed(row);
    if (consumer == resume_) {
      row.is_requeued = false;
    } else {
      row.done |= bit;
    }
    if (!was_consumed && IsConsumed(row)) ++counts_.consumed;
  }
  Refresh(leased.slot);
  DropIfDone(leased.slot, effects);
  return {.settled = 1};
}

LeaseOutcome RowState::Settle(uint64_t id, std::span<const std::string> keys, RowSettlement settlement,
                              Duration extension, RowEffects* effects) {
  ++operation_;
  const auto found = leases_.find(id);
  if (found == leases_.end()) return {.expired = std::max<int64_t>(std::ssize(keys), 1)};
  Lease& lease = found->second;
  LeaseOutcome outcome;
  if (settlement == RowSettlement::kExtend) {
    expiries_.erase({lease.expires, id});
    lease.expires = After(extension);
    expiries_.emplace(lease.expires, id);
    for (const LeasedRow& each : lease.rows) outcome += SettleRow(each, lease.consumer, settlement, effects);
    return outcome;
  }
  std::vector<LeasedRow> settled;
  if (keys.empty()) {
    settled = std::move(lease.rows);
    lease.rows.clear();
  } else {
    for (const std::string& key : keys) {
      const std::optional<SlotIndex> slot = Find(key);
      const auto row = std::ranges::find_if(lease.rows, [&](const LeasedRow& each) {
        return slot && each.slot == *slot && each.sequence == rows_[*slot].sequence;
      });
      if (row == lease.rows.end()) {
        ++outcome.gone;
        continue;
      }
      settled.push_back(*row);
      lease.rows.erase(row);
    }
  }
  const uint32_t consumer = lease.consumer;
  if (lease.rows.empty()) {
    expiries_.erase({lease.expires, id});
    leases_.erase(found);
  }
  for (const LeasedRow& each : settled) outcome += SettleRow(each, consumer, settlement, effects);
  (settlement == RowSettlement::kAcknowledge ? counts_.acknowledged : counts_.released) += outcome.settled;
  return outcome;
}

std::vector<RowConsumerInfo> RowState::CountConsumers() const {
  std::vector<RowConsumerInfo> counts(resume_ + 1);
  for (uint32_t consumer = 0; consumer <= resume_; ++consumer) {
    RowConsumerInfo& each = counts[consumer];
    each.name = ConsumerName(consumer);
    uint64_t last_used = 0;
    for (const View& view : views_) {
      if (view.consumer != consumer || view.last_used <= last_used) continue;
      last_used = view.last_used;
      each.ready = std::ssize(view.ready) * (view.whole_groups ? options_.group_size : 1);
    }
  }
  for (const Row& row : rows_) {
    if (row.sequence == 0 || (row.leased | row.done) == 0) continue;
    for (uint32_t consumer = 0; consumer <= resume_; ++consumer) {
      counts[consumer].leased += row.leased >> consumer & 1;
      counts[consumer].consumed += row.done >> consumer & 1;
    }
  }
  return counts;
}

}  // namespace reverb::internal
