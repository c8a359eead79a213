// client.h — the way to a server: writers, samplers and single calls.
//
//   auto client = reverb::Client::Connect("localhost:8000").value();
//   auto writer = client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 4}}).value();
//   auto sampler = client.NewSampler({.table = "replay"}).value();
//
// Several servers, "a:8000,b:8000", are independent of each other: writers and single calls go to one of them
// in turn, samplers take from all, what changes a table goes to all, and priorities to the server that an
// item was sampled from.
//
// Connecting is done when it is first needed, and again when a connection was lost. A server in the same
// process is recognised and used without a socket. Client is a handle: copies refer to the same thing.
// Threads: all methods may be called concurrently.
#ifndef REVERB_CLIENT_H_
#define REVERB_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverb/item.h"
#include "reverb/rate_limiter.h"
#include "reverb/sampler.h"
#include "reverb/server_info.h"
#include "reverb/status.h"
#include "reverb/table.h"
#include "reverb/tensor.h"
#include "reverb/vector_writer.h"
#include "reverb/wait.h"
#include "reverb/writer.h"

namespace reverb {

class Server;

struct ClientOptions {
  // Bytes of chunks that a writer may have unconfirmed before it has to wait; > 0, absent = no bound.
  std::optional<int64_t> write_window_bytes = int64_t{64} << 20;
  // How long writers, Sample() and single calls look for a server that cannot be reached before they fail;
  // absent = for ever. Samplers have one of their own.
  Timeout reconnect_timeout = {};
  // The largest answer of a server, for example one large sample, that is accepted. Bounds the memory that a
  // server can make this client use for it.
  uint64_t max_response_bytes = uint64_t{1} << 30;
  // Whether a server of this process is used without a socket.
  bool in_process = true;
  std::string name = {};  // for those who look at the server; at most 1024 bytes

  [[nodiscard]] Status Validate() const;
};

class Client {
 public:
  // host:port, or unix:path, or several with commas between them. Fails for what is no address; the server
  // need not be there yet.
  static Result<Client> Connect(std::string address, ClientOptions options = {});

  const std::string& address() const;
  int64_t num_servers() const;

  Result<TrajectoryWriter> NewTrajectoryWriter(const TrajectoryWriterOptions& options) const;
  Result<StructuredWriter> NewStructuredWriter(StructuredWriterOptions options) const;
  Result<VectorWriter> NewVectorWriter(const VectorWriterOptions& options) const;
  Result<Writer> NewWriter(const WriterOptions& options) const;
  Result<Sampler> NewSampler(SamplerOptions options) const;

  // One step, an episode of its own, as an item of one row in each of these tables; the data is sent and kept
  // once. Returns when all are in. UNAVAILABLE when the server is lost before it has confirmed them: then
  // some may be in.
  using TablePriority = std::pair<std::string, double>;
  Status Insert(std::span<const TensorView> step, std::span<const TablePriority> tables,
                const WaitOptions& wait = {}, const ItemStructure& structure = {}) const;
  // n samples, drawn now. Fewer are an error, which says how many were drawn all the same.
  Result<std::vector<SampledTrajectory>> Sample(std::string_view table, int64_t n,
                                                const WaitOptions& wait = {}) const;

  // Single calls wait for the server, within `wait`. When the connection breaks during one it is made again:
  // all of these can be repeated. Only Reset() and Checkpoint() are not repeated, as a second time is not the
  // same as once (it deletes what went in meanwhile, or writes another checkpoint): then they are
  // UNAVAILABLE, and the server may have carried them out.
  //
  // Of several servers, all that a call concerns are called at the same time. Those that can be reached have
  // done it when the call returns; for the others it fails with one error that names each server and why.
  // Without any time-out, calls that change a table wait for a server that cannot be reached for 10 s.

  // Keys that are not there are ignored. A priority that a selector refuses fails the call as a whole.
  Status UpdatePriorities(std::string_view table, std::span<const KeyPriority> updates,
                          const WaitOptions& wait = {}) const;
  Status Delete(std::string_view table, std::span<const uint64_t> keys, const WaitOptions& wait = {}) const;
  Status Reset(std::string_view table, const WaitOptions& wait = {}) const;
  Status SetRateLimiter(std::string_view table, const RateLimiterOptions& options,
                        const WaitOptions& wait = {}) const;
  Result<ServerInfo> Info(const WaitOptions& wait = {}) const;
  // What tables promise about their items, for the `signatures` of writers.
  Result<std::shared_ptr<const TableSignatures>> Signatures(const WaitOptions& wait = {}) const;
  // The nest that the items of a table without a signature were written in; nothing when no writer has told
  // one, or when they differ. Of several servers, those that do not answer within a second are left out.
  Result<ItemStructure> StructureOf(std::string_view table, const WaitOptions& wait = {}) const;
  // Items of the first server without sampling them: the next `n` from *cursor on (0 = from the start; 0
  // again at the end).
  Result<std::vector<SampledTrajectory>> Inspect(std::string_view table, int64_t n, uint64_t* cursor,
                                                 const WaitOptions& wait = {}) const;
  // Where it was written; of several servers with commas between them.
  Result<std::string> Checkpoint(const WaitOptions& wait = {}) const;

  // Whether the server is used without a socket. Asks it if that is not known yet.
  Result<bool> is_in_process(const WaitOptions& wait = {}) const;

  struct Rep;

 private:
  friend class Server;
  explicit Client(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<Rep> rep_;
};

}  // namespace reverb

#endif  // REVERB_CLIENT_H_
