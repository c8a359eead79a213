// segment_reader.h — reads segment files.
//
// Every byte that is handed out has been checked against a checksum. Errors name the file: NOT_FOUND with
// what to do when it is not there, DATA_LOSS when it is damaged.
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

// Opens the file of a segment and checks size and header.
Result<std::unique_ptr<RandomAccessFile>> OpenSegment(FileSystem* fs, const std::string& checkpoint_path,
                                                      const SavedSegment& segment);

// Records of page files. Threads: one at a time.
class RecordReader {
 public:
  RecordReader(FileSystem* fs, std::string checkpoint_path, const std::vector<SavedSegment>* segments)
      : fs_(fs), checkpoint_path_(std::move(checkpoint_path)), segments_(segments) {}

  // Valid until the next call.
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

// Makes a chunk in `store` of every record for which `wanted` is set, and leaves null for the others.
// `progress` is told how many bytes of the file are done with, more each time.
Result<std::vector<ChunkRef>> LoadChunks(FileSystem* fs, const std::string& checkpoint_path,
                                         const SavedSegment& segment, const std::vector<bool>& wanted,
                                         ChunkStore& store, const std::function<void(uint64_t)>& progress);

// Single chunks of a mapped segment. Threads: one at a time.
class MappedChunks {
 public:
  static Result<std::unique_ptr<MappedChunks>> Open(FileSystem* fs, const std::string& checkpoint_path,
                                                    const SavedSegment& segment);
  // A chunk over the mapped bytes, which it keeps mapped.
  Result<ChunkRef> Get(uint32_t ordinal) const;

 private:
  std::string path_;
  Buffer file_;
  std::vector<uint64_t> offsets_;  // one more than there are chunks
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_SEGMENT_READER_H_
