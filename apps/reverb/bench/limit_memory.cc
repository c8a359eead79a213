#include "bench/limit_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "bench/loops_batch.h"
#include "bench/payload.h"

namespace reverb::bench {
namespace {

// Copies random slots of the pool into the next place of a ring that exceeds the caches.
class CopyInLoop : public Loop {
 public:
  CopyInLoop(const Job& job, uint64_t seed)
      : size_(job.size), ring_(static_cast<size_t>(job.size * job.items)), picker_(job.size, seed) {}

  Status Run(double end, Tally* tally) override {
    while (NowSeconds() < end) {
      for (int i = 0; i < 64; ++i) {
        std::memcpy(ring_.data() + next_, picker_(), size_);
        next_ += size_;
        if (next_ == ring_.size()) next_ = 0;
      }
      tally->items += 64;
    }
    tally->bytes = tally->items * static_cast<double>(size_);
    return Status::Ok();
  }

 private:
  size_t size_;
  AlignedBytes ring_;
  size_t next_ = 0;
  Picker picker_;
};

// Copies random items into one array per column. An item is one block of memory, regardless of its columns,
// which needs the fewest cache lines and pages. Prefetches items a few places ahead.
class GatherLoop : public Loop {
 public:
  GatherLoop(std::vector<int64_t> columns, int64_t items, int64_t batch, uint64_t seed)
      : columns_(std::move(columns)), batch_(static_cast<size_t>(batch)), random_(seed) {
    for (const int64_t bytes : columns_) {
      item_bytes_ += static_cast<size_t>(bytes);
      arrays_.emplace_back(static_cast<size_t>(bytes) * batch_);
    }
    Picker picker(item_bytes_, seed);
    blocks_.reserve(static_cast<size_t>(items));
    for (int64_t i = 0; i < items; ++i) {
      blocks_.emplace_back(item_bytes_);
      std::memcpy(blocks_.back().data(), picker(), item_bytes_);
    }
  }

  Status Run(double end, Tally* tally) override {
    std::vector<const uint8_t*> chosen(batch_);
    while (NowSeconds() < end) {
      Tally::Timer timer(tally);
      for (const uint8_t*& block : chosen) block = blocks_[random_() % blocks_.size()].data();
      for (size_t i = 0; i < batch_; ++i) {
        if (i + kAhead < batch_) Prefetch(chosen[i + kAhead]);
        const uint8_t* from = chosen[i];
        for (size_t column = 0; column < columns_.size(); ++column) {
          const auto bytes = static_cast<size_t>(columns_[column]);
          std::memcpy(arrays_[column].data() + i * bytes, from, bytes);
          from += bytes;
        }
      }
      timer.Stop();
      tally->items += static_cast<double>(batch_);
    }
    tally->samples = tally->items;
    tally->bytes = tally->items * static_cast<double>(item_bytes_);
    return Status::Ok();
  }

 private:
  static constexpr size_t kAhead = 4;
  // For large items the processor prefetches the rest.
  static constexpr size_t kPrefetchedBytes = 512;

  void Prefetch(const uint8_t* block) const {
    for (size_t at = 0; at < std::min(item_bytes_, kPrefetchedBytes); at += 64)
      __builtin_prefetch(block + at);
  }

  std::vector<int64_t> columns_;
  size_t item_bytes_ = 0;
  size_t batch_;
  std::vector<AlignedBytes> blocks_;
  std::vector<AlignedBytes> arrays_;
  Random random_;
};

}  // namespace

Result<std::vector<std::unique_ptr<Loop>>> MakeMemoryLimitLoops(const Job& job) {
  std::vector<std::unique_ptr<Loop>> loops;
  switch (job.kind) {
    case Kind::kLimitColumns:
      loops.push_back(std::make_unique<GatherLoop>(
          std::vector<int64_t>(kTransitionColumns.begin(), kTransitionColumns.end()), job.items,
          kLearnerBatch, job.seed));
      break;
    case Kind::kLimitFrames:
      loops.push_back(
          std::make_unique<GatherLoop>(std::vector{kFrameBytes}, job.items, kLearnerBatch, job.seed));
      break;
    default: {
      uint64_t seed = job.seed * 1000;
      for (int i = 0; i < job.writers; ++i) loops.push_back(std::make_unique<CopyInLoop>(job, ++seed));
      for (int i = 0; i < job.samplers; ++i) {
        loops.push_back(std::make_unique<GatherLoop>(std::vector{job.size}, job.items, /*batch=*/64, ++seed));
      }
      break;
    }
  }
  return loops;
}

}  // namespace reverb::bench
