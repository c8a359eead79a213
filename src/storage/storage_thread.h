// storage_thread.h — starts the threads of the disk tier.
#ifndef REVERB_STORAGE_STORAGE_THREAD_H_
#define REVERB_STORAGE_STORAGE_THREAD_H_

#include <functional>
#include <thread>

namespace reverb::internal {

// Runs `work` on a thread with this name (at most 15 characters), on which all signals are blocked. The result is
// not joinable if the system cannot create another thread.
std::thread StartStorageThread(const char* name, std::function<void()> work);
// Returns whether StartStorageThread() started this thread.
bool IsStorageThread();

}  // namespace reverb::internal

#endif  // REVERB_STORAGE_STORAGE_THREAD_H_
