// Compares the rules of row tables with a model under random operations, in every combination of order, groups and
// staleness. Now and then the table is saved and restored. With REVERB_TEST_LONG there are more than ten million operations.
//
// A failure reports the seed, the configuration, the step and the operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "checkpoint/row_format.h"
#include "core/rows/rank_claims.h"
#include "core/rows/row_state.h"
#include "model/model_ranks.h"
#include "model/model_rows.h"
#include "testing/effort.h"
#include "testing/rows.h"
#include "testing/seed.h"

namespace reverb::model {
namespace {

using internal::ChunkPlace;
using internal::ChunkRef;
using internal::ClaimedRows;
using internal::PageRow;
using internal::Random;
using internal::RankClaims;
using internal::RowEffects;
using internal::RowRecord;
using internal::RowState;
using internal::RowTableSnapshot;
using internal::RowWrite;
using internal::SavedRow;
using internal::SavedRowPart;
using internal::SavedRowTable;
using internal::Where;

// 36 configurations.
int64_t StepsPerConfiguration() { return test::Effort(30'000, 3'000); }
constexpr int64_t kStepsPerTable = 3'000;

const std::vector<std::string> kColumns = {"tokens", "logprobs", "advantages"};

// A condition as text, for the table, and as a function, for the model.
struct NamedCondition {
  const char* text;
  ModelRows::Condition condition;
};

std::optional<double> Reward(const ModelRow& row) {
  const auto found = row.tags.find("reward");
  return found == row.tags.end() ? std::nullopt : std::optional(found->second);
}

class RowModelTest : public ::testing::TestWithParam<std::tuple<RowOrder, int64_t, int>> {};

class RowRun {
 public:
  RowRun(const RowTableOptions& options, uint64_t seed)
      : options_(options),
        random_(seed),
        state_(RowState::Create(options).value()),
        model_(options) {
    ResetRanks();
    for (int64_t a = 0; a < 4; ++a) {
      for (size_t columns = 1; columns <= 2; ++columns) {
        chunks_[{columns, a}] = test::RowChunk(std::vector<int64_t>(columns, a));
      }
    }
    const bool grouped = options.group_size > 0;
    const int64_t group_size = options.group_size;
    conditions_.push_back(
        {"reward > 0", [](const ModelRow& row, const auto&) { return Reward(row).value_or(0) > 0; }});
    conditions_.push_back({"not (tokens.length < 2) or version >= 3", [](const ModelRow& row, const auto&) {
                             const auto found = row.columns.find("tokens");
                             int64_t length = -1;
                             if (found != row.columns.end()) {
                               length = 0;
                               for (const int64_t each : found->second) length += each;
                             }
                             return length >= 2 || row.version >= 3;
                           }});
    conditions_.push_back({"std(reward) > 0", [grouped, group_size](const ModelRow&, const auto& group) {
                             std::vector<double> rewards;
                             for (const ModelRow* row : group) {
                               if (row->is_open && grouped) return false;
                               if (!Reward(*row)) return false;
                               rewards.push_back(*Reward(*row));
                             }
                             if (grouped && std::ssize(rewards) != group_size) return false;
                             return std::ranges::min(rewards) != std::ranges::max(rewards);
                           }});
    conditions_.push_back({"has(advantages) and key != 'k3'", [](const ModelRow& row, const auto&) {
                             return row.columns.contains("advantages") && row.key != "k3";
                           }});
    for (const NamedCondition& each : conditions_) {
      parsed_.push_back(std::make_shared<const Where>(Where::Parse(each.text).value()));
    }
  }

  // Runs one operation on both and compares the outcomes.
  void Step() {
    if (random_.Below(200) == 0) return Restart();
    switch (random_.Below(23)) {
      case 0:
        return Delete();
      case 1:
        return EndRow();
      case 2:
        return SetVersion();
      case 3:
      case 4:
        return Reserve();
      case 5:
        return Advance();
      case 6:
      case 7:
      case 8:
      case 9:
        return Settle();
      case 10:
      case 11:
      case 12:
      case 13:
        return Claim();
      case 14:
      case 15:
      case 16:
        return ClaimPart();
      default:
        return Store();
    }
  }

  void CompareAll() {
    const RowCounts a = state_->Counts();
    const RowCounts b = model_.Counts();
    const auto all = [](const RowCounts& c) {
      return std::vector<int64_t>{c.rows,         c.open,          c.stale,    c.groups,  c.complete_groups,
                                  c.running,      c.leases,        c.accepted, c.created, c.updated,
                                  c.consumed,     c.dropped_stale, c.deleted,  c.refused, c.claimed,
                                  c.acknowledged, c.released,      c.expired};
    };
    ASSERT_EQ(all(a), all(b)) << operation_;
    ASSERT_EQ(state_->Capacity(), model_.Capacity()) << operation_;
  }

