// detached_thread.h — threads that run until the process ends.
#ifndef REVERB_BASE_DETACHED_THREAD_H_
#define REVERB_BASE_DETACHED_THREAD_H_

namespace reverb::internal {

// Runs `run(argument)` on a thread with this name (at most 15 characters). All signals are blocked on it, so
// that they interrupt the waits of the program's own threads. Returns false if the system cannot create
// another thread.
bool StartDetachedThread(const char* name, void* (*run)(void*), void* argument);

}  // namespace reverb::internal

#endif  // REVERB_BASE_DETACHED_THREAD_H_
