#include "progress.h"

#include <chrono>

#include "errors.h"

namespace reverb::python {

CheckpointProgressCallback ProgressCallback(nb::handle callable) {
  if (callable.is_none()) return {};
  using Clock = std::chrono::steady_clock;
  return [callable, next = Clock::time_point()](const CheckpointProgress& progress) mutable {
    constexpr std::chrono::milliseconds kInterval(100);
    const Clock::time_point now = Clock::now();
    const bool is_done = progress.bytes_total > 0 && progress.bytes_done >= progress.bytes_total;
    if (now < next && !is_done) return;
    next = now + kInterval;
    const nb::gil_scoped_acquire acquired;
    try {
      callable(progress.bytes_done, progress.bytes_total);
    } catch (nb::python_error& error) {
      ReportOrRaiseLater(error);
    }
  };
}

}  // namespace reverb::python
