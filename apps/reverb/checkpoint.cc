// `reverb checkpoint`: reads checkpoints without a server, and makes a running server write one.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_view.h"
#include "command.h"
#include "exit_codes.h"
#include "items_view.h"
#include "json.h"
#include "progress.h"
#include "remote.h"
#include "reverb/checkpoint.h"
#include "rows_view.h"
#include "terminal.h"
#include "text.h"

namespace reverb::program {
namespace {

struct CheckpointCommand {
  std::string name = {};  // "checkpoint verify"
  std::string path = {};
  std::string target = {};  // of an import
  std::string items_of = {};
  int64_t n = 10;
  int64_t values = 8;
  bool json = false;
  Remote remote = {};
};

int Fail(const CheckpointCommand& command, const Status& status) {
  std::fprintf(stderr, "reverb %s: %s\n", command.name.c_str(), ShowName(status.message(), 2000).c_str());
  switch (status.code()) {
    case StatusCode::kNotFound:
      return kNotFound;
    case StatusCode::kInvalidArgument:
      return kBadUsage;
    default:
      return kFailed;
  }
}

// --- inspect ---

Status PrintRows(const CheckpointReader& reader, const RowTableInfo& table,
                 const CheckpointCommand& command) {
  const RowsView view{.table = table.settings.name, .values = command.values};
  const Paint paint(HasColours(STDOUT_FILENO));
  REVERB_ASSIGN_OR_RETURN(CheckpointRows rows, reader.Rows(table.settings.name));
  int64_t shown = 0;
  for (; shown < command.n; ++shown) {
    REVERB_ASSIGN_OR_RETURN(const RowBatch batch, rows.Next(1));
    if (batch.rows().empty()) break;
    const RowInfo& row = batch.rows().front();
    REVERB_ASSIGN_OR_RETURN(const std::string text,
                            command.json ? view.ToJson(row, batch) : view.ToText(row, batch, paint));
    std::printf("%s\n", text.c_str());
  }
  if (!command.json) {
    std::printf("%s of row table %s, which holds %s\n", ShowCount(shown, "row").c_str(),
                Quote(table.settings.name).c_str(), ShowCount(table.counts.rows).c_str());
  }
  return Status::Ok();
}

Status PrintItems(const CheckpointReader& reader, const CheckpointCommand& command) {
  const CheckpointInfo& info = reader.info();
  std::vector<std::string> names;
  const TableInfo* table = nullptr;
  for (const TableInfo& known : info.tables) {
    if (known.name == command.items_of) table = &known;
    names.push_back(ShowName(known.name));
  }
  for (const RowTableInfo& known : info.row_tables) {
    if (known.settings.name == command.items_of) return PrintRows(reader, known, command);
    names.push_back(ShowName(known.settings.name));
  }
  if (table == nullptr) {
    return Status::NotFound("there is no table " + Quote(command.items_of) + " in " +
                            ShowName(info.path, 1000) + "." + Suggest(command.items_of, names));
  }
  // Ages are those at the time of the checkpoint.
  ItemsView view = ItemsView::Of({.now_nanos = info.created_nanos}, *table);
  view.format.columns.values = command.values;
  REVERB_ASSIGN_OR_RETURN(CheckpointItems items, reader.Items(table->name));
  const Paint paint(HasColours(STDOUT_FILENO));
  int64_t shown = 0;
  for (; shown < command.n; ++shown) {
    REVERB_ASSIGN_OR_RETURN(const std::optional<SampledTrajectory> item, items.Next());
    if (!item) break;
    REVERB_ASSIGN_OR_RETURN(const std::string text,
                            command.json ? view.ToJson(*item) : view.ToText(*item, paint));
    std::printf("%s\n", text.c_str());
  }
  if (!command.json) {
    std::printf("%s of table %s, which holds %s\n", ShowCount(shown, "item").c_str(),
                Quote(table->name).c_str(), ShowCount(table->current_size).c_str());
  }
  return Status::Ok();
}

int Inspect(const CheckpointCommand& command) {
  const Result<CheckpointReader> reader = CheckpointReader::Open(command.path);
  if (!reader.ok()) return Fail(command, reader.status());
  if (!command.items_of.empty()) {
    const Status status = PrintItems(*reader, command);
    return status.ok() ? kOk : Fail(command, status);
  }
  // Empty if the path is a single checkpoint.
  const Result<std::vector<CheckpointEntry>> siblings = ListCheckpoints(command.path);
  const std::vector<CheckpointEntry> listed = siblings.ok() ? *siblings : std::vector<CheckpointEntry>();
  const std::string page = command.json
                               ? CheckpointJson(reader->info(), listed) + "\n"
                               : CheckpointPage(reader->info(), listed, Paint(HasColours(STDOUT_FILENO)));
  std::fputs(page.c_str(), stdout);
  return kOk;
}

// --- verify, import, save ---

int Verify(const CheckpointCommand& command) {
  ProgressLine progress("checking");
  const Result<CheckpointReader> reader = CheckpointReader::Open(command.path);
  const Status status = reader.ok() ? reader->Verify(progress.callback()) : reader.status();
  progress.Clear();
  if (command.json) {
    JsonWriter json;
    json.BeginObject()
        .Field("path", reader.ok() ? reader->info().path : command.path)
        .Field("good", status.ok());
    json.Field("problem", status.ok() ? std::nullopt : std::optional(std::string(status.message()))).End();
    std::printf("%s\n", json.text().c_str());
  }
  if (!status.ok()) return Fail(command, status);
  if (command.json) return kOk;
  int64_t items = 0;
  for (const TableInfo& table : reader->info().tables) items += table.current_size;
  std::string contents = ShowCount(items, "item") + " in " +
                         ShowCount(static_cast<int64_t>(reader->info().tables.size()), "table");
  if (!reader->info().row_tables.empty()) {
    int64_t rows = 0;
    for (const RowTableInfo& table : reader->info().row_tables) rows += table.counts.rows;
    contents += " and " + ShowCount(rows, "row") + " in " +
                ShowCount(static_cast<int64_t>(reader->info().row_tables.size()), "row table");
  }
  std::printf("%s is good: %s, %s of data\n", ShowName(reader->info().path, 1000).c_str(), contents.c_str(),
              ShowBytes(static_cast<int64_t>(reader->info().payload_bytes)).c_str());
  return kOk;
}

int Import(const CheckpointCommand& command) {
  ProgressLine progress("reading");
  const Result<std::string> path = ImportCheckpoint(command.path, command.target, progress.callback());
  progress.Clear();
  if (!path.ok()) return Fail(command, path.status());
  std::printf("%s\n", path->c_str());
  return kOk;
}

int Copy(const CheckpointCommand& command) {
  ProgressLine progress("copying");
  const Result<std::string> path = CopyCheckpoint(command.path, command.target, progress.callback());
  progress.Clear();
  if (!path.ok()) return Fail(command, path.status());
  std::printf("%s\n", path->c_str());
  return kOk;
}

int Save(const CheckpointCommand& command) {
  const Result<Client> client = command.remote.Connect();
  if (!client.ok()) return command.remote.Fail(client.status());
  const Result<std::string> path = client->Checkpoint(command.remote.wait());
  if (!path.ok()) return command.remote.Fail(path.status());
  std::printf("%s\n", path->c_str());
  return kOk;
}

Command Add(CLI::App* parent, const char* name, const char* description, int (*run)(const CheckpointCommand&),
            const std::shared_ptr<CheckpointCommand>& command) {
  CLI::App* const app = parent->add_subcommand(name, description);
  command->name = "checkpoint " + std::string(name);
  return {app, [run, command] { return run(*command); }};
}

CLI::Option* AddPath(CLI::App* app, const char* name, std::string* path, const char* description) {
  return app->add_option(name, *path, description)->required()->type_name("");
}

Command AddInspect(CLI::App* parent) {
  const auto command = std::make_shared<CheckpointCommand>();
  const Command added = Add(parent, "inspect", "Show the contents of a checkpoint", Inspect, command);
  AddPath(added.app, "PATH", &command->path, "A checkpoint, or a folder of checkpoints (uses the latest)");
  added.app->add_flag("--json", command->json, "One line of JSON instead of a page");
  added.app->add_option("--items", command->items_of, "Show items or rows of this table instead")
      ->type_name("TABLE");
  added.app->add_option("-n,--n", command->n, "With --items: how many")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  added.app->add_option("--values", command->values, "With --items: how many elements of each column to show")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str();
  added.app->footer(
      "Examples:\n"
      "  reverb checkpoint inspect /data/run7\n"
      "  reverb checkpoint inspect /data/run7 --items replay --n 3\n"
      "  reverb checkpoint inspect /data/run7 --items replay --json --values 0 | wc -l\n"
      "\n"
      "Also shows checkpoints of dm-reverb. Changes nothing and needs no server.");
  return added;
}

Command AddVerify(CLI::App* parent) {
  const auto command = std::make_shared<CheckpointCommand>();
  const Command added =
      Add(parent, "verify", "Read a whole checkpoint and verify its contents", Verify, command);
  AddPath(added.app, "PATH", &command->path, "A checkpoint, or a folder of checkpoints (uses the latest)");
  added.app->add_flag("--json", command->json, "One line of JSON instead of a sentence");
  added.app->footer(
      "Example:\n"
      "  reverb checkpoint verify /data/run7 && rsync -a /data/run7 backup:\n"
      "\n"
      "The exit code is 0 if every checksum and every reference is valid, and 1 if the checkpoint is "
      "damaged.\n"
      "The error names the file.");
  return added;
}

Command AddImport(CLI::App* parent) {
  const auto command = std::make_shared<CheckpointCommand>();
  const Command added = Add(
      parent, "import", "Convert a checkpoint of dm-reverb to the format of this program", Import, command);
  AddPath(added.app, "OLD", &command->path, "A checkpoint, or a folder of checkpoints (uses the latest)");
  AddPath(added.app, "NEW", &command->target,
          "The folder for the new checkpoint; created if it does not exist");
  added.app->footer(
      "Example:\n"
      "  reverb checkpoint import /data/old /data/new && reverb serve --checkpoint /data/new --config "
      "server.toml\n"
      "\n"
      "Prints the path of the new checkpoint. OLD is not changed. Servers can also load checkpoints of\n"
      "dm-reverb directly; converted ones load faster.");
  return added;
}

Command AddCopy(CLI::App* parent) {
  const auto command = std::make_shared<CheckpointCommand>();
  const Command added =
      Add(parent, "copy", "Copy a checkpoint, with everything it needs, to a new folder", Copy, command);
  AddPath(added.app, "FROM", &command->path, "A checkpoint, or a folder of checkpoints (uses the latest)");
  AddPath(added.app, "TO", &command->target, "The new folder, which must not exist");
  added.app->footer(
      "Example:\n"
      "  reverb checkpoint copy /data/run7 /backup/run7-monday\n"
      "\n"
      "Prints the path of the copied checkpoint, inside of TO. Checkpoints of one folder share files; TO has "
      "all\n"
      "files of this one and can be moved, archived or served (`reverb serve --checkpoint TO`). The copy is "
      "read\n"
      "and verified before TO appears. A server may write checkpoints to FROM meanwhile.");
  return added;
}

Command AddSave(CLI::App* parent) {
  const auto command = std::make_shared<CheckpointCommand>();
  const Command added = Add(parent, "save", "Make a server write a checkpoint now", Save, command);
  command->remote.AddTo(added.app);
  command->remote.command = command->name;
  command->remote.timeout_seconds = 600;
  added.app->footer(
      "Example:\n"
      "  reverb checkpoint save localhost:8000\n"
      "\n"
      "Prints the path of the checkpoint, on the server's machine, once it is durable. The server must have\n"
      "been started with a folder for checkpoints (`reverb serve --checkpoint`). It continues to serve\n"
      "meanwhile.");
  return added;
}

}  // namespace

Command AddCheckpoint(CLI::App* program) {
  CLI::App* const app =
      program->add_subcommand("checkpoint", "Inspect, verify, copy, convert and write checkpoints");
  app->require_subcommand(1);
  const auto commands = std::make_shared<std::vector<Command>>();
  *commands = {AddInspect(app), AddVerify(app), AddCopy(app), AddImport(app), AddSave(app)};
  app->footer(
      "Example:\n"
      "  reverb checkpoint inspect /data/run7\n"
      "\n"
      "`reverb checkpoint COMMAND --help` explains a command.");
  return {app, [commands] {
            for (const Command& command : *commands) {
              if (command.app->parsed()) return command.run();
            }
            return int{kBadUsage};
          }};
}

}  // namespace reverb::program
