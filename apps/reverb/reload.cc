#include "reload.h"

namespace reverb::program {

bool ReloadHooks::Run(LogOutput* log) const {
  bool all_succeeded = true;
  for (const auto& [what, hook] : hooks_) {
    const Result<std::string> now = hook();
    if (now.ok()) {
      log->Write(LogLevel::kInfo, "reloaded " + what + ": " + *now, {{"event", "reload"}, {"part", what}});
      continue;
    }
    all_succeeded = false;
    log->Write(LogLevel::kError,
               what + ": not reloaded, what was read before stays in use: " + std::string(now.status().message()),
               {{"event", "reload"}, {"part", what}});
  }
  return all_succeeded;
}

}  // namespace reverb::program
