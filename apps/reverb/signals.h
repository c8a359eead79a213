// signals.h — which signals end a command.
#ifndef REVERB_APPS_REVERB_SIGNALS_H_
#define REVERB_APPS_REVERB_SIGNALS_H_

#include <vector>

namespace reverb::program {

// SIGTERM, SIGINT and SIGHUP, without those that the program inherited as ignored: `nohup` ignores SIGHUP,
// and a shell without job control ignores SIGINT of what it starts in the background. To be called before any
// of them gets a handler.
std::vector<int> StopSignals();

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_SIGNALS_H_
