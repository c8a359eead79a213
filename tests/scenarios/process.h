// process.h — runs a server in a separate process, which can be killed.
//
// The process dies with the thread that started it. Not thread-safe.
#ifndef REVERB_TESTS_SCENARIOS_PROCESS_H_
#define REVERB_TESTS_SCENARIOS_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reverb::test {

// Return the resident memory and the number of descriptors of a process, from /proc.
int64_t RssBytes(pid_t pid);
int64_t NumFds(pid_t pid);

class ServerProcess {
 public:
  // Starts scenario_server and waits until it listens. Aborts the test program on failure.
  explicit ServerProcess(std::vector<std::string> arguments);
  ~ServerProcess();  // Kill()
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  pid_t pid() const { return pid_; }
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int64_t rss_bytes() const { return RssBytes(pid_); }
  int64_t num_fds() const { return NumFds(pid_); }

  // Sends SIGKILL and waits until the process has ended.
  void Kill();
  // Sends SIGTERM. Returns the exit status, or 128 + the signal number if a signal ended the process; nullopt
  // if it still runs after `patience`.
  std::optional<int> Terminate(std::chrono::milliseconds patience);

 private:
  pid_t pid_ = -1;  // -1: ended
  int port_ = 0;
  int stdin_ = -1;  // the server stops when this is closed
};

}  // namespace reverb::test

#endif  // REVERB_TESTS_SCENARIOS_PROCESS_H_
