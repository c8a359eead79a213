// memory_budget.h — counts the memory of a server by part, against one limit.
//
// The limit has three shares, so that none of them can starve another:
//   * control: kept free, for connections, single calls, and what nobody counts (the allocator, gRPC);
//   * transit: data that moves through the server. Flow control bounds it: streams read less while TransitLevel() is
//     not kRoomy. A learner that stops reading therefore never prevents inserts;
//   * kept: what stays until it is removed. Inserts wait, or evict, while HasRoomToKeep() is false.
//
// Each live chunk counts in kChunks. kStored, kParked and kWaiting count parts of these, and kChunks without kStored
// and kParked is in transit.
//
// Cost: Add() is one atomic addition to a cache line that few threads share. Sums over all threads are only updated
// when a counter passes a multiple of a granule, so reading a level takes one or two loads. Levels may be wrong by
// max_error(); HasRoomToKeep() is exact near the limit.
//
// Threads: all methods may be called concurrently, except Open() and Close().
#ifndef REVERB_BASE_MEMORY_BUDGET_H_
#define REVERB_BASE_MEMORY_BUDGET_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/mutex.h"

namespace reverb::internal {

enum class MemoryPart : uint8_t {
  kChunks = 0,   // all chunks in memory
  kStored = 1,   // of these: those that items of tables refer to
  kParked = 2,   // of these: those of removed items that a snapshot still shows
  kWaiting = 3,  // of these: those of items and rows that wait for their tables (in kStored, too, if shared)
  kReceiving =
      4,  // messages that are being received and decoded, and data that is being written to or read from disk
  kReplies = 5,   // encoded replies that the transport has not sent yet
  kIndex = 6,     // slots, keys, selectors and trajectories of tables
  kSessions = 7,  // streams and sessions of clients, and what waiting items take besides their chunks
};
inline constexpr size_t kNumMemoryParts = 8;  // one cache line of counters

// How much of a share is used.
enum class MemoryLevel : uint8_t {
  kRoomy = 0,  // less than half
  kTight = 1,  // less than all of it
  kFull = 2,
};

class MemoryBudget {
 public:
  // The shares of a limit: an eighth for transit, and a sixteenth, at most kMaxControlBytes, for control.
  struct Shares {
    int64_t kept = 0;
    int64_t transit = 0;
    int64_t control = 0;
  };
  static constexpr int64_t kMaxControlBytes = int64_t{512} << 20;
  static Shares SharesOf(int64_t limit);

  // The bytes of each part, exact if nothing changes meanwhile.
  struct Usage {
    int64_t chunks = 0;
    int64_t stored = 0;
    int64_t parked = 0;
    int64_t waiting = 0;
    int64_t receiving = 0;
    int64_t replies = 0;
    int64_t index = 0;
    int64_t sessions = 0;

    int64_t kept() const { return stored + parked + index; }
    int64_t total() const { return chunks + receiving + replies + index + sessions; }
    int64_t transit() const { return total() - kept(); }
  };

  MemoryBudget() = default;
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Sets the limit (absent = unbounded: counts only) and the clock that runs wake-ups. May be called again after
  // Close(), once all parts are 0.
  void Open(std::optional<int64_t> limit, Clock* clock) EXCLUDES(mu_);
  // Drops waiters. Parts may still change.
  void Close() EXCLUDES(mu_);

  std::optional<int64_t> limit() const { return limit_; }
  // Of the limit; all unbounded without one.
  const Shares& shares() const { return shares_; }

  // Threads count on separate shards, to avoid contention for a cache line. Returns that of this thread.
  static constexpr size_t kShards = 32;
  static size_t ThisThreadsShard() {
    // Without a dynamic initializer, whose guard every call would test.
    static constinit thread_local size_t mine_plus_1 = 0;
    if (mine_plus_1 == 0) [[unlikely]]
      mine_plus_1 = AssignShard() + 1;
    return mine_plus_1 - 1;
  }

  // Adds `bytes`, which may be negative, to a part.
  void Add(MemoryPart part, int64_t bytes) { Add(part, bytes, ThisThreadsShard()); }
  void Add(MemoryPart part, int64_t bytes, size_t shard) {
    const auto index = static_cast<size_t>(part);
    // seq_cst: see WaitForRoom().
    const int64_t before = shards_[shard].bytes[index].fetch_add(bytes, std::memory_order_seq_cst);
    const int64_t granules = ((before + bytes) >> granule_shift_) - (before >> granule_shift_);
    if (granules != 0) [[unlikely]]
      Publish(part, granules);
    if (bytes < 0 && IsKept(part) && has_waiters_.load(std::memory_order_seq_cst)) [[unlikely]]
      WakeWaiters();
  }

  Usage usage() const;
  // Returns the bytes of kStored, exactly.
  int64_t stored() const { return SumOf(MemoryPart::kStored); }
  // Approximate sums: see max_error().
  int64_t kept() const { return kept_.load(std::memory_order_relaxed); }
  int64_t total() const { return total_.load(std::memory_order_relaxed); }
  int64_t transit() const { return total() - kept(); }
  // The granules of all counters of a sum.
  int64_t max_error() const { return static_cast<int64_t>(kShards * kNumMemoryParts) << granule_shift_; }

