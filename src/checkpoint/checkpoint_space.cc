// How CheckpointWriter reuses and frees space: what of older files the next checkpoint needs, which files are rewritten
// because little of them is needed, and which are removed.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_writer.h"

namespace reverb::internal {
namespace {

// About how many bytes a record takes in addition to the payload.
constexpr uint64_t kRecordOverhead = 40;

}  // namespace

// --- What is needed --------------------------------------------------------------------------------

void CheckpointWriter::MarkLive(const Snapshot& snapshot) {
  for (const auto& segment : segments_) {
    if (segment == nullptr) continue;
    segment->is_live.assign(segment->saved.count, false);
    segment->saved.live_count = segment->saved.live_bytes = 0;
    segment->is_victim = false;
  }
  if (places_.empty()) return;
  // Files of the disk tier that the last checkpoint has may contain more chunks of this snapshot.
  absl::flat_hash_map<uint64_t, uint32_t> linked;
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i] == nullptr || (segments_[i]->saved.number & kTierSegmentBit) == 0) continue;
    linked.emplace(segments_[i]->saved.number, static_cast<uint32_t>(i));
  }
  const auto find = [&](const Chunk& chunk) -> std::optional<Place> {
    if (const auto found = places_.find(chunk.id()); found != places_.end()) return found->second;
    if (linked.empty() || !chunk.is_tiered()) return std::nullopt;
    Chunk* const tiered = const_cast<Chunk*>(&chunk);
    const PayloadPlace where = tiered->tiered().tier->FindPlace(tiered);
    const auto segment = where.file == nullptr ? linked.end() : linked.find(where.file->number);
    if (segment == linked.end()) return std::nullopt;
    return places_.emplace(chunk.id(), Place{segment->second, where.ordinal}).first->second;
  };
  const auto mark = [&](const Chunk& chunk) {
    if (const auto place = find(chunk))
      MarkLive(*place, static_cast<uint32_t>(chunk.header().payload_size()));
  };
  for (const auto& table : snapshot.row_tables) table->ForEachChunk(mark);
  for (const auto& table : snapshot.tables) {
    for (size_t page = 0; page < table->num_pages(); ++page) {
      if (const Page* written = FindUnchanged(*table, page)) {
        for (const Place& place : *written->chunks) {
          MarkLive(place, segments_[place.segment]->payload_sizes[place.ordinal]);
        }
        continue;
      }
      table->ForEachItem(page, [&](size_t, const SlotRecord& record) {
        Trajectory::ForEachChunk(record.trajectory, [&](const Chunk* chunk) { mark(*chunk); });
      });
    }
  }
}

void CheckpointWriter::MarkLive(const Place& place, uint32_t payload_size) {
  Segment& segment = *segments_[place.segment];
  if (segment.is_live[place.ordinal]) return;
  segment.is_live[place.ordinal] = true;
  segment.payload_sizes[place.ordinal] = payload_size;
  ++segment.saved.live_count;
  segment.saved.live_bytes += payload_size;
}

const CheckpointWriter::Page* CheckpointWriter::FindUnchanged(const TableSnapshot& table, size_t page) const {
  const auto known = pages_.find(table.state().instance);
  if (known == pages_.end() || page >= known->second.size()) return nullptr;
  const Page& written = known->second[page];
  return written.version == table.slots().page_version(page) ? &written : nullptr;
}

std::set<uint64_t> CheckpointWriter::FindLostFiles() {
  const auto is_lost = [&](uint64_t number, SegmentKind kind, uint64_t file_bytes) {
    const std::string path = JoinPath(segments_path_, SegmentFileName(number, kind));
    const Result<uint64_t> size = fs_->FileSize(path);
    if (size.ok() && *size == file_bytes) return false;
    const std::string problem = size.ok() ? "\"" + path + "\" has " + std::to_string(*size) +
                                                " bytes instead of " + std::to_string(file_bytes)
                                          : std::string(size.status().message());
    Log(LogLevel::kWarning,
        "a file that the next checkpoint needs was changed or removed: " + problem +
            "; its data is written again from memory. Older checkpoints that need the file "
            "cannot be loaded");
    return true;
  };
  for (const auto& segment : segments_) {
    if (segment == nullptr || segment->saved.live_count == 0) continue;
    segment->is_victim = is_lost(segment->saved.number, SegmentKind::kChunks, segment->saved.file_bytes);
  }
  std::set<uint64_t> pages;
  for (const auto& [number, bytes] : page_file_bytes_) {
    if (is_lost(number, SegmentKind::kPages, bytes)) pages.insert(number);
  }
  return pages;
}

