#include "storage/storage_thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace reverb::internal {
namespace {

thread_local bool is_storage_thread = false;

}  // namespace

bool IsStorageThread() { return is_storage_thread; }

std::thread StartStorageThread(const char* name, std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread([work = std::move(work)] {
      is_storage_thread = true;
      work();
    });
    pthread_setname_np(thread.native_handle(), name);
  } catch (const std::system_error&) {  // no thread left
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace reverb::internal
