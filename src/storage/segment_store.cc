#include "storage/segment_store.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "storage/block_buffer.h"
#include "storage/segment_format.h"

namespace reverb::internal {
namespace {

constexpr std::string_view kSuffix = ".payloads";
constexpr uint64_t kUsualSegmentBytes = uint64_t{256} << 20;
constexpr uint64_t kMinSegments = 32;
// Each segment takes a descriptor, of which a process often has 1024.
constexpr uint64_t kMaxSegments = 256;
constexpr std::chrono::seconds kFolderLockTimeout(2);

std::string PayloadsName(uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(number));
  return std::string(text) + std::string(kSuffix);
}

bool IsSegmentName(std::string_view name) {
  return name.size() == 16 + kSuffix.size() && name.ends_with(kSuffix) &&
         name.substr(0, 16).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + BlockFile::kBlockBytes - 1) / BlockFile::kBlockBytes * BlockFile::kBlockBytes;
}

}  // namespace

// Numbers differ from those of earlier processes: a checkpoint may have segments of these.
SegmentStore::SegmentStore(FileSystem* fs, const Options& options)
    : fs_(fs),
      options_(options),
      next_number_(kTierSegmentBit | (uint64_t{std::random_device()() >> 2} << 32)) {}

uint64_t SegmentStore::DefaultSegmentBytes(uint64_t disk_limit) {
  const uint64_t usual = std::min(kUsualSegmentBytes, disk_limit / kMinSegments);
  return std::max(RoundUp(disk_limit / kMaxSegments),
                  std::max<uint64_t>(usual / BlockFile::kBlockBytes, 1) * BlockFile::kBlockBytes);
}

Result<std::unique_ptr<SegmentStore>> SegmentStore::Open(FileSystem* fs, const Options& options) {
  std::unique_ptr<SegmentStore> store(new SegmentStore(fs, options));
  REVERB_RETURN_IF_ERROR(fs->CreateDir(options.path, FileSystem::Parents::kCreateMissing));
  Result<std::unique_ptr<FileLock>> lock = fs->LockFile(options.path + "/LOCK", kFolderLockTimeout);
  if (!lock.ok() && lock.status().code() == StatusCode::kDeadlineExceeded) {
    return Status::FailedPrecondition("storage path \"" + options.path +
                                      "\" is in use: " + std::string(lock.status().message()) +
                                      "; give each server a folder of its own");
  }
  REVERB_RETURN_IF_ERROR(lock.status());
  store->lock_ = *std::move(lock);
  REVERB_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs->ListDir(options.path));
  size_t removed = 0;
  for (const std::string& name : names) {
    if (!IsSegmentName(name)) continue;
    REVERB_RETURN_IF_ERROR(fs->RemoveFile(options.path + "/" + name));
    ++removed;
  }
  if (removed > 0) {
    Log(LogLevel::kInfo, "storage: removed " + std::to_string(removed) + " files from \"" + options.path +
                             "\" that an earlier process left behind");
  }
  Options& resolved = store->options_;
  if (resolved.disk_limit == 0) {
    REVERB_ASSIGN_OR_RETURN(const uint64_t free, fs->GetFreeSpace(options.path));
    resolved.disk_limit = free / 10 * 8;
  }
  if (resolved.segment_bytes == 0) resolved.segment_bytes = DefaultSegmentBytes(resolved.disk_limit);
  // A write does not span segments: it must be small, for little of a segment to stay unused at its end.
  constexpr uint64_t kBlockBytes = BlockFile::kBlockBytes;
  resolved.write_bytes =
      std::clamp(resolved.segment_bytes / 8 / kBlockBytes * kBlockBytes, kBlockBytes, resolved.write_bytes);
  return store;
}

SegmentStore::~SegmentStore() {
  if (generation_ != ForkGeneration()) return;
  for (const auto& segment : segments_) (void)RemoveFile(*segment);
  for (const auto& segment : dead_) (void)RemoveFile(*segment);
}

Result<std::shared_ptr<DiskSegment>> SegmentStore::Create(uint64_t bytes, uint64_t most_bytes) {
  const uint64_t most = most_bytes / BlockFile::kBlockBytes * BlockFile::kBlockBytes;
  const uint64_t size = std::min(std::max(options_.segment_bytes, RoundUp(bytes)), most);
  const uint64_t number = next_number_.fetch_add(1);
  const std::string path = options_.path + "/" + PayloadsName(number);
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<BlockFile> file, fs_->NewBlockFile(path, size));
  auto segment = std::make_shared<DiskSegment>();
  segment->file = std::move(file);
  segment->file_bytes = size;
  segment->number = number;
  return segment;
}

std::shared_ptr<const PayloadFile> SegmentStore::WriteEnd(DiskSegment* segment) {
  const uint64_t begin = segment->written_bytes;
  const std::string end = EncodeSegmentEnd(segment->record_sizes, begin);
  const uint64_t bytes = RoundUp(end.size());
  auto file = std::make_shared<const PayloadFile>(
      PayloadFile{.path = segment->file->path(),
                  .number = segment->number,
                  .bytes = begin + end.size(),
                  .count = static_cast<uint32_t>(segment->record_sizes.size())});
  segment->record_sizes = {};
  if (begin + bytes > segment->file_bytes) return nullptr;
  const BlockBuffer buffer(bytes);
  if (buffer.data() == nullptr) return nullptr;
  std::memcpy(buffer.data(), end.data(), end.size());
  std::memset(buffer.data() + end.size(), 0, bytes - end.size());
  Status status = segment->file->Write(begin, buffer.span());
  if (status.ok()) status = segment->file->Truncate(file->bytes);
  return status.ok() ? file : nullptr;
}

