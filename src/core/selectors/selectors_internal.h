// selectors_internal.h — what the selectors of this folder share.
#ifndef REVERB_CORE_SELECTORS_SELECTORS_INTERNAL_H_
#define REVERB_CORE_SELECTORS_SELECTORS_INTERNAL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/random.h"
#include "reverb/selector.h"

namespace reverb::internal {

// REQUIRES: options.Validate() is OK and options.kind is one that the function makes.
std::unique_ptr<Selector> MakeOrderSelector(const SelectorOptions& options);  // kFifo, kLifo
std::unique_ptr<Selector> MakeUniformSelector(const SelectorOptions& options);
std::unique_ptr<Selector> MakeHeapSelector(const SelectorOptions& options);  // kMinHeap, kMaxHeap
std::unique_ptr<Selector> MakePrioritizedSelector(const SelectorOptions& options);

inline Random MakeRandom(const SelectorOptions& options) {
  return Random(options.seed.has_value() ? *options.seed : EntropySeed());
}

// Marks a slot that is not present, in arrays of positions and links.
inline constexpr uint32_t kNoPosition = UINT32_MAX;

// What a restore from damaged or foreign bytes says.
inline Status CorruptState(std::string message) {
  return Status::DataLoss(std::move(message)).WithDetail(Detail::kCorruptData);
}

// Items that were read from storage: every priority is one that `selector` accepts, no slot comes twice.
Status CheckItems(const Selector& selector, std::span<const SelectorItem> items);

// The shortest text that reads back as `value`.
std::string NumberText(double value);

// --- Encoded states: little-endian integers, one after the other. ---

template <typename T>
void AppendLittleEndian(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

// Takes a T off the front of `in`. False when `in` is too short; it is then unchanged.
template <typename T>
bool TakeLittleEndian(std::string_view* in, T* value) {
  if (in->size() < sizeof(T)) return false;
  T result = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    result |= static_cast<T>(static_cast<unsigned char>((*in)[i])) << (8 * i);
  in->remove_prefix(sizeof(T));
  *value = result;
  return true;
}

inline void AppendRandomState(const Random::State& state, std::string* out) {
  for (uint64_t word : state) AppendLittleEndian(word, out);
}

inline bool TakeRandomState(std::string_view* in, Random::State* state) {
  for (uint64_t& word : *state) {
    if (!TakeLittleEndian(in, &word)) return false;
  }
  return true;
}

}  // namespace reverb::internal

#endif  // REVERB_CORE_SELECTORS_SELECTORS_INTERNAL_H_
