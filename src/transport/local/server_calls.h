// server_calls.h — the single calls of one socket that carries many at a time.
//
// Threads: Begin() on the loop of the socket; CancelAll() on any. Replies are sent by the thread that has finished the
// operation.
#ifndef REVERB_TRANSPORT_LOCAL_SERVER_CALLS_H_
#define REVERB_TRANSPORT_LOCAL_SERVER_CALLS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "reverb/status.h"
#include "transport/local/stream_socket.h"
#include "transport/single_calls.h"
#include "transport/traffic.h"
#include "transport/transport.h"

namespace reverb::internal {

class ServerCalls : public std::enable_shared_from_this<ServerCalls> {
 public:
  // `traffic`: null if messages are not counted.
  ServerCalls(std::weak_ptr<StreamSocket> socket, std::shared_ptr<TrafficCounters> traffic)
      : socket_(std::move(socket)), traffic_(std::move(traffic)) {
    if (traffic_ != nullptr) traffic_->AddCallStreams(1);
  }
  ~ServerCalls() {
    if (traffic_ != nullptr) traffic_->AddCallStreams(-1);
  }
  ServerCalls(const ServerCalls&) = delete;
  ServerCalls& operator=(const ServerCalls&) = delete;

  // Executes a call, and sends its reply when there is one. An error ends the socket.
  Status Begin(uint64_t number, Method method, ByteSlices request, RequestHandler* handler) EXCLUDES(mu_);
  // Cancels the operations that wait. What later ones have got is given back.
  void CancelAll() EXCLUDES(mu_);

 private:
  // Returns false if the client is gone.
  bool Reply(uint64_t number, const Result<WireMessage>& reply) EXCLUDES(mu_);

  const std::weak_ptr<StreamSocket> socket_;
  const std::shared_ptr<TrafficCounters> traffic_;

  Mutex mu_;
  std::map<uint64_t, std::shared_ptr<PendingCall>> pending_ GUARDED_BY(mu_);  // null: is being started
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_SERVER_CALLS_H_
