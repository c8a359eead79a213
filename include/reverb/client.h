// client.h — a connection to one or several servers: writers, samplers and single calls.
//
//   auto client = reverb::Client::Connect("localhost:8000").value();
//   auto writer = client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 4}}).value();
//   auto sampler = client.NewSampler({.table = "replay"}).value();
//
// Several servers, "a:8000,b:8000", act as one: each table is spread over all of them. A writer uses one of them,
// and another one if that is lost. Samplers choose servers in proportion to what their tables hold, so that
// uniform and prioritized samples are those of one large table, and so are their probabilities; Fifo and other orders
// are those of each server. Calls that change a table go to all servers, and priority updates to the server of
// the item, which is part of its key.
//
// A client connects when it first needs a connection and reconnects after losing it. It detects a server in
// its own process and then uses no socket, and one on its own host and then uses shared memory instead of the
// network. In a child created by fork(), a client reconnects by itself if its server is on the same host; its
// writers and samplers belong to the parent. Client is a handle: copies refer to the same object. Threads: all
// methods may be called concurrently.
#ifndef REVERB_CLIENT_H_
#define REVERB_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverb/access.h"
#include "reverb/item.h"
#include "reverb/rate_limiter.h"
#include "reverb/row_table_options.h"
#include "reverb/rows.h"
#include "reverb/sampled_trajectory.h"
#include "reverb/sampler.h"
#include "reverb/server_info.h"
#include "reverb/status.h"
#include "reverb/table_options.h"
#include "reverb/tensor.h"
#include "reverb/vector_writer.h"
#include "reverb/wait.h"
#include "reverb/writer.h"

namespace reverb {

class Server;

enum class LostUpdates : uint8_t {
  kDrop,   // they are counted (Client::dropped_updates()) and logged
  kRaise,  // the call fails
};

struct ClientOptions {
  // Bounds the bytes of a writer's unconfirmed chunks, above which it waits; > 0, absent = no bound.
  std::optional<int64_t> write_window_bytes = int64_t{64} << 20;
  // How long writers, Sample() and single calls retry an unreachable server before they fail; absent =
  // forever. Samplers have their own option.
  Timeout reconnect_timeout = {};
  // How long a server may leave a connection unanswered, for example because its host or the network has failed,
  // before the connection counts as lost: waiting calls then end, and writers and samplers reconnect. At least a
  // second; absent = forever. Applies to gRPC: the system reports the end of a server on the same host.
  Timeout keepalive_timeout = std::chrono::seconds(20);
  // Rejects larger responses, for example one large sample. Bounds the memory that a server can make this
  // client use for a response.
  uint64_t max_response_bytes = uint64_t{1} << 30;
  // Rejects responses with an item that is larger when it is decoded, or whose items together are: a few megabytes of
  // compressed data can become many gigabytes. The second is at least 256 MiB, which is what a server puts into one
  // response. Of a server in the same process, ServerLimits bounds the items.
  uint64_t max_decoded_item_bytes = uint64_t{4} << 30;
  uint64_t max_decoded_reply_bytes = uint64_t{8} << 30;
  // Whether to use a server in the same process without a socket.
  bool in_process = true;
  // Whether to use a server on the same host, of the same user, through shared memory instead of gRPC. The
  // environment variable REVERB_LOCAL=0 disables it too.
  bool local = true;
  std::string name = {};  // shown in the server's information; at most 1024 bytes
  // Speaks TLS with servers that are reached over gRPC; absent: the environment variables REVERB_TLS_CA,
  // REVERB_TLS_CERTIFICATE, REVERB_TLS_KEY and REVERB_TLS_SERVER_NAME, or REVERB_TLS=1 for the authorities of the
  // system; otherwise plaintext.
  std::optional<ClientTls> tls = {};
  // Proves to the server who this client is; empty: the environment variable REVERB_TOKEN, or the first line of the
  // file REVERB_TOKEN_FILE; otherwise none.
  std::string token = {};
  PlaintextToken plaintext_token = PlaintextToken::kWarn;
  // dtypes that the caller cannot represent, as bits (1 << number). Items with such a column are not removed
  // from a table by sampling them: INVALID_ARGUMENT.
  uint64_t unsupported_dtypes = 0;

