#include "transport/wire_calls.h"

#include "transport/wire_internal.h"

namespace reverb::internal {

WireMessage EncodeCallRequest(const CallMessage& message) {
  WireWriter writer(message.request.size() + 16);
  writer.Uint(1, message.method);
  writer.Bytes(2, message.request);
  return writer.Finish();
}

Result<CallMessage> DecodeCallRequest(ByteSlices slices, const WireLimits& limits) {
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, "CallRequest", limits));
  CallMessage message;
  while (reader.Next()) {
    if (reader.field() == 1) reader.Read(&message.method);
    if (reader.field() == 2) reader.Read(&message.request, limits.max_message_bytes);
  }
  REVERB_RETURN_IF_ERROR(reader.status("CallRequest"));
  return message;
}

WireMessage EncodeCallReply(const CallOutcome& outcome) {
  WireWriter writer(outcome.response.size() + 16);
  if (!outcome.status.ok()) {
    const auto nested = writer.Begin(1);
    WriteStatus(outcome.status, &writer);
    writer.End(nested);
  }
  writer.Bytes(2, outcome.response);
  return writer.Finish();
}

Result<CallOutcome> DecodeCallReply(ByteSlices slices, const WireLimits& limits) {
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, "CallResponse", limits));
  CallOutcome outcome;
  while (reader.Next()) {
    if (reader.field() == 1) {
      REVERB_RETURN_IF_ERROR(ParseStatus(reader.ReadMessage(), limits, &outcome.status));
    }
    if (reader.field() == 2) reader.Read(&outcome.response, limits.max_message_bytes);
  }
  REVERB_RETURN_IF_ERROR(reader.status("CallResponse"));
  return outcome;
}

}  // namespace reverb::internal
