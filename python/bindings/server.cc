#include "reverb/server.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "errors.h"
#include "gil.h"
#include "progress.h"
#include "python_api.h"
#include "rows.h"
#include "table.h"

namespace reverb::python {
namespace {

class ServerObject {
 public:
  ServerObject(const std::vector<TableObject*>& tables, std::optional<int64_t> port, std::string host,
               std::optional<CheckpointOptions> checkpoint, std::optional<int64_t> max_bytes,
               std::optional<int64_t> memory_limit, bool evict_when_full, LocalAccess local,
               std::string local_path, Timeout keepalive_timeout, std::optional<int> shard,
               std::string register_at, std::string advertised_address, const nb::list& row_tables,
               const std::optional<std::vector<std::string>>& tls, std::string tokens_file,
               bool trust_same_user, bool strict, std::string admin, std::vector<std::string> admin_hosts,
               std::optional<StorageOptions> storage, const nb::object& progress) {
    ServerOptions options{.store = {.max_bytes = max_bytes, .evict_when_full = evict_when_full},
                          .memory_limit = memory_limit,
                          .host = std::move(host),
                          .port = 0,
                          .local = local,
                          .local_path = std::move(local_path),
                          .keepalive_timeout = keepalive_timeout,
                          .checkpoint = std::move(checkpoint),
                          .shard = shard,
                          .register_at = std::move(register_at),
                          .advertised_address = std::move(advertised_address),
                          .strict = strict};
    options.storage = std::move(storage);
    if (tls) options.tls = {.certificate = tls->at(0), .key = tls->at(1), .client_ca = tls->at(2)};
    if (!admin.empty()) options.admin = {.listen = std::move(admin), .hosts = std::move(admin_hosts)};
    if (!tokens_file.empty()) {
      options.auth = {.tokens_file = std::move(tokens_file), .trust_same_user = trust_same_user};
    }
    if (port) {
      if (*port < 0 || *port > 65535) {
        RaiseValueError("port " + std::to_string(*port) +
                        " does not exist; give one from 1 to 65535, or None for any that is free");
      }
      options.port = static_cast<int>(*port);
    }
    for (const TableObject* table : tables) {
      if (table->is_served()) {
        RaiseValueError(
            "table \"" + table->options().name +
            "\" belongs to another server already; give each server tables of its own, for example "
            "made with table.replace()");
      }
      options.tables.push_back(table->options());
    }
    for (const nb::handle rows : row_tables) options.row_tables.push_back(ToRowTableOptions(rows));
    Result<Server> server = Waiting().Run([&](const WaitOptions& wait) {
      if (options.checkpoint) {  // a load may take minutes
        options.checkpoint->restore.on_wait = wait.on_wait;
        options.checkpoint->restore.progress = ProgressCallback(progress);
      }
      return Server::Start(std::move(options));
    });
    if (!server.ok()) {
      const Status& status = server.status();
      if (status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kAlreadyExists) {
        RaiseValueError(std::string(status.message()));
      }
      if (status.code() == StatusCode::kUnavailable || status.message().starts_with("cannot listen on")) {
        RaiseValueError("Failed to BuildAndStart gRPC server: " + std::string(status.message()));
      }
      Raise(status);
    }
    server_ = Owned<Server>(*std::move(server));
    port_ = server_->port();
    local_path_ = server_->local_path();
    admin_address_ = server_->admin_address();
    shard_ = server_->shard();
    loaded_checkpoint_ = server_->loaded_checkpoint();
    for (TableObject* table : tables) {
      table->Serve(ValueOrRaise(server_->table(table->options().name)));
    }
  }
  ~ServerObject() { StopServer(); }
  ServerObject(const ServerObject&) = delete;
  ServerObject& operator=(const ServerObject&) = delete;

  int port() const { return port_; }
  int shard() const { return shard_; }
  const std::string& local_path() const { return local_path_; }
  const std::string& admin_address() const { return admin_address_; }
  const std::optional<std::string>& loaded_checkpoint() const { return loaded_checkpoint_; }

  void StopServer() {
    if (server_.is_inherited()) return;
    const GilRelease released;
    server_->Stop();
    const std::lock_guard lock(mu_);
    stopped_ = true;
    changed_.notify_all();
  }

  void Reload() {
    origin_.Check();
    RaiseUnlessOk(Waiting().Run([&](const WaitOptions&) { return server_->Reload(); }));
  }

