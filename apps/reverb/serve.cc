// `reverb serve`: serves tables as a process.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "config.h"
#include "exit_codes.h"
#include "log_output.h"
#include "notify.h"
#include "progress.h"
#include "reload.h"
#include "reverb/checkpoint.h"
#include "reverb/log.h"
#include "reverb/server.h"
#include "rows_view.h"
#include "signals.h"
#include "specs.h"
#include "terminal.h"
#include "text.h"
#include "tune_malloc.h"
#include "version.h"

namespace reverb::program {
namespace {

constexpr int kDefaultPort = 8000;
constexpr char kLoopback[] = "127.0.0.1";
constexpr int kDefaultAdminPort = 8001;

struct ServeOptions {
  std::string config;
  std::vector<std::string> tables;
  std::optional<std::string> host;
  std::optional<int> port;
  std::optional<std::string> max_bytes;
  std::optional<std::string> memory_limit;
  std::optional<std::string> storage_path;
  std::optional<std::string> storage_memory_limit;
  std::optional<std::string> storage_disk_limit;
  std::optional<std::string> checkpoint;
  std::optional<std::string> checkpoint_every;
  bool checkpoint_on_stop = false;
  std::string port_file;
  std::optional<std::string> admin_listen;
  std::string admin_port_file;
  std::optional<int> shard;
  std::optional<std::string> register_at;
  std::optional<std::string> advertise;
  std::optional<std::string> log_format;
  std::optional<std::string> log_level;
  ServerTls tls;
  std::string tokens_file;
  bool strict = false;
  bool check = false;
};

// What the flags and the file say.
struct ServeSettings {
  ServerOptions server;
  LogSettings log;
};

int Fail(int code, const std::string& text) {
  std::fprintf(stderr, "reverb serve: %s\n", text.c_str());
  return code;
}

// Flags override the file.
Status ApplyLogFlags(const ServeOptions& flags, LogSettings* log) {
  if (flags.log_format) {
    REVERB_ASSIGN_OR_RETURN(log->format, ParseLogFormat(*flags.log_format));
  }
  if (flags.log_level) {
    REVERB_ASSIGN_OR_RETURN(log->level, ParseLogLevel(*flags.log_level));
  }
  return Status::Ok();
}

// Reads the flags of the disk tier, which replace what the file says.
Status GatherStorage(const ServeOptions& flags, ServerOptions* options) {
  if (flags.storage_path) {
    if (!options->storage) options->storage.emplace();
    options->storage->path = *flags.storage_path;
  }
  for (const auto& [name, flag] : {std::pair("--storage-memory-limit", &flags.storage_memory_limit),
                                   std::pair("--storage-disk-limit", &flags.storage_disk_limit)}) {
    if (!*flag) continue;
    if (!options->storage) {
      return Status::InvalidArgument(std::string(name) + " needs --storage-path, or [storage] in the file");
    }
    const Result<int64_t> bytes = ParseBytes(**flag);
    if (!bytes.ok())
      return Status::InvalidArgument(std::string(name) + ": " + std::string(bytes.status().message()));
    if (*bytes == 0) {
      return Status::InvalidArgument(std::string(name) + ": " + Quote(**flag) +
                                     " is no limit; give a size above 0");
    }
    if (flag == &flags.storage_memory_limit) {
      options->storage->memory_limit = *bytes;
    } else {
      options->storage->disk_limit = *bytes;
    }
  }
  return Status::Ok();
}

Status GatherCheckpoint(const ServeOptions& flags, ServerOptions* options) {
  if (flags.checkpoint) {
    if (flags.checkpoint->empty())
      return Status::InvalidArgument("--checkpoint: expected the path of a folder");
    if (!options->checkpoint) options->checkpoint.emplace();
    options->checkpoint->path = *flags.checkpoint;
  }
  if (!options->checkpoint) {
    if (!flags.checkpoint_every && !flags.checkpoint_on_stop) return Status::Ok();
    return Status::InvalidArgument(
        std::string(flags.checkpoint_every ? "--checkpoint-every" : "--checkpoint-on-stop") +
        ": there is no folder for checkpoints; name one with --checkpoint PATH");
  }
  if (flags.checkpoint_every) {
    const Result<std::chrono::nanoseconds> every = ParseDuration(*flags.checkpoint_every);
    if (!every.ok()) {
      return Status::InvalidArgument("--checkpoint-every: " + std::string(every.status().message()));
    }
    if (every->count() == 0) return Status::InvalidArgument("--checkpoint-every: expected a time above 0");
    options->checkpoint->interval = *every;
  }
  if (flags.checkpoint_on_stop) options->checkpoint->on_stop = true;
  return options->checkpoint->Validate();
}

void GatherAdmin(const ServeOptions& flags, ServerOptions* options) {
  if (flags.admin_listen && *flags.admin_listen == "none") return options->admin.reset();
  if (flags.admin_listen) {
    if (!options->admin) options->admin.emplace();
    options->admin->listen = *flags.admin_listen;
    options->admin->any_port_if_taken = false;
  }
  if (!options->admin) return;
  // The default must not take the server's own port.
  if (options->admin->any_port_if_taken && options->port == kDefaultAdminPort) {
    options->admin->listen = std::string(kLoopback) + ":0";
  }
  options->admin->commit = Commit();
}

void GatherSecurity(const ServeOptions& flags, ServerOptions* options) {
  const auto override_with = [](const std::string& flag, std::string* path) {
    if (!flag.empty()) *path = flag;
  };
  if (!flags.tls.certificate.empty() || !flags.tls.key.empty() || !flags.tls.client_ca.empty()) {
    if (!options->tls) options->tls.emplace();
    override_with(flags.tls.certificate, &options->tls->certificate);
    override_with(flags.tls.key, &options->tls->key);
    override_with(flags.tls.client_ca, &options->tls->client_ca);
  }
  if (!flags.tokens_file.empty()) {
    if (!options->auth) options->auth.emplace();
    options->auth->tokens_file = flags.tokens_file;
  }
  options->strict = flags.strict;
}

Result<ServeSettings> Gather(const ServeOptions& flags) {
  ServeSettings settings;
  ServerOptions& options = settings.server;
  options.host = kLoopback;
  options.port = kDefaultPort;
  options.admin.emplace();
  options.admin->any_port_if_taken = true;
  if (!flags.config.empty()) REVERB_RETURN_IF_ERROR(ReadConfig(flags.config, &options, &settings.log));
  REVERB_RETURN_IF_ERROR(ApplyLogFlags(flags, &settings.log));
  for (const std::string& text : flags.tables) {
    Result<TableOptions> table = ParseTable(text);
    if (!table.ok()) return Status::InvalidArgument("--table " + std::string(table.status().message()));
    const auto has_name = [&](const auto& other) { return other.name == table->name; };
    if (std::ranges::any_of(options.tables, has_name) || std::ranges::any_of(options.row_tables, has_name)) {
      return Status::InvalidArgument("--table " + Quote(text) + ": there is a table " + Quote(table->name) +
                                     " already; each needs a unique name");
    }
    options.tables.push_back(*std::move(table));
  }
  if (flags.host) options.host = *flags.host;
  if (flags.port) options.port = *flags.port;
  if (flags.shard) options.shard = *flags.shard;
  if (flags.register_at) options.register_at = *flags.register_at;
  if (flags.advertise) options.advertised_address = *flags.advertise;
  if (flags.max_bytes) {
    const Result<int64_t> bytes = ParseBytes(*flags.max_bytes);
    if (!bytes.ok()) return Status::InvalidArgument("--max-bytes: " + std::string(bytes.status().message()));
    if (*bytes == 0) {
      return Status::InvalidArgument("--max-bytes: " + Quote(*flags.max_bytes) +
                                     " has no room for an item; give a size above 0, or leave the flag out "
                                     "for no bound");
    }
    options.store.max_bytes = *bytes;
  }
  GatherAdmin(flags, &options);
  if (flags.memory_limit) {
    const Result<int64_t> bytes = ParseBytes(*flags.memory_limit);
    if (!bytes.ok())
      return Status::InvalidArgument("--memory-limit: " + std::string(bytes.status().message()));
    options.memory_limit = *bytes;
  }
  REVERB_RETURN_IF_ERROR(GatherStorage(flags, &options));
  REVERB_RETURN_IF_ERROR(GatherCheckpoint(flags, &options));
  GatherSecurity(flags, &options);
  // An IPv6 address without its brackets.
  if (options.host.find(':') != std::string::npos && !options.host.starts_with('[')) {
    options.host = "[" + options.host + "]";
  }
  if (options.tables.empty() && options.row_tables.empty()) {
    return Status::InvalidArgument(
        flags.config.empty()
            ? "there is no table to serve. Name some:\n"
              "  reverb serve --table replay:uniform:fifo:1000000\n"
              "or describe them in a file:\n"
              "  reverb serve --config server.toml\n"
              "See `reverb serve --help`."
            : flags.config +
                  ": there is no table; expected at least one [[table]] or [[row_table]] with a name");
  }
  return settings;
}

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "[::1]" || host == "localhost";
}

// Warns if others can use or overhear the server. With --strict, the server does not start then.
void WarnAboutExposure(const ServerOptions& options, LogOutput* log) {
  const bool authenticates = options.auth || (options.tls && !options.tls->client_ca.empty());
  if (options.admin && !authenticates &&
      !IsLoopback(options.admin->listen.substr(0, options.admin->listen.rfind(':')))) {
    log->Write(
        LogLevel::kWarning,
        "everybody who reaches the admin port " + options.admin->listen +
            " can read the tables. Require tokens ([auth] tokens_file), or let it listen on 127.0.0.1. "
            "--strict refuses to start.",
        {{"event", "exposure"}, {"endpoint", options.admin->listen}});
  }
  if (IsLoopback(options.host)) return;
  const std::vector<LogField> fields = {{"event", "exposure"}, {"endpoint", options.host}};
  if (!authenticates) {
    log->Write(LogLevel::kWarning,
               "everybody who reaches " + options.host +
                   " can read, change and delete the tables. Require tokens ([auth] tokens_file, see `reverb "
                   "token --help`), or listen on 127.0.0.1. --strict refuses to start.",
               fields);
  }
  if (!options.tls) {
    log->Write(
        LogLevel::kWarning,
        std::string("data") + (options.auth ? " and tokens" : "") + " on the way to " + options.host +
            " can be read by others. Give the server a certificate ([tls]). --strict refuses to start.",
        fields);
  }
}

std::string Describe(const ServerOptions& options, const Paint& paint) {
  Columns columns;
  columns.AddColumn("TABLE");
  columns.AddColumn("SAMPLER");
  columns.AddColumn("REMOVER");
  columns.AddColumn("MAX SIZE", Columns::Align::kRight);
  columns.AddColumn("LIMITER");
  columns.AddColumn("SIGNATURE");
  for (const TableOptions& table : options.tables) {
    columns.AddRow({ShowName(table.name), ShowSelector(table.sampler), ShowSelector(table.remover),
                    ShowCount(table.max_size), ShowLimiter(table.rate_limiter),
                    table.signature ? ShowName(table.signature->ToString(), 60) : "any"});
  }
  std::string text = options.tables.empty() ? "" : columns.ToString(paint, "  ");
  if (!options.row_tables.empty()) {
    Columns rows;
    rows.AddColumn("ROW TABLE");
    rows.AddColumn("MAX ROWS", Columns::Align::kRight);
    rows.AddColumn("CONSUMERS");
    rows.AddColumn("SETTINGS");
    for (const RowTableOptions& table : options.row_tables) {
      rows.AddRow({ShowName(table.name), ShowCount(table.max_rows),
                   table.consumers.empty() ? "none" : ShowName(Join(table.consumers, ", "), 60),
                   ShowRowSettings(table)});
    }
    text += rows.ToString(paint, "  ");
  }
  if (options.tls) {
    text += std::string("  speaks TLS") +
            (options.tls->client_ca.empty() ? "\n" : "; clients need a certificate, too\n");
  }
  if (options.auth) text += "  clients need a token of " + ShowName(options.auth->tokens_file, 1000) + "\n";
  if (!options.register_at.empty()) text += "  registers in " + ShowName(options.register_at, 1000) + "\n";
  if (options.store.max_bytes) {
    text += "  at most " + ShowBytes(*options.store.max_bytes) + " of data; then " +
            (options.store.evict_when_full ? "inserts evict items" : "inserts wait") + "\n";
  }
  if (options.memory_limit) text += "  at most " + ShowBytes(*options.memory_limit) + " of memory\n";
  if (options.storage) {
    text += (options.storage->memory_limit
                 ? "  " + ShowBytes(*options.storage->memory_limit) + " of data in memory; the rest in "
                 : "  data that does not fit into memory in ") +
            ShowName(options.storage->path, 1000) +
            (options.storage->disk_limit ? ", in files of at most " + ShowBytes(*options.storage->disk_limit)
                                         : "") +
            "\n";
  }
  if (options.checkpoint) {
    std::string when = "when asked for";
    if (options.checkpoint->interval) when += ", every " + ShowDuration(*options.checkpoint->interval);
    if (options.checkpoint->on_stop) when += ", at the end";
    text += "  checkpoints in " + ShowName(options.checkpoint->path, 1000) + ": " + when + "; " +
            (options.checkpoint->keep_latest == 1
                 ? std::string("the latest is kept")
                 : "the latest " + ShowCount(options.checkpoint->keep_latest) + " are kept") +
            "\n";
  }
  return text;
}

// Writes atomically: another process may wait for the file. `flag`: names it in errors.
Status WritePortFile(const char* flag, const std::string& path, const std::string& port) {
  const std::string draft = path + ".new";
  {
    std::ofstream file(draft, std::ios::trunc);
    file << port << "\n";
    file.close();
    if (!file)
      return Status::Unavailable(std::string(flag) + " " + path +
                                 ": cannot be written: " + std::strerror(errno));
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    return Status::Unavailable(std::string(flag) + " " + path +
                               ": cannot be written: " + std::strerror(errno));
  }
  return Status::Ok();
}

// Raises the soft limit of file descriptors, of which each client needs one or more, to the hard limit. The
// usual soft limit of 1024 is for programs that use select().
void RaiseDescriptorLimit(LogOutput* log) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  log->Write(LogLevel::kWarning, "cannot raise the limit of file descriptors to " +
                                     std::to_string(limit.rlim_max) + ": " + std::strerror(errno));
}

