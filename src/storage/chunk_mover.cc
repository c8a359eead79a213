// How a tier moves payloads to disk: a thread that writes those that were used least recently, removes segments without
// live payloads, and compacts others.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "base/log.h"
#include "base/payload_memory.h"
#include "storage/chunk_tier.h"

namespace reverb::internal {
namespace {

constexpr uint64_t kWriteBlock = BlockFile::kBlockBytes;

uint64_t RoundUpToBlock(uint64_t bytes) { return (bytes + kWriteBlock - 1) / kWriteBlock * kWriteBlock; }

// Memory for whole blocks.
class BlockBuffer {
 public:
  explicit BlockBuffer(uint64_t bytes)
      : bytes_(bytes),
        data_(static_cast<uint8_t*>(ProcessPayloadMemory()->Allocate(bytes, std::align_val_t{kWriteBlock}))) {
  }
  ~BlockBuffer() {
    if (data_ != nullptr) ProcessPayloadMemory()->Free(data_, bytes_, std::align_val_t{kWriteBlock});
  }
  BlockBuffer(const BlockBuffer&) = delete;
  BlockBuffer& operator=(const BlockBuffer&) = delete;

  uint8_t* data() const { return data_; }  // null: no memory
  std::span<uint8_t> span() const { return {data_, bytes_}; }

