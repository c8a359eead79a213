#include "core/key_index.h"

#include <algorithm>

namespace reverb::internal {

void KeyIndex::Grow(Part& part) {
  Part grown;
  const uint64_t capacity = std::max(kFirstCapacity, part.capacity() * 2);
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
  // Entries behind the hole that could lie in it, or before it, move up: those whose own place is not
  // between the hole and where they are now.
  for (uint64_t i = (hole + 1) & part.mask; part.entries[i].slot_plus_1 != 0; i = (i + 1) & part.mask) {
    const uint64_t home = Hash(part.entries[i].key) & part.mask;
    if (((i - home) & part.mask) < ((i - hole) & part.mask)) continue;
    part.entries[hole] = part.entries[i];
    hole = i;
  }
  part.entries[hole] = Entry();
}

}  // namespace reverb::internal
