// tune_malloc.h — the program's allocator.
//
// The library leaves malloc's settings alone, since they belong to the whole process. A program may choose
// them.
#ifndef REVERB_APPS_REVERB_TUNE_MALLOC_H_
#define REVERB_APPS_REVERB_TUNE_MALLOC_H_

#include <cstdint>

namespace reverb::program {

// Sets malloc up for a server: large short-lived blocks are reused instead of being mapped each time, and
// threads share few arenas, so that memory freed by one thread serves the others. Call in main(), before
// threads start.
void TuneMalloc();

// Returns free heap memory to the system after much data was removed. Small chunks live in malloc's heap,
// which gives back only what lies at its end.
class HeapTrimmer {
 public:
  // Call about once a second. `data_bytes` is the size of the server's data. Trims when the data has been at
  // least kMinReleasedBytes smaller than before for two calls. Returns whether it did.
  bool Observe(int64_t data_bytes);

 private:
  static constexpr int64_t kMinReleasedBytes = int64_t{32} << 20;

  int64_t largest_ = 0;   // since the heap was last trimmed
  int64_t previous_ = 0;  // of the last call
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_TUNE_MALLOC_H_
