#include "checkpoint/reverb_source.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "base/random.h"
#include "checkpoint/chunk_loader.h"

namespace reverb::internal {
namespace {

// Creates the trajectory of an item from its chunks, given in the order of item.chunks.
Result<Trajectory> MakeTrajectory(const PageItem& item, std::span<const ChunkRef> chunks) {
  if (item.num_columns == 1 && item.columns[0].slices.size() == 1 &&
      item.columns[0].slices[0].chunk_column == 0) {
    const PageSlice& slice = item.columns[0].slices[0];
    return Trajectory::Single(chunks[slice.chunk], slice.offset, slice.length, item.columns[0].squeeze);
  }
  std::vector<ColumnSpec> columns(item.num_columns);
  for (size_t c = 0; c < item.num_columns; ++c) {
    columns[c].squeeze = item.columns[c].squeeze;
    columns[c].slices.reserve(item.columns[c].slices.size());
    for (const PageSlice& slice : item.columns[c].slices) {
      columns[c].slices.push_back({chunks[slice.chunk], slice.chunk_column, slice.offset, slice.length});
    }
  }
  return Trajectory::Create(columns);
}

bool WantsAll(const WantedTables& wanted) {
  return std::ranges::all_of(wanted.tables, std::identity()) &&
         std::ranges::all_of(wanted.row_tables, std::identity());
}

Status AsDataLoss(const std::string& path, uint64_t key, const Status& status) {
  return Status::DataLoss("checkpoint \"" + path + "\" is damaged: item " + std::to_string(key) + ": " +
                          std::string(status.message()))
      .WithDetail(Detail::kCorruptData);
}

}  // namespace

Result<std::unique_ptr<ReverbSource>> ReverbSource::Open(FileSystem* fs, const std::string& path) {
  REVERB_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(fs, path));
  for (const SavedSegment& segment : manifest.segments) {
    REVERB_RETURN_IF_ERROR(OpenSegment(fs, path, segment).status());
  }
  std::unique_ptr<ReverbSource> source(new ReverbSource(fs, path, std::move(manifest)));
  for (uint32_t i = 0; i < source->manifest_.segments.size(); ++i) {
    const SavedSegment& segment = source->manifest_.segments[i];
    if (segment.kind == SegmentKind::kChunks) source->segment_index_.emplace(segment.number, i);
  }
  REVERB_RETURN_IF_ERROR(source->ReadStates());
  return source;
}

Status ReverbSource::ReadStates() {
  server_.format = "reverb " + std::to_string(manifest_.version);
  server_.created_nanos = manifest_.created_nanos;
  server_.writers = manifest_.writers;
  server_.shard = manifest_.shard;
  REVERB_RETURN_IF_ERROR(CheckSizes());
  RecordReader records(fs_, path_, &manifest_.segments);
  for (const ManifestTable& table : manifest_.tables) {
    server_.tables.push_back(table.saved);
    REVERB_ASSIGN_OR_RETURN(const std::string_view bytes, records.Read(table.state));
    if (Status status = DecodeTableState(bytes, &server_.tables.back().state); !status.ok()) {
      return Status::DataLoss("checkpoint \"" + path_ + "\" is damaged: table \"" + table.saved.name +
                              "\": " + std::string(status.message()))
          .WithDetail(Detail::kCorruptData);
    }
    // Slots are allocated before the items are read. The state lists the free ones, so the files hold all of them.
    const uint64_t listed =
        static_cast<uint64_t>(table.saved.size) + server_.tables.back().state.free_slots.size();
    if (listed != table.saved.state.num_slots) {
      return Status::DataLoss("checkpoint \"" + path_ + "\" is damaged: table \"" + table.saved.name +
                              "\" has " + std::to_string(table.saved.state.num_slots) + " slots, but " +
                              std::to_string(table.saved.size) + " items and " +
                              std::to_string(server_.tables.back().state.free_slots.size()) + " free slots")
          .WithDetail(Detail::kCorruptData);
    }
  }
  return ReadRowStates();
}

