#include "base/fork.h"

#include <pthread.h>

#include <atomic>

namespace reverb::internal {
namespace {

std::atomic<uint64_t> fork_generation{0};

// Runs while the program is loaded, before any other thread can fork().
[[maybe_unused]] const bool kCountsForks = [] {
  return pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); }) ==
         0;
}();

}  // namespace

uint64_t ForkGeneration() { return fork_generation.load(std::memory_order_relaxed); }

}  // namespace reverb::internal
