// Uniform: the present slots are stored densely in an array; a delete moves the last one into the hole. The
// order in that array depends on history that the items do not reveal, so it is part of the saved state, like
// the random generator.
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/flat_array.h"
#include "base/paged_array.h"
#include "base/random.h"
#include "core/selectors/selectors_internal.h"
#include "core/selectors/slot_set.h"
#include "reverb/selector.h"

namespace reverb::internal {
namespace {

using DenseSlots = PagedArray<uint32_t>;

// state := version:u8 random:u64[4] count:u32 slot:u32[count]
constexpr uint8_t kUniformStateVersion = 1;

class UniformCapture final : public SelectorCapture {
 public:
  UniformCapture(DenseSlots::Capture dense, size_t count, const Random::State& random)
      : dense_(std::move(dense)), count_(count), random_(random) {}

  void Encode(std::string* out) const override {
    out->reserve(out->size() + 1 + sizeof(random_) + 4 + 4 * count_);
    AppendLittleEndian(kUniformStateVersion, out);
    AppendRandomState(random_, out);
    AppendLittleEndian(static_cast<uint32_t>(count_), out);
    for (size_t i = 0; i < count_; ++i) AppendLittleEndian(dense_[i], out);
  }

 private:
  const DenseSlots::Capture dense_;
  const size_t count_;
  const Random::State random_;
};

class UniformSelector final : public Selector {
 public:
  explicit UniformSelector(const SelectorOptions& options)
      : options_(options), random_(MakeRandom(options)) {}

  SelectorOptions options() const override { return options_; }

  void Insert(const SelectorItem& item) override {
    const Slot slot = item.slot;
    if (slot >= positions_.size()) positions_.Resize(static_cast<size_t>(slot) + 1, kNoPosition);
    assert(positions_[slot] == kNoPosition);
    if (count_ == dense_.size()) dense_.Resize(count_ + DenseSlots::kPerPage);
    dense_.Mutable(count_) = slot;
    positions_[slot] = static_cast<uint32_t>(count_);
    ++count_;
  }

  // Ignores priorities.
  void Update(std::span<const SelectorItem> items) override { (void)items; }

  void Delete(Slot slot) override {
    assert(slot < positions_.size() && positions_[slot] != kNoPosition);
    const uint32_t hole = positions_[slot];
    --count_;
    const Slot last = dense_[count_];
    dense_.Mutable(hole) = last;
    positions_[last] = hole;
    positions_[slot] = kNoPosition;
    // Keeps a spare page, so that a table whose size fluctuates around the end of a page does not allocate
    // and free a page with every operation.
    if (dense_.size() - count_ >= 2 * DenseSlots::kPerPage)
      dense_.Resize(dense_.size() - DenseSlots::kPerPage);
  }

  void Clear() override {
    dense_.Clear();
    positions_.Clear();
    count_ = 0;
  }

  std::optional<double> Mass() const override { return static_cast<double>(count_); }

  void Sample(std::span<Selection> out) override {
    assert(out.empty() || count_ > 0);
    const double probability = 1.0 / static_cast<double>(count_);
    constexpr size_t kGroup = 32;  // concurrent prefetches
    uint64_t picks[kGroup];
    while (!out.empty()) {
      const size_t n = std::min(out.size(), kGroup);
      for (size_t i = 0; i < n; ++i) {
        picks[i] = random_.Below(count_);
        __builtin_prefetch(&dense_[picks[i]]);
      }
      for (size_t i = 0; i < n; ++i) out[i] = {dense_[picks[i]], probability};
      out = out.subspan(n);
    }
  }

  void Prefetch(Slot slot) const override {
    if (slot < positions_.size()) __builtin_prefetch(&positions_[slot], 1);
  }

  std::unique_ptr<SelectorCapture> Capture() override {
    return std::make_unique<UniformCapture>(dense_.TakeCapture(), count_, random_.state());
  }

  // Also accepts an empty state: the items in their order, with this selector's own random state. A table can
  // therefore be filled from a source that saved no state.
  Status Restore(std::span<const SelectorItem> items, std::string_view state) override {
    assert(count_ == 0);
    REVERB_RETURN_IF_ERROR(CheckItems(*this, items));
    if (state.empty()) {
      for (const SelectorItem& item : items) Insert(item);
      return Status::Ok();
    }
    uint8_t version = 0;
    Random::State random;
    uint32_t count = 0;
    if (!TakeLittleEndian(&state, &version) || version != kUniformStateVersion ||
        !TakeRandomState(&state, &random) || !TakeLittleEndian(&state, &count) ||
        state.size() != size_t{4} * count) {
      return CorruptState("restoring a uniform selector: the saved state is damaged or of a later release");
    }
    if (count != items.size()) {
      return CorruptState("restoring a uniform selector: " + std::to_string(items.size()) +
                          " items, but the saved state has " + std::to_string(count));
    }
    // As many slots as items, each belonging to an item, none repeated: so both sets are equal.
    SlotSet missing;
    for (const SelectorItem& item : items) missing.Insert(item.slot);
    std::vector<Slot> order(count);
    for (Slot& slot : order) {
      (void)TakeLittleEndian(&state, &slot);
      if (!missing.Contains(slot)) {
        return CorruptState("restoring a uniform selector: the saved state names slot " +
                            std::to_string(slot) + ", which has no item or is repeated");
      }
      missing.Erase(slot);
    }
    for (Slot slot : order) Insert({.slot = slot});
    random_.set_state(random);
    return Status::Ok();
  }

 private:
  const SelectorOptions options_;
  Random random_;
  DenseSlots dense_;  // the first count_ elements are the present slots
  size_t count_ = 0;
  FlatArray<uint32_t> positions_;  // by slot: its index in dense_
};

}  // namespace

std::unique_ptr<Selector> MakeUniformSelector(const SelectorOptions& options) {
  return std::make_unique<UniformSelector>(options);
}

}  // namespace reverb::internal
