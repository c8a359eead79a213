#include "core/table_state.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "core/selectors/selectors_internal.h"

namespace reverb::internal {
namespace {

Result<std::unique_ptr<Selector>> BuildSelector(const TableOptions& table, const char* role,
                                                const SelectorOptions& options,
                                                const std::function<std::unique_ptr<Selector>()>& custom) {
  if (!custom) {
    Result<std::unique_ptr<Selector>> made = MakeSelector(options);
    if (made.ok()) return made;
    return Status(made.status().code(),
                  "table \"" + table.name + "\", " + role + ": " + std::string(made.status().message()),
                  made.status().detail());
  }
  std::unique_ptr<Selector> selector = custom();
  if (selector == nullptr) {
    return Status::InvalidArgument("table \"" + table.name + "\": the custom " + role +
                                   " factory returned null");
  }
  return selector;
}

uint64_t NextInstance() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

void Effects::RunAndClear() {
  for (std::function<void()>& work : after_unlock) work();
  after_unlock.clear();
  released.clear();
  for (const std::shared_ptr<RetiredSlots>& retired : retired_slots) retired->DropItemRefs();
  for (const std::shared_ptr<RetiredSlots>& retired : retired_slots) retired->FreeUnshown();
  retired_slots.clear();
}

// Collects what the hooks of one operation request.
class TableState::HookContext final : public TableExtension::Context {
 public:
  explicit HookContext(Effects* effects) : effects_(effects) {}
  void UpdatePriority(uint64_t key, double priority) override { updates.push_back({key, priority}); }
  void AfterUnlock(std::function<void()> work) override { effects_->after_unlock.push_back(std::move(work)); }

  std::vector<KeyPriority> updates;

 private:
  Effects* const effects_;
};

Result<std::unique_ptr<TableState>> TableState::Create(TableOptions options) {
  REVERB_RETURN_IF_ERROR(options.Validate());
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<Selector> sampler,
                          BuildSelector(options, "sampler", options.sampler, options.custom_sampler));
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<Selector> remover,
                          BuildSelector(options, "remover", options.remover, options.custom_remover));
  for (size_t i = 0; i < options.extensions.size(); ++i) {
    if (!options.extensions[i]->attached_.exchange(true)) continue;
    for (size_t k = 0; k < i; ++k) options.extensions[k]->attached_ = false;
    return Status::InvalidArgument("table \"" + options.name + "\": extension \"" +
                                   options.extensions[i]->name() +
                                   "\" already belongs to a table; create one object per table");
  }
  return std::unique_ptr<TableState>(
      new TableState(std::move(options), std::move(sampler), std::move(remover)));
}

TableState::TableState(TableOptions options, std::unique_ptr<Selector> sampler,
                       std::unique_ptr<Selector> remover)
    : options_(std::move(options)),
      instance_(NextInstance()),
      layout_(options_),
      sampler_(std::move(sampler)),
      remover_(std::move(remover)),
      remover_is_deterministic_(remover_->options().is_deterministic()),
      selector_bytes_per_slot_(SelectorBytesPerSlot(sampler_->options().kind) +
                               SelectorBytesPerSlot(remover_->options().kind)),
      limiter_(options_.rate_limiter),
      max_size_(options_.max_size),
      max_times_sampled_(options_.max_times_sampled),
      max_age_(options_.max_age) {
  SetMaxBytes(options_.max_bytes);
}

TableState::~TableState() {
  for (const auto& extension : options_.extensions) extension->attached_ = false;
  auto retired = std::make_shared<RetiredSlots>(&slots_);
  if (parking_->IsShown(1)) parking_->Park(retired);
  retired->DropItemRefs();
  retired->FreeUnshown();
}

Status TableState::CheckPriority(uint64_t key, double priority) const {
  // NaN cannot be ordered, whatever a custom selector accepts.
  Status status =
      std::isnan(priority)
          ? Status::InvalidArgument("priority is NaN; give a number").WithDetail(Detail::kInvalidPriority)
          : sampler_->CheckPriority(priority);
  if (status.ok()) status = remover_->CheckPriority(priority);
  if (status.ok()) return status;
  return Status(
      status.code(),
      "table \"" + options_.name + "\", item " + std::to_string(key) + ": " + std::string(status.message()),
      status.detail());
}

