#include "storage/chunk_tier.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "base/log.h"
#include "base/payload_memory.h"
#include "base/task_pool.h"
#include "storage/storage_thread.h"
#include "tensor/column.h"

namespace reverb::internal {
namespace {

constexpr uint64_t kBlock = BlockFile::kBlockBytes;

// Memory that a payload was read into: whole blocks of the file.
class ReadBlock final : public BufferOwner {
 public:
  // Returns null if no memory is left.
  static ReadBlock* Allocate(size_t bytes, PayloadSource* source) {
    constexpr std::align_val_t kAlign{kBlock};
    uint8_t* memory = nullptr;
    if (source != nullptr) memory = source->Allocate(bytes + kBlock);
    const bool is_sourced = memory != nullptr;
    if (!is_sourced) memory = static_cast<uint8_t*>(ProcessPayloadMemory()->Allocate(bytes, kAlign));
    if (memory == nullptr) return nullptr;
    return new ReadBlock(memory, bytes, is_sourced ? source : nullptr);
  }
  // The memory that it takes.
  size_t bytes() const { return source_ != nullptr ? bytes_ + kBlock : bytes_; }
  std::span<uint8_t> aligned() const {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(memory_);
    return {memory_ + ((begin + kBlock - 1) / kBlock * kBlock - begin), bytes_};
  }

 private:
  ReadBlock(uint8_t* memory, size_t bytes, PayloadSource* source)
      : memory_(memory), bytes_(bytes), source_(source) {}
  ~ReadBlock() override {
    if (source_ != nullptr) {
      source_->Free(memory_, bytes_ + kBlock);
    } else {
      ProcessPayloadMemory()->Free(memory_, bytes_, std::align_val_t{kBlock});
    }
  }

  uint8_t* const memory_;
  const size_t bytes_;
  PayloadSource* const source_;
};

int64_t MarginOf(int64_t memory_limit) {
  constexpr int64_t kMaxMargin = int64_t{128} << 20;
  return std::min(memory_limit / 4, kMaxMargin);
}

ChunkTier::Options ResolveOptions(ChunkTier::Options options, const SegmentStore::Options& segments) {
  options.disk_limit = static_cast<int64_t>(segments.disk_limit);
  options.segment_bytes = segments.segment_bytes;
  options.write_bytes = segments.write_bytes;
  return options;
}

void LogReadError(LogLevel level, const Status& status) {
  static LogEvery* const log = new LogEvery(RealClock(), std::chrono::seconds(10));  // never destroyed
  log->Log(level, level == LogLevel::kError ? "lost" : "unreadable", std::string(status.message()));
}

constexpr auto kMinDiskLimit = static_cast<int64_t>(8 * kBlock);

}  // namespace

// --- Opening and closing ---------------------------------------------------------------------------

Status ChunkTier::Options::Validate() const {
  if (path.empty())
    return Status::InvalidArgument("storage: the path is empty; give a folder on a fast disk");
  if (memory_limit < 1) {
    return Status::InvalidArgument("storage: memory_limit is " + std::to_string(memory_limit) +
                                   "; give the bytes of data to keep in memory, at least 1");
  }
  if (disk_limit != 0 && disk_limit < kMinDiskLimit) {
    return Status::InvalidArgument("storage: disk_limit is " + std::to_string(disk_limit) +
                                   "; give the bytes that the files may take, at least " +
                                   std::to_string(kMinDiskLimit));
  }
  if (segment_bytes % kBlock != 0 || write_bytes % kBlock != 0 || write_bytes == 0) {
    return Status::InvalidArgument("storage: segment_bytes and write_bytes must be multiples of " +
                                   std::to_string(kBlock));
  }
  return Status::Ok();
}

Result<ChunkTierPtr> ChunkTier::Open(FileSystem* fs, const Options& options, PayloadSource* source) {
  REVERB_RETURN_IF_ERROR(options.Validate());
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<SegmentStore> segments,
                          SegmentStore::Open(fs, {.path = options.path,
                                                  .disk_limit = static_cast<uint64_t>(options.disk_limit),
                                                  .segment_bytes = options.segment_bytes,
                                                  .write_bytes = options.write_bytes}));
  if (segments->options().disk_limit < static_cast<uint64_t>(kMinDiskLimit)) {
    return Status::FailedPrecondition("storage: the file system of \"" + options.path +
                                      "\" is full; free space, or give a folder on another one");
  }
  ChunkTierPtr tier(new ChunkTier(options, source, std::move(segments)));
  MutexLock lock(&tier->mu_);
  tier->mover_ = StartStorageThread("rv-disk-write", [self = tier.get()] { self->RunMover(); });
  if (!tier->mover_.joinable()) {
    return Status::ResourceExhausted("storage: the system cannot create another thread");
  }
  return tier;
}

