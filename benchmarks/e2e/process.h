// process.h — processes of a benchmark: this same program again, told what to do over pipes.
//
// A process ends when its owner destroys it or dies. Threads: one at a time for each Process; processes are
// started by the main thread only, because the system ties their lives to the thread that started them.
#ifndef REVERB_BENCHMARKS_E2E_PROCESS_H_
#define REVERB_BENCHMARKS_E2E_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "benchmarks/e2e/message.h"
#include "reverb/status.h"

namespace reverb::bench {

class Process {
 public:
  static Result<std::unique_ptr<Process>> Start();
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }

  Status Send(const Message& command);
  // The reply to the oldest command that has none yet. The error, if the reply is one.
  Result<Message> Receive();
  Result<Message> Call(const Message& command);

 private:
  Process(pid_t pid, int in, int out) : pid_(pid), in_(in), out_(out) {}

  // Waits for its end, and says how it came to it.
  std::string Reap();

  const pid_t pid_;
  bool is_reaped_ = false;
  const int in_;   // its standard input
  const int out_;  // its standard output
  std::string received_;
};

// In such a process: answers the commands of standard input until it ends.
void ServeCommands(const std::function<Result<Message>(const Message& command)>& handle);

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_E2E_PROCESS_H_
