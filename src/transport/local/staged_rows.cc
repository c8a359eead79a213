#include "transport/local/staged_rows.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace reverb::internal {

void StagedRows::Add(Result<RowsRequest> part, const WireLimits& limits) {
  if (!status_.ok()) return;
  if (part.ok()) {
    for (const RowWrite& row : part->rows) {
      if (row.chunk) bytes_ += static_cast<uint64_t>(row.chunk->bytes());
    }
    const size_t count = rows_.size() + part->rows.size();
    if (count > limits.max_items || count > limits.max_chunks || bytes_ > limits.max_message_bytes) {
      status_ = Status::ResourceExhausted("a request has " + std::to_string(count) + " rows of " +
                                          std::to_string(bytes_) +
                                          " bytes, more than a server accepts; write fewer rows at a time");
    } else {
      std::ranges::move(part->rows, std::back_inserter(rows_));
    }
  } else {
    status_ = std::move(part).status();
  }
  if (!status_.ok()) rows_ = {};
}

Result<RowsRequest> StagedRows::Join(Result<RowsRequest> last, const WireLimits& limits) {
  if (empty()) return last;
  Result<RowsRequest> whole = RowsRequest();
  if (last.ok()) whole->call = std::move(last->call);
  Add(std::move(last), limits);
  if (status_.ok()) {
    whole->rows = std::move(rows_);
  } else {
    whole = std::move(status_);
  }
  *this = {};
  return whole;
}

}  // namespace reverb::internal
