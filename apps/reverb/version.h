// version.h — the version of this build.
#ifndef REVERB_APPS_REVERB_VERSION_H_
#define REVERB_APPS_REVERB_VERSION_H_

#include <string>

namespace reverb::program {

// Returns "0.1.0 (commit 0123abc)", or only the version if the commit is unknown.
std::string Version();
// Returns the commit; empty if it is unknown.
std::string Commit();

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_VERSION_H_
