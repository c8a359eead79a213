// checkpoint_view.h — formats the contents of a checkpoint as text or as JSON.
#ifndef REVERB_APPS_REVERB_CHECKPOINT_VIEW_H_
#define REVERB_APPS_REVERB_CHECKPOINT_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reverb/checkpoint.h"
#include "terminal.h"

namespace reverb::program {

// "2026-11-15 16:24:31 UTC".
std::string ShowTime(int64_t nanos_since_epoch);

// `siblings`: all checkpoints of the given folder; empty if the path was a single checkpoint.
std::string CheckpointPage(const CheckpointInfo& info, const std::vector<CheckpointEntry>& siblings,
                           const Paint& paint);
// Returns one line of JSON. docs/program.md documents the fields.
std::string CheckpointJson(const CheckpointInfo& info, const std::vector<CheckpointEntry>& siblings);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_CHECKPOINT_VIEW_H_
