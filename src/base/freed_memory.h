// freed_memory.h — memory that was freed stays for what is allocated next.
//
// A stream of large messages allocates and frees megabytes all the time. glibc's malloc gives the free end of
// a heap back to the system as soon as it exceeds 128 kB, and the next message pays for fresh pages: a third
// of the time that receiving takes. It keeps more once a program has freed a large block.
#ifndef REVERB_BASE_FREED_MEMORY_H_
#define REVERB_BASE_FREED_MEMORY_H_

namespace reverb::internal {

// From here on heaps keep up to 32 MB of what was freed; once for the process. Goes the way of glibc's own
// adaptation: limits that were set, by mallopt() or MALLOC_ variables, remain, and other allocators take no
// notice.
void KeepFreedMemory();

}  // namespace reverb::internal

#endif  // REVERB_BASE_FREED_MEMORY_H_
