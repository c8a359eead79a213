// rows_rep.h — the state of a public Rows, and how its requests are made and its replies read.
#ifndef REVERB_API_ROWS_REP_H_
#define REVERB_API_ROWS_REP_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/payload_source.h"
#include "reverb/rows.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "tensor/row.h"
#include "transport/messages.h"
#include "transport/transport.h"

namespace reverb {

struct Rows::Rep {
  std::string table;
  std::string holder;
  // Sends a request to the server.
  std::function<Result<internal::RowsReply>(const internal::RowsRequest&, const WaitOptions&)> call;
  // Where data to be sent is allocated.
  std::function<internal::PayloadSource*(const WaitOptions&)> payload_source;
  // The same without waiting; see ServerLink::StartRows().
  std::function<std::shared_ptr<internal::PendingCall>(internal::RowsRequest, Timeout,
                                                       std::function<void(Result<internal::RowsReply>)>)>
      start;

  internal::RowsCall NewCall(internal::RowsVerb verb) const {
    internal::RowsCall to;
    to.verb = verb;
    to.table = table;
    to.claim.holder = holder;  // in every call: the server's limits may be those of the client's name
    return to;
  }
  Result<internal::RowsReply> Send(internal::RowsCall to, const WaitOptions& wait) const {
    return call({.call = std::move(to)}, wait);
  }
  // For operations that wait at the server, which knows the reason: the connection only waits a little longer.
  static Timeout Longer(const Timeout& timeout) {
    constexpr internal::Duration kGrace = std::chrono::seconds(10);
    if (timeout && *timeout < std::chrono::hours(24 * 365)) return *timeout + kGrace;
    return timeout;
  }
  // Gives back what the caller of an operation does not get: a lease and a reservation, 0 = none. Does not wait.
  void GiveBack(uint64_t lease, uint64_t reservation) const;
  // Logs waits that are long, with the reason that the server gives.
  Result<internal::RowsReply> SendWaiting(internal::RowsRequest request, const WaitOptions& wait) const;
  // Logs that an operation waits for the table, with the reason that the server gives for the first of its kind.
  void LogWait(internal::RowsVerb verb, internal::Duration waited) const;

  // Adds the caller's state, if there is one. INVALID_ARGUMENT if it is too large: the server's decoder would refuse the
  // whole message.
  Status AddState(std::optional<std::string> state, internal::RowsCall* call) const;

  // --- What is the same whether a thread waits or not ---
  // Encodes rows from `*next` on, as many as fit into one request.
  Result<internal::RowsRequest> NextPut(const RowWriteMode& mode, std::span<const NewRow> rows,
                                        size_t* next) const;
  static void AddPut(internal::RowsReply reply, PutOutcome* outcome);
  internal::RowsRequest ClaimRequest(const RowClaim& claim) const;
  // Rows of a reply without data: returns the request to read them, and adds what it has read.
  static bool HasRest(const internal::RowsReply& reply) { return reply.rows_with_data < reply.rows.size(); }
  internal::RowsCall RestOf(const internal::RowsReply& reply) const;
  Status AddRest(internal::RowsReply more, internal::RowsReply* reply) const;
  static RowBatch BatchOf(const std::shared_ptr<const Rep>& rep, internal::RowsReply reply);
  static RowInfo InfoOf(internal::RowRecord* record);
  static Result<RowTableInfo> TableInfoOf(internal::RowsReply reply);
};

struct RowBatch::Data {
  std::shared_ptr<const Rows::Rep> rows;
  std::vector<internal::RowRecord> records;
};

}  // namespace reverb

#endif  // REVERB_API_ROWS_REP_H_