  // Compares the contents of every row.
  void CompareRows() {
    std::vector<std::string> keys;
    for (const ModelRow& row : model_.rows()) keys.push_back(row.key);
    const std::vector<RowRecord> records = state_->Get(keys, kColumns);
    ASSERT_EQ(records.size(), keys.size()) << operation_;
    for (const RowRecord& record : records) {
      const ModelRow& row = *model_.Find(record.key);
      ASSERT_EQ(record.group, row.group);
      ASSERT_EQ(record.version, row.version);
      ASSERT_EQ(record.is_open, row.is_open);
      ASSERT_EQ(record.tags.size(), row.tags.size());
      size_t next = 0;
      for (size_t i = 0; i < kColumns.size(); ++i) {
        const auto found = row.columns.find(kColumns[i]);
        const std::vector<int64_t> lengths =
            found == row.columns.end() ? std::vector<int64_t>() : found->second;
        ASSERT_EQ(record.num_segments[i], lengths.size())
            << operation_ << " " << record.key << " " << kColumns[i];
        for (const int64_t length : lengths) ASSERT_EQ(record.segments[next++].length(), length);
      }
    }
    uint64_t cursor = 0;
    size_t listed = 0;
    do {
      listed += state_->List(nullptr, 7, &cursor).size();
    } while (cursor != 0);
    ASSERT_EQ(listed, keys.size());
  }

  const std::string& operation() const { return operation_; }
  // Parts of ranks that had rows.
  int64_t num_parts() const { return num_parts_; }

 private:
  std::string Key() { return "k" + std::to_string(random_.Below(24)); }

  void Store() {
    RowWriteMode mode;
    const size_t num_columns = random_.Below(3);
    const size_t first = random_.Below(2);
    for (size_t i = 0; i < num_columns; ++i) mode.columns.push_back(kColumns[first + i]);
    if (random_.Below(2) == 0) mode.version = version_ - static_cast<int64_t>(random_.Below(3));
    mode.overwrite = random_.Below(6) == 0;
    mode.open = random_.Below(4) == 0;
    mode.append = !mode.overwrite && random_.Below(4) == 0;
    mode.create = random_.Below(5) != 0;
    if (!reservations_.empty() && random_.Below(3) == 0) {
      mode.reservation = reservations_[random_.Below(reservations_.size())];
    }
    const std::string key = Key();
    // A key mostly has the same group, so that groups become complete.
    std::string group;
    if (options_.group_size > 0 && random_.Below(8) != 0) {
      const uint64_t number = random_.Below(20) == 0 ? random_.Below(8) : std::stoull(key.substr(1)) / 3;
      group = "g" + std::to_string(number);
    } else if (random_.Below(50) == 0) {
      group = "g";
    }
    std::map<std::string, double> tags;
    if (random_.Below(2) == 0) tags["reward"] = static_cast<double>(random_.Below(3)) - 1;
    const auto length = static_cast<int64_t>(random_.Below(4));
    const std::vector<int64_t> lengths(num_columns, length);
    operation_ = "store " + key + " in " + group;

    RowWrite row{.key = key, .group = group};
    for (const auto& [name, value] : tags) row.tags.push_back({name, value});
    if (num_columns > 0) row.chunk = chunks_[{num_columns, length}];
    RowEffects effects;
    const Result<RowState::Write> write = state_->Prepare(mode, {&row, 1});
    ASSERT_TRUE(write.ok()) << write.status().ToString();
    const Status check = state_->Check(*write, row);
    const Result<RowFate> fate = state_->Store(*write, &row, &effects);
    ASSERT_EQ(check.ok(), fate.ok());
    const std::optional<RowFate> expected = model_.Store(mode, key, group, tags, lengths);
    ASSERT_EQ(fate.ok(), expected.has_value()) << operation_ << " " << fate.status().ToString();
    if (!fate.ok()) return;
    ASSERT_EQ(*fate, *expected) << operation_;
  }

  void EndRow() {
    const std::string key = Key();
    const auto ending = static_cast<RowEnding>(random_.Below(3));
    operation_ = "end " + key + " " + std::to_string(static_cast<int>(ending));
    RowEffects effects;
    const Result<std::vector<std::string>> gone = state_->End({&key, 1}, ending, &effects);
    const std::optional<bool> expected = model_.End(key, ending);
    ASSERT_EQ(gone.ok(), expected.has_value()) << operation_;
    if (!expected) return;
    ASSERT_EQ(!gone->empty(), *expected) << operation_;
  }

