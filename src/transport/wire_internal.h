// wire_internal.h — parts of messages that several wire_*.cc write and read.
//
// Write… appends the fields of a message without its own tag and length. Parse… reads all that is left in
// a reader; what is read is merged into the value given, as protobuf says.
#ifndef REVERB_TRANSPORT_WIRE_INTERNAL_H_
#define REVERB_TRANSPORT_WIRE_INTERNAL_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/wire.h"

namespace reverb::internal {

inline std::string Number(uint64_t value) { return std::to_string(value); }

// RESOURCE_EXHAUSTED when the message as a whole is larger than the limit.
Status CheckMessageSize(const ProtoReader& reader, std::string_view message, const WireLimits& limits);
// "SampleResponse: 9 samples, at most 8 are accepted".
Status TooMany(std::string_view message, std::string_view what, uint64_t limit);

void WriteHello(const Hello& hello, WireWriter* writer);
Status ParseHello(ProtoReader reader, const WireLimits& limits, Hello* hello);
void WriteWelcome(const Welcome& welcome, WireWriter* writer);
Status ParseWelcome(ProtoReader reader, const WireLimits& limits, Welcome* welcome);
void WriteStatus(const Status& status, WireWriter* writer);
Status ParseStatus(ProtoReader reader, const WireLimits& limits, Status* status);

void WriteColumnHeader(const ColumnView& column, WireWriter* writer);
Status ParseColumnHeader(ProtoReader reader, ColumnHeader* column);

// One slice of an item as it travels.
struct WireSlice {
  uint64_t chunk_id = 0;
  uint32_t chunk_column = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
};
// As field 1 of a Column.
void WriteSlice(const WireSlice& slice, WireWriter* writer);
// Reads a Column. `resolve(chunk_id)` gives the chunk, null for an id that is not known.
// `*slices_left`: how many more are accepted.
Status ParseColumn(ProtoReader reader, const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                   ColumnSpec* column);
// The next Column of a message called `name`, behind those in `*columns`.
Status ParseNextColumn(ProtoReader* message, std::string_view name,
                       const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                       const WireLimits& limits, std::vector<ColumnSpec>* columns);

// The number that reasons have on the wire; those of newer peers become kNone.
WaitReason ToWaitReason(uint32_t number);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_INTERNAL_H_
