// Implements the handles of include/reverb/checkpoint.h on top of src/checkpoint.
#include "reverb/checkpoint.h"

#include <algorithm>
#include <span>
#include <utility>

#include "api/checkpoint_rep.h"
#include "api/gather_batch.h"
#include "api/sample_factory.h"
#include "base/file_system.h"
#include "base/random.h"
#include "checkpoint/copy.h"
#include "checkpoint/layout.h"
#include "checkpoint/reverb_source.h"
#include "checkpoint/source.h"
#include "core/chunk_store.h"
#include "reverb/signature.h"
#include "tensor/column_names.h"

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
  static Result<std::unique_ptr<ItemCursor>> Read(CheckpointSource& source, size_t index,
                                                  const CheckpointReadOptions& options) {
    internal::ChunkStore store({});
    auto items = std::make_unique<ItemsInMemory>();
    internal::WantedTables wanted{.tables = std::vector<bool>(source.server().tables.size())};
    wanted.tables[index] = true;
    const auto add = [&](size_t, SavedItem item) {
      if (!options.columns.empty()) REVERB_RETURN_IF_ERROR(SelectColumns(options.columns, &item));
      items->items_.push_back(std::move(item));
      return Status::Ok();
    };
    REVERB_RETURN_IF_ERROR(source.Read(store, wanted, {.add_item = add}, {}));
    if (options.shuffle_window > 0) {
      internal::Random random(options.seed ? *options.seed : internal::EntropySeed());
      for (size_t i = items->items_.size(); i > 1; --i) {
        std::swap(items->items_[i - 1], items->items_[random.Below(i)]);
      }
    }
    return std::unique_ptr<ItemCursor>(std::move(items));
  }
  Result<std::optional<SavedItem>> Next() override {
    if (next_ == items_.size()) return std::optional<SavedItem>();
    return std::optional<SavedItem>(std::move(items_[next_++]));
  }

 private:
  static Status SelectColumns(const std::vector<uint32_t>& columns, SavedItem* item) {
    const internal::Trajectory& all = item->trajectory;
    std::vector<internal::ColumnSpec> specs;
    for (const uint32_t column : columns) {
      if (column >= all.num_columns()) {
        return Status::InvalidArgument("item " + std::to_string(item->key) + " has " +
                                       std::to_string(all.num_columns()) + " columns; there is no column " +
                                       std::to_string(column));
      }
      internal::ColumnSpec& spec = specs.emplace_back();
      spec.squeeze = all.squeeze(column);
      for (uint32_t i = 0; i < all.num_slices(column); ++i) {
        const internal::SliceView slice = all.slice(column, i);
        spec.slices.push_back(
            {internal::ChunkRef::Share(slice.chunk), slice.chunk_column, slice.offset, slice.length});
      }
    }
    REVERB_ASSIGN_OR_RETURN(item->trajectory, internal::Trajectory::Create(specs));
    return Status::Ok();
  }

  std::vector<SavedItem> items_;
  size_t next_ = 0;
};

TableInfo InfoOf(const SavedTable& table) {
  TableInfo info{table, table.state.counts};
  info.structure = table.state.structure;
  info.current_size = table.size;
  info.counters = table.state.counters;
  info.structure = table.state.structure;
  info.cursor = info.counters.Cursor(info.rate_limiter.samples_per_insert);
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

// Returns the names of these columns of a table; of all if none is given.
std::vector<std::string> NamesOf(const SavedTable& table, std::span<const uint32_t> columns) {
  const Result<Signature> signature = DecodeSignature(table.signature);
  const bool has_signature = !table.signature.empty() && signature.ok();
  std::vector<std::string> all =
      internal::ColumnNamesOf(has_signature ? &*signature : nullptr, table.state.structure.value_or(""));
  if (columns.empty()) return all;
  std::vector<std::string> names;
  for (const auto column : columns) {
    if (static_cast<size_t>(column) >= all.size()) return {};
    names.push_back(all[static_cast<size_t>(column)]);
  }
  return names;
}

}  // namespace

struct CheckpointItems::Rep {
  std::shared_ptr<CheckpointSource> source;  // the cursor needs it
  std::unique_ptr<ItemCursor> cursor;
  int64_t table_size = 0;
  internal::ColumnNamer column_names;            // of the columns that are read
  std::vector<internal::Sample> left_over = {};  // of a batch that could not be made
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
  for (const internal::SavedRowTable& table : source->server().row_tables) {
    rep->info.row_tables.push_back(internal::InfoOf(table));
  }
  rep->source = std::move(source);
  return CheckpointReader(std::move(rep));
}

const CheckpointInfo& CheckpointReader::info() const { return rep_->info; }

Status CheckpointReadOptions::Validate() const {
  constexpr int64_t kMaxWindow = int64_t{1} << 32;
  if (shuffle_window < 0 || shuffle_window > kMaxWindow) {
    return Status::InvalidArgument("shuffle_window is " + std::to_string(shuffle_window) +
                                   "; it must be between 0 and " + std::to_string(kMaxWindow));
  }
  return Status::Ok();
}

