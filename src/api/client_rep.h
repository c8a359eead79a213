// client_rep.h — the state of a public Client.
#ifndef REVERB_API_CLIENT_REP_H_
#define REVERB_API_CLIENT_REP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "api/server_link.h"
#include "api/server_set.h"
#include "base/fork.h"
#include "reverb/client.h"

namespace reverb {

struct Client::Rep {
  // Creates the state of a client.
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
  // One of the two is null.
  std::shared_ptr<internal::ServerLink> only;  // the server of a client of one
  std::shared_ptr<internal::ServerSet> set;

  // Returns the present servers. Those of a set may be none.
  internal::ServerSet::Links links() const { return only ? internal::ServerSet::Links{only} : set->links(); }
  // The same; waits until there is one.
  Result<internal::ServerSet::Links> AwaitLinks(const WaitOptions& wait) const {
    if (only) return internal::ServerSet::Links{only};
    return set->AwaitLinks(wait);
  }
  std::unique_ptr<internal::ItemSink> NewSink() { return only ? only->NewSink() : set->NewSink(); }
};

}  // namespace reverb

#endif  // REVERB_API_CLIENT_REP_H_