  // --- Several servers ---
  // What to do with priority updates and deletes for a server that cannot be reached.
  LostUpdates lost_updates = LostUpdates::kDrop;
  // How long a server may be unreachable before its writers use another one, and calls that change a table fail
  // unless they have a timeout; > 0.
  std::chrono::nanoseconds lost_server_timeout = std::chrono::seconds(10);
  // The client is one of several servers even if there is one address or none now: SetServers() adds others.
  bool servers_may_change = false;

  [[nodiscard]] Status Validate() const;
};

// How a client reaches a server.
enum class Transport : uint8_t {
  kInProcess,  // by calls within the process
  kLocal,      // by a socket and shared memory of the host
  kGrpc,       // over the network
};
// Returns "in-process", "local" or "gRPC".
std::string_view TransportName(Transport transport);

class Client {
 public:
  // Accepts host:port, unix:path (the local socket of a server of this host), or several of these separated
  // by commas. dns:///name:port is all servers that have an address of that name, file:///path those that
  // register in that folder (ServerOptions::register_at); both are looked up every few seconds. Fails for an
  // invalid address. The server need not be running yet.
  static Result<Client> Connect(std::string address, ClientOptions options = {});

  const std::string& address() const;
  int64_t num_servers() const;
  // Replaces the servers of a client that was connected to several, or with servers_may_change. Its writers and
  // samplers follow. FAILED_PRECONDITION for a client of one server.
  Status SetServers(const std::vector<std::string>& addresses) const;
  // Returns how many priority updates and deletes were dropped because their server is lost.
  int64_t dropped_updates() const;

  Result<TrajectoryWriter> NewTrajectoryWriter(const TrajectoryWriterOptions& options) const;
  Result<StructuredWriter> NewStructuredWriter(StructuredWriterOptions options) const;
  Result<VectorWriter> NewVectorWriter(const VectorWriterOptions& options) const;
  Result<Writer> NewWriter(const WriterOptions& options) const;
  Result<Sampler> NewSampler(SamplerOptions options) const;

  // Inserts one step, as an episode of its own, into each of these tables as an item of one row. The data is
  // sent and stored once. Returns when all items are inserted. If the connection fails before the server has
  // confirmed them, it sends them again under the same numbers, so that none is inserted twice. After
  // DEADLINE_EXCEEDED, and after UNAVAILABLE (reconnect_timeout), some may have been inserted.
  using TablePriority = std::pair<std::string, double>;
  Status Insert(std::span<const TensorView> step, std::span<const TablePriority> tables,
                const WaitOptions& wait = {}, const ItemStructure& structure = {}) const;
  // Draws n samples now. If there are fewer, returns an error that states how many were drawn. `timesteps`: see
  // SamplerOptions.
  Result<std::vector<SampledTrajectory>> Sample(std::string_view table, int64_t n,
                                                const WaitOptions& wait = {}, bool timesteps = false) const;

  // Single calls wait for the server, within `wait`, and are retried when the connection fails. Reset(),
  // Checkpoint(), RemoveTable() and CreateTable() without `exist_ok` are not retried, since repeating them has
  // another effect (it deletes items inserted meanwhile, or writes another checkpoint): they return
  // UNAVAILABLE, and the server may have executed them.
  //
  // With several servers, a call runs concurrently on all servers that it concerns. Reachable servers have
  // executed it when the call returns; for the others it returns one error that names each server and the
  // reason. Without any timeout, calls that change a table wait lost_server_timeout for an unreachable server.
  // Priority updates and deletes for one are dropped, see ClientOptions::lost_updates.

