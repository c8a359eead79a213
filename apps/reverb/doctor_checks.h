// doctor_checks.h — the checks of `reverb doctor`, each a function that returns findings.
//
// Every check is bounded in time and leaves nothing behind. Those about the server's process need it to be on this
// host; elsewhere they are skipped, with a finding that says so.
#ifndef REVERB_APPS_REVERB_DOCTOR_CHECKS_H_
#define REVERB_APPS_REVERB_DOCTOR_CHECKS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "remote.h"
#include "reverb/client.h"
#include "reverb/server_info.h"
#include "reverb/status.h"

namespace reverb::program {

enum class Verdict : uint8_t { kOk, kSkipped, kWarning, kFailure };
// "ok", "skipped", "warning", "failure".
const char* VerdictName(Verdict verdict);

struct Finding {
  std::string check;  // a word: "clock"
  Verdict verdict = Verdict::kOk;
  std::string text;
  std::string advice = {};  // what to change; empty: nothing
};
using Findings = std::vector<Finding>;

// The server's process on this host, as far as /proc shows it.
struct LocalProcess {
  pid_t pid = 0;
  std::optional<int64_t> max_files;   // soft limit
  std::optional<int64_t> open_files;  // absent: another user's process
  std::optional<int64_t> max_locked;  // bytes; absent = unlimited or unknown
  std::optional<int64_t> rss_bytes;
  std::optional<int64_t> cgroup_bytes;  // memory limit; absent = none or unknown
  std::string checkpoint_root;          // absolute; empty: unknown or none
};

// Resolves the name and connects. `address` is one server's.
Findings CheckReachability(const std::string& address, std::chrono::milliseconds timeout);
// Compares the versions of server and program, and the clocks; measures round trips, which bound the skew.
Result<Findings> CheckServer(const Client& client, const Remote& remote, ServerInfo* info);
Findings CheckTransport(const Client& client, const Remote& remote, const ServerInfo& info);
// Reports what is encrypted. The connection of this program is that of the other clients.
Findings CheckEncryption(const std::string& address);
// Finds the server's process through its local socket; absent if it is on another host or belongs to another user.
std::optional<LocalProcess> FindLocalProcess(const ServerInfo& info);
Findings CheckLimits(const std::optional<LocalProcess>& process);
Findings CheckMemory(const ServerInfo& info, const std::optional<LocalProcess>& process);
Findings CheckHugePages(const std::optional<LocalProcess>& process);
// Writes and removes a temporary file in the folder; a few seconds at most.
Findings CheckDisk(const std::string& folder, const ServerInfo& info);
// Reports tables that are closed, and waits of more than a minute.
Findings CheckTables(const ServerInfo& info);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_DOCTOR_CHECKS_H_