Status TableState::CheckItem(const Item& item) const {
  if (item.trajectory.empty()) {
    return Status::InvalidArgument("table \"" + options_.name + "\", item " + std::to_string(item.key) +
                                   ": item trajectory must not be empty");
  }
  return CheckPriority(item.key, item.priority);
}

Slot TableState::TakeFreeSlot() {
  if (free_head_ == 0) {
    slots_.PushBack(SlotRecord());
    return static_cast<Slot>(slots_.size() - 1);
  }
  const auto slot = static_cast<Slot>(free_head_ - 1);
  free_head_ = slots_[slot].key;
  return slot;
}

void TableState::PrefetchEviction() const {
  Selection pick;
  remover_->Sample({&pick, 1});  // changes nothing: the remover is deterministic
  const SlotRecord& record = slots_[pick.slot];
  index_.Prefetch(record.key);
  sampler_->Prefetch(pick.slot);
  by_age_.Prefetch(pick.slot);
  __builtin_prefetch(Trajectory::counted_object(record.trajectory), 1);
}

void TableState::InsertOrAssign(Item&& item, int64_t wall_nanos, Effects* effects) {
  // The memory to touch is mostly cold: prefetch all of it before using any of it.
  index_.Prefetch(item.key);
  if (size_ >= max_size_ && remover_is_deterministic_) PrefetchEviction();
  const Slot wanted = free_head_ != 0 ? static_cast<Slot>(free_head_ - 1) : static_cast<Slot>(slots_.size());
  const auto [slot, is_new] = index_.FindOrInsert(item.key, wanted);
  if (!is_new) {
    SetPriority(slot, item.priority);
    ++counts_.updates;
    effects->released.push_back(std::move(item.trajectory));
    RunHooks(&TableExtension::OnUpdate, slots_[slot], effects);
    return;
  }
  TakeFreeSlot();
  ++sequence_;
  SlotRecord& record = slots_.Mutable(slot);
  record.key = item.key;
  record.priority = item.priority;
  record.inserted_at = wall_nanos;
  record.inserted = record.touched = sequence_;
  record.times_sampled = item.times_sampled;
  record.trajectory = item.trajectory.Release();
  ++size_;
  slices_bytes_ += Trajectory::MemoryBytes(record.trajectory);
  Trajectory::ForEachChunk(record.trajectory, [&](Chunk* chunk) {
    chunk->AddItemRef();
    referenced_bytes_ += chunk->bytes();
    episodes_.Increment(chunk->header().episode_id());
    if (chunk_uses_) [[unlikely]]
      HoldChunk(chunk);
  });
  const SelectorItem entry{
      .slot = slot, .priority = item.priority, .inserted = sequence_, .touched = sequence_};
  sampler_->Insert(entry);
  remover_->Insert(entry);
  if (has_max_age()) AddAge(slot, now_);
  RunHooks(&TableExtension::OnInsert, record, effects);
  while (IsTooLarge()) EvictOne(effects);
  limiter_.CountInsert();
}

void TableState::EvictOne(Effects* effects) {
  Selection pick;
  remover_->Sample({&pick, 1});
  Remove(pick.slot, Removal::kEvicted, effects);
}

bool TableState::IsFullFor(const Item& item) const {
  if (size_ >= max_size_) return true;
  if (!has_max_bytes() || size_ == 0) return false;
  int64_t more = 0;
  item.trajectory.ForEachChunk([&](const Chunk* chunk) {
    if (!chunk_uses_->Find(reinterpret_cast<uintptr_t>(chunk))) more += chunk->bytes();
  });
  return held_bytes_ + more > max_bytes_;
}

bool TableState::EvictExcess(int64_t n, Effects* effects) {
  for (; n > 0 && IsTooLarge(); --n) {
    Selection pick;
    remover_->Sample({&pick, 1});
    Remove(pick.slot, Removal::kShrunk, effects);
  }
  return IsTooLarge();
}

void TableState::HoldChunk(Chunk* chunk) {
  if (chunk_uses_->Increment(reinterpret_cast<uintptr_t>(chunk))) held_bytes_ += chunk->bytes();
}