  // Ignores unknown keys. If a selector rejects one of the priorities, nothing is updated.
  Status UpdatePriorities(std::string_view table, std::span<const KeyPriority> updates,
                          const WaitOptions& wait = {}) const;
  Status Delete(std::string_view table, std::span<const uint64_t> keys, const WaitOptions& wait = {}) const;
  Status Reset(std::string_view table, const WaitOptions& wait = {}) const;
  Status SetRateLimiter(std::string_view table, const RateLimiterOptions& options,
                        const WaitOptions& wait = {}) const;
  // Adds a table to the server. ALREADY_EXISTS if it has one of that name, unless `exist_ok` and that one has
  // the same settings, or was created with them and changed by ChangeTable() since. INVALID_ARGUMENT for custom selectors and extensions, which cannot be sent. Writers and
  // samplers that exist already can use it. Checkpoints contain it.
  Status CreateTable(const TableOptions& options, bool exist_ok = false, const WaitOptions& wait = {}) const;
  // Removes a table and frees its items. Calls that wait for it end with NOT_FOUND.
  Status RemoveTable(std::string_view table, const WaitOptions& wait = {}) const;
  // Changes limits of a table in use. Items beyond a smaller max_size are evicted.
  Status ChangeTable(std::string_view table, const TableChanges& changes, const WaitOptions& wait = {}) const;
  // With several servers, returns their sum (SumOf()), or an error that names those that do not answer.
  Result<ServerInfo> Info(const WaitOptions& wait = {}) const;
  // Returns the information of one server; of several, the first one that answers.
  Result<ServerInfo> InfoOfOne(const WaitOptions& wait = {}) const;
  // Returns the information of each server, or why there is none, in the order of the addresses.
  struct ServerReport {
    std::string address;
    Result<ServerInfo> info;
  };
  std::vector<ServerReport> InfoOfEach(const WaitOptions& wait = {}) const;
  // Returns the signatures of all tables, for the `signatures` option of writers. The source keeps the client's
  // connection, from which it fetches them again.
  Result<std::shared_ptr<SignatureSource>> Signatures(const WaitOptions& wait = {}) const;
  // Returns the structure that writers gave the items of a table without a signature; empty if no writer gave
  // one or if they differ. With several servers, ignores those that do not answer within a second.
  Result<ItemStructure> StructureOf(std::string_view table, const WaitOptions& wait = {}) const;
  // Returns the path of each column, "obs/0/pixels", from the signature or the structure; empty if unknown.
  Result<std::vector<std::string>> ColumnNames(std::string_view table, const WaitOptions& wait = {}) const;
  // Returns items of the first server without sampling them: the next `n` after *cursor (0 = the start; set
  // to 0 again at the end).
  Result<std::vector<SampledTrajectory>> Inspect(std::string_view table, int64_t n, uint64_t* cursor,
                                                 const WaitOptions& wait = {}) const;
  // Returns the path of the new checkpoint; with several servers, their paths separated by commas.
  Result<std::string> Checkpoint(const WaitOptions& wait = {}) const;

  // Returns a handle to a row table, which need not exist yet. FAILED_PRECONDITION for a client of several servers.
  Result<Rows> RowTable(std::string name) const;
  // Adds a row table to the server; see CreateTable().
  Status CreateRowTable(const RowTableOptions& options, bool exist_ok = false,
                        const WaitOptions& wait = {}) const;
  Status RemoveRowTable(std::string_view name, const WaitOptions& wait = {}) const;
  // Returns the information of all row tables of the server.
  Result<std::vector<RowTableInfo>> InfoOfRowTables(const WaitOptions& wait = {}) const;

  // Returns whether the server is used without a socket. Contacts the server if that is not known yet.
  Result<bool> is_in_process(const WaitOptions& wait = {}) const;
  // Returns how each server is reached now, in the order of the addresses. Contacts the servers.
  Result<std::vector<Transport>> Transports(const WaitOptions& wait = {}) const;

  struct Rep;

 private:
  friend class Server;
  explicit Client(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}
  // Returns the state of this process: in a child created by fork(), one of its own.
  const std::shared_ptr<Rep>& rep() const;
  std::shared_ptr<Rep> rep_;
};

}  // namespace reverb

#endif  // REVERB_CLIENT_H_
