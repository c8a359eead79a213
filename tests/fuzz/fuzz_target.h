// fuzz_target.h — declares what every fuzz target defines, and a check for its properties.
//
// libFuzzer (REVERB_FUZZERS) runs a target; replay.cc runs it on the stored corpus as an ordinary test.
#ifndef REVERB_TESTS_FUZZ_FUZZ_TARGET_H_
#define REVERB_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Unlike assert(), also active in optimised builds.
#define FUZZ_CHECK(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

#endif  // REVERB_TESTS_FUZZ_FUZZ_TARGET_H_
