// checkpoint.h — saves a server's tables to disk, loads them, and reads them without a server.
//
//   reverb::ServerOptions options{.tables = {{.name = "replay"}}};
//   options.checkpoint = reverb::CheckpointOptions{.path = "/data/run7", .on_stop = true};
//   auto server = reverb::Server::Start(options).value();  // loads the latest checkpoint, if there is one
//   auto path = server.in_process_client().Checkpoint().value();  // the checkpoint is durable
//
//   auto reader = reverb::CheckpointReader::Open(path).value();
//   auto items = reader.Items("replay").value();
//   while (auto item = items.Next().value()) Use(item->key(), item->column(0).value());
//
// A checkpoint contains all tables at one instant: items with all their data, the order and the random state
// of selectors, counters, the state of extensions, the progress of each writer; and the rows of row tables, with
// what each consumer has acknowledged, versions, and the caller's state. Checkpoints under one
// path share unchanged data; docs/checkpoint-format.md describes the files.
#ifndef REVERB_CHECKPOINT_H_
#define REVERB_CHECKPOINT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/row_table_options.h"
#include "reverb/rows.h"
#include "reverb/sampled_trajectory.h"
#include "reverb/sampler.h"
#include "reverb/status.h"
#include "reverb/table_info.h"

namespace reverb {

// The progress of a load, an import or a verification.
struct CheckpointProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
};
// Called from time to time, on the thread that does the work. Must be quick.
using CheckpointProgressCallback = std::function<void(const CheckpointProgress&)>;

// How a load resolves differences between the checkpoint and the server's options. Logs one line for each
// difference.
struct RestoreOptions {
  // Whether a table gets the settings of the checkpoint or those of the server's options.
  enum class Settings : uint8_t { kSaved, kGiven };
  Settings rate_limiter = Settings::kSaved;
  // max_size, max_bytes, max_times_sampled, max_age; removes items that no longer fit. Of row tables: max_rows, max_running,
  // staleness, drop_consumed.
  Settings sizes = Settings::kSaved;
  // Given selectors receive the items in the order of their insertion. Of row tables: order and consumers; those of
  // the same name keep their acknowledgements.
  Settings selectors = Settings::kSaved;
  Settings signature = Settings::kSaved;  // and layout

  // Whether the rate limiter keeps its counters, or restarts with the loaded items as its only inserts.
  enum class Counters : uint8_t { kKeep, kReset };
  Counters counters = Counters::kKeep;

  // Tables of the server that the checkpoint lacks.
  enum class MissingTables : uint8_t { kStartEmpty, kFail };
  MissingTables missing_tables = MissingTables::kStartEmpty;
  // Tables of the checkpoint that the server's options lack: fail with INVALID_ARGUMENT, ignore them, or
  // create them as they were saved. kFail creates those that a client had created (Client::CreateTable).
  enum class ExtraTables : uint8_t { kFail, kDrop, kCreate };
  ExtraTables extra_tables = ExtraTables::kFail;

  CheckpointProgressCallback progress = {};
  // Called on the loading thread about every 50 ms. An error ends the load with that error, for example after
  // a signal.
  std::function<Status()> on_wait = {};
};

struct CheckpointOptions {
  // --- Where ---
  // The folder of the checkpoints, each in a folder named by its time. Created when first needed.
  std::string path;
  // A checkpoint to load if `path` contains none. Never written to.
  std::optional<std::string> fallback_path = {};

  // --- When ---
  // In addition to checkpoints requested by clients: periodically, and when the server stops cleanly.
  std::optional<std::chrono::nanoseconds> interval = {};
  bool on_stop = false;

  // Number of checkpoints to keep, at least 1. Older ones are deleted once a newer one is durable.
  int32_t keep_latest = 1;

  // --- Loading, at start ---
  // Loads the latest complete checkpoint. Logs a damaged one and tries the one before it. The start fails if
  // there are checkpoints and none can be loaded.
  bool load_latest = true;
  RestoreOptions restore = {};

  Status Validate() const;
};

// The contents of a checkpoint.
struct CheckpointInfo {
  std::string path;                           // of this checkpoint
  std::string format;                         // "reverb 1", or the name of dm-reverb's format
  int64_t created_nanos = 0;                  // since the Unix epoch
  std::vector<TableInfo> tables;              // settings, sizes and counters as they were saved
  std::vector<RowTableInfo> row_tables = {};  // likewise
  int64_t num_writers = 0;                    // writers that could resume
  int64_t num_chunks = 0;                     // chunks that items and rows refer to
  uint64_t payload_bytes = 0;                 // of these chunks as stored
  uint64_t file_bytes = 0;  // of all its files, including those shared with other checkpoints
};

