// wire_seal.h — the checksum that every message travels with.
//
// A sealed message begins with the field `checksum`: XXH3-64 of all bytes behind it, long payloads left out,
// plus the number of the message. Long payloads (kShareBytes and more) are covered by the checksums of their
// blocks, which are in the message's headers; so a seal costs as much as the headers do. The number tells
// when a message of a stream was lost, repeated or moved.
//
// WireMessage::Seal() makes it. Threads: free functions without state.
#ifndef REVERB_TRANSPORT_WIRE_SEAL_H_
#define REVERB_TRANSPORT_WIRE_SEAL_H_

#include <cstdint>
#include <vector>

#include "reverb/status.h"
#include "tensor/proto_reader.h"
#include "transport/wire_writer.h"

namespace reverb::internal {

// Of every message.
inline constexpr uint32_t kChecksumField = 14;
inline constexpr uint8_t kSealTag = kChecksumField << 3 | static_cast<uint8_t>(ProtoType::kFixed64);
// Chunks of an InsertRequest; pieces of a SampleResponse or an InspectResponse. Their payloads have the same
// number.
inline constexpr uint32_t kDataField = 15;
// The payload of a SampleResponse that is a part of one.
inline constexpr uint32_t kPartField = 13;

// Checks the seal of message `number` and takes it off `*slices`. DATA_LOSS, detail corrupt data, when it is
// not there or does not hold.
Status Unseal(uint64_t number, std::vector<ByteSlice>* slices);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_SEAL_H_
