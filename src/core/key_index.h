// key_index.h — maps an item's key to its slot: the only hash lookup of every operation by key.
//
// Uses open addressing with linear probing over entries of 16 bytes. A lookup touches one cold cache line,
// where a general hash map touches two, and that line can be prefetched. (Neither holds for
// absl::flat_hash_map with GCC 12, which optimises its prefetch away.) A deletion moves later entries back,
// so no tombstones slow down a long-lived table.
//
// Consists of 64 such tables, selected by the key's hash. Growing one table moves all its entries, which
// would stall operations for millions of keys; this way it moves only one part in 64. A part that becomes large is
// divided into 64 of its own, so that growing takes a fraction of a millisecond for a hundred million keys.
//
// Keys come from clients: the hash is seeded, so that colliding keys are hard to choose.
//
// Threads: the caller holds the table's lock.
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
  // Approximate size when full.
  static constexpr size_t kBytesPerKey = 32;

  KeyIndex() : seed_(EntropySeed()) {}
  KeyIndex(const KeyIndex&) = delete;
  KeyIndex& operator=(const KeyIndex&) = delete;

  std::optional<Slot> Find(uint64_t key) const {
    const uint64_t hash = Hash(key);
    const Part& part = PartOf(hash);
    if (part.entries == nullptr) return std::nullopt;
    const Entry& entry = part.entries[part.Probe(key, hash)];
    if (entry.slot_plus_1 == 0) return std::nullopt;
    return entry.slot_plus_1 - 1;
  }

  // Returns the slot of `key`, and whether the key was inserted, with `slot`.
  // REQUIRES: slot < 2^32 - 1.
  std::pair<Slot, bool> FindOrInsert(uint64_t key, Slot slot) {
    const uint64_t hash = Hash(key);
    Part* part = &PartOf(hash);
    if (part->size >= part->capacity() / 4 * 3) [[unlikely]]
      part = MakeRoom(part, hash);
    Entry& entry = part->entries[part->Probe(key, hash)];
    if (entry.slot_plus_1 != 0) return {entry.slot_plus_1 - 1, false};
    entry = {key, slot + 1};
    ++part->size;
    ++size_;
    return {slot, true};
  }

  // Does nothing if the key is missing.
  void Erase(uint64_t key);

  // For an index that counts, instead of mapping to slots: adds 1 to the count of a key, and returns whether it
  // was 0; subtracts 1 from it, and returns whether it is 0 now. REQUIRES for the latter: the count is not 0.
  bool Increment(uint64_t key) {
    const uint64_t hash = Hash(key);
    Part* part = &PartOf(hash);
    if (part->size >= part->capacity() / 4 * 3) [[unlikely]]
      part = MakeRoom(part, hash);
    Entry& entry = part->entries[part->Probe(key, hash)];
    if (entry.slot_plus_1++ != 0) return false;
    entry.key = key;
    ++part->size;
    ++size_;
    return true;
  }
  bool Decrement(uint64_t key) {
    const uint64_t hash = Hash(key);
    Part& part = PartOf(hash);
    Entry& entry = part.entries[part.Probe(key, hash)];
    if (entry.slot_plus_1 > 1) {
      --entry.slot_plus_1;
      return false;
    }
    Erase(key);
    return true;
  }

  // Returns the number of keys.
  uint64_t size() const { return size_; }

  // Prefetches the memory that the calls above will access.
  [[gnu::always_inline]] void Prefetch(uint64_t key) const {
    const uint64_t hash = Hash(key);
    const Part& part = PartOf(hash);
    if (part.entries != nullptr) __builtin_prefetch(&part.entries[hash & part.mask], 1);
  }

  // Reserves space for `keys` keys, so that inserting them moves few or no entries.
  void Reserve(uint64_t keys);

  // Frees the memory.
  void Clear() {
    for (Part& part : parts_) part = Part();
    capacity_ = 0;
    size_ = 0;
  }

  int64_t memory_bytes() const { return static_cast<int64_t>(capacity_ * sizeof(Entry)); }

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t slot_plus_1 = 0;  // 0 = empty
  };
  struct Part {
    std::unique_ptr<Entry[]> entries;
    uint64_t mask = 0;  // capacity - 1; the capacity is a power of two
    uint64_t size = 0;
    std::unique_ptr<Part[]> children;  // kParts of them, instead of entries

    uint64_t capacity() const { return entries ? mask + 1 : 0; }
    // Returns the index of `key`, or of the empty entry where it would be inserted. There always is one.
    uint64_t Probe(uint64_t key, uint64_t hash) const {
      uint64_t i = hash & mask;
      while (entries[i].slot_plus_1 != 0 && entries[i].key != key) i = (i + 1) & mask;
      return i;
    }
  };
  static constexpr int kPartBits = 6;
  static constexpr size_t kParts = size_t{1} << kPartBits;
  static constexpr uint64_t kFirstCapacity = 16;
  // A part of this capacity is divided instead of growing.
  static constexpr uint64_t kMaxCapacity = uint64_t{1} << 14;

  // Two rounds of multiply and fold: every bit of the key affects the high bits of the hash, which select the
  // part, and the low bits, which select the entry.
  uint64_t Hash(uint64_t key) const {
    uint64_t hash = (key ^ seed_) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93u;
    return hash ^ (hash >> 32);
  }
  static size_t ChildOf(uint64_t hash) { return hash >> (64 - 2 * kPartBits) & (kParts - 1); }
  const Part& PartOf(uint64_t hash) const {
    const Part& part = parts_[hash >> (64 - kPartBits)];
    return part.children == nullptr ? part : part.children[ChildOf(hash)];
  }
  Part& PartOf(uint64_t hash) { return const_cast<Part&>(std::as_const(*this).PartOf(hash)); }
  // Makes room for one more entry. Returns the part to which the hash belongs then.
  Part* MakeRoom(Part* part, uint64_t hash);
  void Grow(Part& part, uint64_t capacity);
  // Divides a part into children of at least this capacity.
  void Divide(Part& part, uint64_t capacity);

  const uint64_t seed_;
  uint64_t capacity_ = 0;  // of all parts
  uint64_t size_ = 0;      // of all parts
  std::array<Part, kParts> parts_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_KEY_INDEX_H_
