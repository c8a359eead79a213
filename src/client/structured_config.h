// structured_config.h — what follows from a StructuredConfig alone.
#ifndef REVERB_CLIENT_STRUCTURED_CONFIG_H_
#define REVERB_CLIENT_STRUCTURED_CONFIG_H_

#include <cstdint>

#include "reverb/writer.h"

namespace reverb::internal {

// How many steps back the pattern reaches; the newest step counts as one. REQUIRES: a valid config.
int64_t MaxAge(const StructuredConfig& config);

// Adds the condition that so many steps must be there, unless one that asks for as many is.
void AddBufferLengthCondition(StructuredConfig* config);

// Whether `left` compares as the condition says.
bool Holds(const PatternCondition& condition, int64_t left);

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_STRUCTURED_CONFIG_H_
