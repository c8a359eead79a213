// `reverb set`, `reverb reset` and `reverb delete`: change a running server, after a confirmation.
#include <charconv>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "exit_codes.h"
#include "remote.h"
#include "reverb/rows.h"
#include "specs.h"
#include "text.h"

namespace reverb::program {
namespace {

struct ChangeOptions {
  Remote remote;
  std::string table;
  std::string what;                // `set` only
  std::vector<std::string> words;  // of the limiter, or keys
  bool yes = false;
};

int SetLimiter(const ChangeOptions& options) {
  const Remote& remote = options.remote;
  const Result<LimiterChange> change = ParseLimiter(Join(options.words, " "));
  if (!change.ok()) return remote.Fail(change.status());
  const Result<RemoteTable> target = remote.Find(options.table);
  if (!target.ok()) return remote.Fail(target.status());
  const Result<RateLimiterOptions> limiter = change->ApplyTo(target->table.rate_limiter);
  if (!limiter.ok()) return remote.Fail(limiter.status());
  std::printf("table %s\n  from  %s\n  to    %s\n", Quote(options.table).c_str(),
              target->table.rate_limiter.ToString().c_str(), limiter->ToString().c_str());
  std::fflush(stdout);
  if (!remote.MayChange(options.yes,
                        "Set the limiter of table " + Quote(options.table) + " on " + remote.address + "?")) {
    return kNotConfirmed;
  }
  if (const Status status = target->client.SetRateLimiter(options.table, *limiter, remote.wait());
      !status.ok()) {
    return remote.Fail(status);
  }
  std::printf("Set, also in later checkpoints of the server; server.toml is not changed.\n");
  return kOk;
}

int ResetRows(const ChangeOptions& options, const RemoteTable& target) {
  const Remote& remote = options.remote;
  if (!remote.MayChange(options.yes, "Drop all " + ShowCount(target.rows->counts.rows, "row") +
                                         " of row table " + Quote(options.table) + " on " + remote.address +
                                         "?")) {
    return kNotConfirmed;
  }
  const Result<Rows> rows = target.client.RowTable(options.table);
  if (!rows.ok()) return remote.Fail(rows.status());
  const Result<int64_t> deleted = rows->DeleteWhere("true", remote.wait());
  if (!deleted.ok()) return remote.Fail(deleted.status());
  std::printf("Row table %s is empty; %s removed. Its version and counters stay.\n",
              Quote(options.table).c_str(), ShowCount(*deleted, "row").c_str());
  return kOk;
}

int Reset(const ChangeOptions& options) {
  const Remote& remote = options.remote;
  const Result<RemoteTable> target = remote.FindAny(options.table);
  if (!target.ok()) return remote.Fail(target.status());
  if (target->rows) return ResetRows(options, *target);
  const std::string items = ShowCount(target->table.current_size, "item");
  if (!remote.MayChange(options.yes, "Drop all " + items + " of table " + Quote(options.table) + " on " +
                                         remote.address + "?")) {
    return kNotConfirmed;
  }
  if (const Status status = target->client.Reset(options.table, remote.wait()); !status.ok()) {
    return remote.Fail(status);
  }
  std::printf("Table %s is empty; %s removed.\n", Quote(options.table).c_str(), items.c_str());
  return kOk;
}

Result<std::vector<uint64_t>> ParseKeys(const std::vector<std::string>& words) {
  std::vector<uint64_t> keys;
  for (const std::string& word : words) {
    uint64_t key = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), key);
    if (error != std::errc() || end != word.data() + word.size()) {
      return Status::InvalidArgument(
          "expected the key of an item, a whole number as `reverb peek` shows it; got " + Quote(word));
    }
    keys.push_back(key);
  }
  return keys;
}

int ReportDeleted(const char* noun, int64_t deleted, int64_t count, const std::string& table, int64_t left) {
  std::printf("Deleted %s; table %s holds %s now.\n", ShowCount(deleted, noun).c_str(), Quote(table).c_str(),
              ShowCount(left).c_str());
  if (deleted == count) return kOk;
  std::fprintf(stderr, "reverb delete: %s not there\n",
               (ShowCount(count - deleted, "key") + (count - deleted == 1 ? " was" : " were")).c_str());
  return kFailed;
}