// Blocks the signals that end or reload a server in all threads, so that one thread can wait for them.
class AwaitedSignals {
 public:
  AwaitedSignals() {
    sigemptyset(&signals_);
    for (const int number : numbers_) sigaddset(&signals_, number);
    pthread_sigmask(SIG_BLOCK, &signals_, &former_);
  }
  // Returns whether a signal that ends the server is pending.
  bool HasCome() const {
    sigset_t pending;
    sigpending(&pending);
    for (const int number : numbers_) {
      if (sigismember(&pending, number) == 1 && Ends(number)) return true;
    }
    return false;
  }
  // Waits for a signal that ends the server, and returns its name. Calls `every_second` meanwhile, and `reload`
  // after each SIGHUP, unless the terminal that the program was started from has gone. A second signal then ends
  // the program immediately.
  std::string Await(const std::function<void()>& every_second, const std::function<void()>& reload) {
    constexpr timespec kSecond{.tv_sec = 1, .tv_nsec = 0};
    int number = 0;
    while ((number = sigtimedwait(&signals_, nullptr, &kSecond)) < 0 || !Ends(number)) {
      if (number < 0 && errno == EAGAIN) every_second();
      if (number > 0) reload();
    }
    // A request to reload must not interrupt the last checkpoint.
    signal(SIGHUP, SIG_IGN);
    pthread_sigmask(SIG_SETMASK, &former_, nullptr);
    return number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : "SIGHUP";
  }

