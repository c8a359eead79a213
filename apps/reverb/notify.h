// notify.h — tells the service manager how far the program has come.
//
// Implements the client side of sd_notify(3): datagrams to the socket that the environment variable
// NOTIFY_SOCKET names, as for units with Type=notify. Without the variable, all functions do nothing. A
// datagram that cannot be sent is reported once on standard error; the program continues. Not thread-safe.
#ifndef REVERB_APPS_REVERB_NOTIFY_H_
#define REVERB_APPS_REVERB_NOTIFY_H_

#include <chrono>
#include <string>

#include "reverb/checkpoint.h"

namespace reverb::program {

class ServiceNotifier {
 public:
  ServiceNotifier();

  // Reports the progress of a load, at most once a second, and extends the manager's start timeout: a long
  // load does not exceed it, one without progress does.
  void Loading(const CheckpointProgress& progress);
  // Reports that clients can connect. `status` is one line for people, as are those below.
  void Ready(const std::string& status);
  void Stopping(const std::string& status);
  // Reports that the configuration is read again; Ready() ends it.
  void Reloading();

 private:
  using Clock = std::chrono::steady_clock;

  void Send(const std::string& state);

  std::string socket_;  // empty: there is no service manager, or it could not be reached
  Clock::time_point next_progress_{};
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_NOTIFY_H_
