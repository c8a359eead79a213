// closed_stream.h — stands for a stream that could not be opened.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_TRANSPORT_CLOSED_STREAM_H_
#define REVERB_TRANSPORT_CLOSED_STREAM_H_

#include <cstdint>

#include "transport/transport.h"

namespace reverb::internal {

class ClosedStream final : public InsertStream, public SampleStream {
 public:
  InsertStream::Sent Send(InsertMessage) override { return {}; }
  void Send(SampleRequest) override {}
  uint64_t NewBytes(const Trajectory&) const override { return 0; }
  void Finish() override {}
  void Cancel() override {}
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_CLOSED_STREAM_H_
