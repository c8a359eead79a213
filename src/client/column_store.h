// column_store.h — the rows of a writer: kept by column while they are new, cut into chunks.
//
//   values  →  columns, which keep their newest cells  →  groups of columns  →  chunks
//
// A group is a set of columns that share their chunks. Small columns that came in the same call are a
// group, large ones are alone. A call has all columns of a group or none: when one has some of them, the
// group's chunk is finished and the group falls apart into those and the others, for good.
//
// Chunks never span episodes. A chunk has a slot from its first row on; cells, and items that wait for
// the chunk, count on the slot. A slot that nothing counts on goes, and the sink is told to forget its
// chunk if that was in an item.
//
// Memory: no allocation for a cell; a chunk of one row is encoded straight from the caller's bytes,
// others from a buffer of rows that each column has.
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

#include "client/chunk_length_tuner.h"
#include "client/item_sink.h"
#include "client/ring.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "reverb/writer.h"
#include "tensor/chunk.h"
#include "tensor/column.h"

namespace reverb::internal {

// TensorFlow's names ("float", "half"), which the texts of errors have.
std::string_view TensorFlowName(DType dtype);
// "[1,2]".
std::string ShapeText(std::span<const int64_t> dims);
CodecPolicy PolicyOf(Compression compression);

// A chunk that is being filled, or is complete.
struct ChunkSlot {
  ChunkRef chunk;           // null while rows are added
  uint32_t group = 0;       // the one that fills, or filled, it
  uint32_t refs = 0;        // cells, waiting items, and the group while it is being filled
  bool handed_out = false;  // the chunk is in an item that the sink got
  uint64_t seen_by = 0;     // the last item that NoteItem() met it in
};

struct Cell {
  int64_t position = 0;
  ChunkSlot* slot = nullptr;
  uint32_t row = 0;
  uint32_t chunk_column = 0;
};

// Adjacent rows of one chunk, which may not be complete yet.
struct RowRun {
  ChunkSlot* slot = nullptr;
  uint32_t chunk_column = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
};

class ColumnStore {
 public:
  enum class Packing : uint8_t {
    kSmall,  // small columns that come together
    kAll,    // all columns, whatever their size
  };
  // How errors name a column and what they say about one that is given twice.
  enum class Texts : uint8_t { kTrajectory, kStructured };

  struct Options {
    ChunkingOptions chunking;  // REQUIRES: valid
    CodecPolicy codec = CodecPolicy::kAuto;
    Packing packing = Packing::kSmall;
    Texts texts = Texts::kTrajectory;
  };

  ColumnStore(const Options& options, uint64_t episode_id, ItemSink* sink);
  ColumnStore(const ColumnStore&) = delete;
  ColumnStore& operator=(const ColumnStore&) = delete;

  // As the methods of TrajectoryWriterImpl. Append() stores nothing when it fails, unless memory lacks.
  Status Append(std::span<const ColumnValue> values, bool closes_step);
  // What Append() would find wrong with the values.
  Status Check(std::span<const ColumnValue> values);
  Status Configure(uint32_t index, const ChunkingOptions& options);
  Status NameColumn(uint32_t column, std::string path);
  // The column's values are checked, but not kept: it has no cells.
  Status Discard(uint32_t column);

  // Closes an open step and begins an episode. With `clear` all cells go, and rows that no item waits
  // for are never encoded; without, all chunks are finished.
  Status StartEpisode(uint64_t episode_id, bool clear);

  // Completes the chunk of a slot, if it is not complete.
  Status Finish(ChunkSlot* slot);

  void Ref(ChunkSlot* slot) { ++slot->refs; }
  void Unref(ChunkSlot* slot) {
    if (--slot->refs == 0) Release(slot);
  }
  // The item that is about to be sent consists of these: the groups' tuners look at it.
  // REQUIRES: all chunks are complete.
  void NoteItem(std::span<const RowRun> runs);

  // Appends the runs of the range to `*runs`; runs of `runs` from index `first` on may be extended.
  // Errors are those of CreateItem() without the prefix. Adds up the rows in `*rows`.
  Status Resolve(const CellRange& range, size_t first, std::vector<RowRun>* runs, int64_t* rows) const;

  uint32_t num_columns() const { return static_cast<uint32_t>(columns_.size()); }
  // Whether the column has had a value: then dtype() and dims() are known.
  bool is_known(uint32_t column) const { return column < columns_.size() && columns_[column].known; }
  DType dtype(uint32_t column) const { return columns_[column].dtype; }
  const std::vector<int64_t>& dims(uint32_t column) const { return columns_[column].dims; }
  const std::string& path(uint32_t column) const { return columns_[column].path; }

