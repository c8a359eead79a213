// seed.h — the seed of randomised tests: fixed, so that runs are reproducible; settable, to try others.
//
//   const uint64_t seed = test::Seed();
// every failure below shows the seed
//   Random random(seed);
#ifndef REVERB_TESTS_TESTING_SEED_H_
#define REVERB_TESTS_TESTING_SEED_H_

#include <cstdint>
#include <cstdlib>
#include <string>

namespace reverb::test {

inline constexpr uint64_t kDefaultSeed = 20'210'602;

// Returns REVERB_TEST_SEED from the environment (decimal, or hexadecimal after 0x), or kDefaultSeed.
inline uint64_t Seed() {
  const char* const text = std::getenv("REVERB_TEST_SEED");
  if (text == nullptr || *text == '\0') return kDefaultSeed;
  char* end = nullptr;
  const uint64_t seed = std::strtoull(text, &end, 0);
  return *end == '\0' ? seed : kDefaultSeed;
}

inline std::string SeedTrace(uint64_t seed) {
  return "to repeat this run: REVERB_TEST_SEED=" + std::to_string(seed);
}

}  // namespace reverb::test

#endif  // REVERB_TESTS_TESTING_SEED_H_