  void Delete() {
    RowEffects effects;
    if (random_.Below(12) == 0) {
      const size_t which = random_.Below(conditions_.size());
      operation_ = std::string("delete where ") + conditions_[which].text;
      ASSERT_EQ(state_->DeleteWhere(*parsed_[which], &effects),
                model_.DeleteWhere(conditions_[which].condition))
          << operation_;
      return;
    }
    const std::string key = Key();
    operation_ = "delete " + key;
    ASSERT_EQ(state_->Delete({&key, 1}, &effects), model_.Delete(key)) << operation_;
  }

  void SetVersion() {
    if (random_.Below(3) != 0) return;
    const int64_t version =
        version_ + static_cast<int64_t>(random_.Below(3)) - (random_.Below(5) == 0 ? 1 : 0);
    operation_ = "version " + std::to_string(version);
    RowEffects effects;
    const bool ok = state_->SetVersion(version, &effects).ok();
    ASSERT_EQ(ok, model_.SetVersion(version)) << operation_;
    if (ok) version_ = version;
  }

  void Reserve() {
    if (!reservations_.empty() && random_.Below(3) == 0) {
      const size_t which = random_.Below(reservations_.size());
      operation_ = "cancel reservation";
      ASSERT_EQ(state_->CancelReservation(reservations_[which]),
                model_.CancelReservation(reservations_[which]));
      reservations_.erase(reservations_.begin() + static_cast<ptrdiff_t>(which));
      return;
    }
    const auto n = static_cast<int64_t>(1 + random_.Below(4));
    std::optional<int64_t> version;
    if (random_.Below(2) == 0) version = version_ - static_cast<int64_t>(random_.Below(4));
    const Duration lease(1 + random_.Below(200));
    operation_ = "reserve " + std::to_string(n);
    const Result<uint64_t> id = state_->Reserve(n, version, lease);
    const std::optional<uint64_t> expected = model_.Reserve(n, version, lease);
    ASSERT_EQ(id.ok(), expected.has_value()) << operation_;
    if (!expected) return;
    ASSERT_EQ(*id, *expected) << operation_;
    if (*id != 0) reservations_.push_back(*id);
  }

  // Saves the table as a checkpoint does, and continues with one that is restored from the bytes.
  void Restart() {
    operation_ = "restart";
    const auto snapshot = std::make_unique<RowTableSnapshot>(state_->size());
    state_->Capture(snapshot.get());
    // It shows the table of now, whatever happens to it.
    if (random_.Below(2) == 0) {
      RowEffects deleted;
      state_->DeleteWhere(Where::Parse("true").value(), &deleted);
    }
    std::string table;
    internal::EncodeRowTable(snapshot->table(), &table);
    std::string page;
    std::vector<ChunkRef> chunks;
    uint32_t next_slot = 0;
    const std::vector<std::string>& names = snapshot->table().names;
    for (size_t i = 0; i < snapshot->num_rows(); ++i) {
      const SavedRow row = snapshot->row(i);
      std::vector<uint16_t> tags;
      for (const RowTag& tag : row.tags) {
        tags.push_back(static_cast<uint16_t>(std::ranges::find(names, tag.name) - names.begin()));
      }
      std::vector<ChunkPlace> places;
      for (const SavedRowPart& part : row.parts) {
        places.push_back({.segment = 7, .ordinal = static_cast<uint32_t>(chunks.size())});
        chunks.push_back(part.chunk);
      }
      internal::EncodeSavedRow(row, next_slot, tags, places, &page);
      next_slot = row.slot + 1;
    }
    Result<SavedRowTable> saved = internal::DecodeRowTable(table);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    ASSERT_EQ(saved->settings, options_);
    std::unique_ptr<RowState> restored = RowState::Create(options_, model_.next_id()).value();
    const Status begun = restored->BeginRestore(*saved);
    ASSERT_TRUE(begun.ok()) << begun.ToString();
    const Status read = internal::DecodeRowPage(page, *saved, [&](PageRow& row) {
      for (size_t i = 0; i < row.chunks.size(); ++i) row.row.parts[i].chunk = chunks[row.chunks[i].ordinal];
      return restored->RestoreRow(std::move(row.row));
    });
    ASSERT_TRUE(read.ok()) << read.ToString();
    RowEffects effects;
    const Status finished = restored->FinishRestore(&effects);
    ASSERT_TRUE(finished.ok()) << finished.ToString();
    restored->AdvanceTo(now_, &effects);
    state_ = std::move(restored);
    model_.Restart();
    ResetRanks();  // decisions end with the server
    CompareRows();
  }

