// table_state.h — the rules of a table, without locks.
//
// Items are stored in slots; one lookup finds the slot of a key; every change updates the two selectors and
// the limiter. Nothing here waits or fails half-way: callers call Check… and Can… first.
//
// Work that must not happen under the table's lock (freeing data, work on other tables) is collected in
// Effects; the caller runs it after releasing the lock.
//
// Threads: needs the table's lock, except for the methods marked "any thread".
#ifndef REVERB_CORE_TABLE_STATE_H_
#define REVERB_CORE_TABLE_STATE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/flat_array.h"
#include "base/paged_array.h"
#include "core/key_index.h"
#include "core/leases.h"
#include "core/rate_limiter.h"
#include "core/restore.h"
#include "core/selectors/slot_list.h"
#include "core/snapshot.h"
#include "core/table_layout.h"
#include "reverb/extension.h"
#include "reverb/item.h"
#include "reverb/lease.h"
#include "reverb/selector.h"
#include "reverb/status.h"
#include "reverb/table_info.h"
#include "reverb/table_options.h"
#include "tensor/batch_rules.h"
#include "tensor/item.h"

namespace reverb::internal {

// The time on both scales of a Clock.
struct ClockReading {
  TimePoint now = {};
  int64_t wall_nanos = 0;
};

// What a survey of a table tells of an item.
struct ItemMark {
  double priority = 0;
  int64_t inserted_at = 0;  // nanoseconds since the Unix epoch
  int32_t times_sampled = 0;
};

struct Effects {
  std::vector<Trajectory> released;
  // Released by RunAndClear(): first their references to chunks, then the data, unless a snapshot shows it.
  std::vector<std::shared_ptr<RetiredSlots>> retired_slots;
  std::vector<std::function<void()>> after_unlock;

  bool empty() const { return released.empty() && retired_slots.empty() && after_unlock.empty(); }
  // Runs and frees all of it. REQUIRES: no lock is held.
  void RunAndClear();
};

// Describes settings that are valid one by one, but leave a table that cannot work as intended, for example one
// that can never be sampled. dm-reverb accepts them, so servers only warn of them.
std::vector<std::string> FindContradictions(const TableSettings& settings);

// Returns whether both select in the same way; seeds may differ.
bool SelectTheSame(const SelectorOptions& a, const SelectorOptions& b);

class TableState {
 public:
  static Result<std::unique_ptr<TableState>> Create(TableOptions options);
  ~TableState();
  TableState(const TableState&) = delete;
  TableState& operator=(const TableState&) = delete;

  // As created: Settings() has those in force. Any thread.
  const TableOptions& options() const { return options_; }
  TableLayout& layout() { return layout_; }  // any thread
  int64_t size() const { return size_; }
  std::optional<double> sampling_mass() const { return sampler_->Mass(); }
  int64_t max_size() const { return max_size_; }
  int32_t max_times_sampled() const { return max_times_sampled_; }
  Duration max_age() const { return max_age_; }
  int64_t referenced_bytes() const { return referenced_bytes_; }
  // Returns 0 if there is no bound.
  int64_t max_bytes() const { return has_max_bytes() ? max_bytes_ : 0; }
  // Returns whether the remover evicts items for this one, by max_size or max_bytes.
  bool IsFullFor(const Item& item) const;
  // Returns about how much memory the table takes besides chunks: slots, keys, selectors, ages, leases, and slices of
  // items.
  int64_t index_bytes() const {
    return static_cast<int64_t>(slots_.size() * (sizeof(SlotRecord) + selector_bytes_per_slot_) +
                                born_.size() * (sizeof(TimePoint) + SlotList::kBytesPerSlot)) +
           index_.memory_bytes() + episodes_.memory_bytes() + slices_bytes_ +
           (chunk_uses_ ? chunk_uses_->memory_bytes() : 0) +
           (leases_ != nullptr ? leases_->memory_bytes() : 0);
  }
  // CountCopies() charges what only snapshots keep of the slots, about, until they are destroyed.
  void ChargeSnapshotsTo(MemoryBudget* budget) { parking_->ChargeTo(budget); }
  void CountCopies() {
    constexpr uint64_t kGranule = 4;  // pages
    if (slots_.pages_copied() - counted_copies_ < kGranule) [[likely]]
      return;
    parking_->CountSlots(static_cast<int64_t>((slots_.pages_copied() - counted_copies_) *
                                              PagedArray<SlotRecord>::kPageMemory));
    counted_copies_ = slots_.pages_copied();
  }
  // Returns whether a snapshot keeps the data of items that are removed now.
  bool parks_removed_items() const { return parking_->is_open(); }
  const RateLimiter& limiter() const { return limiter_; }

