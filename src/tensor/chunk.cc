#include "tensor/chunk.h"

#include <cassert>
#include <cstring>
#include <new>
#include <string>

#include "base/payload_memory.h"
#include "tensor/checksum.h"

namespace reverb::internal {

namespace {

constexpr size_t kMaxTailOffset = (size_t{1} << 29) - 1;  // limited by the bit field

}  // namespace

uint64_t NextChunkId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

Result<ChunkRef> Chunk::Allocate(uint64_t id, const ChunkHeader& header, size_t payload_bytes,
                                 size_t tail_bytes, const DecodeLimits& limits, PayloadSource* source) {
  thread_local constinit KnownHeader known;
  const bool is_known = known.HasFormOf(header, limits);
  REVERB_RETURN_IF_ERROR(is_known ? CheckSteps(header) : ValidateChunkHeader(header, limits));
  const uint64_t described_bytes = is_known ? known.payload_size() : PayloadSize(header);
  if (described_bytes != payload_bytes) {
    return Status::DataLoss("chunk: the header describes " + std::to_string(described_bytes) +
                            " payload bytes but there are " + std::to_string(payload_bytes));
  }
  const size_t packed_bytes = is_known ? known.packed_size() : PackedSize(header);
  const size_t tail_offset = sizeof(Chunk) + packed_bytes;
  if (payload_bytes > UINT32_MAX || tail_offset > kMaxTailOffset) {
    return Status::ResourceExhausted("chunk of " + std::to_string(payload_bytes) +
                                     " payload bytes is too large; write shorter chunks (at most 4 GiB)");
  }
  uint8_t* data = nullptr;
  if (source != nullptr && payload_bytes >= kMinSourcedBytes) {
    data = source->Allocate(payload_bytes);
    if (data != nullptr) tail_bytes = sizeof(Sourced);
  }
  void* memory = ProcessPayloadMemory()->Allocate(tail_offset + tail_bytes);
  if (memory == nullptr) {
    if (data != nullptr) source->Free(data, payload_bytes);
    return Status::ResourceExhausted("no memory for a chunk of " + std::to_string(payload_bytes) + " bytes");
  }
  Chunk* chunk = new (memory) Chunk();
  chunk->id_ = id;
  chunk->tail_offset_ = static_cast<uint32_t>(tail_offset);
  chunk->payload_size_ = static_cast<uint32_t>(payload_bytes);
  auto* const packed = reinterpret_cast<uint8_t*>(chunk + 1);
  if (is_known) {
    known.PackLike(header, packed);
  } else {
    Pack(header, packed);
    known.Remember(packed, packed_bytes, limits);
  }
  if (data != nullptr) {
    new (chunk->tail()) Sourced{.source = source, .data = data};
    chunk->place_ = Place::kSourced;
  }
  return ChunkRef::Adopt(chunk);
}

Result<ChunkRef> Chunk::Uninitialized(uint64_t id, const ChunkHeader& header, uint8_t** payload,
                                      const DecodeLimits& limits, PayloadSource* source) {
  const uint64_t payload_bytes = PayloadSize(header);
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, Allocate(id, header, payload_bytes, payload_bytes, limits, source));
  *payload = chunk->room();
  return chunk;
}

Result<ChunkRef> Chunk::Copy(uint64_t id, const ChunkHeader& header, std::span<const uint8_t> payload,
                             const DecodeLimits& limits, PayloadSource* source) {
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk,
                          Allocate(id, header, payload.size(), payload.size(), limits, source));
  if (!payload.empty()) std::memcpy(chunk->room(), payload.data(), payload.size());
  return chunk;
}

Result<ChunkRef> Chunk::CopyRaw(uint64_t id, const ChunkHeader& header,
                                std::span<const std::span<const uint8_t>> columns, const DecodeLimits& limits,
                                PayloadSource* source) {
  size_t size = 0;
  for (const std::span<const uint8_t> column : columns) size += column.size();
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, Allocate(id, header, size, size, limits, source));
  const PackedChunkHeader packed = chunk->header();
  uint8_t* to = chunk->room();
  for (uint32_t i = 0; i < packed.num_columns(); ++i) {
    if (columns[i].size() != packed.column_payload_size(i)) {
      return Status::DataLoss("chunk: the header describes " + std::to_string(packed.column_payload_size(i)) +
                              " bytes of column " + std::to_string(i) + " but there are " +
                              std::to_string(columns[i].size()));
    }
    if (!columns[i].empty()) std::memcpy(to, columns[i].data(), columns[i].size());
    // Of the copy, since the caller's bytes may change. Nobody else has the header yet.
    for (const BlockInfo& block : packed.column(i).blocks) {
      const_cast<BlockInfo&>(block).checksum = Checksum({to, block.stored_size});
      to += block.stored_size;
    }
  }
  return chunk;
}

Result<ChunkRef> Chunk::External(uint64_t id, const ChunkHeader& header, Buffer payload,
                                 const DecodeLimits& limits) {
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, Allocate(id, header, payload.size(), sizeof(Buffer), limits));
  new (chunk->tail()) Buffer(std::move(payload));
  chunk->place_ = Place::kBuffer;
  return chunk;
}

