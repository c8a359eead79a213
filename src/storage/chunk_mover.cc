// How a tier moves payloads to disk: a thread that writes those that were used least recently, removes segments without
// live payloads, and compacts others.
#include <algorithm>
#include <cstring>
#include <limits>
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
constexpr size_t kMaxLooks = 4096;  // at chunks while the lock is held

uint64_t RoundUpToBlock(uint64_t bytes) { return (bytes + kWriteBlock - 1) / kWriteBlock * kWriteBlock; }

// Reads parts of a file in the order of their offsets, several of them with one call.
class ForwardBlocks {
 public:
  // `end`: of the last part, rounded up to a block.
  ForwardBlocks(const BlockFile* file, uint64_t end) : file_(file), end_(end) {}

  Status Read(uint64_t offset, uint32_t size, uint8_t* out) {
    if (offset < begin_ || offset + size > begin_ + window_bytes_) {
      const uint64_t begin = offset / kWriteBlock * kWriteBlock;
      const uint64_t needed = RoundUpToBlock(offset + size) - begin;
      // If a part of the window cannot be read, others may be.
      if (!Fill(begin, std::max(needed, std::min(kWindowBytes, end_ - begin))).ok()) {
        REVERB_RETURN_IF_ERROR(Fill(begin, needed));
      }
    }
    std::memcpy(out, window_->data() + (offset - begin_), size);
    return Status::Ok();
  }

 private:
  static constexpr uint64_t kWindowBytes = uint64_t{4} << 20;

  Status Fill(uint64_t begin, uint64_t bytes) {
    window_bytes_ = 0;
    window_ = std::make_unique<BlockBuffer>(bytes);
    if (window_->data() == nullptr) return Status::ResourceExhausted("storage: no memory for a read");
    REVERB_RETURN_IF_ERROR(file_->Read(begin, window_->span()));
    begin_ = begin;
    window_bytes_ = bytes;
    return Status::Ok();
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
  uint32_t head_bytes = 0;  // of its record, before the payload
  uint64_t offset = 0;      // where it is now
  uint32_t ordinal = 0;
  bool is_written = false;     // false: it could not be read
  bool is_unreadable = false;  // for now: the error says nothing about the data
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
  return resident > (is_moving_ || wanted_bytes_ > 0 ? TargetBytes()
                                                     : std::max<int64_t>(MemoryLimit() - margin_ / 2, 0));
}

void ChunkTier::OnRoom() {
  if (budget_ != nullptr) budget_->WakeWaiters();
}

void ChunkTier::RunMover() {
  mu_.Lock();
  while (!is_closed_) {
    if (segments_->has_dead() && MayRemove()) {
      RemoveDead();
      continue;
    }
    is_moving_ = MustMove();
    if (!is_moving_) {
      wanted_bytes_ = 0;
      evictable_bytes_.store(0, std::memory_order_relaxed);  // of an error when there was more to move
    }
    if (MayWrite() && (is_moving_ ? MoveSome() : CompactSome(/*is_urgent=*/false) == Compaction::kGained))
      continue;
    AwaitWork();
  }
  mu_.Unlock();
}

void ChunkTier::AwaitWork() {
  if (is_closed_ || (segments_->has_dead() && MayRemove())) return;
  const bool must_move = MustMove();
  if (must_move != is_moving_ && MayWrite()) return;  // changed while the lock was released
  const auto now = std::chrono::steady_clock::now();
  std::chrono::nanoseconds wait = std::chrono::nanoseconds::max();
  if (must_move) wait = options_.retry_interval;
  if (!MayWrite()) wait = std::min<std::chrono::nanoseconds>(wait, write_again_ - now);
  if (segments_->has_dead()) wait = std::min<std::chrono::nanoseconds>(wait, remove_again_ - now);
  if (wait == std::chrono::nanoseconds::max()) {
    mover_wanted_.Wait(&mu_);
  } else if (wait > wait.zero()) {
    mover_wanted_.WaitFor(&mu_, wait);
  }
}

bool ChunkTier::MayWrite() const {
  if (!is_failing()) return true;
  // A write may fit again, or compaction gain something.
  if (is_disk_full() && freed_bytes_ >= options_.write_bytes) return true;
  return std::chrono::steady_clock::now() >= write_again_;
}

bool ChunkTier::MayRemove() const { return std::chrono::steady_clock::now() >= remove_again_; }

void ChunkTier::RemoveDead() {
  std::vector<std::shared_ptr<DiskSegment>> dead = segments_->TakeDead();
  mu_.Unlock();
  std::vector<bool> is_removed;
  for (const auto& segment : dead) is_removed.push_back(files_->RemoveFile(*segment));
  mu_.Lock();
  for (size_t i = 0; i < dead.size(); ++i) {
    if (is_removed[i]) {
      freed_bytes_ += dead[i]->file_bytes;
    } else {
      remove_again_ = std::chrono::steady_clock::now() + options_.retry_interval;
    }
    segments_->NoteRemoved(dead[i], is_removed[i]);
  }
  mu_.Unlock();
  dead.clear();  // closes the files, unless they are being read
  mu_.Lock();
}

// Takes chunks off the list until the rest fits or a write is full. Those that are on disk already are dropped at once.
std::vector<ChunkTier::Victim> ChunkTier::ChooseVictims(std::vector<ChunkRef>* released) {
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
      released->push_back(TakeResident(chunk));
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
  if (CompactionGoesFirst()) {
    const Compaction gain = CompactSome(/*is_urgent=*/true);
    if (gain != Compaction::kNone) return gain == Compaction::kGained;
  }
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
    if (!status.ok() && MayLeave(victim.chunk.get())) {
      PushFront(victim.chunk.get());  // counts as before: the memory must not seem to be free for a moment
      continue;
    }
    ChangeResident(-victim.chunk->bytes());
    if (!status.ok()) continue;
    released.push_back(TakeResident(victim.chunk.get()));
    SetPlace(victim);
    state.was_used = false;
    dropped_bytes_ += victim.chunk->bytes();
    written += victim.chunk->payload_size();
  }
  room_made_.NotifyAll();
  // At the limit, compaction may make room; only if it cannot, writes fail. If it fails itself, it notes why.
  auto gain = Compaction::kNone;
  if (!status.ok() && is_at_limit_) {
    gain = segments_->has_dead() && MayRemove() ? Compaction::kGained : CompactSome(/*is_urgent=*/true);
  }
  if (gain == Compaction::kNone) NoteWrite(status, written);
  mu_.Unlock();
  released.clear();
  victims.clear();
  OnRoom();
  mu_.Lock();
  return status.ok() || gain == Compaction::kGained;
}

