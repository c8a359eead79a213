// The checks of `reverb doctor` that look at the server's host: limits, memory, huge pages, disk.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "config.h"
#include "doctor_checks.h"
#include "text.h"

namespace reverb::program {
namespace {

namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;

Finding Elsewhere(const char* check) {
  return {.check = check,
          .verdict = Verdict::kSkipped,
          .text = "the server's process cannot be seen from here",
          .advice = "run `reverb doctor` on its host, as its user"};
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns the process that listens on a local socket; 0 if it cannot be connected to.
pid_t ListenerOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return 0;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path[0] == '@') address.sun_path[0] = '\0';
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (path[0] == '@' ? 0 : 1));
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return 0;
  ucred peer{};
  socklen_t peer_size = sizeof(peer);
  const bool is_known = connect(descriptor, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                        getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0;
  close(descriptor);
  return is_known ? peer.pid : 0;
}

// Returns the soft limit in a line of /proc/PID/limits; absent if it is unlimited or not there.
std::optional<int64_t> LimitIn(const std::string& limits, const std::string& name) {
  const size_t line = limits.find(name);
  if (line == std::string::npos) return std::nullopt;
  std::istringstream words(limits.substr(line + name.size()));
  int64_t soft = 0;
  if (words >> soft) return soft;
  return std::nullopt;
}

// Returns the value of "Name:   123 kB" in bytes.
std::optional<int64_t> KilobytesIn(const std::string& text, const std::string& name) {
  const size_t line = text.find(name + ":");
  if (line == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(line + name.size() + 1));
  int64_t kilobytes = 0;
  if (words >> kilobytes) return kilobytes * 1024;
  return std::nullopt;
}

std::optional<int64_t> NumberIn(const std::string& path) {
  std::istringstream words(ReadText(path));
  int64_t number = 0;
  if (words >> number) return number;
  return std::nullopt;  // "max"
}

// Returns the smallest memory limit of the process's cgroup (version 2) and of those above it.
std::optional<int64_t> CgroupLimit(const std::string& process) {
  std::istringstream lines(ReadText(process + "/cgroup"));
  std::optional<int64_t> least;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("0::")) continue;
    fs::path group = "/sys/fs/cgroup" + line.substr(3);
    for (; group != "/sys/fs"; group = group.parent_path()) {
      for (const char* const file : {"memory.max", "memory.high"}) {
        const std::optional<int64_t> limit = NumberIn((group / file).string());
        if (limit && (!least || *limit < *least)) least = limit;
      }
      if (group == group.parent_path()) break;
    }
  }
  return least;
}

// Returns the checkpoint folder that the command line of a `reverb serve` names, or its configuration file.
std::string CheckpointRootOf(const std::string& process) {
  const std::string command = ReadText(process + "/cmdline");
  std::vector<std::string> words;
  std::istringstream stream(command);
  for (std::string word; std::getline(stream, word, '\0');) words.push_back(word);
  const auto value_of = [&](const std::string& flag) -> std::string {
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] == flag && i + 1 < words.size()) return words[i + 1];
      if (words[i].starts_with(flag + "=")) return words[i].substr(flag.size() + 1);
    }
    return "";
  };
  std::error_code error;
  const fs::path folder = fs::read_symlink(process + "/cwd", error);
  if (error) return "";
  std::string root = value_of("--checkpoint");
  if (const std::string config = value_of("--config"); root.empty() && !config.empty()) {
    ServerOptions options;
    LogSettings log;
    const fs::path path = folder / config;  // an absolute path stays as it is
    if (fs::is_regular_file(path, error) && ReadConfig(path.string(), &options, &log).ok() &&
        options.checkpoint) {
      root = options.checkpoint->path;
    }
  }
  return root.empty() ? "" : (folder / root).string();
}

