// copy.h — copies one checkpoint, with the segments that it needs, to a folder of its own.
#ifndef REVERB_CHECKPOINT_COPY_H_
#define REVERB_CHECKPOINT_COPY_H_

#include <functional>
#include <string>

#include "base/file_system.h"
#include "reverb/checkpoint.h"
#include "reverb/status.h"

namespace reverb::internal {

// Copies the checkpoint at `from` to a temporary folder beside `to`, calls `verify` with the path of the copied
// checkpoint, and renames the folder to `to`. Returns the path of the checkpoint below `to`. Whatever fails,
// `to` does not exist afterwards, and the temporary folder is removed. ALREADY_EXISTS if `to` exists.
//
// A server may remove the checkpoint meanwhile: all files are opened first, and stay readable.
Result<std::string> CopyCheckpointFiles(FileSystem* fs, const std::string& from, const std::string& to,
                                        const std::function<Status(const std::string& path)>& verify,
                                        const CheckpointProgressCallback& progress);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_COPY_H_
