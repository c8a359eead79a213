// malloc_retention.h — makes malloc keep freed memory for later allocations, if the user enables it.
//
// A stream of large messages constantly allocates and frees megabytes. glibc's malloc returns the free top of
// a heap to the system once it exceeds 128 kB, and the next message pays for fresh pages: a third of the time
// of receiving. malloc keeps more once a program has freed a large block, as many programs do anyway. malloc
// belongs to the host program, so the library does this only if REVERB_KEEP_FREED_MEMORY=1 is in the
// environment.
#ifndef REVERB_BASE_MALLOC_RETENTION_H_
#define REVERB_BASE_MALLOC_RETENTION_H_

namespace reverb::internal {

// Makes heaps keep up to 32 MB of freed memory; acts once per process, and only if REVERB_KEEP_FREED_MEMORY
// is "1". Relies on glibc's adaptive thresholds: limits set with mallopt() or MALLOC_ variables stay in
// force, and other allocators are not affected.
void KeepFreedMemoryIfEnabled();

}  // namespace reverb::internal

#endif  // REVERB_BASE_MALLOC_RETENTION_H_
