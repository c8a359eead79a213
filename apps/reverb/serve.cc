// `reverb serve`: serves tables as a process.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

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
#include "notify.h"
#include "progress.h"
#include "reverb/checkpoint.h"
#include "reverb/log.h"
#include "reverb/server.h"
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

struct ServeOptions {
  std::string config;
  std::vector<std::string> tables;
  std::optional<std::string> host;
  std::optional<int> port;
  std::optional<std::string> max_bytes;
  std::optional<std::string> checkpoint;
  std::optional<std::string> checkpoint_every;
  bool checkpoint_on_stop = false;
  std::string port_file;
  std::optional<int> shard;
  std::optional<std::string> register_at;
  std::optional<std::string> advertise;
  bool check = false;
};

int Fail(int code, const std::string& text) {
  std::fprintf(stderr, "reverb serve: %s\n", text.c_str());
  return code;
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

Result<ServerOptions> Gather(const ServeOptions& flags) {
  ServerOptions options;
  options.host = kLoopback;
  options.port = kDefaultPort;
  if (!flags.config.empty()) REVERB_RETURN_IF_ERROR(ReadConfig(flags.config, &options));
  for (const std::string& text : flags.tables) {
    Result<TableOptions> table = ParseTable(text);
    if (!table.ok()) return Status::InvalidArgument("--table " + std::string(table.status().message()));
    for (const TableOptions& other : options.tables) {
      if (other.name == table->name) {
        return Status::InvalidArgument("--table " + Quote(text) + ": there is a table " + Quote(table->name) +
                                       " already; each needs a unique name");
      }
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
  REVERB_RETURN_IF_ERROR(GatherCheckpoint(flags, &options));
  // An IPv6 address without its brackets.
  if (options.host.find(':') != std::string::npos && !options.host.starts_with('[')) {
    options.host = "[" + options.host + "]";
  }
  if (options.tables.empty()) {
    return Status::InvalidArgument(
        flags.config.empty()
            ? "there is no table to serve. Name some:\n"
              "  reverb serve --table replay:uniform:fifo:1000000\n"
              "or describe them in a file:\n"
              "  reverb serve --config server.toml\n"
              "See `reverb serve --help`."
            : flags.config + ": there is no table; expected at least one [[table]] with a name");
  }
  return options;
}

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "[::1]" || host == "localhost";
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
  std::string text = columns.ToString(paint, "  ");
  if (!options.register_at.empty()) text += "  registers in " + ShowName(options.register_at, 1000) + "\n";
  if (options.store.max_bytes) {
    text += "  at most " + ShowBytes(*options.store.max_bytes) + " of data; then " +
            (options.store.evict_when_full ? "inserts evict items" : "inserts wait") + "\n";
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

// Writes atomically: another process may wait for the file.
Status WritePortFile(const std::string& path, int port) {
  const std::string draft = path + ".new";
  {
    std::ofstream file(draft, std::ios::trunc);
    file << port << "\n";
    file.close();
    if (!file)
      return Status::Unavailable("--port-file " + path + ": cannot be written: " + std::strerror(errno));
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    return Status::Unavailable("--port-file " + path + ": cannot be written: " + std::strerror(errno));
  }
  return Status::Ok();
}

void LogToStderr() {
  SetLogSink([](LogLevel level, std::string_view message) {
    if (level == LogLevel::kDebug) return;
    const char* const name = level == LogLevel::kInfo      ? "info"
                             : level == LogLevel::kWarning ? "warning"
                                                           : "error";
    // Replaces a progress line on a terminal.
    static const char* const begin = IsTerminal(STDERR_FILENO) ? "\r\033[K" : "";
    std::fprintf(stderr, "%sreverb serve: %s: %.*s\n", begin, name, static_cast<int>(message.size()),
                 message.data());
  });
}

// Raises the soft limit of file descriptors, of which each client needs one or more, to the hard limit. The
// usual soft limit of 1024 is for programs that use select().
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  std::fprintf(stderr, "reverb serve: warning: cannot raise the limit of file descriptors to %llu: %s\n",
               static_cast<unsigned long long>(limit.rlim_max), std::strerror(errno));
}

// Blocks the signals that end a server in all threads, so that one thread can wait for them.
class AwaitedSignals {
 public:
  AwaitedSignals() {
    sigemptyset(&signals_);
    for (const int number : numbers_) sigaddset(&signals_, number);
    pthread_sigmask(SIG_BLOCK, &signals_, &former_);
  }
  // Returns whether a signal is pending.
  bool HasCome() const {
    sigset_t pending;
    sigpending(&pending);
    for (const int number : numbers_) {
      if (sigismember(&pending, number) == 1) return true;
    }
    return false;
  }
  // Waits for a signal, calls `every_second` meanwhile, and returns its name. A second signal then ends the
  // program immediately.
  std::string Await(const std::function<void()>& every_second) {
    constexpr timespec kSecond{.tv_sec = 1, .tv_nsec = 0};
    int number = 0;
    while ((number = sigtimedwait(&signals_, nullptr, &kSecond)) < 0) {
      if (errno == EAGAIN) every_second();
    }
    pthread_sigmask(SIG_SETMASK, &former_, nullptr);
    return number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : "SIGHUP";
  }

 private:
  const std::vector<int> numbers_ = StopSignals();
  sigset_t signals_;
  sigset_t former_;
};

// Counts the items of the tables in the options and of those loaded from a checkpoint.
std::vector<std::string> TableNames(const Server& server) {
  std::vector<std::string> names;
  if (const Result<ServerInfo> info = server.in_process_client().Info(); info.ok()) {
    for (const TableInfo& table : info->tables) names.push_back(table.name);
  }
  return names;
}

int64_t CountItems(const Server& server, const std::vector<std::string>& tables) {
  int64_t items = 0;
  for (const std::string& name : tables) {
    if (const Result<Table> table = server.table(name); table.ok()) items += table->size();
  }
  return items;
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

int Serve(const ServeOptions& flags) {
  AwaitedSignals signals;  // before threads start
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // beyond the limit of file sizes (ulimit -f), writes fail instead
  RaiseDescriptorLimit();
  LogToStderr();
  Result<ServerOptions> options = Gather(flags);
  if (!options.ok()) return Fail(kBadUsage, std::string(options.status().message()));
  const Paint paint(HasColours(STDOUT_FILENO));
  const std::string description = Describe(*options, paint);
  if (flags.check) {
    std::printf("%s is good. It would listen on %s:%d and serve\n%s",
                flags.config.empty() ? "The command line" : flags.config.c_str(), options->host.c_str(),
                *options->port, description.c_str());
    return kOk;
  }

  const std::string host = options->host;
  const std::optional<CheckpointOptions> checkpoint = options->checkpoint;
  ServiceNotifier service;
  ProgressLine progress("loading");
  if (options->checkpoint) {
    options->checkpoint->restore.progress = [&](const CheckpointProgress& loaded) {
      progress.Show(loaded);
      service.Loading(loaded);
      if (!signals.HasCome()) return;
      // Nothing runs yet, and no data can be lost.
      progress.Clear();
      std::_Exit(Fail(kFailed, "stopped while a checkpoint was being loaded"));
    };
  }
  Result<Server> server = Server::Start(*std::move(options));
  progress.Clear();
  if (!server.ok()) {
    const bool is_usage = server.status().code() == StatusCode::kInvalidArgument;
    return Fail(is_usage ? kBadUsage : kFailed, std::string(server.status().message()));
  }
  const std::vector<std::string> tables = TableNames(*server);
  std::string loaded;
  if (const std::optional<std::string> path = server->loaded_checkpoint()) {
    loaded = "  loaded " + ShowCount(CountItems(*server, tables), "item") + " from " + ShowName(*path, 1000) +
             "\n";
  }
  if (!flags.port_file.empty()) {
    if (const Status status = WritePortFile(flags.port_file, server->port()); !status.ok()) {
      return Fail(kFailed, std::string(status.message()));
    }
  }
  std::printf(
      "reverb %s listens on %s%s\n%s%s%s\n", Version().c_str(),
      paint.Bold(host + ":" + std::to_string(server->port())).c_str(),
      IsLoopback(host) ? " (this machine only; --host '[::]' listens on all interfaces)" : "",
      description.c_str(), loaded.c_str(),
      paint
          .Dim("Ready. See its state with `reverb info " + (IsLoopback(host) ? host : std::string("HOST")) +
               ":" + std::to_string(server->port()) + "`; stop it with Ctrl-C or SIGTERM.")
          .c_str());
  std::fflush(stdout);
  service.Ready("listens on " + host + ":" + std::to_string(server->port()) + " and serves " +
                ShowCount(static_cast<int64_t>(tables.size()), "table"));

  const auto start = std::chrono::steady_clock::now();
  HeapTrimmer heap_trimmer;
  const std::string signal_name = signals.Await([&, client = server->in_process_client()] {
    if (const Result<ServerInfo> info = client.Info(); info.ok()) heap_trimmer.Observe(info->live_bytes);
  });
  std::printf("%s: stopping; waiting calls end with an error\n", signal_name.c_str());
  std::fflush(stdout);
  const bool saves = checkpoint && checkpoint->on_stop;
  service.Stopping(saves ? "writing the last checkpoint" : "stopping");
  const std::string before = saves ? LatestCheckpoint(checkpoint->path) : "";
  server->Stop();
  const int64_t items = CountItems(*server, tables);
  if (!flags.port_file.empty()) unlink(flags.port_file.c_str());
  std::printf("Stopped after %s. The tables held %s.\n",
              ShowDuration(std::chrono::steady_clock::now() - start).c_str(),
              ShowCount(items, "item").c_str());
  if (!saves) return kOk;
  const std::string saved = LatestCheckpoint(checkpoint->path);
  if (saved == before) return Fail(kFailed, "the last checkpoint could not be written; see the error above");
  std::printf("Saved as %s\n", saved.c_str());
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
  app->add_option("--checkpoint", flags->checkpoint,
                  "A folder for checkpoints: loads the latest one, and lets clients request new ones")
      ->type_name("PATH");
  app->add_option("--checkpoint-every", flags->checkpoint_every,
                  "Write a checkpoint periodically, such as every 15min, in addition to requested ones")
      ->type_name("TIME");
  app->add_flag("--checkpoint-on-stop", flags->checkpoint_on_stop,
                "Write a checkpoint when the server stops");
  app->add_flag("--check", flags->check, "Check the configuration, print it, and exit");
  app->footer(
      "Examples:\n"
      "  reverb serve --table replay:uniform:fifo:1000000\n"
      "  reverb serve --table replay:prioritized=0.8:fifo:1000000:min_size=1000 --table jobs:queue:100\n"
      "  reverb serve --config server.toml --port 0 --port-file /tmp/port\n"
      "  reverb serve --table replay --checkpoint /data/run7 --checkpoint-every 15min --checkpoint-on-stop\n"
      "\n"
      "SIGTERM, SIGINT and SIGHUP stop the server cleanly: waiting calls end with an error, and it exits "
      "with\n"
      "0. A second signal ends it immediately. Data that is not in a checkpoint is lost. Signals that were\n"
      "ignored at the start stay ignored, such as SIGHUP under nohup.");
  return {app, [flags] { return Serve(*flags); }};
}

}  // namespace reverb::program
