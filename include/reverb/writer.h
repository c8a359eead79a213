// writer.h — steps in, items out: the three ways to write.
//
//   TrajectoryWriter   any columns at any step; an item is any choice of cells
//   StructuredWriter   items follow from patterns and conditions that are given once
//   Writer             the older one: an item is the last n steps, whole
//
//   auto writer = client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 3}}).value();
//   for (...) {
//     writer.Append(std::array{ColumnValue{0, obs.view()}, ColumnValue{1, action.view()}});
//     const int64_t end = writer.position();
//     const CellRange last3{.column = 0, .begin = end - 3, .end = end}, newest{1, end - 1, end};
//     if (writer.history_length() >= 3) {
//       writer.CreateItem("replay", 1.0, std::array{ItemColumn{{&last3, 1}}, ItemColumn{{&newest, 1},
//       true}});
//     }
//   }
//   writer.EndEpisode();
//
// Words: a *column* is one leaf over time, of one dtype and row shape, which its first value fixes.
// A *step* is one append, or several partial ones and the one that closes it. A *cell* is the value of
// a column at a step; a step may lack some. Every step has a *position*, which counts from 0 over the
// whole life of a writer and is never used again: a cell is named by (column, position), and a name
// that is too old is simply expired.
//
// An append that fails has changed nothing. Threads: one thread at a time for each writer. Ownership:
// a writer copies what it is given. Writers are made by a client; they are moved, not copied.
#ifndef REVERB_WRITER_H_
#define REVERB_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reverb/item_structure.h"
#include "reverb/status.h"
#include "reverb/table.h"
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

// What tables promise about their items, flat, by the name of the table. A table without a signature
// takes anything; a table that is not named does not exist.
using TableSignatures = std::map<std::string, std::optional<std::vector<TensorSpec>>, std::less<>>;

// How a column is cut into chunks, and how much of it can be referred to.
struct ChunkingOptions {
  // The newest cells of a column that items may refer to. Each keeps its chunk in memory.
  int64_t num_keep_alive_refs = 1;
  // Rows of a chunk. Long chunks compress better, short ones waste less where items overlap. Absent:
  // found by trial, from the items that are created; never more than num_keep_alive_refs.
  std::optional<int64_t> max_chunk_length = {};
  // For lengths found by trial: what a byte sent for an item counts, compared to a byte stored.
  double throughput_weight = 1.0;

  [[nodiscard]] Status Validate() const;
};

struct TrajectoryWriterOptions {
  // For all columns that Configure() is not called for.
  ChunkingOptions chunking = {};
  Compression compression = Compression::kAuto;
  // When given, every item is checked against its table's signature when it is created.
  std::shared_ptr<const TableSignatures> signatures = {};
  // How long CreateItem() may wait when too many bytes are unconfirmed. The item is not created when
  // that is not enough.
  WaitOptions wait_for_room = {};
  // Of item keys and episode ids; absent: from the system's entropy.
  std::optional<uint64_t> seed = {};

  [[nodiscard]] Status Validate() const;
};

struct ColumnValue {
  uint32_t column = 0;
  TensorView value;
};

// The cells of a column at begin, begin + stride, … up to end, which is left out. A negative stride
// goes down. Whatever is no such run is given as several.
struct CellRange {
  uint32_t column = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t stride = 1;

  static CellRange One(uint32_t column, int64_t position) { return {column, position, position + 1, 1}; }
};

// One column of an item: rows in the order of the ranges, all of one dtype and shape.
struct ItemColumn {
  std::span<const CellRange> cells;
  bool squeeze = false;  // exactly one row, handed out without the time dimension
};

// --- TrajectoryWriter -----------------------------------------------------------------------------

class TrajectoryWriter {
 public:
  TrajectoryWriter(TrajectoryWriter&&) noexcept;
  TrajectoryWriter& operator=(TrajectoryWriter&&) noexcept;
  // Unless it was closed: sends what there is and waits until it is confirmed, for at most ten seconds; what
  // is given up is said in the log. Flush() before tells for sure.
  ~TrajectoryWriter();