ChunkTier::ChunkTier(const Options& options, PayloadSource* source, std::unique_ptr<SegmentStore> segments)
    : options_(ResolveOptions(options, segments->options())),
      source_(source),
      capacity_(options.memory_limit +
                static_cast<int64_t>(SegmentStore::UsableBytes(segments->options().disk_limit))),
      margin_(MarginOf(options.memory_limit)),
      reader_(options.reader),
      segments_(std::move(segments)),
      files_(segments_.get()) {}

ChunkTier::~ChunkTier() = default;

void ChunkTierCloser::operator()(ChunkTier* tier) const {
  // The last user may be a callback on a thread of the tier, which Close() waits for.
  if (IsStorageThread() && ProcessTaskPool().Run([tier] { tier->Close(); })) return;
  tier->Close();
}

void ChunkTier::Close() {
  Shutdown();
  Unref();
}

void ChunkTier::Shutdown() {
  std::thread mover;
  {
    MutexLock lock(&mu_);
    is_closed_ = true;
    mover = std::move(mover_);
    mover_wanted_.NotifyAll();
    room_made_.NotifyAll();
  }
  if (mover.joinable()) mover.join();
  reader_.Stop();
  std::unique_ptr<SegmentStore> segments;
  {
    MutexLock lock(&mu_);
    segments = std::move(segments_);
  }
  current_.reset();
  victim_.reset();
}

void ChunkTier::Unref() {
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

ChunkTier::Stats ChunkTier::stats() const {
  MutexLock lock(&mu_);
  Stats stats{.memory_bytes = resident_bytes_.load(std::memory_order_relaxed),
              .written_bytes = written_bytes_,
              .read_bytes = read_bytes_.load(std::memory_order_relaxed),
              .lost_chunks = lost_chunks_,
              .error = std::string(write_error_.message())};
  if (segments_ != nullptr) {
    stats.disk_bytes = static_cast<int64_t>(segments_->live_bytes());
    stats.file_bytes = static_cast<int64_t>(segments_->file_bytes());
  }
  return stats;
}

// --- Chunks ----------------------------------------------------------------------------------------

// Attached to a chunk of a writer in this process: finds the tiered chunk that was created for it.
class ChunkTier::ResidentLink final : public ChunkLedger {
 public:
  ResidentLink(ChunkTier* tier, ChunkLedger* parent) : tier_(tier), parent_(parent) {}

  void CountNew(int64_t bytes) override {
    if (parent_ != nullptr) parent_->CountNew(bytes);
  }
  void CountStored(Chunk*, int64_t) override { assert(false); }  // items refer to tiered chunks
  void CountDestroyed(int64_t bytes) override {
    if (parent_ != nullptr) parent_->CountDestroyed(bytes);
    Unref();
  }
  // Tiers are not recognized by their address alone, which a later one may have: this link keeps its own alive.
  bool IsLinkOf(const PayloadTier* tier) const override { return tier == tier_; }

  void Ref() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    tier_->Unref();
    delete this;
  }

  Chunk* chunk = nullptr;  // the tiered one, without a reference; guarded by the lock of the tier

 private:
  ChunkTier* const tier_;
  ChunkLedger* const parent_;
  std::atomic<uint32_t> refs_{1};  // of the writer's chunk, and of tiered ones
};

Result<ChunkTier::Entered> ChunkTier::FindOrWrap(const ChunkRef& resident) {
  refs_.fetch_add(1, std::memory_order_relaxed);
  auto* link = new ResidentLink(this, ledger_);
  if (ChunkLedger* const present = resident->AttachLedger(link); present != link) {
    link->Unref();
    if (!present->IsLinkOf(this)) return Entered{};
    link = static_cast<ResidentLink*>(present);
  }
  const auto find = [&]() -> ChunkRef {
    MutexLock lock(&mu_);
    if (link->chunk == nullptr || !link->chunk->TryRef()) return {};
    return ChunkRef::Adopt(link->chunk);
  };
  if (ChunkRef found = find()) return Entered{.chunk = std::move(found)};
  REVERB_ASSIGN_OR_RETURN(ChunkRef wrapped, Wrap(resident));
  link->Ref();
  wrapped->tiered().link = link;
  // Another thread may have been faster; then `wrapped` is destroyed without the lock.
  Entered entered;
  {
    MutexLock lock(&mu_);
    if (link->chunk != nullptr && link->chunk->TryRef()) {
      entered.chunk = ChunkRef::Adopt(link->chunk);
    } else {
      link->chunk = wrapped.get();
      entered = {.chunk = std::move(wrapped), .is_new = true};
    }
  }
  return entered;
}

