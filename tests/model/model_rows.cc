#include "model/model_rows.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace reverb::model {
namespace {

int64_t LengthOf(const ModelRow& row, const std::string& column) {
  const auto found = row.columns.find(column);
  return found == row.columns.end() ? 0
                                    : std::accumulate(found->second.begin(), found->second.end(), int64_t{0});
}

}  // namespace

const ModelRow* ModelRows::Find(const std::string& key) const {
  const auto found = std::ranges::find(rows_, key, &ModelRow::key);
  return found == rows_.end() ? nullptr : &*found;
}

ModelRow* ModelRows::FindMutable(const std::string& key) { return const_cast<ModelRow*>(Find(key)); }

ModelRows::Unit ModelRows::GroupOf(const ModelRow& row) const {
  if (row.group.empty()) return {&row};
  Unit unit;
  for (const ModelRow& each : rows_) {
    if (each.group == row.group) unit.push_back(&each);
  }
  return unit;
}

bool ModelRows::IsStale(const ModelRow& row) const {
  if (!options_.staleness || options_.staleness->when_stale == WhenStale::kWait) return false;
  const int64_t version = row.group.empty() ? row.version : groups_.at(row.group).second;
  return version_ - version > options_.staleness->max_lag;
}

bool ModelRows::IsComplete(const Unit& group) const {
  return std::ssize(group) == options_.group_size &&
         std::ranges::none_of(group, [](const ModelRow* row) { return row->is_open; });
}

bool ModelRows::IsConsumed(const ModelRow& row) const {
  return !options_.consumers.empty() && row.done.size() == options_.consumers.size();
}

std::optional<RowFate> ModelRows::Store(const RowWriteMode& mode, const std::string& key,
                                        const std::string& group, const std::map<std::string, double>& tags,
                                        const std::vector<int64_t>& lengths) {
  const auto refuse = [&] {
    ++counts_.refused;
    return RowFate::kRefused;
  };
  ModelRow* row = FindMutable(key);
  if (row != nullptr) {
    if (!group.empty() && row->group != group) return std::nullopt;
    if (Drops() && IsStale(*row)) return refuse();
    if (mode.append && !row->is_open) return std::nullopt;
    for (const std::string& column : mode.columns) {
      if (row->columns.contains(column) && !mode.append && !mode.overwrite) return std::nullopt;
    }
  } else {
    if (!mode.create || (mode.append && !mode.open)) return refuse();
    if (options_.group_size == 0 && !group.empty()) return std::nullopt;
    if (options_.group_size > 0 && group.empty()) return refuse();
    const int64_t present = std::ranges::count(rows_, group, &ModelRow::group);
    const bool joins = !group.empty() && present > 0;
    if (joins && present >= options_.group_size) return std::nullopt;
    const int64_t version = mode.version.value_or(version_);
    if (Drops() && version_ - version > options_.staleness->max_lag) return refuse();
    const auto reservation = reservations_.find(mode.reservation);
    if (!joins) {
      if (std::ssize(rows_) >= options_.max_rows) return RowFate::kWaits;
      const bool waits = options_.staleness && options_.staleness->when_stale == WhenStale::kWait;
      if (waits && reservation == reservations_.end() && Capacity() < 1) return RowFate::kWaits;
    }
    if (reservation != reservations_.end() && --reservation->second.rows == 0)
      reservations_.erase(reservation);
    row = &rows_.emplace_back(ModelRow{
        .key = key, .group = group, .version = version, .is_open = mode.open, .created = ++created_});
    if (!group.empty()) {
      auto [found, is_new] = groups_.try_emplace(group, row->created, version);
      found->second.second = std::min(found->second.second, version);
    }
    has_started_ = true;
    ++counts_.created;
    --counts_.updated;
    ++counts_.accepted;
  }
  ++counts_.updated;
  for (const auto& [name, value] : tags) row->tags[name] = value;
  for (size_t i = 0; i < mode.columns.size(); ++i) {
    std::vector<int64_t>& segments = row->columns[mode.columns[i]];
    if (mode.overwrite) segments.clear();
    segments.push_back(lengths[i]);
  }
  Finish();
  return RowFate::kStored;
}

