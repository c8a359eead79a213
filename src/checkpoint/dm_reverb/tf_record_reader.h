// tf_record_reader.h — the records of a TFRecord file, one after the other.
//
// The file is a run of frames: length:u64 crc:u32 (of the length) bytes crc:u32 (of the bytes), the
// checksums masked CRC-32C; either as it is or, the usual case here, all of it one zlib stream. Which
// of the two is seen from the first frame. Reads forward once; memory is that of the largest record.
//
// DATA_LOSS, naming file, record and place, for whatever is not such a file: a stream that is cut off,
// a checksum that does not fit, bytes behind the end. Threads: one at a time.
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
  // A file that does not exist is NOT_FOUND.
  static Result<std::unique_ptr<TfRecordReader>> Open(FileSystem* files, const std::string& path);
  ~TfRecordReader();
  TfRecordReader(const TfRecordReader&) = delete;
  TfRecordReader& operator=(const TfRecordReader&) = delete;

  // The next record, or nothing at the end of the file. The bytes are valid until the next call. After
  // an error every call returns it again.
  Result<std::optional<std::string_view>> Next();

  // Bytes of the file that were read so far.
  uint64_t bytes_read() const { return file_offset_; }
  // `"<path>", record 3`: the record that Next() gave last, for messages.
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