Status ReverbSource::CheckSizes() const {
  uint64_t page_bytes_left = 0;
  for (const SavedSegment& segment : manifest_.segments) {
    const std::string path = SegmentPath(path_, segment.number, segment.kind);
    const Result<uint64_t> size = fs_->FileSize(path);
    if (!size.ok()) continue;  // reported when it is read
    if (*size != segment.file_bytes) {
      return DamagedFile(path, "it has " + std::to_string(*size) + " bytes instead of " +
                                   std::to_string(segment.file_bytes));
    }
    if (segment.kind == SegmentKind::kPages) page_bytes_left += *size;
  }
  const auto take = [&](const std::string& table, uint64_t count, uint64_t min_bytes,
                        const std::vector<RecordPlace>& pages) {
    uint64_t bytes = 0;
    bool fits = true;
    for (const RecordPlace& page : pages) {
      fits = fits && page.size <= page_bytes_left;
      if (!fits) break;
      page_bytes_left -= page.size;
      bytes += page.size;
    }
    if (fits && count <= bytes / min_bytes) return Status::Ok();
    return DamagedFile(JoinPath(path_, kManifestName),
                       "table \"" + table + "\" has " + std::to_string(count) + " items on " +
                           std::to_string(pages.size()) + " pages, more than its files hold");
  };
  for (const ManifestTable& table : manifest_.tables) {
    REVERB_RETURN_IF_ERROR(
        take(table.saved.name, static_cast<uint64_t>(table.saved.size), kMinItemBytes, table.pages));
  }
  for (const ManifestRowTable& table : manifest_.row_tables) {
    REVERB_RETURN_IF_ERROR(take(table.name, table.rows, kMinRowBytes, table.pages));
  }
  return Status::Ok();
}

CheckpointInfo ReverbSource::Info() const {
  CheckpointInfo info;
  info.path = path_;
  info.format = server_.format;
  info.created_nanos = server_.created_nanos;
  info.num_writers = static_cast<int64_t>(server_.writers.size());
  for (const SavedSegment& segment : manifest_.segments) {
    info.file_bytes += segment.file_bytes;
    info.num_chunks += static_cast<int64_t>(segment.live_count);
    info.payload_bytes += segment.live_bytes;
  }
  return info;
}

int64_t ReverbSource::MinMemoryBytes(const WantedTables& wanted) const {
  const int64_t index_bytes = CheckpointSource::MinMemoryBytes(wanted);
  // Only the items tell which chunks belong to which table.
  if (!WantsAll(wanted)) return index_bytes;
  const CheckpointInfo info = Info();
  return index_bytes + static_cast<int64_t>(info.payload_bytes) +
         info.num_chunks * static_cast<int64_t>(sizeof(Chunk));
}

Status ReverbSource::UnknownChunk(const ChunkPlace& place) const {
  return Status::DataLoss("checkpoint \"" + path_ + "\" is damaged: an item refers to chunk " +
                          std::to_string(place.ordinal) + " of segment " + std::to_string(place.segment) +
                          ", which does not exist")
      .WithDetail(Detail::kCorruptData);
}

Status ReverbSource::ForEachItem(const std::vector<bool>& wanted,
                                 const std::function<Status(size_t table, PageItem&)>& visit,
                                 const std::function<void(uint64_t)>& progress) {
  RecordReader records(fs_, path_, &manifest_.segments);
  for (size_t t = 0; t < manifest_.tables.size(); ++t) {
    if (!wanted[t]) continue;
    const ManifestTable& table = manifest_.tables[t];
    int64_t items = 0;
    for (size_t p = 0; p < table.pages.size(); ++p) {
      REVERB_ASSIGN_OR_RETURN(const std::string_view bytes, records.Read(table.pages[p]));
      const uint64_t first = p * manifest_.slots_per_page;
      const uint64_t end = std::min(first + manifest_.slots_per_page, table.saved.state.num_slots);
      REVERB_RETURN_IF_ERROR(DecodePage(bytes, first, end, [&](PageItem& item) {
        ++items;
        return visit(t, item);
      }));
      progress(table.pages[p].size);
    }
    if (items != table.saved.size) {
      return Status::DataLoss("checkpoint \"" + path_ + "\" is damaged: table \"" + table.saved.name +
                              "\" should have " + std::to_string(table.saved.size) + " items and has " +
                              std::to_string(items))
          .WithDetail(Detail::kCorruptData);
    }
  }
  return Status::Ok();
}

std::optional<size_t> ReverbSource::FindSegment(const ChunkPlace& place) const {
  const auto found = segment_index_.find(place.segment);
  if (found == segment_index_.end() || place.ordinal >= manifest_.segments[found->second].count) {
    return std::nullopt;
  }
  return found->second;
}