 private:
  const uint64_t bytes_;
  uint8_t* const data_;
};

}  // namespace

// A payload that is written: from memory, or from a segment that is compacted.
struct ChunkTier::Victim {
  ChunkRef chunk;
  ChunkRef resident = {};
  uint64_t old_offset = 0;
  uint32_t old_ordinal = 0;
  uint64_t offset = 0;      // where it is now
  bool is_written = false;  // false: it could not be read
};

int64_t ChunkTier::MemoryLimit() const {
  if (budget_ == nullptr || !budget_->limit()) return options_.memory_limit;
  const int64_t others = budget_->kept() - resident_bytes_.load(std::memory_order_relaxed);
  // Not less than 0, whatever else the budget has to keep; `others` is approximate.
  return std::clamp<int64_t>(budget_->shares().kept - budget_->max_error() - others, 0,
                             options_.memory_limit);
}

int64_t ChunkTier::TargetBytes() const {
  return std::max<int64_t>(MemoryLimit() - std::max(margin_, wanted_bytes_), 0);
}

bool ChunkTier::MustMove() const {
  const int64_t resident = resident_bytes_.load(std::memory_order_relaxed);
  return resident > (is_moving_ || wanted_bytes_ > 0 ? TargetBytes() : MemoryLimit() - margin_ / 2);
}

void ChunkTier::OnRoom() {
  if (budget_ != nullptr) budget_->WakeWaiters();
}

void ChunkTier::RunMover() {
  mu_.Lock();
  while (!is_closed_) {
    if (segments_->has_dead()) {
      RemoveDead();
      continue;
    }
    if (MustMove()) {
      is_moving_ = true;
      if (MoveSome()) continue;
      // Waits for the disk, or until items are deleted.
      if (!is_closed_) mover_wanted_.WaitFor(&mu_, options_.retry_interval);
      continue;
    }
    is_moving_ = false;
    wanted_bytes_ = 0;
    if (CompactSome(/*is_urgent=*/false)) continue;
    if (!MustMove() && !segments_->has_dead()) mover_wanted_.Wait(&mu_);
  }
  mu_.Unlock();
}

void ChunkTier::RemoveDead() {
  std::vector<std::shared_ptr<DiskSegment>> dead = segments_->TakeDead();
  mu_.Unlock();
  for (const auto& segment : dead) files_->RemoveFile(*segment);
  dead.clear();  // closes the files, unless they are being read
  mu_.Lock();
}

// Takes chunks off the list until the rest fits or a write is full. Those that are on disk already are dropped at once.
std::vector<ChunkTier::Victim> ChunkTier::ChooseVictims(std::vector<ChunkRef>* released) {
  constexpr size_t kMaxLooks = 4096;  // while the lock is held
  std::vector<Victim> victims;
  uint64_t bytes = 0;
  int64_t left = resident_bytes_.load(std::memory_order_relaxed) - TargetBytes();
  for (size_t looks = 0; looks < kMaxLooks && left > 0 && bytes < options_.write_bytes && first_ != nullptr;
       ++looks) {
    Chunk* const chunk = first_;
    TieredState& state = chunk->tiered();
    if (!victims.empty() && bytes + chunk->payload_size() > options_.write_bytes) break;
    Unlink(chunk);
    if (state.was_used || !chunk->TryRef()) {  // used since, or about to be destroyed
      state.was_used = false;
      PushBack(chunk);
      continue;
    }
    left -= chunk->bytes();
    if (state.segment != nullptr) {
      released->push_back(ChunkRef::Adopt(chunk));
      released->push_back(ChunkRef::Adopt(std::exchange(state.resident, nullptr)));
      ChangeResident(-chunk->bytes());
      dropped_bytes_ += chunk->bytes();
      continue;
    }
    state.is_moving = true;
    bytes += chunk->payload_size();
    victims.push_back({.chunk = ChunkRef::Adopt(chunk), .resident = ChunkRef::Share(state.resident)});
  }
  return victims;
}

bool ChunkTier::MoveSome() {
  std::vector<ChunkRef> released;
  std::vector<Victim> victims = ChooseVictims(&released);
  if (victims.empty()) {
    const bool has_more = first_ != nullptr;
    mu_.Unlock();
    const bool has_room = !released.empty();
    if (has_room) room_made_.NotifyAll();
    released.clear();
    if (has_room) OnRoom();
    mu_.Lock();
    return has_more || has_room;
  }
  mu_.Unlock();
  const Status status = WriteAll(&victims, /*is_compaction=*/false);
  mu_.Lock();
  uint64_t written = 0;
  for (Victim& victim : victims) {
    TieredState& state = victim.chunk->tiered();
    state.is_moving = false;
    ChangeResident(-victim.chunk->bytes());
    if (!status.ok()) {
      UpdateListed(victim.chunk.get(), /*at_front=*/true);
      continue;
    }
    state.segment = current_.get();
    state.offset = victim.offset;
    state.ordinal = segments_->Add(current_.get(), victim.chunk.get());
    state.was_used = false;
    released.push_back(ChunkRef::Adopt(std::exchange(state.resident, nullptr)));
    dropped_bytes_ += victim.chunk->bytes();
    written += victim.chunk->payload_size();
  }
  // At the limit, compaction may make room; only if it cannot, writes fail.
  const bool is_at_limit = !status.ok() && !segments_->HasRoomFor(0, /*is_compaction=*/false);
  const bool is_compacted = is_at_limit && CompactSome(/*is_urgent=*/true);
  if (!is_compacted) NoteWrite(status, written);
  room_made_.NotifyAll();
  mu_.Unlock();
  released.clear();
  victims.clear();
  OnRoom();
  mu_.Lock();
  return status.ok() || is_compacted;
}

Status ChunkTier::PrepareSegment(uint64_t bytes, bool is_compaction) {
  if (current_ != nullptr && current_->written_bytes + bytes <= current_->file_bytes) return Status::Ok();
  {
    MutexLock lock(&mu_);
    if (!segments_->HasRoomFor(bytes, is_compaction)) {
      return Status::FailedPrecondition(
          "storage: the files in \"" + options_.path + "\" take " + std::to_string(segments_->file_bytes()) +
          " bytes, all that disk_limit = " + std::to_string(options_.disk_limit) + " allows");
    }
  }
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<DiskSegment> next, files_->Create(bytes));
  MutexLock lock(&mu_);
  if (current_ != nullptr) segments_->Seal(current_.get());
  current_ = next;
  segments_->Install(std::move(next));
  return Status::Ok();
}

