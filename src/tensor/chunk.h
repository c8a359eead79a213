// chunk.h — an immutable run of rows of one or more columns, shared by reference.
//
// One allocation holds the object, its packed header and, unless the bytes are stored elsewhere, the payload.
// A payload can be in memory of a PayloadSource, which other processes may see; object and header never are.
// Writers create chunks, stores count them, samplers read them: within one process all three share the same
// object, so this class is below the engine and the client.
//
// A store can attach a ledger to a chunk, which is notified when items of tables start and stop referring to
// the chunk, and when it is destroyed.
//
// Threads: immutable after construction, except for the ledger, which is set once; counts are atomic.
#ifndef REVERB_TENSOR_CHUNK_H_
#define REVERB_TENSOR_CHUNK_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/buffer.h"
#include "base/payload_source.h"
#include "base/scattered_bytes.h"
#include "reverb/status.h"
#include "tensor/chunk_header.h"

namespace reverb::internal {

// Receives the events of chunks. Must outlive every chunk that it is attached to.
class ChunkLedger {
 public:
  // The ledger was attached to a chunk of `bytes`.
  virtual void CountNew(int64_t bytes) = 0;
  // Items now refer to chunks of `bytes` more (or fewer, if negative).
  virtual void CountStored(int64_t bytes) = 0;
  // A chunk of `bytes` was destroyed.
  virtual void CountDestroyed(int64_t bytes) = 0;

 protected:
  ~ChunkLedger() = default;
};

class ChunkRef;

// Returns a number that is unique among the chunks of this process.
uint64_t NextChunkId();

class Chunk {
 public:
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  // Smaller payloads are never allocated from a PayloadSource: a second allocation would cost more than it
  // gains.
  static constexpr size_t kMinSourcedBytes = 128;

  // Creates a chunk with a copy of `payload`, in memory of `source` if one is given and has memory left. All
  // four functions fail if the header is invalid, exceeds the limits or does not match the payload; they do
  // not verify checksums.
  static Result<ChunkRef> Copy(uint64_t id, const ChunkHeader& header, std::span<const uint8_t> payload,
                               const DecodeLimits& limits = {}, PayloadSource* source = nullptr);
  // Same, but the caller must write the whole payload before sharing the chunk.
  static Result<ChunkRef> Uninitialized(uint64_t id, const ChunkHeader& header, uint8_t** payload,
                                        const DecodeLimits& limits = {}, PayloadSource* source = nullptr);
  // Creates a chunk over bytes stored elsewhere (shared memory, a mapped file).
  static Result<ChunkRef> External(uint64_t id, const ChunkHeader& header, Buffer payload,
                                   const DecodeLimits& limits = {});
  // Creates a chunk over scattered bytes: CopyPayload() reads them in place, while payload() joins them
  // first.
  static Result<ChunkRef> Scattered(uint64_t id, const ChunkHeader& header,
                                    std::unique_ptr<const ScatteredBytes> payload,
                                    const DecodeLimits& limits = {});

  // Unique among the chunks of one store or of one writer.
  uint64_t id() const { return id_; }
  PackedChunkHeader header() const { return PackedChunkHeader(reinterpret_cast<const uint8_t*>(this + 1)); }
  std::span<const uint8_t> payload() const {
    if (place_ == Place::kInline) [[likely]] {
      return {tail(), payload_size_};
    }
    if (place_ == Place::kSourced) [[likely]] {
      return {sourced().data, payload_size_};
    }
    return {ExternalPayload(), payload_size_};
  }
  // Copies `size` bytes of the payload from `offset` on. Fails only if the payload was scattered over memory
  // that its owner has lost. REQUIRES: the range lies within the payload.
  Status CopyPayload(uint8_t* out, size_t offset, size_t size) const {
    if (place_ == Place::kScattered) [[unlikely]] {
      return scattered().CopyTo(out, offset, size);
    }
    if (size > 0) std::memcpy(out, payload().data() + offset, size);
    return Status::Ok();
  }
  // Returns the payload if it is in memory that belongs to this chunk and stays there as long as it lives; null
  // otherwise.
  const uint8_t* fixed_payload() const {
    if (place_ == Place::kInline) [[likely]] {
      return tail();
    }
    return place_ == Place::kSourced ? sourced().data : nullptr;
  }
  // Returns whether payload() has to join the bytes first.
  bool is_scattered() const { return place_ == Place::kScattered; }
  std::span<const uint8_t> column_payload(uint32_t column) const {
    const PackedChunkHeader h = header();
    return payload().subspan(h.column_payload_offset(column), h.column_payload_size(column));
  }
  // Returns the memory that the chunk takes, without the allocator's overhead.
  int64_t bytes() const { return static_cast<int64_t>(tail_offset_) + payload_size_; }

