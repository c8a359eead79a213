// layout.h — which files and folders belong to checkpoints, and their names.
//
//   <root>/2026-11-15T16:24:31.123456789Z/MANIFEST    one checkpoint; complete when MANIFEST is there
//   <root>/segments/0000000000000007.chunks           chunks, shared by checkpoints
//   <root>/segments/0000000000000008.pages            items and states, shared by checkpoints
//
// Anything else in the root is left alone.
#ifndef REVERB_CHECKPOINT_LAYOUT_H_
#define REVERB_CHECKPOINT_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "reverb/checkpoint.h"
#include "reverb/status.h"

namespace reverb::internal {

inline constexpr char kManifestName[] = "MANIFEST";
inline constexpr char kManifestTempName[] = "MANIFEST.tmp";
inline constexpr char kSegmentsName[] = "segments";
inline constexpr char kLockName[] = "LOCK";  // in the folder of segments; held by who writes a checkpoint
// What marks a complete checkpoint of dm-reverb, and one of its files.
inline constexpr char kDmReverbMark[] = "DONE";
inline constexpr char kDmReverbTables[] = "tables.tfrecord";

enum class SegmentKind : uint8_t { kChunks = 1, kPages = 2 };  // on disk

std::string JoinPath(std::string_view folder, std::string_view name);
// The folder that holds `path`; "." for a bare name.
std::string ParentPath(std::string_view path);

// "2026-11-15T16:24:31.123456789Z": of fixed width, so that names sort by time.
std::string CheckpointName(int64_t nanos);
// The time of a name of ours or of dm-reverb's, which are in local time with the offset behind; absent when
// it is none.
std::optional<int64_t> ParseCheckpointName(std::string_view name);
// Whether it is exactly a name that CheckpointName() gives.
bool IsOwnCheckpointName(std::string_view name);

std::string SegmentFileName(uint64_t number, SegmentKind kind);
struct SegmentName {
  uint64_t number = 0;
  SegmentKind kind = SegmentKind::kChunks;
};
std::optional<SegmentName> ParseSegmentFileName(std::string_view name);
// The file of a segment that the checkpoint at `checkpoint_path` needs.
std::string SegmentPath(std::string_view checkpoint_path, uint64_t number, SegmentKind kind);

// Checkpoints under `root`, oldest first. NOT_FOUND when there is no such folder.
Result<std::vector<CheckpointEntry>> ListCheckpoints(FileSystem* fs, const std::string& root);

// Makes a folder, and those above it, such that its name survives a power loss.
Status CreateDurableDir(FileSystem* fs, const std::string& path);

// All of a file. DATA_LOSS when it holds more than `max_bytes`.
Result<std::string> ReadWholeFile(FileSystem* fs, const std::string& path, uint64_t max_bytes);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_LAYOUT_H_
