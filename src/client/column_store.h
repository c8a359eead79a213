// column_store.h — the rows of a writer: stored by column, and divided into chunks.
//
//   values  →  columns, which keep their newest cells  →  groups of columns  →  chunks
//
// A group is a set of columns that share their chunks. Small columns that arrive in the same call form a
// group; large ones are separate. A call has values for all columns of a group or for none: if it has values
// for some, the group's chunk is finished, and the group is permanently split into those and the others.
//
// Chunks never span episodes. A chunk has a slot from its first row on; cells, and items that wait for the
// chunk, hold references to the slot. A slot without references is released, and the sink forgets its chunk
// if an item contained it.
//
// A chunk of a fixed length is complete when it is full. A tuned group may collect rows until an item needs
// them (see ChunkLengthTuner), up to a number of bytes; the item then gets chunks of its own rows only, and the
// rows around them become chunks of the same length.
//
// Memory: no allocation per cell; a chunk of one row is encoded directly from the caller's bytes, others from
// a row buffer of each column. Rows that are not compressed are copied to the chunk at once. Of others, chunks take over
// large payloads, or copy them into memory of a payload source.
// Ownership: borrows the sink. Threads: one at a time.
#ifndef REVERB_CLIENT_COLUMN_STORE_H_
#define REVERB_CLIENT_COLUMN_STORE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/payload_source.h"
#include "client/chunk_length_tuner.h"
#include "client/item_sink.h"
#include "client/ring.h"
#include "client/row_buffer.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "reverb/writer.h"
#include "tensor/chunk.h"
#include "tensor/column.h"

namespace reverb::internal {

CodecPolicy PolicyOf(Compression compression);

// A chunk that is being filled, or is complete.
struct ChunkSlot {
  ChunkRef chunk;              // null while rows are added
  uint32_t group = 0;          // the group that fills, or filled, it
  uint32_t refs = 0;           // cells, waiting items, and the group while it is being filled
  bool was_sent = false;       // the chunk is in an item that was added to the sink
  bool is_awaited = false;     // an item waits for the chunk, which has fewer rows than the tuned length
  bool was_collected = false;  // the chunk has more rows than the tuned length
  uint64_t last_item = 0;      // the last item in which RecordItem() found it
};

struct Cell {
  int64_t position = 0;
  ChunkSlot* slot = nullptr;
  uint32_t row = 0;
  uint32_t chunk_column = 0;
};

// Adjacent rows of one chunk, which may be incomplete.
struct RowRun {
  ChunkSlot* slot = nullptr;
  uint32_t chunk_column = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
};

class ColumnStore {
 public:
  enum class Packing : uint8_t {
    kSmall,  // small columns that arrive in the same call
    kAll,    // all columns, whatever their size
  };
  // How error messages name a column and report a column that is given twice.
  enum class ErrorStyle : uint8_t { kTrajectory, kStructured };

  struct Options {
    ChunkingOptions chunking;  // REQUIRES: valid
    CodecPolicy codec = CodecPolicy::kAuto;
    Packing packing = Packing::kSmall;
    ErrorStyle error_style = ErrorStyle::kTrajectory;
    // Where the payloads of chunks are; null for the private memory of the chunks. Must outlive all chunks.
    PayloadSource* payload_source = nullptr;
  };

  ColumnStore(const Options& options, uint64_t episode_id, ItemSink* sink);
  ColumnStore(const ColumnStore&) = delete;
  ColumnStore& operator=(const ColumnStore&) = delete;

  // Same as the methods of TrajectoryWriterImpl. If Append() fails, it stores nothing, unless it runs out of
  // memory.
  Status Append(std::span<const ColumnValue> values, bool closes_step);
  Status AppendSequence(std::span<const ColumnValue> values);
  // Returns the error that Append() would return for the values.
  Status Check(std::span<const ColumnValue> values);
  Status Configure(uint32_t index, const ChunkingOptions& options);
  // Returns whether Configure() would succeed with valid options: no rows wait for more of their chunk.
  bool can_configure(uint32_t index) const;
  Status NameColumn(uint32_t column, std::string path);
  // Checks the column's values, but does not store them: it has no cells.
  Status Discard(uint32_t column);

  // Closes an open step and begins an episode. With `clear`, drops all cells, and does not encode rows that
  // no item waits for; otherwise, finishes all chunks.
  Status StartEpisode(uint64_t episode_id, bool clear);

  // Completes the chunk of a slot, unless it is complete.
  Status Finish(ChunkSlot* slot);
  // Completes the chunks of collected rows that a new item refers to, and changes its runs accordingly. Other
  // incomplete chunks of the runs stay so: the item has to wait for them.
  Status CutCollectedRows(std::span<RowRun> runs);