Status ChunkTier::WriteAll(std::vector<Victim>* victims, bool is_compaction) {
  uint64_t payload_bytes = 0;
  for (const Victim& victim : *victims) payload_bytes += victim.chunk->payload_size();
  const BlockBuffer buffer(RoundUpToBlock(payload_bytes));
  if (buffer.data() == nullptr) return Status::ResourceExhausted("storage: no memory for a write");
  const MemoryCharge charge(budget_, MemoryPart::kReceiving, static_cast<int64_t>(buffer.span().size()));
  uint64_t at = 0;
  for (Victim& victim : *victims) {
    const uint32_t size = victim.chunk->payload_size();
    if (victim.resident) {
      REVERB_RETURN_IF_ERROR(victim.resident->CopyPayload(buffer.data() + at, 0, size));
    } else {
      const uint64_t begin = victim.old_offset / kWriteBlock * kWriteBlock;
      const BlockBuffer read(RoundUpToBlock(victim.old_offset + size) - begin);
      if (read.data() == nullptr) return Status::ResourceExhausted("storage: no memory for compaction");
      // What cannot be read stays where it is; reading it for a sample fails as well.
      if (!victim_->file->Read(begin, read.span()).ok()) continue;
      std::memcpy(buffer.data() + at, read.data() + (victim.old_offset - begin), size);
    }
    victim.offset = at;
    victim.is_written = true;
    at += size;
  }
  const uint64_t written = RoundUpToBlock(at);
  std::memset(buffer.data() + at, 0, written - at);
  REVERB_RETURN_IF_ERROR(PrepareSegment(written, is_compaction));
  REVERB_RETURN_IF_ERROR(current_->file->Write(current_->written_bytes, buffer.span().first(written)));
  for (Victim& victim : *victims) victim.offset += current_->written_bytes;
  current_->written_bytes += written;
  return Status::Ok();
}

bool ChunkTier::CompactSome(bool is_urgent) {
  if (victim_ == nullptr) {
    victim_ = segments_->FindVictim(is_urgent);
    next_in_victim_ = 0;
  }
  if (victim_ == nullptr) return false;
  std::vector<Victim> victims;
  uint64_t bytes = 0;
  for (; next_in_victim_ < victim_->chunks.size() && bytes < options_.write_bytes; ++next_in_victim_) {
    Chunk* const chunk = victim_->chunks[next_in_victim_];
    if (chunk == nullptr || !chunk->TryRef()) continue;
    bytes += chunk->payload_size();
    victims.push_back({.chunk = ChunkRef::Adopt(chunk),
                       .old_offset = chunk->tiered().offset,
                       .old_ordinal = static_cast<uint32_t>(next_in_victim_)});
  }
  const bool is_last = next_in_victim_ == victim_->chunks.size();
  mu_.Unlock();
  const Status status = victims.empty() ? Status::Ok() : WriteAll(&victims, /*is_compaction=*/true);
  mu_.Lock();
  uint64_t written = 0;
  for (const Victim& victim : victims) {
    if (!status.ok()) break;
    if (!victim.is_written) {
      victim_->is_damaged = true;  // do not try it again
      continue;
    }
    TieredState& state = victim.chunk->tiered();
    segments_->Free(victim_.get(), victim.old_ordinal, victim.chunk->payload_size());
    state.segment = current_.get();
    state.offset = victim.offset;
    state.ordinal = segments_->Add(current_.get(), victim.chunk.get());
    written += victim.chunk->payload_size();
  }
  if (!victims.empty()) NoteWrite(status, written);
  if (is_last || !status.ok()) victim_.reset();
  mu_.Unlock();
  victims.clear();
  mu_.Lock();
  return status.ok();
}

void ChunkTier::NoteWrite(const Status& status, uint64_t bytes) {
  written_bytes_ += static_cast<int64_t>(bytes);
  const bool was_failing = is_failing_.exchange(!status.ok(), std::memory_order_relaxed);
  write_error_ = status;
  if (status.ok() == !was_failing) return;
  if (!status.ok()) {
    Log(LogLevel::kError, "storage: cannot move data to disk; inserts wait once " +
                              std::to_string(options_.memory_limit) +
                              " bytes are in memory: " + std::string(status.message()));
  } else {
    Log(LogLevel::kInfo, "storage: data is moved to disk again");
  }
}

}  // namespace reverb::internal