void TableState::SetMaxBytes(int64_t max_bytes) {
  max_bytes_ = max_bytes > 0 ? max_bytes : kNoMaxBytes;
  if (chunk_uses_.has_value() == has_max_bytes()) return;
  held_bytes_ = 0;
  chunk_uses_.reset();
  if (!has_max_bytes()) return;
  chunk_uses_.emplace();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].is_free()) continue;
    Trajectory::ForEachChunk(slots_[i].trajectory, [&](Chunk* chunk) { HoldChunk(chunk); });
  }
}

void TableState::Remove(Slot slot, Removal why, Effects* effects) {
  SlotRecord& record = slots_.Mutable(slot);
  std::optional<uint64_t> lease;
  if (leased_ > 0) [[unlikely]]
    lease = leases_->Orphan(slot);
  if (lease) {
    --leased_;
  } else {
    sampler_->Delete(slot);
  }
  remover_->Delete(slot);
  if (has_max_age()) by_age_.Remove(slot);
  index_.Erase(record.key);
  --size_;
  limiter_.CountDelete();
  // Other items are sampled instead, unless samples remove them.
  if ((why == Removal::kAged || why == Removal::kShrunk) && removes_sampled_items()) {
    if (limiter_.WriteOffInsert() && lease) EndLease(*lease);
  }
  // Not for an item whose sample is being acknowledged: its lease ends anyway.
  if (lease && why != Removal::kExpired) BoundOrphanedLeases();
  switch (why) {
    case Removal::kEvicted:
    case Removal::kShrunk:
      ++counts_.evictions;
      break;
    case Removal::kExpired:
      ++counts_.expirations;
      break;
    case Removal::kDeleted:
      ++counts_.explicit_deletes;
      break;
    case Removal::kAged:
      ++counts_.aged_out;
      break;
  }
  int64_t unstored_bytes = 0;
  slices_bytes_ -= Trajectory::MemoryBytes(record.trajectory);
  Trajectory::ForEachChunk(record.trajectory, [&](Chunk* chunk) {
    if (chunk->DropItemRef()) unstored_bytes += chunk->own_bytes();
    referenced_bytes_ -= chunk->bytes();
    if (episodes_.Decrement(chunk->header().episode_id())) ++counts_.num_deleted_episodes;
    if (chunk_uses_ && chunk_uses_->Decrement(reinterpret_cast<uintptr_t>(chunk)))
      held_bytes_ -= chunk->bytes();
  });
  const SlotRecord removed = record;
  record = SlotRecord();
  record.key = free_head_;
  free_head_ = uint64_t{slot} + 1;

  RunHooks(&TableExtension::OnDelete, removed, effects);
  Trajectory trajectory = Trajectory::Adopt(removed.trajectory);
  const bool is_shown = parking_->IsShown(removed.inserted);
  if (is_shown && parking_->Park(&trajectory, slot / PagedArray<SlotRecord>::kPerPage, unstored_bytes))
    return;
  effects->released.push_back(std::move(trajectory));
}

void TableState::AddAge(Slot slot, TimePoint born) {
  if (slot >= born_.size()) born_.Resize(static_cast<size_t>(slot) + 1);
  born_[slot] = born;
  by_age_.Append(slot);
}

void TableState::RebuildAges(const ClockReading& now) {
  now_ = std::max(now_, now.now);
  by_age_.Clear();
  born_.Clear();
  if (!has_max_age()) return;
  struct Birth {
    TimePoint at;
    uint64_t inserted = 0;  // operation number
    Slot slot = 0;
  };
  std::vector<Birth> births;
  births.reserve(static_cast<size_t>(size_));
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const SlotRecord& record = slots_[slot];
    if (record.is_free()) continue;
    // An item without a time, or from the future of a clock that was set back, is new.
    const int64_t age =
        record.inserted_at > 0 ? std::max<int64_t>(0, now.wall_nanos - record.inserted_at) : 0;
    births.push_back(
        {.at = now_ - Duration(age), .inserted = record.inserted, .slot = static_cast<Slot>(slot)});
  }
  // Mostly the slots are in this order, rotated: see SortByAge() in table_restore.cc.
  const auto is_before = [](const Birth& a, const Birth& b) {
    return a.at != b.at ? a.at < b.at : a.inserted < b.inserted;
  };
  const auto oldest = std::is_sorted_until(births.begin(), births.end(), is_before);
  if (oldest != births.end()) {
    std::rotate(births.begin(), oldest, births.end());
    if (!std::ranges::is_sorted(births, is_before)) std::ranges::sort(births, is_before);
  }
  for (const Birth& birth : births) AddAge(birth.slot, birth.at);
}