  void Ref(ChunkSlot* slot) { ++slot->refs; }
  void Unref(ChunkSlot* slot) {
    if (--slot->refs == 0) Release(slot);
  }
  // Tells the groups' tuners that an item of these rows is being created.
  void CountItem(std::span<const RowRun> runs) {
    for (const RowRun& run : runs) {
      if (auto& tuner = groups_[run.slot->group].tuner) tuner->AddCreatedItem();
    }
  }
  // Passes the rows of an item that is about to be sent to the groups' tuners.
  // REQUIRES: all chunks are complete.
  void RecordItem(std::span<const RowRun> runs);

  // Appends the runs of the range to `*runs`; may extend runs from index `first` on. Errors are those of
  // CreateItem() without the prefix. Adds the number of rows to `*rows`.
  Status Resolve(const CellRange& range, size_t first, std::vector<RowRun>* runs, int64_t* rows) const;

  uint32_t num_columns() const { return static_cast<uint32_t>(columns_.size()); }
  // Returns whether the column has had a value: then dtype() and dims() are known.
  bool is_known(uint32_t column) const { return column < columns_.size() && columns_[column].known; }
  DType dtype(uint32_t column) const { return columns_[column].dtype; }
  const std::vector<int64_t>& dims(uint32_t column) const { return columns_[column].dims; }
  const std::string& path(uint32_t column) const { return columns_[column].path; }

  int64_t position() const { return position_; }
  int64_t episode_begin() const { return episode_begin_; }
  int64_t history_begin() const { return history_begin_; }
  bool step_is_open() const { return step_is_open_; }
  int64_t max_keep_alive_refs() const { return max_keep_; }
  int64_t keep_alive_refs(uint32_t column) const {
    const bool is_own = column < columns_.size() && columns_[column].own_options.has_value();
    return (is_own ? *columns_[column].own_options : options_.chunking).num_keep_alive_refs;
  }

  // Same as the method of TrajectoryWriter.
  Result<std::vector<CellRange>> Stack(uint32_t index, int64_t rows, std::optional<int64_t> end) const;
  // Returns whether the column has a value at the position that is still stored.
  bool HasCell(uint32_t index, int64_t position) const;
  Result<Tensor> Read(uint32_t index, int64_t position) const;

  // For tests: the current chunk length and group of a column.
  int64_t chunk_length(uint32_t column) const { return groups_[columns_[column].group].length(); }
  uint32_t group(uint32_t column) const { return columns_[column].group; }

 private:
  static constexpr uint32_t kNoGroup = UINT32_MAX;

  struct Column {
    std::string path;
    std::optional<ChunkingOptions> own_options;  // from Configure()
    bool discarded = false;

    // Set by the first value.
    bool known = false;
    DType dtype = DType::kFloat32;
    std::vector<int64_t> dims;
    uint64_t row_bytes = 0;  // 0 for strings
    std::optional<ColumnEncoder> encoder;

    int64_t keep = 1;
    uint32_t group = kNoGroup;
    int64_t last_position = -1;  // of its newest value
    Ring<Cell> cells;            // ascending positions

    RowBuffer rows;  // that are not in a chunk yet

    const TensorView* value = nullptr;  // during Append()
  };

  struct Group {
    std::vector<uint32_t> columns;
    int64_t fixed_length = 0;  // 0: the tuner decides
    std::optional<ChunkLengthTuner> tuner;
    int64_t length() const { return tuner ? tuner->length() : fixed_length; }

    bool collects_rows() const { return tuner && tuner->collects_rows(); }

    ChunkSlot* open_slot = nullptr;  // the chunk that is being filled
    uint32_t rows = 0;
    uint64_t raw_bytes = 0;
    std::vector<int64_t> positions;  // of its rows
    ChunkHeader header;              // of the last chunk; the next one reuses its memory

    uint32_t num_values = 0;  // during Append(): number of columns with a value
    uint64_t item = 0;        // in RecordItem(): the item that the fields below refer to
    int64_t references = 0;   // of the item's column with the most rows
    uint32_t counted_column = 0;
    int64_t counted = 0;
    bool has_collected = false;  // some of the item's chunks are longer than the tuned length
  };

