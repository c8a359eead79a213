// checkpoint_view.h — what stands in a checkpoint, as a page for people or as JSON.
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

// `siblings`: all checkpoints of the folder that was asked about; empty when one was named.
std::string CheckpointPage(const CheckpointInfo& info, const std::vector<CheckpointEntry>& siblings,
                           const Paint& paint);
// One line. docs/program.md has the fields.
std::string CheckpointJson(const CheckpointInfo& info, const std::vector<CheckpointEntry>& siblings);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_CHECKPOINT_VIEW_H_