Result<ChunkRef> ChunkTier::Wrap(ChunkRef resident) {
  if (ledger_ != nullptr) resident->AttachLedger(ledger_);
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, Chunk::Tiered(std::move(resident), this));
  refs_.fetch_add(1, std::memory_order_relaxed);
  return chunk;
}

void ChunkTier::OnStoredChanged(Chunk* chunk) {
  MutexLock lock(&mu_);
  chunk->tiered().is_kept = false;
  UpdateListed(chunk, /*at_front=*/false);
  UpdatePinned(chunk);
}

void ChunkTier::OnParked(Chunk* chunk) {
  MutexLock lock(&mu_);
  if (chunk->is_stored()) return;
  chunk->tiered().is_kept = true;
  // It is not sampled any more, and a snapshot is read soon, or is on disk already.
  UpdateListed(chunk, /*at_front=*/true);
}

void ChunkTier::AddLoaded(std::span<const ChunkRef> chunks) {
  MutexLock lock(&mu_);
  for (const ChunkRef& chunk : chunks) {
    if (!chunk || !chunk->is_tiered() || chunk->is_stored()) continue;
    chunk->tiered().is_kept = true;
    UpdateListed(chunk.get(), /*at_front=*/false);
  }
  // An error of the disk must not keep a server from starting.
  while (resident_bytes_.load(std::memory_order_relaxed) > MemoryLimit() && !is_closed_ &&
         write_error_.ok()) {
    room_made_.Wait(&mu_);
  }
}

Status ChunkTier::Pin(Chunk* chunk) {
  ChunkRef resident;
  {
    MutexLock lock(&mu_);
    TieredState& state = chunk->tiered();
    state.is_pinned = true;  // not chosen from now on
    while (state.is_moving) room_made_.Wait(&mu_);
    if (state.resident != nullptr) {
      FreePlace(chunk);
      UpdateListed(chunk, /*at_front=*/false);
      UpdatePinned(chunk);
      return Status::Ok();
    }
  }
  std::vector<Result<ChunkRef>> fetched = FetchAndWait({ChunkRef::Share(chunk)});
  REVERB_ASSIGN_OR_RETURN(resident, std::move(fetched.front()));
  MutexLock lock(&mu_);
  if (chunk->tiered().resident == nullptr) SetResident(chunk, std::move(resident));
  FreePlace(chunk);
  UpdatePinned(chunk);
  return Status::Ok();
}

void ChunkTier::SetResident(Chunk* chunk, ChunkRef resident) {
  TieredState& state = chunk->tiered();
  state.resident = resident.Release();
  if (state.segment == nullptr || segments_ == nullptr) return;
  segments_->SetCopy(static_cast<DiskSegment*>(state.segment), chunk->payload_size(), state.head_bytes, true);
}

ChunkRef ChunkTier::TakeResident(Chunk* chunk) {
  TieredState& state = chunk->tiered();
  if (state.segment != nullptr && segments_ != nullptr) {
    segments_->SetCopy(static_cast<DiskSegment*>(state.segment), chunk->payload_size(), state.head_bytes,
                       false);
  }
  return ChunkRef::Adopt(std::exchange(state.resident, nullptr));
}

void ChunkTier::FreePlace(Chunk* chunk) {
  TieredState& state = chunk->tiered();
  auto* const segment = static_cast<DiskSegment*>(std::exchange(state.segment, nullptr));
  if (segment == nullptr || segments_ == nullptr) return;
  const uint64_t bytes = chunk->payload_size();
  if (state.resident != nullptr) segments_->SetCopy(segment, bytes, state.head_bytes, false);
  segments_->Free(segment, state.ordinal, bytes, state.head_bytes);
  freed_bytes_ += bytes;
  if (segments_->has_dead() && MayRemove())
    evictable_bytes_.store(0, std::memory_order_relaxed);  // a file is removed
  if (segments_->has_dead() || is_failing()) mover_wanted_.NotifyOne();
}

