#include "config.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

// Header-only, since the distribution provides the library only as a shared one.
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "specs.h"
#include "text.h"

namespace reverb::program {
namespace {

// Describes a value, for errors that name the value found.
std::string ShowValue(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return Quote(**node.as_string());
    case toml::node_type::integer:
      return std::to_string(**node.as_integer());
    case toml::node_type::floating_point:
      return ShowNumber(**node.as_floating_point());
    case toml::node_type::boolean:
      return **node.as_boolean() ? "true" : "false";
    case toml::node_type::table:
      return "a table of keys";
    case toml::node_type::array:
      return "a list";
    default:
      return "a date or time";
  }
}

// Reads one file into options. Every function stores the first problem in `problem_` and continues, so that
// the code below reads like the format of the file.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  Status Read(const toml::table& root, ServerOptions* options, LogSettings* log) {
    CheckKeys(
        root, "",
        {"server", "log", "limits", "checkpoint", "register", "tls", "auth", "storage", "table", "row_table"},
        "");
    if (const toml::node* node = root.get("log")) {
      if (const toml::table* table = Table(*node, "log")) ReadLog(*table, log);
    }
    if (const toml::node* node = root.get("server")) {
      if (const toml::table* table = Table(*node, "server")) ReadServer(*table, options);
    }
    if (const toml::node* node = root.get("register")) {
      if (const toml::table* table = Table(*node, "register")) ReadRegister(*table, options);
    }
    if (const toml::node* node = root.get("limits")) {
      if (const toml::table* table = Table(*node, "limits")) ReadLimits(*table, &options->limits);
    }
    if (const toml::node* node = root.get("checkpoint")) {
      if (const toml::table* table = Table(*node, "checkpoint")) ReadCheckpoint(*table, options);
    }
    if (const toml::node* node = root.get("tls")) {
      if (const toml::table* table = Table(*node, "tls")) ReadTls(*table, options);
    }
    if (const toml::node* node = root.get("storage")) {
      if (const toml::table* table = Table(*node, "storage")) ReadStorage(*table, options);
    }
    if (const toml::node* node = root.get("auth")) {
      if (const toml::table* table = Table(*node, "auth")) ReadAuth(*table, options);
    }
    if (const toml::node* node = root.get("table")) ReadTables(*node, options);
    if (const toml::node* node = root.get("row_table")) ReadRowTables(*node, options);
    return problem_;
  }

  Status At(const toml::source_position& where, const std::string& text) const {
    std::string place = path_;
    if (where.line > 0) place += ":" + std::to_string(where.line) + ":" + std::to_string(where.column);
    return Status::InvalidArgument(place + ": " + text);
  }

 private:
  // --- Problems ---

  void Problem(const toml::node& node, const std::string& text) { ProblemAt(node.source().begin, text); }
  void ProblemAt(const toml::source_position& where, const std::string& text) {
    if (problem_.ok()) problem_ = At(where, text);
  }
  void Expected(const toml::node& node, const std::string& key, const std::string& what) {
    Problem(node, "key " + Quote(key) + ": expected " + what + "; got " + ShowValue(node));
  }
  // Returns whether the status is OK; otherwise records it as the problem.
  bool Check(const toml::node& node, const std::string& key, const Status& status) {
    if (!status.ok()) Problem(node, "key " + Quote(key) + ": " + std::string(status.message()));
    return status.ok();
  }

  // Checks that each key is known; `where` names the part of the file.
  void CheckKeys(const toml::table& table, const std::string& prefix, const std::vector<std::string>& known,
                 const std::string& where) {
    for (const auto& [key, node] : table) {
      const std::string_view name = key.str();
      if (std::ranges::find(known, name) != known.end()) continue;
      const std::string full = prefix + std::string(name);
      if (name.starts_with("checkpoint") && prefix == "server.") {
        ProblemAt(key.source().begin,
                  "there is no key " + Quote(full) + "; checkpoints are configured in [checkpoint]");
      }
      ProblemAt(key.source().begin, "there is no key " + Quote(full) + where + "." + Suggest(name, known));
    }
  }

  // --- Values ---

  const toml::table* Table(const toml::node& node, const std::string& key) {
    if (!node.is_table()) Expected(node, key, "a table of keys, [" + key + "]");
    return node.as_table();
  }
  std::optional<std::string> String(const toml::node& node, const std::string& key, const std::string& what) {
    if (const auto* text = node.as_string()) return **text;
    Expected(node, key, what);
    return std::nullopt;
  }
  std::optional<int64_t> Integer(const toml::node& node, const std::string& key, int64_t least,
                                 int64_t most) {
    if (const auto* number = node.as_integer(); number && **number >= least && **number <= most)
      return **number;
    std::string what = "a whole number from " + std::to_string(least);
    if (most < INT64_MAX) what += " to " + std::to_string(most);
    Expected(node, key, most < INT64_MAX ? what : what + " on");
    return std::nullopt;
  }
  std::optional<int64_t> Bytes(const toml::node& node, const std::string& key) {
    if (const auto* number = node.as_integer(); number && **number >= 0) return **number;
    if (const auto* text = node.as_string()) {
      const Result<int64_t> bytes = ParseBytes(**text);
      if (bytes.ok()) return *bytes;
    }
    Expected(node, key, "a size, such as \"4 GiB\", \"500 MB\" or 4096");
    return std::nullopt;
  }
  std::optional<std::chrono::nanoseconds> Time(const toml::node& node, const std::string& key) {
    std::string text;
    if (const auto* words = node.as_string()) text = **words;
    if (node.is_number()) text = ShowNumber(*node.value<double>());
    const Result<std::chrono::nanoseconds> time = ParseDuration(text);
    if (!text.empty() && time.ok()) return *time;
    Expected(node, key, "a time, such as \"5 min\", \"1.5 s\" or 30 (seconds)");
    return std::nullopt;
  }

  std::optional<bool> Boolean(const toml::node& node, const std::string& key) {
    if (const auto* value = node.as_boolean()) return **value;
    Expected(node, key, "true or false");
    return std::nullopt;
  }
  // Reads one of a few words, each with its value.
  template <typename T>
  void WordInto(const toml::table& table, const char* name, const std::string& prefix,
                const std::vector<std::pair<std::string, T>>& words, T* to) {
    const toml::node* const node = table.get(name);
    if (node == nullptr) return;
    std::vector<std::string> quoted;
    for (const auto& [word, value] : words) {
      if (const auto* text = node->as_string(); text != nullptr && **text == word) {
        *to = value;
        return;
      }
      quoted.push_back(Quote(word));
    }
    Expected(*node, prefix + name, Join(quoted, " or "));
  }

  // Reads a limit in bytes, at least `least`.
  void LimitInto(const toml::table& table, const std::string& name, uint64_t* to, int64_t least = 1) {
    const toml::node* const node = table.get(name);
    if (node == nullptr) return;
    const std::optional<int64_t> bytes = Bytes(*node, "limits." + name);
    if (bytes && *bytes < least) Expected(*node, "limits." + name, "a size above 0");
    if (bytes) *to = static_cast<uint64_t>(*bytes);
  }

  // --- Parts of the file ---

  void ReadServer(const toml::table& table, ServerOptions* options) {
    CheckKeys(table, "server.",
              {"host", "port", "local", "local_path", "keepalive_timeout", "max_bytes", "when_full", "shard"},
              "");
    if (const toml::node* node = table.get("host")) {
      const auto host =
          String(*node, "server.host", "an address to listen on, such as \"127.0.0.1\" or \"[::]\"");
      if (host && host->empty()) {
        Expected(*node, "server.host", "an address to listen on, such as \"127.0.0.1\" or \"[::]\"");
      }
      if (host) options->host = *host;
    }
    if (const toml::node* node = table.get("port")) {
      if (const auto port = Integer(*node, "server.port", 0, 65535)) options->port = static_cast<int>(*port);
    }
    if (const toml::node* node = table.get("shard")) {
      if (const auto shard = Integer(*node, "server.shard", 1, 65535))
        options->shard = static_cast<int>(*shard);
    }
    if (const toml::node* node = table.get("local")) ReadLocal(*node, &options->local);
    if (const toml::node* node = table.get("local_path")) {
      const std::string what = "the path of a socket, such as \"/run/reverb/replay.sock\"";
      const auto path = String(*node, "server.local_path", what);
      if (path && path->empty()) Expected(*node, "server.local_path", what);
      if (path) options->local_path = *path;
    }
    if (const toml::node* node = table.get("keepalive_timeout")) {
      const auto time = Time(*node, "server.keepalive_timeout");
      if (time && *time < std::chrono::seconds(1)) {
        Expected(*node, "server.keepalive_timeout", "a time of at least 1 s");
      }
      if (time) options->keepalive_timeout = *time;
    }
    if (const toml::node* node = table.get("max_bytes")) {
      if (const auto bytes = Bytes(*node, "server.max_bytes")) {
        if (*bytes == 0)
          Expected(*node, "server.max_bytes", "a size above 0; leave the key out for no bound");
        options->store.max_bytes = *bytes;
      }
    }
    if (const toml::node* node = table.get("when_full")) {
      const auto policy = String(*node, "server.when_full", "\"wait\" or \"evict\"");
      if (policy && *policy != "wait" && *policy != "evict") {
        Expected(*node, "server.when_full", "\"wait\" or \"evict\"");
      }
      options->store.evict_when_full = policy == "evict";
    }
  }

  void ReadLog(const toml::table& table, LogSettings* log) {
    CheckKeys(table, "log.", {"format", "level", "wait_after"}, "");
    if (const toml::node* node = table.get("format")) {
      if (const auto word = String(*node, "log.format", Join(LogFormatNames(), " or "))) {
        const Result<LogFormat> format = ParseLogFormat(*word);
        if (Check(*node, "log.format", format.status())) log->format = *format;
      }
    }
    if (const toml::node* node = table.get("level")) {
      if (const auto word = String(*node, "log.level", "one of " + Join(LogLevelNames(), ", "))) {
        const Result<LogLevel> level = ParseLogLevel(*word);
        if (Check(*node, "log.level", level.status())) log->level = *level;
      }
    }
    if (const toml::node* node = table.get("wait_after")) {
      const auto* const word = node->as_string();
      if (word != nullptr && **word == "never") {
        log->wait_after.reset();
      } else if (const auto time = Time(*node, "log.wait_after")) {
        log->wait_after = *time;
      }
    }
  }

  void ReadRegister(const toml::table& table, ServerOptions* options) {
    CheckKeys(table, "register.", {"at", "address"}, "");
    const std::string at = "a folder, such as \"file:///shared/run42\"";
    if (const toml::node* node = table.get("at")) {
      const auto folder = String(*node, "register.at", at);
      if (folder && !folder->starts_with("file:///")) Expected(*node, "register.at", at);
      if (folder) options->register_at = *folder;
    }
    if (const toml::node* node = table.get("address")) {
      const auto address = String(*node, "register.address", "an address, such as \"replay-0:8000\"");
      if (address) options->advertised_address = *address;
    }
  }

  void ReadTls(const toml::table& table, ServerOptions* options) {
    CheckKeys(table, "tls.", {"certificate", "key", "client_ca"}, "");
    ServerTls tls;
    PathInto(table, "certificate", "tls.", "\"/etc/reverb/server.crt\"", &tls.certificate);
    PathInto(table, "key", "tls.", "\"/etc/reverb/server.key\"", &tls.key);
    PathInto(table, "client_ca", "tls.", "\"/etc/reverb/clients.crt\"", &tls.client_ca);
    // A section without any key is like none, so that the file that shows every key can have it.
    if (table.empty()) return;
    if (tls.certificate.empty() || tls.key.empty()) {
      Problem(table, std::string("key \"tls.") + (tls.certificate.empty() ? "certificate" : "key") +
                         "\" is missing; TLS needs the files of a certificate and its key, in PEM");
    }
    options->tls = std::move(tls);
  }

  void ReadAuth(const toml::table& table, ServerOptions* options) {
    CheckKeys(table, "auth.", {"tokens_file", "trust_same_user"}, "");
    AuthOptions auth;
    PathInto(table, "tokens_file", "auth.", "\"/etc/reverb/tokens\"", &auth.tokens_file);
    if (const toml::node* node = table.get("trust_same_user")) {
      auth.trust_same_user = Boolean(*node, "auth.trust_same_user").value_or(false);
    }
    if (table.empty()) return;
    if (auth.tokens_file.empty()) {
      Problem(table, "key \"auth.tokens_file\" is missing; `reverb token new` creates such a file");
    }
    options->auth = std::move(auth);
  }

  void ReadStorage(const toml::table& table, ServerOptions* options) {
    CheckKeys(table, "storage.", {"path", "memory_limit", "disk_limit"}, "");
    StorageOptions storage;
    if (const toml::node* node = table.get("path")) {
      const std::string what = "a folder on a fast disk, such as \"/nvme/replay\"";
      const auto path = String(*node, "storage.path", what);
      if (path && path->empty()) Expected(*node, "storage.path", what);
      storage.path = path.value_or("");
    }
    const auto limit = [&](const char* name) -> std::optional<int64_t> {
      const toml::node* const node = table.get(name);
      if (node == nullptr) return std::nullopt;
      const std::string key = std::string("storage.") + name;
      const std::optional<int64_t> bytes = Bytes(*node, key);
      if (bytes && *bytes == 0) Expected(*node, key, "a size above 0");
      return bytes;
    };
    storage.memory_limit = limit("memory_limit").value_or(0);
    storage.disk_limit = limit("disk_limit");
    // A section without any key is like none, so that the file that shows every key can have it.
    if (table.empty()) return;
    for (const char* const name : {"path", "memory_limit"}) {
      if (table.contains(name)) continue;
      Problem(table, std::string("key \"storage.") + name +
                         "\" is missing; the disk tier needs a folder and how much data stays in memory");
    }
    options->storage = std::move(storage);
  }

  // Reads the path of a file.
  void PathInto(const toml::table& table, const char* name, const std::string& prefix,
                const std::string& example, std::string* to) {
    const toml::node* const node = table.get(name);
    if (node == nullptr) return;
    const std::string what = "the path of a file, such as " + example;
    const auto path = String(*node, prefix + name, what);
    if (path && path->empty()) Expected(*node, prefix + name, what);
    if (path) *to = *path;
  }

  void ReadLocal(const toml::node& node, LocalAccess* local) {
    if (const auto* flag = node.as_boolean()) {
      *local = **flag ? LocalAccess::kSameUser : LocalAccess::kOff;
    } else if (const auto* text = node.as_string(); text != nullptr && **text == "any user") {
      *local = LocalAccess::kAnyUser;
    } else {
      Expected(node, "server.local", "true, false or \"any user\"");
    }
  }

  void ReadLimits(const toml::table& table, ServerLimits* limits) {
    CheckKeys(table, "limits.",
              {"max_message_bytes", "max_chunk_bytes", "max_item_bytes", "insert_window_bytes",
               "max_waiting_items", "max_window_bytes", "sample_window_bytes", "max_streams",
               "disconnected_session_ttl", "max_disconnected_bytes", "sequence_number_ttl",
               "max_remembered_writers", "max_pinned_bytes", "stalled_client_timeout"},
              "");
    LimitInto(table, "max_message_bytes", &limits->max_message_bytes);
    LimitInto(table, "max_chunk_bytes", &limits->max_chunk_bytes);
    LimitInto(table, "max_item_bytes", &limits->max_item_bytes);
    LimitInto(table, "insert_window_bytes", &limits->insert_window_bytes);
    LimitInto(table, "max_window_bytes", &limits->max_window_bytes);
    LimitInto(table, "sample_window_bytes", &limits->sample_window_bytes);
    LimitInto(table, "max_disconnected_bytes", &limits->max_disconnected_bytes, /*least=*/0);
    LimitInto(table, "max_pinned_bytes", &limits->max_pinned_bytes, /*least=*/0);
    if (const toml::node* node = table.get("max_waiting_items")) {
      if (const auto count = Integer(*node, "limits.max_waiting_items", 1, INT64_MAX)) {
        limits->max_waiting_items = static_cast<size_t>(*count);
      }
    }
    if (const toml::node* node = table.get("max_streams")) {
      if (const auto count = Integer(*node, "limits.max_streams", 1, INT64_MAX)) {
        limits->max_streams = static_cast<size_t>(*count);
      }
    }
    if (const toml::node* node = table.get("disconnected_session_ttl")) {
      if (const auto time = Time(*node, "limits.disconnected_session_ttl"))
        limits->disconnected_session_ttl = *time;
    }
    if (const toml::node* node = table.get("sequence_number_ttl")) {
      if (const auto time = Time(*node, "limits.sequence_number_ttl")) limits->sequence_number_ttl = *time;
    }
    if (const toml::node* node = table.get("max_remembered_writers")) {
      if (const auto count = Integer(*node, "limits.max_remembered_writers", 0, INT64_MAX)) {
        limits->max_remembered_writers = static_cast<size_t>(*count);
      }
    }
    if (const toml::node* node = table.get("stalled_client_timeout")) {
      const auto time = Time(*node, "limits.stalled_client_timeout");
      if (time && time->count() == 0) Expected(*node, "limits.stalled_client_timeout", "a time above 0");
      if (time) limits->stalled_client_timeout = *time;
    }
  }

  void ReadCheckpoint(const toml::table& table, ServerOptions* options) {
    const std::string prefix = "checkpoint.";
    CheckKeys(table, prefix,
              {"path", "fallback_path", "interval", "on_stop", "keep_latest", "load_latest", "restore"}, "");
    CheckpointOptions checkpoint;
    const toml::node* const path = table.get("path");
    if (path == nullptr) {
      return Problem(table,
                     "key \"checkpoint.path\" is missing; expected a folder, such as path = \"/data/run7\"");
    }
    for (const char* name : {"path", "fallback_path"}) {
      const toml::node* const node = table.get(name);
      if (node == nullptr) continue;
      const std::optional<std::string> text = String(*node, prefix + name, "the path of a folder");
      if (text && text->empty()) Expected(*node, prefix + name, "the path of a folder");
      if (text && node == path) checkpoint.path = *text;
      if (text && node != path) checkpoint.fallback_path = *text;
    }
    if (const toml::node* node = table.get("interval")) {
      checkpoint.interval = Time(*node, "checkpoint.interval");
      if (checkpoint.interval && checkpoint.interval->count() == 0) {
        Expected(*node, "checkpoint.interval",
                 "a time above 0; leave the key out for no periodic checkpoints");
      }
    }
    if (const toml::node* node = table.get("keep_latest")) {
      if (const auto count = Integer(*node, "checkpoint.keep_latest", 1, INT32_MAX)) {
        checkpoint.keep_latest = static_cast<int32_t>(*count);
      }
    }
    if (const toml::node* node = table.get("on_stop")) {
      checkpoint.on_stop = Boolean(*node, "checkpoint.on_stop").value_or(false);
    }
    if (const toml::node* node = table.get("load_latest")) {
      checkpoint.load_latest = Boolean(*node, "checkpoint.load_latest").value_or(true);
    }
    if (const toml::node* node = table.get("restore")) {
      if (const toml::table* restore = Table(*node, "checkpoint.restore")) {
        ReadRestore(*restore, &checkpoint.restore);
      }
    }
    options->checkpoint = std::move(checkpoint);
  }

  void ReadRestore(const toml::table& table, RestoreOptions* restore) {
    const std::string prefix = "checkpoint.restore.";
    CheckKeys(
        table, prefix,
        {"rate_limiter", "sizes", "selectors", "signature", "counters", "missing_tables", "extra_tables"},
        "");
    using Settings = RestoreOptions::Settings;
    const std::vector<std::pair<std::string, Settings>> whose = {{"saved", Settings::kSaved},
                                                                 {"given", Settings::kGiven}};
    WordInto(table, "rate_limiter", prefix, whose, &restore->rate_limiter);
    WordInto(table, "sizes", prefix, whose, &restore->sizes);
    WordInto(table, "selectors", prefix, whose, &restore->selectors);
    WordInto(table, "signature", prefix, whose, &restore->signature);
    WordInto(table, "counters", prefix,
             {{"keep", RestoreOptions::Counters::kKeep}, {"reset", RestoreOptions::Counters::kReset}},
             &restore->counters);
    WordInto(table, "missing_tables", prefix,
             {{"start_empty", RestoreOptions::MissingTables::kStartEmpty},
              {"fail", RestoreOptions::MissingTables::kFail}},
             &restore->missing_tables);
    WordInto(table, "extra_tables", prefix,
             {{"fail", RestoreOptions::ExtraTables::kFail},
              {"drop", RestoreOptions::ExtraTables::kDrop},
              {"create", RestoreOptions::ExtraTables::kCreate}},
             &restore->extra_tables);
  }

  void ReadTables(const toml::node& node, ServerOptions* options) {
    const toml::array* const tables = node.as_array();
    if (tables == nullptr || !tables->is_homogeneous(toml::node_type::table)) {
      return Expected(node, "table", "tables as [[table]], with two brackets, each with a unique name");
    }
    for (const toml::node& entry : *tables) {
      TableOptions table;
      ReadTable(*entry.as_table(), &table);
      if (!problem_.ok()) return;
      for (const TableOptions& other : options->tables) {
        if (other.name != table.name) continue;
        const toml::node* const name = entry.as_table()->get("name");
        Problem(name != nullptr ? *name : entry, "key \"table.name\": there are two tables named " +
                                                     Quote(table.name) + "; each needs a unique name");
      }
      options->tables.push_back(std::move(table));
    }
  }

  void ReadTable(const toml::table& table, TableOptions* options) {
    const toml::node* const name_node = table.get("name");
    if (name_node == nullptr) {
      // The location of the first key is more useful than that of the table's brackets.
      return Problem(table, "key \"table.name\" is missing; expected a name, such as name = \"replay\"");
    }
    if (const auto name = String(*name_node, "table.name", "a name")) options->name = *name;
    if (options->name.empty()) Expected(*name_node, "table.name", "a name that is not empty");
    const std::string where = " of table " + Quote(options->name);
    CheckKeys(table, "",
              {"name", "kind", "sampler", "remover", "max_size", "max_times_sampled", "max_age", "limiter",
               "signature", "layout"},
              where);
    if (const toml::node* node = table.get("max_size")) {
      if (const auto size = Integer(*node, "table.max_size", 1, INT64_MAX)) options->max_size = *size;
    }
    if (const toml::node* node = table.get("kind")) {
      ReadKind(table, *node, options);
    } else {
      if (const toml::node* sampler = table.get("sampler")) {
        ReadSelector(*sampler, "table.sampler", &options->sampler);
      }
      if (const toml::node* remover = table.get("remover")) {
        ReadSelector(*remover, "table.remover", &options->remover);
      }
      if (const toml::node* times = table.get("max_times_sampled")) {
        if (const auto count = Integer(*times, "table.max_times_sampled", 0, INT32_MAX)) {
          options->max_times_sampled = static_cast<int32_t>(*count);
        }
      }
      if (const toml::node* limiter = table.get("limiter")) ReadLimiter(*limiter, &options->rate_limiter);
    }
    if (const toml::node* node = table.get("max_age")) {
      if (const auto age = Time(*node, "table.max_age")) options->max_age = *age;
    }
    if (const toml::node* node = table.get("signature")) {
      Result<Signature> signature = ReadSignature(*node, "table.signature", 1);
      if (signature.ok()) options->signature = *std::move(signature);
    }
    WordInto(table, "layout", "table.", {{"first", LayoutPolicy::kFirst}, {"any", LayoutPolicy::kAny}},
             &options->layout);
    if (problem_.ok()) {
      if (const Status status = options->Validate(); !status.ok())
        Problem(table, std::string(status.message()));
    }
  }

  void ReadRowTables(const toml::node& node, ServerOptions* options) {
    const toml::array* const tables = node.as_array();
    if (tables == nullptr || !tables->is_homogeneous(toml::node_type::table)) {
      return Expected(node, "row_table",
                      "row tables as [[row_table]], with two brackets, each with a unique name");
    }
    for (const toml::node& entry : *tables) {
      RowTableOptions table;
      ReadRowTable(*entry.as_table(), &table);
      if (!problem_.ok()) return;
      const auto has_name = [&](const auto& other) { return other.name == table.name; };
      if (std::ranges::any_of(options->row_tables, has_name) ||
          std::ranges::any_of(options->tables, has_name)) {
        Problem(*entry.as_table()->get("name"), "key \"row_table.name\": there are two tables named " +
                                                    Quote(table.name) + "; each needs a unique name");
      }
      options->row_tables.push_back(std::move(table));
    }
  }

  void ReadRowTable(const toml::table& table, RowTableOptions* options) {
    const toml::node* const name_node = table.get("name");
    if (name_node == nullptr) {
      return Problem(table,
                     "key \"row_table.name\" is missing; expected a name, such as name = \"rollouts\"");
    }
    if (const auto name = String(*name_node, "row_table.name", "a name")) options->name = *name;
    if (options->name.empty()) Expected(*name_node, "row_table.name", "a name that is not empty");
    CheckKeys(
        table, "",
        {"name", "max_rows", "group_size", "consumers", "staleness", "order", "max_running", "drop_consumed"},
        " of row table " + Quote(options->name));
    const auto count_into = [&](const toml::table& from, const char* key, const std::string& prefix,
                                int64_t least, int64_t* to) {
      if (const toml::node* node = from.get(key)) {
        if (const auto count = Integer(*node, prefix + key, least, INT64_MAX)) *to = *count;
      }
    };
    count_into(table, "max_rows", "row_table.", 1, &options->max_rows);
    count_into(table, "group_size", "row_table.", 0, &options->group_size);
    count_into(table, "max_running", "row_table.", 0, &options->max_running);
    WordInto(table, "order", "row_table.",
             {{"fifo", RowOrder::kFifo}, {"version", RowOrder::kVersion}, {"ready", RowOrder::kReady}},
             &options->order);
    if (const toml::node* node = table.get("drop_consumed")) {
      options->drop_consumed = Boolean(*node, "row_table.drop_consumed").value_or(true);
    }
    if (const toml::node* node = table.get("consumers")) {
      const toml::array* const names = node->as_array();
      if (names == nullptr)
        return Expected(*node, "row_table.consumers", "a list of names, such as [\"train\"]");
      for (const toml::node& each : *names) {
        if (const auto name = String(each, "row_table.consumers", "a name"))
          options->consumers.push_back(*name);
      }
    }
    if (const toml::node* node = table.get("staleness")) {
      const toml::table* const staleness = node->as_table();
      if (staleness == nullptr) {
        return Expected(*node, "row_table.staleness", "{ max_lag = 2, when_stale = \"drop\", batch = 64 }");
      }
      const std::string prefix = "row_table.staleness.";
      CheckKeys(*staleness, prefix, {"max_lag", "when_stale", "batch"}, "");
      if (staleness->get("max_lag") == nullptr) {
        return Problem(
            *node, "key \"row_table.staleness.max_lag\" is missing; expected a number, such as max_lag = 2");
      }
      StalenessOptions& to = options->staleness.emplace();
      count_into(*staleness, "max_lag", prefix, 0, &to.max_lag);
      count_into(*staleness, "batch", prefix, 0, &to.batch);
      WordInto(*staleness, "when_stale", prefix,
               {{"drop", WhenStale::kDrop}, {"keep", WhenStale::kKeep}, {"wait", WhenStale::kWait}},
               &to.when_stale);
    }
    if (!problem_.ok()) return;
    if (const Status status = options->Validate(); !status.ok())
      Problem(table, std::string(status.message()));
  }

  void ReadKind(const toml::table& table, const toml::node& node, TableOptions* options) {
    const auto kind = String(node, "table.kind", "\"queue\" or \"stack\"");
    if (!kind) return;
    if (*kind != "queue" && *kind != "stack") {
      return Expected(node, "table.kind", "\"queue\" or \"stack\"; leave the key out for others");
    }
    if (table.get("max_size") == nullptr) {
      return Problem(node,
                     "key \"table.max_size\" is missing; a " + *kind + " needs one, such as max_size = 1000");
    }
    for (const char* other : {"sampler", "remover", "max_times_sampled", "limiter"}) {
      if (const toml::node* extra = table.get(other)) {
        return Problem(*extra, "key " + Quote(std::string("table.") + other) + ": a " + *kind +
                                   " sets it itself; remove this key, or remove kind");
      }
    }
    *options = *kind == "queue" ? TableOptions::Queue(options->name, options->max_size)
                                : TableOptions::Stack(options->name, options->max_size);
  }

  void ReadSelector(const toml::node& node, const std::string& key, SelectorOptions* options) {
    if (const auto* text = node.as_string()) {
      Result<SelectorOptions> selector = ParseSelector(**text);
      if (Check(node, key, selector.status())) *options = *std::move(selector);
      return;
    }
    const toml::table* const table = node.as_table();
    if (table == nullptr) {
      return Expected(node, key,
                      "a selector, such as \"uniform\" or { kind = \"prioritized\", exponent = 0.8 }");
    }
    CheckKeys(*table, key + ".", {"kind", "exponent", "seed"}, "");
    const toml::node* const kind = table->get("kind");
    if (kind == nullptr) {
      return Problem(node, "key " + Quote(key + ".kind") + " is missing." + Suggest("", SelectorNames()));
    }
    const auto name = String(*kind, key + ".kind", "a selector, such as \"uniform\"");
    if (!name) return;
    Result<SelectorOptions> selector = ParseSelector(*name);
    if (!Check(*kind, key + ".kind", selector.status())) return;
    if (const toml::node* exponent = table->get("exponent")) {
      const std::optional<double> number = exponent->is_number() ? exponent->value<double>() : std::nullopt;
      if (!number || selector->kind != SelectorOptions::Kind::kPrioritized) {
        return Expected(*exponent, key + ".exponent",
                        number ? "no exponent with " + *name + ", which has none" : "a number, such as 0.8");
      }
      selector->priority_exponent = *number;
      if (!Check(*exponent, key + ".exponent", selector->Validate())) return;
    }
    if (const toml::node* seed = table->get("seed")) {
      if (const auto number = Integer(*seed, key + ".seed", 0, INT64_MAX)) {
        selector->seed = static_cast<uint64_t>(*number);
      }
    }
    *options = *std::move(selector);
  }

  void ReadLimiter(const toml::node& node, RateLimiterOptions* options) {
    LimiterChange change;
    if (const auto* text = node.as_string()) {
      Result<LimiterChange> parsed = ParseLimiter(**text);
      if (!Check(node, "table.limiter", parsed.status())) return;
      change = *parsed;
    } else if (const toml::table* table = node.as_table()) {
      for (const auto& [key, value] : *table) {
        const std::string name = "table.limiter." + std::string(key.str());
        std::string text;
        if (value.is_integer()) text = std::to_string(**value.as_integer());
        if (value.is_floating_point()) text = Format("%.17g", **value.as_floating_point());
        if (const Status status = change.Set(key.str(), text.empty() ? "?" : text); !status.ok()) {
          if (value.is_number())
            return Problem(value, "key " + Quote(name) + ": " + std::string(status.message()));
          if (std::ranges::find(LimiterKeys(), key.str()) == LimiterKeys().end()) {
            return ProblemAt(key.source().begin, std::string(status.message()));
          }
          return Expected(value, name, "a number");
        }
      }
    } else {
      return Expected(node, "table.limiter",
                      "a limiter, such as \"min_size=1000\" or { samples_per_insert = 4, min_size = 1000, "
                      "error_buffer = 100 }");
    }
    Result<RateLimiterOptions> limiter = change.ApplyTo(*options);
    if (Check(node, "table.limiter", limiter.status())) *options = *std::move(limiter);
  }

  // Reads tables as dicts, lists as lists and strings as tensors. Records an error in problem_ too.
  Result<Signature> ReadSignature(const toml::node& node, const std::string& key, size_t depth) {
    Result<Signature> made = Status::InvalidArgument("not read");
    if (depth > Signature::kMaxDepth) {
      made = Status::InvalidArgument("the structure is deeper than " + std::to_string(Signature::kMaxDepth));
    } else if (const auto* text = node.as_string()) {
      Result<TensorSpec> spec = ParseSpec(**text);
      made = spec.ok() ? Signature::Leaf(*std::move(spec)) : Result<Signature>(spec.status());
    } else if (const toml::table* table = node.as_table()) {
      std::vector<Signature::Field> fields;
      for (const auto& [name, child] : *table) {
        REVERB_ASSIGN_OR_RETURN(Signature field,
                                ReadSignature(child, key + "." + std::string(name.str()), depth + 1));
        fields.emplace_back(name.str(), std::move(field));
      }
      made = Signature::Dict(std::move(fields));
    } else if (const toml::array* list = node.as_array()) {
      std::vector<Signature> children;
      for (const toml::node& child : *list) {
        REVERB_ASSIGN_OR_RETURN(Signature element, ReadSignature(child, key, depth + 1));
        children.push_back(std::move(element));
      }
      made = Signature::List(std::move(children));
    } else {
      Expected(node, key, "a tensor, such as \"float32[84, 84]\", or a structure of these");
      return problem_;
    }
    if (!Check(node, key, made.status())) return problem_;
    return made;
  }

  const std::string path_;
  Status problem_;
};

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
  Reader reader(path);
  try {
    const toml::table root = toml::parse(*text, path);
    return reader.Read(root, options, log);
  } catch (const toml::parse_error& error) {
    return reader.At(error.source().begin, "this is no TOML: " + std::string(error.description()));
  }
}

}  // namespace reverb::program
