// server.h — serves tables to this process and to others.
//
//   auto server = reverb::Server::Start({.tables = {{.name = "replay"}}, .port = 8000}).value();
//   // ...
//   server.Stop();
//
// A Server can be moved, not copied. Its destructor stops it. Threads: all methods may be called
// concurrently.
#ifndef REVERB_SERVER_H_
#define REVERB_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/access.h"
#include "reverb/checkpoint.h"
#include "reverb/client.h"
#include "reverb/row_table_options.h"
#include "reverb/status.h"
#include "reverb/table.h"
#include "reverb/table_options.h"

namespace reverb {

// Bounds the memory that clients can make the server use.
struct ServerLimits {
  uint64_t max_message_bytes = uint64_t{256} << 20;
  uint64_t max_chunk_bytes = uint64_t{256} << 20;
  // Rejects larger items, counted as the bytes that a sampler receives. Clients accept as much by default
  // (ClientOptions::max_response_bytes).
  uint64_t max_item_bytes = uint64_t{1} << 30;
  // Rejects items that are larger when they are decoded (ClientOptions::max_decoded_item_bytes).
  uint64_t max_decoded_item_bytes = uint64_t{4} << 30;
  // Of one writer: bytes in transit or waiting for their tables, and the number of waiting items.
  uint64_t insert_window_bytes = uint64_t{16} << 20;
  size_t max_waiting_items = size_t{1} << 17;
  // Of one writer: bytes of chunks that it has sent and may still refer to.
  uint64_t max_window_bytes = uint64_t{1} << 30;
  // Of one sampler: bytes of replies that it has not received yet.
  uint64_t sample_window_bytes = uint64_t{64} << 20;
  size_t max_streams = 10'000;
  // How long the server keeps the session of a disconnected writer, with its pending items; and how many bytes
  // may be pending for all of these together: beyond that, the server drops the items of those that disconnected
  // last, which resend them when they reconnect.
  std::chrono::nanoseconds disconnected_session_ttl = std::chrono::minutes(5);
  uint64_t max_disconnected_bytes = uint64_t{256} << 20;
  // How long the server remembers the sequence number of a disconnected writer, so that nothing that it resends
  // is inserted twice, and of how many writers without a session: beyond that, it forgets the oldest.
  std::chrono::nanoseconds sequence_number_ttl = std::chrono::hours(24);
  size_t max_remembered_writers = 100'000;
  // Of one client process on this host: bytes of the server's memory that it may refer to, at most 1/64 of memory_limit;
  // more is copied into the socket. A client that neither receives nor returns memory for this long is disconnected.
  uint64_t max_pinned_bytes = uint64_t{256} << 20;
  std::chrono::nanoseconds stalled_client_timeout = std::chrono::minutes(1);
  // Of all clients of the same name (ClientOptions::name) together; those without a name count as one client. Clients
  // choose their names: this protects clients from each other's mistakes, not from each other.
  UsageLimits client = {};
};

// Which clients of the same host may use the server through shared memory instead of the network.
enum class LocalAccess : uint8_t {
  kOff,
  kSameUser,  // processes of the user that the server runs as
  kAnyUser,   // any process that may open the socket; requires local_path
};

// The port for people and monitoring, over HTTP: a page, metrics for Prometheus, health checks, the server's state as
// JSON. It only reads. docs/operations.md describes it.
struct AdminOptions {
  // host:port; port 0 picks a free one. Other hosts than this machine's own need a token or a certificate as for the
  // server itself: `tls` and `auth` of the server apply.
  std::string listen = "127.0.0.1:8001";
  // Takes any port if this one is taken; otherwise the server does not start then.
  bool any_port_if_taken = false;
  // Names by which browsers and scrapers reach the port, besides localhost, the host of `listen` and IP addresses.
  // Requests for other names are refused, since they may come from another site's page.
  std::vector<std::string> hosts = {};
  std::string commit = {};  // of the program, as the page and the metrics show it
  // Called with host:port when the port is open, before a checkpoint is loaded. An error ends the start.
  std::function<Status(const std::string& address)> on_listening = {};
};

struct ServerOptions {
  std::vector<TableOptions> tables = {};
  std::vector<RowTableOptions> row_tables = {};
  StoreOptions store = {};
  // Bounds what the server holds in memory: stored data, data in transit, items that wait, replies, and the index of
  // its tables; see docs/tuning.md. At least 16 MiB; absent: 80 % of the memory of the machine, or of the process's
  // control group. Other memory of the process is not counted: set it if the process needs much for itself.
  std::optional<int64_t> memory_limit = {};
  // Keeps part of the data on disk; absent: all data is in memory.
  std::optional<StorageOptions> storage = {};
  // The address to listen on. Port 0 picks a free port; absent: serves this process only. "[::]" means all
  // interfaces.
  std::string host = "[::]";
  std::optional<int> port = 0;
  // Clients of this host find the local socket by the port. If it cannot be created, the server logs the
  // reason and serves them over gRPC. The environment variable REVERB_LOCAL=0 means kOff.
  LocalAccess local = LocalAccess::kSameUser;
  // The path of the local socket instead, for clients that connect to "unix:PATH"; a server that cannot create
  // it does not start. Its mode is 0600, or 0666 with kAnyUser: the folder then decides who may connect.
  std::string local_path = {};
  // How long a client may leave its connection unanswered, for example because its host or the network has
  // failed, before the server closes the connection. At least a second; absent = forever. Applies to gRPC: the
  // system reports the end of a process on the same host, and ServerLimits::stalled_client_timeout bounds one
  // that is stopped.
  Timeout keepalive_timeout = std::chrono::seconds(20);
  ServerLimits limits = {};
  // Saves the tables to disk and loads them; absent: the tables exist in memory only.
  std::optional<CheckpointOptions> checkpoint = {};
  // Identifies this server among several that clients use as one, in the keys of its items: 1 to 65535, and
  // different for each. Absent: that of the checkpoint that is loaded, or else a random one.
  std::optional<int> shard = {};
  // Registers the server in a folder, file:///path, in which clients of that address find it. Its file is
  // renewed every few seconds and removed by Stop(); empty: the server does not register.
  std::string register_at = {};
  // The address at which clients reach this server; empty: host:port, with the name of this machine if the
  // server listens on all interfaces.
  std::string advertised_address = {};
  // Encrypts gRPC; absent: plaintext. Clients in other processes of this host may use the local socket, which leaves
  // no other process in the middle.
  std::optional<ServerTls> tls = {};
  // Clients need a token of a file, except those of this process; absent: everybody who reaches the server has all
  // rights.
  std::optional<AuthOptions> auth = {};
  // Absent: none.
  std::optional<AdminOptions> admin = {};
  // Refuses to listen on other addresses than this machine's own unless clients need a token, or a certificate.
  // Otherwise such a server logs a warning.
  bool strict = false;
};

class Server {
 public:
  static Result<Server> Start(ServerOptions options);
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;
  ~Server();

  // Returns 0 if the server does not listen.
  int port() const;
  // Returns the path of the local socket; empty if there is none.
  std::string local_path() const;
  // Returns host:port of the admin port; empty if there is none.
  std::string admin_address() const;
  // Returns ServerOptions::shard, or the one that was chosen.
  int shard() const;
  // NOT_FOUND if there is no table of that name.
  Result<Table> table(std::string_view name) const;
  // Returns the memory of all chunks, in bytes. Cheaper than Client::Info(), which visits all tables.
  int64_t live_bytes() const;
  // Returns the path of the checkpoint that Start() loaded; absent if the tables started empty.
  std::optional<std::string> loaded_checkpoint() const;
  // Returns a client that uses no socket.
  Client in_process_client(ClientOptions options = {}) const;

  // Reads the files of `tls` and `auth` again now, instead of within seconds after they have changed. An error
  // names the file; what was read before stays in use.
  Status Reload();

  // Ends all operations with an error that states the reason, and waits until they have ended: about two
  // seconds at most, unless a checkpoint is to be written. Tables can still be inspected afterwards.
  // Idempotent.
  void Stop();

 private:
  struct Rep;
  explicit Server(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

}  // namespace reverb

#endif  // REVERB_SERVER_H_
