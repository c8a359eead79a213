// limit_grpc.h — the limit of gRPC: transfers the same bytes, with one copy at the receiver.
//
// Uses byte buffers and the generic callback API, the fastest interface of gRPC. A message contains 64 items
// or 256 kB. Items up to 4 kB are copied into one slice; larger ones are separate slices that are not copied
// before the socket. The receiver copies each message into a ring. Inserts are confirmed every 64 items or 1
// MB; only gRPC's flow control limits samples.
#ifndef REVERB_APPS_BENCH_LIMIT_GRPC_H_
#define REVERB_APPS_BENCH_LIMIT_GRPC_H_

#include <memory>
#include <vector>

#include "bench/loop.h"

namespace reverb::bench {

class GrpcLimitServer {
 public:
  // Listens on a free port of the loopback interface. `streams`: the number of concurrent clients.
  static Result<std::unique_ptr<GrpcLimitServer>> Start(int streams);
  ~GrpcLimitServer();
  int port() const;

 private:
  struct Rep;
  explicit GrpcLimitServer(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

// For kLimitStreams: Job::writers loops that insert, then Job::samplers loops that sample. For the other
// kinds one loop. Each has its own connection.
Result<std::vector<std::unique_ptr<Loop>>> MakeGrpcLimitLoops(const Job& job);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_LIMIT_GRPC_H_
