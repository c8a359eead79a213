// random_tables.h — random configurations of tables, and data for their items.
#ifndef REVERB_TESTS_MODEL_RANDOM_TABLES_H_
#define REVERB_TESTS_MODEL_RANDOM_TABLES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "base/random.h"
#include "core/chunk_store.h"
#include "core/table_state.h"
#include "model/model_table.h"
#include "testing/chunks.h"

namespace reverb::model {

enum class Limiter { kMinSize, kSampleToInsertRatio, kQueue, kStack };
inline constexpr Limiter kLimiters[] = {Limiter::kMinSize, Limiter::kSampleToInsertRatio, Limiter::kQueue,
                                        Limiter::kStack};
inline constexpr const char* kLimiterNames[] = {"MinSize", "SampleToInsertRatio", "Queue", "Stack"};

inline RateLimiterOptions RandomLimiter(Limiter kind, int64_t max_size, internal::Random* random) {
  const auto size = static_cast<int64_t>(1 + random->Below(static_cast<uint64_t>(max_size)));
  switch (kind) {
    case Limiter::kMinSize:
      return RateLimiterOptions::MinSize(size);
    case Limiter::kSampleToInsertRatio: {
      constexpr double kRatios[] = {0.1, 1.0 / 3, 0.5, 1, 2, 4.7};
      const double ratio = kRatios[random->Below(std::size(kRatios))];
      return RateLimiterOptions::SampleToInsertRatio(ratio, size, std::max(1.0, ratio) + 20 * random->Unit())
          .value();
    }
    case Limiter::kQueue:
      return RateLimiterOptions::Queue(size);
    case Limiter::kStack:
      return RateLimiterOptions::Stack(size);
  }
  return {};
}

// Returns an age in ticks of the test's clock; zero = none.
inline internal::Duration RandomAge(internal::Random* random) {
  constexpr int64_t kAges[] = {0, 0, 1, 20, 60, 200};
  return internal::Duration(kAges[random->Below(std::size(kAges))]);
}

inline SelectorOptions RandomSelector(SelectorOptions::Kind kind, internal::Random* random) {
  SelectorOptions options{.kind = kind};
  if (!options.is_deterministic()) options.seed = random->Next();
  constexpr double kExponents[] = {1, 1, 0.6, 0.5, 2, 0};
  if (kind == SelectorOptions::Kind::kPrioritized)
    options.priority_exponent = kExponents[random->Below(std::size(kExponents))];
  return options;
}

inline TableOptions RandomTable(SelectorOptions::Kind sampler, SelectorOptions::Kind remover, Limiter limiter,
                                internal::Random* random) {
  constexpr int64_t kSizes[] = {1, 2, 3, 5, 8, 16, 17, 33, 64};
  constexpr int32_t kTimes[] = {0, 0, 1, 2, 5};
  TableOptions options{.name = "t",
                       .sampler = RandomSelector(sampler, random),
                       .remover = RandomSelector(remover, random),
                       .max_size = kSizes[random->Below(std::size(kSizes))],
                       .max_times_sampled = kTimes[random->Below(std::size(kTimes))]};
  const bool is_queue = limiter == Limiter::kQueue || limiter == Limiter::kStack;
  if (is_queue && random->Below(2) == 0) options.max_times_sampled = 1;
  options.max_age = RandomAge(random);
  options.rate_limiter = RandomLimiter(limiter, options.max_size, random);
  return options;
}

// The data of the items of a test: trajectories over a few chunks of a few episodes.
class DataPool {
 public:
  explicit DataPool(internal::ChunkStore* store) {
    for (uint32_t i = 0; i < kChunks; ++i) {
      chunks_.push_back(test::MakeChunk(store, /*episode_id=*/1'000 + i / 3, i % 3 * 10, 1 + i % 4, i));
    }
    for (uint32_t i = 0; i < kChunks; ++i) Add({i});
    for (uint32_t i = 0; i + 5 < kChunks; i += 2) Add({i, i + 1, i + 5});
    for (uint32_t i = 0; i < 4; ++i) Add({i, i + 9, i});  // uses one chunk twice
  }

  size_t size() const { return trajectories_.size(); }
  const internal::Trajectory& trajectory(size_t i) const { return trajectories_[i]; }
  // Returns the same data in a block of its own, which is freed with its last reference.
  internal::Trajectory FreshTrajectory(size_t i) const {
    return internal::Trajectory::Create({&columns_[i], 1}).value();
  }
  const ModelData& data(size_t i) const { return data_[i]; }
  int64_t chunk_count() const { return kChunks; }
  int64_t BytesOf(uint32_t chunks) const {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < kChunks; ++i) bytes += (chunks >> i & 1) * chunks_[i]->bytes();
    return bytes;
  }

 private:
  static constexpr uint32_t kChunks = 18;

  void Add(std::vector<uint32_t> indices) {
    internal::ColumnSpec column;
    ModelData data{.id = static_cast<int>(data_.size())};
    for (const uint32_t i : indices) {
      column.slices.push_back({.chunk = chunks_[i], .offset = 0, .length = 1});
      data.chunks |= 1u << i;
      data.episodes |= 1u << (i / 3);
    }
    data.chunk_bytes = BytesOf(data.chunks);
    columns_.push_back(std::move(column));
    data_.push_back(data);
    trajectories_.push_back(FreshTrajectory(columns_.size() - 1));
  }

  std::vector<internal::ChunkRef> chunks_;
  std::vector<internal::ColumnSpec> columns_;
  std::vector<internal::Trajectory> trajectories_;
  std::vector<ModelData> data_;
};

}  // namespace reverb::model

#endif  // REVERB_TESTS_MODEL_RANDOM_TABLES_H_
