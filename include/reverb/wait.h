// wait.h — how long a call may wait, and what to do meanwhile.
#ifndef REVERB_WAIT_H_
#define REVERB_WAIT_H_

#include <chrono>
#include <functional>
#include <optional>

#include "reverb/status.h"

namespace reverb {

// How long a call may wait. Absent = for ever, zero = try once.
using Timeout = std::optional<std::chrono::nanoseconds>;

struct WaitOptions {
  Timeout timeout = {};
  // Called on the waiting thread, about every 50 ms while it waits. An error ends the wait with that
  // error: this is how a signal, or another thread, makes a call give up.
  std::function<Status()> on_wait = {};
};

}  // namespace reverb

#endif  // REVERB_WAIT_H_
