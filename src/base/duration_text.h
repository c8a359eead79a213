// duration_text.h — durations in log and error messages.
#ifndef REVERB_BASE_DURATION_TEXT_H_
#define REVERB_BASE_DURATION_TEXT_H_

#include <chrono>
#include <string>

#include "base/clock.h"

namespace reverb::internal {

// Returns "1.5 s", or "50 ms" below a tenth of a second.
inline std::string DurationText(Duration duration) {
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  if (millis > 0 && millis < 100) return std::to_string(millis) + " ms";
  const auto tenths = millis / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace reverb::internal

#endif  // REVERB_BASE_DURATION_TEXT_H_
