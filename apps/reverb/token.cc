// `reverb token new`, `list` and `remove`: the tokens file of a server.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "command.h"
#include "exit_codes.h"
#include "reverb/access.h"
#include "specs.h"
#include "terminal.h"
#include "text.h"

namespace reverb::program {
namespace {

struct TokenCommand {
  std::string file;
  std::string name;
  std::vector<std::string> rights;
  std::vector<std::string> tables;
  std::optional<std::string> expires_in;
  std::optional<int64_t> max_streams;
  std::optional<std::string> max_bytes_per_second;
  std::optional<std::string> max_waiting_bytes;
};

int FailToken(const Status& status) {
  std::fprintf(stderr, "reverb token: %s\n", std::string(status.message()).c_str());
  switch (status.code()) {
    case StatusCode::kNotFound:
      return kNotFound;
    case StatusCode::kInvalidArgument:
      return kBadUsage;
    default:
      return kFailed;
  }
}

std::string RightsOf(const TokenOptions& token) {
  std::vector<std::string> rights;
  for (const auto& [has, right] :
       {std::pair(token.read, Right::kRead), {token.write, Right::kWrite}, {token.admin, Right::kAdmin}}) {
    if (has) rights.emplace_back(RightName(right));
  }
  return Join(rights, ",");
}

bool IsExpired(const TokenOptions& token) {
  return token.expires && *token.expires <= std::chrono::system_clock::now();
}

// "2027-01-31T12:00:00Z".
std::string ShowExpiry(const TokenOptions& token) {
  if (!token.expires) return "never";
  const std::time_t seconds = std::chrono::system_clock::to_time_t(*token.expires);
  std::tm parts{};
  char text[64] = {};
  if (gmtime_r(&seconds, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Result<TokenOptions> GatherToken(const TokenCommand& command) {
  TokenOptions options{.name = command.name};
  for (const std::string& right : command.rights) {
    if (right == RightName(Right::kRead)) {
      options.read = true;
    } else if (right == RightName(Right::kWrite)) {
      options.write = true;
    } else if (right == RightName(Right::kAdmin)) {
      options.admin = true;
    } else {
      return Status::InvalidArgument("--rights: there is no right " + Quote(right) +
                                     "; choose some of read, write, admin");
    }
  }
  if (!command.tables.empty()) options.tables = command.tables;
  if (command.expires_in) {
    const Result<std::chrono::nanoseconds> time = ParseDuration(*command.expires_in);
    if (!time.ok()) return Status::InvalidArgument("--expires-in: " + std::string(time.status().message()));
    options.expires = std::chrono::system_clock::now() +
                      std::chrono::duration_cast<std::chrono::system_clock::duration>(*time);
  }
  options.max_streams = command.max_streams;
  for (const auto& [flag, text, to] :
       {std::tuple("--max-bytes-per-second", &command.max_bytes_per_second, &options.max_bytes_per_second),
        std::tuple("--max-waiting-bytes", &command.max_waiting_bytes, &options.max_waiting_bytes)}) {
    if (!*text) continue;
    const Result<int64_t> bytes = ParseBytes(**text);
    if (!bytes.ok())
      return Status::InvalidArgument(std::string(flag) + ": " + std::string(bytes.status().message()));
    *to = *bytes;
  }
  return options;
}

int NewOne(const TokenCommand& command) {
  const Result<TokenOptions> options = GatherToken(command);
  if (!options.ok()) return FailToken(options.status());
  const Result<std::string> token = reverb::AddToken(command.file, *options);
  if (!token.ok()) return FailToken(token.status());
  // The token alone, so that a script can store it: `reverb token new … > actors.token`.
  std::printf("%s\n", token->c_str());
  std::fprintf(
      stderr,
      "This is the only time that the token %s is shown. The file has a hash of it. Running servers know it "
      "within seconds.\n",
      Quote(command.name).c_str());
  return kOk;
}

int ListAll(const TokenCommand& command) {
  const Result<std::vector<TokenEntry>> tokens = ReadTokens(command.file);
  if (!tokens.ok()) return FailToken(tokens.status());
  Columns columns;
  columns.AddColumn("NAME");
  columns.AddColumn("RIGHTS");
  columns.AddColumn("TABLES");
  columns.AddColumn("EXPIRES");
  columns.AddColumn("LIMITS");
  for (const TokenEntry& entry : *tokens) {
    const TokenOptions& token = entry.options;
    std::vector<std::string> limits;
    if (token.max_streams) limits.push_back(ShowCount(*token.max_streams, "stream"));
    if (token.max_bytes_per_second) limits.push_back(ShowBytes(*token.max_bytes_per_second) + "/s");
    if (token.max_waiting_bytes) limits.push_back(ShowBytes(*token.max_waiting_bytes) + " waiting");
    std::vector<std::string> tables;
    for (const std::string& pattern : token.tables) tables.push_back(ShowName(pattern));
    columns.AddRow({token.name, RightsOf(token), Join(tables, ","),
                    ShowExpiry(token) + (IsExpired(token) ? " (expired)" : ""), Join(limits, ", ")});
  }
  std::fputs(columns.ToString(Paint(HasColours(1)), "").c_str(), stdout);
  return kOk;
}

int RemoveNamed(const TokenCommand& command) {
  const Status status = reverb::RemoveToken(command.file, command.name);
  if (!status.ok()) return FailToken(status);
  std::printf("Removed the token %s. Running servers end its streams within seconds.\n",
              Quote(command.name).c_str());
  return kOk;
}

void AddFileOption(CLI::App* app, std::string* file) {
  app->add_option("--file", *file, "The tokens file of the server ([auth] tokens_file)")
      ->type_name("FILE")
      ->required();
}
void AddNameArgument(CLI::App* app, std::string* name) {
  app->add_option("NAME", *name, "The token's name, which errors and logs show")->required()->type_name("");
}

}  // namespace

Command AddToken(CLI::App* program) {
  CLI::App* const app = program->add_subcommand("token", "Create, list and remove tokens of clients");
  app->require_subcommand(1);
  const auto command = std::make_shared<TokenCommand>();

  CLI::App* const create = app->add_subcommand("new", "Create a token and print it, once");
  AddNameArgument(create, &command->name);
  AddFileOption(create, &command->file);
  create
      ->add_option(
          "--rights", command->rights,
          "Some of read (sample, peek), write (insert, update) and admin (reset, delete, set, tables, "
          "checkpoints), separated by commas")
      ->delimiter(',')
      ->required()
      ->type_name("RIGHTS");
  create
      ->add_option("--tables", command->tables,
                   "The tables, as patterns with * and ?, separated by commas (default: *, all)")
      ->delimiter(',')
      ->type_name("TABLES");
  create
      ->add_option("--expires-in", command->expires_in,
                   "How long the token is valid, such as 24h (default: forever)")
      ->type_name("TIME");
  create->add_option("--max-streams", command->max_streams, "Writers and samplers that may use it at a time")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  create
      ->add_option("--max-bytes-per-second", command->max_bytes_per_second,
                   "Data that its clients may send and receive, such as 100MB; faster ones are slowed down")
      ->type_name("SIZE");
  create
      ->add_option("--max-waiting-bytes", command->max_waiting_bytes,
                   "Data of its writers that may wait for tables, such as 64MiB; then they wait")
      ->type_name("SIZE");
  create->footer(
      "Examples:\n"
      "  reverb token new actors --file tokens --rights write --tables 'replay*' > actors.token\n"
      "  reverb token new learner --file tokens --rights read,write --expires-in 24h > learner.token\n"
      "\n"
      "Servers read the file again when it changes. Clients send the token: --token-file, REVERB_TOKEN.");

  CLI::App* const list = app->add_subcommand("list", "List the tokens of a file, without their texts");
  AddFileOption(list, &command->file);
  list->footer("Example:\n  reverb token list --file tokens");

  CLI::App* const remove = app->add_subcommand("remove", "Remove a token, so that it is valid no longer");
  AddNameArgument(remove, &command->name);
  AddFileOption(remove, &command->file);
  remove->footer("Example:\n  reverb token remove actors --file tokens");

  app->footer(
      "Example:\n"
      "  reverb token new actors --file tokens --rights write > actors.token\n"
      "\n"
      "`reverb token COMMAND --help` explains a command.");
  return {app, [command, create, list] {
            if (create->parsed()) return NewOne(*command);
            if (list->parsed()) return ListAll(*command);
            return RemoveNamed(*command);
          }};
}

}  // namespace reverb::program