  void ResetRanks() {
    ranks_.emplace(state_.get());
    model_ranks_.emplace(&model_, options_.group_size);
  }

  void Advance() {
    now_ += Duration(random_.Below(60));
    operation_ = "advance";
    RowEffects effects;
    state_->AdvanceTo(now_, &effects);
    model_.AdvanceTo(now_);
    const std::optional<TimePoint> next = state_->NextExpiry();
    ASSERT_TRUE(!next || *next > now_);
  }

  void Claim() {
    RowClaim claim;
    const uint64_t consumer = random_.Below(7);
    claim.consumer = consumer == 0 ? "resume" : options_.consumers[consumer % options_.consumers.size()];
    claim.count = static_cast<int64_t>(1 + random_.Below(6));
    if (random_.Below(2) == 0) claim.at_least = static_cast<int64_t>(1 + random_.Below(claim.count));
    for (size_t i = 0, n = random_.Below(3); i < n; ++i) claim.needs.push_back(kColumns[i]);
    if (random_.Below(3) == 0) claim.whole_groups = random_.Below(2) == 0;
    if (random_.Below(4) == 0) claim.max_tokens = static_cast<int64_t>(1 + random_.Below(8));
    claim.lease = Duration(1 + random_.Below(200));
    ModelRows::Condition condition;
    const Where* where = nullptr;
    operation_ = "claim for " + claim.consumer;
    if (random_.Below(3) == 0) {
      const size_t which = random_.Below(conditions_.size());
      where = parsed_[which].get();
      condition = conditions_[which].condition;
      operation_ += std::string(" where ") + conditions_[which].text;
    }
    if (!state_->CheckClaim(claim).ok()) return;
    const Result<std::optional<ClaimedRows>> claimed = state_->Claim(claim, where);
    const ModelRows::Claimed expected = model_.Claim(claim, condition);
    ASSERT_EQ(!claimed.ok(), expected.is_error) << operation_;
    if (!claimed.ok()) return;
    ASSERT_EQ(claimed->has_value(), expected.lease != 0) << operation_;
    if (!claimed->has_value()) {
      ASSERT_NE(state_->Explain(claim, where), "");
      return;
    }
    ASSERT_EQ((*claimed)->lease, expected.lease) << operation_;
    ASSERT_EQ(test::KeysOf((*claimed)->rows), expected.keys) << operation_;
    leases_.emplace_back(expected.lease, expected.keys);
    if (leases_.size() > 20) leases_.erase(leases_.begin());
  }

  // Few different arguments, so that ranks mostly agree.
  void ClaimPart() {
    RowClaim claim;
    claim.consumer = options_.consumers[random_.Below(options_.consumers.size())];
    claim.ranks = random_.Below(30) == 0 ? 2 : 3;
    claim.rank = static_cast<int64_t>(random_.Below(static_cast<uint64_t>(claim.ranks)));
    claim.count = random_.Below(20) == 0 ? 9 : 7;
    claim.at_least = options_.max_rows % 2 == 0 ? 2 : 5;
    if (claim.consumer == "train") claim.needs = {"tokens"};
    claim.drop_last = options_.max_rows % 3 == 0;
    claim.equal_rows = options_.max_rows % 5 != 0;
    claim.split_groups = options_.max_rows % 4 == 0;
    if (options_.group_size > 1 && !claim.split_groups) claim.count = 10;
    if (random_.Below(3) == 0 && options_.max_rows % 2 == 0) {
      claim.step = last_step_ + static_cast<int64_t>(random_.Below(4)) - 2;
    }
    claim.lease = Duration(1 + random_.Below(200));
    operation_ = "part of rank " + std::to_string(claim.rank) + " for " + claim.consumer + " step " +
                 (claim.step ? std::to_string(*claim.step) : "none");
    if (!state_->CheckClaim(claim).ok() || !ranks_->Check(claim).ok()) return;
    RowEffects effects;
    const bool is_decided = ranks_->IsDecided(claim);
    const Result<std::optional<ClaimedRows>> part = ranks_->Claim(claim, nullptr, &effects);
    const ModelRanks::Outcome expected = model_ranks_->Claim(claim, {});
    ASSERT_EQ(!part.ok(), expected.is_error) << operation_ << part.status().ToString();
    if (!part.ok()) return;
    ASSERT_EQ(!part->has_value(), expected.waits) << operation_;
    if (!part->has_value()) {
      ASSERT_FALSE(is_decided);
      return ranks_->StopWaiting(claim);
    }
    ASSERT_EQ((*part)->lease, expected.lease) << operation_;
    ASSERT_EQ((*part)->step, expected.step) << operation_;
    ASSERT_EQ(test::KeysOf((*part)->rows), expected.keys) << operation_;
    last_step_ = std::max(last_step_, expected.step);
    if (expected.lease == 0) return;
    ++num_parts_;
    leases_.emplace_back(expected.lease, expected.keys);
    if (leases_.size() > 20) leases_.erase(leases_.begin());
  }

