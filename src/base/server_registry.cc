#include "base/server_registry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace reverb::internal {
namespace {

constexpr std::string_view kScheme = "file://";
constexpr std::string_view kSuffix = ".server";
constexpr std::string_view kDraftSuffix = ".server.new";
constexpr std::string_view kFirstLine = "reverb server 1";
constexpr std::streamsize kMaxRegistryBytes = 4096;

// Returns absent if the text is not one of a server.
std::optional<RegisteredServer> ParseRegisteredServer(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) return std::nullopt;
  RegisteredServer server;
  bool is_complete = false;
  while (std::getline(lines, line)) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string value = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "address") server.address = value;
    if (name == "shard") std::from_chars(value.data(), value.data() + value.size(), server.shard);
    if (name == "life") server.life_id = value;
    is_complete |= name == "end";
  }
  if (!is_complete || server.address.empty()) return std::nullopt;
  return server;
}

// Returns absent for what is not a regular file, such as a FIFO, which would block, and for what is not about a
// server.
std::optional<RegisteredServer> ReadRegisteredServer(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return std::nullopt;
  std::ifstream in(path);
  std::string text(static_cast<size_t>(kMaxRegistryBytes), '\0');
  in.read(text.data(), kMaxRegistryBytes);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return ParseRegisteredServer(text);
}

// Removes the files of lives of this server that ended without removing them: no other server has its address.
void RemoveFormerLives(const std::string& folder, const std::string& own_path, const std::string& address) {
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string path = entries->path().string();
    if (path == own_path || !(path.ends_with(kSuffix) || path.ends_with(kDraftSuffix))) continue;
    const std::optional<RegisteredServer> server = ReadRegisteredServer(path);
    if (server && server->address == address) (void)unlink(path.c_str());
  }
}

}  // namespace

Result<std::string> RegistryFolder(const std::string& address) {
  if (!address.starts_with(kScheme) || address.size() <= kScheme.size() || address[kScheme.size()] != '/') {
    return Status::InvalidArgument("address \"" + address +
                                   "\" does not name a folder; give it as file:///path, for example "
                                   "file:///shared/run42");
  }
  return address.substr(kScheme.size());
}

// --- Registering ---

Result<std::unique_ptr<ServerRegistration>> ServerRegistration::Start(const std::string& folder,
                                                                      const RegisteredServer& server,
                                                                      Duration interval) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Status::Unavailable("the folder \"" + folder +
                               "\", in which the server registers, cannot be created: " + error.message());
  }
  std::string text(kFirstLine);
  text += "\naddress " + server.address + "\nshard " + std::to_string(server.shard) + "\nlife " +
          server.life_id + "\nend\n";
  std::unique_ptr<ServerRegistration> registration(
      new ServerRegistration(folder + "/" + server.life_id + std::string(kSuffix), std::move(text)));
  REVERB_RETURN_IF_ERROR(registration->Write());
  RemoveFormerLives(folder, registration->path_, server.address);
  registration->thread_ = std::thread([self = registration.get(), interval] { self->Run(interval); });
  return registration;
}

ServerRegistration::~ServerRegistration() {
  {
    MutexLock lock(&mu_);
    is_stopped_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  (void)unlink(path_.c_str());
}

Status ServerRegistration::Write() const {
  const std::string draft = path_ + ".new";
  {
    std::ofstream file(draft, std::ios::trunc);
    file << text_;
    file.close();
    if (!file) {
      const int reason = errno;
      (void)unlink(draft.c_str());
      return Status::Unavailable(
          "\"" + draft +
          "\" cannot be written, so that clients would not find this server: " + std::strerror(reason));
    }
  }
  if (std::rename(draft.c_str(), path_.c_str()) != 0) {
    return Status::Unavailable(
        "\"" + path_ +
        "\" cannot be written, so that clients would not find this server: " + std::strerror(errno));
  }
  return Status::Ok();
}

void ServerRegistration::Run(Duration interval) {
  bool has_failed = false;
  while (true) {
    {
      MutexLock lock(&mu_);
      const auto until = std::chrono::steady_clock::now() + interval;
      while (!is_stopped_) {
        const Duration left = until - std::chrono::steady_clock::now();
        if (left <= Duration(0)) break;
        changed_.WaitFor(&mu_, left);
      }
      if (is_stopped_) return;
    }
    Status status = Write();
    // The file from before says the same. On a full disk, its time can still be changed.
    if (!status.ok() && utimensat(AT_FDCWD, path_.c_str(), nullptr, 0) == 0) status = Status::Ok();
    if (!status.ok() && !has_failed) Log(LogLevel::kWarning, std::string(status.message()));
    has_failed = !status.ok();
  }
}

// --- Reading ---

Result<std::vector<RegisteredServer>> RegistryReader::Read(TimePoint now) {
  std::error_code error;
  std::vector<std::string> paths;
  std::filesystem::directory_iterator entries(folder_, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    std::string path = entries->path().string();
    if (path.ends_with(kSuffix)) paths.push_back(std::move(path));
  }
  if (error == std::errc::no_such_file_or_directory) return std::vector<RegisteredServer>();  // none so far
  if (error) return Status::Unavailable("the folder \"" + folder_ + "\" cannot be read: " + error.message());
  std::ranges::sort(paths);
  std::erase_if(seen_, [&](const auto& one) { return !std::ranges::binary_search(paths, one.first); });
  std::vector<RegisteredServer> servers;
  for (const std::string& path : paths) {
    struct stat file {};
    if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) continue;
    const int64_t modified = int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec;
    const auto [entry, is_new] = seen_.try_emplace(path);
    Seen& seen = entry->second;
    if (is_new) {
      const int64_t wall = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
      seen = {.modified = modified, .at = now, .is_current = wall - modified < ttl_.count()};
    } else if (seen.modified != modified) {
      seen = {.modified = modified, .at = now, .is_current = true};
    }
    if (!seen.is_current || now - seen.at >= ttl_) continue;
    if (std::optional<RegisteredServer> server = ReadRegisteredServer(path)) {
      servers.push_back(*std::move(server));
    }
  }
  return servers;
}

}  // namespace reverb::internal
