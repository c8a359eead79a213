// wire_calls.h — the messages of a stream of single calls (`Calls` in docs/protocol.md), each of which contains the
// message of a single call.
//
// Threads: free functions without state.
#ifndef REVERB_TRANSPORT_WIRE_CALLS_H_
#define REVERB_TRANSPORT_WIRE_CALLS_H_

#include <cstdint>
#include <string>

#include "reverb/status.h"
#include "tensor/proto_reader.h"
#include "transport/wire.h"
#include "transport/wire_writer.h"

namespace reverb::internal {

// CallRequest.
struct CallMessage {
  uint32_t method = 0;  // see Method, single_calls.h
  std::string request;  // without a checksum
};
WireMessage EncodeCallRequest(const CallMessage& message);
Result<CallMessage> DecodeCallRequest(ByteSlices slices, const WireLimits& limits = {});

// CallResponse: the outcome of a call.
struct CallOutcome {
  Status status;
  std::string response;  // without a checksum; empty if the call failed
};
WireMessage EncodeCallReply(const CallOutcome& outcome);
Result<CallOutcome> DecodeCallReply(ByteSlices slices, const WireLimits& limits = {});

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_CALLS_H_
