#include "checkpoint/source.h"

#include <utility>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/layout.h"
#include "checkpoint/load.h"
#include "checkpoint/reverb_source.h"

namespace reverb::internal {

Result<CheckpointFormat> DetectCheckpointFormat(FileSystem* fs, const std::string& path) {
  const auto has = [&](const char* name) -> Result<bool> { return fs->FileExists(JoinPath(path, name)); };
  REVERB_ASSIGN_OR_RETURN(const bool has_manifest, has(kManifestName));
  if (has_manifest) return CheckpointFormat::kReverb;
  REVERB_ASSIGN_OR_RETURN(const bool has_mark, has(kDmReverbMark));
  return has_mark ? CheckpointFormat::kDmReverb : CheckpointFormat::kNone;
}

Result<std::unique_ptr<CheckpointSource>> OpenCheckpoint(FileSystem* fs, const std::string& path) {
  REVERB_ASSIGN_OR_RETURN(const CheckpointFormat format, DetectCheckpointFormat(fs, path));
  switch (format) {
    case CheckpointFormat::kReverb: {
      REVERB_ASSIGN_OR_RETURN(std::unique_ptr<ReverbSource> source, ReverbSource::Open(fs, path));
      return std::unique_ptr<CheckpointSource>(std::move(source));
    }
    case CheckpointFormat::kDmReverb:
      return OpenDmReverbCheckpoint(fs, path);
    case CheckpointFormat::kNone:
      break;
  }
  return Status::NotFound("\"" + path + "\" is not a checkpoint, or was never finished: it has no file " +
                          kManifestName);
}

Result<std::string> WriteCheckpointFrom(CheckpointSource& source, FileSystem* fs, const std::string& root,
                                        const CheckpointProgressCallback& progress) {
  const ConcurrentTable::Environment environment{.store =
                                                     std::make_shared<ChunkStore>(ChunkStore::Options())};
  RestoreOptions options;
  options.extra_tables = RestoreOptions::ExtraTables::kCreate;
  options.progress = progress;
  REVERB_ASSIGN_OR_RETURN(LoadedServer loaded, LoadFrom(source, {}, options, environment));
  CheckpointWriter writer(fs, {.root = root, .shard = loaded.shard});
  Snapshot snapshot = ConcurrentTable::TakeSnapshot(loaded.tables);
  snapshot.row_tables = ConcurrentRows::TakeSnapshots(loaded.row_tables).tables;
  REVERB_ASSIGN_OR_RETURN(CheckpointWriter::Stats stats,
                          writer.Write(snapshot, std::move(loaded.writers), environment.clock->WallNanos()));
  return std::move(stats.path);
}

}  // namespace reverb::internal
