// source.h — a checkpoint as a stream of values, independent of its format on disk.
//
// The reader of a format implements CheckpointSource. Restoring a server, converting a checkpoint and showing
// one to a user work with any source, so another format needs only a source.
//
// Threads: one thread at a time uses a source, unless it documents otherwise.
#ifndef REVERB_CHECKPOINT_SOURCE_H_
#define REVERB_CHECKPOINT_SOURCE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "core/chunk_store.h"
#include "core/restore.h"
#include "core/rows/row_snapshot.h"
#include "reverb/checkpoint.h"
#include "reverb/status.h"
#include "reverb/table_settings.h"

namespace reverb::internal {

// A table without its items.
struct SavedTable : TableSettings {
  int64_t size = 0;  // items
  // False for formats without layout and max_age: the given ones are used then.
  bool knows_layout_and_age = true;
  bool knows_max_bytes = true;  // the same for max_bytes
  SavedTableState state = {};
};

// A writer that may reconnect (see service/writer_session.h).
struct SavedWriter {
  std::array<uint8_t, 16> id = {};
  // Every item up to this number is in its table, or was rejected.
  uint64_t applied_through = 0;
  // By table, if further than that: the number of the last item that was inserted.
  std::vector<std::pair<std::string, uint64_t>> applied;
};

// Which tables are read: by index into SavedServer's lists.
struct WantedTables {
  std::vector<bool> tables;
  std::vector<bool> row_tables = {};
};

struct SavedServer {
  std::string format;         // for display
  int64_t created_nanos = 0;  // since the Unix epoch
  std::vector<SavedTable> tables;
  std::vector<SavedRowTable> row_tables = {};
  std::vector<SavedWriter> writers;
  uint32_t shard = 0;  // of the server that wrote it; 0 = unknown
};

class CheckpointSource {
 public:
  virtual ~CheckpointSource() = default;

  // Returns everything but the items, read and validated when the source was opened.
  virtual const SavedServer& server() const = 0;
  // Describes the checkpoint as a whole; the caller fills `tables`.
  virtual CheckpointInfo Info() const = 0;
  // Returns how much memory the wanted tables take at least, as far as that is known before their items are read.
  virtual int64_t MinMemoryBytes(const WantedTables& wanted) const;

  // Passes every item of the wanted tables to `sink.add_item`: tables one after the other, items in order of slots or
  // of insertion; then every row of the wanted row tables to `sink.add_row`. Creates chunks in `store`, each once
  // however many items share it. Stops at the first error, its own (DATA_LOSS, naming the file) or that of the sink.
  struct Sink {
    std::function<Status(size_t table, SavedItem item)> add_item;
    std::function<Status(size_t row_table, SavedRow row)> add_row = {};  // if there may be row tables
  };
  virtual Status Read(ChunkStore& store, const WantedTables& wanted, const Sink& sink,
                      const CheckpointProgressCallback& progress) = 0;
};

// Fails if `bytes`, the memory that a checkpoint takes at least, exceed what the memory limit of the store leaves for
// data. A store with a disk tier moves data to disk instead.
Status CheckRoomToLoad(int64_t bytes, const std::string& path, const ChunkStore& store);

// Returns the format of the checkpoint in the folder.
enum class CheckpointFormat : uint8_t { kNone, kReverb, kDmReverb };
Result<CheckpointFormat> DetectCheckpointFormat(FileSystem* fs, const std::string& path);

// `path` is one checkpoint, not the folder of many. NOT_FOUND when it is not a checkpoint, DATA_LOSS when it
// is damaged, FAILED_PRECONDITION when a later release wrote it.
Result<std::unique_ptr<CheckpointSource>> OpenCheckpoint(FileSystem* fs, const std::string& path);

// Opens a checkpoint in dm-reverb's format (dm_reverb_source.cc).
Result<std::unique_ptr<CheckpointSource>> OpenDmReverbCheckpoint(FileSystem* fs, const std::string& path);

// Writes the content of `source` as a new checkpoint under `root`, without a server. Returns its path.
Result<std::string> WriteCheckpointFrom(CheckpointSource& source, FileSystem* fs, const std::string& root,
                                        const CheckpointProgressCallback& progress);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_SOURCE_H_
