#include "checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "checkpoint/row_format.h"

namespace reverb::internal {
namespace {

constexpr std::chrono::seconds kProgressInterval(10);

// Return the memory of a container.
template <typename Map>
int64_t MapBytes(const Map& map) {
  return static_cast<int64_t>(map.capacity() * (sizeof(typename Map::value_type) + 1));
}
template <typename T>
int64_t BytesOf(const std::vector<T>& items) {
  return static_cast<int64_t>(items.capacity() * sizeof(T));
}

SavedTable DescribeTable(const TableSnapshot& table) {
  const TableSnapshot::State& state = table.state();
  SavedTable saved{state, state.size};
  saved.state.counters = state.counters;
  saved.state.counts = state.counts;
  saved.state.sequence = state.sequence;
  saved.state.num_slots = table.num_slots();
  return saved;
}

}  // namespace

struct CheckpointWriter::Attempt {
  explicit Attempt(MemoryBudget* budget) : charge(budget, MemoryPart::kIndex) {}

  Stats stats;
  Manifest manifest;
  std::string path;             // of the checkpoint, once its folder may exist
  bool manifest_named = false;  // the manifest may have been renamed into place
  // A segment that this checkpoint adds.
  struct NewSegment {
    std::unique_ptr<SegmentWriter> writer;    // null: of the disk tier
    std::shared_ptr<const PayloadFile> file;  // of the disk tier
    std::string path;
    uint64_t live_bytes = 0;  // of chunks
    uint32_t live_count = 0;
    std::vector<uint32_t> payload_sizes = {};  // by ordinal

    uint64_t number() const { return writer != nullptr ? writer->number() : file->number; }
    SegmentKind kind() const { return writer != nullptr ? writer->kind() : SegmentKind::kChunks; }
    SavedSegment Describe() const {
      return {.number = number(),
              .kind = kind(),
              .file_bytes = writer != nullptr ? writer->bytes() : file->bytes,
              .count = writer != nullptr ? writer->count() : file->count,
              .live_count = live_count,
              .live_bytes = live_bytes};
    }
    void Add(uint32_t ordinal, uint32_t payload_size) {
      if (ordinal >= payload_sizes.size()) payload_sizes.resize(ordinal + 1);
      payload_sizes[ordinal] = payload_size;
      live_bytes += payload_size;
      ++live_count;
    }
  };
  std::vector<NewSegment> added;
  SegmentWriter* chunks = nullptr;  // being filled, of `added`
  uint32_t chunks_index = 0;
  SegmentWriter* pages = nullptr;
  // By number of a segment of the disk tier: its index in `added`; absent if the segment cannot be used.
  std::map<uint64_t, std::optional<uint32_t>> links;
  // New places, by index into `added`.
  absl::flat_hash_map<uint64_t, Place> places;
  std::vector<std::shared_ptr<std::vector<Place>>> fresh_pages;
  std::map<uint64_t, std::vector<Page>> page_table;
  std::set<uint64_t> victim_pages;  // page files to be emptied
  PageEncoder encoder;
  std::vector<ChunkPlace> item_places;
  absl::flat_hash_map<const Chunk*, ChunkRef>
      fetched;                                        // by tiered chunk: its data, read for the current page
  absl::flat_hash_map<uint64_t, Status> lost_chunks;  // by id: why their data on disk cannot be read
  Status loss;                                        // the first of them that an item needs
  int64_t fresh_page_bytes = 0;                       // of fresh_pages
  MemoryCharge charge;
  std::chrono::steady_clock::time_point next_progress = std::chrono::steady_clock::now() + kProgressInterval;

  // Logs how far a long write has come.
  void LogProgress(const std::string& root) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_progress) return;
    next_progress = now + kProgressInterval;
    uint64_t bytes = 0;
    for (const NewSegment& segment : added) bytes += segment.writer != nullptr ? segment.writer->bytes() : 0;
    Log(LogLevel::kInfo,
        "writing a checkpoint under \"" + root + "\": " + std::to_string(bytes / 1'000'000) + " MB so far",
        {{"event", "progress"}, {"path", root}, {"bytes", static_cast<int64_t>(bytes)}});
  }

  // Charges what the attempt will leave in the writer's memory.
  void ChargeMemory() {
    int64_t bytes = MapBytes(places) + fresh_page_bytes;
    for (const NewSegment& segment : added) bytes += BytesOf(segment.payload_sizes);
    charge.Set(bytes);
  }

  void AddWriter(std::unique_ptr<SegmentWriter> writer) {
    std::string written_path = writer->path();
    added.push_back({.writer = std::move(writer), .file = nullptr, .path = std::move(written_path)});
  }
};

