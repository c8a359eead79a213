// writer.h — three writers that turn steps into items.
//
//   TrajectoryWriter   accepts any columns at any step; an item is any choice of cells
//   StructuredWriter   creates items from patterns and conditions that are given once
//   Writer             the older interface: an item is the last n steps, with all columns
//
//   using namespace reverb;
//   auto writer = client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 3}}).value();
//   for (int step = 0; step < 100; ++step) {
//     Status status = writer.Append(std::array{ColumnValue{0, obs.view()}, ColumnValue{1, action.view()}});
//     const int64_t end = writer.position();
//     const CellRange last3{.column = 0, .begin = end - 3, .end = end}, newest = CellRange::One(1, end - 1);
//     const std::array columns{ItemColumn{{&last3, 1}}, ItemColumn{{&newest, 1}, true}};
//     if (status.ok() && writer.history_length() >= 3) status = writer.CreateItem("replay", 1.0, columns);
//   }
//   Status confirmed = writer.EndEpisode();
//
// Terms: a *column* is one leaf over time. Its first value determines its dtype and row shape. A *step* is
// one append, or several partial appends and the append that closes the step. A *cell* is the value of a
// column at a step; a step may lack some cells. Every step has a *position*, which counts from 0 over the
// lifetime of the writer and is never reused. A cell is identified by (column, position) and expires with
// age.
//
// An append that fails has no effect. Threads: one thread at a time for each writer. Ownership: a writer
// copies its arguments. A client creates writers; they can be moved, not copied.
#ifndef REVERB_WRITER_H_
#define REVERB_WRITER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reverb/compression.h"
#include "reverb/item_structure.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "reverb/wait.h"

namespace reverb {

namespace internal {
class LegacyWriter;
class StructuredWriterImpl;
class TrajectoryWriterImpl;
struct WriterFactory;
}  // namespace internal

// --- Values ---------------------------------------------------------------------------------------

// The flattened signatures of tables, by table name. A table without a signature accepts all items; a table
// that is not listed does not exist.
using TableSignatures = std::map<std::string, std::optional<std::vector<TensorSpec>>, std::less<>>;

// The signatures that a writer checks its items against. Before a writer rejects an item, it fetches them
// again: its table may have been created, or replaced by another one of that name. Several writers may share
// a source; then the others find what one has fetched. Threads: all methods may be called concurrently.
class SignatureSource {
 public:
  // Returns the signatures of all tables at present. May wait, but must return.
  using Fetch = std::function<Result<std::shared_ptr<const TableSignatures>>()>;

  // Without `fetch`, the signatures stay as they are.
  explicit SignatureSource(TableSignatures signatures, Fetch fetch = {});
  SignatureSource(const SignatureSource&) = delete;
  SignatureSource& operator=(const SignatureSource&) = delete;

  // Returns those that were fetched last; never null.
  std::shared_ptr<const TableSignatures> current() const;
  // Fetches them again. After an error, current() is as before.
  Result<std::shared_ptr<const TableSignatures>> Refresh();

 private:
  const Fetch fetch_;
  mutable std::mutex mu_;  // not held during fetch_()
  std::shared_ptr<const TableSignatures> current_;
};

// How a column is divided into chunks, and how many of its cells items can refer to.
struct ChunkingOptions {
  // Items may refer to this many of the newest cells of a column. Each keeps its chunk in memory.
  int64_t num_keep_alive_refs = 1;
  // Maximum number of rows in a chunk. Long chunks compress better; short ones waste less where items
  // overlap. Absent: rows are collected until an item refers to them, at most num_keep_alive_refs rows and
  // 256 KiB; where every step has an item, the length is tuned from the items.
  std::optional<int64_t> max_chunk_length = {};
  // For tuned lengths: the weight of a byte sent for an item, relative to a byte stored.
  double throughput_weight = 1.0;

