// wire_shared_columns.h — samples that all have the same columns of raw rows: the common batch.
//
// Each column becomes one piece, sample after sample, and is said once for all of them. Whether samples are
// even is found in one pass over their slices, which also finds where the rows lie; nothing is sorted.
//
// Ownership: borrows the samples. Threads: values.
#ifndef REVERB_TRANSPORT_WIRE_SHARED_COLUMNS_H_
#define REVERB_TRANSPORT_WIRE_SHARED_COLUMNS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/messages.h"
#include "transport/wire_writer.h"

namespace reverb::internal {

// Rows that overlap are sent once when sending them for each sample would take this many times the bytes.
inline constexpr double kOverlapFactor = 1.5;
// A gathered piece ends here, so that it stays within what decoders accept by default.
inline constexpr uint64_t kMaxGatherBytes = uint64_t{128} << 20;
inline constexpr uint64_t kMaxGatherRows = uint64_t{1} << 24;

// Raw rows of one column of a chunk.
struct RawRowRun {
  Chunk* chunk;
  uint32_t column;  // of the chunk
  uint32_t offset;
  uint32_t length;
  std::span<const uint8_t> bytes;
};

// The checksum of a run; one that exists is passed on: damage since it was made shows at the far end.
uint64_t ChecksumOf(const RawRowRun& run);

// Begins a Piece: all but the `size` bytes of its payload, which the caller appends. End() it then.
[[nodiscard]] WireWriter::Nested BeginPiece(const ColumnView& view, uint64_t size, WireWriter* writer);

// Writes a Piece of the runs, one after the other. They are of the dtype and row shape of `like`, and within
// kMaxGatherRows and kMaxGatherBytes together.
void WriteRuns(const ColumnView& like, std::span<const RawRowRun> runs, WireWriter* writer);

class EvenSamples {
 public:
  // Nothing when they are not even: strings, compressed columns, other shapes or lengths; nor when rows
  // overlap so much that they should travel once, nor for a sample alone.
  static std::optional<EvenSamples> Find(std::span<const Sample> samples);

  // Once, as field `field` each; pieces are numbered from 0.
  void WriteColumns(uint32_t field, WireWriter* writer) const;
  void WritePieces(WireWriter* writer) const {
    for (const Column& column : columns_) WriteRuns(column.like, column.runs, writer);
  }

 private:
  struct Column {
    ColumnView like;
    uint64_t row_bytes = 0;
    uint32_t length = 0;  // rows of each sample
    bool squeeze = false;
    std::vector<RawRowRun> runs;
  };
  class Distinct;

  bool Add(const Sample& sample, Distinct* distinct);

  std::vector<Column> columns_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_SHARED_COLUMNS_H_
