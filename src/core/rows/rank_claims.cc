#include "core/rows/rank_claims.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace reverb::internal {
namespace {

constexpr int64_t kMaxRanks = 4096;

std::string WhoText(const RowClaim& claim) {
  return "rank " + std::to_string(claim.rank) + (claim.holder.empty() ? "" : " (" + claim.holder + ")");
}

std::string ListText(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) text += (text.size() > 1 ? ", " : "") + name;
  return text + "]";
}

std::string FlagText(bool flag) { return flag ? "true" : "false"; }

// The arguments that all ranks of a batch must agree on, as text.
std::vector<std::pair<const char*, std::string>> ArgumentsOf(const RowClaim& claim) {
  return {{"ranks", std::to_string(claim.ranks)},
          {"count", std::to_string(claim.count)},
          {"at_least", std::to_string(claim.at_least)},
          {"needs", ListText(claim.needs)},
          {"select", ListText(claim.select)},
          {"where", "\"" + claim.where + "\""},
          {"max_tokens", std::to_string(claim.max_tokens)},
          {"token_column", claim.token_column},
          {"whole_groups", claim.whole_groups ? FlagText(*claim.whole_groups) : "none"},
          {"drop_last", FlagText(claim.drop_last)},
          {"equal_rows", FlagText(claim.equal_rows)},
          {"split_groups", FlagText(claim.split_groups)}};
}

}  // namespace

std::vector<std::vector<size_t>> DivideAmongRanks(std::span<const int64_t> sizes, size_t ranks,
                                                  bool equal_counts) {
  std::vector<std::vector<size_t>> parts(ranks);
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  const size_t least = sizes.size() / ranks;
  size_t extra = sizes.size() % ranks;  // ranks that get one more
  std::vector<int64_t> sums(ranks, 0);
  for (const size_t unit : order) {
    std::optional<size_t> chosen;
    for (size_t rank = 0; rank < ranks; ++rank) {
      const size_t count = parts[rank].size();
      if (equal_counts && (count > least || (count == least && extra == 0))) continue;
      // Of ranks with equal sums the one with fewer units, so that units without a size are spread too.
      if (!chosen || sums[rank] < sums[*chosen] ||
          (sums[rank] == sums[*chosen] && count < parts[*chosen].size())) {
        chosen = rank;
      }
    }
    if (equal_counts && parts[*chosen].size() == least) --extra;
    parts[*chosen].push_back(unit);
    sums[*chosen] += sizes[unit];
  }
  for (std::vector<size_t>& part : parts) std::ranges::sort(part);
  return parts;
}

Status RankClaims::Check(const RowClaim& claim) const {
  const auto invalid = [&](const std::string& what) {
    return Status::InvalidArgument("table \"" + state_->options().name + "\": " + what);
  };
  if (claim.ranks == 0) {
    if (!claim.step && !claim.drop_last && !claim.split_groups && claim.rank == 0) return Status::Ok();
    return invalid(
        "rank, step, drop_last and split_groups need ranks, the number of ranks that share the batch");
  }
  if (claim.ranks < 1 || claim.ranks > kMaxRanks) {
    return invalid("a batch can be for 1 to " + std::to_string(kMaxRanks) + " ranks, not " +
                   std::to_string(claim.ranks));
  }
  if (claim.rank < 0 || claim.rank >= claim.ranks) {
    return invalid("rank is " + std::to_string(claim.rank) + ", but must be 0 to " +
                   std::to_string(claim.ranks - 1) + ", since ranks is " + std::to_string(claim.ranks));
  }
  const bool by_group = state_->TakesGroups(claim) && !claim.split_groups;
  const int64_t units = by_group ? claim.count / state_->options().group_size : claim.count;
  if (claim.drop_last && units < claim.ranks) {
    return invalid("a claim of " + std::to_string(units) + (by_group ? " groups" : " rows") +
                   " with drop_last for " + std::to_string(claim.ranks) +
                   " ranks would never give one a row; raise count");
  }
  return Status::Ok();
}

