#include "checkpoint/reverb_source.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/mutex.h"
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
  RecordReader records(fs_, path_, &manifest_.segments);
  for (const ManifestTable& table : manifest_.tables) {
    server_.tables.push_back(table.saved);
    REVERB_ASSIGN_OR_RETURN(const std::string_view bytes, records.Read(table.state));
    if (Status status = DecodeTableState(bytes, &server_.tables.back().state); !status.ok()) {
      return Status::DataLoss("checkpoint \"" + path_ + "\" is damaged: table \"" + table.saved.name +
                              "\": " + std::string(status.message()))
          .WithDetail(Detail::kCorruptData);
    }
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

bool ReverbSource::MayLeaveOut(const std::vector<bool>& wanted_tables) const {
  return !std::ranges::all_of(wanted_tables, std::identity()) ||
         std::ranges::any_of(manifest_.segments, [](const SavedSegment& segment) {
           return segment.kind == SegmentKind::kChunks && segment.live_count < segment.count;
         });
}

Result<std::vector<bool>> ReverbSource::ChunksOf(const SavedSegment& segment, bool are_needed) const {
  // A record takes more than a byte, so a wrong count cannot allocate much memory.
  if (segment.count > segment.file_bytes) {
    return UnknownChunk({segment.number, static_cast<uint32_t>(segment.count - 1)});
  }
  return std::vector<bool>(segment.count, are_needed);
}

Result<std::vector<std::vector<bool>>> ReverbSource::FindNeeded(
    const std::vector<bool>& wanted_tables, const std::function<void(uint64_t)>& progress) {
  std::vector<std::vector<bool>> needed(manifest_.segments.size());
  REVERB_RETURN_IF_ERROR(ForEachItem(
      wanted_tables,
      [&](size_t, PageItem& item) {
        for (const ChunkPlace& place : item.chunks) {
          const auto index = FindSegment(place);
          if (!index) return UnknownChunk(place);
          std::vector<bool>& bits = needed[*index];
          if (bits.empty()) {
            REVERB_ASSIGN_OR_RETURN(bits, ChunksOf(manifest_.segments[*index], false));
          }
          bits[place.ordinal] = true;
        }
        return Status::Ok();
      },
      progress));
  return needed;
}

Status ReverbSource::Read(ChunkStore& store, const std::vector<bool>& wanted, const AddItem& add,
                          const CheckpointProgressCallback& progress) {
  const bool may_leave_out = MayLeaveOut(wanted);
  CheckpointProgress done;
  for (const SavedSegment& segment : manifest_.segments) {
    if (segment.kind == SegmentKind::kChunks) done.bytes_total += segment.file_bytes;
  }
  for (size_t t = 0; t < manifest_.tables.size(); ++t) {
    if (!wanted[t]) continue;
    for (const RecordPlace& page : manifest_.tables[t].pages) {
      done.bytes_total += (may_leave_out ? 2 : 1) * page.size;
    }
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
      wanted,
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
        return add(table, std::move(item.item));
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

class ReverbSource::Cursor final : public ItemCursor {
 public:
  Cursor(const ReverbSource* source, size_t index)
      : source_(*source),
        table_(source->manifest_.tables[index]),
        records_(source->fs_, source->path_, &source->manifest_.segments) {}

  Result<std::optional<SavedItem>> Next() override {
    while (next_ == items_.size()) {
      if (page_ == table_.pages.size()) return std::optional<SavedItem>();
      REVERB_RETURN_IF_ERROR(ReadPage());
    }
    PageItem& page_item = items_[next_++];
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
  // Consecutive items share chunks, which are cached.
  static constexpr size_t kCachedChunks = 1024;

  Status ReadPage() {
    items_.clear();
    next_ = 0;
    REVERB_ASSIGN_OR_RETURN(const std::string_view bytes, records_.Read(table_.pages[page_]));
    const uint64_t first = page_ * source_.manifest_.slots_per_page;
    const uint64_t end = std::min(first + source_.manifest_.slots_per_page, table_.saved.state.num_slots);
    ++page_;
    return DecodePage(bytes, first, end, [&](PageItem& item) {
      PageItem& kept = items_.emplace_back();
      kept.item = std::move(item.item);
      kept.chunks = item.chunks;
      kept.num_columns = item.num_columns;
      kept.columns.assign(item.columns.begin(),
                          item.columns.begin() + static_cast<ptrdiff_t>(item.num_columns));
      return Status::Ok();
    });
  }

  Result<ChunkRef> GetChunk(const ChunkPlace& place) {
    const PlaceKey key{place.segment, place.ordinal};
    if (const auto cached = cache_.find(key); cached != cache_.end()) return cached->second;
    auto mapped = segments_.find(place.segment);
    if (mapped == segments_.end()) {
      const auto index = source_.segment_index_.find(place.segment);
      if (index == source_.segment_index_.end()) return source_.UnknownChunk(place);
      REVERB_ASSIGN_OR_RETURN(
          std::unique_ptr<MappedChunks> opened,
          MappedChunks::Open(source_.fs_, source_.path_, source_.manifest_.segments[index->second]));
      mapped = segments_.emplace(place.segment, std::move(opened)).first;
    }
    REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, mapped->second->Get(place.ordinal));
    if (order_.size() >= kCachedChunks) {
      cache_.erase(order_.front());
      order_.pop_front();
    }
    cache_.emplace(key, chunk);
    order_.push_back(key);
    return chunk;
  }

  const ReverbSource& source_;
  const ManifestTable& table_;
  RecordReader records_;
  size_t page_ = 0;
  std::vector<PageItem> items_;  // of the current page
  size_t next_ = 0;
  std::vector<ChunkRef> item_chunks_;
  std::map<uint64_t, std::unique_ptr<MappedChunks>> segments_;
  std::map<PlaceKey, ChunkRef> cache_;
  std::list<PlaceKey> order_;  // of the cached chunks, oldest first
};

std::unique_ptr<ItemCursor> ReverbSource::OpenItems(size_t index) const {
  return std::make_unique<Cursor>(this, index);
}

}  // namespace reverb::internal
