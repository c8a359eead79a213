// chunk_tier.h — chunks whose payloads are in memory or on disk.
//
// Items of tables refer to tiered chunks (tensor/chunk.h). When the payloads in memory exceed a limit, a thread writes
// those that were used least recently to segments (segment_store.h) and drops them. The order is approximate: a list in
// the order in which chunks were stored, in which a chunk that was used gets a second chance. Fetch() returns the
// payloads as ordinary chunks, reading those of a batch together. The holders of these chunks keep them in memory. A
// payload that is read twice within the time in which the memory is filled once stays in memory until it is unused
// again; its copy on disk stays valid, unless the files reach their limit.
//
// Ownership: an open tier is owned by a ChunkTierPtr. Its chunks may outlive that; those whose payloads are on disk are
// lost then.
// Threads: all methods may be called concurrently. The lock of the tier is taken under locks of tables; under it, only
// the budget takes locks.
#ifndef REVERB_STORAGE_CHUNK_TIER_H_
#define REVERB_STORAGE_CHUNK_TIER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/payload_source.h"
#include "reverb/status.h"
#include "storage/batch_reader.h"
#include "storage/segment_store.h"
#include "tensor/chunk.h"

namespace reverb::internal {

class ChunkTier;
// Closes a tier: stops its threads and removes its files.
struct ChunkTierCloser {
  void operator()(ChunkTier* tier) const;
};
using ChunkTierPtr = std::unique_ptr<ChunkTier, ChunkTierCloser>;

class ChunkTier final : public PayloadTier {
 public:
  struct Options {
    std::string path;          // a folder for the files
    int64_t memory_limit = 0;  // of the payloads in memory
    int64_t disk_limit = 0;    // of the files; 0: 80 % of the space that is free at the start
    // Smaller payloads stay in memory and do not count.
    uint32_t min_payload_bytes = 1024;
    uint64_t segment_bytes = 0;                         // 0: SegmentStore::DefaultSegmentBytes()
    uint64_t write_bytes = uint64_t{8} << 20;           // of a write
    Duration retry_interval = std::chrono::seconds(1);  // after an operation that failed
    BatchReader::Options reader = {};

    Status Validate() const;
  };
  struct Stats {
    int64_t memory_bytes = 0;   // of payloads that can leave the memory
    int64_t disk_bytes = 0;     // of payloads on disk
    int64_t file_bytes = 0;     // of the files
    int64_t written_bytes = 0;  // of payloads, since the start; those of compaction included
    int64_t read_bytes = 0;     // of payloads, since the start
    int64_t lost_chunks = 0;    // whose payload could not be read, or was damaged
    std::string error = {};     // why the last write failed; empty: it did not
  };

  // Payloads that are read are allocated from `source`, if it is not null. Both must outlive the chunks.
  static Result<ChunkTierPtr> Open(FileSystem* fs, const Options& options, PayloadSource* source = nullptr);

  // Stops the threads, removes the files and releases the folder, as closing the tier does, although others may still
  // refer to it: data that is on disk is lost. May be called repeatedly, but not on a thread of the tier.
  void Shutdown() EXCLUDES(mu_);

  const Options& options() const { return options_; }
  // Returns the bytes of payloads that fit into memory and files.
  int64_t capacity() const { return capacity_; }
  Stats stats() const EXCLUDES(mu_);

  // Returns whether a chunk of this size can be tiered. One that might never fit into the files stays in memory.
  bool Takes(uint32_t payload_size) const {
    return payload_size >= options_.min_payload_bytes && payload_size <= options_.disk_limit / 2;
  }
  // Returns a tiered chunk with this payload, which nothing else refers to.
  Result<ChunkRef> Wrap(ChunkRef resident);
  // Returns a tiered chunk for a chunk of a writer in this process: the same one for each call, as long as it exists.
  // Null if another store counts the chunk already. Calls attach(chunk) for a new one.
  template <typename Attach>
  Result<ChunkRef> Enter(const ChunkRef& resident, Attach&& attach) {
    REVERB_ASSIGN_OR_RETURN(Entered entered, FindOrWrap(resident));
    if (entered.is_new) attach(entered.chunk.get());
    return std::move(entered.chunk);
  }

  // Returns whether `more` bytes may be stored in memory now. If not, the tier makes room, and wakes those that wait for
  // room in the budget.
  bool HasRoomFor(int64_t more) EXCLUDES(mu_);
  // Returns whether payloads are in memory that the tier can move.
  bool holds_memory() const { return resident_bytes_.load(std::memory_order_relaxed) > 0; }
  // Returns whether payloads cannot be written at present.
  bool is_failing() const { return is_failing_.load(std::memory_order_relaxed); }

