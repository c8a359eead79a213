// segment_writer.h — writes one segment file: chunks followed by an index, or records.
//
// The file is not durable before Sync(). Threads: one at a time.
#ifndef REVERB_CHECKPOINT_SEGMENT_WRITER_H_
#define REVERB_CHECKPOINT_SEGMENT_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/format.h"
#include "reverb/status.h"
#include "tensor/chunk.h"

namespace reverb::internal {

class SegmentWriter {
 public:
  static Result<std::unique_ptr<SegmentWriter>> Create(FileSystem* fs, const std::string& folder,
                                                       uint64_t number, SegmentKind kind);

  uint64_t number() const { return number_; }
  SegmentKind kind() const { return kind_; }
  const std::string& path() const { return path_; }
  // Bytes written so far.
  uint64_t bytes() const { return bytes_; }
  uint32_t count() const { return static_cast<uint32_t>(sizes_.size()); }

  // Adds a chunk, whose ordinal is the value of count() before the call.
  Status AddChunk(const Chunk& chunk);
  Result<RecordPlace> AddRecord(std::string_view bytes);

  // Writes buffered bytes and, for a segment of chunks, the index.
  Status Finish();
  Status Sync() { return file_->Sync(); }
  Status Close() { return file_->Close(); }

 private:
  SegmentWriter(std::string path, uint64_t number, SegmentKind kind, std::unique_ptr<WritableFile> file);
  Status Append(std::string_view bytes);
  Status Flush();

  const std::string path_;
  const uint64_t number_;
  const SegmentKind kind_;
  const std::unique_ptr<WritableFile> file_;
  std::string buffer_;
  std::string header_;  // of the current chunk
  uint64_t bytes_ = 0;
  std::vector<uint64_t> sizes_;  // of the chunks' records
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_SEGMENT_WRITER_H_
