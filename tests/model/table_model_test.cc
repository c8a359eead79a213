// Compares the table with a model under random operations: every pair of selectors with every kind of
// limiter, 200,000 operations each.
//
// A failure reports the seed, the configuration, the step and the operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "core/chunk_store.h"
#include "core/table_state.h"
#include "model/model_table.h"
#include "model/random_tables.h"
#include "testing/chunks.h"
#include "testing/effort.h"
#include "testing/seed.h"

namespace reverb::model {
namespace {

using internal::ChunkStore;
using internal::ClockReading;
using internal::Effects;
using internal::Item;
using internal::Random;
using internal::SlotRecord;
using internal::TableSnapshot;
using internal::TableState;
using internal::Trajectory;
using Kind = SelectorOptions::Kind;
using Role = ModelTable::Role;

int64_t OperationsPerConfiguration() { return test::Effort(200'000, 10'000); }

// Each configuration runs on several tables of different sizes, one after the other.
constexpr int64_t kTablesPerConfiguration = 8;

// Formats a disagreement: "what: the table says x, the model y".
template <typename A, typename B>
std::string Disagree(const char* what, const A& table, const B& model) {
  std::ostringstream text;
  text.precision(17);
  text << what << ": the table says " << table << ", the model " << model;
  return text.str();
}

// Returns a disagreement, if there is one, from the calling function.
#define AGREE(what, table, model)                                                               \
  do {                                                                                          \
    const auto& said_by_table = (table);                                                        \
    const auto& said_by_model = (model);                                                        \
    if (!(said_by_table == said_by_model)) return Disagree(what, said_by_table, said_by_model); \
  } while (false)
#define RETURN_DISAGREEMENT(expr)                                                         \
  do {                                                                                    \
    if (std::string disagreement_ = (expr); !disagreement_.empty()) return disagreement_; \
  } while (false)

// Applies the same operations to a table and its model.
class Duel {
 public:
  Duel(const TableOptions& options, Limiter limiter, const DataPool& pool, const ChunkStore& store,
       uint64_t seed)
      : options_(options),
        limiter_(limiter),
        pool_(pool),
        store_(store),
        random_(seed),
        table_(TableState::Create(options).value()),
        model_(options),
        max_age_(options.max_age.count()) {}

  // Applies one random operation to both. Returns a disagreement, or "".
  std::string Step() {
    Tick();
    RETURN_DISAGREEMENT(Operate());
    effects_.RunAndClear();
    RETURN_DISAGREEMENT(CompareNumbers());
    if (random_.Below(16) == 0) RETURN_DISAGREEMENT(CompareItems());
    return "";
  }
  // Compares the final states.
  std::string Finish() {
    RETURN_DISAGREEMENT(CompareItems());
    while (!held_.empty()) RETURN_DISAGREEMENT(DropSnapshot(random_.Below(held_.size())));
    return CompareStoredBytes();
  }
  std::string operation() const { return std::string(operation_) + " " + detail_; }

 private:
  struct Held {
    std::unique_ptr<TableSnapshot> snapshot;
    ModelTable model;
  };

