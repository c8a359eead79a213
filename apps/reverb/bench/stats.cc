#include "bench/stats.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <system_error>

namespace reverb::bench {

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - std::floor(at));
}

std::vector<double> Condense(std::vector<double>* values, size_t count) {
  std::ranges::sort(*values);
  if (values->size() <= count) return *values;
  std::vector<double> few;
  few.reserve(count);
  const double step = static_cast<double>(values->size()) / static_cast<double>(count);
  for (size_t i = 0; i < count; ++i) {
    few.push_back((*values)[static_cast<size_t>((static_cast<double>(i) + 0.5) * step)]);
  }
  return few;
}

namespace {

double TicksOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  // The name, in brackets, may contain any characters; the numbers follow the last bracket.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return user + system;
}

}  // namespace

CpuMeter::CpuMeter(std::span<const pid_t> ours) : ours_(ours.begin(), ours.end()) {
  ours_.push_back(getpid());
  start_ = Now();
}

CpuMeter::Ticks CpuMeter::Now() const {
  Ticks ticks;
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0;
  file >> name >> user >> nice >> system >> idle >> wait >> irq >> soft >> ticks.steal;
  ticks.busy = user + nice + system;
  ticks.total = ticks.busy + idle + wait + irq + soft + ticks.steal;
  for (const pid_t pid : ours_) ticks.ours += TicksOf(pid);
  return ticks;
}

Disturbance CpuMeter::Read() const {
  const Ticks now = Now();
  const double total = now.total - start_.total;
  if (total <= 0) return {};
  const double foreign = (now.busy - start_.busy) - (now.ours - start_.ours);
  return {.steal = (now.steal - start_.steal) / total, .others = std::max(0.0, foreign / total)};
}

namespace {

// Returns the inode numbers of the sockets of a process.
std::set<unsigned long> SocketsOf(pid_t pid) {
  std::set<unsigned long> sockets;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    unsigned long number = 0;
    if (std::sscanf(target.c_str(), "socket:[%lu]", &number) == 1) sockets.insert(number);
  }
  return sockets;
}

}  // namespace

int CountConnections(int port, std::span<const pid_t> processes) {
  constexpr unsigned kEstablished = 1;
  std::set<unsigned long> sockets;
  for (const pid_t pid : processes) sockets.merge(SocketsOf(pid));
  int count = 0;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // the heading
    while (std::getline(file, line)) {
      unsigned remote_port = 0;
      unsigned state = 0;
      unsigned long socket = 0;
      const int fields = std::sscanf(
          line.c_str(), " %*d: %*[0-9A-Fa-f]:%*x %*[0-9A-Fa-f]:%x %x %*x:%*x %*x:%*x %*x %*d %*d %lu",
          &remote_port, &state, &socket);
      if (fields == 3 && remote_port == static_cast<unsigned>(port) && state == kEstablished &&
          sockets.contains(socket)) {
        ++count;
      }
    }
  }
  return count;
}

}  // namespace reverb::bench
