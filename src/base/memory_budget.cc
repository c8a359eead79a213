#include "base/memory_budget.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace reverb::internal {

MemoryBudget::Shares MemoryBudget::SharesOf(int64_t limit) {
  Shares shares;
  shares.transit = limit / 8;
  shares.control = std::min(limit / 16, kMaxControlBytes);
  shares.kept = limit - shares.transit - shares.control;
  return shares;
}

size_t MemoryBudget::AssignShard() {
  static std::atomic<size_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed) % kShards;
}

void MemoryBudget::Open(std::optional<int64_t> limit, Clock* clock) {
  MutexLock lock(&mu_);
  clock_ = clock;
  limit_ = limit;
  shares_ = limit ? SharesOf(*limit) : Shares{.kept = kUnbounded, .transit = kUnbounded, .control = 0};
  // Small limits, as in tests, need small granules: the error of all counters stays below about 3 %.
  const auto granule = static_cast<uint64_t>(std::max<int64_t>(
      limit.value_or(int64_t{1} << 40) / static_cast<int64_t>(32 * kShards * kNumMemoryParts), 1));
  granule_shift_ =
      std::clamp(static_cast<int>(std::bit_width(granule)) - 1, kMinGranuleShift, kMaxGranuleShift);
  // Parts are 0, but their threads may have counted on different shards, with other granules.
  kept_.store(0, std::memory_order_relaxed);
  total_.store(0, std::memory_order_relaxed);
  for (Shard& shard : shards_) {
    for (std::atomic<int64_t>& bytes : shard.bytes) bytes.store(0, std::memory_order_relaxed);
  }
}

void MemoryBudget::Close() {
  std::map<uint64_t, std::function<void()>> dropped;  // destroyed after the lock
  MutexLock lock(&mu_);
  clock_ = nullptr;
  dropped.swap(waiters_);
  has_waiters_.store(false, std::memory_order_relaxed);
}

int64_t MemoryBudget::SumOf(MemoryPart part) const {
  int64_t sum = 0;
  for (const Shard& shard : shards_) {
    sum += shard.bytes[static_cast<size_t>(part)].load(std::memory_order_seq_cst);
  }
  return sum;
}

int64_t MemoryBudget::ExactKept() const {
  return SumOf(MemoryPart::kStored) + SumOf(MemoryPart::kParked) + SumOf(MemoryPart::kIndex);
}

MemoryBudget::Usage MemoryBudget::usage() const {
  return {.chunks = SumOf(MemoryPart::kChunks),
          .stored = SumOf(MemoryPart::kStored),
          .parked = SumOf(MemoryPart::kParked),
          .waiting = SumOf(MemoryPart::kWaiting),
          .receiving = SumOf(MemoryPart::kReceiving),
          .replies = SumOf(MemoryPart::kReplies),
          .index = SumOf(MemoryPart::kIndex),
          .sessions = SumOf(MemoryPart::kSessions)};
}

void MemoryBudget::Publish(MemoryPart part, int64_t granules) {
  const int64_t bytes = granules * (int64_t{1} << granule_shift_);
  if (IsKept(part)) kept_.fetch_add(bytes, std::memory_order_relaxed);
  if (IsInTotal(part)) total_.fetch_add(bytes, std::memory_order_relaxed);
}

uint64_t MemoryBudget::WaitForRoom(std::function<void()> wake) {
  MutexLock lock(&mu_);
  waiters_.emplace(++last_ticket_, std::move(wake));
  has_waiters_.store(true, std::memory_order_seq_cst);
  return last_ticket_;
}

void MemoryBudget::StopWaiting(uint64_t ticket) {
  std::function<void()> dropped;  // destroyed after the lock
  MutexLock lock(&mu_);
  const auto found = waiters_.find(ticket);
  if (found == waiters_.end()) return;
  dropped = std::move(found->second);
  waiters_.erase(found);
  if (waiters_.empty()) has_waiters_.store(false, std::memory_order_relaxed);
}

void MemoryBudget::WakeWaiters() {
  // Callers may hold a table's lock, and a waiter takes its own table's lock: the wake-ups run on the clock's thread.
  MutexLock lock(&mu_);
  if (clock_ == nullptr) return;
  for (auto& [ticket, wake] : waiters_) clock_->CallAt(clock_->Now(), std::move(wake));
  waiters_.clear();
  has_waiters_.store(false, std::memory_order_relaxed);
}

}  // namespace reverb::internal