  [[nodiscard]] Status Validate() const;
};

struct TrajectoryWriterOptions {
  // Applies to all columns without a Configure() call.
  ChunkingOptions chunking = {};
  Compression compression = Compression::kAuto;
  // If given, CreateItem() checks every item against its table's signature.
  std::shared_ptr<SignatureSource> signatures = {};
  // How long CreateItem() may wait while too many bytes are unconfirmed. After that it fails without creating
  // the item.
  WaitOptions wait_for_room = {};
  // Seed of item keys and episode ids; absent: from the system's entropy.
  std::optional<uint64_t> seed = {};

  [[nodiscard]] Status Validate() const;
};

struct ColumnValue {
  uint32_t column = 0;
  TensorView value;
};

// The cells of a column at begin, begin + stride, … up to but excluding end. The stride may be negative. Use
// several ranges for cells that are not evenly spaced.
struct CellRange {
  uint32_t column = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t stride = 1;

  static CellRange One(uint32_t column, int64_t position) { return {column, position, position + 1, 1}; }
};

// One column of an item: rows in the order of the ranges, all of the same dtype and shape.
struct ItemColumn {
  std::span<const CellRange> cells;
  bool squeeze = false;  // exactly one row, sampled without the time dimension
};

// A column with a name.
struct NamedColumn {
  std::string_view name;
  ItemColumn column;
};

// --- TrajectoryWriter -----------------------------------------------------------------------------

class TrajectoryWriter {
 public:
  TrajectoryWriter(TrajectoryWriter&&) noexcept;
  TrajectoryWriter& operator=(TrajectoryWriter&&) noexcept;
  // Unless closed, sends all pending items and waits at most ten seconds until they are confirmed; logs items
  // that it gives up. Call Flush() first to be certain.
  ~TrajectoryWriter();

  // Adds a step, or closes the open one with these values. Columns that are left out have no cell at that
  // step. INVALID_ARGUMENT if the dtype or shape of a value differs from its column's, or if the step already
  // has the column. Does not wait for confirmations.
  Status Append(std::span<const ColumnValue> values);
  // Like Append(), but leaves the step open.
  Status AppendPartial(std::span<const ColumnValue> values);
  // Appends several steps: the first dimension of each value is time, of the same size for all. Equivalent to
  // as many calls of Append(), at the cost of one copy per column. Of sequences longer than
  // num_keep_alive_refs, items can only refer to the last rows. INVALID_ARGUMENT, and no effect, for sizes
  // that differ or are 0, and for the errors of Append().
  Status AppendSequence(std::span<const ColumnValue> values);

  // Creates an item from existing cells. Sends it when all its chunks are complete, and after all items that
  // were created before it. Waits only while too many bytes are unconfirmed. `structure` names the columns
  // for consumers that sample batches from a table without a signature.
  Status CreateItem(std::string_view table, double priority, std::span<const ItemColumn> columns,
                    const ItemStructure& structure = {});

  // Same, with a name for each column: consumers receive the item as a dict, its columns in the order of the
  // sorted names. INVALID_ARGUMENT if a name occurs twice.
  Status CreateItem(std::string_view table, double priority, std::span<const NamedColumn> columns);

  // Completes the chunks of all but the newest `block_until_num_items` items, and waits until at most that
  // many items are unconfirmed. After DEADLINE_EXCEEDED, sending continues.
  Status Flush(int64_t block_until_num_items = 0, const WaitOptions& wait = {});

  // Ends the episode: closes an open step, completes the chunks of all items, and waits until all items are
  // confirmed. With `clear`, all cells expire; otherwise later items may span the end of the episode (chunks
  // do not). The episode ends even if the wait fails; sending then continues.
  Status EndEpisode(bool clear = true, const WaitOptions& wait = {});

  // Discards the unconfirmed items and returns their number. Items that were already sent may still reach
  // their tables. Later calls that write return CANCELLED; reading still works. Idempotent: returns 0 when
  // called again.
  int64_t Close();

