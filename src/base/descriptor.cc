#include "base/descriptor.h"

#include <pthread.h>
#include <unistd.h>

#include <unordered_set>

#include "base/mutex.h"

namespace reverb::internal {

namespace {

// All open descriptors.
struct OpenDescriptors {
  Mutex mu;
  std::unordered_set<int> fds GUARDED_BY(mu);
};

OpenDescriptors& AllDescriptors();

// The lock is held during fork(), so that the child finds the set intact.
void LockDescriptors() NO_THREAD_SAFETY_ANALYSIS { AllDescriptors().mu.Lock(); }
void UnlockDescriptors() NO_THREAD_SAFETY_ANALYSIS { AllDescriptors().mu.Unlock(); }
void CloseDescriptorsInChild() NO_THREAD_SAFETY_ANALYSIS {
  OpenDescriptors& all = AllDescriptors();
  for (const int fd : all.fds) close(fd);
  all.fds.clear();
  all.mu.Unlock();
}

OpenDescriptors& AllDescriptors() {
  static OpenDescriptors* const all = [] {
    (void)pthread_atfork(LockDescriptors, UnlockDescriptors, CloseDescriptorsInChild);
    return new OpenDescriptors();  // never destroyed, since servers may stop late
  }();
  return *all;
}

}  // namespace

Descriptor::Descriptor(int fd) : fd_(fd), generation_(ForkGeneration()) {
  if (fd < 0) return;
  OpenDescriptors& all = AllDescriptors();
  MutexLock lock(&all.mu);
  all.fds.insert(fd);
}

void Descriptor::Close() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || generation_ != ForkGeneration()) return;
  OpenDescriptors& all = AllDescriptors();
  MutexLock lock(&all.mu);
  all.fds.erase(fd);
  close(fd);  // under the lock, since the number may be used again at once
}

void Descriptor::CloseFile() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || generation_ != ForkGeneration()) return;
  OpenDescriptors& all = AllDescriptors();
  {
    MutexLock lock(&all.mu);
    all.fds.erase(fd);
  }
  close(fd);
}

size_t NumDescriptorsForTesting() {
  OpenDescriptors& all = AllDescriptors();
  MutexLock lock(&all.mu);
  return all.fds.size();
}

}  // namespace reverb::internal
