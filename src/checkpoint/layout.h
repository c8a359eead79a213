// layout.h — the files and directories of checkpoints, and their names.
//
//   <root>/2026-11-15T16-24-31.123456789Z/MANIFEST    one checkpoint; complete if MANIFEST exists
//   <root>/segments/0000000000000007.chunks           chunks, shared by checkpoints
//   <root>/segments/0000000000000008.pages            items and states, shared by checkpoints
//
// Other files in the root are ignored.
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
#include "storage/segment_format.h"

namespace reverb::internal {

inline constexpr char kManifestName[] = "MANIFEST";
inline constexpr char kManifestTempName[] = "MANIFEST.tmp";
inline constexpr char kSegmentsName[] = "segments";
// in the directory of segments; locked while a checkpoint is written
inline constexpr char kLockName[] = "LOCK";
// Marks a complete checkpoint of dm-reverb, and one of its files.
inline constexpr char kDmReverbMark[] = "DONE";
inline constexpr char kDmReverbTables[] = "tables.tfrecord";

std::string JoinPath(std::string_view folder, std::string_view name);
// Returns the directory that contains `path`; "." for a bare name.
std::string ParentPath(std::string_view path);

// Returns a name like "2026-11-15T16-24-31.123456789Z". The width is fixed, so names sort by time. It has no
// colons, which scp and rsync take for the end of a host's name and some file systems do not allow.
std::string CheckpointName(int64_t nanos);
// Parses a name of ours, with "-" or, as in earlier releases, ":" within the time of day, or one of
// dm-reverb's, which are in local time with an offset at the end. Returns the time; absent if the name is
// invalid.
std::optional<int64_t> ParseCheckpointName(std::string_view name);
// Returns whether CheckpointName(), of this release or of an earlier one, can return this name.
bool IsOwnCheckpointName(std::string_view name);

std::string SegmentFileName(uint64_t number, SegmentKind kind);
struct SegmentName {
  uint64_t number = 0;
  SegmentKind kind = SegmentKind::kChunks;
};
std::optional<SegmentName> ParseSegmentFileName(std::string_view name);
// Returns the path of a segment of the checkpoint at `checkpoint_path`.
std::string SegmentPath(std::string_view checkpoint_path, uint64_t number, SegmentKind kind);

// Returns the checkpoints under `root`, oldest first. NOT_FOUND if the directory does not exist.
Result<std::vector<CheckpointEntry>> ListCheckpoints(FileSystem* fs, const std::string& root);

// Creates a directory, and missing parents, such that its name survives a power loss.
Status CreateDurableDir(FileSystem* fs, const std::string& path);

// Reads a whole file. DATA_LOSS if it has more than `max_bytes`.
Result<std::string> ReadWholeFile(FileSystem* fs, const std::string& path, uint64_t max_bytes);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_LAYOUT_H_