  // Sets the chunking of one column. For a column that has values it applies from now on; FAILED_PRECONDITION
  // while some values are not in a chunk yet. For other columns it applies when the column first appears.
  Status Configure(uint32_t column, const ChunkingOptions& options);
  // Sets the name of the column in error messages, which otherwise use its number.
  Status NameColumn(uint32_t column, std::string path);

  // Returns whether the next Append() or CreateItem() may wait, for room in the window or for data to be
  // sent. For callers that hold a lock that other threads need.
  bool may_wait() const;

  // The position of the open step, or of the next one.
  int64_t position() const;
  bool step_is_open() const;
  // The number of complete steps of this episode.
  int64_t episode_steps() const;
  // Steps since the last EndEpisode(clear = true), including the open step and steps with expired cells.
  int64_t history_length() const;
  // One more than the highest column that was named, configured or written.
  uint32_t num_columns() const;
  // Absent until the column has a value.
  std::optional<TensorSpec> column_spec(uint32_t column) const;
  // The largest number of cells that any column keeps.
  int64_t num_keep_alive_refs() const;
  // The number of cells that this column keeps.
  int64_t num_keep_alive_refs(uint32_t column) const;
  bool HasCell(uint32_t column, int64_t position) const;
  // Returns the value of a cell. FAILED_PRECONDITION if it has expired or never existed.
  Result<Tensor> Read(uint32_t column, int64_t position) const;
  // Returns the cells of the `rows` steps before position `end` (absent: up to the newest step), for a column
  // of an item such as a stack of frames. Steps before the first one of the episode are replaced by it.
  // INVALID_ARGUMENT if rows < 1, if the step before `end` is not in this episode, or if a cell does not exist
  // or has expired.
  Result<std::vector<CellRange>> Stack(uint32_t column, int64_t rows, std::optional<int64_t> end = {}) const;

 private:
  friend struct internal::WriterFactory;
  explicit TrajectoryWriter(std::unique_ptr<internal::TrajectoryWriterImpl> impl);
  std::unique_ptr<internal::TrajectoryWriterImpl> impl_;
};

// --- StructuredWriter -----------------------------------------------------------------------------

// The rows of a leaf that form a column of the item, counted from the newest step, which is -1. With `start`:
// rows start … stop (absent: up to the newest), every `step`. Without `start`: the single row `stop`,
// squeezed.
struct PatternNode {
  int64_t source = 0;  // index of the leaf
  std::optional<int64_t> start = {};
  std::optional<int64_t> stop = {};
  std::optional<int64_t> step = {};
};

// Compares `left` with `value`. kData reads a bool or integer leaf of one element at the newest step; without
// such a value the condition is false, even if inverted.
struct PatternCondition {
  enum class Left : uint8_t { kNone, kStepIndex, kStepsSinceApplied, kData, kEndEpisode, kBufferLength };
  enum class Comparison : uint8_t { kNone, kEqual, kAtLeast, kModuloEqual };
  Left left = Left::kNone;
  int64_t source = 0;  // index of the leaf, for kData
  Comparison comparison = Comparison::kNone;
  int64_t modulo = 0;  // for kModuloEqual: left % modulo == value
  int64_t value = 0;
  bool inverse = false;
};

// w * max|x| + (1 - w) * mean|x| over the rows of the item's column that comes from leaf `source`.
struct TdErrorPriority {
  double max_priority_weight = 0;
  int64_t source = 0;
};
// No priority, a constant, or a computed one. Creating an item requires a priority.
using PatternPriority = std::variant<std::monostate, double, TdErrorPriority>;

struct StructuredConfig {
  std::vector<PatternNode> pattern;
  std::string table;
  std::vector<PatternCondition> conditions;  // all must hold
  PatternPriority priority;
  ItemStructure structure = {};  // as for TrajectoryWriter::CreateItem()