CheckpointWriter::CheckpointWriter(FileSystem* fs, Options options)
    : fs_(fs),
      options_(std::move(options)),
      segments_path_(JoinPath(options_.root, kSegmentsName)),
      charge_(options_.budget, MemoryPart::kIndex) {}
CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::Adopt(std::string path, std::vector<LoadedSegment> segments) {
  last_path_ = std::move(path);
  for (LoadedSegment& loaded : segments) {
    auto segment = std::make_unique<Segment>();
    segment->saved = loaded.segment;
    segment->payload_sizes.resize(loaded.chunk_ids.size());
    const auto index = static_cast<uint32_t>(segments_.size());
    places_.reserve(places_.size() + loaded.segment.live_count);
    for (size_t ordinal = 0; ordinal < loaded.chunk_ids.size(); ++ordinal) {
      if (loaded.chunk_ids[ordinal] == 0) continue;
      places_.emplace(loaded.chunk_ids[ordinal], Place{index, static_cast<uint32_t>(ordinal)});
    }
    segments_.push_back(std::move(segment));
  }
  ChargeMemory();
}

void CheckpointWriter::ChargeMemory() {
  int64_t bytes = MapBytes(places_);
  for (const auto& segment : segments_) {
    if (segment != nullptr)
      bytes += BytesOf(segment->payload_sizes) + static_cast<int64_t>(segment->is_live.capacity() / 8);
  }
  for (const auto& [instance, pages] : pages_) {
    bytes += BytesOf(pages);
    for (const Page& page : pages) bytes += BytesOf(*page.chunks);
  }
  charge_.Set(bytes);
}

Result<CheckpointWriter::Stats> CheckpointWriter::Write(const Snapshot& snapshot,
                                                        std::vector<SavedWriter> writers,
                                                        int64_t wall_nanos) {
  lost_items_.clear();
  REVERB_RETURN_IF_ERROR(PrepareRoot());
  const Result<std::unique_ptr<FileLock>> lock =
      fs_->LockFile(JoinPath(segments_path_, kLockName), options_.lock_timeout);
  if (lock.status().code() == StatusCode::kDeadlineExceeded) {
    // Independent of the caller's deadline, which may be absent.
    return Status(StatusCode::kAborted, std::string(lock.status().message()) +
                                            "; one checkpoint is written under a path at a time: give each "
                                            "server a path of its own, or try again later");
  }
  // On file systems without locks, each server needs its own root.
  if (!lock.ok() && lock.status().code() != StatusCode::kUnimplemented) return lock.status();
  REVERB_RETURN_IF_ERROR(LookAtRoot());
  Attempt attempt(options_.budget);
  attempt.manifest.writers = std::move(writers);
  attempt.manifest.shard = options_.shard;
  MarkLive(snapshot);
  attempt.victim_pages = FindLostFiles();
  ChooseVictims();
  attempt.victim_pages.merge(ChooseVictimPages(snapshot));
  Status status = WriteTables(snapshot, &attempt);
  if (status.ok()) status = MakeDurable(&attempt);
  if (status.ok()) status = Publish(&attempt, wall_nanos);
  if (!status.ok()) {
    Undo(&attempt);
    return status;
  }
  Commit(&attempt);
  attempt.charge.Set(0);
  ChargeMemory();
  CollectGarbage(attempt.manifest, attempt.path);
  attempt.stats.path = attempt.path;
  return std::move(attempt.stats);
}

Status CheckpointWriter::PrepareRoot() {
  if (is_prepared_) {
    REVERB_ASSIGN_OR_RETURN(const bool is_there, fs_->FileExists(segments_path_));
    if (is_there) return Status::Ok();
  }
  REVERB_RETURN_IF_ERROR(CreateDurableDir(fs_, segments_path_));
  is_prepared_ = true;
  return Status::Ok();
}

