#include "core/key_index.h"

#include <bit>
#include <cmath>

namespace reverb::internal {

void KeyIndex::Reserve(uint64_t keys) {
  const double mean = static_cast<double>(keys) / static_cast<double>(parts_.size());
  // Hashing distributes the keys unevenly; the few parts that get more keys than this grow later.
  const auto max_keys = static_cast<uint64_t>(mean + 3 * std::sqrt(mean));
  const uint64_t capacity = std::max(kFirstCapacity, std::bit_ceil(max_keys + max_keys / 3 + 1));
  for (Part& part : parts_) {
    if (part.capacity() < capacity) Grow(part, capacity);
  }
}

void KeyIndex::Grow(Part& part, uint64_t capacity) {
  Part grown;
  grown.entries = std::make_unique<Entry[]>(capacity);
  grown.mask = capacity - 1;
  grown.size = part.size;
  for (uint64_t i = 0; i < part.capacity(); ++i) {
    const Entry& entry = part.entries[i];
    if (entry.slot_plus_1 != 0) grown.entries[grown.Probe(entry.key, Hash(entry.key))] = entry;
  }
  part = std::move(grown);
}

void KeyIndex::Erase(uint64_t key) {
  const uint64_t hash = Hash(key);
  Part& part = parts_[PartOf(hash)];
  if (part.entries == nullptr) return;
  uint64_t hole = part.Probe(key, hash);
  if (part.entries[hole].slot_plus_1 == 0) return;
  --part.size;
  // Moves entries after the hole into it, if their home position is not between the hole and their current
  // position.
  for (uint64_t i = (hole + 1) & part.mask; part.entries[i].slot_plus_1 != 0; i = (i + 1) & part.mask) {
    const uint64_t home = Hash(part.entries[i].key) & part.mask;
    if (((i - home) & part.mask) < ((i - hole) & part.mask)) continue;
    part.entries[hole] = part.entries[i];
    hole = i;
  }
  part.entries[hole] = Entry();
}

}  // namespace reverb::internal