bool ReverbSource::MayLeaveOut(const WantedTables& wanted_tables) const {
  return !WantsAll(wanted_tables) || std::ranges::any_of(manifest_.segments, [](const SavedSegment& segment) {
    return segment.kind == SegmentKind::kChunks && segment.live_count < segment.count;
  });
}

Result<std::vector<bool>> ReverbSource::ChunksOf(const SavedSegment& segment, bool are_needed) const {
  // The size of the file was checked, so a wrong count cannot allocate much memory.
  if (segment.count > segment.file_bytes / kChunkRecordHeadBytes) {
    return UnknownChunk({segment.number, static_cast<uint32_t>(segment.count - 1)});
  }
  return std::vector<bool>(segment.count, are_needed);
}

Result<std::vector<std::vector<bool>>> ReverbSource::FindNeeded(
    const WantedTables& wanted_tables, const std::function<void(uint64_t)>& progress) {
  std::vector<std::vector<bool>> needed(manifest_.segments.size());
  const auto mark = [&](const std::vector<ChunkPlace>& chunks) {
    for (const ChunkPlace& place : chunks) {
      const auto index = FindSegment(place);
      if (!index) return UnknownChunk(place);
      std::vector<bool>& bits = needed[*index];
      if (bits.empty()) {
        REVERB_ASSIGN_OR_RETURN(bits, ChunksOf(manifest_.segments[*index], false));
      }
      bits[place.ordinal] = true;
    }
    return Status::Ok();
  };
  REVERB_RETURN_IF_ERROR(ForEachItem(
      wanted_tables.tables, [&](size_t, PageItem& item) { return mark(item.chunks); }, progress));
  REVERB_RETURN_IF_ERROR(ForEachRow(
      wanted_tables.row_tables, [&](size_t, PageRow& row) { return mark(row.chunks); }, progress));
  return needed;
}

Status ReverbSource::Read(ChunkStore& store, const WantedTables& wanted, const Sink& sink,
                          const CheckpointProgressCallback& progress) {
  const bool may_leave_out = MayLeaveOut(wanted);
  CheckpointProgress done;
  for (const SavedSegment& segment : manifest_.segments) {
    if (segment.kind == SegmentKind::kChunks) done.bytes_total += segment.file_bytes;
  }
  const auto count_pages = [&](const std::vector<RecordPlace>& pages) {
    for (const RecordPlace& page : pages) done.bytes_total += (may_leave_out ? 2 : 1) * page.size;
  };
  for (size_t t = 0; t < manifest_.tables.size(); ++t) {
    if (wanted.tables[t]) count_pages(manifest_.tables[t].pages);
  }
  for (size_t t = 0; t < wanted.row_tables.size(); ++t) {
    if (wanted.row_tables[t]) count_pages(manifest_.row_tables[t].pages);
  }
  Mutex mu;  // chunks are loaded on two threads
  const auto advance = [&](uint64_t bytes) {
    MutexLock lock(&mu);
    done.bytes_done += bytes;
    if (progress) progress(done);
  };

  std::vector<std::vector<bool>> needed(manifest_.segments.size());
  if (may_leave_out) {
    REVERB_ASSIGN_OR_RETURN(needed, FindNeeded(wanted, advance));
  } else {
    for (size_t i = 0; i < manifest_.segments.size(); ++i) {
      const SavedSegment& segment = manifest_.segments[i];
      if (segment.kind != SegmentKind::kChunks) continue;
      REVERB_ASSIGN_OR_RETURN(needed[i], ChunksOf(segment, true));
    }
  }
  REVERB_ASSIGN_OR_RETURN(
      const std::unique_ptr<ChunkLoader> chunks,
      ChunkLoader::Start(fs_, path_, manifest_.segments, std::move(needed), &store, advance));

  // Neighbours are mostly in the same segment.
  uint64_t last_number = UINT64_MAX;
  uint64_t last_count = 0;
  size_t last_index = 0;
  const auto get_chunk = [&](const ChunkPlace& place) -> Result<const ChunkRef*> {
    if (place.segment != last_number || place.ordinal >= last_count) {
      const auto found = FindSegment(place);
      if (!found) return UnknownChunk(place);
      last_number = place.segment;
      last_count = manifest_.segments[*found].count;
      last_index = *found;
    }
    return chunks->Get(last_index, place.ordinal);
  };
  std::vector<ChunkRef> item_chunks;
  REVERB_RETURN_IF_ERROR(ForEachItem(
      wanted.tables,
      [&](size_t table, PageItem& item) {
        item_chunks.clear();
        std::span<const ChunkRef> at_hand;
        if (item.chunks.size() == 1) {  // without counting it twice
          REVERB_ASSIGN_OR_RETURN(const ChunkRef* chunk, get_chunk(item.chunks[0]));
          at_hand = {chunk, 1};
        } else {
          for (const ChunkPlace& place : item.chunks) {
            REVERB_ASSIGN_OR_RETURN(const ChunkRef* chunk, get_chunk(place));
            item_chunks.push_back(*chunk);
          }
          at_hand = item_chunks;
        }
        Result<Trajectory> trajectory = MakeTrajectory(item, at_hand);
        if (!trajectory.ok()) return AsDataLoss(path_, item.item.key, trajectory.status());
        item.item.trajectory = *std::move(trajectory);
        return sink.add_item(table, std::move(item.item));
      },
      advance));
  REVERB_RETURN_IF_ERROR(ForEachRow(
      wanted.row_tables,
      [&](size_t table, PageRow& row) {
        for (size_t i = 0; i < row.chunks.size(); ++i) {
          REVERB_ASSIGN_OR_RETURN(const ChunkRef* chunk, get_chunk(row.chunks[i]));
          row.row.parts[i].chunk = *chunk;
        }
        return sink.add_row(table, std::move(row.row));
      },
      advance));
  REVERB_RETURN_IF_ERROR(chunks->Finish());

  for (size_t i = 0; i < manifest_.segments.size(); ++i) {
    const std::vector<ChunkRef>& of_segment = chunks->chunks(i);
    if (of_segment.empty()) continue;
    LoadedSegment loaded{.segment = manifest_.segments[i], .chunk_ids = {}};
    loaded.chunk_ids.reserve(of_segment.size());
    for (const ChunkRef& chunk : of_segment) loaded.chunk_ids.push_back(chunk ? chunk->id() : 0);
    loaded_.push_back(std::move(loaded));
  }
  return Status::Ok();
}

