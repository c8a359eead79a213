// Checkpoints of dm-reverb.
#include "checkpoint/source.h"

namespace reverb::internal {

Result<std::unique_ptr<CheckpointSource>> OpenDmReverbCheckpoint(FileSystem* fs, const std::string& path) {
  (void)fs;
  return Status::Unimplemented("\"" + path +
                               "\" is a checkpoint of dm-reverb, which this version cannot read yet");
}

}  // namespace reverb::internal
