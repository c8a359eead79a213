#include "tensor/row_layout.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <vector>

namespace reverb::internal {
namespace {

struct KnownRowLayout {
  struct Column {
    DType dtype;
    bool squeeze;
    uint32_t length;
    std::vector<uint32_t> row_shape;
  };
  uint64_t hash = 0;
  std::vector<Column> columns;
};

uint64_t LayoutHash(std::span<const RowLayoutColumn> columns) {
  uint64_t hash = columns.size();
  const auto add = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x9e37'79b9'7f4a'7c15;
    hash ^= hash >> 32;
  };
  for (const RowLayoutColumn& column : columns) {
    add(uint64_t{column.length} << 32 | static_cast<uint64_t>(column.row_shape.size()) << 16 |
        static_cast<uint64_t>(column.dtype) << 1 | uint64_t{column.squeeze});
    for (const uint32_t dim : column.row_shape) add(dim);
  }
  return hash;
}

bool IsSameLayout(const KnownRowLayout& known, std::span<const RowLayoutColumn> columns) {
  return std::ranges::equal(known.columns, columns,
                            [](const KnownRowLayout::Column& a, const RowLayoutColumn& b) {
                              return a.dtype == b.dtype && a.squeeze == b.squeeze && a.length == b.length &&
                                     std::ranges::equal(a.row_shape, b.row_shape);
                            });
}

std::unique_ptr<const KnownRowLayout> CopyLayout(uint64_t hash, std::span<const RowLayoutColumn> columns) {
  auto copy = std::make_unique<KnownRowLayout>();
  copy->hash = hash;
  copy->columns.reserve(columns.size());
  for (const RowLayoutColumn& column : columns) {
    copy->columns.push_back({.dtype = column.dtype,
                             .squeeze = column.squeeze,
                             .length = column.length,
                             .row_shape = {column.row_shape.begin(), column.row_shape.end()}});
  }
  return copy;
}

// A hash table with open addressing. Entries are never removed or changed: the index of one is its number less one.
constinit std::array<std::atomic<const KnownRowLayout*>, kMaxRowLayouts> known_layouts;
// Bounds the search when the table is nearly full.
constexpr size_t kMaxProbes = 16;

}  // namespace

uint32_t RowLayoutNumber(std::span<const RowLayoutColumn> columns) {
  if (columns.empty() || columns.size() > kMaxRowLayoutColumns) return 0;
  size_t dims = 0;
  for (const RowLayoutColumn& column : columns) dims += column.row_shape.size();
  if (dims > kMaxRowLayoutDims) return 0;
  const uint64_t hash = LayoutHash(columns);
  std::unique_ptr<const KnownRowLayout> fresh;
  for (size_t probe = 0; probe < kMaxProbes; ++probe) {
    const size_t index = (hash + probe) % kMaxRowLayouts;
    const KnownRowLayout* found = known_layouts[index].load(std::memory_order_acquire);
    if (found == nullptr) {
      if (fresh == nullptr) fresh = CopyLayout(hash, columns);
      // Otherwise another thread was faster, maybe with the same layout: `found` is what it added.
      if (known_layouts[index].compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel,
                                                       std::memory_order_acquire)) {
        (void)fresh.release();  // kept until the process ends
        return static_cast<uint32_t>(index + 1);
      }
    }
    if (found->hash == hash && IsSameLayout(*found, columns)) return static_cast<uint32_t>(index + 1);
  }
  return 0;
}

}  // namespace reverb::internal
