// trajectory.h — the rows of chunks that an item consists of.
//
// A trajectory has columns, each a sequence of slices; a slice refers to rows of a column of a chunk. The
// most common case, one slice of one chunk, is stored in the 16 bytes of the handle itself; all others use a
// shared, immutable block. In both cases copying costs one atomic increment, and the trajectory keeps its
// chunks alive.
//
// If each column is a single slice of raw rows, the block also has the addresses of the rows and the number of their
// layout (row_layout.h): batches of such items are gathered without reading the chunks, which are scattered in memory.
//
// A series consists of many trajectories with the same columns, whose rows follow each other in the same
// chunks, like a batch received from a server: they share the block, and the handle contains the index in the
// series.
//
// Threads: immutable; copies may be used and destroyed on any thread.
#ifndef REVERB_TENSOR_TRAJECTORY_H_
#define REVERB_TENSOR_TRAJECTORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverb/status.h"
#include "reverb/tensor.h"
#include "tensor/chunk.h"

namespace reverb::internal {

// A slice for reading.
struct SliceView {
  Chunk* chunk = nullptr;
  uint32_t chunk_column = 0;  // column index in the chunk
  uint32_t offset = 0;        // first row
  uint32_t length = 0;        // number of rows
};

// The arguments for creating a trajectory.
struct SliceSpec {
  ChunkRef chunk;
  uint32_t chunk_column = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
};
struct ColumnSpec {
  std::vector<SliceSpec> slices;
  bool squeeze = false;  // one row, returned without the time dimension
};

// A trajectory without ownership, for storage that is copied as bytes.
struct TrajectoryHandle {
  uintptr_t bits = 0;   // Chunk*, or Block* with the lowest bit set
  uint32_t offset = 0;  // with a block: its index in the series
  uint32_t length = 0;  // highest bit: squeeze; with a block: 0
};

class Trajectory {
 public:
  Trajectory() = default;  // empty; not a valid item
  Trajectory(Trajectory&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Trajectory& operator=(Trajectory&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Trajectory(const Trajectory& other) : handle_(other.handle_) { Ref(handle_); }
  Trajectory& operator=(const Trajectory& other) {
    Trajectory copy(other);
    std::swap(handle_, copy.handle_);
    return *this;
  }
  ~Trajectory() { Unref(handle_); }

  // Both check every slice against its chunk, so every trajectory is readable.
  static Result<Trajectory> Create(std::span<const ColumnSpec> columns) { return Create(columns, true); }
  static Result<Trajectory> Single(ChunkRef chunk, uint32_t offset, uint32_t length, bool squeeze = false);
  // Creates the first of `count` consecutive trajectories with one slice per column: the next one has the
  // rows after those of the first, and so on. Checks all of them.
  static Result<Trajectory> CreateSeries(std::span<const ColumnSpec> columns, uint32_t count);
  // Returns element `index` of the series that starts with this one. REQUIRES: index < count.
  Trajectory InSeries(uint32_t index) const {
    Trajectory next(*this);
    next.handle_.offset += IsBlock(handle_) ? index : index * (handle_.length & ~kSqueezeBit);
    return next;
  }
  // Returns whether this has the same columns of the same chunks as `other`, each with the directly following
  // rows. True for neighbours in a series and hardly anything else.
  bool Follows(const Trajectory& other) const {
    const uint32_t step = IsBlock(handle_) ? 1 : handle_.length & ~kSqueezeBit;
    return handle_.bits == other.handle_.bits && handle_.bits != 0 &&
           handle_.length == other.handle_.length && handle_.offset == other.handle_.offset + step;
  }

  // Returns the same rows of other chunks: replace(chunk) returns the one for each distinct chunk, with the same
  // header. RESOURCE_EXHAUSTED if there is no memory.
  template <typename F>
  Result<Trajectory> WithChunks(F&& replace) const {
    if (empty()) return Trajectory();
    if (!IsBlock(handle_)) {
      ChunkRef chunk = replace(reinterpret_cast<Chunk*>(handle_.bits));
      TrajectoryHandle handle = handle_;
      handle.bits = reinterpret_cast<uintptr_t>(chunk.Release());
      return Trajectory(handle);
    }
    REVERB_ASSIGN_OR_RETURN(Trajectory copy, CopyBlock());
    Block* const from = block(handle_);
    Block* const to = block(copy.handle_);
    for (uint32_t i = 0; i < from->num_chunks; ++i) {
      to->chunks()[i] = replace(from->chunks()[i]).Release();
    }
    return copy;
  }

  // Raw handles: Adopt() takes over a reference, Share() adds one, Release() gives one up.
  static Trajectory Adopt(const TrajectoryHandle& handle) { return Trajectory(handle); }
  static Trajectory Share(const TrajectoryHandle& handle) {
    Ref(handle);
    return Trajectory(handle);
  }
  TrajectoryHandle Release() { return std::exchange(handle_, {}); }
  const TrajectoryHandle& handle() const { return handle_; }

  bool empty() const { return handle_.bits == 0; }
  uint32_t num_columns() const { return IsBlock(handle_) ? block(handle_)->num_columns : !empty(); }
  bool squeeze(uint32_t column) const {
    return IsBlock(handle_) ? block(handle_)->columns()[column].squeeze : (handle_.length & kSqueezeBit) != 0;
  }
  uint32_t num_slices(uint32_t column) const {
    if (!IsBlock(handle_)) return 1;
    Block* const b = block(handle_);
    return b->columns()[column].end_slice - b->first_slice(column);
  }
  SliceView slice(uint32_t column, uint32_t index) const {
    if (!IsBlock(handle_)) {
      return {.chunk = reinterpret_cast<Chunk*>(handle_.bits),
              .chunk_column = 0,
              .offset = handle_.offset,
              .length = handle_.length & ~kSqueezeBit};
    }
    Block* const b = block(handle_);
    const SliceEntry& entry = b->slices()[b->first_slice(column) + index];
    return {.chunk = b->chunks()[entry.chunk],
            .chunk_column = entry.chunk_column,
            .offset = entry.offset + handle_.offset * entry.length,
            .length = entry.length};
  }
  // Returns the position of the slice's chunk among the distinct chunks.
  uint32_t chunk_index(uint32_t column, uint32_t index) const {
    if (!IsBlock(handle_)) return 0;
    Block* const b = block(handle_);
    return b->slices()[b->first_slice(column) + index].chunk;
  }
  // Calls visit(column, slice, squeeze) for the columns in order, as long as it returns true. Returns whether it did for
  // all of them. Returns false, without a call, if a column has several slices.
  template <typename F>
  bool ForEachSingleSlice(F&& visit) const {
    if (!IsBlock(handle_)) return !empty() && visit(0U, slice(0, 0), squeeze(0));
    Block* const b = block(handle_);
    if (b->num_slices != b->num_columns) return false;  // each has at least one
    Chunk* const* const chunks = b->chunks();
    const SliceEntry* const slices = b->slices();
    const ColumnEntry* const columns = b->columns();
    for (uint32_t c = 0; c < b->num_columns; ++c) {
      const SliceView slice{.chunk = chunks[slices[c].chunk],
                            .chunk_column = slices[c].chunk_column,
                            .offset = slices[c].offset + handle_.offset * slices[c].length,
                            .length = slices[c].length};
      if (!visit(c, slice, columns[c].squeeze != 0)) return false;
    }
    return true;
  }
  // Calls visit(slice) for the slices of all columns, in order. Faster than slice() for each.
  template <typename F>
  void ForEachSlice(F&& visit) const {
    if (!IsBlock(handle_)) {
      if (!empty()) visit(slice(0, 0));
      return;
    }
    Block* const b = block(handle_);
    Chunk* const* const chunks = b->chunks();
    for (const SliceEntry& entry : std::span(b->slices(), b->num_slices)) {
      visit(SliceView{.chunk = chunks[entry.chunk],
                      .chunk_column = entry.chunk_column,
                      .offset = entry.offset + handle_.offset * entry.length,
                      .length = entry.length});
    }
  }
  // Returns the number of the layout of the rows; 0 if rows() must not be called: for columns of several slices, rows that
  // are not raw, payloads that are not in memory of the chunk itself, series, and trajectories without a block.
  uint32_t row_layout() const { return IsBlock(handle_) ? block(handle_)->row_layout : 0; }
  // Returns where the rows of each column start. REQUIRES: row_layout() != 0.
  std::span<const uint8_t* const> rows() const {
    Block* const b = block(handle_);
    return {b->rows(), b->num_columns};
  }
  // Returns the number of rows in all slices of a column.
  int64_t length(uint32_t column) const;

  // The distinct chunks, in order of first appearance.
  uint32_t num_chunks() const { return IsBlock(handle_) ? block(handle_)->num_chunks : !empty(); }
  template <typename F>
  void ForEachChunk(F&& visit) const {
    ForEachChunk(handle_, visit);
  }
  int64_t chunk_bytes() const;
  // Returns an upper bound of the bytes of all rows when they are decoded, or any number above `limit` if it is more.
  // Strings count with the blocks that they are in.
  uint64_t DecodedBytes(uint64_t limit) const;
  // Returns the memory of the slices, without the handle and the chunks.
  int64_t memory_bytes() const { return MemoryBytes(handle_); }
  static int64_t MemoryBytes(const TrajectoryHandle& handle) {
    if (!IsBlock(handle)) return 0;
    const Block& b = *block(handle);
    return static_cast<int64_t>(sizeof(Block) + (b.num_rows() + b.num_chunks) * sizeof(void*) +
                                b.num_slices * sizeof(SliceEntry) + b.num_columns * sizeof(ColumnEntry));
  }

  // Returns dtype and row shape of a column, taken from its first slice (all slices agree).
  ColumnView column_view(uint32_t column) const;
  // Copies all rows of a fixed-size column, in order, into `out`, which must have exactly length(column) *
  // row bytes.
  Status Read(uint32_t column, std::span<uint8_t> out) const;
  Status ReadStrings(uint32_t column, std::vector<std::string>* out) const;

  // Returns the reference-counted object that a copy accesses, for prefetching.
  static const void* counted_object(const TrajectoryHandle& handle) {
    return reinterpret_cast<const void*>(handle.bits & ~uintptr_t{1});
  }
  template <typename F>
  static void ForEachChunk(const TrajectoryHandle& handle, F&& visit) {
    if (!IsBlock(handle)) {
      if (handle.bits != 0) visit(reinterpret_cast<Chunk*>(handle.bits));
      return;
    }
    Block* const b = block(handle);
    for (uint32_t i = 0; i < b->num_chunks; ++i) visit(b->chunks()[i]);
  }

 private:
  static constexpr uint32_t kSqueezeBit = 1u << 31;
  struct SliceEntry {
    uint32_t chunk;
    uint32_t chunk_column;
    uint32_t offset;
    uint32_t length;
  };
  struct ColumnEntry {
    uint32_t end_slice : 31;
    uint32_t squeeze : 1;
  };
  // Followed by the rows of each column (uint8_t*[num_columns], only with a row_layout), Chunk*[num_chunks],
  // SliceEntry[num_slices], ColumnEntry[num_columns]. Gathering a batch reads only the beginning.
  struct alignas(void*) Block {
    std::atomic<uint32_t> refs{1};
    uint32_t row_layout = 0;
    uint32_t num_columns = 0;
    uint32_t num_slices = 0;
    uint32_t num_chunks = 0;
    size_t num_rows() const { return row_layout != 0 ? num_columns : 0; }
    const uint8_t** rows() { return reinterpret_cast<const uint8_t**>(this + 1); }
    Chunk** chunks() { return reinterpret_cast<Chunk**>(this + 1) + num_rows(); }
    SliceEntry* slices() { return reinterpret_cast<SliceEntry*>(chunks() + num_chunks); }
    ColumnEntry* columns() { return reinterpret_cast<ColumnEntry*>(slices() + num_slices); }
    uint32_t first_slice(uint32_t column) { return column == 0 ? 0 : columns()[column - 1].end_slice; }
  };

  explicit Trajectory(const TrajectoryHandle& handle) : handle_(handle) {}
  static bool IsBlock(const TrajectoryHandle& handle) { return handle.bits & 1; }
  static Block* block(const TrajectoryHandle& handle) { return reinterpret_cast<Block*>(handle.bits - 1); }
  static void Ref(const TrajectoryHandle& handle) {
    if (handle.bits == 0) return;
    if (IsBlock(handle)) {
      block(handle)->refs.fetch_add(1, std::memory_order_relaxed);
    } else {
      reinterpret_cast<Chunk*>(handle.bits)->Ref();
    }
  }
  static void Unref(const TrajectoryHandle& handle) {
    if (handle.bits == 0) return;
    if (!IsBlock(handle)) {
      reinterpret_cast<Chunk*>(handle.bits)->Unref();
    } else if (block(handle)->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      DestroyBlock(block(handle));
    }
  }
  static void DestroyBlock(Block* block);
  // Returns a copy with a block of its own and without a row_layout, whose chunks the caller must set.
  // REQUIRES: IsBlock(handle_).
  Result<Trajectory> CopyBlock() const;
  // `with_rows`: the block has a row_layout if possible.
  static Result<Trajectory> Create(std::span<const ColumnSpec> columns, bool with_rows);
  // Returns the number of the layout of the rows; 0 if they have none.
  static uint32_t RowLayoutOf(std::span<const ColumnSpec> columns);

  TrajectoryHandle handle_;
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_TRAJECTORY_H_
