// tls_files.h — reads and checks the certificates and keys of servers and clients.
//
// Threads: all functions and methods may be called concurrently.
#ifndef REVERB_ACCESS_TLS_FILES_H_
#define REVERB_ACCESS_TLS_FILES_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/access.h"
#include "reverb/status.h"

namespace reverb::internal {

// PEM texts that fit together.
struct ServerTlsTexts {
  std::string certificate;
  std::string key;
  std::string client_ca;  // empty: clients need no certificate
};
struct ClientTlsTexts {
  std::string ca;
  std::string certificate;  // empty: none
  std::string key;
  std::string server_name;  // empty: the host of the address
};

// INVALID_ARGUMENT names the file and what is wrong with it.
Result<ServerTlsTexts> ReadServerTls(const ServerTls& files);
Result<ClientTlsTexts> ReadClientTls(const ClientTls& files);

// The files of a server, read again when they change.
class TlsFiles {
 public:
  static Result<std::shared_ptr<TlsFiles>> Load(ServerTls files);

  bool requires_client_certificate() const { return !files_.client_ca.empty(); }
  // Returns what was read last. Looks for changes once a second at most; files that do not fit together are logged,
  // and the former ones stay in use.
  std::shared_ptr<const ServerTlsTexts> Current() EXCLUDES(mu_);
  // Reads the files now. After an error, the former ones stay in use.
  Status Reload() EXCLUDES(mu_);

 private:
  // Identifies versions of the three files.
  using Stamps = std::array<std::array<int64_t, 3>, 3>;

  explicit TlsFiles(ServerTls files) : files_(std::move(files)) {}
  Stamps StampsOfFiles() const;
  Status Read() REQUIRES(mu_);

  const ServerTls files_;

  Mutex mu_;
  TimePoint last_look_ GUARDED_BY(mu_){};
  Stamps stamps_ GUARDED_BY(mu_){};
  std::shared_ptr<const ServerTlsTexts> texts_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_TLS_FILES_H_