bool ChunkTier::MayLeave(Chunk* chunk) const {
  const TieredState& state = chunk->tiered();
  return state.resident != nullptr && !state.is_pinned && !state.is_moving &&
         (chunk->is_stored() || state.is_kept);
}

// Counts and lists the chunk if an item refers to it. The calls for two items may be in any order: the last one sees
// the outcome.
void ChunkTier::UpdateListed(Chunk* chunk, bool at_front) {
  TieredState& state = chunk->tiered();
  const bool is_wanted = MayLeave(chunk);
  if (is_wanted == state.is_listed) return;
  if (!is_wanted) {
    Unlink(chunk);
    ChangeResident(-chunk->bytes());
    return;
  }
  at_front ? PushFront(chunk) : PushBack(chunk);
  ChangeResident(chunk->bytes());
  if (MustMove()) mover_wanted_.NotifyOne();
}

void ChunkTier::UpdatePinned(Chunk* chunk) {
  TieredState& state = chunk->tiered();
  const bool counts = state.is_pinned && state.resident != nullptr && chunk->is_stored();
  if (counts == state.is_pin_counted) return;
  state.is_pin_counted = counts;
  if (ledger_ != nullptr) ledger_->CountStored(chunk, counts ? chunk->bytes() : -chunk->bytes());
}

void ChunkTier::OnDestroyed(Chunk* chunk) {
  ChunkRef resident;
  ResidentLink* link = nullptr;
  bool may_evict_more = false;
  {
    MutexLock lock(&mu_);
    TieredState& state = chunk->tiered();
    const bool is_on_disk = state.segment != nullptr && segments_ != nullptr;
    link = static_cast<ResidentLink*>(state.link);
    if (link != nullptr && link->chunk == chunk) link->chunk = nullptr;
    if (state.is_listed) {
      Unlink(chunk);
      ChangeResident(-chunk->bytes());
    }
    FreePlace(chunk);
    if (state.resident != nullptr) resident = TakeResident(chunk);
    // An insert that evicts a few items at a time goes on until a file can be removed.
    may_evict_more = is_on_disk && is_disk_full() && MayEvict();
  }
  resident = {};
  if (may_evict_more) OnRoom();
  if (link != nullptr) link->Unref();
  Unref();
}

void ChunkTier::PushBack(Chunk* chunk) {
  TieredState& state = chunk->tiered();
  state.is_listed = true;
  state.prev = last_;
  state.next = nullptr;
  (last_ != nullptr ? last_->tiered().next : first_) = chunk;
  last_ = chunk;
}

void ChunkTier::PushFront(Chunk* chunk) {
  TieredState& state = chunk->tiered();
  state.is_listed = true;
  state.prev = nullptr;
  state.next = first_;
  (first_ != nullptr ? first_->tiered().prev : last_) = chunk;
  first_ = chunk;
}

void ChunkTier::Unlink(Chunk* chunk) {
  TieredState& state = chunk->tiered();
  (state.prev != nullptr ? state.prev->tiered().next : first_) = state.next;
  (state.next != nullptr ? state.next->tiered().prev : last_) = state.prev;
  state.prev = state.next = nullptr;
  state.is_listed = false;
}

void ChunkTier::ChangeResident(int64_t bytes) {
  // seq_cst, and before the budget wakes those that wait: see MemoryBudget::WaitForRoom().
  resident_bytes_.fetch_add(bytes, std::memory_order_seq_cst);
  if (ledger_ != nullptr) ledger_->CountStored(nullptr, bytes);
}

bool ChunkTier::HasRoomFor(int64_t more) {
  const int64_t resident = resident_bytes_.load(std::memory_order_seq_cst);
  const bool fits = budget_ == nullptr || budget_->HasRoomToKeep(more);
  // What does not fit alone is stored when the memory is empty.
  if (fits && (resident + more <= options_.memory_limit || resident == 0)) return true;
  if (resident == 0) return false;  // there is nothing to move
  MutexLock lock(&mu_);
  wanted_bytes_ = std::max(wanted_bytes_, std::min(more, options_.memory_limit));
  mover_wanted_.NotifyOne();
  return false;
}

// --- Reading ---------------------------------------------------------------------------------------

