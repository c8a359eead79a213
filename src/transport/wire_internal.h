// wire_internal.h — encodes and decodes the parts that several messages share.
//
// Write… appends the fields of a message without its own tag and length. Parse… reads the rest of a reader
// and merges it into the given value, as protobuf defines it.
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

// Returns RESOURCE_EXHAUSTED when the whole message is larger than the limit.
Status CheckMessageSize(const ProtoReader& reader, std::string_view message, const WireLimits& limits);
// Returns the error "message SampleResponse: more than the 8 samples that are accepted".
Status TooMany(std::string_view message, std::string_view what, uint64_t limit);

void WriteHello(const Hello& hello, WireWriter* writer);
Status ParseHello(ProtoReader reader, const WireLimits& limits, Hello* hello);
void WriteWelcome(const Welcome& welcome, WireWriter* writer);
Status ParseWelcome(ProtoReader reader, const WireLimits& limits, Welcome* welcome);
void WriteTableMass(const TableMass& mass, WireWriter* writer);
Status ParseTableMass(ProtoReader reader, const WireLimits& limits, TableMass* mass);
void WriteStatus(const Status& status, WireWriter* writer);
Status ParseStatus(ProtoReader reader, const WireLimits& limits, Status* status);

// Writes SampleInfo, all of a sample but its data, as field 1.
void WriteSampleInfo(const Sample& sample, WireWriter* writer);

// Writes a Chunk as field 15, with this ID.
void WriteChunk(Chunk* chunk, uint64_t id, WireWriter* writer);
// Reads a Piece as a chunk of one column with the ID `number`. `keeper` keeps the bytes of the message alive, if it
// owns anything; see DecodeSampleReply.
Status ParsePiece(ProtoReader reader, uint64_t number, const WireLimits& limits, const Buffer& keeper,
                  RowChecksums row_checksums, ChunkRef* piece);

void WriteColumnHeader(const ColumnView& column, WireWriter* writer);
Status ParseColumnHeader(ProtoReader reader, ColumnHeader* column);

// A slice of an item in a message.
struct WireSlice {
  uint64_t chunk_id = 0;
  uint32_t chunk_column = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
};
// Writes it as field 1 of a Column.
void WriteSlice(const WireSlice& slice, WireWriter* writer);
// Reads a Column. `resolve(chunk_id)` returns the chunk, null for an unknown ID. `*slices_left`: how many
// more are accepted.
Status ParseColumn(ProtoReader reader, const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                   ColumnSpec* column);
// Appends the next Column of the message `name` to `*columns`.
Status ParseNextColumn(ProtoReader* message, std::string_view name,
                       const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                       const WireLimits& limits, ColumnSpecs* columns);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_INTERNAL_H_
