#include "bench/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "bench/bench.h"

namespace reverb::bench {
namespace {

constexpr char kErrorVerb[] = "error";

Status SystemError(const std::string& what) { return Status::Internal(what + ": " + std::strerror(errno)); }

Status WriteLine(int fd, std::string line) {
  line += '\n';
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = write(fd, line.data() + at, line.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError("write to a benchmark process");
    at += static_cast<size_t>(n);
  }
  return Status::Ok();
}

// Returns the next line of `fd`; *received holds the bytes read beyond it. OUT_OF_RANGE at the end.
Result<std::string> ReadLine(int fd, std::string* received) {
  for (;;) {
    if (const size_t end = received->find('\n'); end != std::string::npos) {
      std::string line = received->substr(0, end);
      received->erase(0, end + 1);
      return line;
    }
    char buffer[4096];
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError("read from a benchmark process");
    if (n == 0) return Status::OutOfRange("the benchmark process has ended");
    received->append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

Result<std::unique_ptr<Process>> Process::Start() {
  std::array<int, 2> in;
  std::array<int, 2> out;
  // Closed on exec, so that no process keeps the pipes of another one open.
  if (pipe2(in.data(), O_CLOEXEC) != 0) return SystemError("pipe");
  if (pipe2(out.data(), O_CLOEXEC) != 0) {
    const Status status = SystemError("pipe");
    close(in[0]);
    close(in[1]);
    return status;
  }
  const pid_t owner = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != owner) _exit(1);  // the owner died before the line above
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    char name[] = "reverb";
    char command[sizeof(kProcessCommand)];
    std::memcpy(command, kProcessCommand, sizeof(command));
    char* const arguments[] = {name, command, nullptr};
    execv("/proc/self/exe", arguments);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  if (pid < 0) {
    const Status status = SystemError("fork");
    close(in[1]);
    close(out[0]);
    return status;
  }
  return std::unique_ptr<Process>(new Process(pid, in[1], out[0]));
}

std::string Process::Reap() {
  int status = 0;
  is_reaped_ = waitpid(pid_, &status, 0) == pid_;
  if (is_reaped_ && WIFSIGNALED(status)) {
    return std::string("was ended by the signal \"") + strsignal(WTERMSIG(status)) + '"';
  }
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

Process::~Process() {
  if (!is_reaped_) {
    // It holds only memory and loopback sockets: there is nothing to save.
    kill(pid_, SIGKILL);
    Reap();
  }
  close(in_);
  close(out_);
}

Status Process::Send(const Message& command) { return WriteLine(in_, command.Encode()); }

Result<Message> Process::Receive() {
  const Result<std::string> line = ReadLine(out_, &received_);
  if (line.status().code() == StatusCode::kOutOfRange && !is_reaped_) {
    return Status::Internal("a process of the benchmark " + Reap());
  }
  if (!line.ok()) return line.status();
  Message reply = Message::Decode(*line);
  if (reply.verb() == kErrorVerb) return Status::Internal(reply.text());
  return reply;
}

Result<Message> Process::Call(const Message& command) {
  REVERB_RETURN_IF_ERROR(Send(command));
  return Receive();
}

void ServeCommands(const std::function<Result<Message>(const Message& command)>& handle) {
  std::string received;
  for (;;) {
    const Result<std::string> line = ReadLine(STDIN_FILENO, &received);
    if (!line.ok()) return;
    const Result<Message> reply = handle(Message::Decode(*line));
    const Message answer = reply.ok() ? *reply : Message(kErrorVerb).SetText(reply.status().ToString());
    if (!WriteLine(STDOUT_FILENO, answer.Encode()).ok()) return;
  }
}

}  // namespace reverb::bench