// The payloads of one call of Fetch() that have to be read.
class ChunkTier::FetchBatch final : public ReadSink, public std::enable_shared_from_this<FetchBatch> {
 public:
  FetchBatch(ChunkTier* tier, std::vector<ChunkRef> chunks, Done done)
      : tier_(tier), chunks_(std::move(chunks)), done_(std::move(done)), places_(chunks_.size()) {
    results_.reserve(chunks_.size());
  }

  // Takes what is in memory, and notes where the rest is. Returns whether that is everything.
  bool TakeResident() {
    MutexLock lock(&tier_->mu_);
    bool is_complete = true;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      TieredState& state = chunks_[i]->tiered();
      assert(state.tier == tier_);
      if (state.resident != nullptr) {
        state.was_used = true;
        results_.push_back(ChunkRef::Share(state.resident));
        continue;
      }
      is_complete = false;
      if (tier_->segments_ == nullptr) {
        results_.push_back(Status::Cancelled("the storage of the server was closed"));
        continue;
      }
      results_.push_back(ChunkRef());
      places_[i].segment = static_cast<DiskSegment*>(state.segment)->shared_from_this();
      places_[i].offset = state.offset;
    }
    return is_complete;
  }

  void Start() {
    std::vector<BatchReader::Read> reads;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      if (places_[i].segment == nullptr) continue;
      const uint64_t begin = places_[i].offset / kBlock * kBlock;
      const uint64_t end = (places_[i].offset + chunks_[i]->payload_size() + kBlock - 1) / kBlock * kBlock;
      places_[i].block = ReadBlock::Allocate(end - begin, tier_->source_);
      if (places_[i].block == nullptr) {
        results_[i] =
            Status::Unavailable("storage: no memory for a payload of " +
                                std::to_string(chunks_[i]->payload_size()) + " bytes that is on disk");
        continue;
      }
      places_[i].charge = {tier_->budget_, MemoryPart::kReceiving, static_cast<int64_t>(end - begin)};
      reads.push_back(ReadOf(i));
    }
    left_.store(reads.size(), std::memory_order_relaxed);
    if (reads.empty()) return Finish();
    tier_->reader_.Submit(std::move(reads));
  }

  void OnRead(size_t index, Status status) override {
    Place& place = places_[index];
    const Chunk& chunk = *chunks_[index];
    const std::span<const uint8_t> payload(place.block->aligned().data() + place.offset % kBlock,
                                           chunk.payload_size());
    if (status.ok()) status = Verify(chunk, payload);
    ++place.tries;
    if (!status.ok() && MayTryAgain(place, status)) {
      return tier_->reader_.Submit({ReadOf(index)});
    }
    Result<ChunkRef> resident = [&]() -> Result<ChunkRef> {
      const Buffer buffer(place.block, payload.data(), payload.size());  // freed before anyone is told
      if (!status.ok()) return status;
      return MakeResident(chunk, place, buffer);
    }();
    if (!resident.ok()) status = resident.status();
    if (resident.ok()) {
      if (tier_->ledger_ != nullptr) (*resident)->AttachLedger(tier_->ledger_);
      tier_->read_bytes_.fetch_add(chunk.payload_size(), std::memory_order_relaxed);
      tier_->Admit(chunks_[index].get(), *resident);
    } else if (status.code() == StatusCode::kDataLoss) {
      resident = Status::DataLoss("storage: the data of a chunk is lost: " + std::string(status.message()));
      tier_->OnLost(resident.status());
    } else if (status.code() != StatusCode::kCancelled) {
      resident = Status::Unavailable("storage: data on disk cannot be read for now: " +
                                     std::string(status.message()));
      LogReadError(LogLevel::kWarning, resident.status());
    }
    place.charge.Set(0);
    results_[index] = std::move(resident);
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) Finish();
  }

  void Finish() {
    const Done done = std::move(done_);
    done(std::move(results_));
  }

 private:
  // At most this part of the bytes of a payload is used in addition.
  static constexpr size_t kMaxUnusedPart = 4;

  struct Place {
    std::shared_ptr<DiskSegment> segment = nullptr;  // null: need not be read
    uint64_t offset = 0;
    ReadBlock* block = nullptr;  // the last OnRead() takes over the reference
    MemoryCharge charge = {};    // of the block, until a chunk has it
    int tries = 0;
  };

  BatchReader::Read ReadOf(size_t index) {
    const Place& place = places_[index];
    return {.file = place.segment->file,
            .offset = place.offset / kBlock * kBlock,
            .out = place.block->aligned(),
            .sink = shared_from_this(),
            .index = index};
  }

  // A medium, or the way to it, may fail once: only what fails twice is lost. Errors that say nothing about the data,
  // as those of a system without memory, are repeated a few times, with pauses: not many, since other reads wait.
  bool MayTryAgain(const Place& place, const Status& status) {
    if (status.code() == StatusCode::kCancelled) return false;
    if (status.code() == StatusCode::kDataLoss) return place.tries < 2;
    constexpr int kMaxTries = 4;
    if (place.tries >= kMaxTries) return false;
    constexpr int kMaxPauses = 8;
    if (num_pauses_.fetch_add(1, std::memory_order_relaxed) < kMaxPauses) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1 << (2 * place.tries)));
    }
    return true;
  }

  // Uses the memory that was read into. A payload that takes little of its blocks is copied: it counts without them.
  Result<ChunkRef> MakeResident(const Chunk& chunk, const Place& place, const Buffer& payload) const {
    if (place.block->bytes() - payload.size() <= payload.size() / kMaxUnusedPart) {
      return Chunk::WithPayload(chunk, payload);
    }
    return Chunk::WithCopyOf(chunk, payload.span(), tier_->source_);
  }

  static Status Verify(const Chunk& chunk, std::span<const uint8_t> payload) {
    const PackedChunkHeader header = chunk.header();
    for (uint32_t c = 0; c < header.num_columns(); ++c) {
      REVERB_RETURN_IF_ERROR(VerifyChecksums(
          header.column(c), payload.subspan(header.column_payload_offset(c), header.column_payload_size(c))));
    }
    return Status::Ok();
  }

  ChunkTier* const tier_;  // the chunks keep it alive
  const std::vector<ChunkRef> chunks_;
  Done done_;
  std::vector<Place> places_;
  std::vector<Result<ChunkRef>> results_;
  std::atomic<size_t> left_{0};
  std::atomic<int> num_pauses_{0};
};

