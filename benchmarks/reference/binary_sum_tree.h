// binary_sum_tree.h — a plain binary sum tree with branches: the reference for prioritized sampling.
#ifndef REVERB_BENCHMARKS_REFERENCE_BINARY_SUM_TREE_H_
#define REVERB_BENCHMARKS_REFERENCE_BINARY_SUM_TREE_H_

#include <bit>
#include <cstddef>
#include <vector>

namespace reverb::bench {

class BinarySumTree {
 public:
  explicit BinarySumTree(size_t leaves) : leaves_(std::bit_ceil(leaves)), sums_(2 * leaves_) {}

  double total() const { return sums_[1]; }
  double weight(size_t leaf) const { return sums_[leaves_ + leaf]; }
  void Update(size_t leaf, double weight) {
    const double change = weight - sums_[leaves_ + leaf];
    for (size_t node = leaves_ + leaf; node > 0; node /= 2) sums_[node] += change;
  }
  size_t Sample(double target) const {
    size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      if (target >= sums_[node]) {
        target -= sums_[node];
        ++node;
        asm volatile("");  // prevents conversion to a conditional move
      }
    }
    return node - leaves_;
  }
  // Advances all targets by one level at a time, so that their cache misses overlap. n <= 64.
  void SampleInterleaved(const double* targets, size_t n, size_t* out) const {
    double left[64];
    for (size_t i = 0; i < n; ++i) {
      left[i] = targets[i];
      out[i] = 1;
    }
    for (size_t width = 1; width < leaves_; width *= 2) {
      for (size_t i = 0; i < n; ++i) {
        const size_t child = 2 * out[i];
        const double sum = sums_[child];
        const bool right = left[i] >= sum;
        left[i] -= right ? sum : 0;
        out[i] = child + right;
        if (2 * width < leaves_) __builtin_prefetch(&sums_[2 * out[i]]);
      }
    }
    for (size_t i = 0; i < n; ++i) out[i] -= leaves_;
  }

 private:
  size_t leaves_;
  std::vector<double> sums_;
};

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_REFERENCE_BINARY_SUM_TREE_H_
