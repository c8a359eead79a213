// config_sections.h — the parts of a server's configuration file; config.cc lists them by name.
//
// Each function reads one part into the options. It leaves those unchanged that the file does not set, and records
// problems in the reader.
#ifndef REVERB_APPS_REVERB_CONFIG_SECTIONS_H_
#define REVERB_APPS_REVERB_CONFIG_SECTIONS_H_

#include "config_reader.h"
#include "log_output.h"
#include "reverb/server.h"

namespace reverb::program {

// What a configuration file sets.
struct ConfigTarget {
  ServerOptions* options;
  LogSettings* log;
};

// The server itself: config_server.cc.
void ReadServer(ConfigReader& in, const toml::table& table, const ConfigTarget& to);
void ReadAdmin(ConfigReader& in, const toml::table& table, const ConfigTarget& to);
void ReadLog(ConfigReader& in, const toml::table& table, const ConfigTarget& to);
void ReadLimits(ConfigReader& in, const toml::table& table, const ConfigTarget& to);
void ReadCheckpoint(ConfigReader& in, const toml::table& table, const ConfigTarget& to);
void ReadStorage(ConfigReader& in, const toml::table& table, const ConfigTarget& to);
void ReadRegister(ConfigReader& in, const toml::table& table, const ConfigTarget& to);

// Who may use it: config_access.cc.
void ReadTls(ConfigReader& in, const toml::table& table, const ConfigTarget& to);
void ReadAuth(ConfigReader& in, const toml::table& table, const ConfigTarget& to);

// Lists of tables: config_tables.cc and config_row_tables.cc.
void ReadTables(ConfigReader& in, const toml::node& node, const ConfigTarget& to);
void ReadRowTables(ConfigReader& in, const toml::node& node, const ConfigTarget& to);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_CONFIG_SECTIONS_H_