Status ChunkTier::PrepareSegment(uint64_t bytes, size_t records, bool is_compaction) {
  const auto end_bytes = [&](size_t present) {
    return RoundUpToBlock(MaxSegmentEndBytes(present + records));
  };
  is_at_limit_ = false;
  if (current_ != nullptr &&
      current_->written_bytes + bytes + end_bytes(current_->record_sizes.size()) <= current_->file_bytes) {
    return Status::Ok();
  }
  const uint64_t needed = bytes + end_bytes(0);
  uint64_t most_bytes = UINT64_MAX;
  {
    MutexLock lock(&mu_);
    is_at_limit_ = !segments_->HasRoomFor(needed, is_compaction);
    if (is_compaction) most_bytes = segments_->free_bytes();
    if (is_at_limit_) {
      return Status::FailedPrecondition(
          "storage: the files in \"" + options_.path + "\" take " + std::to_string(segments_->file_bytes()) +
          " bytes, all that disk_limit = " + std::to_string(options_.disk_limit) + " allows");
    }
  }
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<DiskSegment> next, files_->Create(needed, most_bytes));
  std::shared_ptr<const PayloadFile> file;
  if (current_ != nullptr) file = files_->WriteEnd(current_.get());
  MutexLock lock(&mu_);
  if (current_ != nullptr) segments_->Seal(current_.get(), std::move(file));
  current_ = next;
  is_suspect_ = false;
  segments_->Install(std::move(next));
  return Status::Ok();
}

void ChunkTier::LeaveSegment() {
  std::shared_ptr<const PayloadFile> file = files_->WriteEnd(current_.get());
  MutexLock lock(&mu_);
  segments_->Seal(current_.get(), std::move(file));
  current_.reset();
  is_suspect_ = false;
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
      const Status read = reader.Read(victim.old_offset, size, payload);
      // What is lost stays where it is; reading it for a sample fails as well.
      if (read.code() == StatusCode::kDataLoss) continue;
      victim.is_unreadable = !read.ok();
      REVERB_RETURN_IF_ERROR(read);
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
  if (Status status = current_->file->Write(current_->written_bytes, buffer.span().first(written));
      !status.ok()) {
    // If this was the second error at this place, it must not be in the way of all later writes.
    if (status.code() == StatusCode::kDataLoss && std::exchange(is_suspect_, true)) LeaveSegment();
    return status;
  }
  is_suspect_ = false;
  current_->record_sizes.insert(current_->record_sizes.end(), sizes.begin(), sizes.end());
  current_->written_bytes += written;
  return Status::Ok();
}

