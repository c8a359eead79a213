// wire_seal.h — verifies the checksum that every message is sent with.
//
// A sealed message starts with the field `checksum`: XXH3-64 of all bytes after it except long payloads, plus
// the number of the message. Long payloads (kShareBytes and more) are covered by the checksums of their
// blocks, which are in the headers of the message; so a seal costs as much as the headers do. The number
// reveals a message of a stream that was lost, repeated or reordered.
//
// WireMessage::Seal() creates it. Threads: free functions without state.
#ifndef REVERB_TRANSPORT_WIRE_SEAL_H_
#define REVERB_TRANSPORT_WIRE_SEAL_H_

#include <cstdint>
#include <vector>

#include "reverb/status.h"
#include "tensor/proto_reader.h"
#include "transport/wire_writer.h"

namespace reverb::internal {

// The field number in every message.
inline constexpr uint32_t kChecksumField = 14;
inline constexpr uint8_t kSealTag = kChecksumField << 3 | static_cast<uint8_t>(ProtoType::kFixed64);
// The chunks of an InsertRequest; the pieces of a SampleResponse or an InspectResponse. Their payloads have
// the same number.
inline constexpr uint32_t kDataField = 15;
// In a SampleResponse that is a part of one: the part, and the size of the whole response.
inline constexpr uint32_t kPartField = 13;
inline constexpr uint32_t kResponseBytesField = 6;

// Verifies the seal of message `number` and removes it from `*slices`. Returns DATA_LOSS, detail corrupt
// data, when it is missing or wrong.
Status Unseal(uint64_t number, std::vector<ByteSlice>* slices);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_SEAL_H_
