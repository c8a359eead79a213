// server_registry.h — a folder in which servers register, and in which clients find them.
//
// Each server has one small text file, which it replaces every few seconds as a heartbeat and removes when it
// stops, or when it starts again at the same address. A reader ignores files that have not been replaced for a while: their servers are gone. The folder may
// be on a network file system; clocks of different hosts are not compared, except for files that a reader
// sees for the first time.
#ifndef REVERB_BASE_SERVER_REGISTRY_H_
#define REVERB_BASE_SERVER_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/status.h"

namespace reverb::internal {

struct RegisteredServer {
  std::string address;  // host:port, for clients
  uint32_t shard = 0;
  std::string life_id;  // hexadecimal
};

// Returns the folder of "file:///path". INVALID_ARGUMENT for another address.
Result<std::string> RegistryFolder(const std::string& address);

// Keeps a server registered, until it is destroyed. Threads: has one of its own.
class ServerRegistration {
 public:
  static constexpr Duration kHeartbeatInterval = std::chrono::seconds(3);

  // Creates the folder if necessary, and writes the file.
  static Result<std::unique_ptr<ServerRegistration>> Start(const std::string& folder,
                                                           const RegisteredServer& server,
                                                           Duration interval = kHeartbeatInterval);
  ~ServerRegistration();
  const std::string& path() const { return path_; }

 private:
  ServerRegistration(std::string path, std::string text) : path_(std::move(path)), text_(std::move(text)) {}
  Status Write() const;
  void Run(Duration interval) EXCLUDES(mu_);

  const std::string path_;
  const std::string text_;
  Mutex mu_;
  CondVar changed_;
  bool is_stopped_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Reads the servers that are registered in a folder. Threads: not thread-safe.
class RegistryReader {
 public:
  static constexpr Duration kTtl = std::chrono::seconds(15);

  explicit RegistryReader(std::string folder, Duration ttl = kTtl) : folder_(std::move(folder)), ttl_(ttl) {}
  // Returns the servers whose files are being replaced, by path. `now`: of a steady clock. An unreadable file
  // is ignored; UNAVAILABLE if the folder cannot be read.
  Result<std::vector<RegisteredServer>> Read(TimePoint now);

 private:
  struct Seen {
    int64_t modified = 0;  // nanoseconds
    TimePoint at;          // when this reader noticed that
    bool is_current = false;
  };

  const std::string folder_;
  const Duration ttl_;
  std::map<std::string, Seen> seen_;  // by path
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_SERVER_REGISTRY_H_