RankClaims::Sequence& RankClaims::SequenceOf(const RowClaim& claim) {
  Sequence& sequence = sequences_[claim.consumer];
  std::erase_if(sequence.batches, [this](const Batch& batch) {
    return std::ranges::none_of(
        batch.parts, [this](const Part& part) { return part.lease != 0 && state_->HasLease(part.lease); });
  });
  return sequence;
}

RankClaims::Batch* RankClaims::FindBatch(Sequence* sequence, const RowClaim& claim) {
  for (Batch& batch : sequence->batches) {
    if (claim.step ? batch.step == *claim.step
                   : static_cast<size_t>(claim.rank) >= batch.parts.size() ||
                         IsOpen(batch.parts[static_cast<size_t>(claim.rank)])) {
      return &batch;
    }
  }
  return nullptr;
}

bool RankClaims::IsDecided(const RowClaim& claim) {
  if (claim.ranks == 0) return false;
  Sequence& sequence = SequenceOf(claim);
  return FindBatch(&sequence, claim) != nullptr ||
         (claim.step && sequence.last_step && *claim.step <= *sequence.last_step);
}

Status RankClaims::CheckSame(const RowClaim& first, const RowClaim& claim) const {
  auto wanted = ArgumentsOf(first);
  auto given = ArgumentsOf(claim);
  wanted.emplace_back("step", first.step ? "given" : "none");
  given.emplace_back("step", claim.step ? "given" : "none");
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].second == wanted[i].second) continue;
    return Status::InvalidArgument("table \"" + state_->options().name +
                                   "\": the ranks of a batch must agree, but " + WhoText(claim) +
                                   " claims with " + given[i].first + " = " + given[i].second + " and " +
                                   WhoText(first) + " with " + wanted[i].second);
  }
  return Status::Ok();
}

Result<ClaimedRows> RankClaims::TakePart(Batch* batch, const RowClaim& claim, RowEffects* effects) {
  REVERB_RETURN_IF_ERROR(CheckSame(batch->claim, claim));
  Part& part = batch->parts[static_cast<size_t>(claim.rank)];
  if (part.lease != 0 && !state_->HasLease(part.lease)) {
    return Status::FailedPrecondition(
        "table \"" + state_->options().name + "\": the part of rank " + std::to_string(claim.rank) +
        " of step " + std::to_string(batch->step) +
        " was settled, or its lease has expired and its rows were given back; claim the next step");
  }
  ClaimedRows claimed;
  claimed.lease = part.lease;
  claimed.version = state_->version();
  claimed.columns = batch->columns;
  claimed.step = batch->step;
  // The time of the lease starts when the rank has its part.
  if (part.lease != 0) state_->Settle(part.lease, {}, RowSettlement::kExtend, claim.lease, effects);
  claimed.rows = state_->LeasedRows(part.lease, batch->columns);
  part.is_taken = true;
  return claimed;
}

