// snapshot.h — asks servers for their information.
#ifndef REVERB_APPS_REVERB_SNAPSHOT_H_
#define REVERB_APPS_REVERB_SNAPSHOT_H_

#include <functional>

#include "info_view.h"
#include "remote.h"
#include "reverb/client.h"
#include "reverb/status.h"

namespace reverb::program {

// Returns the state of the server, or of several the sum of those that answer; an error if none does. `on_wait` is
// that of WaitOptions.
Result<Snapshot> TakeSnapshot(const Client& client, const Remote& remote,
                              const std::function<Status()>& on_wait = {});

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_SNAPSHOT_H_
