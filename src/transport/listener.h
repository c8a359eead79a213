// listener.h — listening sockets and the thread that accepts connections from them.
//
// gRPC 1.51 stops listening for good when accept() fails once, for example because the process has no file
// descriptor left, and reports nothing. This listener keeps accepting: it logs the error, waits a moment and
// tries again. It also refuses connections before the last descriptors are gone, so that checkpoints can
// still open their files.
//
// Threads: all methods may be called concurrently. `on_connection` runs on the listener's own thread, one
// call at a time.
#ifndef REVERB_TRANSPORT_LISTENER_H_
#define REVERB_TRANSPORT_LISTENER_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/parker.h"
#include "reverb/status.h"

namespace reverb::internal {

// Returns why this process cannot keep the descriptor that it has just got: the last ones are reserved for its files. The
// system assigns the lowest free number, so all below `fd` are in use. `is_brief`: it will be closed at once, and may be
// among the first half of those.
std::optional<std::string> DescriptorShortage(int fd, bool is_brief = false);

class Listener {
 public:
  // Takes ownership of a connected, non-blocking socket.
  using OnConnection = std::function<void(int fd)>;

  // The umask applies to it.
  static constexpr unsigned kDefaultUnixMode = 0777;

  // Binds all addresses that `address` names. It has the form "host:port", where port 0 takes any that is
  // free and a wildcard host ("0.0.0.0" or "[::]") stands for all interfaces with IPv4 and IPv6, or
  // "unix:path". Clients can connect from now on; they are served after Start().
  // `unix_mode`: the permissions of a unix socket.
  static Result<std::unique_ptr<Listener>> Bind(const std::string& address,
                                                unsigned unix_mode = kDefaultUnixMode);
  ~Listener();  // Stop()
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Returns the port; 0 for a unix socket.
  int port() const { return port_; }

  // Starts to accept connections. To be called once.
  Status Start(OnConnection on_connection) EXCLUDES(mu_);
  // Closes the listening sockets. `on_connection` is not called any more when it returns. Idempotent.
  void Stop() EXCLUDES(mu_);

 private:
  explicit Listener(std::string address) : address_(std::move(address)) {}
  Status BindUnix(const std::string& path, unsigned mode);
  Status BindTcp(const std::string& host, int port);
  Status OpenWakeUp();
  void Run();
  // Returns false when accept() failed and will probably fail again.
  bool AcceptOne(int listening_fd);
  void CloseAll();

  std::string address_;    // With the port that was taken. Constant from Bind() on.
  std::vector<int> fds_;   // Listening sockets. Constant from Bind() to Stop().
  int wake_up_fd_ = -1;    // Readable when Run() is to return.
  std::string unix_path_;  // To be removed at the end,
  ino_t unix_inode_ = 0;   // unless another server has replaced the socket.
  int port_ = 0;
  OnConnection on_connection_;
  LogEvery log_{RealClock(), std::chrono::minutes(1)};

  Mutex mu_;  // Held by Stop() until the thread has ended, so that a second caller waits too.
  bool is_running_ GUARDED_BY(mu_) = false;
  Parker thread_ended_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LISTENER_H_
