// source.h — a checkpoint as a stream of values, whatever format it lies in on disk.
//
// A reader of a format implements CheckpointSource; what restores a server, writes a checkpoint in our own
// format or shows one to a user takes any of them. So a foreign format needs nothing but a source.
//
// Threads: a source belongs to one thread at a time, unless it says otherwise.
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
#include "reverb/checkpoint.h"
#include "reverb/status.h"
#include "reverb/table_settings.h"

namespace reverb::internal {

// A table without its items.
struct SavedTable : TableSettings {
  int64_t size = 0;  // items
  SavedTableState state = {};
};

// A writer that may come back (see service/writer_session.h).
struct SavedWriter {
  std::array<uint8_t, 16> id = {};
  // Every item up to this number is in its table, or was refused.
  uint64_t applied_through = 0;
  // By table, where it had come further than that: the number of the last item that went in.
  std::vector<std::pair<std::string, uint64_t>> applied;
};

struct SavedServer {
  std::string format;         // for people
  int64_t created_nanos = 0;  // since the Unix epoch
  std::vector<SavedTable> tables;
  std::vector<SavedWriter> writers;
};

class CheckpointSource {
 public:
  virtual ~CheckpointSource() = default;

  // All but the items. Read and checked when the source was opened.
  virtual const SavedServer& server() const = 0;
  // Of the checkpoint as a whole; `tables` are left to the caller.
  virtual CheckpointInfo Info() const = 0;

  // Hands over every item of the tables for which `wanted` says so (by index into server().tables), each
  // table's in order of its slots or of insertion, tables one after the other. Chunks are made in `store`,
  // each once however many items share it. Ends with the first error, its own (DATA_LOSS, naming the file)
  // or `add`'s.
  using AddItem = std::function<Status(size_t table, SavedItem item)>;
  virtual Status Read(ChunkStore& store, const std::vector<bool>& wanted, const AddItem& add,
                      const CheckpointProgressCallback& progress) = 0;
};

// Which format the folder holds.
enum class CheckpointFormat : uint8_t { kNone, kReverb, kDmReverb };
Result<CheckpointFormat> DetectCheckpointFormat(FileSystem* fs, const std::string& path);

// `path` is one checkpoint, not the folder of many. NOT_FOUND when it is none, DATA_LOSS when it is damaged,
// FAILED_PRECONDITION when a later release wrote it.
Result<std::unique_ptr<CheckpointSource>> OpenCheckpoint(FileSystem* fs, const std::string& path);

// The source for dm-reverb's format (dm_reverb_source.cc).
Result<std::unique_ptr<CheckpointSource>> OpenDmReverbCheckpoint(FileSystem* fs, const std::string& path);

// Writes what `source` holds as a new checkpoint under `root`; no server is needed. Its path.
Result<std::string> WriteCheckpointFrom(CheckpointSource& source, FileSystem* fs, const std::string& root,
                                        const CheckpointProgressCallback& progress);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_SOURCE_H_
