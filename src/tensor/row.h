// row.h — rows of row tables on their way in and out.
//
// The data of a row is in chunks with one row of steps, one for each write: the value of a column is the row of a
// column of such a chunk, with the value's shape. A column that grew by appends has a segment for each write.
//
// Threads: values.
#ifndef REVERB_TENSOR_ROW_H_
#define REVERB_TENSOR_ROW_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/payload_source.h"
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

// What a write does, for all of its rows.
struct RowWriteMode {
  std::vector<std::string> columns = {};
  std::optional<int64_t> version = {};  // absent: that of the table
  bool overwrite = false;               // replaces columns that the row has
  bool append = false;                  // appends to columns of open rows
  bool open = false;                    // new rows are open
  bool create = true;                   // false: unknown keys are refused
  std::string same_length_as = {};      // the columns must have the length of this one; empty = any
  uint64_t reservation = 0;             // counts new rows against this one; 0 = none
};

// Rows to be claimed by a consumer.
struct RowClaim {
  std::string consumer = {};
  std::string holder = {};  // who claims, for messages
  int64_t count = 1;        // rows, at most
  int64_t at_least = 0;     // rows; 0 = count
  std::vector<std::string> needs = {};
  std::vector<std::string> select = {};  // further columns to return, as far as a row has them
  std::string where = {};                // an expression; empty = all rows
  int64_t max_tokens = 0;                // bounds the sum of the lengths of token_column; 0 = unbounded
  std::string token_column = "tokens";
  std::optional<bool> whole_groups = {};  // absent: if the table has groups
  Duration lease = std::chrono::seconds(60);
};

// The numbers are sent: never change them.
enum class RowSettlement : uint8_t { kAcknowledge = 0, kRelease = 1, kExtend = 2 };
inline constexpr int kNumRowSettlements = 3;

// How an open row ends, or not. The numbers are sent: never change them.
enum class RowEnding : uint8_t { kClose = 0, kAbort = 1, kRequeue = 2 };
inline constexpr int kNumRowEndings = 3;

// A row as it is read.
struct RowRecord {
  std::string key = {};
  std::string group = {};
  int64_t version = 0;
  bool is_open = false;
  std::vector<RowTag> tags = {};
  // The names of the columns that the row has; only if they were asked for.
  std::vector<std::string> columns = {};
  // For each selected column, the number of its segments: 0 if the row does not have it.
  std::vector<uint32_t> num_segments = {};
  std::vector<RowSegment> segments = {};  // of the selected columns, one after the other
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_ROW_H_