  std::string Operate() {
    detail_.clear();
    const uint64_t dice = random_.Below(2'000);
    if (dice < 800) return InsertNew();
    if (dice < 950) return InsertExisting();
    if (dice < 1'200) return Sample();
    if (dice < 1'250) return SampleWhole();
    if (dice < 1'350) return Lease();
    if (dice < 1'450) return Settle();
    if (dice < 1'700) return Mutate();
    if (dice < 1'800) return Refuse();
    if (dice < 1'950) return Find();
    if (dice < 1'965) return Peek();
    if (dice < 1'980) return Evict();
    if (dice < 1'984) return ChangeLimiter();
    if (dice < 1'985) return ChangeLimits();
    if (dice < 1'988) return SaveAndRestore();
    if (dice < 1'992) return TakeSnapshot();
    if (dice < 1'999) return held_.empty() ? TakeSnapshot() : DropSnapshot(random_.Below(held_.size()));
    return random_.Below(4) == 0 ? Reset() : Find();
  }

  // --- Random arguments ---

  // Few different keys, so that ties and reinsertion of old keys are common.
  uint64_t RandomKey() {
    const uint64_t number = random_.Below(4 * static_cast<uint64_t>(options_.max_size) + 4);
    return number % 3 == 0 ? number * 0x9E3779B97F4A7C15u : number;
  }
  uint64_t ExistingKey() { return model_.items()[random_.Below(model_.items().size())].key; }
  uint64_t AnyKey() { return model_.items().empty() || random_.Below(4) == 0 ? RandomKey() : ExistingKey(); }

  double WildPriority() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kPriorities[] = {0,    0,         0,          1,     1,     1,     2,
                                      0.5,  0.1,       3,          1e-15, 1e6,   -0.0,  -1,
                                      -2.5, kInfinity, -kInfinity, 1e300, 1e200, 1e-300};
    if (random_.Below(5) == 0) return 10 * random_.Unit();
    return kPriorities[random_.Below(std::size(kPriorities))];
  }
  // Returns a priority that both selectors accept.
  double RandomPriority() {
    for (;;) {
      // For a while only zeros, so that all weights are zero.
      const double priority = only_zeros_ > 0 ? 0 : WildPriority();
      only_zeros_ -= only_zeros_ > 0;
      // Infinite and enormous priorities are rare, because they dominate all others.
      if (std::abs(priority) > 1e100 && random_.Below(20) != 0) continue;
      if (model_.Accepts(priority)) return priority;
    }
  }

  // --- Operations ---

  std::string InsertNew() {
    operation_ = "insert";
    AGREE("CanInsert", table_->CanInsert(), model_.CanInsert());
    if (!model_.CanInsert()) return "";
    uint64_t key = RandomKey();
    while (model_.Find(key) != nullptr) key += 0x10001;
    return Insert(key);
  }

  std::string InsertExisting() {
    operation_ = "insert existing";
    if (model_.items().empty()) return "";
    return Insert(ExistingKey());
  }

  std::string Insert(uint64_t key) {
    const size_t data = random_.Below(pool_.size());
    const ModelItem item{.key = key,
                         .priority = RandomPriority(),
                         .times_sampled = random_.Below(8) == 0 ? static_cast<int32_t>(random_.Below(6)) : 0,
                         .inserted_at = wall_,
                         .data = pool_.data(data)};
    Item real{.key = key, .priority = item.priority, .times_sampled = item.times_sampled};
    real.trajectory = random_.Below(4) == 0 ? pool_.FreshTrajectory(data) : pool_.trajectory(data);
    AGREE("CheckItem", table_->CheckItem(real).ok(), true);
    table_->InsertOrAssign(std::move(real), wall_, &effects_);
    if (!model_.Insert(item)) {
      AGREE("released", effects_.released.size(), 1u);
      return "";
    }
    if (model_.IsOverfull()) RETURN_DISAGREEMENT(FollowEviction());
    model_.FinishInsert();
    return "";
  }

  // Determines what the table evicted, and checks that the choice was possible.
  std::string FollowEviction(void (ModelTable::*evict)(uint64_t) = &ModelTable::Evict) {
    AGREE("size after an eviction", table_->size(), model_.size() - 1);
    const ModelItem* evicted = nullptr;
    for (const ModelItem& item : model_.items()) {
      if (!table_->Contains(item.key)) evicted = &item;
    }
    if (evicted == nullptr) return "the table evicted nothing";
    if (!model_.ChanceOf(Role::kRemover, evicted->key)) {
      return Disagree("evicted item", evicted->key, "that it cannot be chosen");
    }
    (model_.*evict)(evicted->key);
    return "";
  }

  std::string Evict() {
    operation_ = "evict";
    if (model_.items().empty()) return "";
    table_->EvictOne(&effects_);
    return FollowEviction();
  }

  std::string Sample() {
    operation_ = "sample";
    const auto n = static_cast<int64_t>(random_.Below(8) == 0 ? random_.Below(100) : 1 + random_.Below(3));
    const bool rate_limited = random_.Below(2) == 0;
    samples_.clear();
    AGREE("CanSample", table_->CanSample(), model_.CanSample());
    AGREE("result of Sample", table_->Sample(n, rate_limited, &samples_, &effects_),
          static_cast<int64_t>(samples_.size()));
    RETURN_DISAGREEMENT(FollowSamples(rate_limited));
    if (static_cast<int64_t>(samples_.size()) < n && model_.CanSample())
      return Disagree("samples", samples_.size(), "more");
    if (static_cast<int64_t>(samples_.size()) > n) return Disagree("samples", samples_.size(), n);
    samples_.clear();
    return "";
  }

  // A batch that cannot be drawn changes nothing.
  std::string SampleWhole() {
    operation_ = "sample a whole batch";
    const auto n = static_cast<int64_t>(1 + random_.Below(8));
    const bool can_sample = model_.CanSample();
    samples_.clear();
    const Result<int64_t> drawn =
        table_->SampleBatch(n, {}, nullptr, /*whole=*/true, false, &samples_, &effects_);
    AGREE("status of SampleBatch", drawn.ok(), true);
    AGREE("result of SampleBatch", *drawn, static_cast<int64_t>(samples_.size()));
    if (*drawn != n) AGREE("samples of a whole batch", *drawn, 0);
    if (n == 1) AGREE("samples of a batch of 1", *drawn, can_sample ? 1 : 0);
    RETURN_DISAGREEMENT(FollowSamples(false));
    samples_.clear();
    return "";
  }

  // Compares samples_ with what the model may select, and counts them there.
  std::string FollowSamples(bool rate_limited) {
    for (size_t i = 0; i < samples_.size(); ++i) {
      if (!model_.CanSample()) return Disagree("samples", samples_.size(), i);
      const internal::Sample& sample = samples_[i];
      const auto chance = model_.ChanceOf(Role::kSampler, sample.key);
      if (!chance) return Disagree("sampled item", sample.key, "that it cannot be chosen");
      if (!(std::abs(sample.probability - *chance) <= 1e-12 * *chance)) {
        return Disagree("probability", sample.probability, *chance);
      }
      const ModelItem& item = *model_.Find(sample.key);
      AGREE("priority of a sample", sample.priority, item.priority);
      AGREE("times_sampled of a sample", sample.times_sampled, item.times_sampled + 1);
      AGREE("table_size of a sample", sample.table_size, model_.size());
      AGREE("inserted_at of a sample", sample.inserted_at, item.inserted_at);
      AGREE("rate_limited of a sample", sample.rate_limited, rate_limited);
      RETURN_DISAGREEMENT(CompareData(sample.trajectory, item));
      model_.Sample(sample.key);
    }
    return "";
  }

  internal::TimePoint TimeOf(int64_t wall) const {
    constexpr int64_t kStart = 1'600'000'000'000'000'000;
    return internal::TimePoint(internal::Duration(wall - kStart));
  }

  std::string Lease() {
    operation_ = "lease";
    const auto n = static_cast<int64_t>(1 + random_.Below(random_.Below(8) == 0 ? 20 : 3));
    const bool whole = random_.Below(3) == 0;
    const bool can_lease_all = model_.CanLease(n);
    const int64_t expires = wall_ + 1 + static_cast<int64_t>(random_.Below(100));
    samples_.clear();
    const Result<int64_t> drawn =
        table_->SampleLeased(n, {}, nullptr, whole, false, TimeOf(expires), &samples_);
    AGREE("status of SampleLeased", drawn.ok(), true);
    AGREE("result of SampleLeased", *drawn, static_cast<int64_t>(samples_.size()));
    if (whole) AGREE("whole lease", *drawn, can_lease_all ? n : 0);
    for (const internal::Sample& sample : samples_) {
      if (!model_.CanSample()) return Disagree("leased items", samples_.size(), "fewer");
      const auto chance = model_.ChanceOf(Role::kSampler, sample.key);
      if (!chance) return Disagree("leased item", sample.key, "that it cannot be chosen");
      if (!(std::abs(sample.probability - *chance) <= 1e-12 * *chance)) {
        return Disagree("probability", sample.probability, *chance);
      }
      const ModelItem& item = *model_.Find(sample.key);
      AGREE("times_sampled of a leased sample", sample.times_sampled, item.times_sampled + 1);
      AGREE("table_size of a leased sample", sample.table_size, model_.size());
      RETURN_DISAGREEMENT(CompareData(sample.trajectory, item));
      const LeaseGrant grant{.key = sample.key, .id = sample.lease_id};
      AGREE("lease id of 0", grant.id == 0, false);
      model_.Lease(grant, expires);
      grants_.push_back(grant);
    }
    if (!whole && *drawn < n && model_.CanSample()) return Disagree("leased items", *drawn, "more");
    samples_.clear();
    // Keeps old ones too: their leases have ended.
    if (grants_.size() > 60) grants_.erase(grants_.begin(), grants_.begin() + 20);
    return "";
  }

  std::string Settle() {
    operation_ = "settle";
    if (grants_.empty()) return "";
    std::vector<LeaseGrant> grants;
    for (uint64_t i = 1 + random_.Below(4); i > 0; --i) {
      grants.push_back(grants_[random_.Below(grants_.size())]);
      if (random_.Below(20) == 0) ++grants.back().key;
    }
    const uint64_t dice = random_.Below(5);
    const int64_t expires = wall_ + 1 + static_cast<int64_t>(random_.Below(100));
    LeaseOutcome expected;
    for (const LeaseGrant& grant : grants) {
      expected += dice < 3    ? model_.Acknowledge(grant)
                  : dice == 3 ? model_.Release(grant)
                              : model_.Extend(grant, expires);
    }
    const LeaseOutcome outcome = dice < 3    ? table_->Acknowledge(grants, &effects_)
                                 : dice == 3 ? table_->Release(grants)
                                             : table_->Extend(grants, TimeOf(expires));
    detail_ = dice < 3 ? "by an acknowledgement" : dice == 3 ? "by a release" : "by an extension";
    AGREE("settled leases", outcome.settled, expected.settled);
    AGREE("leases of items that are gone", outcome.gone, expected.gone);
    AGREE("expired leases", outcome.expired, expected.expired);
    return "";
  }

  std::string Mutate() {
    operation_ = "mutate";
    std::array<uint64_t, 2> deletes;
    std::array<KeyPriority, 8> updates;
    const size_t num_deletes = random_.Below(4) == 0 ? 1 + random_.Below(deletes.size()) : 0;
    const size_t num_updates = random_.Below(updates.size() + 1);
    for (size_t i = 0; i < num_deletes; ++i) deletes[i] = AnyKey();
    for (size_t i = 0; i < num_updates; ++i) {
      updates[i] = {AnyKey(), RandomPriority()};
      AGREE("CheckPriority", table_->CheckPriority(updates[i].key, updates[i].priority).ok(), true);
    }
    table_->Mutate(std::span(updates).first(num_updates), std::span(deletes).first(num_deletes), &effects_);
    for (size_t i = 0; i < num_deletes; ++i) model_.Delete(deletes[i]);
    for (size_t i = 0; i < num_updates; ++i) model_.Update(updates[i].key, updates[i].priority);
    return "";
  }

  // Checks a priority that may be invalid; the check changes nothing.
  std::string Refuse() {
    operation_ = "check priority";
    const double priority = random_.Below(4) == 0 ? std::numeric_limits<double>::quiet_NaN() : WildPriority();
    const bool accepted = model_.Accepts(priority);
    const Status status = table_->CheckPriority(7, priority);
    if (status.ok() != accepted) detail_ = std::to_string(priority);
    AGREE("CheckPriority", status.ok(), accepted);
    if (!accepted) {
      AGREE("code of a refusal", static_cast<int>(status.code()),
            static_cast<int>(StatusCode::kInvalidArgument));
      AGREE("detail of a refusal", static_cast<int>(status.detail()),
            static_cast<int>(Detail::kInvalidPriority));
    }
    return "";
  }

  std::string Find() {
    operation_ = "find";
    const uint64_t key = AnyKey();
    const ModelItem* const expected = model_.Find(key);
    AGREE("Contains", table_->Contains(key), expected != nullptr);
    const auto found = table_->Find(key);
    AGREE("Find", found.has_value(), expected != nullptr);
    return found ? ComparePeeked(*found, *expected) : "";
  }

  std::string Peek() {
    operation_ = "peek";
    uint64_t cursor = 0;
    const auto n = static_cast<int64_t>(1 + random_.Below(10));
    int64_t seen = 0;
    for (;;) {
      const std::vector<internal::Sample> part = table_->Peek(n, &cursor);
      if (part.empty()) break;
      seen += static_cast<int64_t>(part.size());
      for (const internal::Sample& item : part) {
        const ModelItem* const expected = model_.Find(item.key);
        if (expected == nullptr) return Disagree("peeked item", item.key, "that it is not there");
        RETURN_DISAGREEMENT(ComparePeeked(item, *expected));
      }
    }
    AGREE("number of peeked items", seen, model_.size());
    return "";
  }

  std::string ChangeLimiter() {
    operation_ = "change limiter";
    const RateLimiterOptions limiter = RandomLimiter(limiter_, table_->max_size(), &random_);
    table_->SetRateLimiter(limiter);
    model_.SetRateLimiter(limiter);
    return "";
  }

  // Time passes, and items reach max_age.
  void Tick() {
    wall_ += 1 + static_cast<int64_t>(random_.Below(3));
    if (table_->depends_on_time()) table_->AdvanceTo(Now().now, &effects_);
    effects_.RunAndClear();
    model_.ExpireLeases(wall_);
    if (max_age_ > 0) model_.AgeOut(wall_, max_age_);
  }
  ClockReading Now() const { return {.now = TimeOf(wall_), .wall_nanos = wall_}; }

  std::string ChangeLimits() {
    operation_ = "change limits";
    TableChanges changes;
    if (random_.Below(2) == 0) changes.max_size = static_cast<int64_t>(1 + random_.Below(40));
    if (random_.Below(2) == 0) changes.max_times_sampled = static_cast<int32_t>(random_.Below(4));
    if (random_.Below(2) == 0) changes.max_age = RandomAge(&random_);
    if (changes.max_size) changes.rate_limiter = RandomLimiter(limiter_, *changes.max_size, &random_);
    table_->Change(changes, Now());
    if (changes.rate_limiter) model_.SetRateLimiter(*changes.rate_limiter);
    if (changes.max_size) model_.SetMaxSize(*changes.max_size);
    if (changes.max_times_sampled) model_.SetMaxTimesSampled(*changes.max_times_sampled);
    if (changes.max_age) max_age_ = changes.max_age->count();
    if (max_age_ > 0) model_.AgeOut(wall_, max_age_);
    if (max_age_ > 0) {
      while (table_->AdvanceTo(Now().now, &effects_, 1)) {
      }
    }
    while (model_.IsOverfull()) {
      table_->EvictExcess(1, &effects_);
      RETURN_DISAGREEMENT(FollowEviction(&ModelTable::EvictExcess));
    }
    return "";
  }

  std::string Reset() {
    operation_ = "reset";
    table_->Reset(&effects_);
    model_.Reset();
    return "";
  }

  std::string TakeSnapshot() {
    operation_ = "take a snapshot";
    if (random_.Below(4) == 0) only_zeros_ = 40;
    if (held_.size() >= 3) return "";
    held_.push_back({.snapshot = table_->TakeSnapshot(), .model = model_});
    return "";
  }

  // Replaces the table by one that is restored from its checkpoint state. The model does not change.
  std::string SaveAndRestore() {
    operation_ = "save and restore";
    const std::unique_ptr<TableSnapshot> snapshot = table_->TakeSnapshot();
    const TableSnapshot::State& state = snapshot->state();
    internal::SavedTableState saved{.counters = state.counters,
                                    .counts = state.counts,
                                    .sequence = state.sequence,
                                    .num_slots = snapshot->num_slots()};
    if (state.sampler_state) state.sampler_state->Encode(&saved.sampler_state);
    if (state.remover_state) state.remover_state->Encode(&saved.remover_state);
    for (uint64_t next = state.free_head; next != 0; next = snapshot->slot(next - 1).key) {
      saved.free_slots.push_back(static_cast<Slot>(next - 1));
    }
    TableOptions options = options_;
    TableChanges{.max_size = state.max_size,
                 .max_times_sampled = state.max_times_sampled,
                 .max_age = internal::Duration(state.max_age_nanos),
                 .rate_limiter = state.rate_limiter}
        .ApplyTo(&options);
    std::unique_ptr<TableState> restored = TableState::Create(options).value();
    restored->BeginRestore(saved.num_slots, static_cast<uint64_t>(state.size));
    for (size_t slot = 0; slot < snapshot->num_slots(); ++slot) {
      const SlotRecord& record = snapshot->slot(slot);
      if (record.is_free()) continue;
      const Status status =
          restored->RestoreItem({record.Share(), static_cast<Slot>(slot), record.inserted, record.touched});
      if (!status.ok()) return status.ToString();
    }
    if (const Status status = restored->FinishRestore(saved, &effects_, Now()); !status.ok())
      return status.ToString();
    table_ = std::move(restored);
    model_.ForgetLeases();
    return "";
  }

  // Compares a snapshot with the model as of the time of the snapshot, and releases it.
  std::string DropSnapshot(size_t which) {
    operation_ = "drop a snapshot";
    const Held held = std::move(held_[which]);
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(which));
    return CompareSnapshot(*held.snapshot, held.model);
  }

  // --- Comparisons ---

  std::string CompareData(const Trajectory& trajectory, const ModelItem& item) const {
    const Trajectory& expected = pool_.trajectory(static_cast<size_t>(item.data.id));
    AGREE("columns", trajectory.num_columns(), 1u);
    AGREE("slices", trajectory.num_slices(0), expected.num_slices(0));
    for (uint32_t i = 0; i < expected.num_slices(0); ++i) {
      AGREE("chunk of a slice", trajectory.slice(0, i).chunk, expected.slice(0, i).chunk);
      AGREE("length of a slice", trajectory.slice(0, i).length, expected.slice(0, i).length);
    }
    return "";
  }

  std::string ComparePeeked(const internal::Sample& peeked, const ModelItem& item) const {
    AGREE("key", peeked.key, item.key);
    AGREE("priority", peeked.priority, item.priority);
    AGREE("times_sampled", peeked.times_sampled, item.times_sampled);
    AGREE("inserted_at", peeked.inserted_at, item.inserted_at);
    return CompareData(peeked.trajectory, item);
  }

  std::string CompareNumbers() {
    table_->FillInfo(&info_);
    AGREE("size", table_->size(), model_.size());
    AGREE("current_size", info_.current_size, model_.size());
    AGREE("inserts", info_.counters.inserts, model_.counters.inserts);
    AGREE("samples", info_.counters.samples, model_.counters.samples);
    AGREE("deletes", info_.counters.deletes, model_.counters.deletes);
    AGREE("uncounted_inserts", info_.counters.uncounted_inserts, model_.counters.uncounted_inserts);
    AGREE("cursor", info_.cursor, model_.cursor());
    AGREE("num_episodes", info_.num_episodes, model_.num_episodes());
    AGREE("num_deleted_episodes", info_.num_deleted_episodes, model_.num_deleted_episodes);
    AGREE("num_unique_samples", info_.num_unique_samples, model_.num_unique_samples);
    AGREE("referenced_bytes", info_.referenced_bytes, model_.referenced_bytes());
    AGREE("evictions", info_.evictions, model_.evictions);
    AGREE("expirations", info_.expirations, model_.expirations);
    AGREE("explicit_deletes", info_.explicit_deletes, model_.explicit_deletes);
    AGREE("aged_out", info_.aged_out, model_.aged_out);
    AGREE("max_age", info_.max_age_nanos, max_age_);
    AGREE("updates", info_.updates, model_.updates);
    AGREE("unknown_keys", info_.unknown_keys, model_.unknown_keys);
    AGREE("leased items", info_.leases.leased, model_.num_leased());
    AGREE("granted leases", info_.leases.granted, model_.lease_counts.granted);
    AGREE("acknowledged leases", info_.leases.acknowledged, model_.lease_counts.acknowledged);
    AGREE("expired leases", info_.leases.expired, model_.lease_counts.expired);
    AGREE("late settlements", info_.leases.late, model_.lease_counts.late);
    return "";
  }

  std::string CompareItems() {
    for (const ModelItem& item : model_.items()) {
      const auto found = table_->Find(item.key);
      if (!found) return Disagree("item", item.key, "that it is there");
      RETURN_DISAGREEMENT(ComparePeeked(*found, item));
    }
    return held_.empty() ? CompareStoredBytes() : "";
  }

  // While snapshots are held, items from before a reset may still count.
  std::string CompareStoredBytes() {
    AGREE("stored bytes", store_.stored_bytes(), pool_.BytesOf(model_.chunks()));
    AGREE("live chunks", store_.stats().live_chunks, pool_.chunk_count());
    return "";
  }

  std::string CompareSnapshot(const TableSnapshot& snapshot, const ModelTable& model) const {
    AGREE("size of a snapshot", snapshot.size(), model.size());
    AGREE("inserts of a snapshot", snapshot.state().counters.inserts, model.counters.inserts);
    AGREE("samples of a snapshot", snapshot.state().counters.samples, model.counters.samples);
    AGREE("deletes of a snapshot", snapshot.state().counters.deletes, model.counters.deletes);
    AGREE("updates of a snapshot", snapshot.state().counts.updates, model.updates);
    AGREE("evictions of a snapshot", snapshot.state().counts.evictions, model.evictions);
    AGREE("num_unique_samples of a snapshot", snapshot.state().counts.num_unique_samples,
          model.num_unique_samples);
    AGREE("num_deleted_episodes of a snapshot", snapshot.state().counts.num_deleted_episodes,
          model.num_deleted_episodes);
    std::vector<const SlotRecord*> records;
    for (size_t i = 0; i < snapshot.num_slots(); ++i) {
      if (snapshot.slot(i).is_free()) continue;
      const internal::Sample item = snapshot.item(i);
      const ModelItem* const expected = model.Find(item.key);
      if (expected == nullptr) return Disagree("item of a snapshot", item.key, "that it was not there");
      RETURN_DISAGREEMENT(ComparePeeked(item, *expected));
      records.push_back(&snapshot.slot(i));
    }
    AGREE("items of a snapshot", static_cast<int64_t>(records.size()), model.size());
    // The numbers may differ, but must order the items as the model's do.
    std::ranges::sort(records, {}, &SlotRecord::inserted);
    for (size_t i = 0; i < records.size(); ++i) {
      AGREE("order of insertion in a snapshot", records[i]->key, model.items()[i].key);
    }
    std::vector<const ModelItem*> by_touch;
    for (const ModelItem& item : model.items()) by_touch.push_back(&item);
    std::ranges::sort(by_touch, {}, &ModelItem::touched);
    std::ranges::sort(records, {}, &SlotRecord::touched);
    for (size_t i = 0; i < records.size(); ++i)
      AGREE("order of touches in a snapshot", records[i]->key, by_touch[i]->key);
    return "";
  }

  const TableOptions options_;
  const Limiter limiter_;
  const DataPool& pool_;
  const ChunkStore& store_;
  Random random_;
  std::unique_ptr<TableState> table_;
  ModelTable model_;
  int64_t max_age_;  // 0 = none
  std::vector<Held> held_;

  int64_t wall_ = 1'600'000'000'000'000'000;
  int only_zeros_ = 0;
  const char* operation_ = "";
  std::string detail_;
  Effects effects_;
  std::vector<internal::Sample> samples_;
  std::vector<LeaseGrant> grants_;
  TableInfo info_;
};

class TableModelTest : public testing::TestWithParam<std::tuple<Kind, Kind>> {};

TEST_P(TableModelTest, RandomOperationsAgree) {
  const auto [sampler, remover] = GetParam();
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  const int64_t steps = OperationsPerConfiguration() / kTablesPerConfiguration;
  ChunkStore store({});
  {
    const DataPool pool(&store);
    for (const Limiter limiter : kLimiters) {
      Random random(seed + 1'000 * static_cast<uint64_t>(sampler) + 100 * static_cast<uint64_t>(remover) +
                    10 * static_cast<uint64_t>(limiter));
      for (int64_t table = 0; table < kTablesPerConfiguration; ++table) {
        const TableOptions options = RandomTable(sampler, remover, limiter, &random);
        const auto configuration = [&] {
          return std::string(kLimiterNames[static_cast<size_t>(limiter)]) + ", table " +
                 std::to_string(table) + ": sampler " + options.sampler.ToString() + ", remover " +
                 options.remover.ToString() + ", max_size " + std::to_string(options.max_size) +
                 ", max_times_sampled " + std::to_string(options.max_times_sampled) + ", max_age " +
                 std::to_string(options.max_age.count()) + ", " + options.rate_limiter.ToString();
        };
        Duel duel(options, limiter, pool, store, random.Next());
        for (int64_t step = 0; step < steps; ++step) {
          const std::string disagreement = duel.Step();
          if (disagreement.empty()) [[likely]]
            continue;
          FAIL() << disagreement << "\n  step " << step << ", " << duel.operation() << "\n  "
                 << configuration();
        }
        const std::string disagreement = duel.Finish();
        ASSERT_EQ(disagreement, "") << "at the end\n  " << configuration();
      }
    }
  }
  EXPECT_EQ(store.stats().live_chunks, 0);
  EXPECT_EQ(store.stored_bytes(), 0);
}

constexpr Kind kKinds[] = {Kind::kFifo,    Kind::kLifo,    Kind::kUniform,
                           Kind::kMinHeap, Kind::kMaxHeap, Kind::kPrioritized};
constexpr const char* kKindNames[] = {"Custom",  "Fifo",    "Lifo",       "Uniform",
                                      "MinHeap", "MaxHeap", "Prioritized"};

INSTANTIATE_TEST_SUITE_P(EveryPair, TableModelTest,
                         testing::Combine(testing::ValuesIn(kKinds), testing::ValuesIn(kKinds)),
                         [](const auto& info) {
                           return std::string(kKindNames[static_cast<size_t>(std::get<0>(info.param))]) +
                                  "Sampler" + kKindNames[static_cast<size_t>(std::get<1>(info.param))] +
                                  "Remover";
                         });

}  // namespace
}  // namespace reverb::model