  // Returns whether `more` bytes may arrive now. Flow control comes first: see TransitLevel(). This bounds what streams
  // that do not observe it, or very many of them, can bring at a time, so that data in transit takes the control share at
  // most in addition to its own. False is permanent if `more` alone exceeds max_transit().
  bool HasRoomInTransit(int64_t more) const { return transit() + more <= max_transit(); }
  int64_t max_transit() const { return shares_.transit + shares_.control; }

  MemoryLevel TransitLevel() const { return LevelOf(transit(), shares_.transit); }
  MemoryLevel KeptLevel() const { return LevelOf(kept(), shares_.kept); }

  // Returns whether `more` bytes may be kept now. False is permanent if `more` alone exceeds the share.
  bool HasRoomToKeep(int64_t more) const {
    // kept() is never above the exact sum.
    if (SurelyHasRoomToKeep(more)) [[likely]]
      return true;
    return ExactKept() + more <= shares_.kept;
  }

  // Cheaper: false may also mean that the exact sums have to decide.
  bool SurelyHasRoomToKeep(int64_t more) const { return kept() + more + max_error() <= shares_.kept; }

  // Calls `wake` once, soon after the kept bytes next decrease. A caller registers, then tests again whether there is
  // room: what was freed in between wakes it. Returns a ticket for StopWaiting(), after which no call is started; a call
  // that has already been scheduled still runs.
  uint64_t WaitForRoom(std::function<void()> wake) EXCLUDES(mu_);
  void StopWaiting(uint64_t ticket) EXCLUDES(mu_);
  // Schedules the wake-ups. May be called under any lock that is not taken by Clock::CallAt().
  void WakeWaiters() EXCLUDES(mu_);

 private:
  static constexpr int kMaxGranuleShift = 16;
  static constexpr int kMinGranuleShift = 8;
  static constexpr int64_t kUnbounded = INT64_MAX / 4;  // sums with it do not overflow

  struct alignas(64) Shard {
    std::array<std::atomic<int64_t>, kNumMemoryParts> bytes{};
  };

  static size_t AssignShard();
  static constexpr bool IsKept(MemoryPart part) {
    return part == MemoryPart::kStored || part == MemoryPart::kParked || part == MemoryPart::kIndex;
  }
  static constexpr bool IsInTotal(MemoryPart part) {
    return part != MemoryPart::kStored && part != MemoryPart::kParked && part != MemoryPart::kWaiting;
  }
  static MemoryLevel LevelOf(int64_t used, int64_t share) {
    if (used < share / 2) [[likely]]
      return MemoryLevel::kRoomy;
    return used < share ? MemoryLevel::kTight : MemoryLevel::kFull;
  }
  int64_t SumOf(MemoryPart part) const;
  int64_t ExactKept() const;
  // Adds granules of a part to the sums that include it.
  void Publish(MemoryPart part, int64_t granules);

  std::array<Shard, kShards> shards_;
  alignas(64) std::atomic<int64_t> kept_{0};
  std::atomic<int64_t> total_{0};
  // Set by Open(), before the budget is shared.
  alignas(64) std::optional<int64_t> limit_;
  Shares shares_{.kept = kUnbounded, .transit = kUnbounded, .control = 0};
  int granule_shift_ = kMaxGranuleShift;

  alignas(64) std::atomic<bool> has_waiters_{false};
  Mutex mu_;
  Clock* clock_ GUARDED_BY(mu_) = nullptr;
  uint64_t last_ticket_ GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::function<void()>> waiters_ GUARDED_BY(mu_);
};

// Charges bytes to a part for as long as it lives.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  // `budget` may be null, and must outlive this object.
  MemoryCharge(MemoryBudget* budget, MemoryPart part, int64_t bytes = 0) : budget_(budget), part_(part) {
    Set(bytes);
  }
  MemoryCharge(MemoryCharge&& other) noexcept
      : budget_(other.budget_), part_(other.part_), bytes_(other.bytes_) {
    other.bytes_ = 0;
  }
  MemoryCharge& operator=(MemoryCharge&& other) noexcept {
    if (this == &other) return *this;
    Set(0);
    budget_ = other.budget_;
    part_ = other.part_;
    bytes_ = other.bytes_;
    other.bytes_ = 0;
    return *this;
  }
  ~MemoryCharge() { Set(0); }

  int64_t bytes() const { return bytes_; }
  void Set(int64_t bytes) {
    if (bytes == bytes_) return;
    if (budget_ != nullptr) budget_->Add(part_, bytes - bytes_);
    bytes_ = bytes;
  }

 private:
  MemoryBudget* budget_ = nullptr;
  MemoryPart part_ = MemoryPart::kSessions;
  int64_t bytes_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_MEMORY_BUDGET_H_
