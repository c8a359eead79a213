// effort.h — scales the length of randomised tests: shorter under sanitizers, ten times as long with
// REVERB_TEST_LONG set (`make test-long`).
#ifndef REVERB_TESTS_TESTING_EFFORT_H_
#define REVERB_TESTS_TESTING_EFFORT_H_

#include <cstdint>
#include <cstdlib>

namespace reverb::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// Returns the number of steps: `plain`, or `sanitized` under a sanitizer.
inline int64_t Effort(int64_t plain, int64_t sanitized) {
  const char* const is_long = std::getenv("REVERB_TEST_LONG");
  return (kSanitized ? sanitized : plain) * (is_long != nullptr && *is_long != '\0' ? 10 : 1);
}

}  // namespace reverb::test

#endif  // REVERB_TESTS_TESTING_EFFORT_H_
