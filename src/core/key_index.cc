#include "core/key_index.h"

#include <bit>
#include <cmath>

namespace reverb::internal {

void KeyIndex::Reserve(uint64_t keys) {
  const auto capacity_for = [](double mean) {
    // Hashing distributes the keys unevenly; the few parts that get more keys than this grow later.
    const auto max_keys = static_cast<uint64_t>(mean + 3 * std::sqrt(mean));
    return std::max(kFirstCapacity, std::bit_ceil(max_keys + max_keys / 3 + 1));
  };
  const double mean = static_cast<double>(keys) / static_cast<double>(kParts);
  const uint64_t capacity = capacity_for(mean);
  const uint64_t of_child = capacity_for(mean / static_cast<double>(kParts));
  for (Part& part : parts_) {
    if (capacity > kMaxCapacity && part.children == nullptr) {
      Divide(part, of_child);
    } else if (part.children != nullptr) {
      for (size_t i = 0; i < kParts; ++i) {
        if (part.children[i].capacity() < of_child) Grow(part.children[i], of_child);
      }
    } else if (part.capacity() < capacity) {
      Grow(part, capacity);
    }
  }
}

KeyIndex::Part* KeyIndex::MakeRoom(Part* part, uint64_t hash) {
  const bool is_child = part < parts_.data() || part >= parts_.data() + parts_.size();
  if (!is_child && part->capacity() >= kMaxCapacity) {
    Divide(*part, 2 * part->capacity() / kParts);
    part = &part->children[ChildOf(hash)];
    if (part->size < part->capacity() / 4 * 3) return part;
  }
  Grow(*part, std::max(kFirstCapacity, part->capacity() * 2));
  return part;
}

void KeyIndex::Divide(Part& part, uint64_t capacity) {
  Part divided;
  divided.children = std::make_unique<Part[]>(kParts);
  for (size_t i = 0; i < kParts; ++i) Grow(divided.children[i], capacity);
  for (uint64_t i = 0; i < part.capacity(); ++i) {
    const Entry& entry = part.entries[i];
    if (entry.slot_plus_1 == 0) continue;
    const uint64_t hash = Hash(entry.key);
    Part& child = divided.children[ChildOf(hash)];
    if (child.size >= child.capacity() / 4 * 3) Grow(child, child.capacity() * 2);
    child.entries[child.Probe(entry.key, hash)] = entry;
    ++child.size;
  }
  capacity_ -= part.capacity();
  part = std::move(divided);
}

void KeyIndex::Grow(Part& part, uint64_t capacity) {
  capacity_ += capacity - part.capacity();
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
  Part& part = PartOf(hash);
  if (part.entries == nullptr) return;
  uint64_t hole = part.Probe(key, hash);
  if (part.entries[hole].slot_plus_1 == 0) return;
  --part.size;
  --size_;
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
