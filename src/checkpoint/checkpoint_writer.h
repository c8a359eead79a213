// checkpoint_writer.h — writes snapshots of tables as incremental checkpoints under one root.
//
// The writer remembers the last published checkpoint: where each chunk is, and which version of each page of
// slots was written. A new checkpoint writes new chunks and changed pages, refers to the rest, and moves
// chunks out of segments that are mostly dead. It is published atomically: every file is made durable first,
// then the manifest is renamed into place. A failed write changes neither the earlier checkpoints nor this
// object.
//
// Other writers may use the same root, one at a time, under a file lock. They may remove files that the next
// checkpoint of this object would refer to; it is then written in full. A segment file that is missing, or
// whose size differs from what was written, is written again from memory. Its content is not read again.
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
#include "base/memory_budget.h"
#include "checkpoint/format.h"
#include "checkpoint/segment_writer.h"
#include "checkpoint/source.h"
#include "core/snapshot.h"
#include "reverb/status.h"

namespace reverb::internal {

// The chunks of this process that were loaded from one segment of a checkpoint.
struct LoadedSegment {
  SavedSegment segment;
  std::vector<uint64_t> chunk_ids;  // by ordinal; 0 = not loaded
};

class CheckpointWriter {
 public:
  struct Options {
    std::string root;
    int32_t keep_latest = 1;
    uint32_t shard = 0;  // of the server, in the manifest
    // How long Write() waits for another writer under the same root.
    Duration lock_timeout = std::chrono::seconds(60);
    // A segment of chunks is closed when it exceeds this many bytes.
    uint64_t segment_bytes = uint64_t{256} << 20;
    // A segment whose live part is smaller than this is moved into a new one. One checkpoint moves at most
    // compact_bytes, or compact_part of all live bytes if that is more.
    double compact_below = 0.5;
    uint64_t compact_bytes = uint64_t{64} << 20;
    double compact_part = 0.25;
    // With more small segments than this, the smallest are merged as well. Small: less than an eighth of
    // segment_bytes.
    size_t max_small_segments = 32;
    // Frees items that the tables have removed as soon as their pages are written: the snapshot cannot be read again.
    bool release_pages = false;
    // Charged with what this object remembers, and with what a checkpoint adds to that while it is written. May be null;
    // must outlive this object.
    MemoryBudget* budget = nullptr;
  };
  struct Stats {
    std::string path;
    uint64_t chunks_written = 0;
    uint64_t chunks_moved = 0;   // of these, out of segments that were mostly dead or whose files were lost
    uint64_t chunk_bytes = 0;    // of the segments of chunks that were written
    uint64_t chunks_linked = 0;  // that are in files of the disk tier, and were not written
    uint64_t segments_linked = 0;
    uint64_t pages_written = 0;
    uint64_t pages_total = 0;
    uint64_t page_bytes = 0;  // of the segments of pages
  };

  CheckpointWriter(FileSystem* fs, Options options);
  ~CheckpointWriter();

  // Continues from the checkpoint at `path`, under this root, from which the tables were loaded.
  void Adopt(std::string path, std::vector<LoadedSegment> segments);

  // Writes a checkpoint, which is durable on success. Its name is `wall_nanos`, unless there is a later one
  // already. ABORTED when another writer locks the root for longer than lock_timeout.
  Result<Stats> Write(const Snapshot& snapshot, std::vector<SavedWriter> writers, int64_t wall_nanos);

  // The items whose data on disk could not be read by the last Write(), which has returned DATA_LOSS for them.
  struct LostItem {
    std::string table;
    uint64_t key = 0;
  };
  const std::vector<LostItem>& lost_items() const { return lost_items_; }

