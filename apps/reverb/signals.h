// signals.h — the signals that end a command.
#ifndef REVERB_APPS_REVERB_SIGNALS_H_
#define REVERB_APPS_REVERB_SIGNALS_H_

#include <vector>

namespace reverb::program {

// Returns SIGTERM, SIGINT and SIGHUP, without those that the program inherited as ignored: `nohup` ignores
// SIGHUP, and a shell without job control ignores SIGINT for background processes. Call before installing
// handlers.
std::vector<int> StopSignals();

// Returns whether the process has a controlling terminal. It loses it when the terminal is closed.
bool HasControllingTerminal();

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_SIGNALS_H_
