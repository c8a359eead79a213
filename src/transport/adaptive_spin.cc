#include "transport/adaptive_spin.h"

#include <thread>

namespace reverb::internal {

Duration DefaultSpin() {
  constexpr Duration kSpin = std::chrono::microseconds(50);
  static const Duration spin = std::thread::hardware_concurrency() >= 2 ? kSpin : Duration(0);
  return spin;
}

}  // namespace reverb::internal
