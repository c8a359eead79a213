// wait.h — waits until another thread or process makes a condition true. Header-only.
#ifndef REVERB_TESTS_TESTING_WAIT_H_
#define REVERB_TESTS_TESTING_WAIT_H_

#include <chrono>
#include <thread>

namespace reverb::test {

// Calls condition() until it returns true. Returns false after `timeout`, which is reached only if the test
// fails.
template <typename Condition>
[[nodiscard]] bool WaitUntil(Condition condition,
                             std::chrono::nanoseconds timeout = std::chrono::seconds(60)) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // polls the condition
  }
  return true;
}

}  // namespace reverb::test

#endif  // REVERB_TESTS_TESTING_WAIT_H_
