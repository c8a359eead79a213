// reverb_source.h — reads a checkpoint in Reverb's own format.
#ifndef REVERB_CHECKPOINT_REVERB_SOURCE_H_
#define REVERB_CHECKPOINT_REVERB_SOURCE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/file_system.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/format.h"
#include "checkpoint/row_format.h"
#include "checkpoint/segment_reader.h"
#include "checkpoint/source.h"
#include "core/chunk_store.h"
#include "reverb/status.h"

namespace reverb::internal {

// Reads items one by one; their data stays in the mapped files. Threads: one at a time.
class ItemCursor {
 public:
  virtual ~ItemCursor() = default;
  // Returns nothing at the end. DATA_LOSS as for CheckpointSource::Read().
  virtual Result<std::optional<SavedItem>> Next() = 0;
};

// The same for rows.
class RowCursor {
 public:
  virtual ~RowCursor() = default;
  virtual Result<std::optional<SavedRow>> Next() = 0;
};

class ReverbSource final : public CheckpointSource {
 public:
  // Reads the manifest and the tables' states, and checks that all files exist with the right size.
  static Result<std::unique_ptr<ReverbSource>> Open(FileSystem* fs, const std::string& path);

  const SavedServer& server() const override { return server_; }
  CheckpointInfo Info() const override;
  int64_t MinMemoryBytes(const WantedTables& wanted) const override;
  // Needs memory for the chunks and little else: where some chunks of the files may not be needed, a first
  // pass over the items finds those that are. Then loads chunks and items concurrently.
  Status Read(ChunkStore& store, const WantedTables& wanted, const Sink& sink,
              const CheckpointProgressCallback& progress) override;
  // Returns what was read, for a writer that continues from here. To be called once, after Read().
  std::vector<LoadedSegment> TakeLoaded() { return std::move(loaded_); }

  // Returns the items of table `index`, by default in the order of slots. The source must outlive the cursor.
  std::unique_ptr<ItemCursor> OpenItems(size_t index, const CheckpointReadOptions& options = {}) const;

  // Returns the rows of row table `index`, in the order of slots. The source must outlive the cursor.
  std::unique_ptr<RowCursor> OpenRows(size_t index) const;

  const Manifest& manifest() const { return manifest_; }
  const std::string& path() const { return path_; }

 private:
  class Cursor;
  class RowsOfTable;  // a RowCursor

  ReverbSource(FileSystem* fs, std::string path, Manifest manifest)
      : fs_(fs), path_(std::move(path)), manifest_(std::move(manifest)) {}
  Status ReadStates();
  // Checks the counts of the manifest against the sizes of the files.
  Status CheckSizes() const;
  Status ReadRowStates();
  // Calls `visit` for every item of the wanted tables.
  Status ForEachItem(const std::vector<bool>& wanted,
                     const std::function<Status(size_t table, PageItem&)>& visit,
                     const std::function<void(uint64_t)>& progress);
  // Calls `visit` for every row of the wanted row tables.
  Status ForEachRow(const std::vector<bool>& wanted,
                    const std::function<Status(size_t row_table, PageRow&)>& visit,
                    const std::function<void(uint64_t)>& progress) const;
  // Returns whether the files have chunks that the items of these tables may not need.
  bool MayLeaveOut(const WantedTables& wanted_tables) const;
  // Returns `are_needed` for each chunk of the segment. DATA_LOSS when there cannot be so many.
  Result<std::vector<bool>> ChunksOf(const SavedSegment& segment, bool are_needed) const;
  // Returns, by segment, which chunks the items and rows of the wanted tables refer to.
  Result<std::vector<std::vector<bool>>> FindNeeded(const WantedTables& wanted_tables,
                                                    const std::function<void(uint64_t)>& progress);
  // Returns the segment's index; absent when there is no such chunk.
  std::optional<size_t> FindSegment(const ChunkPlace& place) const;
  Status UnknownChunk(const ChunkPlace& place) const;

  FileSystem* const fs_;
  const std::string path_;
  const Manifest manifest_;
  SavedServer server_;
  absl::flat_hash_map<uint64_t, uint32_t> segment_index_;  // of chunks: by number, into manifest_.segments
  std::vector<LoadedSegment> loaded_;
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_REVERB_SOURCE_H_
