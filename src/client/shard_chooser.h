// shard_chooser.h — chooses the server of each sample, so that several servers give the samples of one table.
//
// If the selectors pick items in proportion to weights (Uniform, Prioritized), servers are drawn at random in
// proportion to their masses. An item is then as likely as in one table with the items of all servers. If all
// masses are 0, the sizes take their place, as in a prioritized table without a positive priority. If a
// selector picks in an order (Fifo, Lifo, heaps), servers take turns: the order is that of each server.
//
// Threads: none; the owner's lock guards it.
#ifndef REVERB_CLIENT_SHARD_CHOOSER_H_
#define REVERB_CLIENT_SHARD_CHOOSER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.h"
#include "transport/messages.h"

namespace reverb::internal {

class ShardChooser {
 public:
  explicit ShardChooser(uint64_t seed) : random_(seed) {}

  // Sets the shards that can be sampled now; those of size 0 are ignored. Indices are those of the caller and
  // must be less than `num_shards`, which keeps its turns.
  struct Candidate {
    size_t index = 0;
    TableMass mass;
  };
  void SetCandidates(std::vector<Candidate> candidates, size_t num_shards) {
    turns_.resize(num_shards);
    std::erase_if(candidates, [](const Candidate& one) { return one.mass.size <= 0; });
    // A shard that returns takes its turn with the others; it does not catch up.
    uint64_t least = UINT64_MAX;
    for (const Candidate& one : candidates_) {
      if (one.index < num_shards) least = std::min(least, turns_[one.index]);
    }
    if (least == UINT64_MAX) {  // all return
      least = 0;
      for (const Candidate& one : candidates) least = std::max(least, turns_[one.index]);
    }
    for (const Candidate& one : candidates) turns_[one.index] = std::max(turns_[one.index], least);
    candidates_ = std::move(candidates);
    is_weighted_ =
        std::ranges::all_of(candidates_, [](const Candidate& one) { return one.mass.is_weighted; });
    total_size_ = 0;
    total_ = 0;
    for (const Candidate& one : candidates_) {
      total_size_ += one.mass.size;
      total_ += one.mass.mass;
    }
    by_size_ = !(total_ > 0);
    if (by_size_) total_ = static_cast<double>(total_size_);
  }
  // Changes the number of shards: the one at `index` is gone, and those behind it move up.
  void Remove(size_t index) {
    if (index < turns_.size()) turns_.erase(turns_.begin() + static_cast<ptrdiff_t>(index));
    std::erase_if(candidates_, [index](const Candidate& one) { return one.index == index; });
    for (Candidate& one : candidates_) one.index -= one.index > index ? 1 : 0;
  }

  // Returns the shard of the next sample; absent if there is no candidate.
  std::optional<size_t> Choose() {
    if (candidates_.empty()) return std::nullopt;
    if (!is_weighted_) {
      const Candidate* next = &candidates_.front();
      for (const Candidate& one : candidates_) {
        if (turns_[one.index] < turns_[next->index]) next = &one;
      }
      ++turns_[next->index];
      return next->index;
    }
    double point = random_.Unit() * total_;
    for (const Candidate& one : candidates_) {
      point -= Weight(one);
      if (point < 0) return one.index;
    }
    // Rounding: the last one that may be chosen.
    for (auto one = candidates_.rbegin(); one != candidates_.rend(); ++one) {
      if (Weight(*one) > 0) return one->index;
    }
    return candidates_.back().index;
  }

  // Returns the probability of an item in all shards, given that in its own one.
  double Probability(size_t index, double in_shard) const {
    if (!is_weighted_) return in_shard;
    for (const Candidate& one : candidates_) {
      if (one.index == index) return in_shard * (Weight(one) / total_);
    }
    return in_shard;
  }
  // Returns the number of items in all candidates.
  int64_t total_size() const { return total_size_; }
  bool has_candidates() const { return !candidates_.empty(); }
  size_t num_candidates() const { return candidates_.size(); }

 private:
  double Weight(const Candidate& one) const {
    return by_size_ ? static_cast<double>(one.mass.size) : one.mass.mass;
  }

  Random random_;
  std::vector<Candidate> candidates_;
  std::vector<uint64_t> turns_;  // by index
  bool is_weighted_ = true;
  bool by_size_ = false;  // all masses are 0
  double total_ = 0;      // of the weights
  int64_t total_size_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_SHARD_CHOOSER_H_
