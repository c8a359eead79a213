// Implements the handles of include/reverb/checkpoint.h on top of src/checkpoint.
#include "reverb/checkpoint.h"

#include <algorithm>
#include <utility>

#include "api/sample_factory.h"
#include "base/file_system.h"
#include "checkpoint/layout.h"
#include "checkpoint/reverb_source.h"
#include "checkpoint/source.h"
#include "core/chunk_store.h"

namespace reverb {
namespace {

using internal::CheckpointFormat;
using internal::CheckpointSource;
using internal::FileSystem;
using internal::ItemCursor;
using internal::ReverbSource;
using internal::SavedItem;
using internal::SavedTable;

// Reads a source other than ReverbSource in full and returns its items from memory.
class ItemsInMemory final : public ItemCursor {
 public:
  static Result<std::unique_ptr<ItemCursor>> Read(CheckpointSource& source, size_t index) {
    internal::ChunkStore store({});
    auto items = std::make_unique<ItemsInMemory>();
    std::vector<bool> wanted(source.server().tables.size());
    wanted[index] = true;
    REVERB_RETURN_IF_ERROR(source.Read(store, wanted,
                                       [&](size_t, SavedItem item) {
                                         items->items_.push_back(std::move(item));
                                         return Status::Ok();
                                       },
                                       {}));
    return std::unique_ptr<ItemCursor>(std::move(items));
  }
  Result<std::optional<SavedItem>> Next() override {
    if (next_ == items_.size()) return std::optional<SavedItem>();
    return std::optional<SavedItem>(std::move(items_[next_++]));
  }

 private:
  std::vector<SavedItem> items_;
  size_t next_ = 0;
};

TableInfo InfoOf(const SavedTable& table) {
  TableInfo info{table, table.state.counts};
  info.structure = table.state.structure;
  info.current_size = table.size;
  info.counters = table.state.counters;
  info.cursor = static_cast<double>(info.counters.inserts) * info.rate_limiter.samples_per_insert -
                static_cast<double>(info.counters.samples);
  return info;
}

// Returns `path` itself if it is a checkpoint, or the latest complete one under it.
Result<std::string> FindCheckpoint(FileSystem* fs, const std::string& path) {
  REVERB_ASSIGN_OR_RETURN(const CheckpointFormat format, internal::DetectCheckpointFormat(fs, path));
  if (format != CheckpointFormat::kNone) return path;
  REVERB_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, internal::ListCheckpoints(fs, path));
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->is_complete) return entry->path;
  }
  return Status::NotFound("\"" + path + "\" is not a complete checkpoint and contains none");
}

}  // namespace

// The source is shared with the cursors over it.
struct CheckpointReader::Rep {
  std::shared_ptr<CheckpointSource> source;
  CheckpointInfo info;
  mutable internal::Mutex mu;  // guards a source other than ReverbSource
};
struct CheckpointItems::Rep {
  std::shared_ptr<CheckpointSource> source;  // the cursor needs it
  std::unique_ptr<ItemCursor> cursor;
  int64_t table_size = 0;
};

CheckpointReader::CheckpointReader(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;
CheckpointItems::CheckpointItems(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
CheckpointItems::CheckpointItems(CheckpointItems&&) noexcept = default;
CheckpointItems& CheckpointItems::operator=(CheckpointItems&&) noexcept = default;
CheckpointItems::~CheckpointItems() = default;

Result<CheckpointReader> CheckpointReader::Open(const std::string& path) {
  FileSystem* const fs = internal::PosixFileSystem();
  REVERB_ASSIGN_OR_RETURN(const std::string found, FindCheckpoint(fs, path));
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointSource> source, internal::OpenCheckpoint(fs, found));
  auto rep = std::make_unique<Rep>();
  rep->info = source->Info();
  for (const SavedTable& table : source->server().tables) rep->info.tables.push_back(InfoOf(table));
  rep->source = std::move(source);
  return CheckpointReader(std::move(rep));
}

const CheckpointInfo& CheckpointReader::info() const { return rep_->info; }

Result<CheckpointItems> CheckpointReader::Items(std::string_view table) const {
  const std::vector<SavedTable>& tables = rep_->source->server().tables;
  std::string names;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (tables[i].name != table) {
      names += (names.empty() ? "\"" : ", \"") + tables[i].name + "\"";
      continue;
    }
    auto items = std::make_unique<CheckpointItems::Rep>();
    items->source = rep_->source;
    items->table_size = tables[i].size;
    if (const auto* own = dynamic_cast<const ReverbSource*>(rep_->source.get())) {
      items->cursor = own->OpenItems(i);
    } else {
      internal::MutexLock lock(&rep_->mu);
      REVERB_ASSIGN_OR_RETURN(items->cursor, ItemsInMemory::Read(*rep_->source, i));
    }
    return CheckpointItems(std::move(items));
  }
  return Status::NotFound("checkpoint \"" + rep_->info.path + "\" has no table \"" +
                          std::string(table.substr(0, 200)) + "\"; it has " +
                          (names.empty() ? "none" : names));
}

Result<std::optional<SampledTrajectory>> CheckpointItems::Next() {
  REVERB_ASSIGN_OR_RETURN(std::optional<SavedItem> item, rep_->cursor->Next());
  if (!item) return std::optional<SampledTrajectory>();
  item->table_size = rep_->table_size;
  return std::optional<SampledTrajectory>(internal::SampleFactory::Make(*std::move(item)));
}

Status CheckpointReader::Verify(const CheckpointProgressCallback& progress) const {
  // Item by item: chunks that no item refers to do no harm.
  CheckpointProgress done;
  for (const TableInfo& table : rep_->info.tables) {
    done.bytes_total += static_cast<uint64_t>(table.current_size);
  }
  const uint64_t items_total = std::max<uint64_t>(done.bytes_total, 1);
  uint64_t items_done = 0;
  done.bytes_total = rep_->info.file_bytes;
  for (const TableInfo& table : rep_->info.tables) {
    REVERB_ASSIGN_OR_RETURN(CheckpointItems items, Items(table.name));
    int64_t count = 0;
    while (true) {
      REVERB_ASSIGN_OR_RETURN(const std::optional<SampledTrajectory> item, items.Next());
      if (!item) break;
      ++count;
      if (progress && ++items_done % 1024 == 0) {
        done.bytes_done =
            static_cast<uint64_t>(static_cast<double>(done.bytes_total) * static_cast<double>(items_done) /
                                  static_cast<double>(items_total));
        progress(done);
      }
    }
    if (count != table.current_size) {
      return Status::DataLoss("checkpoint \"" + rep_->info.path + "\" is damaged: table \"" + table.name +
                              "\" should have " + std::to_string(table.current_size) + " items and has " +
                              std::to_string(count))
          .WithDetail(Detail::kCorruptData);
    }
  }
  if (progress) {
    done.bytes_done = done.bytes_total;
    progress(done);
  }
  return Status::Ok();
}

Result<std::vector<CheckpointEntry>> ListCheckpoints(const std::string& path) {
  return internal::ListCheckpoints(internal::PosixFileSystem(), path);
}

Result<std::string> ImportCheckpoint(const std::string& from, const std::string& to,
                                     const CheckpointProgressCallback& progress) {
  FileSystem* const fs = internal::PosixFileSystem();
  REVERB_ASSIGN_OR_RETURN(const std::string found, FindCheckpoint(fs, from));
  REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointSource> source,
                          internal::OpenCheckpoint(fs, found));
  return internal::WriteCheckpointFrom(*source, fs, to, progress);
}

}  // namespace reverb
