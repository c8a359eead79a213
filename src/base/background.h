// background.h — work done soon, on a thread that gives way to those of the program.
//
// For what a caller would rather not do itself, as entering the kernel to send a message. The thread has the
// policy SCHED_BATCH: when it is woken it takes a processor that is idle, and does not push aside a thread
// that runs, least of all the one that woke it. Where all processors are busy it waits its turn, some
// milliseconds at most.
#ifndef REVERB_BASE_BACKGROUND_H_
#define REVERB_BASE_BACKGROUND_H_

#include <functional>

namespace reverb::internal {

// Works run one at a time, in order; each should be short. Where the system has no thread left, `work` is
// done before this returns: call it without locks. What is queued when the process forks is not done in the
// child.
void RunInBackground(std::function<void()> work);

}  // namespace reverb::internal

#endif  // REVERB_BASE_BACKGROUND_H_
