// admin_port.h — the port for people and monitoring: the page, metrics, health, and the server's state as JSON.
//
// Answers GET and HEAD only, and changes nothing. docs/operations.md describes the addresses, openapi.json the answers.
//
// The port is opened before the server exists, so that it can report a checkpoint that is being loaded: Serve() then gives
// it the server.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_ADMIN_ADMIN_PORT_H_
#define REVERB_ADMIN_ADMIN_PORT_H_

#include <memory>
#include <string>
#include <vector>

#include "access/tls_files.h"
#include "admin/admin_source.h"
#include "admin/host_check.h"
#include "admin/http_server.h"
#include "base/mutex.h"
#include "reverb/status.h"

namespace reverb::internal {

class AdminPort {
 public:
  struct Options {
    std::string listen = {};  // host:port
    bool any_port_if_taken = false;
    std::vector<std::string> hosts =
        {};  // names that requests may have in Host, besides the one that it listens on
    std::shared_ptr<TlsFiles> tls = nullptr;
  };

  static Result<std::unique_ptr<AdminPort>> Start(const Options& options);
  ~AdminPort();  // Stop()
  AdminPort(const AdminPort&) = delete;
  AdminPort& operator=(const AdminPort&) = delete;

  // host:port
  const std::string& address() const { return address_; }

  // Until then, the server is not ready: it loads a checkpoint.
  void Serve(std::shared_ptr<AdminSource> source) EXCLUDES(mu_);
  // The server is not ready from now on, for this reason.
  void NotReady(std::string reason) EXCLUDES(mu_);
  // Ends all streams and closes the port. Idempotent.
  void Stop();

  HttpServer::Stats http_stats() const { return http_->stats(); }

 private:
  AdminPort(Options options, HostCheck hosts);

  HttpResponse Handle(const HttpRequest& request) EXCLUDES(mu_);
  HttpResponse Route(const HttpRequest& request) EXCLUDES(mu_);
  HttpResponse Ready() EXCLUDES(mu_);
  HttpResponse Items(const std::string& table, const AdminItemsQuery& query, const AccessToken* token)
      EXCLUDES(mu_);
  HttpResponse Stream(Duration interval, std::shared_ptr<const AccessToken> token) EXCLUDES(mu_);
  // Returns the token of a request; null if none is needed. An error becomes the answer.
  Result<std::shared_ptr<const AccessToken>> Authorize(const HttpRequest& request, std::string_view action)
      EXCLUDES(mu_);
  // Returns the server's state, at most `max_age` old. UNAVAILABLE while it loads.
  Result<std::shared_ptr<const AdminState>> State(Duration max_age = Duration(0)) EXCLUDES(mu_, state_mu_);
  std::shared_ptr<AdminSource> source() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return source_;
  }

  const Options options_;
  const HostCheck hosts_;
  const std::string page_policy_;  // Content-Security-Policy of the page
  std::string address_;

  mutable Mutex mu_;
  std::shared_ptr<AdminSource> source_ GUARDED_BY(mu_);
  std::string not_ready_ GUARDED_BY(mu_) = "the server is starting: it loads a checkpoint";

  Mutex state_mu_;  // held while the state is read
  TimePoint state_time_ GUARDED_BY(state_mu_){};
  std::shared_ptr<const AdminState> state_ GUARDED_BY(state_mu_);

  std::unique_ptr<HttpServer> http_;  // last: its threads use all of the above
};

}  // namespace reverb::internal

#endif  // REVERB_ADMIN_ADMIN_PORT_H_
