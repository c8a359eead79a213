// format.h — the bytes of manifests and pages. docs/checkpoint-format.md describes them.
//
// Decoded bytes may come from a damaged file: decoders return DATA_LOSS and use memory in proportion to the
// bytes at most. Threads: values and free functions.
#ifndef REVERB_CHECKPOINT_FORMAT_H_
#define REVERB_CHECKPOINT_FORMAT_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/layout.h"
#include "checkpoint/source.h"
#include "core/snapshot.h"
#include "reverb/status.h"
#include "tensor/byte_io.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

// Version 1 had a string after each table's signature, which is skipped; version 3 has the table's layout there,
// and more fields at the end of each table; version 4 has the shard at the end; version 5 has the row tables there;
// version 6 has max_bytes at the end of each table.
inline constexpr uint32_t kManifestVersion = 6;

// DATA_LOSS: the file at `path` is damaged.
Status DamagedFile(const std::string& path, const std::string& what);

// --- Segment files ---

// checksum:u64, then the bytes
inline constexpr size_t kPageRecordHeadBytes = 8;

Status CheckSegmentHeader(std::string_view bytes, uint64_t number, SegmentKind kind, const std::string& path);

// --- Locations of chunks and records ---

// The segment and record of a chunk.
struct ChunkPlace {
  uint64_t segment = 0;
  uint32_t ordinal = 0;
};
struct RecordPlace {
  uint64_t segment = 0;
  uint64_t offset = 0;
  uint64_t size = 0;  // of the record, head included
};

// --- The manifest ---

struct SavedSegment {
  uint64_t number = 0;
  SegmentKind kind = SegmentKind::kChunks;
  uint64_t file_bytes = 0;
  // For chunks: all records, those that this checkpoint needs, and their bytes.
  uint64_t count = 0;
  uint64_t live_count = 0;
  uint64_t live_bytes = 0;
};

struct ManifestTable {
  SavedTable saved;                // without the fields of the state record
  RecordPlace state;               // SavedTableState: selectors, free slots, extensions
  std::vector<RecordPlace> pages;  // of Manifest::slots_per_page slots each
};

// The smallest size of an item in a page: a varint each for slot, operation, segment, ordinal, offset and length; the
// flags; key, priority and time.
inline constexpr uint64_t kMinItemBytes = 6 + 1 + 3 * 8;
// The smallest size of a row in a page.
inline constexpr uint64_t kMinRowBytes = 8;

struct ManifestRowTable {
  std::string name;
  uint64_t rows = 0;
  RecordPlace state;               // SavedRowTable
  std::vector<RecordPlace> pages;  // rows, in the order of their slots
};

struct Manifest {
  uint32_t version = kManifestVersion;  // as read; the current one is written
  int64_t created_nanos = 0;
  uint64_t slots_per_page = PagedArray<SlotRecord>::kPerPage;
  std::vector<SavedSegment> segments;
  std::vector<ManifestTable> tables;
  std::vector<SavedWriter> writers;
  uint32_t shard = 0;  // of the server; 0 = unknown
  std::vector<ManifestRowTable> row_tables = {};
};

std::string EncodeManifest(const Manifest& manifest);
// Returns DATA_LOSS when damaged, FAILED_PRECONDITION when a later release wrote it. `path` is for messages.
Result<Manifest> DecodeManifest(std::string_view bytes, const std::string& path);
// Reads the manifest of the checkpoint at `path`.
Result<Manifest> ReadManifest(FileSystem* fs, const std::string& path);

// --- Records of page files ---

// The part of a table's state that is a separate record because it may be large.
void EncodeTableState(const SavedTableState& state, std::string* out);
Status DecodeTableState(std::string_view bytes, SavedTableState* state);

// Builds the record of a page, item by item.
class PageEncoder {
 public:
  void Begin(uint64_t first_slot);
  // Slots must ascend. `places`: the locations of the trajectory's distinct chunks, in their order.
  void Add(uint64_t slot, const SlotRecord& record, std::span<const ChunkPlace> places);
  // Valid until the next Begin().
  std::string_view bytes() const { return {buffer_.data(), size_}; }

 private:
  void Reserve(size_t more) {
    if (buffer_.size() - size_ < more) buffer_.resize(2 * buffer_.size() + more);
  }
  void Byte(uint8_t value) { buffer_[size_++] = static_cast<char>(value); }
  void Varint(uint64_t value) {
    size_ = static_cast<size_t>(WriteVarint(buffer_.data() + size_, value) - buffer_.data());
  }
  void Fixed64(uint64_t value) {
    std::memcpy(buffer_.data() + size_, &value, sizeof value);
    size_ += sizeof value;
  }

  std::vector<char> buffer_;
  size_t size_ = 0;
  uint64_t next_slot_ = 0;
};

struct PageSlice {
  uint32_t chunk = 0;  // index into PageItem::chunks
  uint32_t chunk_column = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
};
struct PageColumn {
  std::vector<PageSlice> slices;
  bool squeeze = false;
};
// An item of a page, before its chunks are loaded.
struct PageItem {
  SavedItem item;  // without trajectory
  std::vector<ChunkPlace> chunks;
  std::vector<PageColumn> columns;
  size_t num_columns = 0;  // the others are left over from an earlier item
};
// Calls `visit` for each item of the page with slots [first_slot, end_slot). Reuses the object for the next
// item.
Status DecodePage(std::string_view bytes, uint64_t first_slot, uint64_t end_slot,
                  const std::function<Status(PageItem&)>& visit);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_FORMAT_H_