 private:
  bool Ends(int number) const { return number != SIGHUP || (had_terminal_ && !HasControllingTerminal()); }

  const std::vector<int> numbers_ = StopSignals();
  const bool had_terminal_ = HasControllingTerminal();
  sigset_t signals_;
  sigset_t former_;
};

int64_t CountTables(const Result<ServerInfo>& info) {
  return info.ok() ? static_cast<int64_t>(info->tables.size() + info->row_tables.size()) : 0;
}

// Returns "3 items", or "3 items and 5 rows" if there are row tables: of the tables in the options and of those loaded
// from a checkpoint.
std::string ShowContents(const Result<ServerInfo>& info) {
  if (!info.ok()) return "an unknown number of items";
  int64_t items = 0;
  int64_t rows = 0;
  for (const TableInfo& table : info->tables) items += table.current_size;
  for (const RowTableInfo& table : info->row_tables) rows += table.counts.rows;
  return ShowCount(items, "item") + (info->row_tables.empty() ? "" : " and " + ShowCount(rows, "row"));
}

// Returns the path of the latest complete checkpoint; empty if there is none.
std::string LatestCheckpoint(const std::string& folder) {
  std::string latest;
  if (const Result<std::vector<CheckpointEntry>> entries = ListCheckpoints(folder); entries.ok()) {
    for (const CheckpointEntry& entry : *entries) {
      if (entry.is_complete) latest = entry.path;
    }
  }
  return latest;
}