bool TableState::AdvanceTo(TimePoint now, Effects* effects, int64_t most) {
  now_ = std::max(now_, now);
  if (has_leases() && ExpireLeases(&most)) return true;
  while (!by_age_.empty()) {
    const Slot oldest = by_age_.first();
    if (now_ - born_[oldest] < max_age_) return false;
    if (most-- <= 0) return true;
    Remove(oldest, Removal::kAged, effects);
  }
  return false;
}

std::optional<TimePoint> TableState::NextAged() const {
  if (by_age_.empty()) return std::nullopt;
  const TimePoint oldest = born_[by_age_.first()];
  // A sum that would overflow never comes.
  if (max_age_ >= TimePoint::max() - std::max(oldest, TimePoint())) return std::nullopt;
  return oldest + max_age_;
}

void TableState::Change(const TableChanges& changes, const ClockReading& now) {
  max_size_ = changes.max_size.value_or(max_size_);
  max_times_sampled_ = changes.max_times_sampled.value_or(max_times_sampled_);
  if (changes.rate_limiter) limiter_.set_options(*changes.rate_limiter);
  if (changes.max_bytes) SetMaxBytes(*changes.max_bytes);
  if (!changes.max_age || *changes.max_age == max_age_) return;
  const bool had_ages = has_max_age();
  max_age_ = *changes.max_age;
  if (!had_ages || !has_max_age()) RebuildAges(now);
}

void TableState::SetPriority(Slot slot, double priority) {
  SlotRecord& record = slots_.Mutable(slot);
  record.priority = priority;
  record.touched = ++sequence_;
  const SelectorItem entry{
      .slot = slot, .priority = priority, .inserted = record.inserted, .touched = record.touched};
  if (!IsLeased(slot)) sampler_->Update({&entry, 1});
  remover_->Update({&entry, 1});
}

int64_t TableState::Sample(int64_t n, bool rate_limited, std::vector<internal::Sample>* out,
                           Effects* effects) {
  if (size_ == leased_) return 0;
  const size_t before = out->size();
  // Drawing does not change what the next draw sees unless samples remove items or hooks interfere.
  if (max_times_sampled_ < 1 && options_.extensions.empty()) {
    const int64_t allowed = limiter_.MaxSamples(n);
    if (allowed > 0) DrawBatch(allowed, rate_limited, out);
    limiter_.CountSamples(allowed);
  } else {
    DrawOneByOne(n, rate_limited, out, effects);
  }
  return static_cast<int64_t>(out->size() - before);
}

void TableState::Record(const Selection& selection, bool rate_limited, internal::Sample* sample) {
  SlotRecord& record = slots_.Mutable(selection.slot);
  CountSampled(&record);
  sample->key = record.key;
  sample->priority = record.priority;
  sample->probability = selection.probability;
  sample->table_size = size_;
  sample->inserted_at = record.inserted_at;
  sample->times_sampled = record.times_sampled;
  sample->rate_limited = rate_limited;
  sample->trajectory = Trajectory::Share(record.trajectory);
}

void TableState::DrawBatch(int64_t n, bool rate_limited, std::vector<internal::Sample>* out) {
  // Each pick touches three cold places: selector, slot, trajectory. Slots and trajectories are prefetched some picks
  // before they are used, which hides most of the latency.
  constexpr int64_t kGroup = 256;
  constexpr size_t kFetchSlot = 32;
  constexpr size_t kFetchTrajectory = 16;
  // n may be far more than fits into memory: grow with what is drawn, but not by a little each time.
  constexpr int64_t kMaxReserved = 1024;
  if (out->empty()) out->reserve(static_cast<size_t>(std::min(n, kMaxReserved)));
  while (n > 0) {
    const int64_t group = std::min(n, kGroup);
    selections_.resize(static_cast<size_t>(group));
    sampler_->Sample(selections_);
    const size_t count = selections_.size();
    out->resize(out->size() + count);
    const std::span<internal::Sample> samples = std::span(*out).last(count);
    const auto prefetch_trajectory = [&](size_t i) {
      // Its counter, and what the sampler reads next: the addresses of rows, or the header of the chunk.
      constexpr size_t kBytes = 64;
      const auto* const object =
          static_cast<const char*>(Trajectory::counted_object(slots_[selections_[i].slot].trajectory));
      __builtin_prefetch(object, 1);
      __builtin_prefetch(object + kBytes - 1);
    };
    for (size_t i = 0; i < std::min(count, kFetchSlot); ++i) slots_.Prefetch(selections_[i].slot);
    for (size_t i = 0; i < std::min(count, kFetchTrajectory); ++i) prefetch_trajectory(i);
    for (size_t i = 0; i < count; ++i) {
      if (i + kFetchSlot < count) slots_.Prefetch(selections_[i + kFetchSlot].slot);
      if (i + kFetchTrajectory < count) prefetch_trajectory(i + kFetchTrajectory);
      Record(selections_[i], rate_limited, &samples[i]);
    }
    n -= group;
  }
}