Status CheckpointWriter::LookAtRoot() {
  // Numbers are never reused, whatever files other writers left behind.
  REVERB_ASSIGN_OR_RETURN(const std::vector<std::string> files, fs_->ListDir(segments_path_));
  for (const std::string& file : files) {
    if (const auto segment = ParseSegmentFileName(file);
        segment && (segment->number & kTierSegmentBit) == 0) {
      next_number_ = std::max(next_number_, segment->number + 1);
    }
  }
  REVERB_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(fs_, options_.root));
  for (const CheckpointEntry& entry : entries) last_nanos_ = std::max(last_nanos_, entry.created_nanos);
  if (last_path_.empty()) return Status::Ok();
  // The files of a checkpoint that another process removed may be gone.
  REVERB_ASSIGN_OR_RETURN(const bool is_there, fs_->FileExists(JoinPath(last_path_, kManifestName)));
  if (!is_there) {
    Log(LogLevel::kWarning,
        "checkpoint \"" + last_path_ +
            "\", the base of the next checkpoint, was removed by another process; the next one is written "
            "in full. Give each server its own checkpoint path");
    ForgetLast();
  }
  return Status::Ok();
}

void CheckpointWriter::ForgetLast() {
  last_path_.clear();
  segments_.clear();
  places_.clear();
  pages_.clear();
  page_file_bytes_.clear();
  ChargeMemory();
}

Status CheckpointWriter::WriteTables(const Snapshot& snapshot, Attempt* attempt) {
  for (const auto& table : snapshot.tables) REVERB_RETURN_IF_ERROR(WriteTable(*table, attempt));
  for (const auto& table : snapshot.row_tables) REVERB_RETURN_IF_ERROR(WriteRowTable(*table, attempt));
  return std::exchange(attempt->loss, Status::Ok());
}

// Writes the records of all rows: they are small beside the data, of which only new chunks are written.
Status CheckpointWriter::WriteRowTable(const RowTableSnapshot& table, Attempt* attempt) {
  ManifestRowTable& to = attempt->manifest.row_tables.emplace_back();
  to.name = table.table().settings.name;
  to.rows = table.num_rows();
  REVERB_ASSIGN_OR_RETURN(SegmentWriter * writer, PageWriter(attempt));
  absl::flat_hash_map<std::string, uint16_t> numbers;
  for (const std::string& name : table.table().names)
    numbers.emplace(name, static_cast<uint16_t>(numbers.size()));
  std::string bytes;
  std::vector<uint16_t> tag_names;
  uint32_t next_slot = 0;
  for (size_t i = 0; i < table.num_rows(); ++i) {
    const SavedRow row = table.row(i);
    tag_names.clear();
    for (const RowTag& tag : row.tags) tag_names.push_back(numbers.at(tag.name));
    attempt->item_places.clear();
    for (const SavedRowPart& part : row.parts) {
      REVERB_ASSIGN_OR_RETURN(const Place place, WriteChunk(*part.chunk, attempt));
      attempt->item_places.push_back(NameOf(place, *attempt));
    }
    EncodeSavedRow(row, next_slot, tag_names, attempt->item_places, &bytes);
    next_slot = row.slot + 1;
    if ((i + 1) % kRowsPerPage != 0 && i + 1 < table.num_rows()) continue;
    REVERB_ASSIGN_OR_RETURN(const RecordPlace page, writer->AddRecord(bytes));
    to.pages.push_back(page);
    ++attempt->stats.pages_written;
    ++attempt->stats.pages_total;
    attempt->ChargeMemory();
    if (options_.release_pages) table.ReleaseThrough(i);
    bytes.clear();
    next_slot = 0;
  }
  EncodeRowTable(table.table(), &bytes);
  REVERB_ASSIGN_OR_RETURN(to.state, writer->AddRecord(bytes));
  return Status::Ok();
}

Status CheckpointWriter::WriteTable(const TableSnapshot& table, Attempt* attempt) {
  ManifestTable& to = attempt->manifest.tables.emplace_back();
  to.saved = DescribeTable(table);
  std::vector<Page>& pages = attempt->page_table[table.state().instance];
  const bool has_victims = std::ranges::any_of(
      segments_, [](const auto& segment) { return segment != nullptr && segment->is_victim; });
  const auto is_clean = [&](const Page& written) {
    if (attempt->victim_pages.contains(written.place.segment)) return false;
    return !has_victims || std::ranges::none_of(*written.chunks, [&](const Place& place) {
      return segments_[place.segment]->is_victim;
    });
  };
  for (size_t page = 0; page < table.num_pages(); ++page) {
    ++attempt->stats.pages_total;
    const Page* const written = FindUnchanged(table, page);
    if (written != nullptr && is_clean(*written)) {
      pages.push_back(*written);
    } else {
      REVERB_ASSIGN_OR_RETURN(Page fresh, WritePage(table, page, attempt));
      pages.push_back(std::move(fresh));
    }
    to.pages.push_back(pages.back().place);
    if (options_.release_pages) table.ReleasePage(page);
  }
  return WriteTableState(table, &to, attempt);
}