  int64_t position() const { return position_; }
  int64_t episode_begin() const { return episode_begin_; }
  int64_t history_begin() const { return history_begin_; }
  bool step_is_open() const { return step_is_open_; }
  int64_t max_keep_alive_refs() const { return max_keep_; }

  // Whether the column was given a value at the position, as far as is still known.
  bool HasCell(uint32_t index, int64_t position) const;
  Result<Tensor> Read(uint32_t index, int64_t position) const;

  // For tests: how a column's chunks are cut just now.
  int64_t chunk_length(uint32_t column) const { return groups_[columns_[column].group].length(); }
  uint32_t group(uint32_t column) const { return columns_[column].group; }

 private:
  static constexpr uint32_t kNoGroup = UINT32_MAX;

  struct Column {
    std::string path;
    std::optional<ChunkingOptions> own;  // from Configure()
    bool discarded = false;

    // Fixed by the first value.
    bool known = false;
    DType dtype = DType::kFloat32;
    std::vector<int64_t> dims;
    uint64_t row_bytes = 0;  // 0 for strings
    uint64_t row_elements = 0;
    std::optional<ColumnEncoder> encoder;

    int64_t keep = 1;
    uint32_t group = kNoGroup;
    int64_t last_position = -1;  // of its newest value
    Ring<Cell> cells;            // ascending positions

    // Rows that are not in a chunk yet. Strings lie end to end.
    std::vector<uint8_t> rows;
    std::vector<uint32_t> string_lengths;

    const TensorView* given = nullptr;  // during Append()
  };

  struct Group {
    std::vector<uint32_t> columns;
    int64_t fixed_length = 0;  // 0: the tuner says
    std::optional<ChunkLengthTuner> tuner;
    int64_t length() const { return tuner ? tuner->length() : fixed_length; }

    ChunkSlot* running = nullptr;  // the chunk being filled
    uint32_t rows = 0;
    uint64_t raw_bytes = 0;
    int64_t first_position = 0;
    int64_t last_position = 0;

    uint32_t given = 0;      // during Append(): how many of the columns have a value
    uint64_t item = 0;       // in NoteItem(): the item that the numbers below are of
    int64_t references = 0;  // of the column of the item that refers to the most rows
    uint32_t counted_column = 0;
    int64_t counted = 0;
  };

  Status EnsureColumn(uint32_t column);
  std::string Describe(uint32_t column) const;
  Status CheckValue(const ColumnValue& value, uint64_t* cost);
  // Checks all and notes them as given; none when it fails.
  Status Take(std::span<const ColumnValue> values);
  void ForgetGiven(std::span<const ColumnValue> values);
  void FormGroups();
  uint32_t NewGroup(const ChunkingOptions& options);
  Status Split(uint32_t index);
  Status AddRow(uint32_t index);
  Status FinishGroup(uint32_t index);
  // The columns' rows as a chunk: from the values just given, or from the buffers.
  Result<ChunkRef> Encode(Group& group, uint32_t rows, uint64_t raw_bytes, int64_t first, int64_t last,
                          bool from_given);
  ChunkSlot* NewSlot(uint32_t group);
  void Release(ChunkSlot* slot);
  void PushCell(Column& column, ChunkSlot* slot, uint32_t row, uint32_t chunk_column);
  void Trim(Column& column);
  // Index in column.cells, or -1.
  static int64_t IndexOf(const Column& column, int64_t position);

  const Options options_;
  ItemSink* const sink_;

  uint64_t episode_id_;
  int64_t position_ = 0;
  int64_t episode_begin_ = 0;
  int64_t history_begin_ = 0;
  bool step_is_open_ = false;
  int64_t max_keep_;
  uint64_t items_noted_ = 0;
  Status failure_;  // memory lacked half-way; later appends return it

  std::vector<Column> columns_;
  std::vector<Group> groups_;
  std::deque<ChunkSlot> slots_;  // all there ever were; free ones are in free_slots_
  std::vector<ChunkSlot*> free_slots_;

  // Reused from call to call.
  std::vector<uint32_t> new_columns_;
  std::vector<uint32_t> touched_groups_;
  std::vector<uint32_t> noted_groups_;
  ChunkHeader header_;
  std::vector<uint8_t> payload_;
  std::vector<std::string_view> strings_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_COLUMN_STORE_H_
