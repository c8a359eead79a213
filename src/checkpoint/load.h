// load.h — tables made from what a checkpoint holds and what the program asks for.
#ifndef REVERB_CHECKPOINT_LOAD_H_
#define REVERB_CHECKPOINT_LOAD_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/source.h"
#include "core/chunk_store.h"
#include "core/table.h"
#include "reverb/checkpoint.h"
#include "reverb/status.h"
#include "reverb/table_options.h"

namespace reverb::internal {

struct LoadedServer {
  std::vector<std::shared_ptr<ConcurrentTable>>
      tables;  // those given, in their order, then others of the checkpoint
  std::vector<SavedWriter> writers;
  std::optional<std::string> path;  // of the checkpoint; absent = there was none
  // What a writer may go on from, when the checkpoint lies under the path that is written to.
  std::vector<LoadedSegment> segments;
};

// Empty tables.
Result<std::vector<std::shared_ptr<ConcurrentTable>>> MakeTables(
    const std::vector<TableOptions>& given, const ConcurrentTable::Environment& environment);

// The tables of one checkpoint. Says in the log where it differs from what was given. Nothing of a load that
// fails is left behind.
Result<LoadedServer> LoadFrom(CheckpointSource& source, const std::vector<TableOptions>& given,
                              const RestoreOptions& options, const ConcurrentTable::Environment& environment);

// The tables of the latest checkpoint that can be loaded, as CheckpointOptions tells.
Result<LoadedServer> LoadLatest(FileSystem* fs, const CheckpointOptions& options,
                                const std::vector<TableOptions>& given,
                                const ConcurrentTable::Environment& environment);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_LOAD_H_
