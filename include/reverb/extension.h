// extension.h — actions that run as part of a table's operations.
//
// A hook runs under the table's lock, atomically with the operation that caused it, so its
// time is everybody's time: be quick, never block or throw, never call into a table. What a hook
// wants done it asks of the Context:
//   * other priorities: applied when the hooks of this operation have run; these
//     updates call no hooks themselves, so nothing recurses;
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

// An item as a hook sees it: valid during the call.
struct ItemView {
  uint64_t key = 0;
  double priority = 0;
  int32_t times_sampled = 0;
  // Where its first column starts: the episode and the step of the first row.
  uint64_t episode_id = 0;
  int64_t first_step = 0;
  int64_t bytes = 0;  // of its chunks as stored
  // The data; to keep it beyond the call, share it (engine type, see tensor/trajectory.h).
  const internal::Trajectory* trajectory = nullptr;
};

class TableExtension {
 public:
  class Context {
   public:
    virtual ~Context() = default;
    // Sets another item's priority. Unknown keys and priorities that the table's selectors
    // refuse are ignored and counted.
    virtual void UpdatePriority(uint64_t key, double priority) = 0;
    // Runs `work` soon after, on the thread that held the lock, with no lock held. The caller of the
    // operation may have its answer by then.
    virtual void AfterUnlock(std::function<void()> work) = 0;
  };

  virtual ~TableExtension() = default;
  virtual std::string name() const = 0;

  virtual void OnInsert(const ItemView& item, Context& context) { (void)item, (void)context; }
  // The item is gone from the table already.
  virtual void OnDelete(const ItemView& item, Context& context) { (void)item, (void)context; }
  // item.priority is the new one.
  virtual void OnUpdate(const ItemView& item, Context& context) { (void)item, (void)context; }
  // item.times_sampled counts this sample.
  virtual void OnSample(const ItemView& item, Context& context) { (void)item, (void)context; }
  // Before the table is emptied; OnDelete is not called for the items.
  virtual void OnReset() {}

  // The table was filled from a checkpoint: called once for each item, in the order of insertion, before
  // anything else. For those who keep something about items; nothing was inserted anew.
  virtual void OnRestore(const ItemView& item) { (void)item; }

  // State for checkpoints. LoadState comes after OnRestore, and only when there was a state. SaveState runs
  // under the lock: keep it small.
  virtual std::string SaveState() const { return {}; }
  virtual Status LoadState(std::string_view state) {
    return state.empty() ? Status::Ok()
                         : Status::InvalidArgument("extension \"" + name() + "\" keeps no state");
  }

 private:
  friend class internal::TableState;
  std::atomic<bool> attached_{false};  // to a table; one at a time
};

}  // namespace reverb

#endif  // REVERB_EXTENSION_H_
