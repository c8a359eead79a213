#include "model/model_ranks.h"

#include <algorithm>
#include <tuple>

namespace reverb::model {
namespace {

auto Arguments(const RowClaim& claim) {
  return std::tuple(claim.ranks, claim.count, claim.at_least, claim.needs, claim.select, claim.where,
                    claim.max_tokens, claim.token_column, claim.whole_groups, claim.drop_last,
                    claim.equal_rows, claim.split_groups, claim.step.has_value());
}

}  // namespace

bool ModelRanks::IsAlive(const Batch& batch) const {
  return std::ranges::any_of(batch.parts, [&](const Part& part) { return rows_->HasLease(part.lease); });
}

ModelRanks::Outcome ModelRanks::Take(Batch* batch, const RowClaim& claim) {
  if (Arguments(batch->claim) != Arguments(claim)) return {.is_error = true};
  Part& part = batch->parts[static_cast<size_t>(claim.rank)];
  if (part.lease != 0 && !rows_->HasLease(part.lease)) return {.is_error = true};
  part.is_taken = true;
  if (part.lease != 0) rows_->Settle(part.lease, {}, RowSettlement::kExtend, claim.lease);
  return {.lease = part.lease, .step = batch->step, .keys = rows_->LeasedKeys(part.lease)};
}

ModelRanks::Outcome ModelRanks::Claim(const RowClaim& claim, const ModelRows::Condition& condition) {
  History& history = histories_[claim.consumer];
  // A batch is forgotten when a claim finds that nothing of it is leased any more.
  std::erase_if(history.batches, [&](const Batch& batch) { return !IsAlive(batch); });
  for (Batch& batch : history.batches) {
    if (claim.step) {
      if (batch.step == *claim.step) return Take(&batch, claim);
      continue;
    }
    if (claim.rank >= std::ssize(batch.parts)) return {.is_error = true};
    const Part& part = batch.parts[static_cast<size_t>(claim.rank)];
    if (!part.is_taken && (part.lease == 0 || rows_->HasLease(part.lease))) return Take(&batch, claim);
  }
  if (claim.step && history.last && *claim.step <= *history.last) return {.is_error = true};

  const bool by_group = claim.consumer != "resume" && claim.whole_groups.value_or(group_size_ > 0);
  const int64_t unit = by_group && !claim.split_groups ? group_size_ : 1;
  RowClaim whole = claim;
  if (claim.drop_last) {
    whole.at_least = std::max(claim.at_least == 0 ? claim.count : claim.at_least, claim.ranks * unit);
  }
  const ModelRows::Claimed taken = rows_->Claim(whole, condition);
  if (taken.is_error) return {.is_error = true};
  if (taken.lease == 0) return {.waits = true};
  int64_t num_units = std::ssize(taken.keys) / unit;
  if (claim.drop_last) num_units = num_units / claim.ranks * claim.ranks;

  // The longest first, each to the rank that has the shortest part so far, and may have another one.
  const bool has_tokens = std::ranges::find(claim.needs, claim.token_column) != claim.needs.end();
  std::vector<std::pair<int64_t, int64_t>> units;  // -size, number
  for (int64_t i = 0; i < num_units; ++i) {
    int64_t size = 0;
    for (int64_t row = i * unit; row < (i + 1) * unit; ++row) {
      if (!has_tokens) {
        ++size;
        continue;
      }
      const auto& columns = rows_->Find(taken.keys[static_cast<size_t>(row)])->columns;
      for (const int64_t length : columns.at(claim.token_column)) size += length;
    }
    units.emplace_back(-size, i);
  }
  std::ranges::sort(units);
  struct Load {
    int64_t sum = 0;
    std::vector<int64_t> units = {};
  };
  std::vector<Load> loads(static_cast<size_t>(claim.ranks));
  for (const auto& [negative, number] : units) {
    size_t best = loads.size();
    for (size_t rank = 0; rank < loads.size(); ++rank) {
      if (claim.equal_rows) {
        // Whether the rest could still be divided so that the numbers differ by at most one.
        int64_t with_more = 0;
        for (const Load& load : loads) with_more += std::ssize(load.units) > num_units / claim.ranks ? 1 : 0;
        const int64_t have = std::ssize(loads[rank].units);
        const bool may = have < num_units / claim.ranks ||
                         (have == num_units / claim.ranks && with_more < num_units % claim.ranks);
        if (!may) continue;
      }
      const auto rating = [&](size_t each) {
        return std::tuple(loads[each].sum, loads[each].units.size(), each);
      };
      if (best == loads.size() || rating(rank) < rating(best)) best = rank;
    }
    loads[best].sum -= negative;
    loads[best].units.push_back(number);
  }
  std::vector<std::vector<std::string>> parts;
  for (Load& load : loads) {
    std::ranges::sort(load.units);
    std::vector<std::string>& keys = parts.emplace_back();
    for (const int64_t number : load.units) {
      for (int64_t row = number * unit; row < (number + 1) * unit; ++row) {
        keys.push_back(taken.keys[static_cast<size_t>(row)]);
      }
    }
  }
  const std::vector<uint64_t> leases = rows_->SplitLease(taken.lease, parts);
  Batch batch{.claim = claim, .step = claim.step.value_or(history.last ? *history.last + 1 : 0)};
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    batch.parts.push_back({.lease = leases[rank]});
  }
  history.last = std::max(batch.step, history.last.value_or(batch.step));
  history.batches.push_back(std::move(batch));
  return Take(&history.batches.back(), claim);
}

bool ModelRanks::Return(uint64_t lease) {
  for (auto& [consumer, history] : histories_) {
    for (Batch& batch : history.batches) {
      for (Part& part : batch.parts) {
        if (part.lease != lease || !rows_->HasLease(lease)) continue;
        part.is_taken = false;
        return true;
      }
    }
  }
  return false;
}

}  // namespace reverb::model
