// limiter_text.h — the words for a rate limiter that makes somebody wait: for errors, log lines and both
// ends.
#ifndef REVERB_BASE_LIMITER_TEXT_H_
#define REVERB_BASE_LIMITER_TEXT_H_

#include <string>

#include "reverb/status.h"
#include "reverb/table_info.h"

namespace reverb::internal {

// As printf's %g.
std::string ShowNumber(double value);
// The same, but "unbounded" for the two ends of the range.
std::string ShowBound(double value);

// What programs may act on when a call has waited for this reason for too long.
Detail DetailOf(WaitReason reason);

// What the table holds, why it makes callers wait, and the limiter's numbers.
std::string DescribeInsertWait(const TableInfo& table);
std::string DescribeSampleWait(const TableInfo& table);

}  // namespace reverb::internal

#endif  // REVERB_BASE_LIMITER_TEXT_H_
