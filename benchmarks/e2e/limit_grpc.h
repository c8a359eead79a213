// limit_grpc.h — what gRPC alone can do: the same bytes with nothing behind them but one copy-out.
//
// Byte buffers through the generic callback API, the fastest way that gRPC has. A message carries 64 items or
// 256 kB; items up to 4 kB are copied into one slice, larger ones are slices of their own that nobody copies
// before the socket. The receiver copies each message into a ring. Inserts are confirmed every 64 items or
// 1 MB; nothing but gRPC's own flow control holds samples back.
#ifndef REVERB_BENCHMARKS_E2E_LIMIT_GRPC_H_
#define REVERB_BENCHMARKS_E2E_LIMIT_GRPC_H_

#include <memory>
#include <vector>

#include "benchmarks/e2e/loop.h"

namespace reverb::bench {

class GrpcLimitServer {
 public:
  // On a free port of the loopback interface. `streams`: how many clients there will be at once.
  static Result<std::unique_ptr<GrpcLimitServer>> Start(int streams);
  ~GrpcLimitServer();
  int port() const;

 private:
  struct Rep;
  explicit GrpcLimitServer(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

// For kLimitStreams: Job::writers loops that insert, then Job::samplers loops that sample. For the other
// kinds one loop. Each has a connection of its own.
Result<std::vector<std::unique_ptr<Loop>>> MakeGrpcLimitLoops(const Job& job);

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_E2E_LIMIT_GRPC_H_
