// client_rep.h — what a public Client holds.
#ifndef REVERB_API_CLIENT_REP_H_
#define REVERB_API_CLIENT_REP_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "client/item_sink.h"
#include "client/sampler.h"
#include "reverb/client.h"
#include "transport/transport.h"

namespace reverb {

struct Client::Rep {
  ~Rep();

  // The connection to use now: without a socket where the server turns out to be in this process.
  // Finding that out takes no longer than `wait` allows.
  std::shared_ptr<internal::Connection> Connect(const WaitOptions& wait = {}) EXCLUDES(mu);
  // The same, with a socket of its own.
  Result<std::shared_ptr<internal::Connection>> OwnConnection() EXCLUDES(mu);
  std::unique_ptr<internal::ItemSink> NewSink(bool reconnects = true);
  // Samplers for single draws that are kept warm; null when none is idle.
  std::shared_ptr<internal::Sampler> TakeIdleSampler(std::string_view table) EXCLUDES(mu);
  void KeepIdleSampler(std::string_view table, std::shared_ptr<internal::Sampler> sampler) EXCLUDES(mu);

  // Set once.
  std::string address;
  ClientOptions options;
  std::shared_ptr<internal::Connection> network;  // null for the client of a server at hand
  bool is_pinned = false;                         // such a client

  internal::Mutex mu;
  bool is_elsewhere GUARDED_BY(mu) = false;      // the server was asked, and is in another process
  internal::TimePoint ask_again GUARDED_BY(mu);  // it could not be asked
  std::shared_ptr<internal::Connection> inproc GUARDED_BY(mu);
  internal::Id128 life_id GUARDED_BY(mu){};
  std::vector<Writer> idle_writers GUARDED_BY(mu);
  std::map<std::string, std::vector<std::shared_ptr<internal::Sampler>>, std::less<>> idle_samplers
      GUARDED_BY(mu);
};

}  // namespace reverb

#endif  // REVERB_API_CLIENT_REP_H_
