// staged_rows.h — rows of a request that a server has received before the rest of it.
//
// A client that puts many rows sends them in parts, each as soon as it is encoded, so that the server copies and verifies
// the first ones meanwhile. All of them are one request: they are kept here until its last part arrives, and are dropped
// with the socket, or if one of them is damaged. The limits are those of a request in one message.
//
// Threads: not thread-safe.
#ifndef REVERB_TRANSPORT_LOCAL_STAGED_ROWS_H_
#define REVERB_TRANSPORT_LOCAL_STAGED_ROWS_H_

#include <cstdint>
#include <vector>

#include "reverb/status.h"
#include "transport/messages.h"
#include "transport/wire.h"

namespace reverb::internal {

class StagedRows {
 public:
  bool empty() const { return rows_.empty() && status_.ok(); }
  // Adds a part. Its error, and that of parts that exceed the limits together, is the outcome of the request.
  void Add(Result<RowsRequest> part, const WireLimits& limits);
  // Returns the whole request, given its last part, and forgets the others.
  Result<RowsRequest> Join(Result<RowsRequest> last, const WireLimits& limits);

 private:
  std::vector<RowWrite> rows_;
  uint64_t bytes_ = 0;  // of their data
  Status status_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_STAGED_ROWS_H_