  // Returns an error if a selector rejects this priority. Any thread.
  Status CheckPriority(uint64_t key, double priority) const;
  // CheckPriority(), and the trajectory must not be empty. Any thread.
  Status CheckItem(const Item& item) const;

  bool Contains(uint64_t key) const { return index_.Find(key).has_value(); }
  bool CanInsert() const { return limiter_.CanInsert(1); }
  bool CanSample() const { return size_ > leased_ && limiter_.CanSample(1); }

  // Inserts, or sets the priority (and nothing else) if the key exists. Evicts one item if the table is
  // larger than max_size. REQUIRES: CheckItem(item).ok(), and CanInsert() unless Contains(key).
  void InsertOrAssign(Item&& item, int64_t wall_nanos, Effects* effects);
  // Prefetches the memory that inserting the item will access.
  void PrefetchInsert(const Item& item) const {
    index_.Prefetch(item.key);
    __builtin_prefetch(Trajectory::counted_object(item.trajectory.handle()), 1);
  }
  // Removes the item that the remover picks. REQUIRES: size() > 0.
  void EvictOne(Effects* effects);
  // Evicts up to n items of a table that is larger than max_size, which was lowered. Returns whether more are
  // left to evict.
  bool EvictExcess(int64_t n, Effects* effects);

  // --- Items that age (max_age), and leases that expire ---
  // A table that depends on time needs AdvanceTo() before each operation. It ends the leases that have expired
  // and removes the items that have reached max_age; items inserted afterwards count from `now`, so that steps
  // of the wall clock do not matter. Returns whether it has done so with `most` items and others are left: then
  // nothing else may be done with the items.
  bool has_max_age() const { return max_age_ > Duration(0); }
  bool depends_on_time() const { return has_max_age() || has_leases(); }
  bool AdvanceTo(TimePoint now, Effects* effects, int64_t most = std::numeric_limits<int64_t>::max());
  // Returns the time at which AdvanceTo() next finds something to remove.
  std::optional<TimePoint> NextAged() const;

  // --- Leases (table_leases.cc) ---
  // An item that is sampled under a lease stays in the table: it counts for size and bytes, and can be updated,
  // evicted and deleted. But the sampler cannot select it until the lease ends.
  //   * The limiter reserves a sample for each lease (rate_limiter.h). min_size_to_sample counts leased items.
  //   * An acknowledged sample is counted then, not when it was drawn: times_sampled, the limiter's counter, the
  //     hooks OnSample, and the removal of an item that reaches max_times_sampled.
  //   * After a release, or when the lease has expired, the item is selected as if it had not been sampled.
  //   * If the item leaves the table meanwhile, the lease stays: acknowledging it counts a sample for the
  //     limiter, since the consumer has the data. It ends if the limiter wrote off the item's insert, or if
  //     max_size later leases are of items that left, too.
  //   * An acknowledgement that is repeated, because its answer was lost, is counted once.
  //   * Snapshots show leased items as if they were not leased.
  int64_t num_leased() const { return leased_; }
  bool has_leases() const { return leases_ != nullptr && !leases_->empty(); }
  // Like SampleBatch(), under leases until `expires`. Draws each item once. After an error, nothing was drawn.
  Result<int64_t> SampleLeased(int64_t n, const BatchRules& rules, const Trajectory* first, bool whole,
                               bool rate_limited, TimePoint expires, std::vector<internal::Sample>* out);
  // INVALID_ARGUMENT if n items can never be leased together.
  Status CheckWholeLease(int64_t n) const;
  LeaseOutcome Acknowledge(std::span<const LeaseGrant> grants, Effects* effects);
  LeaseOutcome Release(std::span<const LeaseGrant> grants);
  LeaseOutcome Extend(std::span<const LeaseGrant> grants, TimePoint expires);
  std::optional<TimePoint> NextLeaseExpiry() const;
  // Returns why the next sample has to wait; kNone if it need not.
  WaitReason SampleWaitReason() const;

