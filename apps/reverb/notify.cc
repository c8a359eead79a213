#include "notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "text.h"

namespace reverb::program {
namespace {

constexpr std::chrono::seconds kProgressInterval(1);
constexpr std::chrono::microseconds kProgressTimeout = std::chrono::minutes(2);

// Returns an empty string, or why the datagram could not be sent.
std::string SendDatagram(const std::string& path, const std::string& text) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path[0] != '/' && path[0] != '@') return "expected an absolute path, or @ and an abstract name";
  if (path.size() >= sizeof(address.sun_path)) {
    return "longer than the " + std::to_string(sizeof(address.sun_path) - 1) + " bytes of a socket's name";
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path[0] == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  const int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return std::strerror(errno);
  const ssize_t sent = sendto(descriptor, text.data(), text.size(), MSG_NOSIGNAL,
                              reinterpret_cast<const sockaddr*>(&address), size);
  std::string problem = sent < 0 ? std::strerror(errno) : "";
  close(descriptor);
  return problem;
}

}  // namespace

ServiceNotifier::ServiceNotifier() {
  if (const char* const socket = std::getenv("NOTIFY_SOCKET")) socket_ = socket;
}

void ServiceNotifier::Loading(const CheckpointProgress& progress) {
  if (socket_.empty()) return;
  const Clock::time_point now = Clock::now();
  if (now < next_progress_) return;
  next_progress_ = now + kProgressInterval;
  std::string status = "loading a checkpoint: " + ShowBytes(static_cast<int64_t>(progress.bytes_done));
  if (progress.bytes_total > 0) status += " of " + ShowBytes(static_cast<int64_t>(progress.bytes_total));
  Send("EXTEND_TIMEOUT_USEC=" + std::to_string(kProgressTimeout.count()) + "\nSTATUS=" + status);
}

void ServiceNotifier::Ready(const std::string& status) { Send("READY=1\nSTATUS=" + status); }

void ServiceNotifier::Reloading() {
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch());
  Send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(now.count()));
}

void ServiceNotifier::Stopping(const std::string& status) { Send("STOPPING=1\nSTATUS=" + status); }

void ServiceNotifier::Send(const std::string& state) {
  if (socket_.empty()) return;
  const std::string problem = SendDatagram(socket_, state);
  if (problem.empty()) return;
  std::fprintf(stderr, "reverb serve: warning: cannot notify the service manager: NOTIFY_SOCKET %s: %s\n",
               Quote(socket_).c_str(), problem.c_str());
  socket_.clear();
}

}  // namespace reverb::program