  // Adds a step, or closes the open one with these values. Columns that are left out have no cell at
  // it. INVALID_ARGUMENT for a value of another dtype or shape than the column's, and for a column that
  // the step has already. May wait for nothing.
  Status Append(std::span<const ColumnValue> values);
  // The same, but the step stays open.
  Status AppendPartial(std::span<const ColumnValue> values);

  // Makes an item of cells that exist. It is sent when all its chunks are complete, and never before
  // items that were created before it. Waits only when too many bytes are unconfirmed. `structure`: what the
  // columns are called, for those who sample batches of a table without a signature.
  Status CreateItem(std::string_view table, double priority, std::span<const ItemColumn> columns,
                    const ItemStructure& structure = {});

  // Completes the chunks that all but the newest `block_until_num_items` items need, and waits until at
  // most that many are not confirmed. DEADLINE_EXCEEDED: sending goes on.
  Status Flush(int64_t block_until_num_items = 0, const WaitOptions& wait = {});

  // Ends the episode: closes an open step, completes the chunks of all items, and waits until all are
  // confirmed. With `clear` all cells expire; without, items may reach back over the end (chunks do
  // not). The episode has ended also when the wait fails: sending goes on.
  Status EndEpisode(bool clear = true, const WaitOptions& wait = {});

  // Discards the items that are not confirmed and returns their number: those that were sent already may
  // still reach their tables. Later calls that write return CANCELLED; reading works. Idempotent; returns 0
  // then.
  int64_t Close();

  // How one column is cut. For a column that has values: applies from now on; FAILED_PRECONDITION
  // while some are not in a chunk yet. For others: when the column first appears.
  Status Configure(uint32_t column, const ChunkingOptions& options);
  // What error texts call the column; otherwise its number.
  Status NameColumn(uint32_t column, std::string path);

  // Whether the next Append() or CreateItem() may wait: for room in the window, or for what was written to
  // leave. For callers that hold a lock which others need meanwhile.
  bool may_wait() const;

  // The position of the open step, or of the next one.
  int64_t position() const;
  bool step_is_open() const;
  // Complete steps of this episode.
  int64_t episode_steps() const;
  // Steps since the last EndEpisode(clear = true), the open one and those with expired cells included.
  int64_t history_length() const;
  // One more than the highest column that was named, configured or written to.
  uint32_t num_columns() const;
  // Absent while the column has had no value.
  std::optional<TensorSpec> column_spec(uint32_t column) const;
  // The largest number of cells that any column keeps.
  int64_t num_keep_alive_refs() const;
  bool HasCell(uint32_t column, int64_t position) const;
  // The value of a cell. FAILED_PRECONDITION when it has expired or never was.
  Result<Tensor> Read(uint32_t column, int64_t position) const;

 private:
  friend struct internal::WriterFactory;
  explicit TrajectoryWriter(std::unique_ptr<internal::TrajectoryWriterImpl> impl);
  std::unique_ptr<internal::TrajectoryWriterImpl> impl_;
};

// --- StructuredWriter -----------------------------------------------------------------------------

// Which rows of a leaf make a column of the item; counted from the newest step, which is -1. With
// `start`: rows start … stop (absent: to the newest) every `step`. Without: the one row `stop`, squeezed.
struct PatternNode {
  int64_t source = 0;  // index of the leaf
  std::optional<int64_t> start = {};
  std::optional<int64_t> stop = {};
  std::optional<int64_t> step = {};
};

// `left` compared with `value`. kData: a bool or integer leaf of one element at the newest step; where
// there is none the condition is false, inverted or not.
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
// None, a constant, or computed. An item cannot be made without.
using PatternPriority = std::variant<std::monostate, double, TdErrorPriority>;

struct StructuredConfig {
  std::vector<PatternNode> pattern;
  std::string table;
  std::vector<PatternCondition> conditions;  // all must hold
  PatternPriority priority;
  ItemStructure structure = {};  // as TrajectoryWriter's CreateItem()

