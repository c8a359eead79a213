// handshake_watch.h — ends calls that wait for a connection which cannot be established with the present settings.
//
// gRPC repeats failed handshakes without end and reports no reason to calls that wait for the server. While such calls
// wait, the watch finds out the reason once a second, on a thread of its own for each attempt: one for all calls of a
// channel, however many wait.
//
// Ownership: shared by the Connection and its calls.
// Threads: all methods may be called concurrently.
#ifndef REVERB_TRANSPORT_GRPC_HANDSHAKE_WATCH_H_
#define REVERB_TRANSPORT_GRPC_HANDSHAKE_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "reverb/status.h"
#include "transport/grpc/grpc_channel.h"

namespace reverb::internal {

class HandshakeWatch : public std::enable_shared_from_this<HandshakeWatch> {
 public:
  explicit HandshakeWatch(std::shared_ptr<GrpcChannel> channel) : channel_(std::move(channel)) {}

  // Calls `fail` with the reason if no connection can be established. Returns an identifier for Remove().
  uint64_t Add(std::function<void(Status)> fail) EXCLUDES(mu_);
  // `fail` may still be running when this returns.
  void Remove(uint64_t id) EXCLUDES(mu_);

 private:
  void LookLater() EXCLUDES(mu_);
  // Starts an attempt if the channel has no connection.
  void Look() EXCLUDES(mu_);
  // Finds out the reason. Blocks for up to a second.
  void Probe() EXCLUDES(mu_);

  const std::shared_ptr<GrpcChannel> channel_;

  Mutex mu_;
  bool is_looking_ GUARDED_BY(mu_) = false;  // a look is scheduled or in progress
  uint64_t last_id_ GUARDED_BY(mu_) = 0;
  std::unordered_map<uint64_t, std::function<void(Status)>> calls_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_HANDSHAKE_WATCH_H_
