#include "transport/local/local_connection.h"

namespace reverb::internal {

Result<std::shared_ptr<Connection>> ConnectLocal(const LocalOptions& options) {
  return Status::Unimplemented("cannot connect to \"" + options.path + "\": not implemented yet");
}

Result<Id128> ProbeLocal(const LocalOptions& options, Duration /*timeout*/) {
  return Status::Unavailable("cannot connect to \"" + options.path + "\": not implemented yet");
}

}  // namespace reverb::internal
