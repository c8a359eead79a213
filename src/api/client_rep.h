// client_rep.h — the state of a public Client.
#ifndef REVERB_API_CLIENT_REP_H_
#define REVERB_API_CLIENT_REP_H_

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "api/server_link.h"
#include "client/key_owners.h"
#include "reverb/client.h"

namespace reverb {

struct Client::Rep {
  std::string address;
  ClientOptions options;
  std::vector<std::unique_ptr<internal::ServerLink>> servers;  // at least one
  std::shared_ptr<internal::KeyOwners> owners;                 // null for one server

  // Returns the next server in turn. Each kind of call has its own turn, so that calls that come in pairs do
  // not always use the same server.
  enum Kind { kWriter, kInsert, kSample, kInfo };
  size_t NextTurn(Kind kind) { return servers.size() == 1 ? 0 : turns[kind].fetch_add(1) % servers.size(); }
  internal::ServerLink& next(Kind kind) { return *servers[NextTurn(kind)]; }
  std::array<std::atomic<size_t>, 4> turns{};
};

}  // namespace reverb

#endif  // REVERB_API_CLIENT_REP_H_
