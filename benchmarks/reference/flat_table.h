// flat_table.h — a minimal table: the reference for the engine's inserts and samples.
//
// A ring of slots that is also the FIFO, one hash map from key to slot, a counted chunk of 64 bytes per item,
// one mutex. No selectors, limiter, statistics, columns or errors.
#ifndef REVERB_BENCHMARKS_REFERENCE_FLAT_TABLE_H_
#define REVERB_BENCHMARKS_REFERENCE_FLAT_TABLE_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/random.h"

namespace reverb::bench {

struct FlatChunk {
  std::atomic<int> refs{1};
  uint32_t length = 400;
  uint64_t key = 0;
  char bytes[48];

  void Unref() {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

class FlatTable {
 public:
  explicit FlatTable(size_t capacity) : items_(capacity) { index_.reserve(capacity + 1); }
  ~FlatTable() {
    for (size_t i = 0; i < size_; ++i) items_[i].chunk->Unref();
  }

  void Insert(uint64_t key) {
    FlatChunk* chunk = new FlatChunk;
    chunk->key = key;
    FlatChunk* evicted = nullptr;
    {
      std::lock_guard<std::mutex> lock(mu_);
      Item& item = items_[head_];
      if (size_ == items_.size()) {
        index_.erase(item.key);
        evicted = item.chunk;
      } else {
        ++size_;
      }
      item = {.key = key, .priority = 1, .times_sampled = 0, .chunk = chunk};
      index_.emplace(key, static_cast<uint32_t>(head_));
      head_ = head_ + 1 == items_.size() ? 0 : head_ + 1;
    }
    if (evicted) evicted->Unref();
  }

  void Sample(size_t n, internal::Random& random, std::vector<FlatChunk*>* out) {
    out->clear();
    uint32_t picks[256];
    std::lock_guard<std::mutex> lock(mu_);
    for (size_t i = 0; i < n; ++i) {
      picks[i] = static_cast<uint32_t>(random.Next() % size_);
      __builtin_prefetch(&items_[picks[i]], 1);
    }
    for (size_t i = 0; i < n; ++i) __builtin_prefetch(items_[picks[i]].chunk, 1);
    for (size_t i = 0; i < n; ++i) {
      Item& item = items_[picks[i]];
      ++item.times_sampled;
      item.chunk->refs.fetch_add(1, std::memory_order_relaxed);
      out->push_back(item.chunk);
    }
  }

 private:
  struct Item {
    uint64_t key = 0;
    float priority = 0;
    uint32_t times_sampled = 0;
    FlatChunk* chunk = nullptr;
    uint64_t spare = 0;
  };
  std::mutex mu_;
  absl::flat_hash_map<uint64_t, uint32_t> index_;
  std::vector<Item> items_;
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_REFERENCE_FLAT_TABLE_H_
