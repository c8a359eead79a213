// segment_reader.h — reads segment files.
//
// Verifies the checksums of all bytes that it returns. Errors name the file and are DATA_LOSS: for a missing
// file, with the remedy; otherwise because it is damaged.
#ifndef REVERB_CHECKPOINT_SEGMENT_READER_H_
#define REVERB_CHECKPOINT_SEGMENT_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/file_system.h"
#include "checkpoint/format.h"
#include "core/chunk_store.h"
#include "reverb/status.h"
#include "tensor/chunk.h"

namespace reverb::internal {

// Opens the file of a segment and checks its size and header.
Result<std::unique_ptr<RandomAccessFile>> OpenSegment(FileSystem* fs, const std::string& checkpoint_path,
                                                      const SavedSegment& segment);

// Reads records of page files. Threads: one at a time.
class RecordReader {
 public:
  RecordReader(FileSystem* fs, std::string checkpoint_path, const std::vector<SavedSegment>* segments)
      : fs_(fs), checkpoint_path_(std::move(checkpoint_path)), segments_(segments) {}

  // The result is valid until the next call.
  Result<std::string_view> Read(const RecordPlace& place);

 private:
  FileSystem* const fs_;
  const std::string checkpoint_path_;
  const std::vector<SavedSegment>* const segments_;
  uint64_t open_number_ = 0;
  std::unique_ptr<RandomAccessFile> open_;
  std::string path_;
  std::vector<uint8_t> buffer_;
};

// Consecutive chunks of a segment.
struct ChunkRange {
  uint32_t first = 0;
  uint32_t end = 0;
  uint64_t begin_offset = 0;  // in the file
  uint64_t end_offset = 0;
};

// Loads the chunks of a segment, range by range. Threads: ranges may be loaded concurrently.
class SegmentChunks {
 public:
  // Reads and verifies the index.
  static Result<std::unique_ptr<SegmentChunks>> Open(FileSystem* fs, const std::string& checkpoint_path,
                                                     const SavedSegment& segment);
  // All chunks, in ranges of some megabytes.
  const std::vector<ChunkRange>& ranges() const { return ranges_; }

  // Creates a chunk in `store` for every record of the range for which `wanted` is set, and leaves the other
  // elements of `chunks` unchanged; both are indexed by ordinals of the whole segment. Calls `progress` with
  // the number of bytes processed since the last call.
  Status Load(const ChunkRange& range, const std::vector<bool>& wanted, ChunkStore& store,
              std::span<ChunkRef> chunks, const std::function<void(uint64_t)>& progress) const;

 private:
  std::string path_;
  std::unique_ptr<RandomAccessFile> file_;
  std::vector<ChunkRange> ranges_;
};

// Reads single chunks of a mapped segment. Threads: one at a time.
class MappedChunks {
 public:
  static Result<std::unique_ptr<MappedChunks>> Open(FileSystem* fs, const std::string& checkpoint_path,
                                                    const SavedSegment& segment);
  // Returns a chunk over the mapped bytes, which it keeps mapped.
  Result<ChunkRef> Get(uint32_t ordinal) const;
  // Returns the bytes of a chunk's record; empty when there is no such chunk.
  std::span<const uint8_t> Record(uint32_t ordinal) const;
  // All mapped bytes.
  std::span<const uint8_t> bytes() const { return file_.span(); }

 private:
  std::string path_;
  Buffer file_;
  std::vector<uint64_t> offsets_;  // one more than the number of chunks
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_SEGMENT_READER_H_
