// tune_malloc.h — the program's allocator.
#ifndef REVERB_APPS_REVERB_TUNE_MALLOC_H_
#define REVERB_APPS_REVERB_TUNE_MALLOC_H_

namespace reverb::program {

// Sets malloc up for large, short-lived blocks: by default glibc gives them back to the system each time and
// touching them anew costs more than all else. For main(), before threads start. The library itself never
// does this: a host's allocator is the host's business.
void TuneMalloc();

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_TUNE_MALLOC_H_
