// load.h — creates tables from a checkpoint and the options that the program gives.
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
#include "core/rows/row_table.h"
#include "core/table.h"
#include "reverb/checkpoint.h"
#include "reverb/row_table_options.h"
#include "reverb/status.h"
#include "reverb/table_options.h"

namespace reverb::internal {

struct LoadedServer {
  std::vector<std::shared_ptr<ConcurrentTable>>
      tables;  // those given, in their order, then others of the checkpoint
  std::vector<std::shared_ptr<ConcurrentRows>> row_tables = {};  // likewise
  std::vector<SavedWriter> writers;
  uint32_t shard = 0;               // of the server that wrote the checkpoint; 0 = unknown
  std::optional<std::string> path;  // of the checkpoint; absent = there was none
  // Segments that a writer may continue from, when the checkpoint is under the path that it writes to.
  std::vector<LoadedSegment> segments;
};

// Creates empty tables.
Result<std::vector<std::shared_ptr<ConcurrentTable>>> MakeTables(
    const std::vector<TableOptions>& given, const ConcurrentTable::Environment& environment);

// Creates empty tables of both types.
Result<LoadedServer> MakeEmpty(const std::vector<TableOptions>& given,
                               const std::vector<RowTableOptions>& given_rows,
                               const ConcurrentTable::Environment& environment);

// Loads the tables of one checkpoint. Logs where it differs from the given options. A failed load leaves
// nothing behind.
Result<LoadedServer> LoadFrom(CheckpointSource& source, const std::vector<TableOptions>& given,
                              const RestoreOptions& options, const ConcurrentTable::Environment& environment,
                              const std::vector<RowTableOptions>& given_rows = {});

// Loads the tables of the latest checkpoint that can be loaded, according to CheckpointOptions.
Result<LoadedServer> LoadLatest(FileSystem* fs, const CheckpointOptions& options,
                                const std::vector<TableOptions>& given,
                                const ConcurrentTable::Environment& environment,
                                const std::vector<RowTableOptions>& given_rows = {});

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_LOAD_H_
