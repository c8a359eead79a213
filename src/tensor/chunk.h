// chunk.h — an immutable run of rows of one or more columns, shared by reference.
//
// One allocation holds the object, its packed header and, unless the bytes are stored elsewhere, the payload.
// A payload can be in memory of a PayloadSource, which other processes may see; object and header never are.
// Writers create chunks, stores count them, samplers read them: within one process all three share the same
// object, so this class is below the engine and the client.
//
// The payload of a tiered chunk comes and goes: in memory it is another chunk, the resident one, with the same
// header; otherwise it is on disk (storage/chunk_tier.h). Only tables and snapshots refer to tiered chunks: those
// who read payloads get the resident ones.
//
// A store can attach a ledger to a chunk, which is notified when items of tables start and stop referring to
// the chunk, and when it is destroyed.
//
// Threads: immutable after construction, except for the ledger, which is set once, and for what a tier changes
// under its own lock; counts are atomic.
#ifndef REVERB_TENSOR_CHUNK_H_
#define REVERB_TENSOR_CHUNK_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/payload_source.h"
#include "base/scattered_bytes.h"
#include "reverb/status.h"
#include "tensor/chunk_header.h"

namespace reverb::internal {

class Chunk;
class ChunkRef;
class PayloadTier;

// Receives the events of chunks. Must outlive every chunk that it is attached to.
class ChunkLedger {
 public:
  // The ledger was attached to a chunk of `bytes`.
  virtual void CountNew(int64_t bytes) = 0;
  // Items now refer to the chunk, `bytes` more, or no longer do, if negative.
  virtual void CountStored(Chunk* chunk, int64_t bytes) = 0;
  // Snapshots now keep chunks of `bytes` more (or fewer) that no item refers to any more.
  virtual void CountParked(int64_t /*bytes*/) {}
  // A chunk of `bytes` was destroyed.
  virtual void CountDestroyed(int64_t bytes) = 0;
  // Returns whether this is what the tier has attached to a resident chunk (storage/chunk_tier.h).
  virtual bool IsLinkOf(const PayloadTier* /*tier*/) const { return false; }

 protected:
  ~ChunkLedger() = default;
};

// A file with payloads that does not change any more, in the format of segments (storage/segment_format.h).
struct PayloadFile {
  std::string path = {};
  uint64_t number = 0;
  uint64_t bytes = 0;
  uint32_t count = 0;  // of its records
};
// Where a payload is on disk.
struct PayloadPlace {
  std::shared_ptr<const PayloadFile> file =
      nullptr;              // null: in memory, or in a file that is still being written
  uint32_t ordinal = 0;     // of its record
  uint64_t live_bytes = 0;  // of all payloads of the file that are needed
};

// Where the payloads of tiered chunks are. Must outlive them.
class PayloadTier {
 public:
  // An item started or stopped referring to the chunk. Called under the lock of a table.
  virtual void OnStoredChanged(Chunk* chunk) = 0;
  // A snapshot shows the chunk, and no item refers to it any more. Called under the lock of a table.
  virtual void OnParked(Chunk* chunk) = 0;
  // The last reference is gone. On return the tier has forgotten the chunk.
  virtual void OnDestroyed(Chunk* chunk) = 0;
  // Brings the payload into memory, if necessary, and keeps it there. May read a file.
  virtual Status Pin(Chunk* chunk) = 0;
  // Calls `done` with the resident form of each chunk: before this returns if all are in memory, otherwise on a thread
  // of the tier. DATA_LOSS: it is damaged, or its sectors cannot be read. After other errors a later call may succeed.
  // REQUIRES: the chunks are of this tier.
  using Done = std::function<void(std::vector<Result<ChunkRef>>)>;
  virtual void Fetch(std::vector<ChunkRef> chunks, Done done) = 0;
  // Returns where the payload is. The file may be removed at any time; a link that a caller creates keeps its data.
  virtual PayloadPlace FindPlace(Chunk* chunk) = 0;
  // Waits for the result. Not to be called on threads that serve others.
  virtual std::vector<Result<ChunkRef>> FetchAndWait(std::vector<ChunkRef> chunks) = 0;

