// Reads checkpoints of dm-reverb: a directory with the files tables.tfrecord, items.tfrecord, chunks.tfrecord
// and, written last, DONE. Old ones have the items inside the tables. Errors name the file and the record, or
// the table and the item:
//   INVALID_ARGUMENT      the checkpoint is not complete: DONE is missing
//   DATA_LOSS             a file is missing or damaged, or refers to a missing record
//   UNIMPLEMENTED         a dtype or a signature is not supported
//   RESOURCE_EXHAUSTED    a chunk is larger than the store's limits
//
// The records of all items are kept in memory; chunks are streamed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "checkpoint/dm_reverb/chunk_data.h"
#include "checkpoint/dm_reverb/dm_reverb_messages.h"
#include "checkpoint/dm_reverb/tf_record_reader.h"
#include "checkpoint/layout.h"
#include "checkpoint/source.h"
#include "reverb/selector.h"
#include "reverb/signature.h"
#include "tensor/chunk.h"

namespace reverb::internal {
namespace {

constexpr char kItems[] = "items.tfrecord";
constexpr char kChunks[] = "chunks.tfrecord";

Status Damaged(std::string message) {
  return Status(StatusCode::kDataLoss, std::move(message), Detail::kCorruptData);
}

class DmReverbSource final : public CheckpointSource {
 public:
  DmReverbSource(FileSystem* fs, const std::string& path) : fs_(fs), path_(path) {}

  // Reads tables and items, and validates all that does not depend on the chunks.
  Status Open() {
    REVERB_RETURN_IF_ERROR(CheckFiles());
    REVERB_RETURN_IF_ERROR(
        ForEachRecord(kDmReverbTables, [&](std::string_view record) { return AddTable(record); }));
    if (server_.tables.empty()) return Damaged('"' + JoinPath(path_, kDmReverbTables) + "\" holds no table");
    if (has_items_file_) {
      REVERB_RETURN_IF_ERROR(
          ForEachRecord(kItems, [&](std::string_view record) { return AddItemRecord(record); }));
    }
    absl::flat_hash_set<uint64_t> chunk_keys;
    for (size_t i = 0; i < items_.size(); ++i) {
      std::stable_sort(items_[i].begin(), items_[i].end(), [](const DmReverbItem& a, const DmReverbItem& b) {
        return a.inserted_at < b.inserted_at;
      });
      REVERB_RETURN_IF_ERROR(CheckTable(i));
      for (const DmReverbItem& item : items_[i])
        ForEachChunkKey(item, [&](uint64_t key) { chunk_keys.insert(key); });
    }
    num_chunks_ = static_cast<int64_t>(chunk_keys.size());
    server_.format = "dm-reverb";
    // The name of a checkpoint has its time; a renamed one has that of its newest item.
    const size_t end = path_.find_last_not_of('/') + 1;
    const std::string_view name = std::string_view(path_).substr(0, end);
    if (const auto time = ParseCheckpointName(name.substr(name.rfind('/') + 1))) {
      server_.created_nanos = *time;
    } else {
      for (const auto& items : items_) {
        if (!items.empty()) server_.created_nanos = std::max(server_.created_nanos, items.back().inserted_at);
      }
    }
    return Status::Ok();
  }

  const SavedServer& server() const override { return server_; }

  CheckpointInfo Info() const override {
    CheckpointInfo info;
    info.path = path_;
    info.format = server_.format;
    info.created_nanos = server_.created_nanos;
    info.num_chunks = num_chunks_;
    info.payload_bytes = chunk_file_bytes_;
    info.file_bytes = table_file_bytes_ + item_file_bytes_ + chunk_file_bytes_;
    return info;
  }

