// version.h — which build this is.
#ifndef REVERB_APPS_REVERB_VERSION_H_
#define REVERB_APPS_REVERB_VERSION_H_

#include <string>

namespace reverb::program {

// "0.1.0 (commit 0123abc)", or the version alone where the commit is not known.
std::string Version();

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_VERSION_H_
