// key_index.h — from an item's key to its slot.
//
// Many small hash maps instead of one large: a map that grows moves all it holds, which for
// millions of keys would stall the table; here it moves one part in sixty-four.
//
// Threads: needs the table's lock.
#ifndef REVERB_CORE_KEY_INDEX_H_
#define REVERB_CORE_KEY_INDEX_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "reverb/selector.h"

namespace reverb::internal {

class KeyIndex {
 public:
  std::optional<Slot> Find(uint64_t key) const {
    const Part& part = parts_[PartOf(key)];
    const auto it = part.find(key);
    if (it == part.end()) return std::nullopt;
    return it->second;
  }
  // The slot of `key`, which is `slot` if the key was not there.
  std::pair<Slot, bool> FindOrInsert(uint64_t key, Slot slot) {
    const auto [it, is_new] = parts_[PartOf(key)].try_emplace(key, slot);
    return {it->second, is_new};
  }
  void Erase(uint64_t key) { parts_[PartOf(key)].erase(key); }
  void Prefetch(uint64_t key) const { parts_[PartOf(key)].prefetch(key); }
  // Gives the memory back.
  void Clear() {
    for (Part& part : parts_) part = Part();
  }

 private:
  using Part = absl::flat_hash_map<uint64_t, Slot>;
  static constexpr int kPartBits = 6;
  // Keys are random as a rule but need not be: multiply so that every bit counts.
  static size_t PartOf(uint64_t key) { return (key * 0x9E3779B97F4A7C15u) >> (64 - kPartBits); }

  std::array<Part, size_t{1} << kPartBits> parts_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_KEY_INDEX_H_