Result<CheckpointWriter::Page> CheckpointWriter::WritePage(const TableSnapshot& table, size_t page,
                                                           Attempt* attempt) {
  Page fresh{.version = table.slots().page_version(page), .place = {}, .chunks = nullptr};
  fresh.chunks = std::make_shared<std::vector<Place>>();
  attempt->LogProgress(options_.root);
  attempt->encoder.Begin(page * TableSnapshot::kSlotsPerPage);
  attempt->fetched.clear();
  REVERB_RETURN_IF_ERROR(FetchPage(table, page, attempt));
  Status status;
  table.ForEachItem(page, [&](size_t slot, const SlotRecord& record) {
    if (!status.ok()) return;
    attempt->item_places.clear();
    bool is_lost = false;
    Trajectory::ForEachChunk(record.trajectory, [&](const Chunk* chunk) {
      if (!status.ok()) return;
      Result<Place> place = WriteChunk(*chunk, attempt);
      if (!place.ok()) {
        status = std::move(place).status();
        is_lost = attempt->lost_chunks.contains(chunk->id());
        return;
      }
      if (fresh.chunks->empty() || fresh.chunks->back() != *place) fresh.chunks->push_back(*place);
      attempt->item_places.push_back(NameOf(*place, *attempt));
    });
    if (status.ok()) {
      attempt->encoder.Add(slot, record, attempt->item_places);
    } else if (is_lost) {
      // The attempt fails, but goes on: lost_items() has all of them.
      lost_items_.push_back({.table = table.state().name, .key = record.key});
      if (attempt->loss.ok()) attempt->loss = status;
      status = Status::Ok();
    }
  });
  REVERB_RETURN_IF_ERROR(status);
  fresh.chunks->shrink_to_fit();
  attempt->fresh_pages.push_back(fresh.chunks);
  attempt->fresh_page_bytes += static_cast<int64_t>(sizeof(Page)) + BytesOf(*fresh.chunks);
  attempt->ChargeMemory();
  REVERB_ASSIGN_OR_RETURN(SegmentWriter * writer, PageWriter(attempt));
  REVERB_ASSIGN_OR_RETURN(fresh.place, writer->AddRecord(attempt->encoder.bytes()));
  ++attempt->stats.pages_written;
  return fresh;
}

// Links the segments of the disk tier that have chunks of the page, and reads the rest of its data on disk together, at
// most kMaxFetchedBytes.
Status CheckpointWriter::FetchPage(const TableSnapshot& table, size_t page, Attempt* attempt) {
  constexpr int64_t kMaxFetchedBytes = int64_t{64} << 20;
  std::vector<ChunkRef> chunks;
  int64_t bytes = 0;
  table.ForEachItem(page, [&](size_t, const SlotRecord& record) {
    Trajectory::ForEachChunk(record.trajectory, [&](Chunk* chunk) {
      if (!chunk->is_tiered() || attempt->places.contains(chunk->id())) return;
      if (attempt->lost_chunks.contains(chunk->id())) return;
      const auto known = places_.find(chunk->id());
      if (known != places_.end() && !segments_[known->second.segment]->is_victim) return;
      if (LinkChunk(chunk, attempt) || bytes > kMaxFetchedBytes) return;
      if (!attempt->fetched.try_emplace(chunk).second) return;
      chunks.push_back(ChunkRef::Share(chunk));
      bytes += chunk->bytes();
    });
  });
  if (chunks.empty()) return Status::Ok();
  PayloadTier* const tier = chunks.front()->tiered().tier;
  std::vector<Result<ChunkRef>> fetched = tier->FetchAndWait(chunks);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (fetched[i].status().code() == StatusCode::kDataLoss) {
      attempt->fetched.erase(chunks[i].get());
      attempt->lost_chunks.emplace(chunks[i]->id(), fetched[i].status());
      continue;
    }
    REVERB_ASSIGN_OR_RETURN(attempt->fetched[chunks[i].get()], std::move(fetched[i]));
  }
  return Status::Ok();
}

