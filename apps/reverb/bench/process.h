// process.h — processes of a benchmark: this program again, controlled over pipes.
//
// A process ends when its owner destroys it or exits. Threads: one at a time for each Process. Only the main
// thread may start processes, since the system ends them with the thread that started them.
#ifndef REVERB_APPS_BENCH_PROCESS_H_
#define REVERB_APPS_BENCH_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "bench/message.h"
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
  // Returns the reply to the oldest command without a reply, or the error that it contains.
  Result<Message> Receive();
  Result<Message> Call(const Message& command);

 private:
  Process(pid_t pid, int in, int out) : pid_(pid), in_(in), out_(out) {}

  // Waits for its end and describes how it ended.
  std::string Reap();

  const pid_t pid_;
  bool is_reaped_ = false;
  const int in_;   // its standard input
  const int out_;  // its standard output
  std::string received_;
};

// Runs in such a process: executes the commands of standard input until it ends.
void ServeCommands(const std::function<Result<Message>(const Message& command)>& handle);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_PROCESS_H_
