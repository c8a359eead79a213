// rank_claims.h — claims of several ranks that share a batch.
//
// The first rank that claims decides: it takes the rows of the whole batch, which are divided into a part for each
// rank, each under a lease of its own. The others get their parts when they claim. A rank that has its part goes on to
// the next batch and waits for nobody. A part whose rank does not come is lost like any lease: its rows can be claimed
// again, in a later batch. docs/rows.md describes the rules from the caller's side.
//
// Ownership: borrows the RowState. Threads: needs the table's lock.
#ifndef REVERB_CORE_ROWS_RANK_CLAIMS_H_
#define REVERB_CORE_ROWS_RANK_CLAIMS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/rows/row_state.h"
#include "core/rows/where.h"
#include "reverb/row_operations.h"
#include "reverb/status.h"

namespace reverb::internal {

// Divides units of these sizes among ranks: the longest first, each to the rank that has least. Returns the indices
// of each rank, ascending. `equal_counts`: the numbers of units differ by at most one.
std::vector<std::vector<size_t>> DivideAmongRanks(std::span<const int64_t> sizes, size_t ranks,
                                                  bool equal_counts);

class RankClaims {
 public:
  explicit RankClaims(RowState* state) : state_(state) {}

  // INVALID_ARGUMENT for numbers that do not fit together. To be called for every claim.
  Status Check(const RowClaim& claim) const;
  // Returns whether Claim() returns a part or an error without looking for rows.
  bool IsDecided(const RowClaim& claim);
  // Returns the part of the claim's rank, or nothing if the claim has to wait. INVALID_ARGUMENT if another rank has
  // other arguments; FAILED_PRECONDITION if the named step is over. REQUIRES: CheckClaim(), Check().
  Result<std::optional<ClaimedRows>> Claim(const RowClaim& claim, const Where* where, RowEffects* effects);
  // A claim that was told to wait has ended.
  void StopWaiting(const RowClaim& claim);
  // The rank has not received its part: its next claim gets it. Returns false if the lease is not that of a part.
  bool Return(uint64_t lease);

 private:
  struct Part {
    uint64_t lease = 0;  // 0 = without rows
    bool is_taken = false;
  };
  // What the ranks of a batch agree on, and who said so first.
  struct Agreement {
    RowClaim claim;
    std::vector<int64_t> waiting = {};  // ranks, until the batch is decided
  };
  struct Batch {
    int64_t step = 0;
    RowClaim claim;  // that decided it
    std::vector<std::string> columns;
    std::vector<Part> parts;
  };
  // The batches of a consumer.
  struct Sequence {
    std::deque<Batch> batches;  // of which some part is leased
    std::optional<int64_t> last_step;
    std::map<std::optional<int64_t>, Agreement> undecided;  // by the step that the ranks name
  };

  Sequence& SequenceOf(const RowClaim& claim);
  // Returns the batch whose part the claim gets; null if it is not decided.
  Batch* FindBatch(Sequence* sequence, const RowClaim& claim);
  bool IsOpen(const Part& part) const {
    return !part.is_taken && (part.lease == 0 || state_->HasLease(part.lease));
  }
  Status CheckSame(const RowClaim& first, const RowClaim& claim) const;
  Result<ClaimedRows> TakePart(Batch* batch, const RowClaim& claim, RowEffects* effects);
  Result<Batch*> Decide(Sequence* sequence, const RowClaim& claim, const Where* where, RowEffects* effects);

  RowState* const state_;
  std::map<std::string, Sequence, std::less<>> sequences_;  // by consumer
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_ROWS_RANK_CLAIMS_H_
