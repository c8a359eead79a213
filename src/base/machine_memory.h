// machine_memory.h — how much memory this process may use, and uses.
//
// Threads: free functions.
#ifndef REVERB_BASE_MACHINE_MEMORY_H_
#define REVERB_BASE_MACHINE_MEMORY_H_

#include <cstdint>
#include <string>

namespace reverb::internal {

// Returns the memory of the machine or, if that is less, the smallest limit of the process's control groups (versions
// 1 and 2; of version 2 both memory.max and memory.high) and of those above them. `root` precedes the paths below /proc
// and /sys, for tests.
int64_t UsableMemoryBytes(const std::string& root = "");

// Returns UsableMemoryBytes() × 0.8, the default limit of a server: the rest is for the system, its page cache, and
// other processes.
int64_t DefaultMemoryLimit();

// Returns the resident memory of this process; 0 if it is not known.
int64_t ResidentBytes();

}  // namespace reverb::internal

#endif  // REVERB_BASE_MACHINE_MEMORY_H_
