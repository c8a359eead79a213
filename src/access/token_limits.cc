#include "access/token_limits.h"

#include <algorithm>
#include <chrono>

namespace reverb::internal {
namespace {

// A client that was idle may transfer as much at once as the rate permits in this time.
constexpr Duration kBurst = std::chrono::milliseconds(250);

}  // namespace

Duration TokenLimits::Charge(uint64_t bytes, TimePoint now) {
  if (!max_bytes_per_second_) return Duration(0);
  const double seconds = static_cast<double>(bytes) / static_cast<double>(*max_bytes_per_second_);
  // A message of a gigabyte at a byte per second would overflow.
  const auto cost =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, 3600.0)));
  MutexLock lock(&mu_);
  paid_until_ = std::max(paid_until_, now - kBurst) + cost;
  return std::max(paid_until_ - now, Duration(0));
}

void TokenLimits::AddWaiting(int64_t bytes) {
  std::vector<std::function<void()>> readers;
  {
    MutexLock lock(&mu_);
    waiting_bytes_ += bytes;
    if (!max_waiting_bytes_ || waiting_bytes_ <= *max_waiting_bytes_) readers.swap(readers_);
  }
  for (const std::function<void()>& read : readers) read();
}

void TokenLimits::WhenRoom(std::function<void()> read) {
  {
    MutexLock lock(&mu_);
    if (max_waiting_bytes_ && waiting_bytes_ > *max_waiting_bytes_) {
      readers_.push_back(std::move(read));
      return;
    }
  }
  read();
}

}  // namespace reverb::internal
