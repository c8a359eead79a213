#include "config.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "config_reader.h"
#include "config_sections.h"
#include "text.h"

namespace reverb::program {
namespace {

// The sections of the file, [name], and its lists of tables, [[name]].
constexpr struct {
  const char* name;
  void (*read)(ConfigReader& in, const toml::table& table, const ConfigTarget& to);
} kSections[] = {
    {"server", ReadServer},
    {"log", ReadLog},
    {"admin", ReadAdmin},
    {"limits", ReadLimits},
    {"checkpoint", ReadCheckpoint},
    {"storage", ReadStorage},
    {"register", ReadRegister},
    {"tls", ReadTls},
    {"auth", ReadAuth},
};
constexpr struct {
  const char* name;
  void (*read)(ConfigReader& in, const toml::node& node, const ConfigTarget& to);
} kLists[] = {
    {"table", ReadTables},
    {"row_table", ReadRowTables},
};

void ReadSections(ConfigReader& in, const toml::table& root, const ConfigTarget& to) {
  std::vector<std::string> names;
  for (const auto& section : kSections) names.emplace_back(section.name);
  for (const auto& list : kLists) names.emplace_back(list.name);
  in.CheckKeys(root, "", names, "");
  for (const auto& [name, read] : kSections) {
    const toml::node* const node = root.get(name);
    if (node == nullptr) continue;
    if (const toml::table* table = in.Table(*node, name)) read(in, *table, to);
  }
  for (const auto& [name, read] : kLists) {
    if (const toml::node* node = root.get(name)) read(in, *node, to);
  }
}

// A configuration may come from a pipe or from /dev/stdin, so the size is bounded instead of the kind of
// file.
constexpr size_t kMaxConfigBytes = size_t{16} << 20;

Result<std::string> ReadFile(const std::string& path) {
  std::string text;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file != nullptr) {
    char part[4096];
    size_t size = 0;
    while ((size = std::fread(part, 1, sizeof(part), file.get())) > 0) {
      text.append(part, size);
      if (text.size() > kMaxConfigBytes) {
        return Status::InvalidArgument(path + ": is larger than the " + ShowBytes(kMaxConfigBytes) +
                                       " allowed for a configuration; give the path of a TOML file, "
                                       "such as examples/server.toml");
      }
    }
  }
  if (file == nullptr || std::ferror(file.get()) != 0) {
    return Status::InvalidArgument(path + ": cannot be read: " + std::strerror(errno) +
                                   "; give the path of a TOML file, such as examples/server.toml");
  }
  return text;
}

}  // namespace

Status ReadConfig(const std::string& path, ServerOptions* options, LogSettings* log) {
  const Result<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  ConfigReader reader(path);
  try {
    const toml::table root = toml::parse(*text, path);
    ReadSections(reader, root, {.options = options, .log = log});
    return reader.problem();
  } catch (const toml::parse_error& error) {
    return reader.At(error.source().begin, "this is no TOML: " + std::string(error.description()));
  }
}

}  // namespace reverb::program
