// server.h — tables, served to this process and to others.
//
//   auto server = reverb::Server::Start({.tables = {{.name = "replay"}}, .port = 8000}).value();
//   …
//   server.Stop();
//
// A Server is moved, not copied; it stops when destroyed. Threads: all methods may be called concurrently.
#ifndef REVERB_SERVER_H_
#define REVERB_SERVER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/checkpoint.h"
#include "reverb/client.h"
#include "reverb/status.h"
#include "reverb/table.h"
#include "reverb/table_options.h"

namespace reverb {

// What the server accepts from others at most: memory that clients can make it use stays within these.
struct ServerLimits {
  uint64_t max_message_bytes = uint64_t{256} << 20;
  uint64_t max_chunk_bytes = uint64_t{256} << 20;
  // An item larger than this, counted as the bytes that a sampler receives, is rejected. Clients accept as
  // much by default (ClientOptions::max_response_bytes).
  uint64_t max_item_bytes = uint64_t{1} << 30;
  // Of one writer: bytes that are on their way or wait for their tables, and number of items that wait.
  uint64_t insert_window_bytes = uint64_t{16} << 20;
  size_t max_waiting_items = size_t{1} << 17;
  // Of one writer: chunks that it has sent and may still refer to.
  uint64_t max_window_bytes = uint64_t{1} << 30;
  // Of one sampler: replies that it has not taken yet.
  uint64_t sample_window_bytes = uint64_t{64} << 20;
  size_t max_streams = 10'000;
  // How long the server keeps the session of a disconnected writer, with its pending items; and how many bytes
  // may be pending for all of these together: beyond that, the server drops the longest disconnected.
  std::chrono::nanoseconds disconnected_session_ttl = std::chrono::minutes(5);
  uint64_t max_disconnected_bytes = uint64_t{256} << 20;
};

struct ServerOptions {
  std::vector<TableOptions> tables = {};
  StoreOptions store = {};
  // Where to listen. Port 0 takes any that is free; absent: this process only. "[::]" are all interfaces.
  std::string host = "[::]";
  std::optional<int> port = 0;
  ServerLimits limits = {};
  // Where to save the tables to and load them from; absent: they live in memory only.
  std::optional<CheckpointOptions> checkpoint = {};
};

class Server {
 public:
  static Result<Server> Start(ServerOptions options);
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;
  ~Server();

  // 0 when it does not listen.
  int port() const;
  // NOT_FOUND when there is none of that name.
  Result<Table> table(std::string_view name) const;
  // What was loaded at start; absent when the tables started empty.
  std::optional<std::string> loaded_checkpoint() const;
  // A client that needs no socket.
  Client in_process_client(ClientOptions options = {}) const;

  // Ends all that is under way with an error that says so, and returns when nothing is; at most two seconds
  // or so, unless a checkpoint is to be written. Tables can be looked at afterwards. Idempotent.
  void Stop();

 private:
  struct Rep;
  explicit Server(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

}  // namespace reverb

#endif  // REVERB_SERVER_H_