  // INVALID_ARGUMENT, naming the node or condition and what is wrong with it.
  [[nodiscard]] Status Validate() const;
};

struct StructuredWriterOptions {
  std::vector<StructuredConfig> configs;
  std::vector<std::string> paths;  // what error texts call the leaves; may be shorter or empty
  // Rows of a chunk; absent: found by trial.
  std::optional<int64_t> max_chunk_length = {};
  Compression compression = Compression::kAuto;
  std::shared_ptr<const TableSignatures> signatures = {};
  WaitOptions wait_for_room = {};
  std::optional<uint64_t> seed = {};

  [[nodiscard]] Status Validate() const;
};

class StructuredWriter {
 public:
  StructuredWriter(StructuredWriter&&) noexcept;
  StructuredWriter& operator=(StructuredWriter&&) noexcept;
  // As TrajectoryWriter's.
  ~StructuredWriter();

  // The leaves of a step in flat order, always the same number; absent ones have no value. Then every
  // config whose conditions hold makes its item, at most one for each step. Leaves that no config uses
  // are not looked at. An error while making items leaves the step in place.
  Status Append(std::span<const std::optional<TensorView>> leaves);
  Status AppendPartial(std::span<const std::optional<TensorView>> leaves);
  Status Flush(int64_t block_until_num_items = 0, const WaitOptions& wait = {});
  // First applies the configs that wait for the end, and others not yet applied at this step.
  Status EndEpisode(bool clear = true, const WaitOptions& wait = {});
  // As TrajectoryWriter's.
  int64_t Close();
  bool step_is_open() const;
  // As TrajectoryWriter's.
  bool may_wait() const;

 private:
  friend struct internal::WriterFactory;
  explicit StructuredWriter(std::unique_ptr<internal::StructuredWriterImpl> impl);
  std::unique_ptr<internal::StructuredWriterImpl> impl_;
};

// --- Writer ---------------------------------------------------------------------------------------

struct WriterOptions {
  // The most steps that an item can have.
  int64_t max_sequence_length = 1;
  // Steps in a chunk, which holds all columns. Absent: 10, or max_sequence_length if that is less.
  std::optional<int64_t> chunk_length = {};
  // Items that may be unconfirmed before calls wait. Absent: no bound of their number.
  std::optional<int64_t> max_in_flight_items = 25;
  Compression compression = Compression::kAuto;
  // When given: items go into tables that are named only, and every step matches the table's signature,
  // which describes a step or a whole item.
  std::shared_ptr<const TableSignatures> signatures = {};
  // For the waits of Append() and CreateItem().
  WaitOptions wait_for_room = {};
  std::optional<uint64_t> seed = {};

  [[nodiscard]] Status Validate() const;
};

class Writer {
 public:
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  // As TrajectoryWriter's.
  ~Writer();

  // A step; the first one fixes the number of leaves, their dtypes and shapes.
  Status Append(std::span<const TensorView> step);
  // Several steps: each tensor has time as its first dimension.
  Status AppendSequence(std::span<const TensorView> sequence);
  // An item of the last `num_timesteps` steps. Sent when the newest one's chunk is complete. `structure`: as
  // TrajectoryWriter's.
  Status CreateItem(std::string_view table, int64_t num_timesteps, double priority,
                    const ItemStructure& structure = {});
  // Sends all items and waits until they are confirmed.
  Status Flush(const WaitOptions& wait = {});
  // Flush(), and another episode begins: later items cannot reach back over its start. So it does also when
  // that fails.
  Status EndEpisode(const WaitOptions& wait = {});
  // Flush(), then no more. Closed also when that fails. INVALID_ARGUMENT when it is closed already.
  Status Close(const WaitOptions& wait = {});
  bool is_closed() const;

 private:
  friend struct internal::WriterFactory;
  explicit Writer(std::unique_ptr<internal::LegacyWriter> impl);
  std::unique_ptr<internal::LegacyWriter> impl_;
};

}  // namespace reverb

#endif  // REVERB_WRITER_H_