Result<CheckpointItems> CheckpointReader::Items(std::string_view table,
                                                const CheckpointReadOptions& options) const {
  REVERB_RETURN_IF_ERROR(options.Validate());
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
    items->column_names = [source = rep_->source, i, columns = options.columns] {
      return NamesOf(source->server().tables[i], columns);
    };
    if (const auto* own = dynamic_cast<const ReverbSource*>(rep_->source.get())) {
      items->cursor = own->OpenItems(i, options);
    } else {
      internal::MutexLock lock(&rep_->mu);
      REVERB_ASSIGN_OR_RETURN(items->cursor, ItemsInMemory::Read(*rep_->source, i, options));
    }
    return CheckpointItems(std::move(items));
  }
  return Status::NotFound("checkpoint \"" + rep_->info.path + "\" has no table \"" +
                          std::string(table.substr(0, 200)) + "\"; it has " +
                          (names.empty() ? "none" : names));
}

Result<std::optional<SampledTrajectory>> CheckpointItems::Next() {
  if (!rep_->left_over.empty()) {
    internal::Sample first = std::move(rep_->left_over.front());
    rep_->left_over.erase(rep_->left_over.begin());
    return std::optional<SampledTrajectory>(internal::SampleFactory::Make(std::move(first)));
  }
  REVERB_ASSIGN_OR_RETURN(std::optional<SavedItem> item, rep_->cursor->Next());
  if (!item) return std::optional<SampledTrajectory>();
  item->table_size = rep_->table_size;
  return std::optional<SampledTrajectory>(internal::SampleFactory::Make(*std::move(item)));
}

Result<int64_t> CheckpointItems::NextBatch(int64_t n, Batch* batch, const BatchOptions& options) {
  if (n < 1) return Status::InvalidArgument("a batch of " + std::to_string(n) + " items was requested");
  std::vector<internal::Sample>& samples = rep_->left_over;
  while (static_cast<int64_t>(samples.size()) < n) {
    REVERB_ASSIGN_OR_RETURN(std::optional<SavedItem> item, rep_->cursor->Next());
    if (!item) break;
    item->table_size = rep_->table_size;
    samples.push_back(std::move(*item));
  }
  const auto count = static_cast<size_t>(std::min<int64_t>(n, static_cast<int64_t>(samples.size())));
  if (count == 0) return int64_t{0};
  REVERB_RETURN_IF_ERROR(
      internal::GatherBatch(std::span(samples).first(count), options, rep_->column_names, batch));
  batch->info.probabilities.assign(count, 1.0 / static_cast<double>(rep_->table_size));
  samples.erase(samples.begin(), samples.begin() + static_cast<ptrdiff_t>(count));
  return static_cast<int64_t>(count);
}

Status CheckpointReader::Verify(const CheckpointProgressCallback& progress) const {
  // Item by item: chunks that no item refers to do no harm.
  CheckpointProgress done;
  for (const TableInfo& table : rep_->info.tables) {
    done.bytes_total += static_cast<uint64_t>(table.current_size);
  }
  for (const RowTableInfo& table : rep_->info.row_tables) {
    done.bytes_total += static_cast<uint64_t>(table.counts.rows);
  }
  const uint64_t items_total = std::max<uint64_t>(done.bytes_total, 1);
  uint64_t items_done = 0;
  done.bytes_total = rep_->info.file_bytes;
  const auto advance = [&] {
    if (!progress || ++items_done % 1024 != 0) return;
    done.bytes_done =
        static_cast<uint64_t>(static_cast<double>(done.bytes_total) * static_cast<double>(items_done) /
                              static_cast<double>(items_total));
    progress(done);
  };
  for (const TableInfo& table : rep_->info.tables) {
    REVERB_ASSIGN_OR_RETURN(CheckpointItems items, Items(table.name));
    int64_t count = 0;
    while (true) {
      REVERB_ASSIGN_OR_RETURN(const std::optional<SampledTrajectory> item, items.Next());
      if (!item) break;
      ++count;
      advance();
    }
    if (count != table.current_size) {
      return Status::DataLoss("checkpoint \"" + rep_->info.path + "\" is damaged: table \"" + table.name +
                              "\" should have " + std::to_string(table.current_size) + " items and has " +
                              std::to_string(count))
          .WithDetail(Detail::kCorruptData);
    }
  }
  for (size_t i = 0; i < rep_->info.row_tables.size(); ++i)
    REVERB_RETURN_IF_ERROR(rep_->VerifyRows(i, advance));
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

Result<std::string> CopyCheckpoint(const std::string& from, const std::string& to,
                                   const CheckpointProgressCallback& progress) {
  FileSystem* const fs = internal::PosixFileSystem();
  REVERB_ASSIGN_OR_RETURN(const std::string found, FindCheckpoint(fs, from));
  REVERB_ASSIGN_OR_RETURN(const CheckpointFormat format, internal::DetectCheckpointFormat(fs, found));
  if (format != CheckpointFormat::kReverb) {
    return Status::InvalidArgument("\"" + found +
                                   "\" is a checkpoint of dm-reverb, a folder that needs no other files; "
                                   "copy it as it is, or convert it with `reverb checkpoint import`");
  }
  const auto verify = [](const std::string& path) -> Status {
    REVERB_ASSIGN_OR_RETURN(const CheckpointReader copied, CheckpointReader::Open(path));
    return copied.Verify();
  };
  return internal::CopyCheckpointFiles(fs, found, to, verify, progress);
}

}  // namespace reverb
