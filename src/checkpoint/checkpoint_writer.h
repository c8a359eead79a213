// checkpoint_writer.h — writes snapshots of tables as checkpoints under one root, each only what the last one lacks.
//
// What the last published checkpoint holds is remembered: where each chunk lies, and in which state each page
// of slots was written. A new checkpoint writes chunks that are new and pages that changed, refers to the
// rest, and moves chunks out of segments that are mostly dead. It appears all at once: first every file is
// made durable, then its manifest gets its name. A write that fails leaves the earlier checkpoints as they
// were, and this object too.
//
// Others may write under the same root, one at a time: a lock sees to that. Since they may clear away what
// the next checkpoint of this object was to build on, it is then written whole. A segment file that the new
// checkpoint would refer to, and that is missing or of another size than it was written with, is written
// again from memory. The content of such files is not read again.
//
// Threads: one at a time.
#ifndef REVERB_CHECKPOINT_CHECKPOINT_WRITER_H_
#define REVERB_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "checkpoint/format.h"
#include "checkpoint/segment_writer.h"
#include "checkpoint/source.h"
#include "core/snapshot.h"
#include "reverb/status.h"

namespace reverb::internal {

// Chunks of this process that lie in a segment of a checkpoint that was loaded.
struct LoadedSegment {
  SavedSegment segment;
  std::vector<uint64_t> chunk_ids;  // by ordinal; 0 = not loaded
};

class CheckpointWriter {
 public:
  struct Options {
    std::string root;
    int32_t keep_latest = 1;
    // How long Write() waits for another writer under the same root.
    Duration lock_timeout = std::chrono::seconds(60);
    // A segment of chunks is ended past this many bytes.
    uint64_t segment_bytes = uint64_t{256} << 20;
    // A segment with a smaller part alive than this is emptied into a new one, but no more bytes at a time
    // than the larger of these: so many, or that part of all that is alive.
    double compact_below = 0.5;
    uint64_t compact_bytes = uint64_t{64} << 20;
    double compact_part = 0.25;
    // With more small segments than this, the smallest are merged as well. Small: below an eighth of the
    // bytes of a full one.
    size_t max_small_segments = 32;
  };
  struct Stats {
    std::string path;
    uint64_t chunks_written = 0;
    uint64_t chunks_moved = 0;  // of these, out of segments that were mostly dead or whose files were lost
    uint64_t chunk_bytes = 0;   // of the segments of chunks
    uint64_t pages_written = 0;
    uint64_t pages_total = 0;
    uint64_t page_bytes = 0;  // of the segments of pages
  };

  CheckpointWriter(FileSystem* fs, Options options);
  ~CheckpointWriter();

  // The tables were loaded from the checkpoint at `path`, of this root.
  void Adopt(std::string path, std::vector<LoadedSegment> segments);

  // The checkpoint is durable when this returns without an error. `wall_nanos` names it, unless there is a
  // later one already. ABORTED when another writer holds the root for longer than lock_timeout.
  Result<Stats> Write(const Snapshot& snapshot, std::vector<SavedWriter> writers, int64_t wall_nanos);

 private:
  // Where a chunk lies: which of segments_, and which record.
  struct Place {
    uint32_t segment = 0;
    uint32_t ordinal = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  // During an attempt, of a segment that it writes: by index into its writers, with this bit.
  static constexpr uint32_t kOfAttempt = uint32_t{1} << 31;
  struct Segment {
    SavedSegment saved;
    std::vector<bool> is_live;  // by ordinal
    std::vector<uint32_t>
        payload_sizes;       // by ordinal; of chunks that were loaded, once a page has named them
    bool is_victim = false;  // its live chunks are written again, elsewhere
  };
  struct Page {
    uint64_t version = 0;
    RecordPlace place;
    // Of the chunks that its items refer to, some maybe more than once: as long as the page stays as it is,
    // nobody has to look at the items.
    std::shared_ptr<std::vector<Place>> chunks;
  };
  struct PageFile {
    uint64_t file_bytes = 0;
    uint64_t live_bytes = 0;
  };
  struct Attempt;  // what one Write() has done so far

  Status PrepareRoot();
  // What others have left in the root since the last time.
  Status LookAtRoot();
  void ForgetLast();
  // Which chunks and pages of the last checkpoint the snapshot still has.
  void MarkLive(const Snapshot& snapshot);
  void MarkLive(const Place& place, uint32_t payload_size);
  // The page as it was written, if that is how it is in the snapshot; else null.
  const Page* FindUnchanged(const TableSnapshot& table, size_t page) const;
  // Makes victims of segments whose files are not as they were written. Returns the page files among them.
  std::set<uint64_t> FindLostFiles();
  void ChooseVictims();
  std::set<uint64_t> ChooseVictimPages(const Snapshot& snapshot) const;
  Status WriteTables(const Snapshot& snapshot, Attempt* attempt);
  Status WriteTable(const TableSnapshot& table, Attempt* attempt);
  Result<Place> WriteChunk(const Chunk& chunk, Attempt* attempt);
  ChunkPlace NameOf(const Place& place, const Attempt& attempt) const;
  // Writes one page, and its chunks unless they are there already.
  Result<Page> WritePage(const TableSnapshot& table, size_t page, Attempt* attempt);
  Status WriteTableState(const TableSnapshot& table, ManifestTable* to, Attempt* attempt);
  Result<SegmentWriter*> PageWriter(Attempt* attempt);
  Status MakeDurable(Attempt* attempt);
  Status Publish(Attempt* attempt, int64_t wall_nanos);
  void Commit(Attempt* attempt);
  void Undo(Attempt* attempt);
  // Removes what no checkpoint that is kept needs. Failures are logged.
  void CollectGarbage(const Manifest& newest, const std::string& newest_path);
  Status TryCollectGarbage(const Manifest& newest, const std::string& newest_path);
  Status RemoveCheckpoint(const std::string& path);

  FileSystem* const fs_;
  const Options options_;
  const std::string segments_path_;
  bool is_prepared_ = false;
  uint64_t next_number_ = 1;
  int64_t last_nanos_ = 0;

  // --- What the last published checkpoint holds ---
  std::string last_path_;                           // empty = there is none to build on
  std::vector<std::unique_ptr<Segment>> segments_;  // null = unused
  absl::flat_hash_map<uint64_t, Place> places_;     // by id of the chunk
  std::map<std::string, std::vector<Page>, std::less<>> pages_;
  std::map<uint64_t, PageFile> page_files_;
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_CHECKPOINT_WRITER_H_