void ChunkTier::Fetch(std::vector<ChunkRef> chunks, Done done) {
  const auto batch = std::make_shared<FetchBatch>(this, std::move(chunks), std::move(done));
  batch->TakeResident() ? batch->Finish() : batch->Start();
}

PayloadPlace ChunkTier::FindPlace(Chunk* chunk) {
  MutexLock lock(&mu_);
  const TieredState& state = chunk->tiered();
  if (state.segment == nullptr || segments_ == nullptr) return {};
  const auto& segment = *static_cast<const DiskSegment*>(state.segment);
  return {.file = segment.sealed, .ordinal = state.ordinal, .live_bytes = segment.live_bytes};
}

std::vector<Result<ChunkRef>> ChunkTier::FetchAndWait(std::vector<ChunkRef> chunks) {
  struct Outcome {
    Mutex mu;
    CondVar arrived;
    bool is_there GUARDED_BY(mu) = false;
    std::vector<Result<ChunkRef>> results GUARDED_BY(mu);
  };
  const auto outcome = std::make_shared<Outcome>();
  Fetch(std::move(chunks), [outcome](std::vector<Result<ChunkRef>> results) {
    MutexLock lock(&outcome->mu);
    outcome->results = std::move(results);
    outcome->is_there = true;
    outcome->arrived.NotifyAll();
  });
  MutexLock lock(&outcome->mu);
  while (!outcome->is_there) outcome->arrived.Wait(&outcome->mu);
  return std::move(outcome->results);
}

void ChunkTier::Admit(Chunk* chunk, const ChunkRef& resident) {
  MutexLock lock(&mu_);
  TieredState& state = chunk->tiered();
  const auto period = static_cast<uint32_t>(dropped_bytes_ / options_.memory_limit);
  const bool is_hot = state.was_used && period - state.used_in <= 1;
  state.was_used = true;
  state.used_in = period;
  if (!is_hot || state.resident != nullptr || state.is_moving || !chunk->is_stored() ||
      resident_bytes_.load(std::memory_order_relaxed) + chunk->bytes() > options_.memory_limit) {
    return;
  }
  state.was_used = false;
  SetResident(chunk, resident);
  UpdateListed(chunk, /*at_front=*/false);
}

void ChunkTier::OnLost(const Status& status) {
  {
    MutexLock lock(&mu_);
    ++lost_chunks_;
  }
  LogReadError(LogLevel::kError, status);
}

}  // namespace reverb::internal
