#include "transport/local/local_server.h"

namespace reverb::internal {

class LocalServer::Impl {};

Result<std::unique_ptr<LocalServer>> LocalServer::Start(const Options& options,
                                                        std::shared_ptr<RequestHandler> /*handler*/) {
  return Status::Unimplemented("cannot listen on \"" + options.path + "\": not implemented yet");
}

LocalServer::~LocalServer() = default;
void LocalServer::Stop(Duration /*grace*/) {}

}  // namespace reverb::internal