Result<RankClaims::Batch*> RankClaims::Decide(Sequence* sequence, const RowClaim& claim, const Where* where,
                                              RowEffects* effects) {
  const auto ranks = static_cast<size_t>(claim.ranks);
  const bool by_group = state_->TakesGroups(claim) && !claim.split_groups;
  const auto unit_rows = static_cast<size_t>(by_group ? state_->options().group_size : 1);
  RowClaim whole = claim;
  if (claim.drop_last) {
    const auto needed = static_cast<int64_t>(ranks * unit_rows);
    whole.at_least = std::max(claim.at_least == 0 ? claim.count : claim.at_least, needed);
  }
  REVERB_ASSIGN_OR_RETURN(std::optional<ClaimedRows> taken, state_->Claim(whole, where));
  if (!taken) return nullptr;

  const auto column =
      static_cast<size_t>(std::ranges::find(taken->columns, claim.token_column) - taken->columns.begin());
  const bool has_tokens = column < taken->columns.size();
  size_t num_units = taken->rows.size() / unit_rows;
  if (claim.drop_last) num_units -= num_units % ranks;
  std::vector<int64_t> sizes(num_units, 0);
  for (size_t row = 0; row < num_units * unit_rows; ++row) {
    const RowRecord& record = taken->rows[row];
    if (!has_tokens) {
      ++sizes[row / unit_rows];
      continue;
    }
    size_t segment = 0;
    for (size_t i = 0; i < column; ++i) segment += record.num_segments[i];
    for (size_t i = 0; i < record.num_segments[column]; ++i) {
      sizes[row / unit_rows] += record.segments[segment + i].length();
    }
  }
  Batch batch;
  batch.step = claim.step.value_or(sequence->last_step ? *sequence->last_step + 1 : 0);
  batch.claim = claim;
  batch.columns = taken->columns;
  batch.parts.resize(ranks);
  std::vector<std::vector<size_t>> rows(ranks);
  std::vector<std::string> holders;
  const std::vector<std::vector<size_t>> units = DivideAmongRanks(sizes, ranks, claim.equal_rows);
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (const size_t unit : units[rank]) {
      for (size_t i = 0; i < unit_rows; ++i) rows[rank].push_back(unit * unit_rows + i);
    }
    holders.push_back("rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  }
  const std::vector<uint64_t> leases = state_->SplitLease(taken->lease, rows, holders, effects);
  for (size_t rank = 0; rank < ranks; ++rank) batch.parts[rank].lease = leases[rank];
  sequence->last_step = std::max(batch.step, sequence->last_step.value_or(batch.step));
  return &sequence->batches.emplace_back(std::move(batch));
}

Result<std::optional<ClaimedRows>> RankClaims::Claim(const RowClaim& claim, const Where* where,
                                                     RowEffects* effects) {
  Sequence& sequence = SequenceOf(claim);
  Batch* batch = FindBatch(&sequence, claim);
  if (batch == nullptr) {
    if (claim.step && sequence.last_step && *claim.step <= *sequence.last_step) {
      return Status::FailedPrecondition("table \"" + state_->options().name + "\": step " +
                                        std::to_string(*claim.step) + " is over; the last one is " +
                                        std::to_string(*sequence.last_step) + ": claim a later one");
    }
    // Those that wait are compared before there is a batch.
    const auto [undecided, is_first] = sequence.undecided.try_emplace(claim.step, Agreement{.claim = claim});
    if (!is_first) REVERB_RETURN_IF_ERROR(CheckSame(undecided->second.claim, claim));
    Result<Batch*> decided = Decide(&sequence, claim, where, effects);
    if (decided.ok() && *decided == nullptr) {
      std::vector<int64_t>& waiting = undecided->second.waiting;
      if (std::ranges::find(waiting, claim.rank) == waiting.end()) waiting.push_back(claim.rank);
      return std::optional<ClaimedRows>();
    }
    sequence.undecided.erase(undecided);
    if (!decided.ok()) return decided.status();
    batch = *decided;
  }
  Result<ClaimedRows> part = TakePart(batch, claim, effects);
  if (!part.ok()) return part.status();
  return std::optional<ClaimedRows>(*std::move(part));
}

void RankClaims::StopWaiting(const RowClaim& claim) {
  if (claim.ranks == 0) return;
  const auto sequence = sequences_.find(claim.consumer);
  if (sequence == sequences_.end()) return;
  const auto undecided = sequence->second.undecided.find(claim.step);
  if (undecided == sequence->second.undecided.end()) return;
  std::erase(undecided->second.waiting, claim.rank);
  if (undecided->second.waiting.empty()) sequence->second.undecided.erase(undecided);
}

bool RankClaims::Return(uint64_t lease) {
  for (auto& [consumer, sequence] : sequences_) {
    for (Batch& batch : sequence.batches) {
      for (Part& part : batch.parts) {
        if (part.lease != lease || !state_->HasLease(lease)) continue;
        part.is_taken = false;
        return true;
      }
    }
  }
  return false;
}

}  // namespace reverb::internal
