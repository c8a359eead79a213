#include "base/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

namespace reverb::internal {
namespace {

// Lowers *least to the number in a file. Leaves it if the file is missing or has none ("max").
void LowerToLimit(const std::string& path, int64_t* least) {
  int64_t limit = 0;
  if (std::ifstream(path) >> limit) *least = std::min(*least, limit);
}

// Visits the group and those above it, up to the root of the hierarchy. In a container the path may be that of the
// host: then only the root exists.
void LowerToGroupLimits(const std::string& hierarchy, std::string group, std::string_view file,
                        int64_t* least) {
  while (true) {
    while (group.ends_with('/')) group.pop_back();
    LowerToLimit(hierarchy + group + "/" + std::string(file), least);
    if (group.empty()) return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

// Returns whether a list "cpu,memory" names the controller.
bool NamesController(const std::string& list, std::string_view controller) {
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == controller) return true;
  }
  return false;
}

}  // namespace

int64_t UsableMemoryBytes(const std::string& root) {
  int64_t least = std::numeric_limits<int64_t>::max();
  if (root.empty()) {
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0) least = pages * page_bytes;
  } else {
    std::ifstream meminfo(root + "/proc/meminfo");
    std::string name;
    if (int64_t kilobytes = 0; meminfo >> name >> kilobytes && name == "MemTotal:") least = kilobytes * 1024;
  }
  // Lines "ID:CONTROLLERS:PATH"; version 2 has ID 0 and no controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (line.starts_with("0:") && controllers.empty()) {
      // Above memory.high (systemd: MemoryHigh=) the kernel slows the process down until it uses less.
      for (const char* const file : {"memory.max", "memory.high"}) {
        LowerToGroupLimits(root + "/sys/fs/cgroup", path, file, &least);
        LowerToGroupLimits(root + "/sys/fs/cgroup/unified", path, file, &least);
      }
    } else if (NamesController(controllers, "memory")) {
      LowerToGroupLimits(root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", &least);
    }
  }
  return least;
}

int64_t DefaultMemoryLimit() { return UsableMemoryBytes() / 5 * 4; }

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  if (statm >> size >> resident) return resident * sysconf(_SC_PAGESIZE);
  return 0;
}

}  // namespace reverb::internal