// Writes up to `bytes` within `most`. Returns the rate in bytes per second, the final fdatasync included.
Result<double> WriteRate(int descriptor, size_t bytes, std::chrono::nanoseconds most) {
  std::vector<char> block(size_t{4} << 20);
  // Not zeros, which some file systems do not store.
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(i * 2654435761U >> 7);
  const auto start = SteadyClock::now();
  size_t written = 0;
  while (written < bytes && SteadyClock::now() - start < most) {
    const ssize_t size = write(descriptor, block.data(), block.size());
    if (size <= 0) return Status::Unavailable(std::strerror(errno));
    written += static_cast<size_t>(size);
  }
  if (fdatasync(descriptor) != 0) return Status::Unavailable(std::strerror(errno));
  return static_cast<double>(written) / std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace

std::optional<LocalProcess> FindLocalProcess(const ServerInfo& info) {
  std::string boot_id = ReadText("/proc/sys/kernel/random/boot_id");
  boot_id.erase(boot_id.find_last_not_of('\n') + 1);
  if (info.boot_id.empty() || boot_id != info.boot_id) return std::nullopt;
  const pid_t pid = ListenerOf(info.local_path);
  const std::string process = "/proc/" + std::to_string(pid);
  if (pid <= 0 || !fs::exists(process)) return std::nullopt;
  LocalProcess found{.pid = pid};
  const std::string limits = ReadText(process + "/limits");
  found.max_files = LimitIn(limits, "Max open files");
  found.max_locked = LimitIn(limits, "Max locked memory");
  found.rss_bytes = KilobytesIn(ReadText(process + "/status"), "VmRSS");
  found.cgroup_bytes = CgroupLimit(process);
  std::error_code error;
  int64_t files = 0;
  for (fs::directory_iterator file(process + "/fd", error), end; !error && file != end;
       file.increment(error)) {
    ++files;
  }
  if (!error) found.open_files = files;
  found.checkpoint_root = CheckpointRootOf(process);
  return found;
}

Findings CheckLimits(const std::optional<LocalProcess>& process) {
  constexpr int64_t kFewFiles = 16384;
  if (!process) return {Elsewhere("limits")};
  Findings findings;
  if (process->max_files) {
    Finding files{.check = "files",
                  .text = "process " + std::to_string(process->pid) + " may open " +
                          ShowCount(*process->max_files, "file") +
                          (process->open_files ? ", " + ShowCount(*process->open_files) + " are open" : "")};
    if (process->open_files && *process->open_files > *process->max_files * 3 / 4) {
      files.verdict = Verdict::kFailure;
      files.advice = "raise the limit: LimitNOFILE= of systemd, --ulimit nofile= of Docker, `ulimit -Hn`";
    } else if (*process->max_files < kFewFiles) {
      files.verdict = Verdict::kWarning;
      files.advice = "each client needs one or more; raise the limit to " + ShowCount(kFewFiles) +
                     " or more: LimitNOFILE= of systemd, --ulimit nofile= of Docker, `ulimit -Hn`";
    }
    findings.push_back(std::move(files));
  }
  findings.push_back({.check = "memlock",
                      .text = process->max_locked
                                  ? "the process may lock " + ShowBytes(*process->max_locked) +
                                        " of memory; the server locks none"
                                  : "the process may lock any amount of memory; the server locks none"});
  return findings;
}

Findings CheckMemory(const ServerInfo& info, const std::optional<LocalProcess>& process) {
  Findings findings;
  if (!info.max_bytes && info.memory.limit) {
    const double share = static_cast<double>(info.memory.used) / static_cast<double>(*info.memory.limit);
    findings.push_back({.check = "memory",
                        .text = ShowBytes(info.memory.used) + " of memory_limit " +
                                ShowBytes(*info.memory.limit) + Format(" (%.0f %%) are used", share * 100)});
    if (share > 0.8) {
      findings.back().verdict = Verdict::kWarning;
      findings.back().advice =
          "inserts will wait, or evict items with when_full = \"evict\"; raise memory_limit or lower "
          "max_size";
    }
  } else if (!info.max_bytes) {
    findings.push_back({.check = "memory",
                        .verdict = Verdict::kWarning,
                        .text = "the data, " + ShowBytes(info.stored_bytes) + " now, is not bounded",
                        .advice =
                            "set max_bytes of [server], or --max-bytes, to about 3/4 of the memory that "
                            "the server may use"});
  } else {
    const double share = static_cast<double>(info.stored_bytes) / static_cast<double>(*info.max_bytes);
    findings.push_back({.check = "memory",
                        .text = ShowBytes(info.stored_bytes) + " of max_bytes " + ShowBytes(*info.max_bytes) +
                                Format(" (%.0f %%) are used", share * 100)});
    if (share > 0.9) {
      findings.back().verdict = Verdict::kWarning;
      findings.back().advice =
          "inserts will wait, or evict items with when_full = \"evict\"; raise max_bytes or lower max_size";
    }
  }
  if (info.storage_memory_limit) {
    findings.push_back({.check = "storage",
                        .text = ShowBytes(info.storage_memory_bytes) + " of data in memory, " +
                                ShowBytes(info.storage_disk_bytes) + " on disk"});
    if (!info.storage_error.empty()) {
      findings.back().verdict = Verdict::kWarning;
      findings.back().text += "; data cannot be moved there: " + info.storage_error;
      findings.back().advice = "free space on that disk, or use another one: inserts wait, or evict items";
    } else if (info.storage_lost_chunks > 0) {
      findings.back().verdict = Verdict::kWarning;
      findings.back().text += "; " + ShowCount(info.storage_lost_chunks) + " chunks were lost";
      findings.back().advice = "the disk may be failing: look at the log of the server and of the system";
    }
  }
  if (!process) {
    findings.push_back(Elsewhere("headroom"));
    return findings;
  }
  const std::optional<int64_t> machine = KilobytesIn(ReadText("/proc/meminfo"), "MemTotal");
  std::optional<int64_t> limit = machine;
  const bool in_group = process->cgroup_bytes && (!machine || *process->cgroup_bytes < *machine);
  if (in_group) limit = process->cgroup_bytes;
  if (!limit) return findings;
  Finding headroom{
      .check = "headroom",
      .text = std::string(in_group ? "the cgroup" : "the machine") + " allows " + ShowBytes(*limit) +
              (process->rss_bytes ? ", the process uses " + ShowBytes(*process->rss_bytes) : "")};
  // docs/program.md: what a server needs at most, by its settings.
  struct Need {
    const char* name;
    std::optional<int64_t> bound;
    double factor;
    int64_t base;
  };
  constexpr int64_t kBase = 200'000'000;
  const Need needs[] = {{.name = "memory_limit", .bound = info.memory.limit, .factor = 1.15, .base = 0},
                        {.name = info.storage_memory_limit ? "memory_limit of [storage]" : "max_bytes",
                         .bound = info.storage_memory_limit ? info.storage_memory_limit : info.max_bytes,
                         .factor = 1.3,
                         .base = kBase}};
  const auto bytes_for = [](const Need& need) {
    return need.bound ? static_cast<int64_t>(need.factor * static_cast<double>(*need.bound)) + need.base
                      : int64_t{0};
  };
  const auto* const too_large =
      std::ranges::find_if(needs, [&](const Need& need) { return bytes_for(need) > *limit; });
  if (too_large != std::end(needs)) {
    headroom.verdict = Verdict::kWarning;
    headroom.text += std::string("; with ") + too_large->name + " " + ShowBytes(*too_large->bound) +
                     " it may need " + ShowBytes(bytes_for(*too_large));
    const auto most = static_cast<int64_t>(static_cast<double>(*limit - too_large->base) / too_large->factor);
    headroom.advice =
        std::string("lower ") + too_large->name + " to " + ShowBytes(most) + " or less, or allow more memory";
  } else if (process->rss_bytes && *process->rss_bytes > *limit / 10 * 9) {
    headroom.verdict = Verdict::kWarning;
    headroom.advice = "the system may end the process; allow more memory, or set a lower memory_limit";
  }
  findings.push_back(std::move(headroom));
  return findings;
}

Findings CheckHugePages(const std::optional<LocalProcess>& process) {
  if (!process) return {Elsewhere("huge_pages")};
  const std::string enabled = ReadText("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t begin = enabled.find('[');
  if (begin == std::string::npos) {
    return {{.check = "huge_pages", .verdict = Verdict::kSkipped, .text = "this kernel has no huge pages"}};
  }
  const std::string mode = enabled.substr(begin + 1, enabled.find(']') - begin - 1);
  Finding finding{.check = "huge_pages", .text = "transparent huge pages: " + mode};
  if (mode == "never") {
    finding.verdict = Verdict::kWarning;
    finding.advice =
        "loading a checkpoint is faster with huge pages: echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled";
  }
  return {finding};
}

Findings CheckDisk(const std::string& folder, const ServerInfo& info) {
  constexpr size_t kBytes = size_t{64} << 20;
  constexpr std::chrono::seconds kMost(3);
  constexpr double kSlow = 50e6;
  if (folder.empty()) {
    return {{.check = "disk",
             .verdict = Verdict::kSkipped,
             .text = "the folder of the server's checkpoints is not known",
             .advice = "name it with --checkpoint, on the server's host"}};
  }
  // The folder may not exist before the first checkpoint.
  fs::path existing = folder;
  std::error_code error;
  while (!fs::exists(existing, error) && existing.has_parent_path() && existing != existing.parent_path()) {
    existing = existing.parent_path();
  }
  struct statvfs space {};
  std::string pattern = (existing / ".reverb-doctor-XXXXXX").string();
  const int descriptor = mkostemp(pattern.data(), O_CLOEXEC);
  if (descriptor < 0) {
    return {{.check = "disk",
             .verdict = Verdict::kFailure,
             .text = existing.string() + " cannot be written: " + std::strerror(errno),
             .advice = "give the server's user write permission, or another folder"}};
  }
  // From here on the file has no name, and is gone when this process ends in any way.
  unlink(pattern.c_str());
  const Result<double> rate = WriteRate(descriptor, kBytes, kMost);
  close(descriptor);
  if (!rate.ok()) {
    return {{.check = "disk",
             .verdict = Verdict::kFailure,
             .text = existing.string() + ": " + std::string(rate.status().message()),
             .advice = "free space, or use another disk"}};
  }
  Findings findings;
  findings.push_back({.check = "disk",
                      .text = existing.string() + " writes " + ShowBytes(static_cast<int64_t>(*rate)) +
                              "/s; a full checkpoint of " + ShowBytes(info.stored_bytes) + " takes about " +
                              ShowDuration(std::chrono::milliseconds(static_cast<int64_t>(
                                  static_cast<double>(info.stored_bytes) / *rate * 1000)))});
  if (*rate < kSlow) {
    findings.back().verdict = Verdict::kWarning;
    findings.back().advice = "use a faster disk for checkpoints, or a longer interval";
  }
  if (statvfs(existing.c_str(), &space) == 0) {
    const auto free = static_cast<int64_t>(space.f_bavail * space.f_frsize);
    findings.push_back({.check = "space", .text = ShowBytes(free) + " are free in " + existing.string()});
    // A new checkpoint is written before the old one is removed.
    if (free < 2 * info.stored_bytes) {
      findings.back().verdict = Verdict::kWarning;
      findings.back().advice = "two checkpoints of the present data take " +
                               ShowBytes(2 * info.stored_bytes) + "; free space, or use another disk";
    }
  }
  return findings;
}

}  // namespace reverb::program
