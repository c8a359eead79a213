#include "access/usage.h"

#include <algorithm>
#include <chrono>

namespace reverb::internal {
namespace {

// A client that was idle may transfer as much at once as the rate permits in this time.
constexpr Duration kBurst = std::chrono::milliseconds(250);

}  // namespace

// --- UsageMeter ---

Status UsageMeter::EnterStream() {
  MutexLock lock(&mu_);
  if (limits_.max_streams && streams_ >= *limits_.max_streams) {
    return Status::ResourceExhausted(
        "the clients of " + owner_ + " have " + std::to_string(*limits_.max_streams) +
        " streams open, which is its max_streams; close some, or raise the limit");
  }
  ++streams_;
  return Status::Ok();
}

void UsageMeter::LeaveStream() {
  MutexLock lock(&mu_);
  --streams_;
}

Duration UsageMeter::CostOf(uint64_t bytes) const {
  const double seconds = static_cast<double>(bytes) / static_cast<double>(*limits_.max_bytes_per_second);
  // A message of a gigabyte at a byte per second would overflow.
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, 3600.0)));
}

Duration UsageMeter::Charge(uint64_t bytes, TimePoint now) {
  if (!limits_.max_bytes_per_second) return Duration(0);
  const Duration cost = CostOf(bytes);
  MutexLock lock(&mu_);
  paid_until_ = std::max(paid_until_, now - kBurst) + cost;
  return std::max(paid_until_ - now, Duration(0));
}

Duration UsageMeter::Reserve(uint64_t bytes, TimePoint now) {
  if (!limits_.max_bytes_per_second) return Duration(0);
  const Duration cost = CostOf(bytes);
  MutexLock lock(&mu_);
  const TimePoint start = std::max(paid_until_, now - kBurst);
  paid_until_ = start + cost;
  return std::max(start - now, Duration(0));
}

void UsageMeter::AddWaiting(int64_t bytes) {
  std::vector<std::function<void()>> readers;
  {
    MutexLock lock(&mu_);
    waiting_bytes_ += bytes;
    if (!limits_.max_waiting_bytes || waiting_bytes_ <= *limits_.max_waiting_bytes) readers.swap(readers_);
  }
  for (const std::function<void()>& read : readers) read();
}

void UsageMeter::WhenRoom(std::function<void()> read) {
  {
    MutexLock lock(&mu_);
    if (limits_.max_waiting_bytes && waiting_bytes_ > *limits_.max_waiting_bytes) {
      readers_.push_back(std::move(read));
      return;
    }
  }
  read();
}

bool UsageMeter::IsIdle(TimePoint now) {
  MutexLock lock(&mu_);
  return streams_ == 0 && waiting_bytes_ == 0 && paid_until_ <= now;
}

// --- Usage ---

bool Usage::limits_bytes() const {
  return std::ranges::any_of(meters_, [](const auto& meter) { return meter->limits_bytes(); });
}

Status Usage::EnterStream() const {
  for (size_t i = 0; i < meters_.size(); ++i) {
    Status status = meters_[i]->EnterStream();
    if (status.ok()) continue;
    while (i > 0) meters_[--i]->LeaveStream();
    return status;
  }
  return Status::Ok();
}

void Usage::LeaveStream() const {
  for (const auto& meter : meters_) meter->LeaveStream();
}

Duration Usage::Charge(uint64_t bytes, TimePoint now) const {
  Duration pause{0};
  for (const auto& meter : meters_) pause = std::max(pause, meter->Charge(bytes, now));
  return pause;
}

Duration Usage::Reserve(uint64_t bytes, TimePoint now) const {
  Duration wait{0};
  for (const auto& meter : meters_) wait = std::max(wait, meter->Reserve(bytes, now));
  return wait;
}

void Usage::AddWaiting(int64_t bytes) const {
  for (const auto& meter : meters_) meter->AddWaiting(bytes);
}

void Usage::WhenRoomFrom(size_t first, std::function<void()> read) const {
  if (first == meters_.size()) return read();
  meters_[first]->WhenRoom([*this, first, read = std::move(read)] { WhenRoomFrom(first + 1, read); });
}

std::string Usage::Owners() const {
  std::string text;
  for (const auto& meter : meters_) {
    if (meter->limits_bytes()) text += (text.empty() ? "" : " and ") + meter->owner();
  }
  return text;
}

}  // namespace reverb::internal