std::optional<bool> ModelRows::End(const std::string& key, RowEnding ending) {
  ModelRow* const row = FindMutable(key);
  if (row != nullptr && !row->is_open && ending != RowEnding::kClose) return std::nullopt;
  const bool is_gone = row == nullptr || (Drops() && IsStale(*row));
  if (is_gone) ++counts_.refused;
  if (row == nullptr) return is_gone;
  if (ending == RowEnding::kAbort) {
    Delete(key);
    return is_gone;
  }
  if (row->is_open) {
    row->is_open = ending != RowEnding::kClose;
    row->is_requeued = ending == RowEnding::kRequeue;
    row->leased.erase("resume");
  }
  Finish();
  return is_gone;
}

int64_t ModelRows::Delete(const std::string& key) {
  const ModelRow* const row = Find(key);
  if (row == nullptr) return 0;
  if (!IsConsumed(*row)) --counts_.accepted;
  ++counts_.deleted;
  rows_.remove_if([&](const ModelRow& each) { return each.key == key; });
  Finish();
  return 1;
}

int64_t ModelRows::DeleteWhere(const Condition& condition) {
  std::set<std::string> keys;
  for (const ModelRow& row : rows_) {
    const Unit unit = GroupOf(row);
    if (std::ranges::all_of(unit, [&](const ModelRow* each) { return condition(*each, unit); }))
      keys.insert(row.key);
  }
  for (const std::string& key : keys) {
    if (!IsConsumed(*Find(key))) --counts_.accepted;
    ++counts_.deleted;
    rows_.remove_if([&](const ModelRow& each) { return each.key == key; });
  }
  Finish();
  return std::ssize(keys);
}

bool ModelRows::IsReady(const ViewKey& view, const ModelRow& row) const {
  const auto& [consumer, needs, whole] = view;
  if (row.done.contains(consumer) || row.leased.contains(consumer)) return false;
  if (consumer == "resume" ? !row.is_requeued : row.is_open) return false;
  return !IsStale(row) &&
         std::ranges::all_of(needs, [&](const std::string& column) { return row.columns.contains(column); });
}

std::vector<ModelRows::Unit> ModelRows::ReadyUnits(const ViewKey& view) const {
  std::vector<Unit> units;
  for (const ModelRow& row : rows_) {
    const Unit unit = std::get<2>(view) ? GroupOf(row) : Unit{&row};
    if (unit.front() != &row || (std::get<2>(view) && std::ssize(unit) != options_.group_size)) continue;
    if (std::ranges::all_of(unit, [&](const ModelRow* each) { return IsReady(view, *each); }))
      units.push_back(unit);
  }
  return units;
}

ModelRows::Claimed ModelRows::Claim(const RowClaim& claim, const Condition& condition) {
  const bool whole = claim.consumer != "resume" && claim.whole_groups.value_or(options_.group_size > 0);
  const ViewKey view(claim.consumer, {claim.needs.begin(), claim.needs.end()}, whole);
  std::vector<Unit> units = ReadyUnits(view);
  const auto number = [&](const Unit& unit) {
    return whole ? groups_.at(unit[0]->group).first : unit[0]->created;
  };
  const auto [since, is_new] = ready_since_.try_emplace(view);
  if (is_new) {
    for (const Unit& unit : units) since->second[number(unit)] = 0;
  }
  std::ranges::sort(units, std::less<>(), [&](const Unit& unit) {
    int64_t major = 0;
    if (options_.order == RowOrder::kVersion) {
      major = whole ? groups_.at(unit[0]->group).second : unit[0]->version;
    } else if (options_.order == RowOrder::kReady) {
      major = static_cast<int64_t>(since->second.at(number(unit)));
    }
    return std::pair(major, number(unit));
  });
  int64_t at_least = claim.at_least == 0 ? claim.count : claim.at_least;
  if (whole) at_least = std::min(at_least, claim.count / options_.group_size * options_.group_size);
  Claimed claimed;
  std::vector<const ModelRow*> taken;
  int64_t tokens = 0;
  bool is_full = false;
  for (const Unit& unit : units) {
    if (std::ssize(taken) + std::ssize(unit) > claim.count) break;
    if (condition &&
        !std::ranges::all_of(unit, [&](const ModelRow* row) { return condition(*row, GroupOf(*row)); })) {
      continue;
    }
    if (claim.max_tokens > 0) {
      int64_t more = 0;
      for (const ModelRow* row : unit) more += LengthOf(*row, claim.token_column);
      if (more > claim.max_tokens) return {.is_error = true};
      is_full = tokens + more > claim.max_tokens;
      if (is_full) break;
      tokens += more;
    }
    taken.insert(taken.end(), unit.begin(), unit.end());
  }
  if (std::ssize(taken) < at_least && !is_full) return {};
  claimed.lease = next_id_++;
  Lease& lease = leases_[claimed.lease];
  lease = {.consumer = claim.consumer, .expires = now_ + claim.lease, .rows = {}};
  for (const ModelRow* row : taken) {
    FindMutable(row->key)->leased[claim.consumer] = claimed.lease;
    lease.rows.emplace_back(row->key, row->created);
    claimed.keys.push_back(row->key);
  }
  counts_.claimed += std::ssize(taken);
  Finish();
  return claimed;
}

