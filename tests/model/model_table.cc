#include "model/model_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace reverb::model {
namespace {

using Kind = SelectorOptions::Kind;

double WeightOf(const SelectorOptions& selector, double priority) {
  if (selector.kind != Kind::kPrioritized || priority == 0) return 0;
  return std::pow(priority, selector.priority_exponent);
}

bool SelectorAccepts(const SelectorOptions& selector, double priority) {
  if (std::isnan(priority)) return false;
  if (selector.kind != Kind::kPrioritized) return true;
  // Larger weights could make their sums overflow.
  return priority >= 0 && std::isfinite(priority) && WeightOf(selector, priority) <= std::ldexp(1.0, 991);
}

// Returns whether a heap prefers `a`: by priority, then by the longer time since its last change.
bool HeapPrefers(Kind kind, const ModelItem& a, const ModelItem& b) {
  if (a.priority != b.priority) return (a.priority < b.priority) == (kind == Kind::kMinHeap);
  return a.touched < b.touched;
}

}  // namespace

ModelTable::ModelTable(const TableOptions& options) : options_(options) {}

bool ModelTable::Accepts(double priority) const {
  return SelectorAccepts(options_.sampler, priority) && SelectorAccepts(options_.remover, priority);
}

double ModelTable::cursor() const {
  const int64_t inserts = counters.inserts - counters.uncounted_inserts;
  return static_cast<double>(inserts) * options_.rate_limiter.samples_per_insert -
         static_cast<double>(counters.samples);
}

bool ModelTable::CanInsert() const {
  const RateLimiterOptions& limiter = options_.rate_limiter;
  if (counters.inserts + 1 - counters.deletes <= limiter.min_size_to_sample) return true;
  return static_cast<double>(counters.inserts - counters.uncounted_inserts + 1) * limiter.samples_per_insert -
             static_cast<double>(counters.samples) <=
         limiter.max_diff;
}

bool ModelTable::CanSample() const { return CanLease(1); }

bool ModelTable::CanLease(int64_t n) const {
  const RateLimiterOptions& limiter = options_.rate_limiter;
  if (size() - num_leased() < n) return false;
  if (counters.inserts - counters.deletes < limiter.min_size_to_sample) return false;
  const double inserted = static_cast<double>(counters.inserts - counters.uncounted_inserts);
  // Every lease may become a sample.
  const int64_t samples = counters.samples + static_cast<int64_t>(leases_.size()) + n - 1;
  return inserted * limiter.samples_per_insert - static_cast<double>(samples) - 1 >= limiter.min_diff;
}

const ModelItem* ModelTable::Find(uint64_t key) const {
  for (const ModelItem& item : items_) {
    if (item.key == key) return &item;
  }
  return nullptr;
}

ModelItem* ModelTable::FindMutable(uint64_t key) { return const_cast<ModelItem*>(Find(key)); }

std::optional<double> ModelTable::ChanceOf(Role role, uint64_t key) const {
  const ModelItem* const item = Find(key);
  if (item == nullptr) return std::nullopt;
  const SelectorOptions& selector = role == Role::kSampler ? options_.sampler : options_.remover;
  std::vector<const ModelItem*> candidates;
  for (const ModelItem& other : items_) {
    if (role == Role::kRemover || !other.is_leased) candidates.push_back(&other);
  }
  if (std::ranges::find(candidates, item) == candidates.end()) return std::nullopt;
  switch (selector.kind) {
    case Kind::kCustom:
      return std::nullopt;
    case Kind::kFifo:
      if (item != candidates.front()) return std::nullopt;
      return 1;
    case Kind::kLifo:
      if (item != candidates.back()) return std::nullopt;
      return 1;
    case Kind::kUniform:
      return 1.0 / static_cast<double>(candidates.size());
    case Kind::kMinHeap:
    case Kind::kMaxHeap:
      for (const ModelItem* other : candidates) {
        if (HeapPrefers(selector.kind, *other, *item)) return std::nullopt;
      }
      return 1;
    case Kind::kPrioritized: {
      const auto weight = role == Role::kSampler ? &ModelItem::sampler_weight : &ModelItem::remover_weight;
      double sum = 0;
      for (const ModelItem* other : candidates) sum += other->*weight;
      if (sum == 0) return 1.0 / static_cast<double>(candidates.size());
      if (item->*weight == 0) return std::nullopt;
      return item->*weight / sum;
    }
  }
  return std::nullopt;
}

void ModelTable::SetPriority(ModelItem* item, double priority) {
  item->priority = priority;
  item->sampler_weight = WeightOf(options_.sampler, priority);
  item->remover_weight = WeightOf(options_.remover, priority);
  item->touched = ++now_;
}

bool ModelTable::Insert(const ModelItem& item) {
  if (ModelItem* const present = FindMutable(item.key)) {
    SetPriority(present, item.priority);
    ++updates;
    return false;
  }
  items_.push_back(item);
  SetPriority(&items_.back(), item.priority);
  items_.back().inserted = now_;
  return true;
}

uint64_t ModelTable::Remove(uint64_t key) {
  uint64_t lease_id = 0;
  uint32_t gone = 0, left = 0;
  for (const ModelItem& item : items_) (item.key == key ? gone : left) |= item.data.episodes;
  num_deleted_episodes += std::popcount(gone & ~left);
  std::erase_if(items_, [key](const ModelItem& item) { return item.key == key; });
  for (ModelLease& lease : leases_) {
    // Others with this key are of former items.
    if (lease.grant.key == key && std::exchange(lease.has_item, false)) lease_id = lease.grant.id;
  }
  ++counters.deletes;
  return lease_id;
}