 private:
  // The location of a chunk: its index in segments_, and its record.
  struct Place {
    uint32_t segment = 0;
    uint32_t ordinal = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  // Marks a segment that the current attempt writes; the other bits are the index of its writer.
  static constexpr uint32_t kOfAttempt = uint32_t{1} << 31;
  struct Segment {
    SavedSegment saved;
    std::vector<bool> is_live;  // by ordinal
    std::vector<uint32_t>
        payload_sizes;       // by ordinal; of chunks that were loaded, once a page has named them
    bool is_victim = false;  // its live chunks move to another segment
  };
  struct Page {
    uint64_t version = 0;
    RecordPlace place;
    // The chunks that its items refer to, with duplicates: while the page is unchanged, its items need not be
    // visited.
    std::shared_ptr<std::vector<Place>> chunks;
  };
  struct Attempt;  // what one Write() has done so far

  Status PrepareRoot();
  // Reads what other writers changed under the root since the last checkpoint.
  Status LookAtRoot();
  void ForgetLast();
  // Marks the chunks and pages of the last checkpoint that the snapshot still has.
  void MarkLive(const Snapshot& snapshot);
  void MarkLive(const Place& place, uint32_t payload_size);
  // Returns the page as it was written if the snapshot has it unchanged, else null.
  const Page* FindUnchanged(const TableSnapshot& table, size_t page) const;
  // Marks segments whose files were changed or removed as victims. Returns the page files among them.
  std::set<uint64_t> FindLostFiles();
  void ChooseVictims();
  std::set<uint64_t> ChooseVictimPages(const Snapshot& snapshot) const;
  Status WriteTables(const Snapshot& snapshot, Attempt* attempt);
  Status WriteTable(const TableSnapshot& table, Attempt* attempt);
  Result<Place> WriteChunk(const Chunk& chunk, Attempt* attempt);
  // With a disk tier: links files that contain chunks of the page, instead of copying these, and reads other data of the
  // page that is on disk. LinkChunk() returns whether the chunk is in a linked file. ResidentForm() returns the data of
  // one chunk.
  bool LinkChunk(Chunk* chunk, Attempt* attempt);
  std::optional<uint32_t> LinkFile(const PayloadPlace& where, Attempt* attempt);
  Status FetchPage(const TableSnapshot& table, size_t page, Attempt* attempt);
  Result<ChunkRef> ResidentForm(const Chunk& chunk, Attempt* attempt);
  ChunkPlace NameOf(const Place& place, const Attempt& attempt) const;
  // Writes one page, and those of its chunks that are not yet written.
  Result<Page> WritePage(const TableSnapshot& table, size_t page, Attempt* attempt);
  Status WriteRowTable(const RowTableSnapshot& table, Attempt* attempt);
  Status WriteTableState(const TableSnapshot& table, ManifestTable* to, Attempt* attempt);
  Result<SegmentWriter*> PageWriter(Attempt* attempt);
  Status MakeDurable(Attempt* attempt);
  Status Publish(Attempt* attempt, int64_t wall_nanos);
  void Commit(Attempt* attempt);
  void Undo(Attempt* attempt);
  // Charges what is remembered of the last checkpoint.
  void ChargeMemory();
  // Removes the files that no retained checkpoint needs. Logs failures.
  void CollectGarbage(const Manifest& newest, const std::string& newest_path);
  Status TryCollectGarbage(const Manifest& newest, const std::string& newest_path);
  Status RemoveCheckpoint(const std::string& path);

  FileSystem* const fs_;
  const Options options_;
  const std::string segments_path_;
  bool is_prepared_ = false;
  uint64_t next_number_ = 1;
  int64_t last_nanos_ = 0;
  bool has_logged_link_ = false;

  // --- The contents of the last published checkpoint ---
  std::string last_path_;                           // empty = there is none to build on
  std::vector<std::unique_ptr<Segment>> segments_;  // null = unused
  absl::flat_hash_map<uint64_t, Place> places_;     // by id of the chunk
  std::map<uint64_t, std::vector<Page>> pages_;     // by instance of the table
  std::map<uint64_t, uint64_t> page_file_bytes_;    // by number of the file
  std::vector<LostItem> lost_items_;
  MemoryCharge charge_;
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_CHECKPOINT_WRITER_H_