// Which items of a table are read, and in which order.
struct CheckpointReadOptions {
  // The columns to read, in this order; empty = all. The data of the others is not read at all.
  std::vector<uint32_t> columns = {};
  // 0 = the table's order, which is the order of insertion as long as no item was removed. Otherwise random:
  // groups of 256 neighbours are taken in random order, and each item is drawn from the next `shuffle_window`
  // of them. A window of at least the table's size gives every order the same probability. A window takes
  // memory for descriptions of its items, some hundred bytes each, not for their data.
  int64_t shuffle_window = 0;
  // Of the random order; absent = a different one each time.
  std::optional<uint64_t> seed = {};

  Status Validate() const;
};

// Iterates over the items of one table. Needs memory for the items that the caller holds, not for the table.
// Threads: one at a time.
class CheckpointItems {
 public:
  CheckpointItems(CheckpointItems&&) noexcept;
  CheckpointItems& operator=(CheckpointItems&&) noexcept;
  ~CheckpointItems();

  // Returns the next item, or none at the end. Verifies the checksums of its data. An item stays readable
  // after the reader is destroyed.
  Result<std::optional<SampledTrajectory>> Next();

  // Reads the next n items, or as many as there are, into one tensor per column. Returns their number, 0 at
  // the end. Their `probabilities` are those of a uniform draw. INVALID_ARGUMENT if their layouts differ: the
  // next call then returns the same items.
  Result<int64_t> NextBatch(int64_t n, Batch* batch, const BatchOptions& options = {});

 private:
  friend class CheckpointReader;
  struct Rep;
  explicit CheckpointItems(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

// Iterates over the rows of one row table. Needs memory for the rows that the caller holds.
// Threads: one at a time.
class CheckpointRows {
 public:
  CheckpointRows(CheckpointRows&&) noexcept;
  CheckpointRows& operator=(CheckpointRows&&) noexcept;
  ~CheckpointRows();

  // Returns the next n rows, or as many as there are, with all of their columns and their state; none at the end.
  // Verifies the checksums of their data. They stay readable after the reader is destroyed.
  Result<RowBatch> Next(int64_t n);

 private:
  friend class CheckpointReader;
  struct Rep;
  explicit CheckpointRows(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

// Reads a checkpoint in place, and loads only the items that are read. The checkpoint must not be removed
// meanwhile. Threads: all methods may be called concurrently.
class CheckpointReader {
 public:
  // `path` is a checkpoint, or a folder of checkpoints, of which it opens the latest complete one.
  static Result<CheckpointReader> Open(const std::string& path);
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const CheckpointInfo& info() const;
  // NOT_FOUND names the existing tables.
  Result<CheckpointItems> Items(std::string_view table, const CheckpointReadOptions& options = {}) const;
  // The same for a row table.
  Result<CheckpointRows> Rows(std::string_view table) const;
  // Returns the state that the caller had set (Rows::SetState); empty if there was none.
  Result<std::string> RowTableState(std::string_view table) const;
  // Reads all data and verifies every checksum and every reference. DATA_LOSS names the damage and its
  // location.
  Status Verify(const CheckpointProgressCallback& progress = {}) const;

 private:
  struct Rep;
  explicit CheckpointReader(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

struct CheckpointEntry {
  std::string path;
  int64_t created_nanos = 0;
  bool is_complete = false;
  bool is_foreign = false;  // written by dm-reverb
};
// Returns the checkpoints under `path`, oldest first; ignores other files and folders. NOT_FOUND if the
// folder does not exist.
Result<std::vector<CheckpointEntry>> ListCheckpoints(const std::string& path);

// Converts the checkpoint `from` (a checkpoint in any format, or a folder, of which it takes the latest) into
// this release's format, as a new checkpoint under the folder `to`. Returns the path of the new checkpoint.
Result<std::string> ImportCheckpoint(const std::string& from, const std::string& to,
                                     const CheckpointProgressCallback& progress = {});

// Copies the checkpoint `from` (a checkpoint, or a folder, of which it takes the latest) to a new folder `to`,
// which then contains that checkpoint and everything that it needs, and can be moved as a whole. Reads the
// copy and verifies it; `to` appears only when the copy is complete and durable. Returns the path of the
// checkpoint, a folder below `to`; reading or serving `to` finds it. ALREADY_EXISTS if `to` exists.
// INVALID_ARGUMENT for a checkpoint of dm-reverb: ImportCheckpoint() converts it.
Result<std::string> CopyCheckpoint(const std::string& from, const std::string& to,
                                   const CheckpointProgressCallback& progress = {});

}  // namespace reverb

#endif  // REVERB_CHECKPOINT_H_
