#include "storage/segment_store.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace reverb::internal {
namespace {

constexpr std::string_view kSuffix = ".payloads";
constexpr uint64_t kMaxSegmentBytes = uint64_t{256} << 20;
constexpr uint64_t kMinSegments = 32;
constexpr std::chrono::seconds kFolderLockTimeout(2);

std::string SegmentName(uint64_t number) {
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

uint64_t SegmentStore::DefaultSegmentBytes(uint64_t disk_limit) {
  return std::max<uint64_t>(std::min(kMaxSegmentBytes, disk_limit / kMinSegments) / BlockFile::kBlockBytes,
                            1) *
         BlockFile::kBlockBytes;
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
  return store;
}

SegmentStore::~SegmentStore() {
  for (const auto& segment : segments_) RemoveFile(*segment);
  for (const auto& segment : dead_) RemoveFile(*segment);
}

uint64_t SegmentStore::SegmentBytes(uint64_t bytes) const {
  return std::max(options_.segment_bytes, RoundUp(bytes));
}

Result<std::shared_ptr<DiskSegment>> SegmentStore::Create(uint64_t bytes) {
  const uint64_t size = SegmentBytes(bytes);
  const std::string path = options_.path + "/" + SegmentName(next_number_.fetch_add(1));
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<BlockFile> file, fs_->NewBlockFile(path, size));
  auto segment = std::make_shared<DiskSegment>();
  segment->file = std::move(file);
  segment->file_bytes = size;
  return segment;
}

void SegmentStore::Install(std::shared_ptr<DiskSegment> segment) {
  file_bytes_ += segment->file_bytes;
  segments_.push_back(std::move(segment));
}

uint32_t SegmentStore::Add(DiskSegment* segment, Chunk* chunk) {
  segment->chunks.push_back(chunk);
  ++segment->live_count;
  segment->live_bytes += chunk->payload_size();
  live_bytes_ += chunk->payload_size();
  return static_cast<uint32_t>(segment->chunks.size() - 1);
}

void SegmentStore::Free(DiskSegment* segment, uint32_t ordinal, uint64_t bytes) {
  segment->chunks[ordinal] = nullptr;
  --segment->live_count;
  segment->live_bytes -= bytes;
  live_bytes_ -= bytes;
  if (!segment->is_sealed || segment->live_count > 0) return;
  const auto found =
      std::ranges::find_if(segments_, [&](const auto& other) { return other.get() == segment; });
  file_bytes_ -= segment->file_bytes;
  dead_.push_back(std::move(*found));
  segments_.erase(found);
}

void SegmentStore::Seal(DiskSegment* segment) {
  segment->is_sealed = true;
  if (segment->live_count > 0) return;
  const auto found =
      std::ranges::find_if(segments_, [&](const auto& other) { return other.get() == segment; });
  if (found == segments_.end()) return;
  file_bytes_ -= segment->file_bytes;
  dead_.push_back(std::move(*found));
  segments_.erase(found);
}

bool SegmentStore::HasRoomFor(uint64_t bytes, bool is_compaction) const {
  const uint64_t kept = is_compaction ? 0 : options_.segment_bytes;
  return file_bytes_ + SegmentBytes(bytes) + kept <= options_.disk_limit;
}

std::shared_ptr<DiskSegment> SegmentStore::FindVictim(bool is_urgent) const {
  // Segments that are filled and emptied in the same order need no compaction: the oldest is soon dead as a whole.
  constexpr size_t kMinSegmentsToCompact = 8;
  if (!is_urgent && (segments_.size() < kMinSegmentsToCompact || 2 * live_bytes_ > file_bytes_))
    return nullptr;
  std::shared_ptr<DiskSegment> best;
  uint64_t most_dead = 0;
  for (const auto& segment : segments_) {
    if (!segment->is_sealed || segment->is_damaged) continue;
    const uint64_t dead = segment->file_bytes - segment->live_bytes;
    if (dead <= most_dead) continue;
    most_dead = dead;
    best = segment;
  }
  if (best == nullptr) return nullptr;
  return most_dead * (is_urgent ? 10 : 2) > best->file_bytes ? best : nullptr;
}

void SegmentStore::RemoveFile(const DiskSegment& segment) {
  if (const Status status = fs_->RemoveFile(segment.file->path()); !status.ok()) {
    Log(LogLevel::kWarning, "storage: " + std::string(status.message()));
  }
}

}  // namespace reverb::internal
