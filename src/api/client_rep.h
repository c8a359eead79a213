// client_rep.h — what a public Client holds.
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

  // The server whose turn it is; each kind of call has turns of its own, so that those which come in pairs do
  // not meet the same server each time.
  enum Kind { kWriter, kInsert, kSample, kInfo };
  size_t NextTurn(Kind kind) { return servers.size() == 1 ? 0 : turns[kind].fetch_add(1) % servers.size(); }
  internal::ServerLink& next(Kind kind) { return *servers[NextTurn(kind)]; }
  std::array<std::atomic<size_t>, 4> turns{};
};

}  // namespace reverb

#endif  // REVERB_API_CLIENT_REP_H_
