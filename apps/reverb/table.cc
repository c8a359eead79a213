// `reverb table add`, `change`, `resize` and `remove`: the tables of a running server.
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "exit_codes.h"
#include "remote.h"
#include "specs.h"
#include "text.h"

namespace reverb::program {
namespace {

struct TableCommand {
  Remote remote;
  std::string table;  // its name; for `add`, its description
  std::optional<std::string> max_size;
  std::optional<int32_t> max_times_sampled;
  std::optional<std::string> max_age;
  std::optional<std::string> max_bytes;
  std::optional<std::string> limiter;
  // `add` of a row table.
  int64_t group_size = 0;
  std::vector<std::string> consumers = {};
  std::string order = "fifo";
  std::optional<int64_t> max_lag;
  std::string when_stale = "drop";
  int64_t rows_per_version = 0;
  int64_t max_running = 0;
  bool keep_consumed = false;
  bool exist_ok = false;
  bool yes = false;
};

// "none", or a time.
Result<std::chrono::nanoseconds> ParseAge(const std::string& text) {
  if (text == "none") return std::chrono::nanoseconds(0);
  const Result<std::chrono::nanoseconds> age = ParseDuration(text);
  if (age.ok() && *age > std::chrono::nanoseconds(0)) return age;
  return Status::InvalidArgument("--max-age: expected a time such as 30s or \"5 min\", or none; got " +
                                 Quote(text));
}

// "none", or a size.
Result<int64_t> ParseMaxBytes(const std::string& text) {
  if (text == "none") return 0;
  const Result<int64_t> bytes = ParseBytes(text);
  if (bytes.ok() && *bytes > 0) return bytes;
  return Status::InvalidArgument("--max-bytes: expected a size such as 4GiB, or none; got " + Quote(text));
}

Result<TableChanges> ParseChanges(const TableCommand& command, const RateLimiterOptions& limiter) {
  TableChanges changes{.max_times_sampled = command.max_times_sampled};
  if (command.max_size) {
    const Result<int64_t> size = ParseCount(*command.max_size);
    if (!size.ok()) return Status::InvalidArgument("max size: " + std::string(size.status().message()));
    changes.max_size = *size;
  }
  if (command.max_age) {
    REVERB_ASSIGN_OR_RETURN(changes.max_age, ParseAge(*command.max_age));
  }
  if (command.max_bytes) {
    REVERB_ASSIGN_OR_RETURN(changes.max_bytes, ParseMaxBytes(*command.max_bytes));
  }
  if (command.limiter) {
    const Result<LimiterChange> change = ParseLimiter(*command.limiter);
    if (!change.ok()) return Status::InvalidArgument("--limiter: " + std::string(change.status().message()));
    REVERB_ASSIGN_OR_RETURN(changes.rate_limiter, change->ApplyTo(limiter));
  }
  return changes;
}

// Parses NAME:rows[:MAX_ROWS]. Returns nothing for another description.
Result<std::optional<RowTableOptions>> ParseRowTable(const TableCommand& command) {
  const size_t colon = command.table.find(':');
  if (colon == std::string::npos) return std::optional<RowTableOptions>();
  const std::string rest = command.table.substr(colon + 1);
  if (rest != "rows" && !rest.starts_with("rows:")) return std::optional<RowTableOptions>();
  if (command.max_times_sampled || command.max_age || command.max_bytes || command.limiter) {
    return Status::InvalidArgument(
        "a row table has no --max-times-sampled, --max-age, --max-bytes and --limiter; `reverb table add "
        "--help` lists "
        "its options");
  }
  RowTableOptions options{.name = command.table.substr(0, colon),
                          .group_size = command.group_size,
                          .consumers = command.consumers,
                          .max_running = command.max_running,
                          .drop_consumed = !command.keep_consumed};
  if (rest.size() > 5) {
    const Result<int64_t> rows = ParseCount(rest.substr(5));
    if (!rows.ok()) return Status::InvalidArgument("max rows: " + std::string(rows.status().message()));
    options.max_rows = *rows;
  }
  for (const RowOrder order : {RowOrder::kFifo, RowOrder::kVersion, RowOrder::kReady}) {
    if (command.order == RowOrderName(order)) options.order = order;
  }
  if (command.max_lag) {
    StalenessOptions& staleness = options.staleness.emplace();
    staleness.max_lag = *command.max_lag;
    staleness.batch = command.rows_per_version;
    for (const WhenStale when : {WhenStale::kDrop, WhenStale::kKeep, WhenStale::kWait}) {
      if (command.when_stale == WhenStaleName(when)) staleness.when_stale = when;
    }
  }
  REVERB_RETURN_IF_ERROR(options.Validate());
  return std::optional(std::move(options));
}

int AddRowTable(const TableCommand& command, const RowTableOptions& options) {
  const Remote& remote = command.remote;
  const Result<Client> client = remote.Connect();
  if (!client.ok()) return remote.Fail(client.status());
  if (const Status status = client->CreateRowTable(options, command.exist_ok, remote.wait()); !status.ok()) {
    return remote.Fail(status);
  }
  std::printf(
      "Row table %s is there. It lasts until the server stops, and in its checkpoints; server.toml is not "
      "changed.\n",
      Quote(options.name).c_str());
  return kOk;
}

int AddOne(const TableCommand& command) {
  const Remote& remote = command.remote;
  const Result<std::optional<RowTableOptions>> rows = ParseRowTable(command);
  if (!rows.ok()) return remote.Fail(rows.status());
  if (*rows) return AddRowTable(command, **rows);
  Result<TableOptions> options = ParseTable(command.table);
  if (!options.ok()) return remote.Fail(options.status());
  const Result<TableChanges> changes = ParseChanges(command, options->rate_limiter);
  if (!changes.ok()) return remote.Fail(changes.status());
  changes->ApplyTo(&*options);
  const Result<Client> client = remote.Connect();
  if (!client.ok()) return remote.Fail(client.status());
  if (const Status status = client->CreateTable(*options, command.exist_ok, remote.wait()); !status.ok()) {
    return remote.Fail(status);
  }
  std::printf(
      "Table %s is there. It lasts until the server stops, and in its checkpoints; server.toml is not "
      "changed.\n",
      Quote(options->name).c_str());
  return kOk;
}

int RemoveOne(const TableCommand& command) {
  const Remote& remote = command.remote;
  const Result<RemoteTable> target = remote.FindAny(command.table);
  if (!target.ok()) return remote.Fail(target.status());
  const std::string items = target->rows ? ShowCount(target->rows->counts.rows, "row")
                                         : ShowCount(target->table.current_size, "item");
  if (!remote.MayChange(command.yes, "Remove table " + Quote(command.table) + " with its " + items +
                                         " from " + remote.address + "?")) {
    return kNotConfirmed;
  }
  const Status status = target->rows ? target->client.RemoveRowTable(command.table, remote.wait())
                                     : target->client.RemoveTable(command.table, remote.wait());
  if (!status.ok()) return remote.Fail(status);
  std::printf("Table %s and its %s are removed.\n", Quote(command.table).c_str(), items.c_str());
  return kOk;
}

// Returns whether the table may have items older than `age`. Looks at the first items of a table, and assumes it of
// one with more.
Result<bool> MayHaveOlder(const RemoteTable& target, std::chrono::nanoseconds age, const WaitOptions& wait) {
  const TableInfo& table = target.table;
  constexpr int64_t kMaxItems = 1000;
  if (table.current_size == 0) return false;
  if (table.current_size > kMaxItems || target.server.now_nanos == 0) return true;
  uint64_t cursor = 0;
  do {
    REVERB_ASSIGN_OR_RETURN(const auto items, target.client.Inspect(table.name, kMaxItems, &cursor, wait));
    for (const SampledTrajectory& item : items) {
      if (target.server.now_nanos - item.inserted_at_nanos() >= age.count()) return true;
    }
  } while (cursor != 0);
  return false;
}

// Returns the question to confirm before the change; empty if it removes no items.
Result<std::string> QuestionBefore(const TableCommand& command, const RemoteTable& target,
                                   const TableChanges& changes) {
  const TableInfo& table = target.table;
  const std::string where = " of table " + Quote(command.table) + " on " + command.remote.address;
  const int64_t evicted = table.current_size - changes.max_size.value_or(table.current_size);
  std::string question;
  if (evicted > 0) question = "Evict " + ShowCount(evicted, "item") + where;
  // The table may hold less: chunks that items share count for each of them.
  const int64_t most = changes.max_bytes.value_or(0);
  if (question.empty() && most > 0 && most < table.referenced_bytes) {
    question = "Evict items" + where + ", whose data may be larger than " + ShowBytes(most);
  }
  const std::chrono::nanoseconds age = changes.max_age.value_or(std::chrono::nanoseconds(0));
  const bool is_shorter = age.count() > 0 && (table.max_age_nanos == 0 || age.count() < table.max_age_nanos);
  if (is_shorter) {
    REVERB_ASSIGN_OR_RETURN(const bool removes, MayHaveOlder(target, age, command.remote.wait()));
    if (removes) {
      question += question.empty() ? "Remove items" + where + ", which has " +
                                         ShowCount(table.current_size, "item") + ", that are"
                                   : ", and remove others that are";
      question += " older than " + ShowDuration(age);
    }
  }
  return question.empty() ? question : question + "?";
}

int ChangeOne(const TableCommand& command) {
  const Remote& remote = command.remote;
  const Result<RemoteTable> target = remote.Find(command.table);
  if (!target.ok()) return remote.Fail(target.status());
  const Result<TableChanges> changes = ParseChanges(command, target->table.rate_limiter);
  if (!changes.ok()) return remote.Fail(changes.status());
  if (changes->empty()) {
    return remote.Fail(Status::InvalidArgument(
        "there is nothing to change; give --max-size, --max-times-sampled, --max-age or --limiter"));
  }
  // Without --yes, only a change that removes items needs a confirmation.
  std::string question;
  if (!command.yes) {
    Result<std::string> asked = QuestionBefore(command, *target, *changes);
    if (!asked.ok()) return remote.Fail(asked.status());
    question = *std::move(asked);
  }
  if (!remote.MayChange(question.empty(), question)) return kNotConfirmed;
  if (const Status status = target->client.ChangeTable(command.table, *changes, remote.wait());
      !status.ok()) {
    return remote.Fail(status);
  }
  std::printf("Table %s is changed, also in later checkpoints of the server; server.toml is not.\n",
              Quote(command.table).c_str());
  return kOk;
}

struct Part {
  CLI::App* app;
  std::shared_ptr<TableCommand> command;
};

Part AddPart(CLI::App* parent, const char* name, const char* description) {
  const auto command = std::make_shared<TableCommand>();
  CLI::App* const app = parent->add_subcommand(name, description);
  command->remote.AddTo(app);
  command->remote.command = "table " + std::string(name);
  return {app, command};
}

void AddRowOptions(const Part& part) {
  TableCommand& command = *part.command;
  part.app->add_option("--group-size", command.group_size, "Row tables: rows of a group; 0: no groups")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  part.app->add_option("--consumers", command.consumers, "Row tables: their names, separated by commas")
      ->delimiter(',')
      ->type_name("NAMES");
  part.app->add_option("--order", command.order, "Row tables: fifo, version or ready")
      ->check(CLI::IsMember({"fifo", "version", "ready"}))
      ->type_name("ORDER");
  part.app->add_option("--max-lag", command.max_lag, "Row tables: versions until a row is stale")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  part.app->add_option("--when-stale", command.when_stale, "Row tables: drop, keep or wait")
      ->check(CLI::IsMember({"drop", "keep", "wait"}))
      ->type_name("WHAT");
  part.app
      ->add_option("--rows-per-version", command.rows_per_version, "Row tables: what the trainer consumes")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  part.app
      ->add_option("--max-running", command.max_running, "Row tables: the largest number of reserved rows")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  part.app->add_flag("--keep-consumed", command.keep_consumed,
                     "Row tables: keep rows that all consumers have consumed");
}

void AddLimits(const Part& part) {
  part.app
      ->add_option("--max-times-sampled", part.command->max_times_sampled,
                   "Remove an item with its N-th sample; 0: never")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  part.app
      ->add_option("--max-age", part.command->max_age,
                   "Remove items this long after they were inserted, such as 30s or \"5 min\"; none: never")
      ->type_name("TIME");
  part.app
      ->add_option("--max-bytes", part.command->max_bytes,
                   "Evict items when the data of the table is larger, such as 4GiB; none: no bound")
      ->type_name("SIZE");
  part.app
      ->add_option(
          "--limiter", part.command->limiter,
          "KEY=VALUE, several of them separated by commas, or none. Keys: " + Join(LimiterKeys(), ", "))
      ->type_name("LIMITER");
}

}  // namespace

Command AddTables(CLI::App* program) {
  CLI::App* const app = program->add_subcommand("table", "Add, change and remove tables of a running server");
  app->require_subcommand(1);

  const Part add = AddPart(app, "add", "Add a table to a running server");
  add.app
      ->add_option("SPEC", add.command->table,
                   "The table as NAME:SAMPLER:REMOVER:MAX_SIZE[:LIMITER], NAME:queue:MAX_SIZE or "
                   "NAME:stack:MAX_SIZE; a row table as NAME:rows:MAX_ROWS; trailing parts may be left out")
      ->required()
      ->type_name("");
  AddLimits(add);
  AddRowOptions(add);
  add.app->add_flag("--exist-ok", add.command->exist_ok,
                    "A table of that name is no error if it has these settings");
  add.app->footer(
      "Examples:\n"
      "  reverb table add localhost:8000 evaluation:uniform:fifo:100000\n"
      "  reverb table add localhost:8000 jobs:queue:100 --max-age 10min\n"
      "  reverb table add localhost:8000 rollouts:rows:100000 --group-size 8 --consumers logprob,train "
      "--max-lag 2\n"
      "\n"
      "Clients can use the table at once. Checkpoints contain it, and a server that loads one has it again.");

  const Part change = AddPart(app, "change", "Change the limits of a table");
  AddTableName(change.app, &change.command->table);
  change.app->add_option("--max-size", change.command->max_size, "The largest number of items")
      ->type_name("N");
  AddLimits(change);
  change.app->add_flag("-y,--yes", change.command->yes, "Do not ask for confirmation");
  change.app->footer(
      "Examples:\n"
      "  reverb table change localhost:8000 replay --max-size 2000000 --max-age 1h\n"
      "  reverb table change localhost:8000 jobs --max-size 200 --limiter queue=200\n"
      "\n"
      "Other settings stay unchanged. Callers that no longer have to wait continue immediately. Asks for\n"
      "confirmation if a smaller size evicts items, or a shorter age may remove some. Checkpoints keep the "
      "change;\n"
      "server.toml does not have it.");

  const Part resize = AddPart(app, "resize", "Change the size of a table");
  AddTableName(resize.app, &resize.command->table);
  resize.app->add_option("MAX_SIZE", resize.command->max_size, "The largest number of items")
      ->required()
      ->type_name("");
  resize.app->add_flag("-y,--yes", resize.command->yes, "Do not ask for confirmation");
  resize.app->footer(
      "Example:\n"
      "  reverb table resize localhost:8000 replay 2000000\n"
      "\n"
      "The remover evicts items that no longer fit, after a confirmation. `reverb table change` sets more.");

  const Part remove = AddPart(app, "remove", "Remove a table with its items or rows");
  AddTableName(remove.app, &remove.command->table);
  remove.app->add_flag("-y,--yes", remove.command->yes, "Do not ask for confirmation");
  remove.app->footer(
      "Example:\n"
      "  reverb table remove localhost:8000 evaluation\n"
      "\n"
      "Calls that wait for the table fail. Asks for confirmation unless --yes is given. Cannot be undone.");

  app->footer(
      "Example:\n"
      "  reverb table add localhost:8000 evaluation:uniform:fifo:100000\n"
      "\n"
      "`reverb table COMMAND --help` explains a command.");
  return {app, [add, change, resize, remove] {
            if (add.app->parsed()) return AddOne(*add.command);
            if (change.app->parsed()) return ChangeOne(*change.command);
            if (resize.app->parsed()) return ChangeOne(*resize.command);
            return RemoveOne(*remove.command);
          }};
}

}  // namespace reverb::program
