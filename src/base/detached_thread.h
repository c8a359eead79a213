// detached_thread.h — threads that live as long as the process.
#ifndef REVERB_BASE_DETACHED_THREAD_H_
#define REVERB_BASE_DETACHED_THREAD_H_

namespace reverb::internal {

// Runs `run(argument)` on a thread of this name, of at most 15 characters. No signal reaches it: they belong
// to the program's threads, whose waits they are to interrupt. False when the system has no thread left.
bool StartDetachedThread(const char* name, void* (*run)(void*), void* argument);

}  // namespace reverb::internal

#endif  // REVERB_BASE_DETACHED_THREAD_H_