  // Returns true when stopped, false after the timeout. Throws the exception of a signal handler.
  bool Wait(Timeout timeout) {
    origin_.Check();
    const auto start = std::chrono::steady_clock::now();
    return Waiting().Run([&](const WaitOptions& wait) {
      std::unique_lock lock(mu_);
      while (!stopped_) {
        std::chrono::nanoseconds slice = std::chrono::milliseconds(50);
        if (timeout) {
          const auto left = *timeout - (std::chrono::steady_clock::now() - start);
          if (left <= std::chrono::nanoseconds(0)) return false;
          slice = std::min(slice, std::chrono::nanoseconds(left));
        }
        changed_.wait_for(lock, slice);
        lock.unlock();
        const Status status = wait.on_wait();
        lock.lock();
        if (!status.ok()) return stopped_;
      }
      return true;
    });
  }

 private:
  const Origin origin_;
  Owned<Server> server_;
  int port_ = 0;
  int shard_ = 0;
  std::string local_path_;
  std::string admin_address_;
  std::optional<std::string> loaded_checkpoint_;

  std::mutex mu_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

}  // namespace

void BindServer(nb::module_& module) {
  using Self = ServerObject;
  nb::class_<Self>(module, "Server", nb::is_weak_referenceable(), "The native part of reverb.Server.")
      .def(
          "__init__",
          [](Self* self, const std::vector<TableObject*>& tables, std::optional<int64_t> port,
             std::string host, std::optional<CheckpointOptions> checkpoint, std::optional<int64_t> max_bytes,
             std::optional<int64_t> memory_limit, bool evict_when_full, std::string_view local,
             std::string local_path, std::optional<double> keepalive_timeout, std::optional<int> shard,
             std::string register_at, std::string advertised_address, const nb::list& row_tables,
             const std::optional<std::vector<std::string>>& tls, std::string tokens_file,
             bool trust_same_user, bool strict, std::string admin, std::vector<std::string> admin_hosts,
             const std::optional<std::tuple<std::string, std::optional<int64_t>, std::optional<int64_t>>>&
                 storage,
             const nb::object& progress) {
            std::optional<StorageOptions> storage_options;
            if (storage) {
              storage_options = {.path = std::get<0>(*storage),
                                 .memory_limit = std::get<1>(*storage),
                                 .disk_limit = std::get<2>(*storage)};
            }
            const LocalAccess access = local == "off"        ? LocalAccess::kOff
                                       : local == "any user" ? LocalAccess::kAnyUser
                                                             : LocalAccess::kSameUser;
            new (self) Self(tables, port, std::move(host), std::move(checkpoint), max_bytes, memory_limit,
                            evict_when_full, access, std::move(local_path),
                            TimeoutFromSeconds(keepalive_timeout, "keepalive_timeout"), shard,
                            std::move(register_at), std::move(advertised_address), row_tables, tls,
                            std::move(tokens_file), trust_same_user, strict, std::move(admin),
                            std::move(admin_hosts), std::move(storage_options), progress);
          },
          "tables"_a, "port"_a.none(), "host"_a, "checkpoint"_a.none(), "max_bytes"_a = nb::none(),
          "memory_limit"_a = nb::none(), "evict_when_full"_a = false, "local"_a = "same user",
          "local_path"_a = "", "keepalive_timeout"_a.none() = 20.0, "shard"_a = nb::none(),
          "register_at"_a = "", "advertised_address"_a = "", "row_tables"_a = nb::list(),
          "tls"_a = nb::none(), "tokens_file"_a = "", "trust_same_user"_a = false, "strict"_a = false,
          "admin"_a = "", "admin_hosts"_a = std::vector<std::string>(), "storage"_a = nb::none(),
          "progress"_a = nb::none())
      .def_prop_ro("port", &Self::port, "The port that the server listens on.")
      .def_prop_ro("shard", &Self::shard, "Identifies the server among several, in the keys of its items.")
      .def_prop_ro("local_path", &Self::local_path, "The path of the local socket; empty if there is none.")
      .def_prop_ro("admin_address", &Self::admin_address,
                   "host:port of the admin port; empty if there is none.")
      .def_prop_ro("loaded_checkpoint", &Self::loaded_checkpoint,
                   "The path of the checkpoint that was loaded at start; None if none was.")
      .def("Reload", &Self::Reload, "Reads certificates and tokens again.")
      .def("Stop", &Self::StopServer, "Stops the server and cancels all calls. Idempotent.")
      .def(
          "Wait",
          [](Self& self, std::optional<double> timeout) { return self.Wait(TimeoutFromSeconds(timeout)); },
          "timeout"_a = nb::none(), "Waits until the server is stopped. Returns False after the timeout.");
}

}  // namespace reverb::python
