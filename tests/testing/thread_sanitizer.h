// thread_sanitizer.h — REVERB_TSAN is defined in builds for ThreadSanitizer, which does not support threads
// that are started in a forked child.
#ifndef REVERB_TESTING_THREAD_SANITIZER_H_
#define REVERB_TESTING_THREAD_SANITIZER_H_

#if defined(__SANITIZE_THREAD__)
#define REVERB_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define REVERB_TSAN 1
#endif
#endif

#endif  // REVERB_TESTING_THREAD_SANITIZER_H_