  // INVALID_ARGUMENT names the invalid node or condition and the reason.
  [[nodiscard]] Status Validate() const;
};

struct StructuredWriterOptions {
  std::vector<StructuredConfig> configs;
  std::vector<std::string> paths;  // names of the leaves in error messages; may be shorter or empty
  // Maximum number of rows in a chunk; absent: tuned.
  std::optional<int64_t> max_chunk_length = {};
  Compression compression = Compression::kAuto;
  std::shared_ptr<SignatureSource> signatures = {};
  WaitOptions wait_for_room = {};
  std::optional<uint64_t> seed = {};

  [[nodiscard]] Status Validate() const;
};

class StructuredWriter {
 public:
  StructuredWriter(StructuredWriter&&) noexcept;
  StructuredWriter& operator=(StructuredWriter&&) noexcept;
  // Like TrajectoryWriter's.
  ~StructuredWriter();

  // Appends the leaves of a step in flat order, always the same number; absent leaves have no value. Then
  // every config whose conditions hold creates its item, at most one per step. Leaves that no config uses are
  // ignored. After an error in creating items the step remains.
  Status Append(std::span<const std::optional<TensorView>> leaves);
  Status AppendPartial(std::span<const std::optional<TensorView>> leaves);
  Status Flush(int64_t block_until_num_items = 0, const WaitOptions& wait = {});
  // First applies the configs with an end-of-episode condition, and others not yet applied at this step.
  Status EndEpisode(bool clear = true, const WaitOptions& wait = {});
  // Like TrajectoryWriter's.
  int64_t Close();
  bool step_is_open() const;
  // Like TrajectoryWriter's.
  bool may_wait() const;

 private:
  friend struct internal::WriterFactory;
  explicit StructuredWriter(std::unique_ptr<internal::StructuredWriterImpl> impl);
  std::unique_ptr<internal::StructuredWriterImpl> impl_;
};

// --- Writer ---------------------------------------------------------------------------------------

struct WriterOptions {
  // Maximum number of steps in an item.
  int64_t max_sequence_length = 1;
  // Number of steps in a chunk, which holds all columns. Absent: 10, or max_sequence_length if that is less.
  std::optional<int64_t> chunk_length = {};
  // Bounds the number of unconfirmed items, above which calls wait. Absent: no bound.
  std::optional<int64_t> max_in_flight_items = 25;
  Compression compression = Compression::kAuto;
  // If given: accepts listed tables only, and checks every step against the table's signature, which
  // describes a step or a whole item.
  std::shared_ptr<SignatureSource> signatures = {};
  // Bounds the waits of Append() and CreateItem().
  WaitOptions wait_for_room = {};
  std::optional<uint64_t> seed = {};

  [[nodiscard]] Status Validate() const;
};

class Writer {
 public:
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  // Like TrajectoryWriter's.
  ~Writer();

  // Appends a step. The first step determines the number of leaves, their dtypes and shapes.
  Status Append(std::span<const TensorView> step);
  // Appends several steps: the first dimension of each tensor is time.
  Status AppendSequence(std::span<const TensorView> sequence);
  // Creates an item of the last `num_timesteps` steps. Sends it when the newest step's chunk is complete.
  // `structure`: as for TrajectoryWriter.
  Status CreateItem(std::string_view table, int64_t num_timesteps, double priority,
                    const ItemStructure& structure = {});
  // Sends all items and waits until they are confirmed.
  Status Flush(const WaitOptions& wait = {});
  // Flushes and starts another episode, even if the flush fails. Later items cannot span its start.
  Status EndEpisode(const WaitOptions& wait = {});
  // Flushes and closes the writer, even if the flush fails. INVALID_ARGUMENT if it is already closed.
  Status Close(const WaitOptions& wait = {});
  bool is_closed() const;
  // The number of items that were created and are not confirmed yet; 0 once closed.
  int64_t unconfirmed_items() const;

 private:
  friend struct internal::WriterFactory;
  explicit Writer(std::unique_ptr<internal::LegacyWriter> impl);
  std::unique_ptr<internal::LegacyWriter> impl_;
};

}  // namespace reverb

#endif  // REVERB_WRITER_H_
