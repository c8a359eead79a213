// selector.h — strategies that pick an item of a table.
//
// A table has two: its *sampler* picks what is handed out, its *remover* picks
// what is evicted when the table is full. A selector sees every change of the
// table and decides from its own state alone; it never sees the data.
//
// Items are named by slots: small integers, dense from 0, given out again after a
// delete, so that a selector can be an array indexed by slot instead of a map.
//
// Users may write their own: derive from Selector, hand it over in TableOptions.
// Threads: a selector belongs to one table, which calls it under its lock, save for CheckPriority: that
// one is called from any thread at any time and must depend on nothing that changes. Methods must be
// quick, must not block or throw, and must not call back into the table.
#ifndef REVERB_SELECTOR_H_
#define REVERB_SELECTOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "reverb/status.h"

namespace reverb {

using Slot = uint32_t;

// What a selector is told about an item.
struct SelectorItem {
  Slot slot = 0;
  double priority = 0;
  // Numbers of the table operations that inserted the item and that last set its
  // priority (the insert itself counts). They grow with every operation of the table,
  // so they order items by age of insertion and by age of the last touch.
  uint64_t inserted = 0;
  uint64_t touched = 0;
};

struct Selection {
  Slot slot = 0;
  double probability = 0;  // of having been picked, given the state at that moment
};

// Describes a selector as a value: what it is, so that one like it can be made.
struct SelectorOptions {
  enum class Kind : uint8_t {  // numbers are stored and sent
    kCustom = 0,
    kFifo = 1,
    kLifo = 2,
    kUniform = 3,
    kMinHeap = 4,
    kMaxHeap = 5,
    kPrioritized = 6,
  };
  Kind kind = Kind::kUniform;
  double priority_exponent = 1.0;     // kPrioritized only
  std::optional<uint64_t> seed = {};  // kUniform, kPrioritized; absent = from the system's entropy
  std::string custom_name = {};       // kCustom only

  static SelectorOptions Fifo() { return {.kind = Kind::kFifo}; }
  static SelectorOptions Lifo() { return {.kind = Kind::kLifo}; }
  static SelectorOptions Uniform(std::optional<uint64_t> seed = {}) {
    return {.kind = Kind::kUniform, .seed = seed};
  }
  static SelectorOptions MinHeap() { return {.kind = Kind::kMinHeap}; }
  static SelectorOptions MaxHeap() { return {.kind = Kind::kMaxHeap}; }
  static SelectorOptions Prioritized(double exponent, std::optional<uint64_t> seed = {}) {
    return {.kind = Kind::kPrioritized, .priority_exponent = exponent, .seed = seed};
  }

  // True when the same state always gives the same pick.
  bool is_deterministic() const {
    return kind != Kind::kUniform && kind != Kind::kPrioritized && kind != Kind::kCustom;
  }
  // "prioritized(exponent=0.8)" and so on.
  std::string ToString() const;
  // Fails for an exponent that is not finite or is negative.
  Status Validate() const;

  friend bool operator==(const SelectorOptions&, const SelectorOptions&) = default;
};

// A selector's state at one instant, detached from it: taken under the table's lock
// in time that does not grow with the number of items, written out later without it.
class SelectorCapture {
 public:
  virtual ~SelectorCapture() = default;
  // Appends the state to `out`. May be called from any thread.
  virtual void Encode(std::string* out) const = 0;
};

class Selector {
 public:
  virtual ~Selector() = default;

  virtual SelectorOptions options() const = 0;

  // Whether an item may have this priority. Asked before every Insert and Update, which
  // therefore cannot fail. The default refuses NaN.
  virtual Status CheckPriority(double priority) const;

  // REQUIRES: item.slot is not present.
  virtual void Insert(const SelectorItem& item) = 0;
  // New priorities, applied in order. REQUIRES: every slot is present.
  virtual void Update(std::span<const SelectorItem> items) = 0;
  // REQUIRES: slot is present.
  virtual void Delete(Slot slot) = 0;
  virtual void Clear() = 0;

  // Fills `out` with that many independent draws from the present state; drawing n at
  // once and n times one give the same picks. REQUIRES: at least one item is present.
  virtual void Sample(std::span<Selection> out) = 0;

  // Asks the processor to fetch what an operation on `slot` will touch. A hint only.
  virtual void Prefetch(Slot slot) const { (void)slot; }

  // What cannot be rebuilt from the items themselves, e.g. the random state. Null (the
  // default) when nothing is needed beyond re-inserting the items by age.
  virtual std::unique_ptr<SelectorCapture> Capture() { return nullptr; }
  // Rebuilds from `items`, ordered by `inserted`, and from what Capture() encoded (empty
  // if it gave null): afterwards the selector continues as the captured one would have.
  // REQUIRES: no item is present. The default inserts the items and refuses a state.
  virtual Status Restore(std::span<const SelectorItem> items, std::string_view state);
};

// One of the six that ship with the library.
// Fails for options that do not Validate() and for Kind::kCustom.
Result<std::unique_ptr<Selector>> MakeSelector(const SelectorOptions& options);

}  // namespace reverb

#endif  // REVERB_SELECTOR_H_