void CheckpointWriter::ChooseVictims() {
  struct Candidate {
    Segment* segment;
    uint64_t bytes;  // alive
  };
  std::vector<Candidate> used;
  uint64_t live_bytes = 0;
  for (const auto& segment : segments_) {
    if (segment == nullptr || segment->saved.live_count == 0 || segment->is_victim) continue;
    used.push_back({segment.get(), segment->saved.live_bytes + kRecordOverhead * segment->saved.live_count});
    live_bytes += used.back().bytes;
  }
  std::ranges::sort(used, {}, &Candidate::bytes);
  uint64_t budget = std::max(options_.compact_bytes,
                             static_cast<uint64_t>(options_.compact_part * static_cast<double>(live_bytes)));
  const uint64_t small_bytes = options_.segment_bytes / 8;
  auto small = static_cast<size_t>(
      std::ranges::count_if(used, [&](const Candidate& candidate) { return candidate.bytes < small_bytes; }));
  for (const auto& [segment, bytes] : used) {
    const bool is_sparse =
        static_cast<double>(bytes) < options_.compact_below * static_cast<double>(segment->saved.file_bytes);
    const bool is_too_many = bytes < small_bytes && small > options_.max_small_segments;
    if (!is_sparse && !is_too_many) continue;
    if (bytes > budget) break;
    budget -= bytes;
    segment->is_victim = true;
    if (bytes < small_bytes) --small;
  }
}

std::set<uint64_t> CheckpointWriter::ChooseVictimPages(const Snapshot& snapshot) const {
  std::map<uint64_t, uint64_t> live;  // bytes of unchanged pages, by file
  for (const auto& table : snapshot.tables) {
    for (size_t page = 0; page < table->num_pages(); ++page) {
      if (const Page* written = FindUnchanged(*table, page))
        live[written->place.segment] += written->place.size;
    }
  }
  std::set<uint64_t> victims;
  size_t left = live.size();
  for (const auto& [number, bytes] : live) {  // oldest first
    const uint64_t file_bytes = page_file_bytes_.at(number);
    const bool is_sparse =
        static_cast<double>(bytes) < options_.compact_below * static_cast<double>(file_bytes);
    if (!is_sparse && left <= options_.max_small_segments) continue;
    victims.insert(number);
    --left;
  }
  return victims;
}

// --- What is removed -------------------------------------------------------------------------------

void CheckpointWriter::CollectGarbage(const Manifest& newest, const std::string& newest_path) {
  if (Status status = TryCollectGarbage(newest, newest_path); !status.ok()) {
    Log(LogLevel::kWarning,
        "checkpoint \"" + newest_path +
            "\" was written, but some older files could not be removed: " + std::string(status.message()));
  }
}

Status CheckpointWriter::TryCollectGarbage(const Manifest& newest, const std::string& newest_path) {
  REVERB_ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries, ListCheckpoints(fs_, options_.root));
  std::erase_if(entries, [](const CheckpointEntry& entry) { return entry.is_foreign; });
  // Read the manifests to keep before removing anything: if that fails, everything stays.
  std::set<uint64_t> needed;
  for (const SavedSegment& segment : newest.segments) needed.insert(segment.number);
  std::vector<std::string> outdated;
  int32_t kept = 0;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!entry->is_complete || kept >= options_.keep_latest) {
      outdated.push_back(entry->path);
      continue;
    }
    if (entry->path != newest_path) {
      Result<Manifest> manifest = ReadManifest(fs_, entry->path);
      if (!manifest.ok()) {
        // A damaged manifest cannot be loaded and does not count as one of the latest. After any other error
        // the checkpoint may be loadable: a later release wrote it, or the disk failed to read it this time.
        if (manifest.status().detail() != Detail::kCorruptData) return std::move(manifest).status();
        continue;
      }
      for (const SavedSegment& segment : manifest->segments) needed.insert(segment.number);
    }
    ++kept;
  }
  for (const std::string& path : outdated) REVERB_RETURN_IF_ERROR(RemoveCheckpoint(path));

  REVERB_ASSIGN_OR_RETURN(const std::vector<std::string> files, fs_->ListDir(segments_path_));
  for (const std::string& file : files) {
    const auto segment = ParseSegmentFileName(file);
    if (!segment || needed.contains(segment->number)) continue;
    REVERB_RETURN_IF_ERROR(fs_->RemoveFile(JoinPath(segments_path_, file)));
  }
  return Status::Ok();
}

Status CheckpointWriter::RemoveCheckpoint(const std::string& path) {
  for (const char* file : {kManifestName, kManifestTempName}) {
    Status status = fs_->RemoveFile(JoinPath(path, file));
    if (!status.ok() && status.code() != StatusCode::kNotFound) return status;
  }
  // Before removing the files that it names: a manifest that reappears after a power loss must have them.
  REVERB_RETURN_IF_ERROR(fs_->SyncDir(path));
  // Other files in the folder stay.
  Status status = fs_->RemoveDir(path);
  return status.code() == StatusCode::kFailedPrecondition ? Status::Ok() : status;
}

}  // namespace reverb::internal
