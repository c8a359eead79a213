// wire_pieces.h — chooses the pieces that carry the data of samples.
//
// Every slice of every sample is a Use of rows of one column of a chunk.
//   1. Uses are sorted by chunk, column and row, so that uses of adjacent rows are adjacent.
//   2. A use of strings or of compressed blocks is sent as blocks: each run of adjacent blocks that are used
//      becomes one piece.
//   3. A use of raw rows is gathered: the rows of the same column position of consecutive samples become one
//      piece, in the order of the samples. But if the uses of a position overlap so much that runs of
//      distinct rows would be shorter by a third, such runs become the pieces (frames that overlap).
//   4. Pieces are numbered by their first use.
// Samples that all have the same columns of raw rows take a shorter path (wire_shared_columns.h) if the
// client supports it.
//
// Ownership: borrows the samples. Threads: values.
#ifndef REVERB_TRANSPORT_WIRE_PIECES_H_
#define REVERB_TRANSPORT_WIRE_PIECES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "transport/messages.h"
#include "transport/wire_writer.h"

namespace reverb::internal {

class PieceBuilder {
 public:
  explicit PieceBuilder(const std::vector<Sample>& samples) : samples_(samples) {
    CollectUses();
    SortUses();
    ChooseBlocks();
    ChooseRows();
    Gather();
    NumberPieces();
  }

  // Writes the samples, each as field `field` of the reply.
  void WriteSamples(uint32_t field, WireWriter* writer) const;
  void WritePieces(WireWriter* writer) const {
    for (const uint32_t piece : order_) WritePiece(pieces_[piece], writer);
  }
  // Returns an upper bound on the bytes that both write.
  uint64_t MaxBytes() const;

 private:
  // A slice of a sample: rows of one column of a chunk.
  struct Use {
    Chunk* chunk;
    uint32_t column;  // of the chunk
    uint32_t offset;
    uint32_t length;
    uint32_t position;  // the column of the trajectory
    bool raw;           // fixed-size rows in blocks that are not compressed
    // Its location in the reply.
    uint32_t piece;
    uint32_t piece_offset;
  };
  struct Piece {
    enum class Kind : uint8_t { kBlocks, kRows, kGathered };
    Kind kind;
    uint32_t first_use;  // the lowest index of a use
    Chunk* chunk = nullptr;
    uint32_t column = 0;
    uint32_t first = 0;  // of blocks or rows; not for gathered ones
    uint32_t count = 0;
    uint64_t rows = 0;
    std::vector<uint32_t> gathered;  // uses
  };
  static ColumnView ViewOf(const Use& use) { return use.chunk->header().column(use.column); }

  void CollectUses();
  void SortUses();
  void ChooseBlocks();
  void ChooseRows();
  void Gather();
  void NumberPieces();
  void WritePiece(const Piece& piece, WireWriter* writer) const;
  void WriteGathered(const Piece& piece, WireWriter* writer) const;
  static void WritePiece(const ColumnView& view, std::span<const std::span<const uint8_t>> parts,
                         Chunk* chunk, WireWriter* writer);

  // Calls visit(first, last) for each run of sorted_ of the same chunk and column.
  template <typename F>
  void ForEachGroup(const F& visit) {
    for (size_t first = 0; first < sorted_.size();) {
      const Use& use = uses_[sorted_[first]];
      size_t last = first + 1;
      while (last < sorted_.size() && uses_[sorted_[last]].chunk == use.chunk &&
             uses_[sorted_[last]].column == use.column) {
        ++last;
      }
      visit(std::span<const uint32_t>(sorted_).subspan(first, last - first));
      first = last;
    }
  }
  // Makes a piece of each run of units (blocks or rows) that the uses of `group` cover for which
  // `is_meant` holds; interval(use) gives first and end in units. Runs that only touch become one.
  template <typename IsMeant, typename Interval>
  void CoverByRuns(std::span<const uint32_t> group, Piece::Kind kind, uint32_t rows_per_unit,
                   const IsMeant& is_meant, const Interval& interval);

  bool IsShared(const Use& use) const { return shared_positions_[use.position]; }

  const std::vector<Sample>& samples_;
  std::vector<Use> uses_;         // by sample, column, slice
  std::vector<uint32_t> sorted_;  // indices of uses_ by chunk, column, offset
  std::vector<bool> shared_positions_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> order_;    // pieces_ as they are sent
  std::vector<uint32_t> numbers_;  // of pieces_, as they are sent
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_PIECES_H_
