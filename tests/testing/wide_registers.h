// wide_registers.h — whether the upper halves of the vector registers are in use.
//
// Code for AVX must clear them at its end. Otherwise, on some processors, every later switch between code for AVX (memcpy)
// and for SSE (what the compiler emits by default) costs some hundred cycles, in all functions of the thread.
#ifndef REVERB_TESTING_WIDE_REGISTERS_H_
#define REVERB_TESTING_WIDE_REGISTERS_H_

#include <cstdint>
#include <optional>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace reverb::test {

// Clears the upper halves, calls `run`, and returns whether it left them in use. Returns nothing if the processor does not
// tell.
template <typename F>
std::optional<bool> LeavesWideRegistersInUse(F&& run) {
#if defined(__x86_64__)
  const auto is_in_use = [] {
    constexpr uint32_t kAvxState = 1U << 2;
    uint32_t low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return (low & kAvxState) != 0;
  };
  uint32_t features = 0, b = 0, c = 0, d = 0;
  constexpr uint32_t kTellsStateInUse = 1U << 2;
  if (!__builtin_cpu_supports("avx") || __get_cpuid_count(0xd, 1, &features, &b, &c, &d) == 0 ||
      (features & kTellsStateInUse) == 0) {
    return std::nullopt;
  }
  asm volatile("vzeroupper" ::: "memory");
  if (is_in_use()) return std::nullopt;  // not tracked
  run();
  return is_in_use();
#else
  (void)run;
  return std::nullopt;
#endif
}

}  // namespace reverb::test

#endif  // REVERB_TESTING_WIDE_REGISTERS_H_