// --- One by one ---

// Items pass through three places: the window, from which they are drawn (in order, or at random if there is a
// shuffle window), then `ahead_`, where their chunks are requested from the disk, then the caller.
class ReverbSource::Cursor final : public ItemCursor {
 public:
  Cursor(const ReverbSource* source, size_t index, const CheckpointReadOptions& options)
      : source_(*source),
        table_(source->manifest_.tables[index]),
        columns_(options.columns),
        window_size_(static_cast<size_t>(std::max<int64_t>(options.shuffle_window, 0))),
        random_(window_size_ == 0 ? 0
                : options.seed    ? *options.seed
                                  : EntropySeed()),
        records_(source->fs_, source->path_, &source->manifest_.segments) {
    page_order_.resize(table_.pages.size());
    std::iota(page_order_.begin(), page_order_.end(), uint32_t{0});
    if (window_size_ == 0) return;
    for (size_t i = page_order_.size(); i > 1; --i) {
      std::swap(page_order_[i - 1], page_order_[random_.Below(i)]);
    }
    double items = 1;
    for (const ManifestTable& table : source_.manifest_.tables)
      items += static_cast<double>(table.saved.size);
    const double item_bytes = static_cast<double>(source_.Info().payload_bytes) / items;
    requests_pages_ = item_bytes * static_cast<double>(window_size_) <= kWindowBytes;
    request_bytes_ = requests_pages_ ? kRequestBytesShuffled : kRequestBytesApart;
  }
  ~Cursor() override { ForgetPages(); }
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  Result<std::optional<SavedItem>> Next() override {
    REVERB_RETURN_IF_ERROR(LookAhead());
    if (ahead_.empty()) return std::optional<SavedItem>();
    Ahead next = std::move(ahead_.front());
    ahead_.pop_front();
    ahead_bytes_ -= next.bytes;
    PageItem& page_item = next.item;
    item_chunks_.clear();
    for (const ChunkPlace& place : page_item.chunks) {
      REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, GetChunk(place));
      item_chunks_.push_back(std::move(chunk));
    }
    Result<Trajectory> trajectory = MakeTrajectory(page_item, item_chunks_);
    if (!trajectory.ok()) return AsDataLoss(source_.path_, page_item.item.key, trajectory.status());
    page_item.item.trajectory = *std::move(trajectory);
    return std::optional<SavedItem>(std::move(page_item.item));
  }

 private:
  using PlaceKey = std::pair<uint64_t, uint32_t>;
  struct Ahead {
    PageItem item;
    size_t bytes = 0;  // of the chunks that it was the first to need
  };
  // Consecutive items share chunks, which are cached. A chunk takes little memory besides the mapped file.
  static constexpr size_t kCachedChunks = 1024;
  static constexpr size_t kCachedChunksShuffled = 16384;
  // What is requested from the disk before it is needed.
  static constexpr size_t kBytesAhead = size_t{16} << 20;
  static constexpr size_t kItemsAhead = 1024;
  // What is requested at once. Neighbours in the table are mostly neighbours in the file; in random order,
  // only if the whole window fits into so much memory of the system.
  static constexpr size_t kRequestBytes = size_t{2} << 20;
  static constexpr size_t kRequestBytesShuffled = size_t{256} << 10;
  static constexpr size_t kRequestBytesApart = size_t{16} << 10;
  static constexpr double kWindowBytes = double{256 << 20};
  static constexpr size_t kRequestsKnown = 65536;
  // The pages of the files that this process may have in its memory.
  static constexpr size_t kMappedBytes = size_t{64} << 20;

  Status LookAhead() {
    while (ahead_.empty() || (ahead_bytes_ < kBytesAhead && ahead_.size() < kItemsAhead)) {
      REVERB_ASSIGN_OR_RETURN(std::optional<PageItem> item, Draw());
      if (!item) break;
      Ahead& next = ahead_.emplace_back(Ahead{.item = *std::move(item)});
      for (const ChunkPlace& place : next.item.chunks) {
        const PlaceKey key{place.segment, place.ordinal};
        if (key == last_seen_) continue;
        last_seen_ = key;
        REVERB_ASSIGN_OR_RETURN(const size_t bytes, Request(place));
        next.bytes += bytes;
      }
      ahead_bytes_ += next.bytes;
    }
    return Status::Ok();
  }

  // Requests a chunk from the disk, with its neighbours, unless that was done. Returns its size.
  Result<size_t> Request(const ChunkPlace& place) {
    REVERB_ASSIGN_OR_RETURN(const MappedChunks* chunks, GetSegment(place));
    const std::span<const uint8_t> all = chunks->bytes();
    const std::span<const uint8_t> record = chunks->Record(place.ordinal);
    const auto begin = static_cast<size_t>(record.data() - all.data());
    const size_t end = begin + record.size();
    for (size_t part = begin / request_bytes_; !record.empty() && part * request_bytes_ < end; ++part) {
      if (requested_.size() >= kRequestsKnown) requested_.clear();
      if (!requested_.emplace(place.segment, part).second) continue;
      const size_t first = part * request_bytes_;
      source_.fs_->Advise(all.subspan(first, std::min(request_bytes_, all.size() - first)),
                          FileSystem::MapAdvice::kNeededSoon);
    }
    return record.size();
  }
  void ForgetPages() {
    for (const auto& [number, chunks] : segments_) {
      source_.fs_->Advise(chunks->bytes(), FileSystem::MapAdvice::kNotNeeded);
    }
    mapped_bytes_ = 0;
  }

  Result<std::optional<PageItem>> Draw() {
    const size_t least = std::max<size_t>(window_size_, 1);
    while (window_.size() - next_ < least && page_ < page_order_.size()) REVERB_RETURN_IF_ERROR(ReadPage());
    if (next_ == window_.size()) return std::optional<PageItem>();
    if (window_size_ == 0) return std::optional<PageItem>(std::move(window_[next_++]));
    std::swap(window_[random_.Below(window_.size())], window_.back());
    PageItem item = std::move(window_.back());
    window_.pop_back();
    return std::optional<PageItem>(std::move(item));
  }

  Status ReadPage() {
    if (next_ == window_.size()) {
      window_.clear();
      next_ = 0;
    }
    const uint32_t page = page_order_[page_];
    REVERB_ASSIGN_OR_RETURN(const std::string_view bytes, records_.Read(table_.pages[page]));
    const uint64_t first = page * source_.manifest_.slots_per_page;
    const uint64_t end = std::min(first + source_.manifest_.slots_per_page, table_.saved.state.num_slots);
    ++page_;
    return DecodePage(bytes, first, end, [&](PageItem& item) {
      PageItem& kept = window_.emplace_back();
      kept.item = std::move(item.item);
      kept.chunks = item.chunks;
      kept.num_columns = item.num_columns;
      kept.columns.assign(item.columns.begin(),
                          item.columns.begin() + static_cast<ptrdiff_t>(item.num_columns));
      if (!columns_.empty()) REVERB_RETURN_IF_ERROR(SelectColumns(&kept));
      if (!requests_pages_) return Status::Ok();
      for (const ChunkPlace& place : kept.chunks) REVERB_RETURN_IF_ERROR(Request(place).status());
      return Status::Ok();
    });
  }

  // Keeps the columns that were asked for, and only the chunks that they need.
  Status SelectColumns(PageItem* item) const {
    std::vector<PageColumn> columns;
    for (const uint32_t column : columns_) {
      if (column >= item->num_columns) {
        return Status::InvalidArgument("item " + std::to_string(item->item.key) + " of table \"" +
                                       table_.saved.name + "\" has " + std::to_string(item->num_columns) +
                                       " columns; there is no column " + std::to_string(column));
      }
      columns.push_back(item->columns[column]);
    }
    std::vector<ChunkPlace> chunks;
    std::map<uint64_t, uint32_t> kept;  // old index to new index
    for (PageColumn& column : columns) {
      for (PageSlice& slice : column.slices) {
        const auto [at, is_new] = kept.try_emplace(slice.chunk, static_cast<uint32_t>(chunks.size()));
        if (is_new) chunks.push_back(item->chunks[slice.chunk]);
        slice.chunk = at->second;
      }
    }
    item->columns = std::move(columns);
    item->num_columns = item->columns.size();
    item->chunks = std::move(chunks);
    return Status::Ok();
  }

  Result<const MappedChunks*> GetSegment(const ChunkPlace& place) {
    auto mapped = segments_.find(place.segment);
    if (mapped == segments_.end()) {
      const auto index = source_.segment_index_.find(place.segment);
      if (index == source_.segment_index_.end()) return source_.UnknownChunk(place);
      REVERB_ASSIGN_OR_RETURN(
          std::unique_ptr<MappedChunks> opened,
          MappedChunks::Open(source_.fs_, source_.path_, source_.manifest_.segments[index->second]));
      mapped = segments_.emplace(place.segment, std::move(opened)).first;
    }
    return mapped->second.get();
  }

  Result<ChunkRef> GetChunk(const ChunkPlace& place) {
    const PlaceKey key{place.segment, place.ordinal};
    if (const auto cached = cache_.find(key); cached != cache_.end()) return cached->second;
    REVERB_ASSIGN_OR_RETURN(const MappedChunks* chunks, GetSegment(place));
    mapped_bytes_ += chunks->Record(place.ordinal).size();
    if (mapped_bytes_ >= kMappedBytes) ForgetPages();
    REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, chunks->Get(place.ordinal));
    if (order_.size() >= (window_size_ == 0 ? kCachedChunks : kCachedChunksShuffled)) {
      cache_.erase(order_.front());
      order_.pop_front();
    }
    cache_.emplace(key, chunk);
    order_.push_back(key);
    return chunk;
  }

  const ReverbSource& source_;
  const ManifestTable& table_;
  const std::vector<uint32_t> columns_;  // empty: all
  const size_t window_size_;             // 0: in order
  Random random_;
  RecordReader records_;
  std::vector<uint32_t> page_order_;
  size_t page_ = 0;  // into page_order_
  std::vector<PageItem> window_;
  size_t next_ = 0;  // into window_; 0 when shuffling
  std::deque<Ahead> ahead_;
  size_t ahead_bytes_ = 0;
  PlaceKey last_seen_{UINT64_MAX, 0};
  size_t request_bytes_ = kRequestBytes;
  bool requests_pages_ = false;  // as soon as a page enters the window
  absl::flat_hash_set<std::pair<uint64_t, size_t>> requested_;
  size_t mapped_bytes_ = 0;  // read since ForgetPages()
  std::vector<ChunkRef> item_chunks_;
  std::map<uint64_t, std::unique_ptr<MappedChunks>> segments_;
  absl::flat_hash_map<PlaceKey, ChunkRef> cache_;
  std::deque<PlaceKey> order_;  // of the cached chunks, oldest first
};

std::unique_ptr<ItemCursor> ReverbSource::OpenItems(size_t index,
                                                    const CheckpointReadOptions& options) const {
  return std::make_unique<Cursor>(this, index, options);
}

}  // namespace reverb::internal
