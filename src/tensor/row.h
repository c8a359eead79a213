// row.h — rows of row tables on their way in and out.
//
// The data of a row is in chunks with one row of steps, one for each write: the value of a column is the row of a
// column of such a chunk, with the value's shape. A column that grew by appends has a segment for each write.
//
// Threads: values.
#ifndef REVERB_TENSOR_ROW_H_
#define REVERB_TENSOR_ROW_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/payload_source.h"
#include "reverb/row_operations.h"
#include "reverb/row_table_options.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "tensor/chunk.h"
#include "tensor/column.h"

namespace reverb::internal {

// One value of a column, or a part of it.
struct RowSegment {
  ChunkRef chunk;
  uint32_t chunk_column = 0;
  uint32_t offset = 0;  // the row of the chunk

  ColumnView column() const { return chunk->header().column(chunk_column); }
  // Returns the bytes of the value as it is stored, and when it is decoded.
  uint64_t stored_bytes() const { return chunk->header().column_payload_size(chunk_column); }
  uint64_t decoded_bytes() const {
    uint64_t bytes = 0;
    for (const BlockInfo& block : column().blocks) bytes += block.raw_size;
    return bytes;
  }
  // Returns the first dimension of the value; 1 for a scalar.
  int64_t length() const {
    const ColumnView view = column();
    return view.row_shape.empty() ? 1 : view.row_shape[0];
  }
};

// Returns a chunk with one row: these values, stored raw. Strings are stored as in any chunk. At least one value;
// INVALID_ARGUMENT, RESOURCE_EXHAUSTED if there are too many dimensions or bytes.
Result<ChunkRef> EncodeRow(std::span<const TensorView> values, PayloadSource* source = nullptr);

// Copies the value of a segment, which is not of dtype string, into `out`, which has exactly its size.
Status ReadSegment(const RowSegment& segment, std::span<uint8_t> out);
// Appends the strings of a segment.
Status ReadSegmentStrings(const RowSegment& segment, std::vector<std::string>* out);

// A row to be written.
struct RowWrite {
  std::string key = {};
  std::string group = {};  // empty = none
  std::vector<RowTag> tags = {};
  // Its columns are those of the write, in order, with one row each. Null: the write has no columns.
  ChunkRef chunk = {};
};

// A row as it is read.
struct RowRecord {
  std::string key = {};
  std::string group = {};
  int64_t version = 0;
  bool is_open = false;
  std::vector<RowTag> tags = {};
  // The names of the columns that the row has; only if they were asked for.
  std::vector<std::string> columns = {};
  // Only of rows that are listed.
  bool is_requeued = false;
  bool is_stale = false;
  std::vector<std::string> leased_by = {};    // names of consumers
  std::vector<std::string> consumed_by = {};  // likewise
  // For each selected column, the number of its segments: 0 if the row does not have it.
  std::vector<uint32_t> num_segments = {};
  std::vector<RowSegment> segments = {};  // of the selected columns, one after the other
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_ROW_H_
