// selector.h — strategies that pick an item of a table.
//
// A table has two selectors: its *sampler* picks the items to sample, its *remover* picks the items to evict
// when the table is full. A selector observes every change of the table and decides from its own state only;
// it does not see the data.
//
// Items are identified by slots: small integers, dense from 0, reused after a delete. A selector can
// therefore be an array indexed by slot instead of a map.
//
// Users may write their own selectors: derive from Selector and pass it in TableOptions. Threads: a selector
// belongs to one table, which calls it under its lock, except for CheckPriority, which any thread may call at
// any time and which must not depend on mutable state. Methods must be quick, must not block or throw, and
// must not call back into the table.
#ifndef REVERB_SELECTOR_H_
#define REVERB_SELECTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "reverb/status.h"

namespace reverb {

using Slot = uint32_t;

// An item, as passed to a selector.
struct SelectorItem {
  Slot slot = 0;
  double priority = 0;
  // Sequence numbers of the table operations that inserted the item and that last set its priority (the
  // insert counts). They increase with every operation, so they order items by insertion and by last update.
  uint64_t inserted = 0;
  uint64_t touched = 0;
};

struct Selection {
  Slot slot = 0;
  double probability = 0;  // of having been picked, given the state at that time
};

// Describes a selector as a value, from which MakeSelector() creates one.
struct SelectorOptions {
  enum class Kind : uint8_t {  // stored and sent: never change the numbers
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

  // Returns true if the same state always gives the same pick.
  bool is_deterministic() const {
    return kind != Kind::kUniform && kind != Kind::kPrioritized && kind != Kind::kCustom;
  }
  // "prioritized(exponent=0.8)" and so on.
  std::string ToString() const;
  // Fails for an exponent that is not finite or is negative.
  Status Validate() const;

  friend bool operator==(const SelectorOptions&, const SelectorOptions&) = default;
};

// A snapshot of a selector's state. It is captured under the table's lock, in time independent of the number
// of items, and encoded later without the lock.
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

  // Checks whether an item may have this priority. Called before every Insert and Update, which therefore
  // cannot fail. The default rejects NaN.
  virtual Status CheckPriority(double priority) const;

  // REQUIRES: item.slot is not present.
  virtual void Insert(const SelectorItem& item) = 0;
  // Sets new priorities, in order. REQUIRES: every slot is present.
  virtual void Update(std::span<const SelectorItem> items) = 0;
  // REQUIRES: slot is present.
  virtual void Delete(Slot slot) = 0;
  // Undoes the last Delete(). Several are undone in reverse order, with no other change in between.
  virtual void Undelete(const SelectorItem& item) { Insert(item); }
  // Adds an item that Sample() had picked and that was deleted since, at the place that its numbers give it
  // among the present ones. `inserted_of` returns SelectorItem::inserted of a present slot, for as long as the
  // selector exists. Needed for leases, by selectors whose picks depend on the order of Insert().
  virtual void Reinsert(const SelectorItem& item, const std::function<uint64_t(Slot)>& inserted_of) {
    (void)inserted_of;
    Insert(item);
  }
  virtual void Clear() = 0;

  // Fills `out` with independent draws from the present state. Drawing n at once gives the same picks as
  // drawing one n times. REQUIRES: at least one item is present.
  virtual void Sample(std::span<Selection> out) = 0;

  // Returns the sum of the weights in proportion to which Sample() picks items; absent (the default) if it
  // picks in another way, such as by age. Samplers of several servers choose servers in proportion to it.
  virtual std::optional<double> Mass() const { return std::nullopt; }

  // Prefetches the memory that an operation on `slot` will access. A hint only.
  virtual void Prefetch(Slot slot) const { (void)slot; }

  // Captures state that cannot be rebuilt from the items, such as a random state. Null (the default) if
  // inserting the items again by age is sufficient.
  virtual std::unique_ptr<SelectorCapture> Capture() { return nullptr; }
  // Restores the state from `items`, ordered by `inserted`, and from the encoded capture (empty if Capture()
  // returned null). Afterwards the selector continues exactly as the captured one would have. REQUIRES: no
  // item is present. The default inserts the items and rejects a state.
  virtual Status Restore(std::span<const SelectorItem> items, std::string_view state);
};

// Creates one of the six selectors of the library. Fails for options that do not Validate() and for
// Kind::kCustom.
Result<std::unique_ptr<Selector>> MakeSelector(const SelectorOptions& options);

}  // namespace reverb

#endif  // REVERB_SELECTOR_H_
