// How a tier moves payloads to disk: a thread that writes those that were used least recently, removes segments without
// live payloads, and compacts others.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "storage/block_buffer.h"
#include "storage/chunk_tier.h"
#include "storage/segment_format.h"

namespace reverb::internal {
namespace {

constexpr uint64_t kWriteBlock = BlockFile::kBlockBytes;

uint64_t RoundUpToBlock(uint64_t bytes) { return (bytes + kWriteBlock - 1) / kWriteBlock * kWriteBlock; }

// Reads parts of a file in the order of their offsets, several of them with one call.
class ForwardBlocks {
 public:
  // `end`: of the last part, rounded up to a block.
  ForwardBlocks(const BlockFile* file, uint64_t end) : file_(file), end_(end) {}

  // Returns false if the bytes cannot be read.
  bool Read(uint64_t offset, uint32_t size, uint8_t* out) {
    if (offset < begin_ || offset + size > begin_ + window_bytes_) {
      const uint64_t begin = offset / kWriteBlock * kWriteBlock;
      const uint64_t needed = RoundUpToBlock(offset + size) - begin;
      // If a part of the window cannot be read, others may be.
      if (!Fill(begin, std::max(needed, std::min(kWindowBytes, end_ - begin))) && !Fill(begin, needed))
        return false;
    }
    std::memcpy(out, window_->data() + (offset - begin_), size);
    return true;
  }

 private:
  static constexpr uint64_t kWindowBytes = uint64_t{4} << 20;

  bool Fill(uint64_t begin, uint64_t bytes) {
    window_bytes_ = 0;
    window_ = std::make_unique<BlockBuffer>(bytes);
    if (window_->data() == nullptr || !file_->Read(begin, window_->span()).ok()) return false;
    begin_ = begin;
    window_bytes_ = bytes;
    return true;
  }

  const BlockFile* const file_;
  const uint64_t end_;
  std::unique_ptr<BlockBuffer> window_;
  uint64_t begin_ = 0;
  uint64_t window_bytes_ = 0;
};

}  // namespace

// A payload that is written: from memory, or from a segment that is compacted.
struct ChunkTier::Victim {
  ChunkRef chunk;
  ChunkRef resident = {};
  uint64_t old_offset = 0;
  uint32_t old_ordinal = 0;
  uint32_t head_bytes = 0;  // of its record, before the payload
  uint64_t offset = 0;      // where it is now
  uint32_t ordinal = 0;
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
    if (!MustMove() && !segments_->has_dead() && !is_closed_) mover_wanted_.Wait(&mu_);
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
    state.ordinal = victim.ordinal;
    segments_->Add(current_.get(), victim.ordinal, victim.chunk.get());
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

Status ChunkTier::PrepareSegment(uint64_t bytes, size_t records, bool is_compaction) {
  const auto end_bytes = [&](size_t present) {
    return RoundUpToBlock(MaxSegmentEndBytes(present + records));
  };
  if (current_ != nullptr &&
      current_->written_bytes + bytes + end_bytes(current_->record_sizes.size()) <= current_->file_bytes) {
    return Status::Ok();
  }
  const uint64_t needed = bytes + end_bytes(0);
  {
    MutexLock lock(&mu_);
    if (!segments_->HasRoomFor(needed, is_compaction)) {
      return Status::FailedPrecondition(
          "storage: the files in \"" + options_.path + "\" take " + std::to_string(segments_->file_bytes()) +
          " bytes, all that disk_limit = " + std::to_string(options_.disk_limit) + " allows");
    }
  }
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<DiskSegment> next, files_->Create(needed));
  std::shared_ptr<const PayloadFile> file;
  if (current_ != nullptr) file = files_->WriteEnd(current_.get());
  MutexLock lock(&mu_);
  if (current_ != nullptr) segments_->Seal(current_.get(), std::move(file));
  current_ = next;
  segments_->Install(std::move(next));
  return Status::Ok();
}

Status ChunkTier::WriteAll(std::vector<Victim>* victims, bool is_compaction) {
  std::string heads;
  uint64_t bytes = kSegmentHeaderBytes + kChunkRecordHeadBytes;  // of the segment, and of a filler
  for (Victim& victim : *victims) {
    const size_t begin = heads.size();
    AppendChunkRecordHead(victim.chunk->header(), victim.chunk->payload_size(), &heads);
    victim.head_bytes = static_cast<uint32_t>(heads.size() - begin);
    bytes += victim.head_bytes + victim.chunk->payload_size();
  }
  bytes = RoundUpToBlock(bytes);
  REVERB_RETURN_IF_ERROR(PrepareSegment(bytes, victims->size() + 1, is_compaction));
  const BlockBuffer buffer(bytes);
  if (buffer.data() == nullptr) return Status::ResourceExhausted("storage: no memory for a write");
  const MemoryCharge charge(budget_, MemoryPart::kReceiving, static_cast<int64_t>(bytes));
  uint64_t at = 0;
  if (current_->written_bytes == 0) {
    const std::string header = EncodeSegmentHeader(current_->number, SegmentKind::kChunks);
    std::memcpy(buffer.data(), header.data(), header.size());
    at = header.size();
  }
  std::vector<uint64_t> sizes;
  ForwardBlocks reader(victim_ != nullptr ? victim_->file.get() : nullptr,
                       RoundUpToBlock(victims->back().old_offset + victims->back().chunk->payload_size()));
  const char* head = heads.data();
  for (Victim& victim : *victims) {
    const char* const this_head = std::exchange(head, head + victim.head_bytes);
    uint8_t* const payload = buffer.data() + at + victim.head_bytes;
    const uint32_t size = victim.chunk->payload_size();
    if (victim.resident) {
      REVERB_RETURN_IF_ERROR(victim.resident->CopyPayload(payload, 0, size));
    } else {
      // What cannot be read stays where it is; reading it for a sample fails as well.
      if (!reader.Read(victim.old_offset, size, payload)) continue;
    }
    std::memcpy(buffer.data() + at, this_head, victim.head_bytes);
    victim.offset = current_->written_bytes + at + victim.head_bytes;
    victim.ordinal = static_cast<uint32_t>(current_->record_sizes.size() + sizes.size());
    victim.is_written = true;
    sizes.push_back(victim.head_bytes + size);
    at += sizes.back();
  }
  uint64_t written = RoundUpToBlock(at);
  if (written != at) {
    if (written - at < kChunkRecordHeadBytes) written += kWriteBlock;
    std::string filler;
    AppendFillerHead(written - at, &filler);
    std::memcpy(buffer.data() + at, filler.data(), filler.size());
    std::memset(buffer.data() + at + filler.size(), 0, written - at - filler.size());
    sizes.push_back(written - at);
  }
  REVERB_RETURN_IF_ERROR(current_->file->Write(current_->written_bytes, buffer.span().first(written)));
  current_->record_sizes.insert(current_->record_sizes.end(), sizes.begin(), sizes.end());
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
    state.ordinal = victim.ordinal;
    segments_->Add(current_.get(), victim.ordinal, victim.chunk.get());
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