void ChunkTier::SetPlace(const Victim& victim) {
  TieredState& state = victim.chunk->tiered();
  state.segment = current_.get();
  state.offset = victim.offset;
  state.ordinal = victim.ordinal;
  state.head_bytes = victim.head_bytes;
  segments_->Add(current_.get(), victim.ordinal, victim.chunk.get(), state.head_bytes);
  if (state.resident != nullptr) {
    segments_->SetCopy(current_.get(), victim.chunk->payload_size(), state.head_bytes, true);
  }
}

uint64_t ChunkTier::BytesToMove(const DiskSegment& segment) const {
  // Each write may end with a filler, of half a block on average.
  const uint64_t writes = segment.live_bytes / options_.write_bytes + segment.chunks.size() / kMaxLooks + 1;
  return RoundUpToBlock(kSegmentHeaderBytes + segment.live_record_bytes + writes * kWriteBlock / 2 +
                        MaxSegmentEndBytes(segment.live_count + writes));
}

uint64_t ChunkTier::BytesLeft() const {
  return current_ != nullptr ? current_->file_bytes - current_->written_bytes : 0;
}

bool ChunkTier::CompactionGoesFirst() const {
  if (!segments_->uses_reserve()) return false;
  return victim_ == nullptr || BytesLeft() < BytesToMove(*victim_) + 2 * options_.write_bytes;
}

std::shared_ptr<DiskSegment> ChunkTier::FindVictim(bool is_urgent) const {
  std::shared_ptr<DiskSegment> victim = segments_->FindVictim(is_urgent);
  // While the room that is kept for compaction is in use, one must not begin that it could not end.
  if (victim != nullptr && segments_->uses_reserve() &&
      BytesToMove(*victim) > std::max(BytesLeft(), segments_->free_bytes())) {
    return nullptr;
  }
  return victim;
}

ChunkTier::Compaction ChunkTier::CompactSome(bool is_urgent) {
  if (victim_ == nullptr) {
    victim_ = FindVictim(is_urgent);
    next_in_victim_ = 0;
  }
  if (victim_ == nullptr) return Compaction::kNone;
  std::vector<Victim> victims;
  uint64_t bytes = 0;
  for (size_t looks = 0;
       next_in_victim_ < victim_->chunks.size() && bytes < options_.write_bytes && looks < kMaxLooks;
       ++next_in_victim_, ++looks) {
    Chunk* const chunk = victim_->chunks[next_in_victim_];
    if (chunk == nullptr) continue;
    if (chunk->tiered().resident != nullptr) {  // the copy is not needed
      FreePlace(chunk);
      continue;
    }
    if (!chunk->TryRef()) continue;
    bytes += chunk->payload_size();
    victims.push_back({.chunk = ChunkRef::Adopt(chunk), .old_offset = chunk->tiered().offset});
  }
  const bool is_last = next_in_victim_ == victim_->chunks.size();
  mu_.Unlock();
  const Status status = victims.empty() ? Status::Ok() : WriteAll(&victims, /*is_compaction=*/true);
  mu_.Lock();
  uint64_t written = 0;
  // A segment that cannot be read again and again would keep others from being compacted.
  const bool is_unreadable = std::ranges::any_of(victims, &Victim::is_unreadable);
  if (is_unreadable && victim_->has_read_error) victim_->is_damaged = true;
  victim_->has_read_error = is_unreadable;
  for (const Victim& victim : victims) {
    if (!status.ok()) break;
    if (!victim.is_written) {
      victim_->is_damaged = true;  // do not try it again
      continue;
    }
    if (victim.chunk->tiered().segment != victim_.get()) continue;  // pinned meanwhile
    FreePlace(victim.chunk.get());
    SetPlace(victim);
    written += victim.chunk->payload_size();
  }
  if (!victims.empty()) NoteWrite(status, written);
  if (is_last || !status.ok()) victim_.reset();
  mu_.Unlock();
  victims.clear();
  mu_.Lock();
  return status.ok() ? Compaction::kGained : Compaction::kFailed;
}

void ChunkTier::NoteWrite(const Status& status, uint64_t bytes) {
  written_bytes_ += static_cast<int64_t>(bytes);
  const bool was_failing = is_failing_.exchange(!status.ok(), std::memory_order_relaxed);
  write_error_ = status;
  if (!status.ok()) {
    room_made_.NotifyAll();  // those that do not wait for room that does not come
    write_again_ = std::chrono::steady_clock::now() + options_.retry_interval;
    freed_bytes_ = 0;
    const bool is_room_expected = segments_->has_dead() && MayRemove();
    evictable_bytes_.store(is_room_expected ? 0
                           : is_disk_full() ? std::numeric_limits<int64_t>::max() / 2
                                            : static_cast<int64_t>(options_.write_bytes),
                           std::memory_order_relaxed);
  }
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
