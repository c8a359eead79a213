#include "checkpoint/segment_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/huge_pages.h"
#include "tensor/byte_io.h"
#include "tensor/checksum.h"
#include "tensor/chunk_header.h"
#include "tensor/column.h"

namespace reverb::internal {
namespace {

// The size of buffered reads.
constexpr size_t kReadBytes = size_t{1} << 20;
// Payloads of at least this size are read directly to their destination; only the size of a header is then
// read ahead of them.
constexpr size_t kLargeReadBytes = size_t{16} << 10;
constexpr size_t kAheadOfLarge = 512;
// The unit of work for loading in parallel.
constexpr uint64_t kRangeBytes = uint64_t{16} << 20;
// Far larger than the header of any real chunk.
constexpr uint32_t kMaxHeaderBytes = uint32_t{64} << 20;

Status InFile(const std::string& path, const Status& status) {
  return status.Prefixed("\"" + path + "\" is damaged");
}

std::string_view AsText(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct RecordHead {
  uint64_t checksum = 0;
  uint32_t header_size = 0;
  uint32_t payload_size = 0;
};
RecordHead ReadHead(const uint8_t* bytes) {
  RecordHead head;
  std::memcpy(&head.checksum, bytes, 8);
  std::memcpy(&head.header_size, bytes + 8, 4);
  std::memcpy(&head.payload_size, bytes + 12, 4);
  return head;
}

// `record` contains the head and the header of a chunk. Reuses the memory of `header`.
Status CheckHeader(std::span<const uint8_t> record, const RecordHead& head, const DecodeLimits& limits,
                   const std::string& path, uint32_t ordinal, ChunkHeader* header) {
  if (Checksum(record.subspan(8)) != head.checksum) {
    return DamagedFile(path, "the header of chunk " + std::to_string(ordinal) + " has a wrong checksum");
  }
  Status status = DecodeChunkHeader(AsText(record.subspan(kChunkRecordHeadBytes)), limits, header);
  if (!status.ok()) return InFile(path, status);
  if (PayloadSize(*header) != head.payload_size) {
    return DamagedFile(path, "header and payload of chunk " + std::to_string(ordinal) + " differ in size");
  }
  return Status::Ok();
}

Status CheckPayload(const Chunk& chunk, const std::string& path, uint32_t ordinal) {
  const PackedChunkHeader header = chunk.header();
  for (uint32_t c = 0; c < header.num_columns(); ++c) {
    if (Status status = VerifyChecksums(header.column(c), chunk.column_payload(c)); !status.ok()) {
      return DamagedFile(path, "chunk " + std::to_string(ordinal) + ": " + std::string(status.message()));
    }
  }
  return Status::Ok();
}

// Reads a file sequentially: small pieces through a buffer, large ones directly to their destination.
class ForwardReader {
 public:
  // `piece` is the approximate size of the pieces.
  ForwardReader(const RandomAccessFile* file, const std::string* path, uint64_t begin, uint64_t end,
                uint64_t piece)
      : file_(file), path_(path), next_(begin), end_(end), buffer_(kReadBytes), ahead_(AheadOf(piece)) {}

  uint64_t position() const { return next_ - (filled_ - used_); }

  // Returns the next bytes without consuming them. REQUIRES: size <= kReadBytes.
  Result<std::span<const uint8_t>> Peek(size_t size) {
    if (filled_ - used_ < size) REVERB_RETURN_IF_ERROR(Fill(size));
    return std::span<const uint8_t>(buffer_).subspan(used_, size);
  }
  Status Take(std::span<uint8_t> out) {
    const size_t here = std::min(out.size(), filled_ - used_);
    if (here > 0) std::memcpy(out.data(), buffer_.data() + used_, here);
    used_ += here;
    out = out.subspan(here);
    ahead_ = AheadOf(here + out.size());
    if (out.empty()) return Status::Ok();
    if (out.size() >= kLargeReadBytes) return ReadExactly(out);
    REVERB_RETURN_IF_ERROR(Fill(out.size()));
    std::memcpy(out.data(), buffer_.data() + used_, out.size());
    used_ += out.size();
    return Status::Ok();
  }
  Status Skip(uint64_t size) {
    const uint64_t here = std::min<uint64_t>(size, filled_ - used_);
    used_ += here;
    if (size - here > end_ - next_) return TooShort();
    next_ += size - here;
    return Status::Ok();
  }

 private:
  static size_t AheadOf(uint64_t piece) { return piece >= kLargeReadBytes ? kAheadOfLarge : kReadBytes; }
  Status TooShort() const { return DamagedFile(*path_, "it ends in the middle of a chunk"); }
  Status ReadExactly(std::span<uint8_t> out) {
    if (out.size() > end_ - next_) return TooShort();
    REVERB_ASSIGN_OR_RETURN(const size_t read, file_->Read(next_, out));
    if (read != out.size()) return TooShort();
    next_ += read;
    return Status::Ok();
  }
  Status Fill(size_t needed) {
    std::memmove(buffer_.data(), buffer_.data() + used_, filled_ - used_);
    filled_ -= used_;
    used_ = 0;
    const size_t more = std::min<uint64_t>(std::max(ahead_, needed) - filled_, end_ - next_);
    if (filled_ + more < needed) return TooShort();
    REVERB_RETURN_IF_ERROR(ReadExactly(std::span(buffer_).subspan(filled_, more)));
    filled_ += more;
    return Status::Ok();
  }

  const RandomAccessFile* const file_;
  const std::string* const path_;
  uint64_t next_;  // offset in the file of the next read
  const uint64_t end_;
  std::vector<uint8_t> buffer_;
  size_t ahead_;  // minimum that the buffer should contain
  size_t used_ = 0;
  size_t filled_ = 0;
};

struct Trailer {
  uint64_t index_offset = 0;
  uint64_t count = 0;
  uint64_t checksum = 0;
};
Result<Trailer> DecodeTrailer(std::span<const uint8_t> bytes, const SavedSegment& segment,
                              const std::string& path) {
  Trailer trailer;
  uint64_t checksum = 0;
  std::memcpy(&trailer.index_offset, bytes.data(), 8);
  std::memcpy(&trailer.count, bytes.data() + 8, 8);
  std::memcpy(&trailer.checksum, bytes.data() + 16, 8);
  std::memcpy(&checksum, bytes.data() + 24, 8);
  const uint64_t index_end = segment.file_bytes - kSegmentTrailerBytes;
  if (Checksum(bytes.first(24)) != checksum || trailer.count != segment.count ||
      trailer.index_offset < kSegmentHeaderBytes || trailer.index_offset > index_end) {
    return DamagedFile(path, "its trailer is invalid");
  }
  return trailer;
}

// Calls `visit` with the offset of each chunk's end.
template <typename Visit>
Status ReadIndex(std::span<const uint8_t> index, const Trailer& trailer, const std::string& path,
                 const Visit& visit) {
  if (Checksum(index) != trailer.checksum) return DamagedFile(path, "the checksum of its index is wrong");
  ByteReader reader(AsText(index));
  uint64_t offset = kSegmentHeaderBytes;
  uint64_t count = 0;
  uint64_t size = 0;
  while (reader.remaining() > 0 && count < trailer.count && reader.ReadVarint(&size) && size > 0 &&
         size <= trailer.index_offset - offset) {
    ++count;
    visit(offset += size);
  }
  if (reader.remaining() > 0 || count != trailer.count || offset != trailer.index_offset) {
    return DamagedFile(path, "its index is inconsistent");
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<RandomAccessFile>> OpenSegment(FileSystem* fs, const std::string& checkpoint_path,
                                                      const SavedSegment& segment) {
  const std::string path = SegmentPath(checkpoint_path, segment.number, segment.kind);
  Result<std::unique_ptr<RandomAccessFile>> file = fs->NewRandomAccessFile(path);
  if (!file.ok()) {
    if (file.status().code() != StatusCode::kNotFound) return file;
    return Status::DataLoss("checkpoint \"" + checkpoint_path + "\" is not complete: \"" + path +
                            "\" is missing; a checkpoint needs the folder \"segments\" beside it, so copy "
                            "the whole folder of checkpoints")
        .WithDetail(Detail::kCorruptData);
  }
  if ((*file)->size() != segment.file_bytes) {
    return DamagedFile(path, "it has " + std::to_string((*file)->size()) + " bytes instead of " +
                                 std::to_string(segment.file_bytes));
  }
  uint8_t header[kSegmentHeaderBytes];
  REVERB_ASSIGN_OR_RETURN(const size_t read, (*file)->Read(0, header));
  REVERB_RETURN_IF_ERROR(
      CheckSegmentHeader(AsText(std::span(header).first(read)), segment.number, segment.kind, path));
  const size_t min_bytes =
      kSegmentHeaderBytes + (segment.kind == SegmentKind::kChunks ? kSegmentTrailerBytes : 0);
  if (segment.file_bytes < min_bytes) return DamagedFile(path, "it is too short");
  return file;
}

Result<std::string_view> RecordReader::Read(const RecordPlace& place) {
  if (open_ == nullptr || open_number_ != place.segment) {
    const auto segment = std::ranges::find_if(*segments_, [&](const SavedSegment& candidate) {
      return candidate.number == place.segment && candidate.kind == SegmentKind::kPages;
    });
    if (segment == segments_->end()) {
      return DamagedFile(
          JoinPath(checkpoint_path_, kManifestName),
          "it refers to segment " + std::to_string(place.segment) + ", which it does not list");
    }
    REVERB_ASSIGN_OR_RETURN(open_, OpenSegment(fs_, checkpoint_path_, *segment));
    open_number_ = place.segment;
    path_ = SegmentPath(checkpoint_path_, place.segment, SegmentKind::kPages);
  }
  if (place.size < kPageRecordHeadBytes || place.offset > open_->size() ||
      place.size > open_->size() - place.offset) {
    return DamagedFile(path_, "a record is beyond its end");
  }
  buffer_.resize(place.size);
  REVERB_ASSIGN_OR_RETURN(const size_t read, open_->Read(place.offset, buffer_));
  uint64_t checksum = 0;
  std::memcpy(&checksum, buffer_.data(), sizeof checksum);
  const std::span<const uint8_t> bytes = std::span(buffer_).subspan(kPageRecordHeadBytes);
  if (read != place.size || Checksum(bytes) != checksum) {
    return DamagedFile(path_, "the record at " + std::to_string(place.offset) + " has a wrong checksum");
  }
  return AsText(bytes);
}

Result<std::unique_ptr<SegmentChunks>> SegmentChunks::Open(FileSystem* fs, const std::string& checkpoint_path,
                                                           const SavedSegment& segment) {
  auto chunks = std::make_unique<SegmentChunks>();
  chunks->path_ = SegmentPath(checkpoint_path, segment.number, segment.kind);
  const std::string& path = chunks->path_;
  REVERB_ASSIGN_OR_RETURN(chunks->file_, OpenSegment(fs, checkpoint_path, segment));
  const RandomAccessFile& file = *chunks->file_;
  uint8_t end[kSegmentTrailerBytes];
  REVERB_ASSIGN_OR_RETURN(const size_t read, file.Read(segment.file_bytes - kSegmentTrailerBytes, end));
  if (read != kSegmentTrailerBytes) return DamagedFile(path, "it is too short");
  REVERB_ASSIGN_OR_RETURN(const Trailer trailer, DecodeTrailer(end, segment, path));
  std::vector<uint8_t> index(segment.file_bytes - kSegmentTrailerBytes - trailer.index_offset);
  REVERB_ASSIGN_OR_RETURN(const size_t index_read, file.Read(trailer.index_offset, index));
  if (index_read != index.size()) return DamagedFile(path, "it is too short");
  ChunkRange range{.begin_offset = kSegmentHeaderBytes, .end_offset = kSegmentHeaderBytes};
  REVERB_RETURN_IF_ERROR(ReadIndex(index, trailer, path, [&](uint64_t offset) {
    ++range.end;
    range.end_offset = offset;
    if (offset - range.begin_offset < kRangeBytes) return;
    chunks->ranges_.push_back(range);
    range = {.first = range.end, .end = range.end, .begin_offset = offset, .end_offset = offset};
  }));
  if (range.end > range.first) chunks->ranges_.push_back(range);
  return chunks;
}

Status SegmentChunks::Load(const ChunkRange& range, const std::vector<bool>& wanted, ChunkStore& store,
                           std::span<ChunkRef> chunks, const std::function<void(uint64_t)>& progress) const {
  ForwardReader reader(file_.get(), &path_, range.begin_offset, range.end_offset,
                       (range.end_offset - range.begin_offset) / (range.end - range.first));
  HugePageAdvisor huge_pages;
  ChunkHeader header;
  uint64_t reported = range.begin_offset;
  for (uint32_t ordinal = range.first; ordinal < range.end; ++ordinal) {
    REVERB_ASSIGN_OR_RETURN(std::span<const uint8_t> bytes, reader.Peek(kChunkRecordHeadBytes));
    const RecordHead head = ReadHead(bytes.data());
    const uint64_t header_end = uint64_t{kChunkRecordHeadBytes} + head.header_size;
    if (!wanted[ordinal]) {
      REVERB_RETURN_IF_ERROR(reader.Skip(header_end + head.payload_size));
      continue;
    }
    std::vector<uint8_t> large_header;
    if (header_end > kReadBytes) {
      if (head.header_size > kMaxHeaderBytes) return DamagedFile(path_, "a chunk's header is too large");
      large_header.resize(header_end);
      REVERB_RETURN_IF_ERROR(reader.Take(large_header));
      bytes = large_header;
    } else {
      REVERB_ASSIGN_OR_RETURN(bytes, reader.Peek(header_end));
    }
    REVERB_RETURN_IF_ERROR(CheckHeader(bytes, head, store.options().limits, path_, ordinal, &header));
    if (large_header.empty()) REVERB_RETURN_IF_ERROR(reader.Skip(header_end));
    uint8_t* payload = nullptr;
    REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, store.AddUninitialized(header, &payload));
    huge_pages.OnAllocated(payload, head.payload_size);
    REVERB_RETURN_IF_ERROR(reader.Take({payload, head.payload_size}));
    REVERB_RETURN_IF_ERROR(CheckPayload(*chunk, path_, ordinal));
    chunks[ordinal] = std::move(chunk);
    if (reader.position() - reported >= kReadBytes) {
      progress(reader.position() - reported);
      reported = reader.position();
    }
  }
  if (reader.position() != range.end_offset) return DamagedFile(path_, "its chunks do not match its index");
  if (range.end_offset > reported) progress(range.end_offset - reported);
  return Status::Ok();
}

Result<std::unique_ptr<MappedChunks>> MappedChunks::Open(FileSystem* fs, const std::string& checkpoint_path,
                                                         const SavedSegment& segment) {
  auto chunks = std::make_unique<MappedChunks>();
  chunks->path_ = SegmentPath(checkpoint_path, segment.number, segment.kind);
  // Returns the error for a missing file.
  REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                          OpenSegment(fs, checkpoint_path, segment));
  REVERB_ASSIGN_OR_RETURN(chunks->file_, fs->MapFile(chunks->path_));
  const std::span<const uint8_t> bytes = chunks->file_.span();
  if (bytes.size() != segment.file_bytes) return DamagedFile(chunks->path_, "it changed while it was read");
  REVERB_ASSIGN_OR_RETURN(const Trailer trailer,
                          DecodeTrailer(bytes.last(kSegmentTrailerBytes), segment, chunks->path_));
  const std::span<const uint8_t> index =
      bytes.subspan(trailer.index_offset, bytes.size() - kSegmentTrailerBytes - trailer.index_offset);
  chunks->offsets_.push_back(kSegmentHeaderBytes);
  REVERB_RETURN_IF_ERROR(
      ReadIndex(index, trailer, chunks->path_, [&](uint64_t offset) { chunks->offsets_.push_back(offset); }));
  return chunks;
}

std::span<const uint8_t> MappedChunks::Record(uint32_t ordinal) const {
  if (ordinal >= offsets_.size() - 1) return {};
  return file_.span().subspan(offsets_[ordinal], offsets_[ordinal + 1] - offsets_[ordinal]);
}

Result<ChunkRef> MappedChunks::Get(uint32_t ordinal) const {
  if (ordinal >= offsets_.size() - 1) {
    return DamagedFile(path_, "it has no chunk " + std::to_string(ordinal));
  }
  const uint64_t offset = offsets_[ordinal];
  const uint64_t size = offsets_[ordinal + 1] - offset;
  const std::span<const uint8_t> record = file_.span().subspan(offset, size);
  if (size < kChunkRecordHeadBytes) return DamagedFile(path_, "a chunk is too short");
  const RecordHead head = ReadHead(record.data());
  if (uint64_t{kChunkRecordHeadBytes} + head.header_size + head.payload_size != size) {
    return DamagedFile(path_,
                       "chunk " + std::to_string(ordinal) + " does not have the size that its record states");
  }
  const size_t header_end = kChunkRecordHeadBytes + head.header_size;
  const DecodeLimits limits{.max_chunk_raw_bytes = UINT32_MAX};
  ChunkHeader header;
  REVERB_RETURN_IF_ERROR(CheckHeader(record.first(header_end), head, limits, path_, ordinal, &header));
  REVERB_ASSIGN_OR_RETURN(
      ChunkRef chunk,
      Chunk::External(NextChunkId(), header, file_.Slice(offset + header_end, head.payload_size), limits));
  REVERB_RETURN_IF_ERROR(CheckPayload(*chunk, path_, ordinal));
  return chunk;
}

}  // namespace reverb::internal