void TableState::DrawOneByOne(int64_t n, bool rate_limited, std::vector<internal::Sample>* out,
                              Effects* effects) {
  for (int64_t i = 0; i < n && CanSample(); ++i) {
    Selection pick;
    sampler_->Sample({&pick, 1});
    Take(pick, rate_limited, out, effects);
  }
}

void TableState::Take(const Selection& pick, bool rate_limited, std::vector<internal::Sample>* out,
                      Effects* effects) {
  limiter_.CountSamples(1);
  Record(pick, rate_limited, &out->emplace_back());
  const SlotRecord& record = slots_[pick.slot];
  const bool used_up = removes_sampled_items() && record.times_sampled >= max_times_sampled_;
  RunHooks(&TableExtension::OnSample, record, effects);
  if (used_up) Remove(pick.slot, Removal::kExpired, effects);
}

void TableState::Mutate(std::span<const KeyPriority> updates, std::span<const uint64_t> deletes,
                        Effects* effects) {
  for (const uint64_t key : deletes) {
    if (const auto slot = index_.Find(key)) {
      Remove(*slot, Removal::kDeleted, effects);
    } else {
      ++counts_.unknown_keys;
    }
  }
  if (!options_.extensions.empty()) {
    // One by one: hooks of the first may change what the second is about to set.
    for (const KeyPriority& update : updates) {
      if (const auto slot = index_.Find(update.key)) {
        SetPriority(*slot, update.priority);
        ++counts_.updates;
        RunHooks(&TableExtension::OnUpdate, slots_[*slot], effects);
      } else {
        ++counts_.unknown_keys;
      }
    }
    return;
  }
  // Look-ups first, so that their cache misses overlap; then each selector gets the whole batch.
  constexpr size_t kAhead = 8;
  updates_.clear();
  for (size_t i = 0; i < updates.size(); ++i) {
    if (i + kAhead < updates.size()) index_.Prefetch(updates[i + kAhead].key);
    if (const auto slot = index_.Find(updates[i].key)) {
      slots_.Prefetch(*slot);
      updates_.push_back({.slot = *slot, .priority = updates[i].priority});
    } else {
      ++counts_.unknown_keys;
    }
  }
  for (SelectorItem& entry : updates_) {
    SlotRecord& record = slots_.Mutable(entry.slot);
    record.priority = entry.priority;
    record.touched = ++sequence_;
    entry.inserted = record.inserted;
    entry.touched = record.touched;
  }
  counts_.updates += static_cast<int64_t>(updates_.size());
  if (updates_.empty()) return;
  remover_->Update(updates_);
  if (leased_ > 0) std::erase_if(updates_, [this](const SelectorItem& item) { return IsLeased(item.slot); });
  sampler_->Update(updates_);
}

void TableState::Reset(Effects* effects) {
  for (const auto& extension : options_.extensions) extension->OnReset();
  auto retired = std::make_shared<RetiredSlots>(&slots_);
  if (parking_->IsShown(1)) parking_->Park(retired);
  effects->retired_slots.push_back(std::move(retired));
  index_.Clear();
  by_age_.Clear();
  born_.Clear();
  if (leases_ != nullptr) leases_->Clear();
  leased_ = 0;
  sampler_->Clear();
  remover_->Clear();
  episodes_.Clear();
  free_head_ = 0;
  size_ = 0;
  referenced_bytes_ = 0;
  slices_bytes_ = 0;
  if (chunk_uses_) chunk_uses_->Clear();
  held_bytes_ = 0;
  counts_.num_deleted_episodes = 0;
  counts_.num_unique_samples = 0;
  limiter_.Reset();
  layout_.Reset();
}

