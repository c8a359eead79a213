#include "config_sections.h"

#include <utility>

namespace reverb::program {
namespace {

void ReadLocal(ConfigReader& in, const toml::node& node, LocalAccess* local) {
  if (const auto* flag = node.as_boolean()) {
    *local = **flag ? LocalAccess::kSameUser : LocalAccess::kOff;
  } else if (const auto* text = node.as_string(); text != nullptr && **text == "any user") {
    *local = LocalAccess::kAnyUser;
  } else {
    in.Expected(node, "server.local", "true, false or \"any user\"");
  }
}

// Reads a limit in bytes, at least `least`.
void LimitInto(ConfigReader& in, const toml::table& table, const std::string& name, uint64_t* to,
               int64_t least = 1) {
  const toml::node* const node = table.get(name);
  if (node == nullptr) return;
  const std::optional<int64_t> bytes = in.Bytes(*node, "limits." + name);
  if (bytes && *bytes < least) in.Expected(*node, "limits." + name, "a size above 0");
  if (bytes) *to = static_cast<uint64_t>(*bytes);
}

// The limits of all clients of one name.
void ReadClientLimits(ConfigReader& in, const toml::table& table, UsageLimits* limits) {
  const std::string prefix = "limits.client.";
  in.CheckKeys(table, prefix, {"max_streams", "max_bytes_per_second", "max_waiting_bytes"}, "");
  in.CountInto(table, "max_streams", prefix, 1, &limits->max_streams);
  const auto bytes_into = [&](const char* name, std::optional<int64_t>* to) {
    const toml::node* const node = table.get(name);
    if (node == nullptr) return;
    *to = in.Bytes(*node, prefix + name);
    if (*to == 0) in.Expected(*node, prefix + name, "a size above 0; leave the key out for no limit");
  };
  bytes_into("max_bytes_per_second", &limits->max_bytes_per_second);
  bytes_into("max_waiting_bytes", &limits->max_waiting_bytes);
}

void ReadRestore(ConfigReader& in, const toml::table& table, RestoreOptions* restore) {
  const std::string prefix = "checkpoint.restore.";
  in.CheckKeys(
      table, prefix,
      {"rate_limiter", "sizes", "selectors", "signature", "counters", "missing_tables", "extra_tables"}, "");
  using Settings = RestoreOptions::Settings;
  const std::vector<std::pair<std::string, Settings>> whose = {{"saved", Settings::kSaved},
                                                               {"given", Settings::kGiven}};
  in.WordInto(table, "rate_limiter", prefix, whose, &restore->rate_limiter);
  in.WordInto(table, "sizes", prefix, whose, &restore->sizes);
  in.WordInto(table, "selectors", prefix, whose, &restore->selectors);
  in.WordInto(table, "signature", prefix, whose, &restore->signature);
  in.WordInto(table, "counters", prefix,
              {{"keep", RestoreOptions::Counters::kKeep}, {"reset", RestoreOptions::Counters::kReset}},
              &restore->counters);
  in.WordInto(table, "missing_tables", prefix,
              {{"start_empty", RestoreOptions::MissingTables::kStartEmpty},
               {"fail", RestoreOptions::MissingTables::kFail}},
              &restore->missing_tables);
  in.WordInto(table, "extra_tables", prefix,
              {{"fail", RestoreOptions::ExtraTables::kFail},
               {"drop", RestoreOptions::ExtraTables::kDrop},
               {"create", RestoreOptions::ExtraTables::kCreate}},
              &restore->extra_tables);
}

}  // namespace

void ReadServer(ConfigReader& in, const toml::table& table, const ConfigTarget& to) {
  in.CheckKeys(table, "server.",
               {"host", "port", "local", "local_path", "keepalive_timeout", "max_bytes", "memory_limit",
                "when_full", "shard"},
               "");
  if (const toml::node* node = table.get("host")) {
    const auto host =
        in.String(*node, "server.host", "an address to listen on, such as \"127.0.0.1\" or \"[::]\"");
    if (host && host->empty()) {
      in.Expected(*node, "server.host", "an address to listen on, such as \"127.0.0.1\" or \"[::]\"");
    }
    if (host) to.options->host = *host;
  }
  if (const toml::node* node = table.get("port")) {
    if (const auto port = in.Integer(*node, "server.port", 0, 65535))
      to.options->port = static_cast<int>(*port);
  }
  if (const toml::node* node = table.get("shard")) {
    if (const auto shard = in.Integer(*node, "server.shard", 1, 65535))
      to.options->shard = static_cast<int>(*shard);
  }
  if (const toml::node* node = table.get("local")) ReadLocal(in, *node, &to.options->local);
  if (const toml::node* node = table.get("local_path")) {
    const std::string what = "the path of a socket, such as \"/run/reverb/replay.sock\"";
    const auto path = in.String(*node, "server.local_path", what);
    if (path && path->empty()) in.Expected(*node, "server.local_path", what);
    if (path) to.options->local_path = *path;
  }
  if (const toml::node* node = table.get("keepalive_timeout")) {
    const auto time = in.Time(*node, "server.keepalive_timeout");
    if (time && *time < std::chrono::seconds(1)) {
      in.Expected(*node, "server.keepalive_timeout", "a time of at least 1 s");
    }
    if (time) to.options->keepalive_timeout = *time;
  }
  if (const toml::node* node = table.get("max_bytes")) {
    if (const auto bytes = in.Bytes(*node, "server.max_bytes")) {
      if (*bytes == 0)
        in.Expected(*node, "server.max_bytes", "a size above 0; leave the key out for no bound");
      to.options->store.max_bytes = *bytes;
    }
  }
  if (const toml::node* node = table.get("memory_limit")) {
    if (const auto bytes = in.Bytes(*node, "server.memory_limit")) to.options->memory_limit = *bytes;
  }
  if (const toml::node* node = table.get("when_full")) {
    const auto policy = in.String(*node, "server.when_full", "\"wait\" or \"evict\"");
    if (policy && *policy != "wait" && *policy != "evict") {
      in.Expected(*node, "server.when_full", "\"wait\" or \"evict\"");
    }
    to.options->store.evict_when_full = policy == "evict";
  }
}

void ReadAdmin(ConfigReader& in, const toml::table& table, const ConfigTarget& to) {
  in.CheckKeys(table, "admin.", {"listen", "hosts"}, "");
  AdminOptions admin = to.options->admin.value_or(AdminOptions());
  if (const toml::node* node = table.get("hosts")) {
    const toml::array* const names = node->as_array();
    if (names == nullptr)
      return in.Expected(*node, "admin.hosts", "a list of names, such as [\"replay.example.org\"]");
    for (const toml::node& each : *names) {
      if (const auto name = in.String(each, "admin.hosts", "the name of a host"))
        admin.hosts.push_back(*name);
    }
  }
  if (const toml::node* node = table.get("listen")) {
    const auto listen =
        in.String(*node, "admin.listen", "an address, such as \"127.0.0.1:8001\", or \"none\"");
    if (!listen) return;
    if (*listen == "none") return to.options->admin.reset();
    admin.listen = *listen;
    admin.any_port_if_taken = false;
  }
  to.options->admin = std::move(admin);
}

void ReadLog(ConfigReader& in, const toml::table& table, const ConfigTarget& to) {
  in.CheckKeys(table, "log.", {"format", "level", "wait_after"}, "");
  if (const toml::node* node = table.get("format")) {
    if (const auto word = in.String(*node, "log.format", Join(LogFormatNames(), " or "))) {
      const Result<LogFormat> format = ParseLogFormat(*word);
      if (in.Check(*node, "log.format", format.status())) to.log->format = *format;
    }
  }
  if (const toml::node* node = table.get("level")) {
    if (const auto word = in.String(*node, "log.level", "one of " + Join(LogLevelNames(), ", "))) {
      const Result<LogLevel> level = ParseLogLevel(*word);
      if (in.Check(*node, "log.level", level.status())) to.log->level = *level;
    }
  }
  if (const toml::node* node = table.get("wait_after")) {
    const auto* const word = node->as_string();
    if (word != nullptr && **word == "never") {
      to.log->wait_after.reset();
    } else if (const auto time = in.Time(*node, "log.wait_after")) {
      to.log->wait_after = *time;
    }
  }
}

void ReadLimits(ConfigReader& in, const toml::table& table, const ConfigTarget& to) {
  ServerLimits* const limits = &to.options->limits;
  in.CheckKeys(table, "limits.",
               {"max_message_bytes", "max_chunk_bytes", "max_item_bytes", "max_decoded_item_bytes",
                "insert_window_bytes", "max_waiting_items", "max_window_bytes", "sample_window_bytes",
                "max_streams", "disconnected_session_ttl", "max_disconnected_bytes", "sequence_number_ttl",
                "max_remembered_writers", "max_pinned_bytes", "stalled_client_timeout", "client"},
               "");
  LimitInto(in, table, "max_message_bytes", &limits->max_message_bytes);
  LimitInto(in, table, "max_chunk_bytes", &limits->max_chunk_bytes);
  LimitInto(in, table, "max_item_bytes", &limits->max_item_bytes);
  LimitInto(in, table, "max_decoded_item_bytes", &limits->max_decoded_item_bytes);
  LimitInto(in, table, "insert_window_bytes", &limits->insert_window_bytes);
  LimitInto(in, table, "max_window_bytes", &limits->max_window_bytes);
  LimitInto(in, table, "sample_window_bytes", &limits->sample_window_bytes);
  LimitInto(in, table, "max_disconnected_bytes", &limits->max_disconnected_bytes, /*least=*/0);
  LimitInto(in, table, "max_pinned_bytes", &limits->max_pinned_bytes, /*least=*/0);
  in.CountInto(table, "max_waiting_items", "limits.", 1, &limits->max_waiting_items);
  in.CountInto(table, "max_streams", "limits.", 1, &limits->max_streams);
  if (const toml::node* node = table.get("disconnected_session_ttl")) {
    if (const auto time = in.Time(*node, "limits.disconnected_session_ttl"))
      limits->disconnected_session_ttl = *time;
  }
  if (const toml::node* node = table.get("sequence_number_ttl")) {
    if (const auto time = in.Time(*node, "limits.sequence_number_ttl")) limits->sequence_number_ttl = *time;
  }
  in.CountInto(table, "max_remembered_writers", "limits.", 0, &limits->max_remembered_writers);
  if (const toml::node* node = table.get("stalled_client_timeout")) {
    const auto time = in.Time(*node, "limits.stalled_client_timeout");
    if (time && time->count() == 0) in.Expected(*node, "limits.stalled_client_timeout", "a time above 0");
    if (time) limits->stalled_client_timeout = *time;
  }
  if (const toml::node* node = table.get("client")) {
    if (const toml::table* client = in.Table(*node, "limits.client"))
      ReadClientLimits(in, *client, &limits->client);
  }
}

void ReadCheckpoint(ConfigReader& in, const toml::table& table, const ConfigTarget& to) {
  const std::string prefix = "checkpoint.";
  in.CheckKeys(table, prefix,
               {"path", "fallback_path", "interval", "on_stop", "keep_latest", "load_latest", "restore"}, "");
  CheckpointOptions checkpoint;
  const toml::node* const path = table.get("path");
  if (path == nullptr) {
    return in.Problem(table,
                      "key \"checkpoint.path\" is missing; expected a folder, such as path = \"/data/run7\"");
  }
  for (const char* name : {"path", "fallback_path"}) {
    const toml::node* const node = table.get(name);
    if (node == nullptr) continue;
    const std::optional<std::string> text = in.String(*node, prefix + name, "the path of a folder");
    if (text && text->empty()) in.Expected(*node, prefix + name, "the path of a folder");
    if (text && node == path) checkpoint.path = *text;
    if (text && node != path) checkpoint.fallback_path = *text;
  }
  if (const toml::node* node = table.get("interval")) {
    checkpoint.interval = in.Time(*node, "checkpoint.interval");
    if (checkpoint.interval && checkpoint.interval->count() == 0) {
      in.Expected(*node, "checkpoint.interval",
                  "a time above 0; leave the key out for no periodic checkpoints");
    }
  }
  if (const toml::node* node = table.get("keep_latest")) {
    if (const auto count = in.Integer(*node, "checkpoint.keep_latest", 1, INT32_MAX)) {
      checkpoint.keep_latest = static_cast<int32_t>(*count);
    }
  }
  if (const toml::node* node = table.get("on_stop")) {
    checkpoint.on_stop = in.Boolean(*node, "checkpoint.on_stop").value_or(false);
  }
  if (const toml::node* node = table.get("load_latest")) {
    checkpoint.load_latest = in.Boolean(*node, "checkpoint.load_latest").value_or(true);
  }
  if (const toml::node* node = table.get("restore")) {
    if (const toml::table* restore = in.Table(*node, "checkpoint.restore")) {
      ReadRestore(in, *restore, &checkpoint.restore);
    }
  }
  to.options->checkpoint = std::move(checkpoint);
}

void ReadStorage(ConfigReader& in, const toml::table& table, const ConfigTarget& to) {
  in.CheckKeys(table, "storage.", {"path", "memory_limit", "disk_limit"}, "");
  // A section without any key is like none, so that the file that shows every key can have it.
  if (table.empty()) return;
  StorageOptions storage;
  const std::string what = "a folder on a fast disk, such as \"/nvme/replay\"";
  if (const toml::node* node = table.get("path")) {
    const auto path = in.String(*node, "storage.path", what);
    if (path && path->empty()) in.Expected(*node, "storage.path", what);
    storage.path = path.value_or("");
  } else {
    in.Problem(table, "key \"storage.path\" is missing; expected " + what);
  }
  const auto limit_into = [&](const char* name, std::optional<int64_t>* limit) {
    const toml::node* const node = table.get(name);
    if (node == nullptr) return;
    const std::string key = std::string("storage.") + name;
    *limit = in.Bytes(*node, key);
    if (*limit == 0) in.Expected(*node, key, "a size above 0");
  };
  limit_into("memory_limit", &storage.memory_limit);
  limit_into("disk_limit", &storage.disk_limit);
  to.options->storage = std::move(storage);
}

void ReadRegister(ConfigReader& in, const toml::table& table, const ConfigTarget& to) {
  in.CheckKeys(table, "register.", {"at", "address"}, "");
  const std::string at = "a folder, such as \"file:///shared/run42\"";
  if (const toml::node* node = table.get("at")) {
    const auto folder = in.String(*node, "register.at", at);
    if (folder && !folder->starts_with("file:///")) in.Expected(*node, "register.at", at);
    if (folder) to.options->register_at = *folder;
  }
  if (const toml::node* node = table.get("address")) {
    const auto address = in.String(*node, "register.address", "an address, such as \"replay-0:8000\"");
    if (address) to.options->advertised_address = *address;
  }
}

}  // namespace reverb::program