  void Ref() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) Destroy();
  }

  // Attaches a ledger, unless one is attached already. Returns the attached one.
  ChunkLedger* AttachLedger(ChunkLedger* ledger);
  // Null if none is attached.
  ChunkLedger* ledger() const { return ledger_.load(std::memory_order_relaxed); }
  // Called when an item of a table starts or stops referring to the chunk. Cheap; called under the table's
  // lock.
  // REQUIRES: a ledger is attached.
  void AddItemRef() {
    if (item_refs_.fetch_add(1, std::memory_order_relaxed) == 0) ledger()->CountStored(bytes());
  }
  void DropItemRef() {
    if (item_refs_.fetch_sub(1, std::memory_order_relaxed) == 1) ledger()->CountStored(-bytes());
  }
  bool is_stored() const { return item_refs_.load(std::memory_order_relaxed) != 0; }

 private:
  Chunk() = default;
  ~Chunk() = default;
  // With a source that has memory left, the payload is there and `tail_bytes` are not needed.
  static Result<ChunkRef> Allocate(uint64_t id, const ChunkHeader& header, size_t payload_bytes,
                                   size_t tail_bytes, const DecodeLimits& limits,
                                   PayloadSource* source = nullptr);
  uint8_t* tail() { return reinterpret_cast<uint8_t*>(this) + tail_offset_; }
  const uint8_t* tail() const { return reinterpret_cast<const uint8_t*>(this) + tail_offset_; }
  const ScatteredBytes& scattered() const {
    return **reinterpret_cast<const std::unique_ptr<const ScatteredBytes>*>(tail());
  }
  // A payload in memory of a source.
  struct Sourced {
    PayloadSource* source;
    uint8_t* data;
  };
  const Sourced& sourced() const { return *reinterpret_cast<const Sourced*>(tail()); }
  // Returns where the payload of a new chunk is to be written. REQUIRES: inline, or of a source.
  uint8_t* room() { return place_ == Place::kSourced ? sourced().data : tail(); }
  const uint8_t* ExternalPayload() const;
  void Destroy();

  enum class Place : uint8_t { kInline, kBuffer, kScattered, kSourced };

  std::atomic<uint32_t> refs_{1};
  std::atomic<uint32_t> item_refs_{0};
  uint64_t id_ = 0;
  std::atomic<ChunkLedger*> ledger_{nullptr};
  // This object is followed by the packed header and, at tail_offset_, by the payload or by a reference to
  // it: a Buffer, a pointer to ScatteredBytes or a Sourced.
  uint32_t tail_offset_ : 30 = 0;
  Place place_ : 2 = Place::kInline;
  uint32_t payload_size_ = 0;
};
static_assert(sizeof(Chunk) == 32, "paid once per chunk: keep it small");

// A counted reference. Null only if default-constructed or moved from.
class ChunkRef {
 public:
  ChunkRef() = default;
  // Takes over one reference.
  static ChunkRef Adopt(Chunk* chunk) { return ChunkRef(chunk); }
  static ChunkRef Share(Chunk* chunk) {
    chunk->Ref();
    return ChunkRef(chunk);
  }
  ChunkRef(const ChunkRef& other) : chunk_(other.chunk_) {
    if (chunk_) chunk_->Ref();
  }
  ChunkRef(ChunkRef&& other) noexcept : chunk_(std::exchange(other.chunk_, nullptr)) {}
  ChunkRef& operator=(ChunkRef other) noexcept {
    std::swap(chunk_, other.chunk_);
    return *this;
  }
  ~ChunkRef() {
    if (chunk_) chunk_->Unref();
  }

  Chunk* get() const { return chunk_; }
  Chunk* operator->() const { return chunk_; }
  Chunk& operator*() const { return *chunk_; }
  explicit operator bool() const { return chunk_ != nullptr; }
  // Returns the chunk without releasing the reference.
  Chunk* Release() { return std::exchange(chunk_, nullptr); }

 private:
  explicit ChunkRef(Chunk* chunk) : chunk_(chunk) {}
  Chunk* chunk_ = nullptr;
};

// Returns bytes of a chunk as a Buffer that keeps the chunk alive. REQUIRES: they are part of its payload.
Buffer ShareBytes(ChunkRef chunk, std::span<const uint8_t> bytes);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_CHUNK_H_
