// wire_shared_columns.h — encodes samples that all have the same columns of raw rows: the common batch.
//
// Each column becomes one piece, sample after sample, and the column layout is sent once per batch. One pass
// over the slices determines whether the samples share their columns, and locates the rows; nothing is
// sorted.
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
// Bound a gathered piece, so that decoders accept it by default.
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

// Returns the checksum of a run. Uses that of the block if the run is a block, so that the receiver detects
// damage that occurred since the block was created.
uint64_t ChecksumOf(const RawRowRun& run);

// Starts a Piece: writes all but the `size` bytes of its payload. The caller appends these and calls End().
// `by_reference`: whatever their size.
[[nodiscard]] WireWriter::Nested BeginPiece(const ColumnView& view, uint64_t size, WireWriter* writer,
                                            bool by_reference = false);

// Writes a Piece of the runs, one after the other. REQUIRES: they have the dtype and row shape of `like`, and
// are within kMaxGatherRows and kMaxGatherBytes together.
void WriteRuns(const ColumnView& like, std::span<const RawRowRun> runs, WireWriter* writer);

class SharedColumns {
 public:
  // Returns nothing if the samples do not share their columns (strings, compressed columns, different shapes
  // or lengths), if rows overlap so much that each should be sent once, and for a single sample. Rows that are
  // sent by reference may overlap.
  static std::optional<SharedColumns> Find(std::span<const Sample> samples, const WireWriter& writer);

  // Write each column as field `field`, and the pieces, which are numbered from 0. REQUIRES: the samples still exist.
  void WriteColumns(uint32_t field, WireWriter* writer) const;
  void WritePieces(WireWriter* writer) const;

 private:
  struct Column {
    ColumnView like;
    uint64_t row_bytes = 0;
    uint32_t length = 0;  // rows of each sample
    bool squeeze = false;
    std::vector<RawRowRun> runs;
  };
  class Distinct;

  // `distinct`: null if overlaps do not matter.
  bool Add(const Sample& sample, Distinct* distinct);
  // Adds rows of the layout row_layout_.
  void AddRows(const Trajectory& trajectory, Distinct* distinct);
  // Writes a Piece of the rows of samples_, by reference.
  void WriteRows(uint32_t column, WireWriter* writer) const;

  std::vector<Column> columns_;
  uint32_t row_layout_ = 0;  // of the first sample; 0: it has none
  // If not empty, all of these have that layout and are sent by reference; the columns have no runs.
  std::span<const Sample> samples_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_SHARED_COLUMNS_H_
