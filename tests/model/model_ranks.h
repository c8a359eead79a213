// model_ranks.h — slow and obvious claims of ranks that share a batch, which tests compare RankClaims with.
#ifndef REVERB_TESTS_MODEL_MODEL_RANKS_H_
#define REVERB_TESTS_MODEL_MODEL_RANKS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/model_rows.h"

namespace reverb::model {

class ModelRanks {
 public:
  explicit ModelRanks(ModelRows* rows, int64_t group_size) : rows_(rows), group_size_(group_size) {}

  struct Outcome {
    bool is_error = false;
    bool waits = false;
    uint64_t lease = 0;
    int64_t step = 0;
    std::vector<std::string> keys = {};
  };
  Outcome Claim(const RowClaim& claim, const ModelRows::Condition& condition);
  bool Return(uint64_t lease);

 private:
  struct Part {
    uint64_t lease = 0;
    bool is_taken = false;
  };
  struct Batch {
    RowClaim claim;
    int64_t step = 0;
    std::vector<Part> parts = {};
  };
  struct History {
    std::vector<Batch> batches = {};
    std::optional<int64_t> last = {};
  };

  bool IsAlive(const Batch& batch) const;
  Outcome Take(Batch* batch, const RowClaim& claim);

  ModelRows* const rows_;
  const int64_t group_size_;
  std::map<std::string, History> histories_;
};

}  // namespace reverb::model

#endif  // REVERB_TESTS_MODEL_MODEL_RANKS_H_