LeaseOutcome ModelRows::SettleRow(const std::pair<std::string, uint64_t>& which, const std::string& consumer,
                                  RowSettlement settlement) {
  ModelRow* const row = FindMutable(which.first);
  if (row == nullptr || row->created != which.second || !row->leased.contains(consumer)) return {.gone = 1};
  if (settlement == RowSettlement::kExtend) return {.settled = 1};
  row->leased.erase(consumer);
  if (settlement == RowSettlement::kAcknowledge) {
    if (consumer == "resume") {
      row->is_requeued = false;
    } else if (row->done.insert(consumer).second && IsConsumed(*row)) {
      ++counts_.consumed;
    }
  }
  return {.settled = 1};
}

LeaseOutcome ModelRows::Settle(uint64_t id, const std::vector<std::string>& keys, RowSettlement settlement,
                               Duration extension) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return {.expired = std::max<int64_t>(std::ssize(keys), 1)};
  Lease& lease = found->second;
  LeaseOutcome outcome;
  if (settlement == RowSettlement::kExtend) {
    lease.expires = now_ + extension;
    for (const auto& row : lease.rows) outcome += SettleRow(row, lease.consumer, settlement);
    return outcome;
  }
  std::vector<std::pair<std::string, uint64_t>> settled = lease.rows;
  if (!keys.empty()) {
    settled.clear();
    for (const std::string& key : keys) {
      const ModelRow* const row = Find(key);
      const auto at = std::ranges::find_if(lease.rows, [&](const auto& each) {
        return row != nullptr && each == std::pair(key, row->created);
      });
      if (at == lease.rows.end()) {
        ++outcome.gone;
        continue;
      }
      settled.push_back(*at);
      lease.rows.erase(at);
    }
  } else {
    lease.rows.clear();
  }
  const std::string consumer = lease.consumer;
  if (lease.rows.empty()) leases_.erase(found);
  for (const auto& row : settled) outcome += SettleRow(row, consumer, settlement);
  (settlement == RowSettlement::kAcknowledge ? counts_.acknowledged : counts_.released) += outcome.settled;
  Finish();
  return outcome;
}

std::vector<uint64_t> ModelRows::SplitLease(uint64_t lease,
                                            const std::vector<std::vector<std::string>>& parts) {
  const Lease whole = leases_.at(lease);
  leases_.erase(lease);
  std::vector<std::pair<std::string, uint64_t>> left = whole.rows;
  std::vector<uint64_t> ids;
  for (const std::vector<std::string>& keys : parts) {
    if (keys.empty()) {
      ids.push_back(0);
      continue;
    }
    ids.push_back(next_id_++);
    Lease& part = leases_[ids.back()];
    part.consumer = whole.consumer;
    part.expires = whole.expires;
    for (const std::string& key : keys) {
      const std::pair<std::string, uint64_t> row(key, Find(key)->created);
      part.rows.push_back(row);
      std::erase(left, row);
      FindMutable(key)->leased[whole.consumer] = ids.back();
    }
  }
  for (const auto& row : left) {
    counts_.released += SettleRow(row, whole.consumer, RowSettlement::kRelease).settled;
  }
  Finish();
  return ids;
}

std::vector<std::string> ModelRows::LeasedKeys(uint64_t lease) const {
  std::vector<std::string> keys;
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return keys;
  for (const auto& [key, created] : found->second.rows) {
    if (Find(key) != nullptr && Find(key)->created == created) keys.push_back(key);
  }
  return keys;
}

bool ModelRows::SetVersion(int64_t version) {
  if (version < version_) return false;
  version_ = version;
  if (!has_started_) first_version_ = version;
  Finish();
  return true;
}