  // Draws up to n items, as many as the limiter allows, and appends them to `out`.
  int64_t Sample(int64_t n, bool rate_limited, std::vector<internal::Sample>* out, Effects* effects);
  // Same, according to rules. `first`: the first sample of the batch if others were drawn before; null if not.
  // With `whole`, draws n samples or none. After an error, `out` has the samples that were drawn before it:
  // none, unless extensions see each draw.
  Result<int64_t> SampleBatch(int64_t n, const BatchRules& rules, const Trajectory* first, bool whole,
                              bool rate_limited, std::vector<internal::Sample>* out, Effects* effects);
  // Returns whether the table can ever hold n items that may be sampled together.
  bool CanDrawWhole(int64_t n) const;
  // INVALID_ARGUMENT with the reason if not.
  Status CheckWholeBatch(int64_t n) const;
  // INVALID_ARGUMENT if n samples, which cannot be drawn together now, will not be possible later either,
  // because the limiter allows no insert before a sample.
  Status CheckMayComplete(int64_t n) const;
  bool removes_sampled_items() const { return max_times_sampled_ >= 1; }

  // Deletes, then sets priorities, each in order; counts and skips unknown keys.
  // REQUIRES: CheckPriority for every update.
  void Mutate(std::span<const KeyPriority> updates, std::span<const uint64_t> deletes, Effects* effects);

  // Empties the table and the limiter's counters.
  void Reset(Effects* effects);
  // REQUIRES: options.Validate().ok().
  void SetRateLimiter(const RateLimiterOptions& options) { limiter_.set_options(options); }
  // Sets limits in use. Afterwards the table may be larger than a new max_size or max_bytes, and have items beyond a
  // new max_age: call AdvanceTo() and EvictExcess() until it has none. Items that are present get their age from
  // the time at which they were inserted. REQUIRES: the changed options are valid.
  void Change(const TableChanges& changes, const ClockReading& now);

  std::optional<internal::Sample> Find(uint64_t key) const;
  // Returns up to n items from slot `*cursor` on; moves the cursor past the last one visited.
  std::vector<internal::Sample> Peek(int64_t n, uint64_t* cursor) const;
  // Returns marks of up to `most` items, evenly spread over the slots.
  std::vector<ItemMark> Survey(size_t most) const;

  // Returns the settings in force: those of the selectors in use, and the limiter's as set last.
  TableSettings Settings() const;
  // Fills the fields of `info` that the state knows.
  void FillInfo(TableInfo* info) const;

  std::unique_ptr<TableSnapshot> TakeSnapshot();

  // --- Restoring a new table ---
  // Must be called first. `num_slots`: the number of slots; 0 when items have none. `num_items`: about how
  // many of them will be used.
  void BeginRestore(uint64_t num_slots, uint64_t num_items);
  // Prefetches what RestoreItem() will touch.
  void PrefetchRestore(const SavedItem& item) const {
    index_.Prefetch(item.key);
    if (!item.trajectory.empty()) {
      __builtin_prefetch(Trajectory::counted_object(item.trajectory.handle()), 1);
    }
  }
  // Adds an item, not yet to the selectors. DATA_LOSS when it cannot be an item of this table.
  Status RestoreItem(SavedItem item);
  // Called last: restores selectors, counters and extensions; evicts items beyond max_size and max_bytes. DATA_LOSS when
  // state and items do not match: the table must not be used then.
  // `now`: needed by tables with max_age, which first remove what has reached it.
  Status FinishRestore(const SavedTableState& state, Effects* effects, const ClockReading& now = {});

 private:
  class HookContext;
  static constexpr int64_t kNoMaxBytes = INT64_MAX;
  enum class Removal { kEvicted, kExpired, kDeleted, kAged, kShrunk };
  bool has_max_bytes() const { return max_bytes_ != kNoMaxBytes; }
  bool IsTooLarge() const { return size_ > max_size_ || held_bytes_ > max_bytes_; }
  void SetMaxBytes(int64_t max_bytes);
  // Counts another item that refers to the chunk. REQUIRES: has_max_bytes().
  void HoldChunk(Chunk* chunk);

  TableState(TableOptions options, std::unique_ptr<Selector> sampler, std::unique_ptr<Selector> remover);

