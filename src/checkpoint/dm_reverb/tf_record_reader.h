// tf_record_reader.h — reads the records of a TFRecord file in order.
//
// The file is a sequence of frames: length:u64 crc:u32 (of the length) bytes crc:u32 (of the bytes), with
// masked CRC-32C checksums, either uncompressed or, as dm-reverb writes it, in one zlib stream. The first
// frame shows which. Reads forward once; needs the memory of the largest record.
//
// Returns DATA_LOSS, with file, record and offset, for anything that is not such a file: a truncated stream,
// a wrong checksum, bytes after the end. Threads: one at a time.
#ifndef REVERB_CHECKPOINT_DM_REVERB_TF_RECORD_READER_H_
#define REVERB_CHECKPOINT_DM_REVERB_TF_RECORD_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "reverb/status.h"

namespace reverb::internal {

class TfRecordReader {
 public:
  // Returns NOT_FOUND for a file that does not exist.
  static Result<std::unique_ptr<TfRecordReader>> Open(FileSystem* files, const std::string& path);
  ~TfRecordReader();
  TfRecordReader(const TfRecordReader&) = delete;
  TfRecordReader& operator=(const TfRecordReader&) = delete;

  // Returns the next record, or nothing at the end of the file. The bytes are valid until the next call.
  // After an error every call returns that error.
  Result<std::optional<std::string_view>> Next();

  // Returns the number of bytes of the file read so far.
  uint64_t bytes_read() const { return file_offset_; }
  // Returns `"<path>", record 3`, the last record that Next() returned, for messages.
  std::string Where() const;

 private:
  struct Inflater;

  TfRecordReader(std::string path, std::unique_ptr<RandomAccessFile> file);

  Status Damaged(const std::string& what) const;
  // Reads the file's next bytes into input_.
  Status Refill();
  // Fills `out` with up to `size` bytes of the frames, fewer only at their end.
  Result<size_t> Read(uint8_t* out, size_t size);
  Result<std::optional<std::string_view>> ReadRecord();

  const std::string path_;
  const std::unique_ptr<RandomAccessFile> file_;
  std::unique_ptr<Inflater> inflater_;  // null: the frames are not compressed

  uint64_t file_offset_ = 0;
  std::vector<uint8_t> input_;
  size_t input_used_ = 0;
  std::vector<uint8_t> record_;
  uint64_t records_ = 0;
  Status failure_;
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_DM_REVERB_TF_RECORD_READER_H_
