#include "checkpoint/dm_reverb/tf_record_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "checkpoint/dm_reverb/crc32c.h"

namespace reverb::internal {
namespace {

constexpr size_t kInputBytes = size_t{256} << 10;
constexpr size_t kHeadBytes = 12;  // length and its checksum
constexpr size_t kTailBytes = 4;
// dm-reverb does not write larger ones.
constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 31;
// Memory for a record grows in steps of this size, so that a wrong length allocates no more than the file
// has.
constexpr size_t kGrowBytes = size_t{4} << 20;

template <typename T>
T Load(const uint8_t* bytes) {
  T value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool IsFrameHead(std::span<const uint8_t> head) {
  return MaskCrc32c(Crc32c(head.first(8))) == Load<uint32_t>(head.data() + 8);
}

}  // namespace

struct TfRecordReader::Inflater {
  z_stream stream{};
  bool is_open = false;
  bool ended = false;

  ~Inflater() {
    if (is_open) inflateEnd(&stream);
  }
};

TfRecordReader::TfRecordReader(std::string path, std::unique_ptr<RandomAccessFile> file)
    : path_(std::move(path)), file_(std::move(file)) {}

TfRecordReader::~TfRecordReader() = default;

Result<std::unique_ptr<TfRecordReader>> TfRecordReader::Open(FileSystem* files, const std::string& path) {
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, files->NewRandomAccessFile(path));
  std::unique_ptr<TfRecordReader> reader(new TfRecordReader(path, std::move(file)));
  REVERB_RETURN_IF_ERROR(reader->Refill());
  const std::span<const uint8_t> start(reader->input_);
  if (!start.empty() && !(start.size() >= kHeadBytes && IsFrameHead(start.first(kHeadBytes)))) {
    reader->inflater_ = std::make_unique<Inflater>();
    if (inflateInit(&reader->inflater_->stream) != Z_OK) {
      return Status::ResourceExhausted("no memory to decompress \"" + path + '"');
    }
    reader->inflater_->is_open = true;
  }
  return reader;
}

std::string TfRecordReader::Where() const {
  return '"' + path_ + "\", record " + std::to_string(records_ == 0 ? 0 : records_ - 1);
}

Status TfRecordReader::Damaged(const std::string& what) const {
  return Status(StatusCode::kDataLoss,
                '"' + path_ + "\", record " + std::to_string(records_) + " (before byte " +
                    std::to_string(file_offset_) + " of " + std::to_string(file_->size()) + "): " + what,
                Detail::kCorruptData);
}

Status TfRecordReader::Refill() {
  // Requests one byte more at its end, in case the file has grown.
  const uint64_t left = file_->size() - std::min(file_offset_, file_->size());
  input_.resize(std::clamp<uint64_t>(left, 1, kInputBytes));
  input_used_ = 0;
  Result<size_t> got = file_->Read(file_offset_, input_);
  input_.resize(got.ok() ? *got : 0);
  REVERB_RETURN_IF_ERROR(got.status());
  file_offset_ += input_.size();
  return Status::Ok();
}

Result<size_t> TfRecordReader::Read(uint8_t* out, size_t size) {
  size_t done = 0;
  while (done < size && !(inflater_ && inflater_->ended)) {
    if (input_used_ == input_.size()) {
      REVERB_RETURN_IF_ERROR(Refill());
      if (input_.empty()) {
        if (inflater_) return Damaged("the compressed stream is truncated");
        break;
      }
    }
    const size_t available = input_.size() - input_used_;
    if (!inflater_) {
      const size_t taken = std::min(available, size - done);
      std::memcpy(out + done, input_.data() + input_used_, taken);
      input_used_ += taken;
      done += taken;
      continue;
    }
    z_stream& stream = inflater_->stream;
    stream.next_in = input_.data() + input_used_;
    stream.avail_in = static_cast<uInt>(available);
    stream.next_out = out + done;
    stream.avail_out = static_cast<uInt>(std::min<size_t>(size - done, kGrowBytes));
    const size_t room = stream.avail_out;
    const int result = inflate(&stream, Z_NO_FLUSH);
    input_used_ = input_.size() - stream.avail_in;
    done += room - stream.avail_out;
    if (result == Z_STREAM_END) {
      inflater_->ended = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      if (result == Z_MEM_ERROR) return Status::ResourceExhausted("no memory to decompress \"" + path_ + '"');
      return Damaged(records_ == 0 && file_offset_ <= kInputBytes && stream.total_out == 0
                         ? "neither TFRecord frames nor a zlib stream of them"
                         : std::string("the compressed stream is damaged: ") +
                               (stream.msg != nullptr ? stream.msg : "it needs a dictionary"));
    }
  }
  return done;
}

Result<std::optional<std::string_view>> TfRecordReader::Next() {
  REVERB_RETURN_IF_ERROR(failure_);
  Result<std::optional<std::string_view>> record = ReadRecord();
  failure_ = record.status();
  return record;
}

Result<std::optional<std::string_view>> TfRecordReader::ReadRecord() {
  uint8_t head[kHeadBytes];
  REVERB_ASSIGN_OR_RETURN(const size_t head_size, Read(head, kHeadBytes));
  if (head_size == 0) {
    if (inflater_ && input_used_ == input_.size()) REVERB_RETURN_IF_ERROR(Refill());
    if (inflater_ && input_used_ < input_.size())
      return Damaged("bytes follow the end of the compressed stream");
    return std::optional<std::string_view>();
  }
  if (head_size < kHeadBytes) return Damaged("truncated within the length of a record");
  if (!IsFrameHead(head)) return Damaged("the length of a record has a wrong checksum");
  const auto length = Load<uint64_t>(head);
  if (length > kMaxRecordBytes) {
    return Damaged("a record of " + std::to_string(length) + " bytes, more than the " +
                   std::to_string(kMaxRecordBytes) + " that are supported");
  }
  record_.clear();
  while (record_.size() < length + kTailBytes) {
    const size_t before = record_.size();
    const size_t step = std::min<size_t>(length + kTailBytes - before, kGrowBytes);
    record_.resize(before + step);
    REVERB_ASSIGN_OR_RETURN(const size_t got, Read(record_.data() + before, step));
    if (got < step) return Damaged("truncated within a record of " + std::to_string(length) + " bytes");
  }
  const std::span<const uint8_t> payload(record_.data(), length);
  if (MaskCrc32c(Crc32c(payload)) != Load<uint32_t>(record_.data() + length)) {
    return Damaged("a record of " + std::to_string(length) + " bytes has a wrong checksum");
  }
  ++records_;
  return std::optional(std::string_view(reinterpret_cast<const char*>(payload.data()), payload.size()));
}

}  // namespace reverb::internal
