// chunk_loader.h — loads the chunks of a checkpoint on a second thread, ahead of the items that need them.
//
// Segments are cut into ranges. A helper thread takes one after the other; so does the caller when it asks
// for a chunk that is not there yet. So both are busy however the work divides.
//
// Threads: belongs to one, which may be another than the one that made it.
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
  // `wanted`: by segment, then by ordinal; a segment of which nothing is wanted has none. `progress` is told
  // of bytes that are done with, on either thread. What the pointers refer to must outlive the loader.
  static Result<std::unique_ptr<ChunkLoader>> Start(FileSystem* fs, const std::string& checkpoint_path,
                                                    const std::vector<SavedSegment>& segments,
                                                    std::vector<std::vector<bool>> wanted, ChunkStore* store,
                                                    std::function<void(uint64_t)> progress);
  // Gives up what is not loaded yet, once the helper is done with the range at hand.
  ~ChunkLoader();
  ChunkLoader(const ChunkLoader&) = delete;
  ChunkLoader& operator=(const ChunkLoader&) = delete;

  // A chunk that is wanted: loads it or waits for it if need be. Valid as long as this object.
  // REQUIRES: it is one of its segment.
  Result<const ChunkRef*> Get(size_t segment, uint32_t ordinal) {
    if (segment != at_hand_segment_ || ordinal - at_hand_first_ >= at_hand_count_) [[unlikely]] {
      REVERB_RETURN_IF_ERROR(Fetch(segment, ordinal));
    }
    const std::vector<ChunkRef>& chunks = chunks_[segment];
    // Those who ask mostly ask for its neighbours next. (What lies beyond the range may just be written.)
    constexpr uint32_t kAhead = 16;
    if (ordinal - at_hand_first_ + kAhead < at_hand_count_) {
      __builtin_prefetch(chunks[ordinal + kAhead].get());
    }
    return &chunks[ordinal];
  }

  // Waits for the helper. From here on the chunks can be looked at, null where nothing was loaded.
  Status Finish();
  const std::vector<ChunkRef>& chunks(size_t segment) const { return chunks_[segment]; }

 private:
  enum class State : uint8_t { kWaiting, kTaken, kLoaded };
  struct Job {
    size_t segment = 0;
    ChunkRange range;
    State state = State::kWaiting;
  };

  ChunkLoader(std::vector<std::vector<bool>> wanted, ChunkStore* store,
              std::function<void(uint64_t)> progress);
  Status Fetch(size_t segment, uint32_t ordinal) EXCLUDES(mu_);
  // Loads the next range that nobody has taken; false when there is none, or no use in it.
  bool LoadNext() EXCLUDES(mu_);
  void Load(size_t job) EXCLUDES(mu_);
  void StopHelper() EXCLUDES(mu_);

  const std::vector<std::vector<bool>> wanted_;
  ChunkStore* const store_;
  const std::function<void(uint64_t)> progress_;
  std::vector<std::unique_ptr<SegmentChunks>> files_;  // by segment; null where nothing is wanted
  std::vector<std::vector<ChunkRef>> chunks_;          // a range is written by whoever took it
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
