// row_service.h — implements the operations on the row tables of a server.
//
// Ownership: owns the row tables. Threads: all methods may be called concurrently.
#ifndef REVERB_SERVICE_ROW_SERVICE_H_
#define REVERB_SERVICE_ROW_SERVICE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "core/chunk_store.h"
#include "core/rows/row_table.h"
#include "reverb/row_table_options.h"
#include "reverb/status.h"
#include "transport/transport.h"

namespace reverb::internal {

class RowService {
 public:
  struct Options {
    std::shared_ptr<ChunkStore> store;
    Clock* clock = RealClock();
    // Bounds the data of one reply. Further rows are returned without data, to be read by key.
    uint64_t max_reply_bytes = uint64_t{32} << 20;
    // Returns whether a table of items has this name.
    std::function<bool(std::string_view)> is_taken = [](std::string_view) { return false; };
    // Fails if clients could not read the description of this server with its present tables.
    std::function<Status()> check_info = [] { return Status::Ok(); };
  };

  explicit RowService(Options options) : options_(std::move(options)) {}

  // Adds a table. ALREADY_EXISTS if there is one of that name.
  Status Add(const std::shared_ptr<ConcurrentRows>& table) EXCLUDES(mu_);
  // Creates a table for a client. ALREADY_EXISTS if there is one of that name, unless `exist_ok` and its settings are the same.
  Status Create(const RowTableOptions& options, bool exist_ok) EXCLUDES(mu_);
  bool Has(std::string_view name) const EXCLUDES(mu_);
  Result<std::shared_ptr<ConcurrentRows>> Find(std::string_view name) const EXCLUDES(mu_);
  // In the order of their names.
  std::vector<std::shared_ptr<ConcurrentRows>> tables() const EXCLUDES(mu_);
  // Ends all waits with CANCELLED.
  void Close() EXCLUDES(mu_);

  // See RequestHandler::StartRows().
  std::shared_ptr<PendingCall> Start(RowsRequest request, const RequestHandler::RowsDone& done);

 private:
  Result<RowsReply> Execute(const RowsCall& call);
  Result<RowsReply> ExecuteOn(ConcurrentRows& table, const RowsCall& call);
  std::shared_ptr<PendingCall> StartWaiting(const std::shared_ptr<ConcurrentRows>& table, RowsRequest request,
                                            const RequestHandler::RowsDone& done);
  // Ends the operation with this number, now or when it comes. Returns whether it was waiting.
  bool CancelCall(uint64_t call_id) EXCLUDES(calls_mu_);
  // Sets rows_with_data, and removes the data of rows beyond it.
  void BoundData(RowsReply* reply) const;

  const Options options_;

  mutable Mutex mu_;
  std::map<std::string, std::shared_ptr<ConcurrentRows>, std::less<>> tables_ GUARDED_BY(mu_);

  // Operations that can be cancelled by their number.
  Mutex calls_mu_;
  absl::flat_hash_map<uint64_t, std::weak_ptr<PendingCall>> calls_ GUARDED_BY(calls_mu_);
  std::deque<uint64_t> cancelled_early_ GUARDED_BY(calls_mu_);  // came before the operation; the latest ones
};

}  // namespace reverb::internal

#endif  // REVERB_SERVICE_ROW_SERVICE_H_
