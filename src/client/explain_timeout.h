// explain_timeout.h — why a table makes callers wait, asked of its server.
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

struct Why {
  std::string text;  // empty when the server did not say
  Detail detail = Detail::kNone;
};

// A question on the side: a server that does not answer makes a call that is over anyway a second longer.
inline constexpr std::chrono::seconds kWhyTakesAtMost{1};

// Why samples of a table do not come. `wait` is that of the caller, who may give up.
inline Why AskWhyNoSamples(Connection& connection, const std::string& table, const WaitOptions& wait) {
  const Result<ServerInfo> info = connection.Info({.timeout = kWhyTakesAtMost, .on_wait = wait.on_wait});
  if (!info.ok()) return {};
  const auto found = std::ranges::find(info->tables, table, &TableInfo::name);
  if (found == info->tables.end()) return {};
  return {DescribeSampleWait(*found), DetailOf(found->sample_wait_reason)};
}

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_EXPLAIN_TIMEOUT_H_
