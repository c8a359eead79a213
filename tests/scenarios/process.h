// process.h — a server in a process of its own, which can be killed.
//
// The process dies with the thread that started it. Threads: one at a time for each object.
#ifndef REVERB_TESTS_SCENARIOS_PROCESS_H_
#define REVERB_TESTS_SCENARIOS_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reverb::test {

// Of the process with this id, from /proc.
int64_t RssBytes(pid_t pid);
int64_t NumFds(pid_t pid);

class ServerProcess {
 public:
  // Starts scenario_server and waits until it listens. Aborts the test program when it does not.
  explicit ServerProcess(std::vector<std::string> arguments);
  ~ServerProcess();  // Kill()
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  pid_t pid() const { return pid_; }
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int64_t rss_bytes() const { return RssBytes(pid_); }
  int64_t num_fds() const { return NumFds(pid_); }

  // SIGKILL, and waits until it is gone.
  void Kill();
  // SIGTERM. The exit status; 128 + the signal's number when a signal ended it; absent when it is still
  // there after `patience`.
  std::optional<int> Terminate(std::chrono::milliseconds patience);

 private:
  pid_t pid_ = -1;  // -1: gone
  int port_ = 0;
  int stdin_ = -1;  // the server stops when this is closed
};

}  // namespace reverb::test

#endif  // REVERB_TESTS_SCENARIOS_PROCESS_H_
