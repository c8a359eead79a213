// key_owners.h — remembers which of several servers holds a sampled item.
//
// Bounded: forgets the oldest keys. Threads: all methods may be called concurrently.
#ifndef REVERB_CLIENT_KEY_OWNERS_H_
#define REVERB_CLIENT_KEY_OWNERS_H_

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "transport/messages.h"

namespace reverb::internal {

class KeyOwners {
 public:
  static constexpr size_t kMaxKeys = size_t{1} << 20;

  void Record(std::span<const Sample> samples) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    for (const Sample& sample : samples) {
      if (!owners_.insert_or_assign(sample.key, sample.server).second) continue;
      order_.push_back(sample.key);
      if (order_.size() <= kMaxKeys) continue;
      owners_.erase(order_.front());
      order_.pop_front();
    }
  }
  std::optional<uint32_t> Find(uint64_t key) const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    const auto found = owners_.find(key);
    return found == owners_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  mutable Mutex mu_;
  absl::flat_hash_map<uint64_t, uint32_t> owners_ GUARDED_BY(mu_);
  std::deque<uint64_t> order_ GUARDED_BY(mu_);  // oldest first
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_KEY_OWNERS_H_
