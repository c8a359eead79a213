// batch_rules.h — what a consumer requires of samples before the items are removed from their table.
//
// A table that removes sampled items (max_times_sampled) checks the rules before it takes anything. Others
// need no check: their items stay.
//
// Threads: a value.
#ifndef REVERB_TENSOR_BATCH_RULES_H_
#define REVERB_TENSOR_BATCH_RULES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reverb/sampler.h"
#include "reverb/status.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

struct BatchRules {
  bool all_or_nothing = false;  // draw all samples of a request together, or none
  BatchCheck check = BatchCheck::kNone;
  uint64_t unsupported_dtypes = 0;  // bit i: the consumer cannot represent the DType with the number i
  bool timesteps = false;           // the consumer splits items into steps

  bool empty() const {
    return !all_or_nothing && check == BatchCheck::kNone && unsupported_dtypes == 0 && !timesteps;
  }
};

// Returns INVALID_ARGUMENT, without naming the table, if a sample violates the rules. `index`: of the sample in
// its batch. `first`: the first one of the batch; null for the first one itself. `names`: the paths of the
// columns; null if unknown.
Status CheckBatchRules(const BatchRules& rules, int64_t index, uint64_t key, const Trajectory& item,
                       const Trajectory* first, const std::function<std::vector<std::string>()>& names);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_BATCH_RULES_H_
