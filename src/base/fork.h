// fork.h — tells a process that was created by fork() from its parent.
//
// A child has a copy of the parent's memory but none of its threads: locks may be held forever, and sockets
// are shared with the parent. Objects that use either remember the generation in which they were created and
// are replaced in a child, where they are never touched, not even destroyed.
#ifndef REVERB_BASE_FORK_H_
#define REVERB_BASE_FORK_H_

#include <atomic>
#include <cstdint>

namespace reverb::internal {

// Returns a number that every child created by fork() increases. Costs a load from memory.
uint64_t ForkGeneration();

// A global object with locks: created by the first get(), never destroyed, and replaced by a new one in a child.
// Threads: get() may be called concurrently.
template <typename T>
class PerProcess {
 public:
  constexpr PerProcess() = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& get() {
    Entry* current = current_.load(std::memory_order_acquire);
    if (current != nullptr && current->generation == ForkGeneration()) return current->value;
    auto* const fresh = new Entry{.generation = ForkGeneration(), .inherited = current};
    if (current_.compare_exchange_strong(current, fresh, std::memory_order_acq_rel)) return fresh->value;
    delete fresh;  // another thread has created one
    return current->value;
  }

 private:
  struct Entry {
    const uint64_t generation;
    [[maybe_unused]] Entry* const inherited;  // kept reachable for leak checkers
    T value = {};
  };
  std::atomic<Entry*> current_{nullptr};
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_FORK_H_
