// unconfirmed.h — errors of writers state how many items are not confirmed.
#ifndef REVERB_CLIENT_UNCONFIRMED_H_
#define REVERB_CLIENT_UNCONFIRMED_H_

#include <cstdint>
#include <string>

#include "reverb/status.h"

namespace reverb::internal {

// Adds the number to the error of a flush. DEADLINE_EXCEEDED of ItemSink::AwaitPending() has it.
inline Status WithUnconfirmed(Status status, int64_t items) {
  if (status.ok() || items == 0 || status.code() == StatusCode::kDeadlineExceeded) return status;
  return Status(status.code(),
                std::string(status.message()) + "; " + std::to_string(items) +
                    (items == 1 ? " item of this writer is" : " items of this writer are") + " not confirmed",
                status.detail());
}

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_UNCONFIRMED_H_
