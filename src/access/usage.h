// usage.h — what clients take together, and how much of it they may: streams, bytes per second, waiting bytes.
//
// A UsageMeter counts for all clients that use one token, or that have one name. A Usage is the meters that one client
// counts in: that of its token, that of its name, both or none.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_ACCESS_USAGE_H_
#define REVERB_ACCESS_USAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/access.h"
#include "reverb/status.h"

namespace reverb::internal {

class UsageMeter {
 public:
  // `owner` is for errors: `token "actors"`.
  UsageMeter(std::string owner, const UsageLimits& limits) : owner_(std::move(owner)), limits_(limits) {}

  const std::string& owner() const { return owner_; }
  const UsageLimits& limits() const { return limits_; }
  bool limits_bytes() const { return limits_.max_bytes_per_second || limits_.max_waiting_bytes; }

  // RESOURCE_EXHAUSTED if there are as many as allowed.
  Status EnterStream() EXCLUDES(mu_);
  void LeaveStream() EXCLUDES(mu_);

  // Counts bytes that were transferred. Returns how long to pause before the next ones.
  Duration Charge(uint64_t bytes, TimePoint now) EXCLUDES(mu_);
  // Counts bytes that are about to be transferred. Returns how long to wait before that.
  Duration Reserve(uint64_t bytes, TimePoint now) EXCLUDES(mu_);

  // Counts bytes that wait for their tables; negative: that wait no longer, which lets readers go on.
  void AddWaiting(int64_t bytes) EXCLUDES(mu_);
  // Calls `read` when fewer bytes wait than allowed: now, or within AddWaiting().
  void WhenRoom(std::function<void()> read) EXCLUDES(mu_);

  // Returns whether it makes no difference to forget this: no stream is open, and all bytes are paid for.
  bool IsIdle(TimePoint now) EXCLUDES(mu_);

 private:
  Duration CostOf(uint64_t bytes) const;

  const std::string owner_;
  const UsageLimits limits_;

  Mutex mu_;
  int64_t streams_ GUARDED_BY(mu_) = 0;
  TimePoint paid_until_ GUARDED_BY(mu_){};  // the time that the bytes so far take at the permitted rate
  int64_t waiting_bytes_ GUARDED_BY(mu_) = 0;
  std::vector<std::function<void()>> readers_ GUARDED_BY(mu_);
};

class Usage {
 public:
  Usage() = default;
  void Add(std::shared_ptr<UsageMeter> meter) { meters_.push_back(std::move(meter)); }

  bool empty() const { return meters_.empty(); }
  bool limits_bytes() const;
  // Counts the stream in all meters or in none.
  Status EnterStream() const;
  void LeaveStream() const;
  Duration Charge(uint64_t bytes, TimePoint now) const;
  Duration Reserve(uint64_t bytes, TimePoint now) const;
  void AddWaiting(int64_t bytes) const;
  void WhenRoom(std::function<void()> read) const { WhenRoomFrom(0, std::move(read)); }
  // Names the limits that slow this client down: `token "actors"`.
  std::string Owners() const;

 private:
  void WhenRoomFrom(size_t first, std::function<void()> read) const;

  std::vector<std::shared_ptr<UsageMeter>> meters_;
};

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_USAGE_H_