void SegmentStore::Install(std::shared_ptr<DiskSegment> segment) {
  file_bytes_ += segment->file_bytes;
  segments_.push_back(std::move(segment));
}

void SegmentStore::Add(DiskSegment* segment, uint32_t ordinal, Chunk* chunk, uint32_t head_bytes) {
  if (ordinal >= segment->chunks.size()) segment->chunks.resize(ordinal + 1);
  segment->chunks[ordinal] = chunk;
  ++segment->live_count;
  const uint64_t bytes = chunk->payload_size();
  segment->live_bytes += bytes;
  segment->record_bytes += head_bytes + bytes;
  segment->live_record_bytes += head_bytes + bytes;
  live_bytes_ += bytes;
  live_record_bytes_ += head_bytes + bytes;
}

void SegmentStore::Free(DiskSegment* segment, uint32_t ordinal, uint64_t bytes, uint32_t head_bytes) {
  segment->chunks[ordinal] = nullptr;
  --segment->live_count;
  segment->live_bytes -= bytes;
  segment->live_record_bytes -= head_bytes + bytes;
  live_bytes_ -= bytes;
  live_record_bytes_ -= head_bytes + bytes;
  if (segment->is_sealed && segment->live_count == 0) Bury(segment);
}

void SegmentStore::SetCopy(DiskSegment* segment, uint64_t bytes, uint32_t head_bytes, bool is_copy) {
  segment->copy_bytes += is_copy ? head_bytes + bytes : -(head_bytes + bytes);
}

void SegmentStore::Seal(DiskSegment* segment, std::shared_ptr<const PayloadFile> file) {
  segment->is_sealed = true;
  if (file != nullptr) {
    const uint64_t bytes = RoundUp(file->bytes);
    file_bytes_ -= segment->file_bytes - bytes;
    segment->file_bytes = bytes;
    segment->sealed = std::move(file);
  }
  if (segment->live_count == 0) Bury(segment);
}

void SegmentStore::Bury(DiskSegment* segment) {
  const auto found =
      std::ranges::find_if(segments_, [&](const auto& other) { return other.get() == segment; });
  if (found == segments_.end()) return;
  dead_.push_back(std::move(*found));
  segments_.erase(found);
}

bool SegmentStore::HasRoomFor(uint64_t bytes, bool is_compaction) const {
  const uint64_t needed = RoundUp(bytes);
  if (is_compaction) return needed <= free_bytes();
  return std::max(options_.segment_bytes, needed) + options_.segment_bytes <= free_bytes();
}

uint64_t SegmentStore::DeadBytes(const DiskSegment& segment) const {
  const uint64_t dead = segment.record_bytes - segment.live_record_bytes;
  // A filler of a write is less than a block and the head of a record.
  constexpr uint64_t kMaxFiller = BlockFile::kBlockBytes + kChunkRecordHeadBytes;
  const uint64_t writes = segment.record_bytes / options_.write_bytes + 1;
  const uint64_t needed = RoundUp(kSegmentHeaderBytes + segment.record_bytes + writes * kMaxFiller +
                                  MaxSegmentEndBytes(segment.chunks.size() + writes));
  return dead + (segment.file_bytes > needed ? segment.file_bytes - needed : 0);
}

std::shared_ptr<DiskSegment> SegmentStore::FindVictim(bool is_urgent) const {
  // Segments that are filled and emptied in the same order need no compaction: the oldest is soon dead as a whole.
  constexpr size_t kMinSegmentsToCompact = 8;
  if (!is_urgent && (segments_.size() < kMinSegmentsToCompact || 2 * live_record_bytes_ > file_bytes_))
    return nullptr;
  std::shared_ptr<DiskSegment> best;
  uint64_t most_dead = 0;
  for (const auto& segment : segments_) {
    if (!segment->is_sealed || segment->is_damaged) continue;
    const uint64_t dead = DeadBytes(*segment) + (is_urgent ? segment->copy_bytes : 0);
    if (dead <= most_dead) continue;
    most_dead = dead;
    best = segment;
  }
  if (best == nullptr) return nullptr;
  return most_dead * (is_urgent ? 10 : 2) > best->file_bytes ? best : nullptr;
}

bool SegmentStore::RemoveFile(const DiskSegment& segment) {
  const Status status = fs_->RemoveFile(segment.file->path());
  if (status.ok() || status.code() == StatusCode::kNotFound) return true;
  static LogEvery* const log = new LogEvery(RealClock(), std::chrono::seconds(10));  // never destroyed
  log->Log(LogLevel::kWarning, "remove", "storage: " + std::string(status.message()));
  return false;
}

void SegmentStore::NoteRemoved(std::shared_ptr<DiskSegment> segment, bool is_removed) {
  if (is_removed) {
    file_bytes_ -= segment->file_bytes;
  } else {
    dead_.push_back(std::move(segment));
  }
}

}  // namespace reverb::internal
