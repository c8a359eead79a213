#include "checkpoint/source.h"

#include <utility>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/layout.h"
#include "checkpoint/load.h"
#include "checkpoint/reverb_source.h"
#include "core/snapshot.h"

namespace reverb::internal {

int64_t CheckpointSource::MinMemoryBytes(const WantedTables& wanted) const {
  // A slot of a table, its key and one selector; a row and its key.
  constexpr auto kBytesPerSlot = static_cast<int64_t>(sizeof(SlotRecord) + 16 + 8);
  constexpr int64_t kBytesPerRow = 64 + 16;
  const SavedServer& saved = server();
  int64_t bytes = 0;
  for (size_t i = 0; i < saved.tables.size(); ++i) {
    if (wanted.tables[i]) bytes += saved.tables[i].size * kBytesPerSlot;
  }
  for (size_t i = 0; i < saved.row_tables.size(); ++i) {
    if (wanted.row_tables[i]) bytes += saved.row_tables[i].counts.rows * kBytesPerRow;
  }
  return bytes;
}

Status CheckRoomToLoad(int64_t bytes, const std::string& path, const ChunkStore& store) {
  const MemoryBudget& budget = store.budget();
  if (!budget.limit() || store.tier() != nullptr) return Status::Ok();
  // Each table of a full server may have exceeded the share by an item. Nothing else is in transit yet.
  const MemoryBudget::Shares& shares = budget.shares();
  if (bytes <= shares.kept + shares.transit / 2) return Status::Ok();
  return Status::ResourceExhausted(
      "checkpoint \"" + path + "\" does not fit into memory: its tables take at least " +
      std::to_string(bytes) + " bytes, more than the " + std::to_string(shares.kept) +
      " that memory_limit = " + std::to_string(*budget.limit()) + " leaves for data; raise memory_limit to " +
      std::to_string(bytes + bytes / 4) +
      " or more, or keep part of the data on disk: [storage] of reverb serve, Server(storage=...) in Python, "
      "ServerOptions::storage");
}

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