  // Returns whether evicting items may help a write that has failed. If the disk is full, it may until a file is free; for
  // other errors, which last until retry_interval, a few items may be evicted for each.
  bool MayEvict() const { return is_failing() && evictable_bytes_.load(std::memory_order_relaxed) > 0; }
  // Items of so many bytes were evicted.
  void NoteEvicted(int64_t bytes) { evictable_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  // Payloads of chunks that were loaded may leave the memory before an item refers to the chunk. Waits until all that
  // is in memory fits again, unless payloads cannot be written.
  void AddLoaded(std::span<const ChunkRef> chunks) EXCLUDES(mu_);

  // `ledger` is attached to the resident forms of chunks, and counts those that the tier keeps as stored, in `budget`.
  // Payloads leave the memory also if other things that are kept leave no room in the budget. Both must outlive the
  // chunks. Call it before the tier has chunks; without it, the tier counts nothing.
  void CountBy(ChunkLedger* ledger, MemoryBudget* budget) EXCLUDES(mu_) {
    MutexLock lock(&mu_);  // the mover runs already
    ledger_ = ledger;
    budget_ = budget;
  }

  void OnStoredChanged(Chunk* chunk) override EXCLUDES(mu_);
  void OnParked(Chunk* chunk) override EXCLUDES(mu_);
  void OnDestroyed(Chunk* chunk) override EXCLUDES(mu_);
  Status Pin(Chunk* chunk) override EXCLUDES(mu_);
  void Fetch(std::vector<ChunkRef> chunks, Done done) override EXCLUDES(mu_);
  PayloadPlace FindPlace(Chunk* chunk) override EXCLUDES(mu_);
  std::vector<Result<ChunkRef>> FetchAndWait(std::vector<ChunkRef> chunks) override EXCLUDES(mu_);

 private:
  friend ChunkTierCloser;
  class FetchBatch;
  class ResidentLink;
  struct Victim;
  struct Entered {
    ChunkRef chunk;
    bool is_new = false;
  };

  ChunkTier(const Options& options, PayloadSource* source, std::unique_ptr<SegmentStore> segments);
  ~ChunkTier();
  void Close() EXCLUDES(mu_);
  void Unref();
  Result<Entered> FindOrWrap(const ChunkRef& resident) EXCLUDES(mu_);

  // The list, in which the first chunk leaves first.
  void PushBack(Chunk* chunk) REQUIRES(mu_);
  void PushFront(Chunk* chunk) REQUIRES(mu_);
  void Unlink(Chunk* chunk) REQUIRES(mu_);
  void UpdateListed(Chunk* chunk, bool at_front) REQUIRES(mu_);
  // Returns whether the payload is in memory and may leave it.
  bool MayLeave(Chunk* chunk) const REQUIRES(mu_);
  // Sets and takes the payload in memory.
  void SetResident(Chunk* chunk, ChunkRef resident) REQUIRES(mu_);
  ChunkRef TakeResident(Chunk* chunk) REQUIRES(mu_);
  // The payload on disk is no longer needed.
  void FreePlace(Chunk* chunk) REQUIRES(mu_);
  // Counts a pinned payload as stored while an item refers to it.
  void UpdatePinned(Chunk* chunk) REQUIRES(mu_);
  void ChangeResident(int64_t bytes) REQUIRES(mu_);
  // Returns how much may be in memory: memory_limit, or less if the budget has to keep other things.
  int64_t MemoryLimit() const;
  bool MustMove() const REQUIRES(mu_);
  int64_t TargetBytes() const REQUIRES(mu_);

  void RunMover() EXCLUDES(mu_);
  // Waits until there may be work, or it may be tried again.
  void AwaitWork() REQUIRES(mu_);
  // Return false during the pause after an error. For a full disk, it ends when there may be room.
  bool MayWrite() const REQUIRES(mu_);
  bool MayRemove() const REQUIRES(mu_);
  bool is_disk_full() const REQUIRES(mu_) { return write_error_.code() == StatusCode::kFailedPrecondition; }
  // These release the lock while they access files. They return false if nothing can be done for now.
  bool MoveSome() REQUIRES(mu_);
  enum class Compaction : uint8_t { kNone, kGained, kFailed };
  // Moves some payloads of a segment that is mostly dead, if there is one.
  Compaction CompactSome(bool is_urgent) REQUIRES(mu_);
  // Returns the segment to compact next, if there is room for its payloads.
  std::shared_ptr<DiskSegment> FindVictim(bool is_urgent) const REQUIRES(mu_);
  // Returns whether compaction goes before new data, which would fill the room that is kept for it: then neither could
  // go on.
  bool CompactionGoesFirst() const REQUIRES(mu_);
  // Returns about how many bytes the live records of a segment take in another one.
  uint64_t BytesToMove(const DiskSegment& segment) const;
  // Returns the bytes that are left in the current segment.
  uint64_t BytesLeft() const;
  void RemoveDead() REQUIRES(mu_);
  std::vector<Victim> ChooseVictims(std::vector<ChunkRef>* released) REQUIRES(mu_);
  // Makes the current segment one that has room for `bytes` of so many records.
  Status PrepareSegment(uint64_t bytes, size_t records, bool is_compaction) EXCLUDES(mu_);
  // Seals the current segment. The next write creates another one.
  void LeaveSegment() EXCLUDES(mu_);
  // Records that the payload of a victim is in the current segment, where WriteAll() wrote it.
  void SetPlace(const Victim& victim) REQUIRES(mu_);
  // Writes the payloads to the current segment and sets where they are.
  Status WriteAll(std::vector<Victim>* victims, bool is_compaction) EXCLUDES(mu_);
  // Wakes those that wait for room.
  void OnRoom() EXCLUDES(mu_);
  // Records the outcome of a write; logs a change.
  void NoteWrite(const Status& status, uint64_t bytes) REQUIRES(mu_);
  void OnLost(const Status& status) EXCLUDES(mu_);
  // Keeps a payload that was read in memory if it is used often.
  void Admit(Chunk* chunk, const ChunkRef& resident) EXCLUDES(mu_);

  const Options options_;
  PayloadSource* const source_;
  const int64_t capacity_;
  const int64_t margin_;  // the mover keeps this much of memory_limit free
  ChunkLedger* ledger_ = nullptr;
  MemoryBudget* budget_ = nullptr;
  BatchReader reader_;
  std::atomic<uint64_t> refs_{1};           // of the chunks, and one of the ChunkTierPtr
  std::atomic<int64_t> resident_bytes_{0};  // changed under mu_
  std::atomic<bool> is_failing_{false};
  std::atomic<int64_t> evictable_bytes_{0};  // see MayEvict(); set under mu_
  std::atomic<int64_t> read_bytes_{0};

  mutable Mutex mu_;
  CondVar mover_wanted_;
  CondVar room_made_;
  std::unique_ptr<SegmentStore> segments_ GUARDED_BY(mu_);  // null once closed
  Chunk* first_ GUARDED_BY(mu_) = nullptr;
  Chunk* last_ GUARDED_BY(mu_) = nullptr;
  bool is_closed_ GUARDED_BY(mu_) = false;
  bool is_moving_ GUARDED_BY(mu_) = false;    // until there is a margin again
  int64_t wanted_bytes_ GUARDED_BY(mu_) = 0;  // that an insert waits for
  int64_t dropped_bytes_ GUARDED_BY(mu_) = 0;
  int64_t written_bytes_ GUARDED_BY(mu_) = 0;
  int64_t lost_chunks_ GUARDED_BY(mu_) = 0;
  Status write_error_ GUARDED_BY(mu_);
  using RetryTime = std::chrono::steady_clock::time_point;
  RetryTime write_again_ GUARDED_BY(mu_) = {};   // when writes may be tried again
  RetryTime remove_again_ GUARDED_BY(mu_) = {};  // when files may be removed again
  uint64_t freed_bytes_ GUARDED_BY(mu_) = 0;     // of payloads on disk since the last write that failed
  std::thread mover_ GUARDED_BY(mu_);

  // Only the mover uses these.
  SegmentStore* files_ = nullptr;  // the same as segments_, for Create() and RemoveFile()
  std::shared_ptr<DiskSegment> current_;
  std::shared_ptr<DiskSegment> victim_;  // being compacted
  size_t next_in_victim_ = 0;
  bool is_suspect_ = false;   // the medium failed when the end of current_ was written
  bool is_at_limit_ = false;  // the last write failed because disk_limit leaves no room for it
};

}  // namespace reverb::internal

#endif  // REVERB_STORAGE_CHUNK_TIER_H_