bool CheckpointWriter::LinkChunk(Chunk* chunk, Attempt* attempt) {
  const PayloadPlace where = chunk->tiered().tier->FindPlace(chunk);
  if (where.file == nullptr) return false;
  const auto [link, is_new] = attempt->links.try_emplace(where.file->number);
  if (is_new) link->second = LinkFile(where, attempt);
  if (!link->second) return false;
  attempt->places.emplace(chunk->id(), Place{*link->second | kOfAttempt, where.ordinal});
  attempt->added[*link->second].Add(where.ordinal, chunk->payload_size());
  ++attempt->stats.chunks_linked;
  return true;
}

std::optional<uint32_t> CheckpointWriter::LinkFile(const PayloadPlace& where, Attempt* attempt) {
  const PayloadFile& file = *where.file;
  // The last checkpoint has it already, but its chunks are to be moved.
  for (const auto& segment : segments_) {
    if (segment != nullptr && segment->saved.number == file.number) return std::nullopt;
  }
  // The next checkpoint would compact it.
  if (static_cast<double>(where.live_bytes) < options_.compact_below * static_cast<double>(file.bytes)) {
    return std::nullopt;
  }
  std::string path = JoinPath(segments_path_, SegmentFileName(file.number, SegmentKind::kChunks));
  if (const Status status = fs_->LinkFile(file.path, path); !status.ok()) {
    if (!std::exchange(has_logged_link_, true)) {
      Log(LogLevel::kInfo,
          "checkpoints copy the data of the disk tier, because its files cannot be linked: " +
              std::string(status.message()) +
              "; with both folders in one file system, they would not copy it");
    }
    return std::nullopt;
  }
  ++attempt->stats.segments_linked;
  attempt->added.push_back({.writer = nullptr, .file = where.file, .path = std::move(path)});
  return static_cast<uint32_t>(attempt->added.size() - 1);
}

Result<ChunkRef> CheckpointWriter::ResidentForm(const Chunk& chunk, Attempt* attempt) {
  if (const auto found = attempt->fetched.find(&chunk); found != attempt->fetched.end()) {
    ChunkRef resident = std::move(found->second);
    attempt->fetched.erase(found);
    return resident;
  }
  Chunk* const tiered = const_cast<Chunk*>(&chunk);
  return std::move(tiered->tiered().tier->FetchAndWait({ChunkRef::Share(tiered)}).front());
}

ChunkPlace CheckpointWriter::NameOf(const Place& place, const Attempt& attempt) const {
  if ((place.segment & kOfAttempt) != 0) {
    return {attempt.added[place.segment & ~kOfAttempt].number(), place.ordinal};
  }
  return {segments_[place.segment]->saved.number, place.ordinal};
}

Result<CheckpointWriter::Place> CheckpointWriter::WriteChunk(const Chunk& chunk, Attempt* attempt) {
  if (const auto known = places_.find(chunk.id()); known != places_.end()) {
    if (!segments_[known->second.segment]->is_victim) return known->second;
    if (!attempt->places.contains(chunk.id())) ++attempt->stats.chunks_moved;
  }
  if (const auto lost = attempt->lost_chunks.find(chunk.id()); lost != attempt->lost_chunks.end()) {
    return lost->second;
  }
  const auto [entry, is_new] = attempt->places.try_emplace(chunk.id());
  if (!is_new) return entry->second;
  if (attempt->chunks == nullptr || attempt->chunks->bytes() >= options_.segment_bytes) {
    if (attempt->chunks != nullptr) REVERB_RETURN_IF_ERROR(attempt->chunks->Finish());
    REVERB_ASSIGN_OR_RETURN(std::unique_ptr<SegmentWriter> writer,
                            SegmentWriter::Create(fs_, segments_path_, next_number_++, SegmentKind::kChunks));
    attempt->chunks = writer.get();
    attempt->AddWriter(std::move(writer));
    attempt->chunks_index = static_cast<uint32_t>(attempt->added.size() - 1);
  }
  entry->second = {attempt->chunks_index | kOfAttempt, attempt->chunks->count()};
  if (chunk.is_tiered()) {
    const Result<ChunkRef> found = ResidentForm(chunk, attempt);
    if (!found.ok()) {
      attempt->places.erase(chunk.id());
      if (found.status().code() == StatusCode::kDataLoss) {
        attempt->lost_chunks.emplace(chunk.id(), found.status());
      }
      return found.status();
    }
    const ChunkRef& resident = *found;
    REVERB_RETURN_IF_ERROR(attempt->chunks->AddChunk(*resident));
  } else {
    REVERB_RETURN_IF_ERROR(attempt->chunks->AddChunk(chunk));
  }
  attempt->added[attempt->chunks_index].Add(entry->second.ordinal,
                                            static_cast<uint32_t>(chunk.header().payload_size()));
  ++attempt->stats.chunks_written;
  return entry->second;
}

