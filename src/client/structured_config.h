// structured_config.h — properties derived from a StructuredConfig.
#ifndef REVERB_CLIENT_STRUCTURED_CONFIG_H_
#define REVERB_CLIENT_STRUCTURED_CONFIG_H_

#include <cstdint>

#include "reverb/writer.h"

namespace reverb::internal {

// Returns how many steps back the pattern reaches; the newest step counts as one. REQUIRES: a valid config.
int64_t MaxAge(const StructuredConfig& config);

// Adds the condition that this many steps exist, unless a condition already requires at least as many.
void AddBufferLengthCondition(StructuredConfig* config);

// Returns whether `left` satisfies the condition.
bool Holds(const PatternCondition& condition, int64_t left);

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_STRUCTURED_CONFIG_H_