 protected:
  ~PayloadTier() = default;
};

// What a tier records in each of its chunks. Except for `tier`, guarded by the tier's lock.
struct TieredState {
  PayloadTier* tier = nullptr;
  Chunk* resident = nullptr;   // a reference; null: only on disk
  void* link = nullptr;        // to the chunk of a writer that this one was created for; null: there is none
  void* segment = nullptr;     // the file that contains the payload; null: only in memory
  uint64_t offset = 0;         // of the payload in the file
  uint32_t ordinal = 0;        // of its record in the file
  uint32_t head_bytes = 0;     // of its record in the file, before the payload
  bool is_pinned : 1 = false;  // stays in memory
  bool is_pin_counted : 1 = false;  // the pinned payload counts as stored
  bool is_kept : 1 = false;    // counts although no item refers to it: it was loaded, or a snapshot shows it
  bool is_listed : 1 = false;  // in the list of those that may leave the memory
  bool is_moving : 1 = false;  // being written
  bool was_used : 1 = false;   // since it was last considered for leaving the memory, or since it left
  uint32_t used_in = 0;        // the period in which it was last read from disk
  Chunk* prev = nullptr;       // in the list
  Chunk* next = nullptr;
};

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
  // five functions fail if the header is invalid, exceeds the limits or does not match the payload; they do
  // not verify checksums.
  static Result<ChunkRef> Copy(uint64_t id, const ChunkHeader& header, std::span<const uint8_t> payload,
                               const DecodeLimits& limits = {}, PayloadSource* source = nullptr);
  // Same for raw rows: copies the rows of each column, and computes the checksums of the copies. Those in `header` are
  // ignored. REQUIRES: no column is compressed.
  static Result<ChunkRef> CopyRaw(uint64_t id, const ChunkHeader& header,
                                  std::span<const std::span<const uint8_t>> columns,
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

  // Creates a chunk with the header of `like` over its payload, stored elsewhere. REQUIRES: the sizes agree.
  static Result<ChunkRef> WithPayload(const Chunk& like, Buffer payload);
  // Same, with a copy of the payload, in memory of `source` if one is given and has memory left.
  static Result<ChunkRef> WithCopyOf(const Chunk& like, std::span<const uint8_t> payload,
                                     PayloadSource* source);
  // Creates the tiered chunk whose payload is `resident`, with the same id.
  static Result<ChunkRef> Tiered(ChunkRef resident, PayloadTier* tier);

  // Unique among the chunks of one store or of one writer.
  uint64_t id() const { return id_; }
  PackedChunkHeader header() const { return PackedChunkHeader(reinterpret_cast<const uint8_t*>(this + 1)); }
  uint32_t payload_size() const { return payload_size_; }
  // REQUIRES for a tiered chunk: it is pinned, or no item has referred to it yet.
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
  // Returns the memory that the chunk takes, without the allocator's overhead; of a tiered one, with its payload,
  // wherever that is.
  int64_t bytes() const { return static_cast<int64_t>(tail_offset_) + payload_size_; }
  // Returns the memory that a tiered chunk takes without its payload, otherwise bytes().
  int64_t own_bytes() const {
    if (place_ != Place::kTiered) [[likely]] {
      return bytes();
    }
    return static_cast<int64_t>(tail_offset_ + sizeof(TieredState));
  }

  bool is_tiered() const { return place_ == Place::kTiered; }
  // REQUIRES: is_tiered().
  TieredState& tiered() { return *reinterpret_cast<TieredState*>(tail()); }

  void Ref() { refs_.fetch_add(1, std::memory_order_relaxed); }
  // Adds a reference, unless there is none left.
  bool TryRef() {
    uint32_t refs = refs_.load(std::memory_order_relaxed);
    while (refs != 0) {
      if (refs_.compare_exchange_weak(refs, refs + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
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
    if (item_refs_.fetch_add(1, std::memory_order_relaxed) == 0) ledger()->CountStored(this, bytes());
  }
  // Returns whether it was the last item.
  bool DropItemRef() {
    if (item_refs_.fetch_sub(1, std::memory_order_relaxed) != 1) return false;
    ledger()->CountStored(this, -bytes());
    return true;
  }
  bool is_stored() const { return item_refs_.load(std::memory_order_relaxed) != 0; }

 private:
  Chunk() = default;
  ~Chunk() = default;
  // With a source that has memory left, the payload is there and `tail_bytes` are not needed.
  static Result<ChunkRef> Allocate(uint64_t id, const ChunkHeader& header, size_t payload_bytes,
                                   size_t tail_bytes, const DecodeLimits& limits,
                                   PayloadSource* source = nullptr);
  // Allocates a chunk with id, header and size of payload of `like`.
  static Result<ChunkRef> AllocateLike(const Chunk& like, size_t tail_bytes);
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

  enum class Place : uint8_t { kInline, kBuffer, kScattered, kSourced, kTiered };

  std::atomic<uint32_t> refs_{1};
  std::atomic<uint32_t> item_refs_{0};
  uint64_t id_ = 0;
  std::atomic<ChunkLedger*> ledger_{nullptr};
  // This object is followed by the packed header and, at tail_offset_, by the payload or by a reference to
  // it: a Buffer, a pointer to ScatteredBytes, a Sourced or a TieredState.
  uint32_t tail_offset_ : 29 = 0;
  Place place_ : 3 = Place::kInline;
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
