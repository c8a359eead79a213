// config.h — the configuration file of `reverb serve`. examples/server.toml shows all of it.
#ifndef REVERB_APPS_REVERB_CONFIG_H_
#define REVERB_APPS_REVERB_CONFIG_H_

#include <string>

#include "reverb/server.h"
#include "reverb/status.h"

namespace reverb::program {

// `options` as the file says; what the file does not say stays as it is. Tables are added. An error names the
// file, the line, the key, and what was expected there.
Status ReadConfig(const std::string& path, ServerOptions* options);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_CONFIG_H_