  Status EnsureColumn(uint32_t column);
  std::string Describe(uint32_t column) const;
  Status CheckValue(const ColumnValue& value, uint64_t* cost);
  // Checks all values and stores pointers to them in the columns; to none if it fails.
  Status SetValues(std::span<const ColumnValue> values);
  void ClearValues(std::span<const ColumnValue> values);
  // Checks a sequence and makes sequence_ refer to its first row.
  Status SetSequence(std::span<const ColumnValue> values);
  // Stores `steps` rows from the values on, which SetValues() has checked. Only one if the step stays open.
  Status Store(std::span<const ColumnValue> values, int64_t steps, bool closes_step);
  void FormGroups();
  uint32_t NewGroup(const ChunkingOptions& options);
  Status Split(uint32_t index);
  Status AddRow(uint32_t index);
  Status AddRows(uint32_t index, int64_t rows);
  // Returns how many of the next `rows` rows to add to the chunk at once, at least 1.
  int64_t RowsThatFit(const Group& group, int64_t rows) const;
  // Adds rows that fit. REQUIRES: no strings.
  Status AddBlock(uint32_t index, int64_t rows);
  // Begins a chunk unless one is being filled.
  void OpenChunk(uint32_t index);
  // Returns whether the rows of the chunk that is being filled are collected until an item needs them.
  static bool IsCollecting(const Group& group);
  // Returns whether the chunk that is being filled should be finished: immediately, or before another row is
  // added if it is collecting, because an item may need only some of its rows.
  static bool IsFull(const Group& group);
  Status FinishGroup(uint32_t index);
  Status CutGroup(uint32_t index, std::span<RowRun> runs);
  // Sets used_ to the rows of the chunk that is being filled that an item refers to. They include rows next to
  // them that are too few for separate chunks.
  void FindUsedRows(const Group& group, std::span<const RowRun> runs);
  // Divides the rows of the chunk that is being filled: those before pieces_.back().end into chunks of
  // pieces_, while the others remain.
  Status CutPieces(Group& group, uint32_t index);
  // Encodes the rows [first, first + rows) of the columns' buffers as a chunk.
  Result<ChunkRef> Encode(Group& group, uint32_t first, uint32_t rows, uint64_t raw_bytes);
  // Encodes the values of this call as a chunk.
  Result<ChunkRef> EncodeValues(Group& group, uint64_t raw_bytes);
  // `raw_rows(column)` returns the rows of a column without strings, `encode` encodes those of any column.
  template <typename RawRows, typename EncodeColumn>
  Result<ChunkRef> MakeChunk(Group& group, uint32_t rows, uint64_t raw_bytes, int64_t first, int64_t last,
                             const RawRows& raw_rows, const EncodeColumn& encode);
  // Returns whether all columns of the next chunk are stored raw. If so, sets raw_columns_, and the columns of the
  // group's header except for the checksums.
  template <typename RawRows>
  Result<bool> StoresRaw(Group& group, uint32_t rows, const RawRows& raw_rows);
  // Encodes the value of this call as a single row.
  static Status EncodeValue(Column& column, std::vector<uint8_t>* payload, ColumnHeader* header);
  ChunkSlot* NewSlot(uint32_t group);
  void Release(ChunkSlot* slot);
  void PushCell(Column& column, ChunkSlot* slot, uint32_t row, uint32_t chunk_column);
  void Trim(Column& column);
  // Returns the index in column.cells, or -1.
  static int64_t IndexOf(const Column& column, int64_t position);

  const Options options_;
  ItemSink* const sink_;

  uint64_t episode_id_;
  int64_t position_ = 0;
  int64_t episode_begin_ = 0;
  int64_t history_begin_ = 0;
  bool step_is_open_ = false;
  int64_t max_keep_;
  uint64_t items_recorded_ = 0;
  Status failure_;  // out of memory during an append; later appends return it

  std::vector<Column> columns_;
  std::vector<Group> groups_;
  std::deque<ChunkSlot> slots_;  // never shrinks; unused ones are in free_slots_
  std::vector<ChunkSlot*> free_slots_;

  // Rows [begin, end) of the chunk that is being filled.
  struct RowInterval {
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  struct Piece {
    uint32_t begin = 0;
    uint32_t end = 0;
    ChunkSlot* slot = nullptr;
    ChunkRef chunk;
  };

  // Reused between calls.
  std::vector<uint32_t> new_columns_;
  std::vector<uint32_t> touched_groups_;
  std::vector<ColumnValue> sequence_;
  std::vector<uint32_t> cut_groups_;
  std::vector<RowInterval> used_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> recorded_groups_;
  std::vector<std::span<const uint8_t>> raw_columns_;
  std::vector<uint8_t> payload_;
  std::vector<std::string_view> strings_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_COLUMN_STORE_H_
