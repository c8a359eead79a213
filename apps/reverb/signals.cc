#include "signals.h"

#include <signal.h>

namespace reverb::program {

std::vector<int> StopSignals() {
  std::vector<int> signals;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction inherited {};
    if (sigaction(number, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN) continue;
    signals.push_back(number);
  }
  return signals;
}

}  // namespace reverb::program
