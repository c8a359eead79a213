// segment_store.h — the files that the payloads of a disk tier are in, and what of their space is used.
//
// A segment is a file in the format of checkpoints (segment_format.h), so that a checkpoint can have it as it is. One is
// written at a time, from its start to its end, in whole blocks: the last record of a write may be a filler. Then it is
// sealed: it gets its index and does not change any more. The header of a payload, with its checksums, also stays in
// memory (tensor/chunk.h). A sealed segment in which nothing is live is removed; one that is mostly dead can be
// compacted: the caller moves its live payloads.
//
// The files are a cache: those that a process leaves behind when it is killed are removed by the next one that uses
// the folder. A lock keeps two processes from using the same folder.
//
// Threads: Create(), WriteEnd() and RemoveFile() do the work that takes time, and may run concurrently with everything else. The
// caller must serialize all other methods.
#ifndef REVERB_STORAGE_SEGMENT_STORE_H_
#define REVERB_STORAGE_SEGMENT_STORE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/fork.h"
#include "reverb/status.h"
#include "tensor/chunk.h"

namespace reverb::internal {

struct DiskSegment : std::enable_shared_from_this<DiskSegment> {
  std::shared_ptr<BlockFile> file;
  uint64_t file_bytes = 0;
  uint64_t number = 0;
  // Only the thread that writes uses these.
  uint64_t written_bytes = 0;
  std::vector<uint64_t> record_sizes;
  // Guarded by the caller's lock.
  std::shared_ptr<const PayloadFile> sealed;  // null: it has no index
  uint64_t live_bytes = 0;                    // of payloads
  uint32_t live_count = 0;
  uint64_t record_bytes = 0;       // of all records of chunks
  uint64_t live_record_bytes = 0;  // of these: of those that are needed
  uint64_t copy_bytes = 0;         // of these: of those whose payload is in memory too
  bool is_sealed = false;
  bool is_damaged = false;      // could not be compacted
  bool has_read_error = false;  // the last attempt to compact it could not read it
  std::vector<Chunk*> chunks;   // by ordinal; null = dead, or a filler
};

class SegmentStore {
 public:
  struct Options {
    std::string path;
    uint64_t disk_limit = 0;     // of the files together; 0: most of the space that is free at the start
    uint64_t segment_bytes = 0;  // a multiple of BlockFile::kBlockBytes; 0: DefaultSegmentBytes()
    uint64_t write_bytes = uint64_t{8} << 20;  // of payloads in a write; at most about an eighth of a segment
  };

  // Returns the size of segments for a limit: small enough that compaction has room for some, and large enough that
  // their descriptors are few.
  static uint64_t DefaultSegmentBytes(uint64_t disk_limit);
  // Returns the bytes of payloads that fit in any case, however they are scattered over the segments.
  static uint64_t UsableBytes(uint64_t disk_limit) { return disk_limit / 10 * 7; }

  // Creates the folder if it is missing, locks it, and removes segments that another process left behind. Only then it
  // measures the free space, if that is the limit.
  static Result<std::unique_ptr<SegmentStore>> Open(FileSystem* fs, const Options& options);
  // Removes all files; nothing in a child created by fork(), whose parent uses them.
  ~SegmentStore();

  // Without zeros.
  const Options& options() const { return options_; }

  // Creates a segment with room for `bytes`, usually more, but at most for `most_bytes`.
  Result<std::shared_ptr<DiskSegment>> Create(uint64_t bytes, uint64_t most_bytes = UINT64_MAX);
  // Writes the index of a segment and gives back the space behind it. Null if that fails: the segment can be used
  // all the same, but not by checkpoints.
  std::shared_ptr<const PayloadFile> WriteEnd(DiskSegment* segment);
  void Install(std::shared_ptr<DiskSegment> segment);
  // Records the payload of a chunk, whose record has `head_bytes` before it.
  void Add(DiskSegment* segment, uint32_t ordinal, Chunk* chunk, uint32_t head_bytes);
  // The payload is no longer needed. `bytes`: its size.
  void Free(DiskSegment* segment, uint32_t ordinal, uint64_t bytes, uint32_t head_bytes);
  // The payload, which was added, is in memory too, or no longer is. Before Free(), it must not be.
  void SetCopy(DiskSegment* segment, uint64_t bytes, uint32_t head_bytes, bool is_copy);
  // `file`: of WriteEnd().
  void Seal(DiskSegment* segment, std::shared_ptr<const PayloadFile> file);

  // Returns whether the limit allows a new segment with room for `bytes`. The room of one more is kept for compaction,
  // whose segments may be smaller than others: sealed segments differ in size, so the limit need not leave room for a
  // whole one.
  bool HasRoomFor(uint64_t bytes, bool is_compaction) const;
  // Returns the room that is left below the limit.
  uint64_t free_bytes() const { return options_.disk_limit - std::min(options_.disk_limit, file_bytes_); }
  // Returns whether less room is left than is kept for compaction.
  bool uses_reserve() const { return free_bytes() < options_.segment_bytes; }
  // Returns the sealed segment with the most dead bytes, and copies of what is in memory if it is urgent. Null if
  // compaction would gain little: unless `is_urgent`, half of the segment and of all bytes must be dead, otherwise a
  // tenth of the segment. Compaction ends: what it writes has no dead bytes, and no copies.
  std::shared_ptr<DiskSegment> FindVictim(bool is_urgent) const;
  // Returns the sealed segments without live payloads. The caller removes their files, and then calls NoteRemoved().
  std::vector<std::shared_ptr<DiskSegment>> TakeDead() { return std::move(dead_); }
  bool has_dead() const { return !dead_.empty(); }
  // Returns whether the file is gone; logs an error.
  bool RemoveFile(const DiskSegment& segment);
  // The file of a dead segment no longer counts; if it could not be removed, the segment is a dead one again.
  void NoteRemoved(std::shared_ptr<DiskSegment> segment, bool is_removed);

  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t live_bytes() const { return live_bytes_; }
  size_t num_segments() const { return segments_.size(); }

 private:
  SegmentStore(FileSystem* fs, const Options& options);
  // Moves a segment from the list to the dead ones.
  void Bury(DiskSegment* segment);
  // Returns the bytes of a segment that compaction frees: those of dead records, and what it takes more than a segment
  // with these records, written at once, may take.
  uint64_t DeadBytes(const DiskSegment& segment) const;

  const uint64_t generation_ = ForkGeneration();
  FileSystem* const fs_;
  Options options_;  // constant after Open()
  std::unique_ptr<FileLock> lock_;
  std::atomic<uint64_t> next_number_;
  std::vector<std::shared_ptr<DiskSegment>> segments_;
  std::vector<std::shared_ptr<DiskSegment>> dead_;
  uint64_t file_bytes_ = 0;
  uint64_t live_bytes_ = 0;
  uint64_t live_record_bytes_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_STORAGE_SEGMENT_STORE_H_
