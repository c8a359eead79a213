// row_head.h — the key and the tags of a row in one block of memory, and the numbers of names.
//
// Ownership: a RowHead owns its block. Threads: needs the table's lock.
#ifndef REVERB_CORE_ROWS_ROW_HEAD_H_
#define REVERB_CORE_ROWS_ROW_HEAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/rows/where.h"
#include "reverb/row_table_options.h"
#include "reverb/status.h"

namespace reverb::internal {

// Check what callers give a row: names have 1 to 256 bytes of UTF-8; tags are few and short.
Status CheckRowName(std::string_view what, std::string_view name);
Status CheckRowTags(std::span<const RowTag> tags);

// Numbers the names of columns and tags of a table, so that rows need not repeat them. Names are never removed.
class RowNames {
 public:
  static constexpr size_t kMaxNames = 4096;

  // Returns the number of a name, and adds it if it is new. RESOURCE_EXHAUSTED if there are too many.
  Result<uint16_t> Add(std::string_view name);
  std::optional<uint16_t> Find(std::string_view name) const {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? std::nullopt : std::optional(found->second);
  }
  const std::string& operator[](uint16_t number) const { return names_[number]; }
  const std::vector<std::string>& all() const { return names_; }

 private:
  // Abseil's own hash does not know std::string_view if Abseil was compiled for an older C++.
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };

  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, uint16_t, Hash, std::equal_to<>> numbers_;
};

class RowHead {
 public:
  RowHead() = default;  // without a key
  // REQUIRES: the key has at most kMaxKeyBytes, and all names of tags are in `names`. The last tag of a name counts.
  RowHead(std::string_view key, std::span<const RowTag> tags, const RowNames& names);

  std::string_view key() const;
  // Missing if the row does not have the tag.
  WhereValue Tag(uint16_t name) const;
  // `names`: by number.
  std::vector<RowTag> Tags(std::span<const std::string> names) const;
  // Adds tags, or replaces their values. Returns the former head; empty if nothing has changed.
  RowHead SetTags(std::span<const RowTag> tags, const RowNames& names);
  // Returns the bytes of the block.
  size_t memory_bytes() const;

  // --- For snapshots ---
  // Returns the block, which never changes: it lives as long as this head, or one that it is moved to.
  const char* block() const { return block_.get(); }
  // REQUIRES: `block` is that of a head.
  static RowHead Copy(const char* block);

 private:
  template <typename Visit>
  void ForEachTag(Visit visit) const;

  // u32: size of the block, u16: size of the key, the key, the tags. A tag is u16: name, u8: kind, and its
  // value: a byte, 8 bytes, or u32: size and the bytes.
  std::unique_ptr<char[]> block_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_ROWS_ROW_HEAD_H_
