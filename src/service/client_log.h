// client_log.h — what a server logs of its clients: refusals, disconnects and long waits.
//
// Nothing is logged of clients in the server's own process, which get the errors and log their own waits.
//
// Threads: all functions may be called concurrently.
#ifndef REVERB_SERVICE_CLIENT_LOG_H_
#define REVERB_SERVICE_CLIENT_LOG_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "reverb/server_info.h"
#include "reverb/status.h"
#include "transport/messages.h"

namespace reverb::internal {

// The client of a stream.
struct ClientIdentity {
  std::string name;     // that it has chosen; may be empty
  std::string address;  // empty within the server's own process
  std::string session;  // of a writer: its id; of a sampler: the number of its stream

  bool is_remote() const { return !address.empty(); }
  // "learner at 192.0.2.7:41822".
  std::string ToString() const;
  // The fields client, address and session, after those in `first`.
  LogFields Fields(LogFields first) const;
};

// Returns a session id as text.
std::string SessionText(const Id128& id);

// A call that has waited for longer than WaitLogAfter() and was not logged yet.
struct LongWait {
  WaiterInfo waiter;
  std::string session;
};

// Logs that a request of the client, about `table` unless that is empty, was refused.
void LogRefusedClient(const ClientIdentity& client, std::string_view table, const Status& status);
// Logs a wait, with the reason from `table`.
void LogLongWait(const LongWait& wait, const TableInfo& table, LogEvery* log);

}  // namespace reverb::internal

#endif  // REVERB_SERVICE_CLIENT_LOG_H_
