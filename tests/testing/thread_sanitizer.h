// thread_sanitizer.h — defines REVERB_TSAN in builds with ThreadSanitizer, which does not support starting
// threads in a forked child.
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
