// key_index.h — from an item's key to its slot: the one hash look-up of every operation by key.
//
// Open addressing with linear probing over entries of sixteen bytes, so that a look-up touches one
// cold cache line where a general hash map touches two, and that line can be fetched ahead. (With
// absl::flat_hash_map and GCC 12 neither holds: its prefetch is compiled away.) Deleting moves later
// entries back, so nothing is left behind that would slow down a table that lives for weeks.
//
// There are sixty-four such tables, picked by the key: one that grows moves all it holds, which for
// millions of keys would stall the table; here it moves one part in sixty-four.
//
// Keys come from clients: the hash is seeded, so that keys that collide are not easily chosen.
//
// Threads: needs the table's lock.
#ifndef REVERB_CORE_KEY_INDEX_H_
#define REVERB_CORE_KEY_INDEX_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/random.h"
#include "reverb/selector.h"

namespace reverb::internal {

class KeyIndex {
 public:
  // That a full one takes, about.
  static constexpr size_t kBytesPerKey = 32;

  KeyIndex() : seed_(EntropySeed()) {}
  KeyIndex(const KeyIndex&) = delete;
  KeyIndex& operator=(const KeyIndex&) = delete;

  std::optional<Slot> Find(uint64_t key) const {
    const uint64_t hash = Hash(key);
    const Part& part = parts_[PartOf(hash)];
    if (part.entries == nullptr) return std::nullopt;
    const Entry& entry = part.entries[part.Probe(key, hash)];
    if (entry.slot_plus_1 == 0) return std::nullopt;
    return entry.slot_plus_1 - 1;
  }

  // The slot of `key`, which is `slot` if the key was not there; true if so.
  // REQUIRES: slot < 2^32 - 1.
  std::pair<Slot, bool> FindOrInsert(uint64_t key, Slot slot) {
    const uint64_t hash = Hash(key);
    Part& part = parts_[PartOf(hash)];
    if (part.size >= part.capacity() / 4 * 3) Grow(part, std::max(kFirstCapacity, part.capacity() * 2));
    Entry& entry = part.entries[part.Probe(key, hash)];
    if (entry.slot_plus_1 != 0) return {entry.slot_plus_1 - 1, false};
    entry = {key, slot + 1};
    ++part.size;
    return {slot, true};
  }

  // Nothing happens if the key is not there.
  void Erase(uint64_t key);

  // Asks the processor for what the calls above will touch.
  [[gnu::always_inline]] void Prefetch(uint64_t key) const {
    const uint64_t hash = Hash(key);
    const Part& part = parts_[PartOf(hash)];
    if (part.entries != nullptr) __builtin_prefetch(&part.entries[hash & part.mask], 1);
  }

  // Room for so many keys, so that inserting them moves nothing, or hardly anything.
  void Reserve(uint64_t keys);

  // Gives the memory back.
  void Clear() {
    for (Part& part : parts_) part = Part();
  }

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t slot_plus_1 = 0;  // 0 = empty
  };
  struct Part {
    std::unique_ptr<Entry[]> entries;
    uint64_t mask = 0;  // capacity - 1; the capacity is a power of two
    uint64_t size = 0;

    uint64_t capacity() const { return entries ? mask + 1 : 0; }
    // Where `key` is, or the empty entry where it would go. There always is one.
    uint64_t Probe(uint64_t key, uint64_t hash) const {
      uint64_t i = hash & mask;
      while (entries[i].slot_plus_1 != 0 && entries[i].key != key) i = (i + 1) & mask;
      return i;
    }
  };
  static constexpr int kPartBits = 6;
  static constexpr uint64_t kFirstCapacity = 16;

  // Two rounds of multiply and fold: every bit of the key reaches both ends of the hash, the high bits
  // that pick the part and the low ones that pick the place.
  uint64_t Hash(uint64_t key) const {
    uint64_t hash = (key ^ seed_) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93u;
    return hash ^ (hash >> 32);
  }
  static size_t PartOf(uint64_t hash) { return hash >> (64 - kPartBits); }
  void Grow(Part& part, uint64_t capacity);

  const uint64_t seed_;
  std::array<Part, size_t{1} << kPartBits> parts_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_KEY_INDEX_H_
