// mutex.h — std::mutex and std::condition_variable with clang's thread-safety annotations.
//
// Not absl::Mutex: the distribution's Abseil is not built for ThreadSanitizer, which then reports false
// races.
#ifndef REVERB_BASE_MUTEX_H_
#define REVERB_BASE_MUTEX_H_

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define REVERB_THREAD_ANNOTATION_(x) __attribute__((x))
#else
#define REVERB_THREAD_ANNOTATION_(x)
#endif

// Abseil still defines these three for its own legacy code, with the same meaning.
#undef GUARDED_BY
#undef PT_GUARDED_BY
#undef NO_THREAD_SAFETY_ANALYSIS

#define CAPABILITY(x) REVERB_THREAD_ANNOTATION_(capability(x))
#define SCOPED_CAPABILITY REVERB_THREAD_ANNOTATION_(scoped_lockable)
#define GUARDED_BY(x) REVERB_THREAD_ANNOTATION_(guarded_by(x))
#define PT_GUARDED_BY(x) REVERB_THREAD_ANNOTATION_(pt_guarded_by(x))
#define REQUIRES(...) REVERB_THREAD_ANNOTATION_(requires_capability(__VA_ARGS__))
#define ACQUIRE(...) REVERB_THREAD_ANNOTATION_(acquire_capability(__VA_ARGS__))
#define RELEASE(...) REVERB_THREAD_ANNOTATION_(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) REVERB_THREAD_ANNOTATION_(try_acquire_capability(__VA_ARGS__))
#define EXCLUDES(...) REVERB_THREAD_ANNOTATION_(locks_excluded(__VA_ARGS__))
#define ASSERT_CAPABILITY(x) REVERB_THREAD_ANNOTATION_(assert_capability(x))
#define RETURN_CAPABILITY(x) REVERB_THREAD_ANNOTATION_(lock_returned(x))
#define NO_THREAD_SAFETY_ANALYSIS REVERB_THREAD_ANNOTATION_(no_thread_safety_analysis)

namespace reverb::internal {

class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ACQUIRE() { mu_.lock(); }
  void Unlock() RELEASE() { mu_.unlock(); }
  bool TryLock() TRY_ACQUIRE(true) { return mu_.try_lock(); }
  // Informs the static analysis that the lock is held; does nothing at run time.
  void AssertHeld() ASSERT_CAPABILITY(this) {}

 private:
  friend class CondVar;
  std::mutex mu_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ACQUIRE(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() RELEASE() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

class CondVar {
 public:
  // Both may wake spuriously: call them in a loop that checks the condition.
  void Wait(Mutex* mu) REQUIRES(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // Returns false if the timeout expired first. Uses real time, whatever clock the caller uses.
  template <typename Rep, typename Period>
  bool WaitFor(Mutex* mu, std::chrono::duration<Rep, Period> timeout) REQUIRES(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    const bool in_time = cv_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_MUTEX_H_
