#include "scenarios/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "testing/wait.h"

namespace reverb::test {
namespace {

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::abort();
}

// Creates a pipe with close-on-exec: other child processes would keep its ends open.
void MakePipe(int* read_end, int* write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Fail("pipe2");
  *read_end = ends[0];
  *write_end = ends[1];
}

int ExitStatus(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

int64_t RssBytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return -1;
}

int64_t NumFds(pid_t pid) {
  int64_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/" + std::to_string(pid) + "/fd", error), end;
       !error && it != end; it.increment(error)) {
    ++count;
  }
  return count;
}

ServerProcess::ServerProcess(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), REVERB_SCENARIO_SERVER);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  int child_stdin = -1;
  int child_stdout = -1;
  int from_child = -1;
  MakePipe(&child_stdin, &stdin_);
  MakePipe(&from_child, &child_stdout);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) Fail("fork");
  if (pid_ == 0) {
    // Other threads may hold locks: only system calls are allowed here.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126);  // the parent died before
    if (dup2(child_stdin, STDIN_FILENO) < 0 || dup2(child_stdout, STDOUT_FILENO) < 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(child_stdin);
  close(child_stdout);
  std::string line;
  char letter = 0;
  while (read(from_child, &letter, 1) == 1 && letter != '\n') line += letter;
  close(from_child);
  if (std::sscanf(line.c_str(), "port %d", &port_) != 1) {
    std::fprintf(stderr, "scenario_server said \"%s\" instead of its port\n", line.c_str());
    std::abort();
  }
}

ServerProcess::~ServerProcess() { Kill(); }

void ServerProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
  close(stdin_);
}

std::optional<int> ServerProcess::Terminate(std::chrono::milliseconds patience) {
  if (pid_ < 0) return std::nullopt;
  kill(pid_, SIGTERM);
  int status = 0;
  if (!WaitUntil([&] { return waitpid(pid_, &status, WNOHANG) != 0; }, patience)) return std::nullopt;
  pid_ = -1;
  close(stdin_);
  return ExitStatus(status);
}

}  // namespace reverb::test