// Reads [log] of the file again. A pipe has no content the second time.
Result<std::string> ReloadLog(const ServeOptions& flags, LogOutput* log) {
  LogSettings settings;
  if (!flags.config.empty()) {
    struct stat status {};
    if (stat(flags.config.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
      return Status::InvalidArgument(flags.config + " is not a file that can be read again");
    }
    ServerOptions unused;
    REVERB_RETURN_IF_ERROR(ReadConfig(flags.config, &unused, &settings));
  }
  REVERB_RETURN_IF_ERROR(ApplyLogFlags(flags, &settings));
  log->Change(settings);
  return "level " + std::string(LogLevelName(settings.level)) +
         (settings.wait_after ? ", waits from " + ShowDuration(*settings.wait_after) : ", no waits");
}

// Reports the state of the server to people on standard output, or, where the log is JSON, as records of it.
class Announcer {
 public:
  explicit Announcer(LogOutput* log) : log_(log) {}
  void Say(const std::string& text, std::string_view message, std::vector<LogField> fields) const {
    if (log_->is_json()) return log_->Write(LogLevel::kInfo, message, fields);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  int Fail(int code, const std::string& text) const {
    if (!log_->is_json()) return program::Fail(code, text);
    log_->Write(LogLevel::kError, text);
    return code;
  }

 private:
  LogOutput* const log_;
};

// Returns the address of the admin page; empty if there is none.
std::string PageAddress(const Server& server, bool has_tls) {
  const std::string address = server.admin_address();
  if (address.empty()) return "";
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  const bool is_any = host == "[::]" || host == "0.0.0.0";
  return std::string(has_tls ? "https" : "http") + "://" + (is_any ? "localhost" : host) +
         address.substr(colon) + "/";
}

int Serve(const ServeOptions& flags) {
  AwaitedSignals signals;  // before threads start
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // beyond the limit of file sizes (ulimit -f), writes fail instead
  Result<ServeSettings> settings = Gather(flags);
  if (!settings.ok()) return Fail(kBadUsage, std::string(settings.status().message()));
  LogOutput log(settings->log);
  const Announcer announcer(&log);
  RaiseDescriptorLimit(&log);
  ServerOptions& options = settings->server;
  const Paint paint(HasColours(STDOUT_FILENO));
  const std::string description = Describe(options, paint);
  if (flags.check) {
    std::printf("%s is good. It would listen on %s:%d and serve\n%s",
                flags.config.empty() ? "The command line" : flags.config.c_str(), options.host.c_str(),
                *options.port, description.c_str());
    if (options.admin) std::printf("  admin page and metrics at %s\n", options.admin->listen.c_str());
    return kOk;
  }

  const std::string host = options.host;
  WarnAboutExposure(options, &log);
  const bool can_reload = options.tls || options.auth;
  const bool has_tls = options.tls.has_value();
  const std::optional<CheckpointOptions> checkpoint = options.checkpoint;
  bool has_admin_file = false;
  const auto remove_admin_file = [&] {
    if (has_admin_file) unlink(flags.admin_port_file.c_str());
  };
  if (options.admin && !flags.admin_port_file.empty()) {
    // Before a checkpoint is loaded: the port answers meanwhile.
    options.admin->on_listening = [&](const std::string& address) {
      has_admin_file = true;
      return WritePortFile("--admin-port-file", flags.admin_port_file,
                           address.substr(address.rfind(':') + 1));
    };
  }
  ServiceNotifier service;
  ProgressLine progress("loading");
  if (options.checkpoint) {
    options.checkpoint->restore.progress = [&](const CheckpointProgress& loaded) {
      progress.Show(loaded);
      service.Loading(loaded);
      if (!signals.HasCome()) return;
      // Nothing runs yet, and no data can be lost.
      progress.Clear();
      remove_admin_file();
      std::_Exit(announcer.Fail(kFailed, "stopped while a checkpoint was being loaded"));
    };
  }
  Result<Server> server = Server::Start(std::move(options));
  progress.Clear();
  if (!server.ok()) {
    remove_admin_file();
    const bool is_usage = server.status().code() == StatusCode::kInvalidArgument;
    return announcer.Fail(is_usage ? kBadUsage : kFailed, std::string(server.status().message()));
  }
  const Client client = server->in_process_client();
  const Result<ServerInfo> started = client.Info();  // once: it visits all rows of row tables
  std::string loaded;
  if (const std::optional<std::string> path = server->loaded_checkpoint()) {
    loaded = "  loaded " + ShowContents(started) + " from " + ShowName(*path, 1000) + "\n";
  }
  if (!flags.port_file.empty()) {
    if (const Status status = WritePortFile("--port-file", flags.port_file, std::to_string(server->port()));
        !status.ok()) {
      return announcer.Fail(kFailed, std::string(status.message()));
    }
  }
  const std::string address = host + ":" + std::to_string(server->port());
  const std::string admin_page = PageAddress(*server, has_tls);
  const std::string ready =
      "listens on " + address + " and serves " + ShowCount(CountTables(started), "table");
  announcer.Say(
      "reverb " + Version() + " listens on " + paint.Bold(address) +
          (IsLoopback(host) ? " (this machine only; --host '[::]' listens on all interfaces)" : "") + "\n" +
          description +
          (admin_page.empty() ? "" : "  admin page and metrics at " + paint.Bold(admin_page) + "\n") +
          loaded +
          paint.Dim("Ready. See its state with `reverb info " +
                    (IsLoopback(host) ? host : std::string("HOST")) + ":" + std::to_string(server->port()) +
                    "`; stop it with Ctrl-C or SIGTERM.") +
          "\n",
      "reverb " + Version() + " " + ready,
      {{"event", "start"}, {"endpoint", address}, {"admin", admin_page}, {"version", Version()}});
  service.Ready(ready);

  ReloadHooks hooks;
  hooks.Add("log", [&] { return ReloadLog(flags, &log); });
  if (can_reload) {
    hooks.Add("certificates and tokens", [&]() -> Result<std::string> {
      REVERB_RETURN_IF_ERROR(server->Reload());
      return std::string("from their files");
    });
  }
  const auto start = std::chrono::steady_clock::now();
  HeapTrimmer heap_trimmer;
  const std::string signal_name = signals.Await(
      [&] {
        log.Tick();
        heap_trimmer.Observe(server->live_bytes());
      },
      [&] {
        service.Reloading();
        hooks.Run(&log);
        service.Ready(ready);
      });
  announcer.Say(signal_name + ": stopping; waiting calls end with an error\n",
                signal_name + ": stopping; waiting calls end with an error", {{"event", "stop"}});
  const bool saves = checkpoint && checkpoint->on_stop;
  service.Stopping(saves ? "writing the last checkpoint" : "stopping");
  const std::string before = saves ? LatestCheckpoint(checkpoint->path) : "";
  server->Stop();
  const std::string contents = ShowContents(client.Info());
  if (!flags.port_file.empty()) unlink(flags.port_file.c_str());
  remove_admin_file();
  const std::string stopped = "Stopped after " + ShowDuration(std::chrono::steady_clock::now() - start) +
                              ". The tables held " + contents + ".";
  announcer.Say(stopped + "\n", stopped, {});
  if (!saves) return kOk;
  const std::string saved = LatestCheckpoint(checkpoint->path);
  if (saved == before) {
    return announcer.Fail(kFailed, "the last checkpoint could not be written; see the error above");
  }
  announcer.Say("Saved as " + saved + "\n", "Saved as " + saved, {{"path", saved}});
  return kOk;
}

}  // namespace

Command AddServe(CLI::App* program) {
  const auto flags = std::make_shared<ServeOptions>();
  CLI::App* const app = program->add_subcommand("serve", "Serve tables until stopped");
  app->add_option("--config", flags->config, "A TOML file that describes tables, ports and limits")
      ->type_name("FILE");
  app->add_option(
         "--table", flags->tables,
         "A table as NAME:SAMPLER:REMOVER:MAX_SIZE[:LIMITER], NAME:queue:MAX_SIZE or NAME:stack:MAX_SIZE, "
         "each with :layout=any to accept items of any layout; may be repeated. Selectors: " +
             Join(SelectorNames(), ", ") +
             "; prioritized=0.8 sets the exponent. A limiter is KEY=VALUE,...: " + Join(LimiterKeys(), ", "))
      ->type_name("TABLE")
      ->allow_extra_args(false);
  app->add_option("--host", flags->host,
                  "The address to listen on (default: 127.0.0.1, this machine only; [::] is all interfaces)")
      ->type_name("HOST");
  app->add_option("--port", flags->port, "The port; 0 picks a free one (default: 8000)")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65535));
  app->add_option("--port-file", flags->port_file,
                  "Write the port to this file once clients can connect; removed at exit (default: the "
                  "environment variable REVERB_PORT_FILE; none)")
      ->type_name("FILE")
      ->envname("REVERB_PORT_FILE");
  app->add_option(
         "--admin-listen", flags->admin_listen,
         "The address of the admin port, with the page and metrics; port 0 picks a free one, none opens "
         "no port (default: 127.0.0.1:8001, or any port if that is taken)")
      ->type_name("HOST:PORT");
  app->add_option("--admin-port-file", flags->admin_port_file,
                  "Write the admin port to this file; removed at exit")
      ->type_name("FILE");
  app->add_option("--shard", flags->shard,
                  "Identifies this server among several that clients use as one (default: that of the "
                  "checkpoint, or a random one)")
      ->type_name("N")
      ->check(CLI::Range(1, 65535));
  app->add_option("--register", flags->register_at,
                  "A folder, file:///path, in which clients of that address find the server")
      ->type_name("ADDRESS");
  app->add_option(
         "--advertise", flags->advertise,
         "With --register: the address that clients find there (default: this machine's name and the "
         "port, or the host if it is not [::])")
      ->type_name("HOST:PORT");
  app->add_option("--max-bytes", flags->max_bytes,
                  "Bound on the data of all tables, such as 4GiB; above it inserts wait")
      ->type_name("SIZE");
  app->add_option("--memory-limit", flags->memory_limit,
                  "Bound on the memory of the server, such as 16GiB (default: 80 % of the memory of the "
                  "machine, or of "
                  "the process's control group)")
      ->type_name("SIZE");
  app->add_option(
         "--storage-path", flags->storage_path,
         "A folder on a fast disk: data that was not used lately moves there, and back when it is sampled")
      ->type_name("PATH");
  app->add_option(
         "--storage-memory-limit", flags->storage_memory_limit,
         "With --storage-path: how much data stays in memory, such as 16GiB (default: three quarters of "
         "what the memory limit of the server leaves for data)")
      ->type_name("SIZE");
  app->add_option("--storage-disk-limit", flags->storage_disk_limit,
                  "With --storage-path: how much space the files may take (default: 80 % of the free space)")
      ->type_name("SIZE");
  app->add_option("--checkpoint", flags->checkpoint,
                  "A folder for checkpoints: loads the latest one, and lets clients request new ones")
      ->type_name("PATH");
  app->add_option("--checkpoint-every", flags->checkpoint_every,
                  "Write a checkpoint periodically, such as every 15min, in addition to requested ones")
      ->type_name("TIME");
  app->add_flag("--checkpoint-on-stop", flags->checkpoint_on_stop,
                "Write a checkpoint when the server stops");
  app->add_option("--log-format", flags->log_format,
                  "The format of the log on standard error: " + Join(LogFormatNames(), " or ") +
                      "; json is one object per line (default: text)")
      ->type_name("FORMAT")
      ->check(CLI::IsMember(LogFormatNames()));
  app->add_option("--log-level", flags->log_level,
                  "The least level that is logged: " + Join(LogLevelNames(), ", ") + " (default: info)")
      ->type_name("LEVEL")
      ->check(CLI::IsMember(LogLevelNames()));
  app->add_option("--tls-certificate", flags->tls.certificate,
                  "Speak TLS with this certificate, in PEM; read again when it changes")
      ->type_name("FILE");
  app->add_option("--tls-key", flags->tls.key, "The key of the certificate")->type_name("FILE");
  app->add_option("--tls-client-ca", flags->tls.client_ca,
                  "Require certificates of clients that one of these authorities has signed")
      ->type_name("FILE");
  app->add_option("--tokens-file", flags->tokens_file,
                  "Require a token of this file, which `reverb token` changes; read again when it changes")
      ->type_name("FILE");
  app->add_flag("--strict", flags->strict,
                "Refuse to listen on addresses that other machines reach without tokens (or certificates of "
                "clients) and "
                "TLS");
  app->add_flag("--check", flags->check, "Check the configuration, print it, and exit");
  app->footer(
      "Examples:\n"
      "  reverb serve --table replay:uniform:fifo:1000000\n"
      "  reverb serve --table replay:prioritized=0.8:fifo:1000000:min_size=1000 --table jobs:queue:100\n"
      "  reverb serve --config server.toml --port 0 --port-file /tmp/port\n"
      "  reverb serve --table replay --checkpoint /data/run7 --checkpoint-every 15min --checkpoint-on-stop\n"
      "\n"
      "SIGTERM and SIGINT stop the server cleanly: waiting calls end with an error, and it exits with 0. A\n"
      "second signal ends it immediately. Data that is not in a checkpoint is lost. SIGHUP makes it read\n"
      "[log] of the configuration file, certificates and tokens again; if its terminal was closed, it stops. "
      "Signals that were "
      "ignored\n"
      "at the start stay ignored, such as SIGHUP under nohup.");
  return {app, [flags] { return Serve(*flags); }};
}

}  // namespace reverb::program
