// model_rows.h — a slow and obvious row table, which tests compare RowState with.
//
// Rows are a list in the order of their creation. Every question is answered by looking at all of them.
#ifndef REVERB_TESTS_MODEL_MODEL_ROWS_H_
#define REVERB_TESTS_MODEL_MODEL_ROWS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/rows/row_state.h"

namespace reverb::model {

using internal::Duration;
using internal::RowFate;
using internal::TimePoint;

struct ModelRow {
  std::string key;
  std::string group;
  int64_t version = 0;
  std::map<std::string, double> tags;
  std::map<std::string, std::vector<int64_t>> columns;  // lengths of the segments
  bool is_open = false;
  bool is_requeued = false;
  std::set<std::string> done;
  std::map<std::string, uint64_t> leased;  // consumer -> lease
  uint64_t created = 0;
};

class ModelRows {
 public:
  explicit ModelRows(RowTableOptions options) : options_(std::move(options)) {}

  // A condition that the model evaluates itself: of a row, among the rows of its group.
  using Condition = std::function<bool(const ModelRow&, const std::vector<const ModelRow*>&)>;

  // nullopt: an error.
  std::optional<RowFate> Store(const RowWriteMode& mode, const std::string& key, const std::string& group,
                               const std::map<std::string, double>& tags,
                               const std::vector<int64_t>& lengths);
  // Returns whether the row is gone; nullopt: an error.
  std::optional<bool> End(const std::string& key, RowEnding ending);
  int64_t Delete(const std::string& key);
  int64_t DeleteWhere(const Condition& condition);
  struct Claimed {
    bool is_error = false;
    uint64_t lease = 0;  // 0: waits
    std::vector<std::string> keys;
  };
  Claimed Claim(const RowClaim& claim, const Condition& condition);
  LeaseOutcome Settle(uint64_t lease, const std::vector<std::string>& keys, RowSettlement settlement,
                      Duration extension);
  // Divides a lease; the rows of no part are released. Returns the ids, 0 for an empty part.
  std::vector<uint64_t> SplitLease(uint64_t lease, const std::vector<std::vector<std::string>>& parts);
  // Of rows that were neither settled nor deleted.
  std::vector<std::string> LeasedKeys(uint64_t lease) const;
  bool HasLease(uint64_t lease) const { return leases_.contains(lease); }
  bool SetVersion(int64_t version);
  // 0: waits; nullopt: an error.
  std::optional<uint64_t> Reserve(int64_t n, std::optional<int64_t> version, Duration lease);
  bool CancelReservation(uint64_t id);
  void AdvanceTo(TimePoint now);
  // The server restarts from a checkpoint: leases and reservations end.
  void Restart();
  uint64_t next_id() const { return next_id_; }

  const std::list<ModelRow>& rows() const { return rows_; }
  const ModelRow* Find(const std::string& key) const;
  RowCounts Counts() const;
  int64_t Capacity() const;

 private:
  using ViewKey = std::tuple<std::string, std::set<std::string>, bool>;
  using Unit = std::vector<const ModelRow*>;
  struct Lease {
    std::string consumer;
    TimePoint expires;
    std::vector<std::pair<std::string, uint64_t>> rows;  // key, created
  };
  struct Reservation {
    int64_t rows = 0;
    TimePoint expires;
  };

  ModelRow* FindMutable(const std::string& key);
  Unit GroupOf(const ModelRow& row) const;
  bool IsStale(const ModelRow& row) const;
  bool IsComplete(const Unit& group) const;
  bool IsConsumed(const ModelRow& row) const;
  bool Drops() const { return options_.staleness && options_.staleness->when_stale == WhenStale::kDrop; }
  bool IsReady(const ViewKey& view, const ModelRow& row) const;
  std::vector<Unit> ReadyUnits(const ViewKey& view) const;
  // Drops what is consumed or stale, and records what has become ready.
  void Finish();
  LeaseOutcome SettleRow(const std::pair<std::string, uint64_t>& row, const std::string& consumer,
                         RowSettlement settlement);

  const RowTableOptions options_;
  std::list<ModelRow> rows_;
  std::map<std::string, std::pair<uint64_t, int64_t>> groups_;  // number of the first row, oldest version
  std::map<ViewKey, std::map<uint64_t, uint64_t>> ready_since_;
  std::set<uint64_t> numbers_;        // of the rows after the last operation
  std::set<uint64_t> group_numbers_;  // of the groups
  std::map<uint64_t, Lease> leases_;
  std::map<uint64_t, Reservation> reservations_;
  uint64_t next_id_ = 1;
  uint64_t created_ = 0;
  uint64_t tick_ = 1;
  int64_t version_ = 0;
  int64_t first_version_ = 0;
  bool has_started_ = false;
  TimePoint now_{};
  RowCounts counts_;
};

}  // namespace reverb::model

#endif  // REVERB_TESTS_MODEL_MODEL_ROWS_H_