int DeleteRows(const ChangeOptions& options, const RemoteTable& target) {
  const Remote& remote = options.remote;
  const auto count = static_cast<int64_t>(options.words.size());
  if (!remote.MayChange(options.yes, "Delete " + ShowCount(count, "row") + " of row table " +
                                         Quote(options.table) + " on " + remote.address + "?")) {
    return kNotConfirmed;
  }
  const Result<Rows> rows = target.client.RowTable(options.table);
  if (!rows.ok()) return remote.Fail(rows.status());
  const Result<int64_t> deleted = rows->Delete(options.words, remote.wait());
  if (!deleted.ok()) return remote.Fail(deleted.status());
  const Result<RowTableInfo> after = rows->Info(remote.wait());
  if (!after.ok()) return remote.Fail(after.status());
  return ReportDeleted("row", *deleted, count, options.table, after->counts.rows);
}

int Delete(const ChangeOptions& options) {
  const Remote& remote = options.remote;
  const Result<RemoteTable> target = remote.FindAny(options.table);
  if (!target.ok()) return remote.Fail(target.status());
  if (target->rows) return DeleteRows(options, *target);
  const Result<std::vector<uint64_t>> keys = ParseKeys(options.words);
  if (!keys.ok()) return remote.Fail(keys.status());
  const auto count = static_cast<int64_t>(keys->size());
  if (!remote.MayChange(options.yes, "Delete " + ShowCount(count, "item") + " of table " +
                                         Quote(options.table) + " on " + remote.address + "?")) {
    return kNotConfirmed;
  }
  if (const Status status = target->client.Delete(options.table, *keys, remote.wait()); !status.ok()) {
    return remote.Fail(status);
  }
  const Result<ServerInfo> server = target->client.Info(remote.wait());
  if (!server.ok()) return remote.Fail(server.status());
  const Result<TableInfo> after = FindTable(*server, options.table);
  if (!after.ok()) return remote.Fail(after.status());
  // Other clients may delete items at the same time: report no more than were requested.
  const int64_t deleted = std::min(count, after->explicit_deletes - target->table.explicit_deletes);
  return ReportDeleted("item", deleted, count, options.table, after->current_size);
}

CLI::App* Add(CLI::App* program, const char* name, const char* description, ChangeOptions* options) {
  CLI::App* const app = program->add_subcommand(name, description);
  options->remote.AddTo(app);
  AddTableName(app, &options->table);
  app->add_flag("-y,--yes", options->yes, "Do not ask for confirmation");
  return app;
}

}  // namespace

Command AddSet(CLI::App* program) {
  const auto options = std::make_shared<ChangeOptions>();
  CLI::App* const app = Add(program, "set", "Change the limiter of a table", options.get());
  app->add_option("WHAT", options->what, "What to set: limiter")
      ->required()
      ->check(CLI::IsMember({"limiter"}))
      ->type_name("");
  app->add_option("VALUE", options->words,
                  "KEY=VALUE, several of them, or none. Keys: " + Join(LimiterKeys(), ", "))
      ->required()
      ->type_name("");
  app->footer(
      "Examples:\n"
      "  reverb set localhost:8000 replay limiter min_size=1000\n"
      "  reverb set localhost:8000 replay limiter samples_per_insert=4 min_size=1000 error_buffer=100\n"
      "  reverb set localhost:8000 jobs limiter queue=50 --yes\n"
      "  reverb set localhost:8000 replay limiter none\n"
      "\n"
      "Other settings stay unchanged. error_buffer sets both bounds of the cursor, at that distance from\n"
      "samples_per_insert * min_size; min_diff and max_diff set them separately; queue=N (or stack=N) "
      "allows\n"
      "at most N items that were not sampled; none removes all limits. Callers that no longer have to wait\n"
      "continue immediately.");
  return {app, [options] { return SetLimiter(*options); }};
}

Command AddReset(CLI::App* program) {
  const auto options = std::make_shared<ChangeOptions>();
  CLI::App* const app =
      Add(program, "reset", "Drop all items of a table, or all rows of a row table", options.get());
  app->footer(
      "Example:\n"
      "  reverb reset localhost:8000 replay\n"
      "\n"
      "Resets the table's counters too; a row table keeps its version and counters. Asks for confirmation "
      "unless --yes is given. Cannot be undone.");
  return {app, [options] { return Reset(*options); }};
}

Command AddDelete(CLI::App* program) {
  const auto options = std::make_shared<ChangeOptions>();
  CLI::App* const app =
      Add(program, "delete", "Delete items or rows of a table by their keys", options.get());
  app->add_option("KEY", options->words, "Keys of items or rows, as `reverb peek` shows them")
      ->required()
      ->type_name("");
  app->footer(
      "Example:\n"
      "  reverb delete localhost:8000 replay 11843091270534230861\n"
      "\n"
      "Asks for confirmation unless --yes is given. Reports the number of unknown keys; the exit code is "
      "then 1.");
  return {app, [options] { return Delete(*options); }};
}

}  // namespace reverb::program
