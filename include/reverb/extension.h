// extension.h — actions that run as part of a table's operations.
//
// A hook runs under the table's lock, atomically with the operation that caused it, and delays all other
// callers: it must be quick, must not block or throw, and must not call into a table. A hook requests other
// work from the Context:
//   * priority updates, applied when the hooks of this operation have run; these
//     updates call no hooks themselves, so there is no recursion;
//   * work on other tables: a function that runs after the lock is released.
//
// Threads: an extension belongs to one table, which serialises all calls.
#ifndef REVERB_EXTENSION_H_
#define REVERB_EXTENSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "reverb/status.h"

namespace reverb {

namespace internal {
class TableState;
class Trajectory;
}  // namespace internal

// The item that a hook is called for. Valid during the call only.
struct ItemView {
  uint64_t key = 0;
  double priority = 0;
  int32_t times_sampled = 0;
  // The episode and the step of the first row of its first column.
  uint64_t episode_id = 0;
  int64_t first_step = 0;
  int64_t bytes = 0;  // of its chunks as stored
  // The data; copy the handle to keep it beyond the call (an engine type, see tensor/trajectory.h). With
  // ServerOptions::storage the payloads may be on disk: only what the headers say can be read.
  const internal::Trajectory* trajectory = nullptr;
};

class TableExtension {
 public:
  class Context {
   public:
    virtual ~Context() = default;
    // Sets another item's priority. Ignores and counts unknown keys and priorities that the table's selectors
    // reject.
    virtual void UpdatePriority(uint64_t key, double priority) = 0;
    // Runs `work` soon after the operation, on the thread that held the lock, with no lock held. The caller
    // of the operation may already have its result.
    virtual void AfterUnlock(std::function<void()> work) = 0;
  };

  virtual ~TableExtension() = default;
  virtual std::string name() const = 0;

  virtual void OnInsert(const ItemView& item, Context& context) { (void)item, (void)context; }
  // The item has already been removed from the table.
  virtual void OnDelete(const ItemView& item, Context& context) { (void)item, (void)context; }
  // item.priority is the new one.
  virtual void OnUpdate(const ItemView& item, Context& context) { (void)item, (void)context; }
  // item.times_sampled counts this sample. For a leased sample: when it is acknowledged, if the item is still there.
  virtual void OnSample(const ItemView& item, Context& context) { (void)item, (void)context; }
  // Called before the table is cleared; OnDelete is not called for the items.
  virtual void OnReset() {}

  // Called once for each item that was loaded from a checkpoint, in the order of insertion, before all other
  // hooks. For extensions that keep state about items; OnInsert is not called for these items.
  virtual void OnRestore(const ItemView& item) { (void)item; }

  // State for checkpoints. LoadState is called after OnRestore, and only if there is a saved state. SaveState
  // runs under the lock: keep the state small.
  virtual std::string SaveState() const { return {}; }
  virtual Status LoadState(std::string_view state) {
    return state.empty() ? Status::Ok()
                         : Status::InvalidArgument("extension \"" + name() + "\" keeps no state");
  }

 private:
  friend class internal::TableState;
  std::atomic<bool> attached_{false};  // whether it belongs to a table; to one at most
};

}  // namespace reverb

#endif  // REVERB_EXTENSION_H_