Result<SegmentWriter*> CheckpointWriter::PageWriter(Attempt* attempt) {
  if (attempt->pages == nullptr) {
    REVERB_ASSIGN_OR_RETURN(std::unique_ptr<SegmentWriter> writer,
                            SegmentWriter::Create(fs_, segments_path_, next_number_++, SegmentKind::kPages));
    attempt->pages = writer.get();
    attempt->AddWriter(std::move(writer));
  }
  return attempt->pages;
}

Status CheckpointWriter::WriteTableState(const TableSnapshot& table, ManifestTable* to, Attempt* attempt) {
  const TableSnapshot::State& state = table.state();
  SavedTableState saved;
  if (state.sampler_state) state.sampler_state->Encode(&saved.sampler_state);
  if (state.remover_state) state.remover_state->Encode(&saved.remover_state);
  saved.extension_states = state.extension_states;
  saved.structure = state.structure;
  for (uint64_t next = state.free_head; next != 0; next = table.slot(next - 1).key) {
    saved.free_slots.push_back(static_cast<Slot>(next - 1));
  }
  std::string bytes;
  EncodeTableState(saved, &bytes);
  REVERB_ASSIGN_OR_RETURN(SegmentWriter * writer, PageWriter(attempt));
  REVERB_ASSIGN_OR_RETURN(to->state, writer->AddRecord(bytes));
  return Status::Ok();
}

Status CheckpointWriter::MakeDurable(Attempt* attempt) {
  if (attempt->chunks != nullptr) REVERB_RETURN_IF_ERROR(attempt->chunks->Finish());
  if (attempt->pages != nullptr) REVERB_RETURN_IF_ERROR(attempt->pages->Finish());
  // Starts writing all files before waiting for the first: keeps the disk busy.
  for (const Attempt::NewSegment& segment : attempt->added) {
    SegmentWriter* const writer = segment.writer.get();
    if (writer == nullptr) {
      REVERB_RETURN_IF_ERROR(fs_->SyncFile(segment.path));
      continue;
    }
    REVERB_RETURN_IF_ERROR(writer->Sync());
    REVERB_RETURN_IF_ERROR(writer->Close());
    (writer->kind() == SegmentKind::kChunks ? attempt->stats.chunk_bytes : attempt->stats.page_bytes) +=
        writer->bytes();
  }
  return fs_->SyncDir(segments_path_);
}

Status CheckpointWriter::Publish(Attempt* attempt, int64_t wall_nanos) {
  const int64_t nanos = std::max(wall_nanos, last_nanos_ + 1);
  last_nanos_ = nanos;  // even if this fails: the folder may exist
  Manifest& manifest = attempt->manifest;
  manifest.created_nanos = nanos;
  for (const auto& segment : segments_) {
    if (segment == nullptr || segment->is_victim || segment->saved.live_count == 0) continue;
    manifest.segments.push_back(segment->saved);
  }
  std::set<uint64_t> page_files;
  for (const ManifestTable& table : manifest.tables) {
    for (const RecordPlace& page : table.pages) page_files.insert(page.segment);
    page_files.insert(table.state.segment);
  }
  for (const uint64_t number : page_files) {
    const auto known = page_file_bytes_.find(number);
    if (known == page_file_bytes_.end()) continue;  // one of the new ones
    manifest.segments.push_back({.number = number, .kind = SegmentKind::kPages, .file_bytes = known->second});
  }
  for (const Attempt::NewSegment& segment : attempt->added) manifest.segments.push_back(segment.Describe());

  attempt->path = JoinPath(options_.root, CheckpointName(nanos));
  REVERB_RETURN_IF_ERROR(fs_->CreateDir(attempt->path, FileSystem::Parents::kMustExist));
  const std::string temp = JoinPath(attempt->path, kManifestTempName);
  REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                          fs_->NewWritableFile(temp, FileSystem::OpenMode::kTruncate));
  REVERB_RETURN_IF_ERROR(file->Append(EncodeManifest(manifest)));
  REVERB_RETURN_IF_ERROR(file->Sync());
  REVERB_RETURN_IF_ERROR(file->Close());
  attempt->manifest_named = true;
  REVERB_RETURN_IF_ERROR(fs_->Rename(temp, JoinPath(attempt->path, kManifestName)));
  REVERB_RETURN_IF_ERROR(fs_->SyncDir(attempt->path));
  return fs_->SyncDir(options_.root);
}