Result<ChunkRef> Chunk::Scattered(uint64_t id, const ChunkHeader& header,
                                  std::unique_ptr<const ScatteredBytes> payload, const DecodeLimits& limits) {
  using Pointer = std::unique_ptr<const ScatteredBytes>;
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, Allocate(id, header, payload->size(), sizeof(Pointer), limits));
  new (chunk->tail()) Pointer(std::move(payload));
  chunk->place_ = Place::kScattered;
  return chunk;
}

Result<ChunkRef> Chunk::AllocateLike(const Chunk& like, size_t tail_bytes) {
  // The tail follows the header of the other chunk without a gap, whatever is in it.
  const size_t tail_offset = like.tail_offset_;
  void* const memory = ProcessPayloadMemory()->Allocate(tail_offset + tail_bytes);
  if (memory == nullptr) {
    return Status::ResourceExhausted("no memory for a chunk of " + std::to_string(like.payload_size_) +
                                     " bytes");
  }
  Chunk* const chunk = new (memory) Chunk();
  chunk->id_ = like.id_;
  chunk->tail_offset_ = static_cast<uint32_t>(tail_offset);
  chunk->payload_size_ = like.payload_size_;
  std::memcpy(reinterpret_cast<uint8_t*>(chunk + 1), reinterpret_cast<const uint8_t*>(&like + 1),
              tail_offset - sizeof(Chunk));
  return ChunkRef::Adopt(chunk);
}

Result<ChunkRef> Chunk::WithPayload(const Chunk& like, Buffer payload) {
  assert(payload.size() == like.payload_size_);
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, AllocateLike(like, sizeof(Buffer)));
  new (chunk->tail()) Buffer(std::move(payload));
  chunk->place_ = Place::kBuffer;
  return chunk;
}

Result<ChunkRef> Chunk::WithCopyOf(const Chunk& like, std::span<const uint8_t> payload,
                                   PayloadSource* source) {
  assert(payload.size() == like.payload_size_);
  uint8_t* data = nullptr;
  if (source != nullptr && payload.size() >= kMinSourcedBytes) data = source->Allocate(payload.size());
  Result<ChunkRef> chunk = AllocateLike(like, data != nullptr ? sizeof(Sourced) : payload.size());
  if (!chunk.ok()) {
    if (data != nullptr) source->Free(data, payload.size());
    return chunk;
  }
  if (data != nullptr) {
    new ((*chunk)->tail()) Sourced{.source = source, .data = data};
    (*chunk)->place_ = Place::kSourced;
  }
  if (!payload.empty()) std::memcpy((*chunk)->room(), payload.data(), payload.size());
  return chunk;
}

Result<ChunkRef> Chunk::Tiered(ChunkRef resident, PayloadTier* tier) {
  assert(!resident->is_tiered());
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, AllocateLike(*resident, sizeof(TieredState)));
  new (chunk->tail()) TieredState{.tier = tier, .resident = resident.Release()};
  chunk->place_ = Place::kTiered;
  return chunk;
}

const uint8_t* Chunk::ExternalPayload() const {
  if (place_ == Place::kTiered) {
    const Chunk* const resident = reinterpret_cast<const TieredState*>(tail())->resident;
    assert(resident != nullptr);
    return resident->payload().data();
  }
  if (place_ == Place::kScattered) return scattered().Contiguous().data();
  return reinterpret_cast<const Buffer*>(tail())->data();
}

ChunkLedger* Chunk::AttachLedger(ChunkLedger* ledger) {
  ChunkLedger* present = nullptr;
  if (!ledger_.compare_exchange_strong(present, ledger, std::memory_order_acq_rel)) return present;
  ledger->CountNew(own_bytes());
  return ledger;
}

namespace {

struct ChunkOwner final : BufferOwner {
  explicit ChunkOwner(ChunkRef ref) : chunk(std::move(ref)) {}
  ChunkRef chunk;
};

}  // namespace

Buffer ShareBytes(ChunkRef chunk, std::span<const uint8_t> bytes) {
  return Buffer(new ChunkOwner(std::move(chunk)), bytes.data(), bytes.size());
}

void Chunk::Destroy() {
  ChunkLedger* const ledger = ledger_.load(std::memory_order_acquire);
  const int64_t size = own_bytes();
  size_t allocated = tail_offset_;
  switch (place_) {
    case Place::kInline:
      allocated += payload_size_;
      break;
    case Place::kBuffer:
      allocated += sizeof(Buffer);
      std::destroy_at(reinterpret_cast<Buffer*>(tail()));
      break;
    case Place::kScattered:
      allocated += sizeof(std::unique_ptr<const ScatteredBytes>);
      std::destroy_at(reinterpret_cast<std::unique_ptr<const ScatteredBytes>*>(tail()));
      break;
    case Place::kSourced:
      allocated += sizeof(Sourced);
      sourced().source->Free(sourced().data, payload_size_);
      break;
    case Place::kTiered:
      allocated += sizeof(TieredState);
      tiered().tier->OnDestroyed(this);
      break;
  }
  this->~Chunk();
  ProcessPayloadMemory()->Free(this, allocated);
  if (ledger != nullptr) ledger->CountDestroyed(size);
}

}  // namespace reverb::internal