  void Settle() {
    if (leases_.empty()) return;
    const size_t which = random_.Below(leases_.size());
    const auto& [id, all_keys] = leases_[which];
    std::vector<std::string> keys;
    if (random_.Below(3) == 0) {
      for (const std::string& key : all_keys) {
        if (random_.Below(2) == 0) keys.push_back(key);
      }
    }
    const auto settlement = static_cast<RowSettlement>(random_.Below(4));
    const Duration extension(1 + random_.Below(200));
    operation_ = "settle " + std::to_string(id) + " " + std::to_string(static_cast<int>(settlement));
    RowEffects effects;
    if (settlement == RowSettlement::kReturn) {
      const bool is_part = ranks_->Return(id);
      ASSERT_EQ(is_part, model_ranks_->Return(id)) << operation_;
      if (is_part) return;
    }
    const LeaseOutcome outcome = state_->Settle(id, keys, settlement, extension, &effects);
    ASSERT_EQ(outcome, model_.Settle(id, keys, settlement, extension)) << operation_;
    if (random_.Below(4) != 0) leases_.erase(leases_.begin() + static_cast<ptrdiff_t>(which));
  }

  const RowTableOptions options_;
  Random random_;
  std::unique_ptr<RowState> state_;
  std::optional<RankClaims> ranks_;  // of state_
  ModelRows model_;
  std::optional<ModelRanks> model_ranks_;
  std::map<std::pair<size_t, int64_t>, ChunkRef> chunks_;
  std::vector<NamedCondition> conditions_;
  std::vector<std::shared_ptr<const Where>> parsed_;
  std::vector<std::pair<uint64_t, std::vector<std::string>>> leases_;
  std::vector<uint64_t> reservations_;
  int64_t version_ = 0;
  int64_t last_step_ = 0;
  int64_t num_parts_ = 0;
  TimePoint now_{};
  std::string operation_;
};

TEST_P(RowModelTest, AgreesWithTheModel) {
  const auto [order, group_size, stale] = GetParam();
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  Random random(seed + static_cast<uint64_t>(stale) + 10 * static_cast<uint64_t>(group_size));
  int64_t num_parts = 0;
  for (int64_t done = 0; done < StepsPerConfiguration(); done += kStepsPerTable) {
    RowTableOptions options{.name = "rows",
                            .max_rows = static_cast<int64_t>(6 + random.Below(20)),
                            .group_size = group_size,
                            .consumers = {"logprob", "train"},
                            .order = order,
                            .max_running = static_cast<int64_t>(random.Below(2) * 6),
                            .drop_consumed = random.Below(5) != 0};
    if (stale > 0) {
      options.staleness = {
          .max_lag = static_cast<int64_t>(random.Below(3)),
          .when_stale = static_cast<WhenStale>(stale - 1),
          .batch = static_cast<int64_t>(stale == 3 ? 4 + random.Below(8) : random.Below(2) * 8)};
    }
    RowRun run(options, random.Next());
    for (int64_t step = 0; step < kStepsPerTable; ++step) {
      SCOPED_TRACE(step);
      run.Step();
      if (::testing::Test::HasFatalFailure())
        FAIL() << "step " << step << " of table " << done / kStepsPerTable;
      run.CompareAll();
      if (step % 50 == 0) run.CompareRows();
      if (::testing::Test::HasFatalFailure()) FAIL() << "after step " << step << ": " << run.operation();
    }
    num_parts += run.num_parts();
  }
  // One part per table: runs under sanitizers have a single table.
  EXPECT_GT(num_parts, StepsPerConfiguration() / kStepsPerTable) << "ranks got too few parts for a test";
}

INSTANTIATE_TEST_SUITE_P(Configurations, RowModelTest,
                         ::testing::Combine(::testing::Values(RowOrder::kFifo, RowOrder::kVersion,
                                                              RowOrder::kReady),
                                            ::testing::Values(0, 1, 3), ::testing::Values(0, 1, 2, 3)));

}  // namespace
}  // namespace reverb::model