void ModelTable::BoundOrphans() {
  for (int i = 0; i < 2; ++i) {
    if (std::ranges::count(leases_, false, &ModelLease::has_item) <= options_.max_size) return;
    leases_.erase(std::ranges::find(leases_, false, &ModelLease::has_item));
    ++lease_counts.expired;
  }
}

void ModelTable::Evict(uint64_t key) {
  if (Remove(key) != 0) BoundOrphans();
  ++evictions;
}

void ModelTable::EvictExcess(uint64_t key) {
  ++evictions;
  WriteOff(key, Remove(key));
}

void ModelTable::WriteOff(uint64_t key, uint64_t lease_id) {
  // What the inserts of the present items demand.
  const double most = static_cast<double>(items_.size()) * options_.rate_limiter.samples_per_insert;
  if (options_.max_times_sampled >= 1 && cursor() > most) {
    ++counters.uncounted_inserts;
    if (lease_id != 0) EndLease({key, lease_id});
  }
  if (lease_id != 0) BoundOrphans();
}

void ModelTable::AgeOut(int64_t now, int64_t max_age) {
  std::vector<uint64_t> old;
  for (const ModelItem& item : items_) {
    if (now - item.inserted_at >= max_age) old.push_back(item.key);
  }
  for (const uint64_t key : old) {
    WriteOff(key, Remove(key));
  }
  aged_out += static_cast<int64_t>(old.size());
}

bool ModelTable::Sample(uint64_t key) { return CountSample(FindMutable(key)); }

bool ModelTable::CountSample(ModelItem* item) {
  ++counters.samples;
  if (item->times_sampled == 0) ++num_unique_samples;
  ++item->times_sampled;
  if (options_.max_times_sampled < 1 || item->times_sampled < options_.max_times_sampled) return false;
  Remove(item->key);
  ++expirations;
  return true;
}

int64_t ModelTable::num_leased() const { return std::ranges::count(items_, true, &ModelItem::is_leased); }

void ModelTable::Lease(const LeaseGrant& grant, int64_t expires) {
  FindMutable(grant.key)->is_leased = true;
  leases_.push_back({.grant = grant, .expires = expires});
  ++lease_counts.granted;
}

ModelLease* ModelTable::FindLease(const LeaseGrant& grant, LeaseOutcome* outcome) {
  const auto found = std::ranges::find(leases_, grant, &ModelLease::grant);
  if (found != leases_.end()) {
    ++(found->has_item ? outcome->settled : outcome->gone);
    return &*found;
  }
  ++outcome->expired;
  ++lease_counts.late;
  return nullptr;
}

void ModelTable::EndLease(const LeaseGrant& grant) {
  const auto found = std::ranges::find(leases_, grant, &ModelLease::grant);
  if (found->has_item) FindMutable(grant.key)->is_leased = false;
  leases_.erase(found);
}

LeaseOutcome ModelTable::Acknowledge(const LeaseGrant& grant) {
  LeaseOutcome outcome;
  if (std::ranges::find(acknowledged_, grant) != acknowledged_.end()) return {.settled = 1};
  const ModelLease* const lease = FindLease(grant, &outcome);
  if (lease == nullptr) return outcome;
  acknowledged_.push_back(grant);
  ++lease_counts.acknowledged;
  const bool has_item = lease->has_item;
  EndLease(grant);
  if (has_item) {
    CountSample(FindMutable(grant.key));
  } else {
    ++counters.samples;
  }
  return outcome;
}

LeaseOutcome ModelTable::Release(const LeaseGrant& grant) {
  LeaseOutcome outcome;
  if (FindLease(grant, &outcome) != nullptr) EndLease(grant);
  return outcome;
}

LeaseOutcome ModelTable::Extend(const LeaseGrant& grant, int64_t expires) {
  LeaseOutcome outcome;
  if (ModelLease* const lease = FindLease(grant, &outcome)) lease->expires = expires;
  return outcome;
}

void ModelTable::ExpireLeases(int64_t now) {
  std::vector<LeaseGrant> ended;
  for (const ModelLease& lease : leases_) {
    if (lease.expires <= now) ended.push_back(lease.grant);
  }
  for (const LeaseGrant& grant : ended) EndLease(grant);
  lease_counts.expired += static_cast<int64_t>(ended.size());
}

void ModelTable::ForgetLeases() {
  leases_.clear();
  acknowledged_.clear();
  for (ModelItem& item : items_) item.is_leased = false;
  lease_counts = {};
}

void ModelTable::Update(uint64_t key, double priority) {
  if (ModelItem* const item = FindMutable(key)) {
    SetPriority(item, priority);
    ++updates;
  } else {
    ++unknown_keys;
  }
}

void ModelTable::Delete(uint64_t key) {
  if (Find(key) != nullptr) {
    if (Remove(key) != 0) BoundOrphans();
    ++explicit_deletes;
  } else {
    ++unknown_keys;
  }
}

void ModelTable::Reset() {
  items_.clear();
  leases_.clear();
  acknowledged_.clear();
  counters = {};
  num_deleted_episodes = 0;
  num_unique_samples = 0;
}

int64_t ModelTable::num_episodes() const {
  uint32_t episodes = 0;
  for (const ModelItem& item : items_) episodes |= item.data.episodes;
  return std::popcount(episodes);
}

int64_t ModelTable::referenced_bytes() const {
  int64_t bytes = 0;
  for (const ModelItem& item : items_) bytes += item.data.chunk_bytes;
  return bytes;
}

uint32_t ModelTable::chunks() const {
  uint32_t chunks = 0;
  for (const ModelItem& item : items_) chunks |= item.data.chunks;
  return chunks;
}

}  // namespace reverb::model
