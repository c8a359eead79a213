#include "signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

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

bool HasControllingTerminal() {
  const int descriptor = open("/dev/tty", O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return false;
  close(descriptor);
  return true;
}

}  // namespace reverb::program
