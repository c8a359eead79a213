#include "version.h"

#include <string_view>

#include "reverb_commit.h"  // made by cmake/ReverbCommit.cmake at each build

namespace reverb::program {

std::string Version() {
  constexpr std::string_view kCommit = REVERB_COMMIT;
  std::string version = REVERB_VERSION;
  if (!kCommit.empty()) version.append(" (commit ").append(kCommit).append(")");
  return version;
}

std::string Commit() { return REVERB_COMMIT; }

}  // namespace reverb::program
