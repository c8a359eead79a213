// config.h — the configuration file of `reverb serve`. examples/server.toml shows all of it.
#ifndef REVERB_APPS_REVERB_CONFIG_H_
#define REVERB_APPS_REVERB_CONFIG_H_

#include <string>

#include "log_output.h"
#include "reverb/server.h"
#include "reverb/status.h"

namespace reverb::program {

// Applies the file to `options` and `log`. Options that the file does not set stay unchanged; tables are added. An
// error names the file, the line, the key and the expected value.
Status ReadConfig(const std::string& path, ServerOptions* options, LogSettings* log);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_CONFIG_H_
