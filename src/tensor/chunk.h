// chunk.h — an immutable run of rows of one or more columns, shared by reference.
//
// One allocation holds the object, its packed header and, unless the bytes live elsewhere, the
// payload. Writers make chunks, stores count them, samplers read them: in one process the same
// object serves all three, which is why it lives below the engine and the client.
//
// A ledger, if a store has entered the chunk in one, is told when items of tables begin and cease to
// refer to the chunk, and when it goes.
//
// Threads: immutable after construction, save for the ledger, which is set once; counts are atomic.
#ifndef REVERB_TENSOR_CHUNK_H_
#define REVERB_TENSOR_CHUNK_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/buffer.h"
#include "base/scattered_bytes.h"
#include "reverb/status.h"
#include "tensor/chunk_header.h"

namespace reverb::internal {

// Told of what happens to chunks. Outlives every chunk that is entered in it.
class ChunkLedger {
 public:
  // A chunk of `bytes` was entered.
  virtual void CountNew(int64_t bytes) = 0;
  // Chunks of `bytes` more (or fewer, if negative) are referred to by items.
  virtual void CountStored(int64_t bytes) = 0;
  // A chunk of `bytes` is gone.
  virtual void CountGone(int64_t bytes) = 0;

 protected:
  ~ChunkLedger() = default;
};

class ChunkRef;

// A number that no other chunk of this process has had.
uint64_t NextChunkId();

class Chunk {
 public:
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  // A chunk that holds a copy of `payload`. All four fail when the header is not valid within the
  // limits or does not fit the payload; checksums are not looked at.
  static Result<ChunkRef> Copy(uint64_t id, const ChunkHeader& header, std::span<const uint8_t> payload,
                               const DecodeLimits& limits = {});
  // The same with the payload left for the caller to write, all of it, before the chunk is shared.
  static Result<ChunkRef> Uninitialized(uint64_t id, const ChunkHeader& header, uint8_t** payload,
                                        const DecodeLimits& limits = {});
  // A chunk over bytes that live elsewhere (shared memory, a mapped file).
  static Result<ChunkRef> External(uint64_t id, const ChunkHeader& header, Buffer payload,
                                   const DecodeLimits& limits = {});
  // A chunk over bytes that came in parts and may stay so: CopyPayload() reads them where they are, while
  // payload() puts them together first.
  static Result<ChunkRef> Scattered(uint64_t id, const ChunkHeader& header,
                                    std::unique_ptr<const ScatteredBytes> payload,
                                    const DecodeLimits& limits = {});

  // Unique among the chunks of one store or of one writer.
  uint64_t id() const { return id_; }
  PackedChunkHeader header() const { return PackedChunkHeader(reinterpret_cast<const uint8_t*>(this + 1)); }
  std::span<const uint8_t> payload() const {
    if (place_ == Place::kHere) [[likely]] {
      return {tail(), payload_size_};
    }
    return {PayloadElsewhere(), payload_size_};
  }
  // Copies `size` bytes of the payload from `offset` on. REQUIRES: they are all part of it.
  void CopyPayload(uint8_t* out, size_t offset, size_t size) const {
    if (place_ == Place::kScattered) [[unlikely]] {
      return scattered().CopyTo(out, offset, size);
    }
    if (size > 0) std::memcpy(out, payload().data() + offset, size);
  }
  // Whether payload() would have to put the bytes together first.
  bool is_scattered() const { return place_ == Place::kScattered; }
  std::span<const uint8_t> column_payload(uint32_t column) const {
    const PackedChunkHeader h = header();
    return payload().subspan(h.column_payload_offset(column), h.column_payload_size(column));
  }
  // All memory that the chunk takes, the allocator's own needs left out.
  int64_t bytes() const { return static_cast<int64_t>(tail_offset_) + payload_size_; }

  void Ref() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) Destroy();
  }

  // Enters the chunk in a ledger, unless it is in one already. Returns the one it is in now.
  ChunkLedger* EnterIn(ChunkLedger* ledger);
  // Null if it is in none.
  ChunkLedger* ledger() const { return ledger_.load(std::memory_order_relaxed); }
  // An item of a table refers to the chunk, or no longer does. Cheap; called under the table's lock.
  // REQUIRES: the chunk is entered in a ledger.
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
  static Result<ChunkRef> Allocate(uint64_t id, const ChunkHeader& header, size_t payload_bytes,
                                   size_t tail_bytes, const DecodeLimits& limits);
  uint8_t* tail() { return reinterpret_cast<uint8_t*>(this) + tail_offset_; }
  const uint8_t* tail() const { return reinterpret_cast<const uint8_t*>(this) + tail_offset_; }
  const ScatteredBytes& scattered() const {
    return **reinterpret_cast<const std::unique_ptr<const ScatteredBytes>*>(tail());
  }
  const uint8_t* PayloadElsewhere() const;
  void Destroy();

  enum class Place : uint8_t { kHere, kBuffer, kScattered };

  std::atomic<uint32_t> refs_{1};
  std::atomic<uint32_t> item_refs_{0};
  uint64_t id_ = 0;
  std::atomic<ChunkLedger*> ledger_{nullptr};
  // Behind this object lie the packed header and, at tail_offset_, the payload, or what refers to it: a
  // Buffer or a pointer to ScatteredBytes.
  uint32_t tail_offset_ : 30 = 0;
  Place place_ : 2 = Place::kHere;
  uint32_t payload_size_ = 0;
};
static_assert(sizeof(Chunk) == 32, "paid once per chunk: keep it small");

// A counted reference. Never null except when default-made or moved from.
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
  // Gives up the reference without dropping it.
  Chunk* Release() { return std::exchange(chunk_, nullptr); }

 private:
  explicit ChunkRef(Chunk* chunk) : chunk_(chunk) {}
  Chunk* chunk_ = nullptr;
};

// Bytes of a chunk as a Buffer that keeps the chunk alive. REQUIRES: they are part of its payload.
Buffer ShareBytes(ChunkRef chunk, std::span<const uint8_t> bytes);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_CHUNK_H_
