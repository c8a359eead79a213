// random.h — a small, fast, seedable generator whose state can be saved.
//
// xoshiro256++ (Blackman and Vigna, public domain), seeded with splitmix64. The same seed produces the same
// sequence on every platform and in every release.
#ifndef REVERB_BASE_RANDOM_H_
#define REVERB_BASE_RANDOM_H_

#include <array>
#include <bit>
#include <cstdint>

namespace reverb::internal {

class Random {
 public:
  using State = std::array<uint64_t, 4>;

  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) {
      seed += 0x9E3779B97F4A7C15u;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      word = z ^ (z >> 31);
    }
  }

  uint64_t Next() {
    const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Returns a uniform number in [0, bound), without modulo bias (Lemire). REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) {
    unsigned __int128 product = static_cast<unsigned __int128>(Next()) * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = -bound % bound;
      while (static_cast<uint64_t>(product) < threshold) {
        product = static_cast<unsigned __int128>(Next()) * bound;
      }
    }
    return static_cast<uint64_t>(product >> 64);
  }

  // Returns a uniform number in [0, 1) with 53 random bits.
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

  const State& state() const { return state_; }
  // Replaces the all-zero state, which the generator cannot leave.
  void set_state(const State& state) { state_ = state == State{} ? Random(0).state_ : state; }

 private:
  State state_;
};

// Returns a seed from the system's entropy source.
uint64_t EntropySeed();

// Returns 128 bits of entropy, for globally unique IDs.
std::array<uint8_t, 16> RandomId();

}  // namespace reverb::internal

#endif  // REVERB_BASE_RANDOM_H_