  Slot TakeFreeSlot();
  // Prefetches what evicting the likely next item will touch.
  void PrefetchEviction() const;
  void Remove(Slot slot, Removal why, Effects* effects);
  void SetPriority(Slot slot, double priority);
  // Adds the youngest item. `born` must not be before that of the others.
  void AddAge(Slot slot, TimePoint born);
  // Computes by_age_ and born_ from the slots.
  void RebuildAges(const ClockReading& now);
  Status RestoreFreeSlots(const SavedTableState& state);
  Status RestoreCounters(const RateLimiterCounters& counters);
  Status RestoreExtensions(std::span<const SelectorItem> items_by_age, const SavedTableState& state);
  void DrawBatch(int64_t n, bool rate_limited, std::vector<internal::Sample>* out);
  void DrawOneByOne(int64_t n, bool rate_limited, std::vector<internal::Sample>* out, Effects* effects);
  // Samples `pick`, and removes the item if it is used up.
  void Take(const Selection& pick, bool rate_limited, std::vector<internal::Sample>* out, Effects* effects);
  // Returns an upper bound of the samples that `size` items provide, if none is inserted.
  int64_t MostDraws(int64_t size) const;
  // Returns false if n samples cannot be drawn together now. Takes constant time.
  bool MayDraw(int64_t n) const;
  std::string DescribeLimits() const;
  // Selects at most n items into selections_, as DrawOneByOne() would, and changes nothing. `before`: the
  // number of samples of the batch that were drawn before.
  Status Plan(int64_t n, int64_t before, const BatchRules& rules, const Trajectory* first);
  std::vector<std::string> ColumnNames() const;
  // Counts a sample and fills a new Sample with it.
  void Record(const Selection& selection, bool rate_limited, internal::Sample* sample);
  // Counts a sample of the item.
  void CountSampled(SlotRecord* record) {
    if (record->times_sampled == 0) ++counts_.num_unique_samples;
    if (record->times_sampled < std::numeric_limits<int32_t>::max()) ++record->times_sampled;
  }

  SelectorItem EntryOf(Slot slot) const {
    const SlotRecord& record = slots_[slot];
    return {
        .slot = slot, .priority = record.priority, .inserted = record.inserted, .touched = record.touched};
  }
  bool IsLeased(Slot slot) const { return leased_ > 0 && leases_->IsLeased(slot); }
  // Leases `pick`.
  internal::Sample Grant(const Selection& pick, bool rate_limited, TimePoint expires);
  // Ends a lease; the sample of one that was acknowledged has been counted.
  void EndLease(uint64_t id, bool was_acknowledged = false);
  // Ends the oldest leases of items that have left the table, if there are more than max_size.
  void BoundOrphanedLeases();
  // Ends at most *most leases that have expired, and subtracts their number. Returns whether others are left.
  bool ExpireLeases(int64_t* most);
  std::unique_ptr<SelectorCapture> CaptureSampler();

  ItemView ViewOf(const SlotRecord& record, const Trajectory& trajectory) const;
  // Calls one hook of every extension for an item, then applies the priority updates they requested.
  using Hook = void (TableExtension::*)(const ItemView&, TableExtension::Context&);
  void RunHooks(Hook hook, const SlotRecord& record, Effects* effects);

  const TableOptions options_;
  const uint64_t instance_;
  TableLayout layout_;
  const std::unique_ptr<Selector> sampler_;
  const std::unique_ptr<Selector> remover_;
  const bool remover_is_deterministic_;
  const size_t selector_bytes_per_slot_;  // of both together, about
  RateLimiter limiter_;
  int64_t max_size_;
  int32_t max_times_sampled_;
  Duration max_age_;
  int64_t max_bytes_;  // kNoMaxBytes: none

  KeyIndex index_;
  PagedArray<SlotRecord> slots_;
  uint64_t counted_copies_ = 0;  // of its pages
  uint64_t free_head_ = 0;       // 1 + first free slot; free slots are chained through their keys
  int64_t size_ = 0;
  uint64_t sequence_ = 0;  // number of the last operation that touched an item

  KeyIndex episodes_;  // counts the chunks of present items, by episode
  int64_t referenced_bytes_ = 0;
  int64_t slices_bytes_ = 0;  // of the trajectories
  // With max_bytes only: counts the items of this table that refer to a chunk, by its address; and the bytes of these
  // chunks.
  std::optional<KeyIndex> chunk_uses_;
  int64_t held_bytes_ = 0;
  TableCounts counts_;

  // With max_age only: the present items, oldest first, and when each was inserted, by slot.
  SlotList by_age_;
  FlatArray<TimePoint> born_;
  TimePoint now_;  // of the last AdvanceTo()

  int64_t leased_ = 0;                 // items, of size_, that the sampler does not have
  std::unique_ptr<LeaseBook> leases_;  // null until the first lease
  std::function<uint64_t(Slot)> inserted_of_;
  LeaseCounts lease_counts_;  // except for `leased`

  const std::shared_ptr<SnapshotParking> parking_ = std::make_shared<SnapshotParking>();

  // Members to avoid an allocation in every call.
  std::vector<Selection> selections_;
  std::vector<SelectorItem> updates_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_TABLE_STATE_H_
