// wait.h — timeouts, and a callback during waits.
#ifndef REVERB_WAIT_H_
#define REVERB_WAIT_H_

#include <chrono>
#include <functional>
#include <optional>

#include "reverb/status.h"

namespace reverb {

// How long a call may wait. Absent = forever, zero = try once.
using Timeout = std::optional<std::chrono::nanoseconds>;

struct WaitOptions {
  Timeout timeout = {};
  // Called on the waiting thread about every 50 ms. An error ends the wait with that error, for example after
  // a signal or at the request of another thread.
  std::function<Status()> on_wait = {};
};

}  // namespace reverb

#endif  // REVERB_WAIT_H_
