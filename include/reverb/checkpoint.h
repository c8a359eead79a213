// checkpoint.h — saving a server's tables to disk, loading them again, and reading them without a server.
//
//   reverb::ServerOptions options{.tables = {{.name = "replay"}}};
//   options.checkpoint = reverb::CheckpointOptions{.path = "/data/run7", .interval =
//   std::chrono::minutes(15)}; auto server = reverb::Server::Start(options).value();             // loads the
//   latest one, if there is one std::string path = server.in_process_client().Checkpoint().value();  //
//   durable when this returns
//
//   auto reader = reverb::CheckpointReader::Open(path).value();
//   auto items = reader.Items("replay").value();
//   while (auto item = items.Next().value()) Use(item->key(), item->column(0).value());
//
// A checkpoint is all tables at one instant: items with all their data, the order and the random state of
// selectors, counters, what extensions keep, and how far each writer had come. Checkpoints of one path share
// what did not change between them; docs/checkpoint-format.md tells how they lie on disk.
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

#include "reverb/status.h"
#include "reverb/table.h"
#include "reverb/table_info.h"

namespace reverb {

// How far a load, an import or a check has come.
struct CheckpointProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
};
// Called now and then, on the thread that does the work. Must be quick.
using CheckpointProgressCallback = std::function<void(const CheckpointProgress&)>;

// What a load does where the checkpoint and the options that the server was given differ. Every difference
// is told in one line of the log.
struct RestoreOptions {
  // Whose settings a table gets.
  enum class Settings : uint8_t { kSaved, kGiven };
  Settings rate_limiter = Settings::kSaved;
  Settings sizes = Settings::kSaved;      // max_size, max_times_sampled; what no longer fits is evicted
  Settings selectors = Settings::kSaved;  // given ones take the items up in the order of their insertion
  Settings signature = Settings::kSaved;

  // Whether the limiter goes on counting where it was, or begins anew with the items as its only inserts.
  enum class Counters : uint8_t { kKeep, kReset };
  Counters counters = Counters::kKeep;

  // Tables of the server that the checkpoint does not have.
  enum class MissingTables : uint8_t { kStartEmpty, kFail };
  MissingTables missing_tables = MissingTables::kStartEmpty;
  // Tables of the checkpoint that the server was not given: INVALID_ARGUMENT, leave them out, or make them
  // as they were saved.
  enum class ExtraTables : uint8_t { kFail, kDrop, kCreate };
  ExtraTables extra_tables = ExtraTables::kFail;

  CheckpointProgressCallback progress = {};
  // Called on the thread that loads, about every 50 ms. An error ends the load with that error: this is how a
  // signal makes it give up.
  std::function<Status()> on_wait = {};
};

struct CheckpointOptions {
  // --- Where ---
  // The folder under which checkpoints appear, each in a folder named by its time. Made when first needed.
  std::string path;
  // One checkpoint to load when `path` holds none. It is never written to.
  std::optional<std::string> fallback_path = {};

  // --- When ---
  // Besides those asked for by clients: every so often, and when the server stops in order.
  std::optional<std::chrono::nanoseconds> interval = {};
  bool on_stop = false;

  // How many are kept; older ones go once a newer one is durable. At least 1.
  int32_t keep_latest = 1;

  // --- Loading, at start ---
  // Takes the latest complete checkpoint; one that is damaged is told in the log and the one before it is
  // tried. With none that can be loaded, though there are some, the start fails.
  bool load_latest = true;
  RestoreOptions restore = {};

  Status Validate() const;
};

// What stands in a checkpoint.
struct CheckpointInfo {
  std::string path;               // of this one checkpoint
  std::string format;             // "reverb 1", or that of dm-reverb
  int64_t created_nanos = 0;      // since the Unix epoch
  std::vector<TableInfo> tables;  // settings, sizes and counters as they were saved
  int64_t num_writers = 0;        // that could go on where they were
  int64_t num_chunks = 0;         // that items refer to
  uint64_t payload_bytes = 0;     // of these chunks as stored
  uint64_t file_bytes = 0;        // of all files it needs, those shared with other checkpoints included
};

// The items of one table, in the order in which the table keeps them: that of insertion as long as none
// was removed. One thread at a time.
class CheckpointItems {
 public:
  CheckpointItems(CheckpointItems&&) noexcept;
  CheckpointItems& operator=(CheckpointItems&&) noexcept;
  ~CheckpointItems();

  // The next item, none at the end. Its data is checked against its checksums. An item stays readable after
  // the reader has gone.
  Result<std::optional<SampledTrajectory>> Next();

 private:
  friend class CheckpointReader;
  struct Rep;
  explicit CheckpointItems(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

// Reads a checkpoint where it lies; takes no memory for what is not being looked at. Threads: all methods
// may be called concurrently. The checkpoint must not be removed meanwhile.
class CheckpointReader {
 public:
  // `path` is one checkpoint, or a folder of checkpoints: then the latest complete one.
  static Result<CheckpointReader> Open(const std::string& path);
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const CheckpointInfo& info() const;
  // NOT_FOUND, naming the tables that there are.
  Result<CheckpointItems> Items(std::string_view table) const;
  // Reads everything, checks every checksum and every reference. DATA_LOSS naming what is wrong and where.
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
  bool is_foreign = false;  // dm-reverb's
};
// The checkpoints under `path`, oldest first; other files and folders are passed over. NOT_FOUND when there
// is no such folder.
Result<std::vector<CheckpointEntry>> ListCheckpoints(const std::string& path);

// Writes the checkpoint `from` (one, or a folder: then its latest), of whichever format, as a new one in
// this release's format under the folder `to`. Returns the path of the new one.
Result<std::string> ImportCheckpoint(const std::string& from, const std::string& to,
                                     const CheckpointProgressCallback& progress = {});

}  // namespace reverb

#endif  // REVERB_CHECKPOINT_H_
