// admin_source.h — gives the admin port the state of a server and its items.
#ifndef REVERB_API_ADMIN_SOURCE_H_
#define REVERB_API_ADMIN_SOURCE_H_

#include <memory>
#include <string>

#include "admin/admin_source.h"
#include "server/server.h"

namespace reverb::internal {

// `server` must outlive the result. `address`: host:port of the server; empty if it does not listen.
std::shared_ptr<AdminSource> MakeAdminSource(ServerImpl* server, std::string address, std::string commit);

}  // namespace reverb::internal

#endif  // REVERB_API_ADMIN_SOURCE_H_