ItemView TableState::ViewOf(const SlotRecord& record, const Trajectory& trajectory) const {
  const SliceView first = trajectory.slice(0, 0);
  const PackedChunkHeader header = first.chunk->header();
  return {.key = record.key,
          .priority = record.priority,
          .times_sampled = record.times_sampled,
          .episode_id = header.episode_id(),
          .first_step = header.first_step() + first.offset,
          .bytes = trajectory.chunk_bytes(),
          .trajectory = &trajectory};
}

void TableState::RunHooks(Hook hook, const SlotRecord& record, Effects* effects) {
  if (options_.extensions.empty()) return;
  HookContext context(effects);
  {
    const Trajectory trajectory = Trajectory::Share(record.trajectory);
    const ItemView view = ViewOf(record, trajectory);
    for (const auto& extension : options_.extensions) (extension.get()->*hook)(view, context);
  }
  for (const KeyPriority& update : context.updates) {
    const auto slot = index_.Find(update.key);
    if (slot && CheckPriority(update.key, update.priority).ok()) {
      SetPriority(*slot, update.priority);
      ++counts_.updates;
    } else {
      ++counts_.unknown_keys;
    }
  }
}

std::optional<internal::Sample> TableState::Find(uint64_t key) const {
  const auto slot = index_.Find(key);
  if (!slot) return std::nullopt;
  uint64_t cursor = *slot;
  return std::move(Peek(1, &cursor).front());
}

std::vector<internal::Sample> TableState::Peek(int64_t n, uint64_t* cursor) const {
  std::vector<internal::Sample> items;
  for (; *cursor < slots_.size() && static_cast<int64_t>(items.size()) < n; ++*cursor) {
    const SlotRecord& record = slots_[*cursor];
    if (record.is_free()) continue;
    items.push_back(record.Share());
  }
  return items;
}

std::vector<ItemMark> TableState::Survey(size_t most) const {
  std::vector<ItemMark> marks;
  const uint64_t stride = most == 0 ? 0 : (slots_.size() + most - 1) / most;
  for (uint64_t slot = 0; stride > 0 && slot < slots_.size(); slot += stride) {
    const SlotRecord& record = slots_[slot];
    if (record.is_free()) continue;
    marks.push_back({.priority = record.priority,
                     .inserted_at = record.inserted_at,
                     .times_sampled = record.times_sampled});
  }
  return marks;
}

TableSettings TableState::Settings() const {
  TableSettings settings = options_.Settings();
  settings.sampler = sampler_->options();
  settings.remover = remover_->options();
  settings.max_size = max_size_;
  settings.max_times_sampled = max_times_sampled_;
  settings.max_age_nanos = max_age_.count();
  settings.max_bytes = max_bytes();
  settings.rate_limiter = limiter_.options();
  return settings;
}

void TableState::FillInfo(TableInfo* info) const {
  static_cast<TableSettings&>(*info) = Settings();
  static_cast<TableCounts&>(*info) = counts_;
  info->structure = layout_.structure();
  info->current_size = size_;
  info->num_episodes = static_cast<int64_t>(episodes_.size());
  info->counters = limiter_.counters();
  info->cursor = limiter_.cursor();
  info->leases = lease_counts_;
  info->leases.leased = leased_;
  info->referenced_bytes = referenced_bytes_;
}

std::unique_ptr<TableSnapshot> TableState::TakeSnapshot() {
  TableSnapshot::State state{Settings()};
  state.counters = limiter_.counters();
  state.counts = counts_;
  state.structure = layout_.structure_to_save();
  state.size = size_;
  state.instance = instance_;
  state.sequence = sequence_;
  state.free_head = free_head_;
  state.sampler_state = CaptureSampler();
  state.remover_state = remover_->Capture();
  for (const auto& extension : options_.extensions) {
    state.extension_states.emplace_back(extension->name(), extension->SaveState());
  }
  PagedArray<SlotRecord>::Capture slots = slots_.TakeCapture();
  return std::make_unique<TableSnapshot>(std::move(state), std::move(slots), parking_,
                                         parking_->Open(sequence_));
}

}  // namespace reverb::internal
