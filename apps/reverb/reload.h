// reload.h — what a running server reads again after SIGHUP.
//
// Each part of the program that can change while it runs adds a hook. Run() calls all of them; one that fails
// keeps its former settings and does not affect the others. Threads: one at a time.
#ifndef REVERB_APPS_REVERB_RELOAD_H_
#define REVERB_APPS_REVERB_RELOAD_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "log_output.h"
#include "reverb/status.h"

namespace reverb::program {

class ReloadHooks {
 public:
  // Returns what is in effect now, as text for the log, such as "level debug".
  using Hook = std::function<Result<std::string>()>;

  // `what` names the part: "log", "certificates".
  void Add(std::string what, Hook hook) { hooks_.emplace_back(std::move(what), std::move(hook)); }
  // Calls all hooks and logs the result of each. Returns whether all succeeded.
  bool Run(LogOutput* log) const;

 private:
  std::vector<std::pair<std::string, Hook>> hooks_;
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_RELOAD_H_
