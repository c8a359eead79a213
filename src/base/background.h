// background.h — runs short tasks on a thread that yields to those of the program.
//
// For tasks that a caller should not run itself, such as a system call that sends a message. The thread has
// the policy SCHED_BATCH: a wake-up uses an idle processor and does not preempt a running thread, in
// particular the one that woke it. If all processors are busy it waits for its turn, a few milliseconds at
// most.
#ifndef REVERB_BASE_BACKGROUND_H_
#define REVERB_BASE_BACKGROUND_H_

#include <functional>

namespace reverb::internal {

// Runs tasks one at a time, in order; each should be short. If the system has no thread left, `work` runs
// before this returns: call it without locks. Tasks that are queued when the process forks do not run in the
// child.
void RunInBackground(std::function<void()> work);

}  // namespace reverb::internal

#endif  // REVERB_BASE_BACKGROUND_H_
