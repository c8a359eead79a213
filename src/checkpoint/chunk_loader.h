// chunk_loader.h — loads the chunks of a checkpoint on a second thread, ahead of the items that need them.
//
// Segments are divided into ranges. A helper thread loads one after the other; the caller loads a range too
// when it needs a chunk that is not loaded yet. Both threads stay busy however the work is distributed.
//
// Threads: used by one thread, which need not be the one that created it.
#ifndef REVERB_CHECKPOINT_CHUNK_LOADER_H_
#define REVERB_CHECKPOINT_CHUNK_LOADER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "base/mutex.h"
#include "checkpoint/format.h"
#include "checkpoint/segment_reader.h"
#include "core/chunk_store.h"
#include "reverb/status.h"
#include "tensor/chunk.h"

namespace reverb::internal {

class ChunkLoader {
 public:
  // `wanted`: by segment, then by ordinal; empty for a segment of which no chunk is wanted. Calls `progress`
  // with the bytes that are done, on either thread. The pointers must outlive the loader.
  static Result<std::unique_ptr<ChunkLoader>> Start(FileSystem* fs, const std::string& checkpoint_path,
                                                    const std::vector<SavedSegment>& segments,
                                                    std::vector<std::vector<bool>> wanted, ChunkStore* store,
                                                    std::function<void(uint64_t)> progress);
  // Stops loading after the helper's current range.
  ~ChunkLoader();
  ChunkLoader(const ChunkLoader&) = delete;
  ChunkLoader& operator=(const ChunkLoader&) = delete;

  // Returns a wanted chunk; loads it or waits for it if necessary. Valid as long as this object.
  // REQUIRES: the segment has such a chunk.
  Result<const ChunkRef*> Get(size_t segment, uint32_t ordinal) {
    if (segment != at_hand_segment_ || ordinal - at_hand_first_ >= at_hand_count_) [[unlikely]] {
      REVERB_RETURN_IF_ERROR(Fetch(segment, ordinal));
    }
    const std::vector<ChunkRef>& chunks = chunks_[segment];
    // Callers mostly request its neighbours next. (The other thread may be writing beyond the range.)
    constexpr uint32_t kAhead = 16;
    if (ordinal - at_hand_first_ + kAhead < at_hand_count_) {
      __builtin_prefetch(chunks[ordinal + kAhead].get());
    }
    return &chunks[ordinal];
  }

  // Waits for the helper. The chunks may be read afterwards; those not loaded are null.
  Status Finish();
  const std::vector<ChunkRef>& chunks(size_t segment) const { return chunks_[segment]; }

 private:
  enum class State : uint8_t { kWaiting, kTaken, kLoaded };
  struct Job {
    size_t segment = 0;
    ChunkRange range;
    State state = State::kWaiting;
  };

  ChunkLoader(std::string checkpoint_path, std::vector<std::vector<bool>> wanted, ChunkStore* store,
              std::function<void(uint64_t)> progress);
  Status Fetch(size_t segment, uint32_t ordinal) EXCLUDES(mu_);
  // Loads the next range that is not taken. Returns false when there is none, or loading has failed.
  bool LoadNext() EXCLUDES(mu_);
  void Load(size_t job) EXCLUDES(mu_);
  void StopHelper() EXCLUDES(mu_);

  const std::string checkpoint_path_;
  const std::vector<std::vector<bool>> wanted_;
  ChunkStore* const store_;
  const std::function<void(uint64_t)> progress_;
  std::vector<std::unique_ptr<SegmentChunks>> files_;  // by segment; null where nothing is wanted
  std::vector<std::vector<ChunkRef>> chunks_;          // a range is written by the thread that took it
  std::vector<size_t> first_job_;                      // by segment
  std::thread helper_;

  // The range that the caller was in last.
  size_t at_hand_segment_ = SIZE_MAX;
  uint32_t at_hand_first_ = 0;
  uint32_t at_hand_count_ = 0;

  Mutex mu_;
  CondVar changed_;
  std::vector<Job> jobs_ GUARDED_BY(mu_);
  size_t next_job_ GUARDED_BY(mu_) = 0;  // those before are taken
  bool stopped_ GUARDED_BY(mu_) = false;
  Status status_ GUARDED_BY(mu_);  // the first error
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_CHUNK_LOADER_H_