void CheckpointWriter::Commit(Attempt* attempt) {
  const auto goes = [](const std::unique_ptr<Segment>& segment) {
    return segment != nullptr && (segment->is_victim || segment->saved.live_count == 0);
  };
  uint64_t live = 0;
  for (const auto& segment : segments_) live += segment != nullptr ? segment->saved.live_count : 0;
  // Forgets chunks that are no longer referred to, and those that moved. This visits all places, so it is
  // skipped while few chunks are dead and no segment is removed: the remembered places stay correct.
  if (std::ranges::any_of(segments_, goes) || places_.size() - live > places_.size() / 8) {
    absl::erase_if(places_, [&](const auto& entry) {
      const Segment& segment = *segments_[entry.second.segment];
      return segment.is_victim || !segment.is_live[entry.second.ordinal];
    });
  }
  for (auto& segment : segments_) {
    if (goes(segment)) segment.reset();
  }
  // New segments reuse free entries.
  std::vector<uint32_t> index(attempt->added.size());
  size_t hole = 0;
  for (size_t i = 0; i < attempt->added.size(); ++i) {
    Attempt::NewSegment& added = attempt->added[i];
    if (added.kind() != SegmentKind::kChunks) continue;
    while (hole < segments_.size() && segments_[hole] != nullptr) ++hole;
    if (hole == segments_.size()) segments_.emplace_back();
    segments_[hole] = std::make_unique<Segment>();
    segments_[hole]->saved = added.Describe();
    segments_[hole]->payload_sizes = std::move(added.payload_sizes);
    segments_[hole]->payload_sizes.resize(segments_[hole]->saved.count);
    index[i] = static_cast<uint32_t>(hole);
  }
  const auto settle = [&](Place& place) {
    if ((place.segment & kOfAttempt) != 0) place.segment = index[place.segment & ~kOfAttempt];
  };
  for (auto& [id, place] : attempt->places) settle(place);
  for (const auto& chunks : attempt->fresh_pages) std::ranges::for_each(*chunks, settle);
  if (places_.empty()) {
    places_ = std::move(attempt->places);
  } else {
    places_.insert(attempt->places.begin(), attempt->places.end());
  }
  pages_ = std::move(attempt->page_table);
  last_path_ = attempt->path;
  page_file_bytes_.clear();
  for (const SavedSegment& segment : attempt->manifest.segments) {
    if (segment.kind == SegmentKind::kPages) page_file_bytes_[segment.number] = segment.file_bytes;
  }
}

void CheckpointWriter::Undo(Attempt* attempt) {
  bool is_gone = true;  // the manifest is durably removed
  if (!attempt->path.empty()) {
    (void)fs_->RemoveFile(JoinPath(attempt->path, kManifestTempName));
    if (attempt->manifest_named) {
      const Status removed = fs_->RemoveFile(JoinPath(attempt->path, kManifestName));
      is_gone = (removed.ok() || removed.code() == StatusCode::kNotFound) && fs_->SyncDir(attempt->path).ok();
    }
    if (is_gone) (void)fs_->RemoveDir(attempt->path);
  }
  // Keep the files while a manifest may name them; a later checkpoint removes them.
  for (Attempt::NewSegment& segment : attempt->added) {
    segment.writer.reset();
    if (is_gone) (void)fs_->RemoveFile(segment.path);
  }
}

}  // namespace reverb::internal
