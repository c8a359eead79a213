// malloc_retention.h — makes malloc keep freed memory for what is allocated next, where the user asks for it.
//
// A stream of large messages allocates and frees megabytes all the time. glibc's malloc gives the free end of
// a heap back to the system as soon as it exceeds 128 kB, and the next message pays for fresh pages: a third
// of the time that receiving takes. It keeps more once a program has freed a large block, as many programs do
// anyway. malloc belongs to the host program, so the library does this only when REVERB_KEEP_FREED_MEMORY=1
// is in the environment.
#ifndef REVERB_BASE_MALLOC_RETENTION_H_
#define REVERB_BASE_MALLOC_RETENTION_H_

namespace reverb::internal {

// From here on heaps keep up to 32 MB of what was freed; once for the process. Does nothing unless
// REVERB_KEEP_FREED_MEMORY is "1". Uses glibc's own adaptation: limits that were set, by mallopt() or MALLOC_
// variables, remain, and other allocators take no notice.
void KeepFreedMemoryIfAsked();

}  // namespace reverb::internal

#endif  // REVERB_BASE_MALLOC_RETENTION_H_
