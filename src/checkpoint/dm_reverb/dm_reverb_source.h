// dm_reverb_source.h — checkpoints that dm-reverb wrote; see source.h for how they are read.
//
// A directory with the files tables.tfrecord, items.tfrecord, chunks.tfrecord and, written last, DONE.
// Old ones have the items inside the tables. No damage is taken for an absence: a file, a chunk or items
// that are missing are DATA_LOSS. Errors name the file and the record, or the table and the item:
//   INVALID_ARGUMENT      the checkpoint is not complete: DONE is missing
//   DATA_LOSS             a file is missing or damaged, or refers to what is not there
//   UNIMPLEMENTED         a dtype or a signature that is not known here
//   RESOURCE_EXHAUSTED    a chunk is larger than the store's limits
//
// The source keeps a record of each item in memory; chunks are read as a stream.
//
// Threads: free functions without state.
#ifndef REVERB_CHECKPOINT_DM_REVERB_DM_REVERB_SOURCE_H_
#define REVERB_CHECKPOINT_DM_REVERB_DM_REVERB_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_system.h"
#include "checkpoint/source.h"
#include "reverb/status.h"

namespace reverb::internal {

// Whether a directory has a file of tables as dm-reverb names it, complete or not. False when there is no
// such directory.
Result<bool> IsDmReverbCheckpoint(FileSystem* fs, const std::string& path);
// Whether it was written to its end.
Result<bool> IsDmReverbCheckpointComplete(FileSystem* fs, const std::string& path);

// Nanoseconds since the epoch of a name such as 2026-07-14T10:29:53.123456789-07:00: dm-reverb names
// checkpoints by local time, so that the names alone do not order them. Absent for other names.
std::optional<int64_t> ParseDmReverbTime(std::string_view name);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_DM_REVERB_DM_REVERB_SOURCE_H_
