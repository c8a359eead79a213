#include "checkpoint/segment_writer.h"

#include <utility>

#include "tensor/byte_io.h"
#include "tensor/checksum.h"

namespace reverb::internal {
namespace {

// Small appends are combined into writes of this size; larger ones are written directly.
constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kLargeWriteBytes = size_t{128} << 10;

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

Result<std::unique_ptr<SegmentWriter>> SegmentWriter::Create(FileSystem* fs, const std::string& folder,
                                                             uint64_t number, SegmentKind kind) {
  std::string path = JoinPath(folder, SegmentFileName(number, kind));
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                          fs->NewWritableFile(path, FileSystem::OpenMode::kTruncate));
  std::unique_ptr<SegmentWriter> writer(new SegmentWriter(std::move(path), number, kind, std::move(file)));
  REVERB_RETURN_IF_ERROR(writer->Append(EncodeSegmentHeader(number, kind)));
  return writer;
}

SegmentWriter::SegmentWriter(std::string path, uint64_t number, SegmentKind kind,
                             std::unique_ptr<WritableFile> file)
    : path_(std::move(path)), number_(number), kind_(kind), file_(std::move(file)) {
  buffer_.reserve(kBufferBytes);
}

Status SegmentWriter::Append(std::string_view bytes) {
  bytes_ += bytes.size();
  const bool is_large = bytes.size() >= kLargeWriteBytes;
  if (is_large || buffer_.size() + bytes.size() > kBufferBytes) REVERB_RETURN_IF_ERROR(Flush());
  if (is_large) return file_->Append(bytes);
  buffer_.append(bytes);
  return Status::Ok();
}

Status SegmentWriter::Flush() {
  if (buffer_.empty()) return Status::Ok();
  REVERB_RETURN_IF_ERROR(file_->Append(buffer_));
  buffer_.clear();
  return Status::Ok();
}

Status SegmentWriter::AddChunk(const Chunk& chunk) {
  const std::span<const uint8_t> payload = chunk.payload();
  header_.clear();
  AppendChunkRecordHead(chunk.header(), static_cast<uint32_t>(payload.size()), &header_);
  REVERB_RETURN_IF_ERROR(Append(header_));
  REVERB_RETURN_IF_ERROR(
      Append(std::string_view(reinterpret_cast<const char*>(payload.data()), payload.size())));
  sizes_.push_back(header_.size() + payload.size());
  return Status::Ok();
}

Result<RecordPlace> SegmentWriter::AddRecord(std::string_view bytes) {
  const uint64_t offset = bytes_;
  std::string head;
  PutFixed64(&head, Checksum(AsBytes(bytes)));
  REVERB_RETURN_IF_ERROR(Append(head));
  REVERB_RETURN_IF_ERROR(Append(bytes));
  return RecordPlace{.segment = number_, .offset = offset, .size = bytes_ - offset};
}

Status SegmentWriter::Finish() {
  if (kind_ == SegmentKind::kChunks) {
    REVERB_RETURN_IF_ERROR(Append(EncodeSegmentEnd(sizes_, bytes_)));
  }
  REVERB_RETURN_IF_ERROR(Flush());
  buffer_ = {};
  return Status::Ok();
}

}  // namespace reverb::internal
