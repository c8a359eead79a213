// explain_timeout.h — queries a server for the reason why one of its tables blocks.
#ifndef REVERB_CLIENT_EXPLAIN_TIMEOUT_H_
#define REVERB_CLIENT_EXPLAIN_TIMEOUT_H_

#include <algorithm>
#include <chrono>
#include <string>

#include "reverb/status.h"
#include "reverb/wait.h"
#include "tensor/limiter_text.h"
#include "transport/transport.h"

namespace reverb::internal {

struct WaitExplanation {
  std::string text;  // empty if the connection broke
  Detail detail = Detail::kNone;
};

// Bounds the extra Info() call that explains a timeout.
inline constexpr std::chrono::seconds kExplainTimeout{1};

// Returns why a table delivers no samples. The on_wait of `wait` may cancel the query.
inline WaitExplanation ExplainSampleWait(Connection& connection, const std::string& table,
                                         const WaitOptions& wait) {
  const Result<ServerInfo> info = connection.Info({.timeout = kExplainTimeout, .on_wait = wait.on_wait});
  if (info.status().code() == StatusCode::kDeadlineExceeded) {
    return {"the server has not answered the query for the reason: it may be stopped or overloaded"};
  }
  if (!info.ok()) return {};
  const auto found = std::ranges::find(info->tables, table, &TableInfo::name);
  if (found == info->tables.end()) return {};
  return {DescribeSampleWait(*found), DetailOf(found->sample_wait_reason)};
}

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_EXPLAIN_TIMEOUT_H_
