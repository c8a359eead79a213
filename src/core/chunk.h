// chunk.h — an immutable run of rows of one or more columns, shared by reference.
//
// One allocation holds the object, its packed header and, unless the bytes live elsewhere,
// the payload. Two counts are kept: all references, and those by items of tables; the
// second tells the store which chunks are stored.
//
// Threads: immutable after construction; counts are atomic.
#ifndef REVERB_CORE_CHUNK_H_
#define REVERB_CORE_CHUNK_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <utility>

#include "base/buffer.h"
#include "reverb/status.h"
#include "tensor/chunk_header.h"

namespace reverb::internal {

class ChunkAccounts;

class Chunk {
 public:
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  // Sequential in its store, never used twice.
  uint64_t id() const { return id_; }
  PackedChunkHeader header() const { return PackedChunkHeader(reinterpret_cast<const uint8_t*>(this + 1)); }
  std::span<const uint8_t> payload() const {
    const uint8_t* tail = reinterpret_cast<const uint8_t*>(this) + tail_offset_;
    if (!payload_is_external_) [[likely]]
      return {tail, payload_size_};
    return {reinterpret_cast<const Buffer*>(tail)->data(), payload_size_};
  }
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
  // An item of a table refers to the chunk, or no longer does. Cheap; called under the table's lock.
  void AddItemRef() {
    if (item_refs_.fetch_add(1, std::memory_order_relaxed) == 0) CountStored(bytes());
  }
  void DropItemRef() {
    if (item_refs_.fetch_sub(1, std::memory_order_relaxed) == 1) CountStored(-bytes());
  }
  bool is_stored() const { return item_refs_.load(std::memory_order_relaxed) != 0; }

 private:
  friend class ChunkStore;
  Chunk() = default;
  ~Chunk() = default;
  void Destroy();
  void CountStored(int64_t bytes);

  std::atomic<uint32_t> refs_{1};
  std::atomic<uint32_t> item_refs_{0};
  uint64_t id_ = 0;
  ChunkAccounts* accounts_ = nullptr;
  // Behind this object lie the packed header and, at tail_offset_, the payload or the Buffer
  // that refers to it.
  uint32_t tail_offset_ : 31 = 0;
  uint32_t payload_is_external_ : 1 = false;
  uint32_t payload_size_ = 0;
};

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

static_assert(sizeof(Chunk) == 32, "paid once per chunk: keep it small");

}  // namespace reverb::internal

#endif  // REVERB_CORE_CHUNK_H_
