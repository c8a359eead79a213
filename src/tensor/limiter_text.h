// limiter_text.h — describes rate limiters and the reasons for waits, for errors and log lines.
//
// The engine, the service and the client use these texts, so they live in the lowest folder that knows the
// values of tables.
#ifndef REVERB_TENSOR_LIMITER_TEXT_H_
#define REVERB_TENSOR_LIMITER_TEXT_H_

#include <string>

#include "reverb/status.h"
#include "reverb/table_info.h"

namespace reverb::internal {

// Formats like printf's %g.
std::string BriefNumber(double value);
// Like BriefNumber(), but "+unbounded" and "-unbounded" for the two ends of the range.
std::string ShowBound(double value);

// Returns the detail of the error when a wait for this reason times out.
Detail DetailOf(WaitReason reason);

// Returns the size of the table, the reason why callers wait, and the rate limiter's numbers.
std::string DescribeInsertWait(const TableInfo& table);
std::string DescribeSampleWait(const TableInfo& table);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_LIMITER_TEXT_H_