  Status Read(ChunkStore& store, const WantedTables& wanted, const Sink& sink,
              const CheckpointProgressCallback& progress) override {
    Chunks chunks;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!wanted.tables[i]) continue;
      for (const DmReverbItem& item : items_[i])
        ForEachChunkKey(item, [&](uint64_t key) { chunks.try_emplace(key); });
    }
    ChunkConverter converter(store.options().limits);
    REVERB_RETURN_IF_ERROR(ForEachRecord(
        kChunks,
        [&](std::string_view record) {
          REVERB_RETURN_IF_ERROR(CheckRoomToLoad(store.budget().total(), path_, store));
          return AddChunk(record, &converter, &store, &chunks);
        },
        progress));
    // Checks all references before the first item: an incomplete checkpoint is not loaded in part.
    for (size_t i = 0; i < items_.size(); ++i) {
      if (wanted.tables[i]) REVERB_RETURN_IF_ERROR(CheckReferences(i, chunks));
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!wanted.tables[i]) continue;
      for (const DmReverbItem& item : items_[i]) {
        Result<Trajectory> trajectory =
            item.columns.empty() ? MakeOldTrajectory(item, chunks) : MakeTrajectory(item, chunks);
        if (!trajectory.ok()) return Damaged(NameOf(i, item) + std::string(trajectory.status().message()));
        REVERB_RETURN_IF_ERROR(sink.add_item(i, {{.key = item.key,
                                                  .priority = item.priority,
                                                  .inserted_at = item.inserted_at,
                                                  .times_sampled = item.times_sampled,
                                                  .trajectory = *std::move(trajectory)}}));
      }
    }
    return Status::Ok();
  }

 private:
  using Chunks = absl::flat_hash_map<uint64_t, ChunkRef>;  // null until they are read

  Status CheckFiles() {
    REVERB_ASSIGN_OR_RETURN(const bool has_tables, fs_->FileExists(JoinPath(path_, kDmReverbTables)));
    REVERB_ASSIGN_OR_RETURN(const bool is_complete, fs_->FileExists(JoinPath(path_, kDmReverbMark)));
    if (!has_tables && !is_complete) {
      return Status::NotFound('"' + path_ + "\" is not a checkpoint: it has no file " + kDmReverbTables);
    }
    if (!has_tables) return Damaged("checkpoint \"" + path_ + "\" lacks its file " + kDmReverbTables);
    if (!is_complete) {
      return Status::InvalidArgument("checkpoint \"" + path_ + "\" is not complete: it has no file " +
                                     kDmReverbMark + ", which is written last; use another one");
    }
    REVERB_ASSIGN_OR_RETURN(has_items_file_, fs_->FileExists(JoinPath(path_, kItems)));
    REVERB_ASSIGN_OR_RETURN(const bool has_chunks, fs_->FileExists(JoinPath(path_, kChunks)));
    if (!has_chunks) return Damaged("checkpoint \"" + path_ + "\" lacks its file " + kChunks);
    REVERB_ASSIGN_OR_RETURN(table_file_bytes_, fs_->FileSize(JoinPath(path_, kDmReverbTables)));
    if (has_items_file_) {
      REVERB_ASSIGN_OR_RETURN(item_file_bytes_, fs_->FileSize(JoinPath(path_, kItems)));
    }
    REVERB_ASSIGN_OR_RETURN(chunk_file_bytes_, fs_->FileSize(JoinPath(path_, kChunks)));
    return Status::Ok();
  }

  template <typename F>
  Status ForEachRecord(const char* name, F visit, const CheckpointProgressCallback& progress = {}) {
    REVERB_ASSIGN_OR_RETURN(std::unique_ptr<TfRecordReader> reader,
                            TfRecordReader::Open(fs_, JoinPath(path_, name)));
    for (uint64_t told = 0;;) {
      REVERB_ASSIGN_OR_RETURN(const std::optional<std::string_view> record, reader->Next());
      if (progress && reader->bytes_read() != told) {
        told = reader->bytes_read();
        progress({.bytes_done = told, .bytes_total = chunk_file_bytes_});
      }
      if (!record) return Status::Ok();
      const Status status = visit(*record);
      if (!status.ok()) return status.Prefixed(reader->Where());
    }
  }

  template <typename F>
  static void ForEachChunkKey(const DmReverbItem& item, F visit) {
    for (const DmReverbSlice& slice : item.slices) visit(slice.chunk_key);
    for (const uint64_t key : item.chunk_keys) visit(key);
  }

  std::string NameOf(size_t table, const DmReverbItem& item) const {
    return "checkpoint \"" + path_ + "\", table \"" + server_.tables[table].name + "\", item " +
           std::to_string(item.key) + ": ";
  }

  Status AddTable(std::string_view bytes) {
    REVERB_ASSIGN_OR_RETURN(DmReverbTableRecord record, ParseDmReverbTable(bytes));
    TableOptions& options = record.options;
    if (!table_index_.emplace(options.name, server_.tables.size()).second) {
      return Damaged("a second table \"" + options.name + '"');
    }
    if (has_items_file_ && !record.items.empty()) {
      return Status::InvalidArgument("table \"" + options.name +
                                     "\" has items of its own, and there is a file " + kItems + " besides");
    }
    SavedTable table{options.Settings()};
    table.knows_layout_and_age = false;
    table.knows_max_bytes = false;
    table.state.counters = record.counters;
    table.state.counts.num_deleted_episodes = record.num_deleted_episodes;
    table.state.counts.num_unique_samples = record.num_unique_samples;
    server_.tables.push_back(std::move(table));
    items_.emplace_back();
    for (const std::string_view item : record.items) {
      REVERB_RETURN_IF_ERROR(AddItemRecord(item, items_.size() - 1));
    }
    return Status::Ok();
  }

  Status AddItemRecord(std::string_view bytes, std::optional<size_t> table = {}) {
    REVERB_ASSIGN_OR_RETURN(DmReverbItem item, ParseDmReverbItem(bytes));
    if (!table) {
      const auto found = table_index_.find(item.table);
      if (found == table_index_.end()) {
        return Damaged("item " + std::to_string(item.key) + " is of table \"" + item.table +
                       "\", of which there is no record");
      }
      table = found->second;
    }
    item.table = {};
    items_[*table].push_back(std::move(item));
    return Status::Ok();
  }

  Status CheckTable(size_t index) {
    SavedTable& table = server_.tables[index];
    table.size = static_cast<int64_t>(items_[index].size());
    const std::string name = "checkpoint \"" + path_ + "\", table \"" + table.name + "\": ";
    if (table.size > table.max_size) {
      return Damaged(name + std::to_string(table.size) + " items, more than its size of " +
                     std::to_string(table.max_size));
    }
    // The counters of the limiter reveal lost items.
    const RateLimiterCounters& counters = table.state.counters;
    if (counters.inserts - counters.deletes != table.size) {
      return Damaged(name + std::to_string(table.size) + " items, but its rate limiter counted " +
                     std::to_string(counters.inserts) + " inserts and " + std::to_string(counters.deletes) +
                     " deletes" + (has_items_file_ ? "" : std::string("; there is no file ") + kItems));
    }
    REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<Selector> sampler, MakeSelector(table.sampler));
    REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<Selector> remover, MakeSelector(table.remover));
    absl::flat_hash_set<uint64_t> keys;
    keys.reserve(items_[index].size());
    for (const DmReverbItem& item : items_[index]) {
      if (!keys.insert(item.key).second) return Damaged(NameOf(index, item) + "its key is there twice");
      for (const Selector* selector : {sampler.get(), remover.get()}) {
        const Status status = selector->CheckPriority(item.priority);
        if (!status.ok()) return Damaged(NameOf(index, item) + std::string(status.message()));
      }
    }
    return Status::Ok();
  }

  static Status AddChunk(std::string_view bytes, ChunkConverter* converter, ChunkStore* store,
                         Chunks* chunks) {
    REVERB_ASSIGN_OR_RETURN(const uint64_t key, ChunkKeyOf(bytes));
    const auto found = chunks->find(key);
    if (found == chunks->end() || found->second) return Status::Ok();  // not needed, or read already
    Result<ChunkConverter::Converted> converted = converter->Convert(bytes);
    if (!converted.ok()) return converted.status().Prefixed("chunk " + std::to_string(key));
    Result<ChunkRef> chunk = store->Add(converted->header, converted->payload);
    if (!chunk.ok()) return chunk.status().Prefixed("chunk " + std::to_string(key));
    found->second = *std::move(chunk);
    return Status::Ok();
  }

  Status CheckReferences(size_t index, const Chunks& chunks) const {
    for (const DmReverbItem& item : items_[index]) {
      std::optional<uint64_t> missing;
      ForEachChunkKey(item, [&](uint64_t key) {
        if (!chunks.at(key)) missing = key;
      });
      if (missing) {
        return Damaged(NameOf(index, item) + "its chunk " + std::to_string(*missing) + " is not in " +
                       kChunks);
      }
    }
    return Status::Ok();
  }

  static Result<Trajectory> MakeTrajectory(const DmReverbItem& item, const Chunks& chunks) {
    std::vector<ColumnSpec> columns(item.columns.size());
    uint32_t slice = 0;
    for (size_t i = 0; i < columns.size(); ++i) {
      columns[i].squeeze = item.columns[i].squeeze;
      for (; slice < item.columns[i].end_slice; ++slice) {
        const DmReverbSlice& from = item.slices[slice];
        columns[i].slices.push_back({chunks.at(from.chunk_key), from.index, from.offset, from.length});
      }
    }
    return Trajectory::Create(columns);
  }

  // Every tensor of the chunks is a column: rows [offset, offset + length) of their concatenation.
  static Result<Trajectory> MakeOldTrajectory(const DmReverbItem& item, const Chunks& chunks) {
    std::vector<ColumnSpec> columns;
    uint64_t skip = item.offset;
    uint64_t left = item.length;
    for (const uint64_t key : item.chunk_keys) {
      const ChunkRef& chunk = chunks.at(key);
      const PackedChunkHeader header = chunk->header();
      if (columns.empty()) columns.resize(header.num_columns());
      if (columns.size() != header.num_columns()) {
        return Status::DataLoss("its chunks have different numbers of tensors");
      }
      const uint64_t rows = header.rows();
      const uint64_t offset = std::min(skip, rows);
      const uint64_t length = std::min(left, rows - offset);
      skip -= offset;
      left -= length;
      if (length == 0) continue;
      for (uint32_t i = 0; i < columns.size(); ++i) {
        columns[i].slices.push_back({chunk, i, static_cast<uint32_t>(offset), static_cast<uint32_t>(length)});
      }
    }
    if (left > 0)
      return Status::DataLoss("its chunks have " + std::to_string(left) + " rows less than it needs");
    return Trajectory::Create(columns);
  }

  FileSystem* const fs_;
  const std::string path_;

  // Set by Open().
  SavedServer server_;
  bool has_items_file_ = false;
  uint64_t table_file_bytes_ = 0;
  uint64_t item_file_bytes_ = 0;
  uint64_t chunk_file_bytes_ = 0;
  int64_t num_chunks_ = 0;
  absl::flat_hash_map<std::string, size_t> table_index_;
  std::vector<std::vector<DmReverbItem>> items_;  // of each table, by time of insertion
};

}  // namespace

Result<std::unique_ptr<CheckpointSource>> OpenDmReverbCheckpoint(FileSystem* fs, const std::string& path) {
  auto source = std::make_unique<DmReverbSource>(fs, path);
  REVERB_RETURN_IF_ERROR(source->Open());
  return std::unique_ptr<CheckpointSource>(std::move(source));
}

}  // namespace reverb::internal