int64_t ModelRows::Capacity() const {
  int64_t running = 0;
  for (const auto& [id, reservation] : reservations_) running += reservation.rows;
  int64_t capacity = std::numeric_limits<int64_t>::max();
  if (options_.max_running > 0) capacity = options_.max_running - running;
  if (options_.staleness && options_.staleness->batch > 0) {
    const int64_t versions = options_.staleness->max_lag + version_ - first_version_ + 1;
    capacity = std::min(capacity, versions * options_.staleness->batch - (counts_.accepted + running));
  }
  return capacity;
}

std::optional<uint64_t> ModelRows::Reserve(int64_t n, std::optional<int64_t> version, Duration lease) {
  if (options_.max_running > 0 && n > options_.max_running) return std::nullopt;
  const bool can_be_stale = options_.staleness && options_.staleness->when_stale != WhenStale::kWait;
  if (version && can_be_stale && version_ - *version > options_.staleness->max_lag) return std::nullopt;
  if (Capacity() < n) return 0;
  reservations_[next_id_] = {.rows = n, .expires = now_ + lease};
  has_started_ = true;
  return next_id_++;
}

bool ModelRows::CancelReservation(uint64_t id) { return reservations_.erase(id) > 0; }

void ModelRows::AdvanceTo(TimePoint now) {
  now_ = now;
  std::erase_if(reservations_, [&](const auto& each) { return each.second.expires <= now; });
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (lease->second.expires > now) {
      ++lease;
      continue;
    }
    for (const auto& row : lease->second.rows) {
      counts_.expired += SettleRow(row, lease->second.consumer, RowSettlement::kRelease).settled;
    }
    lease = leases_.erase(lease);
  }
  Finish();
}

void ModelRows::Restart() {
  const TimePoint now = now_;
  AdvanceTo(TimePoint::max());
  now_ = now;
}

void ModelRows::Finish() {
  std::set<std::string> consumed;
  std::set<std::string> stale;
  for (const ModelRow& row : rows_) {
    const Unit unit = GroupOf(row);
    if (std::ranges::any_of(unit, [](const ModelRow* each) { return !each->leased.empty(); })) continue;
    const bool is_consumed =
        std::ranges::all_of(unit, [&](const ModelRow* each) { return IsConsumed(*each) && !each->is_open; });
    if (options_.drop_consumed && is_consumed && (row.group.empty() || IsComplete(unit))) {
      consumed.insert(row.key);
    } else if (Drops() && IsStale(row)) {
      stale.insert(row.key);
    }
  }
  rows_.remove_if([&](const ModelRow& row) {
    if (!consumed.contains(row.key) && !stale.contains(row.key)) return false;
    if (!IsConsumed(row)) --counts_.accepted;
    if (stale.contains(row.key)) ++counts_.dropped_stale;
    return true;
  });
  std::erase_if(groups_, [&](const auto& group) {
    return std::ranges::find(rows_, group.first, &ModelRow::group) == rows_.end();
  });
  ++tick_;
  // A row that has left, or a group whose first row or last row has, starts again.
  std::set<uint64_t> numbers;
  for (const ModelRow& row : rows_) numbers.insert(row.created);
  std::set<uint64_t> group_numbers;
  for (const auto& [name, group] : groups_) group_numbers.insert(group.first);
  for (auto& [view, since] : ready_since_) {
    std::erase_if(since, [&](const auto& each) {
      return (numbers_.contains(each.first) && !numbers.contains(each.first)) ||
             (group_numbers_.contains(each.first) && !group_numbers.contains(each.first));
    });
    for (const Unit& unit : ReadyUnits(view)) {
      const uint64_t number = std::get<2>(view) ? groups_.at(unit[0]->group).first : unit[0]->created;
      since.try_emplace(number, tick_);
    }
  }
  numbers_ = std::move(numbers);
  group_numbers_ = std::move(group_numbers);
}

RowCounts ModelRows::Counts() const {
  RowCounts counts = counts_;
  counts.rows = std::ssize(rows_);
  for (const ModelRow& row : rows_) {
    counts.open += row.is_open ? 1 : 0;
    counts.stale += IsStale(row) ? 1 : 0;
    const Unit unit = GroupOf(row);
    if (row.group.empty() || unit.front() != &row) continue;
    ++counts.groups;
    counts.complete_groups += IsComplete(unit) ? 1 : 0;
  }
  for (const auto& [id, reservation] : reservations_) counts.running += reservation.rows;
  counts.leases = std::ssize(leases_);
  return counts;
}

}  // namespace reverb::model
