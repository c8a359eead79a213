// client_rep.h — the state of a public Client.
#ifndef REVERB_API_CLIENT_REP_H_
#define REVERB_API_CLIENT_REP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/server_link.h"
#include "base/fork.h"
#include "client/key_owners.h"
#include "reverb/client.h"

namespace reverb {

struct Client::Rep {
  // Creates the state of a client, with a link to each of its servers.
  static Result<std::shared_ptr<Rep>> Make(const std::string& address, const ClientOptions& options);
  // Returns `rep`, or its replacement in a child created by fork(): the parent's threads may have held locks of
  // `rep`, and its connections belong to the parent. Neither is touched in the child.
  static const std::shared_ptr<Rep>& OfThisProcess(const std::shared_ptr<Rep>& rep);
  // Does nothing in a child, see above.
  struct Delete {
    void operator()(Rep* rep) const;
  };
  ~Rep() { delete replacement.load(); }

  std::string address;
  ClientOptions options;
  bool is_pinned = false;  // to a server of this process, which a child does not have
  const uint64_t generation = internal::ForkGeneration();
  std::atomic<const std::shared_ptr<Rep>*> replacement{nullptr};  // of a child; owned
  std::vector<std::unique_ptr<internal::ServerLink>> servers;     // at least one
  std::shared_ptr<internal::KeyOwners> owners;                    // null for one server

  // Returns the next server in turn. Each kind of call has its own turn, so that calls that come in pairs do
  // not always use the same server.
  enum Kind { kWriter, kInsert, kSample, kInfo };
  size_t NextTurn(Kind kind) { return servers.size() == 1 ? 0 : turns[kind].fetch_add(1) % servers.size(); }
  internal::ServerLink& next(Kind kind) { return *servers[NextTurn(kind)]; }
  std::array<std::atomic<size_t>, 4> turns{};
};

}  // namespace reverb

#endif  // REVERB_API_CLIENT_REP_H_
