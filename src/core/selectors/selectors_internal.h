// selectors_internal.h — shared by the selectors of this folder.
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

// REQUIRES: options.Validate() is OK and options.kind is one that the function supports.
std::unique_ptr<Selector> MakeOrderSelector(const SelectorOptions& options);  // kFifo, kLifo
std::unique_ptr<Selector> MakeUniformSelector(const SelectorOptions& options);
std::unique_ptr<Selector> MakeHeapSelector(const SelectorOptions& options);  // kMinHeap, kMaxHeap
std::unique_ptr<Selector> MakePrioritizedSelector(const SelectorOptions& options);

// Returns about how much memory a selector of this kind takes for each slot. Custom ones are taken for some array.
size_t SelectorBytesPerSlot(SelectorOptions::Kind kind);

inline Random MakeRandom(const SelectorOptions& options) {
  return Random(options.seed.has_value() ? *options.seed : EntropySeed());
}

// Marks an absent slot in arrays of positions and links.
inline constexpr uint32_t kNoPosition = UINT32_MAX;

// Returns the error for restoring from damaged or foreign bytes.
inline Status CorruptState(std::string message) {
  return Status::DataLoss(std::move(message)).WithDetail(Detail::kCorruptData);
}

// Checks items read from storage: `selector` accepts every priority, and no slot is repeated.
Status CheckItems(const Selector& selector, std::span<const SelectorItem> items);

// Returns the shortest text that parses to `value`.
std::string NumberText(double value);

// --- Encoded states: consecutive little-endian integers. ---

template <typename T>
void AppendLittleEndian(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

// Removes a T from the front of `in`. Returns false and leaves `in` unchanged if it is too short.
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
